// ScriptedFabric: one compute server on memory servers of this process, whose batches run one a turn of their
// worker, in the order in which they were posted, and as the test rules: wholly or in part, well or not, now
// or later. While a batch is looked at the test may have other compute servers do things.
//
// Sleeping takes no time: the clock is moved instead.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/base/clock.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/shm/mapped_verbs.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

/// Runs the next verbs of the batch that is looked at, at most so many.
using RunVerbs = std::function<void(size_t verbs)>;
inline constexpr size_t kAllVerbs = SIZE_MAX;
/// How the batch ends, after what of it was run; nullopt: it is looked at again in the next turn.
using BatchRule = std::function<std::optional<Status>(const Batch& batch, const RunVerbs& run)>;

/// Outlives its fabric. Without a rule all verbs run, and the batch ends well.
struct BatchScript {
  BatchRule rule;
};

/// Whether the batch has a verb of that kind with an effect on any of these bytes.
inline bool Touches(const Batch& batch, VerbKind kind, GlobalAddress at, uint64_t bytes) {
  if (batch.server() != at.server()) return false;
  for (const Verb& verb : batch.verbs()) {
    const bool apart =
        verb.offset >= at.offset() + bytes || verb.offset + verb.length <= at.offset();
    if (verb.kind == kind && !apart) return true;
  }
  return false;
}

class ScriptedFabric final : public Fabric {
 public:
  ScriptedFabric(LocalFabric* servers, ManualClock* clock, BatchScript* script)
      : servers_(servers), clock_(clock), script_(script) {}

  std::string_view name() const override { return "scripted"; }
  std::span<const RegionInfo> regions() const override { return servers_->regions(); }
  Result<std::unique_ptr<Transport>> OpenTransport() override {
    return std::unique_ptr<Transport>(std::make_unique<Scripted>(servers_, clock_, script_));
  }
  Status Identify(const MemberIdentity&) override { return Status::Ok(); }
  Status CutOff(ServerId, const MemberIdentity&) override {
    return Status::Unimplemented("nobody is cut off here");
  }

 private:
  class Scripted final : public Transport {
   public:
    Scripted(LocalFabric* servers, ManualClock* clock, BatchScript* script)
        : servers_(servers), clock_(clock), script_(script) {}
    void Post(Batch& batch) override { posted_.push_back({&batch, 0}); }
    size_t Poll() override {
      for (size_t i = 0; i < posted_.size(); ++i) {
        Posted& at = posted_[i];
        std::optional<Status> ended;
        if (script_->rule) {
          ended = script_->rule(*at.batch, [&](size_t verbs) { Run(at, verbs); });
        } else {
          Run(at, kAllVerbs);
          ended = Status::Ok();
        }
        if (!ended) continue;
        Batch* batch = at.batch;
        posted_.erase(posted_.begin() + static_cast<std::ptrdiff_t>(i));
        batch->CompleteWith(std::move(*ended));
        return 1;
      }
      return 0;
    }
    void Wait(int, uint64_t timeout_ns) override {
      if (posted_.empty()) clock_->AdvanceNs(timeout_ns);
    }
    uint32_t idle_turns_before_wait() const override { return 0; }

   private:
    struct Posted {
      Batch* batch;
      size_t verbs_run;
    };
    void Run(Posted& at, size_t verbs) {
      const auto all = at.batch->verbs();
      for (; verbs > 0 && at.verbs_run < all.size(); --verbs) {
        const Status ran =
            ExecuteVerb(all[at.verbs_run++], servers_->region_bytes(at.batch->server()));
        FARLEAF_CHECK(ran.ok(), ran);
      }
    }
    LocalFabric* servers_;
    ManualClock* clock_;
    BatchScript* script_;
    std::deque<Posted> posted_;
  };

  LocalFabric* servers_;
  ManualClock* clock_;
  BatchScript* script_;
};

}  // namespace farleaf::dsm
