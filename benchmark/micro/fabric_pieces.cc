#include "benchmark/micro/fabric_pieces.h"

#include <benchmark/benchmark.h>

#include <array>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>

#include "benchmark/micro/pieces.h"
#include "benchmark/micro/verb_target.h"
#include "dsm/base/random.h"
#include "dsm/base/result.h"
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
  static Result<std::unique_ptr<Place>> Open() {
    auto fabric = dsm::LocalFabric::Create({.servers = 1, .region_bytes = kRegionBytes});
    if (!fabric.ok()) return fabric.status();
    TouchPages((*fabric)->region_bytes(0));
    return std::unique_ptr<Place>(std::make_unique<ShmPlace>(std::move(*fabric)));
  }
  explicit ShmPlace(std::unique_ptr<dsm::LocalFabric> fabric) : fabric_(std::move(fabric)) {}
  dsm::Fabric& fabric() override { return *fabric_; }

 private:
  std::unique_ptr<dsm::LocalFabric> fabric_;
};

class TcpPlace final : public Place {
 public:
  static Result<std::unique_ptr<Place>> Open() {
    auto place = std::make_unique<TcpPlace>();
    const Status opened = place->Start();
    if (!opened.ok()) return opened;
    return std::unique_ptr<Place>(std::move(place));
  }
  dsm::Fabric& fabric() override { return *fabric_; }

 private:
  Status Start() {
    constexpr uint64_t kChunkBytes = 1 << 20, kIncarnation = 1;
    const std::string cluster = "micro";
    auto layout = dsm::RegionLayout::For(0, kRegionBytes, kChunkBytes);
    if (!layout.ok()) return layout.status();
    layout->incarnation = kIncarnation;
    auto region = dsm::MemoryRegion::Create({kRegionBytes, dsm::Hugepages::kNever, ""});
    if (!region.ok()) return region.status();
    region_.emplace(std::move(*region));
    dsm::FormatRegion(*layout, region_->bytes());
    TouchPages(region_->bytes());
    auto agent = dsm::TcpAgent::Start({}, {cluster, {0, kRegionBytes, kIncarnation}},
                                      region_->bytes(), &clock_);
    if (!agent.ok()) return agent.status();
    agent_ = std::move(*agent);
    auto fabric = dsm::TcpFabric::Connect({{0, agent_->endpoint(), kRegionBytes, kIncarnation}},
                                          cluster, {}, &clock_);
    if (!fabric.ok()) return fabric.status();
    fabric_ = std::move(*fabric);
    return Status::Ok();
  }

  MonotonicClock clock_;
  std::optional<dsm::MemoryRegion> region_;
  std::unique_ptr<dsm::TcpAgent> agent_;
  std::unique_ptr<dsm::TcpFabric> fabric_;
};

/// An extent of a pool, taken as any member takes it, and given back.
class PoolPlace final : public Place {
 public:
  static Result<std::unique_ptr<Place>> Open(const std::string& bootstrap) {
    auto place = std::make_unique<PoolPlace>();
    auto target =
        VerbTarget::Open({.bootstrap = bootstrap, .span_bytes = kPoolSpanBytes}, &place->clock_);
    if (!target.ok()) return target.status().WithContext("--bootstrap=" + bootstrap);
    place->target_ = std::move(*target);
    return std::unique_ptr<Place>(std::move(place));
  }
  ~PoolPlace() override {
    if (!target_) return;
    const Status closed = target_->Close(VerbTarget::Memory::kGiveBack);
    if (!closed.ok()) std::cerr << "micro: leaving the pool: " << closed << '\n';
  }
  dsm::Fabric& fabric() override { return target_->fabric(); }
  uint64_t offset() const override { return target_->address().offset(); }
  uint64_t bytes() const override { return target_->span_bytes(); }

 private:
  MonotonicClock clock_;
  std::unique_ptr<VerbTarget> target_;
};

/// Opened when first asked for, and kept for the fabric's other benchmarks.
class LazyPlace {
 public:
  using Open = std::function<Result<std::unique_ptr<Place>>()>;
  explicit LazyPlace(Open open) : open_(std::move(open)) {}
  /// Null if it cannot be opened: why().
  Place* Get() {
    if (!place_ && status_.ok()) {
      auto opened = open_();
      status_ = opened.ok() ? Status::Ok() : opened.status();
      if (opened.ok()) place_ = std::move(*opened);
    }
    return place_.get();
  }
  std::string why() const { return status_.ToString(); }

 private:
  Open open_;
  Status status_;
  std::unique_ptr<Place> place_;
};

using AddVerb = std::function<void(dsm::Batch*, uint64_t offset, std::span<std::byte> buffer)>;

dsm::Task<Status> RunOne(dsm::Worker& worker, dsm::FabricCounts& counts, dsm::Batch& batch) {
  co_return co_await worker.RoundTrip(batch, counts);
}

void RunVerb(benchmark::State& state, LazyPlace& lazy_place, const AddVerb& add) {
  Place* const place = lazy_place.Get();
  if (place == nullptr) return state.SkipWithError(lazy_place.why().c_str());
  const MonotonicClock clock;
  const auto epochs = std::make_unique<dsm::EpochDomain>();
  auto transport = place->fabric().OpenTransport();
  if (!transport.ok()) return state.SkipWithError(transport.status().ToString().c_str());
  dsm::Worker worker(
      {.transport = std::move(*transport), .epochs = epochs.get(), .clock = &clock, .seed = kSeed});
  Random random(kSeed);
  dsm::FabricCounts counts;
  alignas(64) std::array<std::byte, kReadBytesMax> buffer{};
  const uint64_t places = (place->bytes() - kReadBytesMax) / kLineBytes;
  for (auto _ : state) {
    dsm::Batch batch(0);
    add(&batch, place->offset() + random.Below(places) * kLineBytes, buffer);
    const Status status = worker.Run(RunOne(worker, counts, batch));
    if (!status.ok()) return state.SkipWithError(status.ToString().c_str());
  }
  state.counters["round_trips"] = benchmark::Counter(static_cast<double>(counts.round_trips),
                                                     benchmark::Counter::kAvgIterations);
}

void RegisterVerbs(const std::string& fabric, LazyPlace::Open open) {
  const auto place = std::make_shared<LazyPlace>(std::move(open));
  const auto add = [&](const std::string& name, AddVerb verb) {
    benchmark::RegisterBenchmark(name.c_str(), [place,
                                                verb = std::move(verb)](benchmark::State& state) {
      RunVerb(state, *place, verb);
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
  RegisterVerbs("shm", ShmPlace::Open);
  RegisterVerbs("tcp", TcpPlace::Open);
  if (!bootstrap.empty()) {
    RegisterVerbs("pool", [bootstrap] { return PoolPlace::Open(bootstrap); });
  }
}

}  // namespace farleaf::micro
