// Follower: a copy of a store that makes its tables itself: Talos' Build-Index, to compare with. What it costs is what a second store would: a memtable,
// flushes, merges.
//
// It has the primary's logs, under the primary's numbers, as a StoreCopy has them; of the primary's edits it takes which segments of the logs there are.
// When a segment of the recovery log is full, its commits go, with their sequences, from its buffer into the memtable, in the log's order; a memtable that
// is full is flushed, behind a Sync of the values that it names, and runs are merged as a store does it (LsmStore::OpenFollower). Its tables have numbers of
// their own: from the middle of those that nobody has used (kSegmentMax is 2^40). A segment of the recovery log goes when its last commit is in a table.
//
// Its directory is a store's at any time: the manifest names the primary's logs and its own tables. So it is promoted as any copy, and all that
// holds of recovery holds of it. Filled anew it takes over nothing of what it was: a number of a table of its own means another table elsewhere.
//
// Why the commits of a buffer are all there when they are taken: Seal comes behind the Append of all of the segment's bytes, and Appends come in the
// order of the log; so do those of the segments in front of it, whose Seals may come later.
//
// Values are not collected: the primary is to be opened without collect_values, as the follower is. (Moved values would be commits like others, but a
// segment that the primary frees may still be named here.)
//
// Thread rule: one worker, one call at a time; flushes and merges run on threads of their own; metrics by any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "index/lsm/background.h"
#include "index/lsm/store.h"
#include "index/lsm/store_copy.h"

namespace farleaf::index::lsm {

class Follower {
 public:
  struct Host {
    LsmOptions options;  ///< of its store; collect_values and durability are not looked at
    dsm::EpochDomain* epochs =
        nullptr;  ///< of the workers that are opened here, and of the one that calls
    const Clock* wall = nullptr;
    Background::OpenWorker open_worker;  ///< for flushes and merges
    const Clock* cpu =
        nullptr;  ///< of the calling worker's thread, for following_cpu_ns; null: nobody wants to know
  };

  /// Goes on from a copy that was filled. `storage` outlives it.
  static dsm::Task<Result<std::unique_ptr<Follower>>> Open(dsm::Worker& worker, Host host,
                                                           storage::Storage* storage,
                                                           StoreCopy::Parts copy);
  ~Follower();
  Follower(const Follower&) = delete;

  bool is_open(SegmentId segment) const { return logs_.is_open(segment); }
  /// As StoreCopy's.
  dsm::Task<Status> OpenLog(dsm::Worker& worker, LogKind log, SegmentId segment,
                            std::span<std::byte> buffer);
  /// Waits while the memtable is full, and the one before it is flushed.
  dsm::Task<Status> Seal(dsm::Worker& worker, SegmentId segment, uint32_t used);
  dsm::Task<Status> Sync(dsm::Worker& worker, SyncReach reach, OpenBytes bytes);
  /// What it says of the logs.
  dsm::Task<Status> Commit(dsm::Worker& worker, const StateEdit& edit);
  /// Ends flushes and merges, and makes what is in the buffers durable: the storage is to be opened as a store then. Nothing else is called afterwards.
  /// REQUIRES: nobody writes into the buffers any more.
  dsm::Task<Status> FinishTails(dsm::Worker& worker);

  const LsmStore& store() const { return *store_; }
  /// Processor time of flushes and merges.
  uint64_t background_cpu_ns() {
    uint64_t ns = 0;
    for (const uint64_t each : background_->CpuNs()) ns += each;
    return ns;
  }
  /// Of taking commits from the log into the memtable.
  uint64_t following_cpu_ns() const { return following_cpu_ns_.load(std::memory_order_relaxed); }

 private:
  Follower(Host host, storage::Storage* storage, CopiedLogs logs)
      : host_(std::move(host)), storage_(storage), logs_(std::move(logs)) {}
  void TakeNames(const StoreState& state, const std::vector<SegmentId>& existing);
  std::optional<LogHead> HeadOf(SegmentId segment, std::span<const std::byte> bytes) const;
  /// What is in open segments that begin with this commit, or one before it.
  dsm::Task<Status> FollowUpTo(dsm::Worker& worker, Sequence last_head);
  dsm::Task<Status> FollowSegment(dsm::Worker& worker, SegmentId segment);
  /// Follows what is in memory until the memtable is full (true), or there is no more.
  Result<bool> FollowUntilFull(SegmentId segment, uint32_t* at);
  /// Has the memtable flushed.
  dsm::Task<Status> Rotate(dsm::Worker& worker);
  void RemoveDropped();

  const Host host_;
  storage::Storage* const storage_;
  CopiedLogs logs_;
  std::unique_ptr<LsmStore> store_;
  std::unique_ptr<Background> background_;
  uint64_t epoch_ = 0;                     // the store's
  std::map<SegmentId, LogKind> unopened_;  // granted to a log, and never opened here
  std::set<SegmentId> values_;             // granted to the value log
  OpenBytes named_;                        // by what is in the active memtable
  std::atomic<uint64_t> following_cpu_ns_{0};
};

}  // namespace farleaf::index::lsm
