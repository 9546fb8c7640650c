#include "benchmark/micro/physical_bounds.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ostream.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>

#include "benchmark/micro/pieces.h"
#include "dsm/base/check.h"
#include "dsm/base/random.h"

namespace farleaf::micro {
namespace {

constexpr size_t kFarBytes = size_t{512} << 20;  // more than any cache holds

struct PieceBound {
  const char *piece, *bound;
};
constexpr PieceBound kBounds[] = {
    {"node_search", "random_load"},
    {"crc32c_1016B", "near_copy/1016"},
    {"tree_get", "bound"},
    {"memtable_insert", "random_load"},
    {"memtable_get", "random_load"},
    {"read/shm/64", "random_copy/64"},
    {"read/shm/1024", "random_copy/1024"},
    {"write/shm/64", "random_store/64"},
    {"fetch_add/shm", "random_fetch_add"},
    {"read/tcp/64", "loopback_round_trip/64"},
    {"read/tcp/1024", "loopback_round_trip/1024"},
    {"write/tcp/64", "loopback_round_trip/64"},
    {"fetch_add/tcp", "loopback_round_trip/64"},
    {"native_request_append", "near_copy/152"},
    {"native_request_parse", "near_copy/152"},
    {"native_response_append", "near_copy/152"},
    {"native_response_parse", "near_copy/152"},
    {"redis_request_read", "near_copy/152"},
    {"memcached_command_parse", "near_copy/152"},
};

/// Every page written, so that none is the kernel's one page of zeros.
std::vector<uint64_t>& FarMemory() {
  static auto* const memory = new std::vector<uint64_t>(kFarBytes / sizeof(uint64_t), 1);
  return *memory;
}

/// Places of lines, in words. Each hangs on what the one before it held, so that accesses do not overlap: a
/// verb that is waited for does not overlap with the next one either.
class ChainedPlaces {
 public:
  uint64_t Next(uint64_t found) {
    constexpr uint64_t kWords = kLineBytes / sizeof(uint64_t);
    return random_.Below(kFarBytes / kLineBytes - 16) * kWords + (found >> 63);
  }

 private:
  Random random_{kSeed};
};

void RandomLoad(benchmark::State& state) {
  auto& memory = FarMemory();
  ChainedPlaces places;
  uint64_t found = 0;
  for (auto _ : state) {
    found = memory[places.Next(found)];
    benchmark::DoNotOptimize(found);
  }
}

void RandomCopy(benchmark::State& state) {
  auto& memory = FarMemory();
  const auto bytes = static_cast<size_t>(state.range(0));
  ChainedPlaces places;
  alignas(64) uint64_t buffer[128] = {};
  for (auto _ : state) {
    std::memcpy(buffer, &memory[places.Next(buffer[bytes / sizeof(uint64_t) - 1])], bytes);
    benchmark::DoNotOptimize(buffer);
    benchmark::ClobberMemory();
  }
}

// Nobody waits for a store: these overlap.
void RandomStore(benchmark::State& state) {
  auto& memory = FarMemory();
  const auto bytes = static_cast<size_t>(state.range(0));
  ChainedPlaces places;
  alignas(64) uint64_t buffer[128] = {1};
  for (auto _ : state) {
    std::memcpy(&memory[places.Next(0)], buffer, bytes);
    benchmark::ClobberMemory();
  }
}

void RandomFetchAdd(benchmark::State& state) {
  auto& memory = FarMemory();
  ChainedPlaces places;
  uint64_t found = 0;
  for (auto _ : state) {
    std::atomic_ref word(memory[places.Next(found)]);
    found = word.fetch_add(1);
    benchmark::DoNotOptimize(found);
  }
}

void NearCopy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  alignas(64) char from[1024] = {1}, to[1024];
  for (auto _ : state) {
    benchmark::DoNotOptimize(from);
    std::memcpy(to, from, bytes);
    benchmark::DoNotOptimize(to);
    benchmark::ClobberMemory();
  }
}

/// Both ends of a TCP connection over loopback.
class Loopback {
 public:
  Loopback() {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    FARLEAF_CHECK(::bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0, errno);
    FARLEAF_CHECK(::listen(listener, 1) == 0, errno);
    FARLEAF_CHECK(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0,
                  errno);
    near_ = ::socket(AF_INET, SOCK_STREAM, 0);
    FARLEAF_CHECK(::connect(near_, reinterpret_cast<sockaddr*>(&address), length) == 0, errno);
    far_ = ::accept(listener, nullptr, nullptr);
    FARLEAF_CHECK(far_ >= 0, errno);
    ::close(listener);
    const int one = 1;
    for (const int fd : {near_, far_}) {
      FARLEAF_CHECK(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0, errno);
    }
  }
  ~Loopback() {
    ::close(near_);
    ::close(far_);
  }
  int near() const { return near_; }
  int far() const { return far_; }

