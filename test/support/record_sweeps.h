// RecordSweeps: the sweeps of a server through records, a turn at a time and when a test wants it.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "dsm/base/clock.h"
#include "server/records/member_sweep.h"

namespace farleaf::test {

class RecordSweeps {
 public:
  static constexpr uint64_t kAbandonedMs = 600'000;

  explicit RecordSweeps(dsm::Worker* worker) : worker_(worker) {}

  /// A turn of each sweep through all that is in `store`.
  void Sweep(const server::RecordStore& store) {
    dsm::FabricCounts counts;
    const server::WalkContext walk{*worker_, counts, 1'000'000, [] { return false; }};
    const server::PacedWalk::Options options{.turn_s = 1};
    server::ExpirySweep records(&store, std::string(1, server::kUserKeySpace),
                                server::EndOfPrefix(std::string(1, server::kCursorSpace)), options,
                                kAbandonedMs);
    server::MemberSweep members(&store, options, kAbandonedMs);
    turn_ns_ += 2 * kNsPerSecond;
    EXPECT_TRUE(worker_->Run(records.Step(walk, turn_ns_)).ok());
    EXPECT_TRUE(worker_->Run(members.Step(walk, turn_ns_)).ok());
  }
  /// Until nobody can be at it any more who has begun something now, and two turns: members of what the first has ended
  /// go in the second.
  void WaitAndSweep(const server::RecordStore& store, ManualClock* wall) {
    wall->AdvanceNs((kAbandonedMs + 1) * kNsPerMs);
    Sweep(store);
    Sweep(store);
  }

 private:
  dsm::Worker* const worker_;
  uint64_t turn_ns_ = 0;
};

}  // namespace farleaf::test
