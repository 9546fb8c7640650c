#include "benchmark/micro/fabric_pieces.h"

#include <benchmark/benchmark.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "benchmark/micro/pieces.h"
#include "benchmark/micro/verb_target.h"
#include "dsm/base/check.h"
#include "dsm/base/random.h"
#include "dsm/region_layout.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/shm/memory_region.h"
#include "dsm/tcp/tcp_agent.h"
#include "dsm/tcp/tcp_fabric.h"
#include "dsm/worker.h"

namespace farleaf::micro {
namespace {

constexpr uint64_t kSpanBytes = uint64_t{256} << 20, kRegionBytes = kSpanBytes + (16 << 20);
constexpr uint64_t kSpanBegin = 8 << 20;
constexpr uint64_t kPoolSpanBytes = 16 << 20;
constexpr size_t kReadBytesMax = 1024;

/// Memory that a fabric leads to.
class Place {
 public:
  virtual ~Place() = default;
  virtual dsm::Fabric& fabric() = 0;
  virtual uint64_t offset() const { return kSpanBegin; }
  virtual uint64_t bytes() const { return kSpanBytes; }
};

/// Pages that were never written would all be the kernel's one page of zeros.
void TouchPages(std::span<std::byte> region) {
  for (size_t at = kSpanBegin; at < region.size(); at += 4096) region[at] = std::byte{1};
}

class ShmPlace final : public Place {
 public:
  ShmPlace() {
    auto fabric = dsm::LocalFabric::Create({.servers = 1, .region_bytes = kRegionBytes});
    FARLEAF_CHECK(fabric.ok(), fabric.status());
    fabric_ = std::move(*fabric);
    TouchPages(fabric_->region_bytes(0));
  }
  dsm::Fabric& fabric() override { return *fabric_; }

 private:
  std::unique_ptr<dsm::LocalFabric> fabric_;
};

class TcpPlace final : public Place {
 public:
  TcpPlace() {
    constexpr uint64_t kChunkBytes = 1 << 20, kIncarnation = 1;
    const std::string cluster = "micro";
    auto layout = dsm::RegionLayout::For(0, kRegionBytes, kChunkBytes);
    FARLEAF_CHECK(layout.ok(), layout.status());
    layout->incarnation = kIncarnation;
    auto region = dsm::MemoryRegion::Create({kRegionBytes, dsm::Hugepages::kNever, ""});
    FARLEAF_CHECK(region.ok(), region.status());
    region_.emplace(std::move(*region));
    dsm::FormatRegion(*layout, region_->bytes());
    TouchPages(region_->bytes());
    auto agent = dsm::TcpAgent::Start({}, {cluster, {0, kRegionBytes, kIncarnation}},
                                      region_->bytes(), &clock_);
    FARLEAF_CHECK(agent.ok(), agent.status());
    agent_ = std::move(*agent);
    auto fabric = dsm::TcpFabric::Connect({{0, agent_->endpoint(), kRegionBytes, kIncarnation}},
                                          cluster, {}, &clock_);
    FARLEAF_CHECK(fabric.ok(), fabric.status());
    fabric_ = std::move(*fabric);
  }
  dsm::Fabric& fabric() override { return *fabric_; }

 private:
  MonotonicClock clock_;
  std::optional<dsm::MemoryRegion> region_;
  std::unique_ptr<dsm::TcpAgent> agent_;
  std::unique_ptr<dsm::TcpFabric> fabric_;
};

/// An extent of a pool, taken as any member takes it, and given back.
class PoolPlace final : public Place {
 public:
  explicit PoolPlace(const std::string& bootstrap) {
    auto target = VerbTarget::Open({.bootstrap = bootstrap, .span_bytes = kPoolSpanBytes}, &clock_);
    FARLEAF_CHECK(target.ok(), target.status());
    target_ = std::move(*target);
  }
  ~PoolPlace() override {
    const Status closed = target_->Close(VerbTarget::Memory::kGiveBack);
    FARLEAF_CHECK(closed.ok(), closed);
  }
  dsm::Fabric& fabric() override { return target_->fabric(); }
  uint64_t offset() const override { return target_->address().offset(); }
  uint64_t bytes() const override { return target_->span_bytes(); }

