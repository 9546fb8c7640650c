// Pool: this process's membership in a pool of memory servers. It is joined once, shared by the
// process's threads, and left in good order by Leave.
//
// Joining reads every region's header, compares the incarnations with those that the pool was made
// with (region words), draws a ticket by FETCH-ADD from member word 0 of the
// catalog server, and takes the first free member word from there on by CAS: the compute server id
// and its incarnation. From then on the fabric carries that name, so that memory servers can cut this
// compute server off; what joined it was anonymous, and is closed. Before Join returns, the lease words
// are written at all memory servers that want them; Leave sets them to 0 before it gives the id back,
// so that what it left behind is either nothing, or watched.
//
// A compute server that a memory server has cut off (fenced) leaves at once, with that failure: all that
// it held is then recovered by others. So it is with one that has given up something of the pool, since
// connections broke (Allocator::GiveUp): it keeps its id, and its leases run out.
//
// Thread rule: thread-safe after Join; each thread opens its own Worker.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "dsm/allocator.h"
#include "dsm/base/clock.h"
#include "dsm/base/result.h"
#include "dsm/epoch.h"
#include "dsm/lease_renewer.h"
#include "dsm/local_lock.h"
#include "dsm/member.h"
#include "dsm/region_layout.h"
#include "dsm/remote_lock.h"
#include "dsm/transport.h"
#include "dsm/unresolved_locks.h"
#include "dsm/worker.h"

namespace farleaf::dsm {

struct PoolOptions {
  enum class Role : uint8_t { kMember, kObserver };  ///< an observer only reads
  Role role = Role::kMember;
  /// Who renews the leases, where memory servers want that.
  enum class Renewal : uint8_t {
    kThread,  ///< the pool, on a thread of its own
    kCaller,  ///< whoever joined: by RenewLeases on a worker, until StopRenewing
  };
  Renewal renewal = Renewal::kThread;
  uint64_t seed = 1;  ///< of the workers' backoff jitter
  AllocatorOptions allocator = {};
};

class Pool {
 public:
  /// Unavailable if the catalog server (id 0) is missing, or a server was restarted and has lost what
  /// it held; Corruption or InvalidArgument if a region
  /// is not one this program understands; ResourceExhausted if all member ids are taken; Fenced if
  /// it was cut off while it joined.
  static Result<std::unique_ptr<Pool>> Join(std::unique_ptr<Fabric> fabric, PoolOptions options,
                                            const Clock* clock);
  /// Leaves, if Leave has not succeeded or failed half-way; what that came to is logged.
  ~Pool();

  Result<std::unique_ptr<Worker>> OpenWorker();
  /// Returns pages, chunks and the member id. REQUIRES: no operation runs, none starts later, and
  /// RenewLeases has ended.
  /// Unavailable while locks are unresolved: once the id is given back nobody could take them over.
  /// Nothing has happened then: it may be tried again behind an upkeep that has resolved them
  /// (index::RangeIndex::Upkeep), or the process ends as it is, and others take over what it holds when
  /// its lease has run out. Any other failure is for good, and the lease runs out, too.
  Status Leave();
  /// The process that this membership stands for has crashed, as the simulation does it: it is not left,
  /// now or at destruction, and nothing of the pool is touched any more. Locks that its coroutines hold
  /// stay held in the pool: who destroys those coroutines (Worker::Abandon) is not at fault for it.
  void Abandon();

  /// For Renewal::kCaller: ends after StopRenewing, within LeaseRenewer::interval_ns, or when this
  /// compute server is fenced, or at once if no memory server wants leases.
  Task<void> RenewLeases(Worker& worker);
  void StopRenewing();
  /// Fenced, once a renewal has found that a memory server has cut this compute server off: nothing can
  /// be done with this pool any more but to leave it and join anew.
  Status fenced() const { return leases_ ? leases_->fenced() : Status::Ok(); }

  const MemberIdentity& self() const { return self_; }
  Fabric& fabric() { return *fabric_; }
  const Fabric& fabric() const { return *fabric_; }
  std::span<const RegionLayout> layouts() const { return allocator_->layouts(); }
  Allocator& allocator() { return *allocator_; }
  LocalLockTable& locks() { return locks_; }
  /// Never given to anyone else in this pool: (member, incarnation, count). Low two bits are 01, so
  /// that it is never 0 and never reads as a LockWord that says free.
  uint64_t NextUniqueId() {
    return 1 | uint64_t{self_.id} << 2 | uint64_t{self_.short_incarnation()} << 14 |
           unique_ids_given_.fetch_add(1, std::memory_order_relaxed) << 26;
  }
  /// The last word of a claim on the pool's recovery (index/blink/recover_member.h) that this member could
  /// not release, since connections broke; 0: none.
  uint64_t lost_claim() const { return lost_claim_.load(); }
  void set_lost_claim(uint64_t word) { lost_claim_.store(word); }
  /// The redo slots of this member on `server`; none for an observer.
  RedoSlots& redo_slots(ServerId server) {
    FARLEAF_DCHECK(server < redo_slots_.size(), server, redo_slots_.size());
    return redo_slots_[server];
  }
  UnresolvedLocks& unresolved_locks() { return unresolved_locks_; }
  EpochDomain& epochs() { return epochs_; }
  const Clock& clock() const { return *clock_; }

 private:
  Pool(std::unique_ptr<Fabric> fabric, PoolOptions options, const Clock* clock);
  Status ReadLayouts(Worker& worker, std::vector<RegionLayout>* layouts);
  Status TakeMemberId(Worker& worker);
  /// Has this compute server watched where memory servers do that.
  Status BeginLeases(std::span<const RegionLayout> layouts);
  Status EndLeases(OpContext& op);
  Status CheckLocksResolved() const;
  Status LeaveInOrder();

  std::unique_ptr<Fabric> fabric_;
  PoolOptions options_;
  const Clock* clock_;
  EpochDomain epochs_;
  LocalLockTable locks_;
  UnresolvedLocks unresolved_locks_;
  MemberIdentity self_;
  std::deque<RedoSlots> redo_slots_;  // by server id; fixed after Join
  std::unique_ptr<Allocator> allocator_;
  std::atomic<uint64_t> unique_ids_given_{0};
  std::atomic<uint64_t> workers_opened_{0};
  std::atomic<uint64_t> lost_claim_{0};
  bool left_ = false;
  bool leave_refused_ = false;
  std::unique_ptr<LeaseRenewer> leases_;    // none: no memory server wants them, or an observer
  std::unique_ptr<RenewalThread> renewal_;  // destroyed first
};

}  // namespace farleaf::dsm
