#include "dsm/sim/sim_server.h"

#include "dsm/base/check.h"
#include "dsm/region_layout.h"

namespace farleaf::dsm {

namespace {
constexpr size_t kPageBytes = 4096;
}  // namespace

SimServer::SimServer(Options options, uint64_t incarnation) : options_(std::move(options)) {
  Start(incarnation);
}

void SimServer::Crash() {
  FARLEAF_CHECK(running_, options_.server);
  running_ = false;
  leases_.reset();
  fenced_.reset();
  region_ = nullptr;
  memory_.reset();
}

void SimServer::Start(uint64_t incarnation) {
  FARLEAF_CHECK(!running_, options_.server);
  auto layout = RegionLayout::For(options_.server, options_.region_bytes, options_.chunk_bytes);
  FARLEAF_CHECK(layout.ok(), layout.status());
  layout->incarnation = incarnation;
  layout->lease_ms = options_.lease_ms;
  memory_.reset(static_cast<std::byte*>(std::calloc(options_.region_bytes + kPageBytes, 1)));
  FARLEAF_CHECK(memory_ != nullptr, options_.region_bytes);
  region_ = memory_.get() + (-reinterpret_cast<uintptr_t>(memory_.get()) & (kPageBytes - 1));
  FormatRegion(*layout, {region_, options_.region_bytes});
  identity_ = {options_.cluster, {options_.server, options_.region_bytes, incarnation}};
  fenced_ =
      std::make_unique<FencedMembers>(options_.server, std::span(region_, options_.region_bytes));
  running_ = true;
  if (options_.lease_ms == 0) return;
  leases_ = std::make_unique<LeaseEnforcer>(LeaseEnforcer::Deps{.server = options_.server,
                                                                .region = region(),
                                                                .lease_ms = options_.lease_ms,
                                                                .clock = options_.clock,
                                                                .cut_off = options_.cut_off,
                                                                .take_ended = {}});
}

}  // namespace farleaf::dsm
