// CrashingFabric: one compute server on memory servers of this process, whose verbs complete at once and
// which dies at a verb that the test chooses: before it, or, a WRITE, when some of its words have landed.
// What it posts from then on fails, as if it were fenced; the test then fences it (Fence). Its memory servers' memory
// may be mapped, as over shared memory: loads are no verbs, and it does not die at them.
//
// A test may also have it post what is wrong (CrashFault), to see whether its own checks find that.
//
// Sleeping takes no time: the clock is moved instead.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/clock.h"
#include "dsm/base/random.h"
#include "dsm/region_layout.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/shm/mapped_verbs.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

/// How a compute server gets at the memory of its memory servers.
enum class CrashMemory : uint8_t {
  kByVerbs,
  kMapped,  ///< it may also load from there (Transport::Mapped)
};

/// What is wrong with the batches of a compute server that a test wants to be caught.
enum class CrashFault : uint8_t {
  kNone,
  kNoRedo,       ///< no WRITE into a redo slot lands
  kUnlockFirst,  ///< the unlock stands ahead of what it ends
};

/// When a compute server dies, and how it goes about its work; outlives its fabric.
struct CrashPlan {
  uint64_t verbs_left = UINT64_MAX;  ///< that still run
  uint64_t tear_seed = 0;            ///< not 0: of the WRITE at which it dies these words land
  uint64_t verbs_run = 0;
  uint64_t reads_run = 0;  ///< of them, loads not among them
  bool dead = false;
  CrashMemory memory = CrashMemory::kByVerbs;
  CrashFault fault = CrashFault::kNone;
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
      std::vector<Verb> faulty;
      std::span<const Verb> verbs = batch.verbs();
      if (plan_->fault != CrashFault::kNone) verbs = faulty = MakeFaulty(batch);
      for (const Verb& verb : verbs) {
        if (!plan_->dead && plan_->verbs_left == 0) Die(batch.server(), verb);
        if (plan_->dead) {
          batch.CompleteWith(Status::Fenced("the test's compute server is dead"));
          return;
        }
        --plan_->verbs_left;
        ++plan_->verbs_run;
        plan_->reads_run += verb.kind == VerbKind::kRead;
        Status status = ExecuteVerb(verb, servers_->region_bytes(batch.server()));
        if (!status.ok()) {
          batch.CompleteWith(std::move(status));
          return;
        }
      }
      batch.CompleteWith(Status::Ok());
    }
    size_t Poll() override { return 0; }
    const std::byte* Mapped(GlobalAddress from, uint32_t bytes) override {
      if (plan_->dead || plan_->memory == CrashMemory::kByVerbs) return nullptr;
      if (from.server() >= servers_->regions().size()) return nullptr;
      const std::span<std::byte> region = servers_->region_bytes(from.server());
      if (from.offset() % 8 != 0 || bytes > region.size() ||
          from.offset() > region.size() - bytes) {
        return nullptr;
      }
      return region.data() + from.offset();
    }
    void Wait(int, uint64_t timeout_ns) override { clock_->AdvanceNs(timeout_ns); }
    uint32_t idle_turns_before_wait() const override { return 0; }
    bool completes_at_once() const override { return plan_->memory == CrashMemory::kMapped; }

   private:
    std::vector<Verb> MakeFaulty(const Batch& batch) const {
      std::vector<Verb> verbs(batch.verbs().begin(), batch.verbs().end());
      if (plan_->fault == CrashFault::kNoRedo) {
        std::erase_if(verbs, [&](const Verb& verb) {
          return verb.kind == VerbKind::kWrite && IsRedoSlot(batch.server(), verb.offset);
        });
      }
      const bool unlocks = verbs.size() > 1 && verbs.back().kind == VerbKind::kWrite &&
                           verbs.back().operand != 0;  // Batch::ReplaceWord
      if (plan_->fault == CrashFault::kUnlockFirst && unlocks) {
        std::rotate(verbs.begin(), verbs.end() - 1, verbs.end());
      }
      return verbs;
    }
    bool IsRedoSlot(ServerId server, uint64_t offset) const {
      const std::span<const std::byte> region = servers_->region_bytes(server);
      const auto layout = RegionLayout::Parse(region);
      FARLEAF_CHECK(layout.ok(), layout.status());
      if (offset < layout->first_chunk) return false;
      const uint64_t at = layout->ChunkWordOffset(layout->ChunkOf(offset));
      return ChunkWord::Decode(LoadLittle<uint64_t>(&region[at])).kind == ChunkKind::kRedo;
    }
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
