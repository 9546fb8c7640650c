// RegionNode: a node's part in one region, for one life of the node: it looks at the region's entry whenever that changes, and is the
// primary (region_primary.h), a backup (region_backup.h), or nothing, as the entry says.
//
//   nothing ◄──► backup ──► primary       primary ──► backup, once it has handed the region over
//
// A primary in whose place another one was named ends with the life of its node: that was over for all others before (README.md).
//
// Thread rule: Run and what it calls: the control worker. The status by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "server/cluster/region_backup.h"
#include "server/cluster/region_primary.h"

namespace farleaf::server::cluster {

enum class Role : uint8_t { kNothing, kBackup, kPrimary };

class RegionNode {
 public:
  using Worker = dsm::Worker;
  explicit RegionNode(RegionDeps deps);
  ~RegionNode();

  /// Until Stop (Ok, or what was not left in good order), or until this life is over: Fenced. What is in memory is on this node's disk, and the
  /// backups', behind it, as far as it is Ok.
  dsm::Task<Status> Run(Worker& worker);
  /// Run ends soon, and what it has spawned.
  void Stop() { stopping_.store(true); }
  /// The process is gone.
  void Abandon();

  /// Tells the copies of what this node is the primary of how old they are. On the control worker.
  void StampCopies(Worker& worker) {
    if (primary_) worker.Spawn(primary_->StampCopies(worker));
  }

  RegionId region() const { return deps_.region; }
  Role role() const { return role_.load(); }
  /// On the control worker: null if it is not the primary.
  const RegionPrimary* primary() const { return primary_.get(); }
  /// `look` at the primary, if it is one, while it stays. From any thread.
  template <typename Look>
  void WithPrimary(const Look& look) const {
    std::lock_guard lock(mutex_);
    if (primary_ && primary_->serves()) look(*primary_);
  }

 private:
  dsm::Task<Status> Look(Worker& worker);
  dsm::Task<Status> LookAsPrimary(Worker& worker, membership::StoredRegion seen);
  dsm::Task<Status> End(Worker& worker, Status why);
  dsm::Task<Status> CloseWithinLease(Worker& worker);
  dsm::Task<void> StopBehindLease(Worker& worker, const bool* closes, bool* watched);
  void SetPrimary(std::unique_ptr<RegionPrimary> primary);

  const RegionDeps deps_;
  membership::RegionStore regions_;
  std::atomic<Role> role_{Role::kNothing};
  std::atomic<bool> stopping_{false};
  RegionBackup backup_;
  WrittenMemory written_;
  mutable std::mutex mutex_;  // guards primary_ where it changes, and where other threads look
  std::unique_ptr<RegionPrimary> primary_;
  std::optional<uint64_t> nothing_since_ns_;
};

}  // namespace farleaf::server::cluster