 private:
  MonotonicClock clock_;
  std::unique_ptr<VerbTarget> target_;
};

/// Made when first asked for, and kept for the fabric's other benchmarks.
class LazyPlace {
 public:
  using Make = std::function<std::unique_ptr<Place>()>;
  explicit LazyPlace(Make make) : make_(std::move(make)) {}
  Place& Get() {
    if (!place_) place_ = make_();
    return *place_;
  }

 private:
  Make make_;
  std::unique_ptr<Place> place_;
};

using AddVerb = std::function<void(dsm::Batch*, uint64_t offset, std::span<std::byte> buffer)>;

dsm::Task<Status> RunOne(dsm::Worker& worker, dsm::FabricCounts& counts, dsm::Batch& batch) {
  co_return co_await worker.RoundTrip(batch, counts);
}

void RunVerb(benchmark::State& state, Place& place, const AddVerb& add) {
  const MonotonicClock clock;
  const auto epochs = std::make_unique<dsm::EpochDomain>();
  auto transport = place.fabric().OpenTransport();
  FARLEAF_CHECK(transport.ok(), transport.status());
  dsm::Worker worker(
      {.transport = std::move(*transport), .epochs = epochs.get(), .clock = &clock, .seed = kSeed});
  Random random(kSeed);
  dsm::FabricCounts counts;
  alignas(64) std::array<std::byte, kReadBytesMax> buffer{};
  const uint64_t places = (place.bytes() - kReadBytesMax) / kLineBytes;
  for (auto _ : state) {
    dsm::Batch batch(0);
    add(&batch, place.offset() + random.Below(places) * kLineBytes, buffer);
    const Status status = worker.Run(RunOne(worker, counts, batch));
    FARLEAF_CHECK(status.ok(), status);
  }
  state.counters["round_trips"] = benchmark::Counter(static_cast<double>(counts.round_trips),
                                                     benchmark::Counter::kAvgIterations);
}

void RegisterVerbs(const std::string& fabric, LazyPlace::Make make) {
  const auto place = std::make_shared<LazyPlace>(std::move(make));
  const auto add = [&](const std::string& name, AddVerb verb) {
    benchmark::RegisterBenchmark(name.c_str(), [place,
                                                verb = std::move(verb)](benchmark::State& state) {
      RunVerb(state, place->Get(), verb);
    })->UseRealTime();
  };
  for (const size_t bytes : {size_t{64}, kReadBytesMax}) {
    add("read/" + fabric + "/" + std::to_string(bytes),
        [bytes](dsm::Batch* batch, uint64_t offset, std::span<std::byte> buffer) {
          batch->Read(offset, buffer.first(bytes));
        });
  }
  add("write/" + fabric + "/64",
      [](dsm::Batch* batch, uint64_t offset, std::span<std::byte> buffer) {
        batch->Write(offset, buffer.first(kLineBytes));
      });
  add("fetch_add/" + fabric, [](dsm::Batch* batch, uint64_t offset, std::span<std::byte> buffer) {
    batch->FetchAdd(offset, 1, reinterpret_cast<uint64_t*>(buffer.data()));
  });
}

}  // namespace

void RegisterFabricPieces(const std::string& bootstrap) {
  RegisterVerbs("shm", [] { return std::make_unique<ShmPlace>(); });
  RegisterVerbs("tcp", [] { return std::make_unique<TcpPlace>(); });
  if (!bootstrap.empty()) {
    RegisterVerbs("pool", [bootstrap] { return std::make_unique<PoolPlace>(bootstrap); });
  }
}

}  // namespace farleaf::micro