 private:
  int near_ = -1, far_ = -1;
};

/// Awake until so many bytes are there. False: the peer has closed.
bool Receive(int fd, char* into, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t received = ::recv(fd, into + done, bytes - done, MSG_DONTWAIT);
    if (received == 0) return false;
    FARLEAF_CHECK(received > 0 || errno == EAGAIN || errno == EINTR, errno);
    if (received > 0) done += static_cast<size_t>(received);
  }
  return true;
}

// A request of a line's size, and an answer of so many bytes.
void LoopbackRoundTrip(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const Loopback loopback;
  std::thread server([&] {
    char request[kLineBytes], answer[1024] = {};
    while (Receive(loopback.far(), request, sizeof request)) {
      FARLEAF_CHECK(
          ::send(loopback.far(), answer, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes),
          errno);
    }
  });
  char request[kLineBytes] = {}, answer[1024];
  for (auto _ : state) {
    FARLEAF_CHECK(::send(loopback.near(), request, sizeof request, MSG_NOSIGNAL) == sizeof request,
                  errno);
    FARLEAF_CHECK(Receive(loopback.near(), answer, bytes));
  }
  ::shutdown(loopback.near(), SHUT_WR);
  server.join();
}

/// Without what Google Benchmark appends to it.
std::string PlainName(const std::string& name) { return name.substr(0, name.find("/real_time")); }

/// Of one item, where an iteration has several.
double NsOf(const benchmark::BenchmarkReporter::Run& run) {
  const auto item = run.counters.find("cpu/item");
  if (item != run.counters.end()) return item->second.value * 1e9;
  return run.GetAdjustedRealTime() / benchmark::GetTimeUnitMultiplier(run.time_unit) * 1e9;
}

}  // namespace

void RegisterPhysicalBounds() {
  benchmark::RegisterBenchmark("random_load", RandomLoad);
  benchmark::RegisterBenchmark("random_copy", RandomCopy)->Arg(64)->Arg(1024);
  benchmark::RegisterBenchmark("random_store", RandomStore)->Arg(64);
  benchmark::RegisterBenchmark("random_fetch_add", RandomFetchAdd);
  benchmark::RegisterBenchmark("near_copy", NearCopy)->Arg(152)->Arg(1016);
  benchmark::RegisterBenchmark("loopback_round_trip", LoopbackRoundTrip)
      ->Arg(64)
      ->Arg(1024)
      ->UseRealTime();
}

BoundReporter::BoundReporter()
    : ConsoleReporter(::isatty(STDOUT_FILENO) == 1 ? OO_ColorTabular : OO_Tabular) {}

void BoundReporter::ReportRuns(const std::vector<Run>& reports) {
  for (const Run& run : reports) {
    any_failed_ |= run.error_occurred;
    if (run.run_type == Run::RT_Iteration && !run.error_occurred) {
      ns_[PlainName(run.benchmark_name())] = NsOf(run);
    }
  }
  ConsoleReporter::ReportRuns(reports);
}

void BoundReporter::PrintBounds(std::ostream& out) const {
  bool headed = false;
  for (const auto& [piece, bound] : kBounds) {
    const auto of_piece = ns_.find(piece), of_bound = ns_.find(bound);
    if (of_piece == ns_.end() || of_bound == ns_.end()) continue;
    if (!headed) {
      fmt::print(out, "\n{:<26} {:>10}   {:<26} {:>10} {:>7}\n", "piece", "ns", "physical bound",
                 "ns", "share");
      headed = true;
    }
    fmt::print(out, "{:<26} {:>10.1f}   {:<26} {:>10.1f} {:>6.0f}%\n", piece, of_piece->second,
               bound, of_bound->second, 100 * of_bound->second / of_piece->second);
  }
}

}  // namespace farleaf::micro
