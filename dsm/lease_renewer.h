// LeaseRenewer: a compute server's lease words at the memory servers that want one (RegionLayout's
// lease_ms). RenewalThread renews them on a thread of its own.
//
// Each memory server's word is renewed for itself: one that does not answer delays the others' by
// nothing. Once a memory server has cut this compute server off, no lease is renewed any more, so that
// the others cut it off too, and what it has locked there is recovered.
//
// Invariant: a word is WRITTEN by one verb at a time, so its count never goes back.
// Thread rule: Begin, Renew, RenewUntilStopped and End on one worker at a time; Stop and fenced by any
// thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "dsm/base/status.h"
#include "dsm/member.h"
#include "dsm/op_context.h"
#include "dsm/region_layout.h"
#include "dsm/task.h"
#include "dsm/worker.h"

namespace farleaf::dsm {

class LeaseRenewer {
 public:
  LeaseRenewer(const MemberIdentity& self, std::span<const RegionLayout> layouts);
  LeaseRenewer(const LeaseRenewer&) = delete;

  /// Whether any memory server wants leases.
  bool wanted() const { return !leases_.empty(); }
  /// Between renewals: a quarter of the shortest lease, or a second.
  uint64_t interval_ns() const { return interval_ns_; }

  /// The first lease words, in one round trip. Only then may this compute server take locks.
  Task<Status> Begin(OpContext& op);
  /// Starts a renewal at each memory server, unless one is under way there. REQUIRES: `worker` lives
  /// until none is.
  void Renew(Worker& worker);
  bool under_way() const;
  /// Renews at every interval until Stop, or until it is fenced.
  Task<void> RenewUntilStopped(Worker& worker);
  void Stop() { stop_.store(true); }
  /// Nobody watches any more, in one round trip. REQUIRES: no renewal is under way, nor comes later.
  Task<Status> End(OpContext& op);

  /// Fenced, once a renewal has failed with it.
  Status fenced() const;

 private:
  struct Lease {
    ServerId server;
    uint64_t lease_ms;
    uint16_t count = 0;
    bool under_way = false;
    bool failing = false;
  };
  Task<Status> WriteAll(OpContext& op, bool watched);
  Task<void> RenewOne(Lease& lease, Worker& worker);
  void Note(Lease& lease, const Status& outcome);

  const MemberIdentity self_;
  std::vector<Lease> leases_;
  uint64_t interval_ns_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<bool> is_fenced_{false};
  mutable std::mutex mutex_;  // guards fenced_
  Status fenced_;
};

class RenewalThread {
 public:
  /// Renews until it is destroyed. `renewer` outlives it.
  RenewalThread(LeaseRenewer* renewer, std::unique_ptr<Worker> worker);
  /// Waits for the renewals that are under way.
  ~RenewalThread();

 private:
  void Run();

  LeaseRenewer* const renewer_;
  const std::unique_ptr<Worker> worker_;
  std::mutex mutex_;  // guards stop_
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace farleaf::dsm
