// CrashingFabric: one compute server on memory servers of this process, whose verbs complete at once and
// which dies at a verb that the test chooses: before it, or, a WRITE, when some of its words have landed.
// What it posts from then on fails, as if it were fenced; the test then fences it (Fence).
//
// Sleeping takes no time: the clock is moved instead.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/base/clock.h"
#include "dsm/base/random.h"
#include "dsm/region_layout.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/shm/mapped_verbs.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

/// When a compute server dies; outlives its fabric.
struct CrashPlan {
  uint64_t verbs_left = UINT64_MAX;  ///< that still run
  uint64_t tear_seed = 0;            ///< not 0: of the WRITE at which it dies these words land
  uint64_t verbs_run = 0;
  bool dead = false;
};

class CrashingFabric final : public Fabric {
 public:
  CrashingFabric(LocalFabric* servers, ManualClock* clock, CrashPlan* plan)
      : servers_(servers), clock_(clock), plan_(plan) {}

  std::string_view name() const override { return "crashing"; }
  std::span<const RegionInfo> regions() const override { return servers_->regions(); }
  Result<std::unique_ptr<Transport>> OpenTransport() override {
    return std::unique_ptr<Transport>(std::make_unique<Crashing>(servers_, clock_, plan_));
  }
  Status Identify(const MemberIdentity&) override { return Status::Ok(); }
  Status CutOff(ServerId, const MemberIdentity&) override {
    return Status::Unimplemented("the test fences");
  }

  /// As the memory servers would, after they have confirmed its death.
  static void Fence(LocalFabric& servers, const MemberIdentity& member) {
    for (const RegionInfo& info : servers.regions()) {
      StoreLittle<uint64_t>(servers.region_bytes(info.server).data() + FenceWordOffset(member.id),
                            member.incarnation);
    }
  }

 private:
  class Crashing final : public Transport {
   public:
    Crashing(LocalFabric* servers, ManualClock* clock, CrashPlan* plan)
        : servers_(servers), clock_(clock), plan_(plan) {}
    void Post(Batch& batch) override {
      for (const Verb& verb : batch.verbs()) {
        if (!plan_->dead && plan_->verbs_left == 0) Die(batch.server(), verb);
        if (plan_->dead) {
          batch.CompleteWith(Status::Fenced("the test's compute server is dead"));
          return;
        }
        --plan_->verbs_left;
        ++plan_->verbs_run;
        Status status = ExecuteVerb(verb, servers_->region_bytes(batch.server()));
        if (!status.ok()) {
          batch.CompleteWith(std::move(status));
          return;
        }
      }
      batch.CompleteWith(Status::Ok());
    }
    size_t Poll() override { return 0; }
    void Wait(int, uint64_t timeout_ns) override { clock_->AdvanceNs(timeout_ns); }
    uint32_t idle_turns_before_wait() const override { return 0; }

   private:
    void Die(ServerId server, const Verb& verb) {
      plan_->dead = true;
      if (verb.kind != VerbKind::kWrite || plan_->tear_seed == 0) return;
      Random random(plan_->tear_seed);
      const uint64_t one_in = 2 + random.Below(3);
      for (uint32_t at = 0; at < verb.length; at += 8) {
        if (random.OneIn(one_in) != (plan_->tear_seed % 2 == 0)) continue;
        const Verb word{verb.kind, 8, verb.offset + at, verb.local + at, 0, 0};
        FARLEAF_CHECK(ExecuteVerb(word, servers_->region_bytes(server)).ok());
      }
    }
    LocalFabric* servers_;
    ManualClock* clock_;
    CrashPlan* plan_;
  };

  LocalFabric* servers_;
  ManualClock* clock_;
  CrashPlan* plan_;
};

}  // namespace farleaf::dsm
