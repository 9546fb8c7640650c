// Memory servers on the verbs fabric in this process, with whatever options a test gives to either side.
//
// VerbsTest skips on a machine without an RDMA device for the tests; where the environment names one and
// it cannot be used, the tests fail.
//
// Thread rule: one thread builds and kills; the fabrics are thread-safe.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dsm/verbs/verbs_agent.h"
#include "dsm/verbs/verbs_fabric.h"
#include "test/support/fabric_under_test.h"

namespace farleaf::dsm {

class VerbsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HasRdma()) {
      GTEST_SKIP() << "no RDMA device for the tests: scripts/rdma_vm.sh runs this program with one";
    }
  }
};

/// Polls until the condition holds. False after a minute.
inline bool Eventually(const std::function<bool()>& condition) {
  const MonotonicClock clock;
  const uint64_t deadline_ns = clock.NowNs() + 60 * kNsPerSecond;
  while (!condition()) {
    if (clock.NowNs() >= deadline_ns) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class VerbsPool {
 public:
  static constexpr uint64_t kRegionBytes = uint64_t{16} << 20;
  struct Options {
    uint32_t servers = 1;
    uint64_t region_bytes = kRegionBytes;
    VerbsAgent::Options agent{.listen = ListenHost() + ":0", .advertise = "", .device = {}};
  };
  VerbsPool() : VerbsPool(Options()) {}
  explicit VerbsPool(Options options) : options_(std::move(options)) {
    for (uint32_t i = 0; i < options_.servers; ++i) {
      const auto id = static_cast<ServerId>(i);
      auto region = MemoryRegion::Create({options_.region_bytes, Hugepages::kNever, ""});
      FARLEAF_CHECK(region.ok(), region.status());
      regions_.push_back(std::make_unique<MemoryRegion>(std::move(*region)));
      agents_.push_back(nullptr);
      Status started = StartAgent(id, 100 + i, options_.agent.listen);
      FARLEAF_CHECK(started.ok(), started);
    }
  }

  /// Starts server `id` (again) on its memory.
  Status StartAgent(ServerId id, uint64_t incarnation, const std::string& listen) {
    VerbsAgent::Options options = options_.agent;
    options.listen = listen;
    auto agent = VerbsAgent::Start(options, Identity(id, incarnation), bytes(id));
    if (!agent.ok()) return agent.status();
    agents_[id] = std::move(*agent);
    return Status::Ok();
  }
  void StopAgent(ServerId id) { agents_[id].reset(); }
  ServerIdentity Identity(ServerId id, uint64_t incarnation) const {
    return {"tested", {id, options_.region_bytes, incarnation}};
  }

  VerbsAgent& agent(ServerId id = 0) { return *agents_[id]; }
  std::span<std::byte> bytes(ServerId id = 0) { return regions_[id]->bytes(); }
  uint64_t WordAt(uint64_t offset, ServerId id = 0) {
    return __atomic_load_n(reinterpret_cast<uint64_t*>(bytes(id).data() + offset),
                           __ATOMIC_ACQUIRE);
  }
  /// "HOST:PORT"
  std::string address(ServerId id = 0) { return agents_[id]->endpoint().substr(6); }
  std::vector<ServerEndpoint> endpoints() {
    std::vector<ServerEndpoint> endpoints;
    for (size_t i = 0; i < agents_.size(); ++i) {
      endpoints.push_back({static_cast<ServerId>(i), agents_[i]->endpoint(), 0, 0});
    }
    return endpoints;
  }

  Result<std::unique_ptr<VerbsFabric>> TryConnect(const VerbsOptions& options = Patient()) {
    return VerbsFabric::Connect(endpoints(), "tested", options, &clock_);
  }
  std::unique_ptr<VerbsFabric> Connect(const VerbsOptions& options = Patient()) {
    auto fabric = TryConnect(options);
    FARLEAF_CHECK(fabric.ok(), fabric.status());
    return std::move(*fabric);
  }
  /// For a busy machine: what is slow is not taken for dead.
  static VerbsOptions Patient() {
    return {.device = {}, .recovery = {.connect_timeout_ms = 20'000}, .ack_timeout_ms = 500};
  }
  const Clock& clock() const { return clock_; }

 private:
  const Options options_;
  MonotonicClock clock_;
  std::vector<std::unique_ptr<MemoryRegion>> regions_;
  std::vector<std::unique_ptr<VerbsAgent>> agents_;
};

}  // namespace farleaf::dsm
