// DelayFabric: adds a delay to every batch of another fabric, so that operations suspend where they
// would on a network. Used by tests and to explore latencies; it moves no bytes itself.
//
// A batch takes effect when its delay is over, and completes when the fabric below says so.
//
// Invariant: batches of one transport to one server take effect in the order of their posting.
// Thread rule: see Fabric and Transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/random.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

struct DelayOptions {
  uint64_t delay_ns = 0;       ///< every batch
  uint64_t jitter_ns_max = 0;  ///< added, drawn uniformly from 0 to this
  uint64_t seed = 1;           ///< of the jitter; each transport draws its own sequence
};

class DelayTransport final : public Transport {
 public:
  DelayTransport(std::unique_ptr<Transport> below, const DelayOptions& options, const Clock* clock)
      : below_(std::move(below)), options_(options), random_(options.seed), clock_(clock) {}
  void Post(Batch& batch) override;
  size_t Poll() override;
  void Wait(int wake_fd, uint64_t timeout_ns) override;
  uint32_t idle_turns_before_wait() const override { return below_->idle_turns_before_wait(); }
  void Prefetch(GlobalAddress from, uint32_t bytes) override { below_->Prefetch(from, bytes); }

 private:
  std::unique_ptr<Transport> below_;
  DelayOptions options_;
  Random random_;
  const Clock* clock_;
  std::multimap<uint64_t, Batch*> held_;  // by due time; equal times in order of posting
  std::map<ServerId, uint64_t> last_due_ns_;
};

class DelayFabric final : public Fabric {
 public:
  /// `clock` outlives the fabric.
  DelayFabric(std::unique_ptr<Fabric> below, const DelayOptions& options, const Clock* clock)
      : below_(std::move(below)),
        options_(options),
        clock_(clock),
        name_(std::string(below_->name()) + "+delay") {}

  std::string_view name() const override { return name_; }
  std::span<const RegionInfo> regions() const override { return below_->regions(); }
  Result<std::unique_ptr<Transport>> OpenTransport() override;
  Status Identify(const MemberIdentity& self) override { return below_->Identify(self); }
  Status CutOff(ServerId server, const MemberIdentity& member) override {
    return below_->CutOff(server, member);
  }
  Status Add(const ServerEndpoint& endpoint) override { return below_->Add(endpoint); }
  void Remove(ServerId server) override { below_->Remove(server); }
  Fabric& below() { return *below_; }

 private:
  std::unique_ptr<Fabric> below_;
  DelayOptions options_;
  const Clock* clock_;
  std::string name_;
  std::atomic<uint64_t> transports_opened_{0};
};

}  // namespace farleaf::dsm
