// storage_bench: what a random read of 4 KiB costs, in processor time and in latency, on each engine of FileStorage and
// with pread, side by side on the same files.
//
//   storage_bench DIRECTORY [SEGMENTS [READS]]
//
// Closed loop on one thread: `depth` reads are under way at a time. Processor time is the process's, all threads and
// the kernel's share included (getrusage).
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/random.h"
#include "dsm/null_transport.h"
#include "dsm/worker.h"
#include "index/storage/file_storage.h"

namespace farleaf::index::storage {
namespace {

using dsm::Task;

struct Plan {
  uint64_t segments = 256;
  uint64_t reads = 20'000;
};

uint64_t ProcessorNs() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto ns = [](const timeval& t) {
    return static_cast<uint64_t>(t.tv_sec) * kNsPerSecond + static_cast<uint64_t>(t.tv_usec) * 1000;
  };
  return ns(used.ru_utime) + ns(used.ru_stime);
}

struct FreeBytes {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using Buffer = std::unique_ptr<std::byte, FreeBytes>;
Buffer NewBuffer(size_t bytes) {
  return Buffer(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, bytes)));
}

Task<void> Fill(dsm::Worker& worker, Storage& storage, uint64_t segments) {
  const Buffer buffer = NewBuffer(kSegmentBytes);
  std::memset(buffer.get(), 'f', kSegmentBytes);
  for (uint64_t id = 1; id <= segments; ++id) {
    Status status = co_await storage.Create(worker, SegmentId{id}, Making{});
    FARLEAF_CHECK(status.ok() || status.code() == StatusCode::kAlreadyExists, status);
    if (!status.ok()) continue;
    Io write{IoKind::kWrite, SegmentId{id}, 0, {buffer.get(), kSegmentBytes}};
    Io sync{IoKind::kSync, SegmentId{id}};
    status = co_await storage.Run(worker, {&write, 1});
    FARLEAF_CHECK(status.ok(), status);
    status = co_await storage.Run(worker, {&sync, 1});
    FARLEAF_CHECK(status.ok(), status);
  }
}

Task<void> Read(dsm::Worker& worker, Storage& storage, const Plan& plan, uint64_t seed,
                uint64_t reads) {
  const Buffer buffer = NewBuffer(kBlockBytes);
  Random random(seed);
  for (uint64_t i = 0; i < reads; ++i) {
    Io io{IoKind::kRead,
          SegmentId{1 + random.Below(plan.segments)},
          static_cast<uint32_t>(random.Below(kSegmentBytes / kBlockBytes)) * kBlockBytes,
          {buffer.get(), kBlockBytes}};
    const Status status = co_await storage.Run(worker, {&io, 1});
    FARLEAF_CHECK(status.ok(), status);
  }
}

void Report(std::string_view engine, uint64_t depth, uint64_t reads, uint64_t cpu_ns,
            uint64_t wall_ns) {
  fmt::print("{:>10} depth {:>3}: {:6.2f} us of processor, {:7.1f} us latency, {:9.0f} reads/s\n",
             engine, depth, static_cast<double>(cpu_ns) / static_cast<double>(reads) / 1e3,
             static_cast<double>(wall_ns * depth) / static_cast<double>(reads) / 1e3,
             static_cast<double>(reads) * 1e9 / static_cast<double>(wall_ns));
  std::fflush(stdout);
}

void MeasureEngine(const std::string& directory, const Plan& plan, IoEngine engine,
                   std::string_view name) {
  Result<std::unique_ptr<FileStorage>> storage =
      FileStorage::Open({.directory = directory, .engine = engine, .threads = 16});
  FARLEAF_CHECK(storage.ok(), storage.status());
  MonotonicClock clock;
  dsm::EpochDomain epochs;
  dsm::Worker worker(
      {.transport = std::make_unique<dsm::NullTransport>(), .epochs = &epochs, .clock = &clock});
  worker.Run(Fill(worker, **storage, plan.segments));
  worker.Run(Read(worker, **storage, plan, 7, plan.segments * 4));  // opens the files
  for (const uint64_t depth : {1, 8, 64}) {
    const uint64_t each = plan.reads / depth;
    const uint64_t cpu_ns = ProcessorNs(), begin_ns = clock.NowNs();
    for (uint64_t i = 0; i < depth; ++i) {
      worker.Spawn(Read(worker, **storage, plan, 100 + i, each));
    }
    worker.RunUntilIdle();
    Report(name, depth, each * depth, ProcessorNs() - cpu_ns, clock.NowNs() - begin_ns);
  }
}

void MeasurePread(const std::string& directory, const Plan& plan) {
  std::vector<dsm::UniqueFd> files;
  {
    Result<std::unique_ptr<FileStorage>> storage = FileStorage::Open({.directory = directory});
    FARLEAF_CHECK(storage.ok(), storage.status());
    for (uint64_t id = 1; id <= plan.segments; ++id) {
      files.emplace_back(::open((*storage)->NameOf(SegmentId{id}).c_str(), O_RDONLY | O_DIRECT));
      FARLEAF_CHECK(files.back().valid(), id);
    }
  }
  const Buffer buffer = NewBuffer(kBlockBytes);
  MonotonicClock clock;
  Random random(100);
  const uint64_t cpu_ns = ProcessorNs(), begin_ns = clock.NowNs();
  for (uint64_t i = 0; i < plan.reads; ++i) {
    const int fd = files[random.Below(plan.segments)].get();
    const auto offset = static_cast<off_t>(random.Below(kSegmentBytes / kBlockBytes) * kBlockBytes);
    FARLEAF_CHECK(::pread(fd, buffer.get(), kBlockBytes, offset) == kBlockBytes, errno);
  }
  Report("pread", 1, plan.reads, ProcessorNs() - cpu_ns, clock.NowNs() - begin_ns);
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: storage_bench DIRECTORY [SEGMENTS [READS]]\n");
    return 2;
  }
  Plan plan;
  if (argc > 2) plan.segments = std::strtoull(argv[2], nullptr, 10);
  if (argc > 3) plan.reads = std::strtoull(argv[3], nullptr, 10);
  FARLEAF_CHECK(plan.segments > 0 && plan.reads >= 64, plan.segments, plan.reads);
  for (int round = 0; round < 2; ++round) {
    MeasureEngine(argv[1], plan, IoEngine::kIoUring, "io_uring");
    MeasureEngine(argv[1], plan, IoEngine::kThreads, "threads");
    MeasurePread(argv[1], plan);
  }
  return 0;
}

}  // namespace
}  // namespace farleaf::index::storage

int main(int argc, char** argv) { return farleaf::index::storage::Main(argc, argv); }
