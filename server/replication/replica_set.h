// ReplicaSet: a region's backups, as its primary writes to them: the Mirror of the region's store.
//
// Which backups count: the members of the last view that the membership has taken. A backup that cannot be written to is excluded: the
// next view, without it, is committed before the call that found it ends, and before any other call ends that it is missing in. So what ends with Ok is at all
// members of a view that is committed by then. Only members are promoted; so nothing that was acknowledged is lost with any of the others. While the view
// has no member but the primary, what is acknowledged is on its disk (Mirror::has_copies). With `min_in_sync` of 2 or more no write is acknowledged then: it
// waits until so many are in the view (Mirror::EnoughCopies).
//
// What an Append has WRITTEN may land after the call has failed as Unknown, into a buffer that holds another segment by then. So a backup is
// filled again only when each worker with such a failure has reached that memory server since: then the old connection is gone (dsm/transport.h, 5).
// That is looked at before it is filled, and once more before it counts, while no Append is on its way: the end of each is known then.
//
// Costs: an Append is one round trip to all backups together, of WRITEs only; a message to each in parallel for all else.
//
// Lock order: the store's locks of mirror.h, then `changing_`.
//
// Thread rule: thread-safe. Outlives the store; what is called on it ends before Stop returns.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "index/lsm/event.h"
#include "index/lsm/mirror.h"
#include "index/lsm/store.h"
#include "server/replication/backup_link.h"
#include "server/replication/index_mode.h"
#include "server/replication/unsettled_memory.h"

namespace farleaf::server::replication {

/// Who keeps a region's view: primary and members. Each call is one compare-and-set, by the primary that this process is.
class ViewKeeper {
 public:
  virtual ~ViewKeeper() = default;
  /// The members of the committed view, which is without the node (perhaps since before); the primary may be among them. Fenced: another process is
  /// the primary by now. Unavailable: it is not known, and the call was tried for as long as it makes sense: the primary acknowledges nothing more.
  virtual dsm::Task<Result<std::vector<NodeId>>> Exclude(dsm::Worker& worker, NodeId node) = 0;
  /// Ok: the committed view is with the node. NotFound: it is not wanted any more.
  virtual dsm::Task<Status> Include(dsm::Worker& worker, NodeId node) = 0;
};

class ReplicaSet final : public index::lsm::Mirror {
 public:
  using Worker = dsm::Worker;
  using MayAnswerFunction = std::function<Status()>;
  /// `views` outlives it, as whoever it is that `may_answer` asks (null: always). `mode`: of all backups.
  /// `unsettled`: of all that write to the region's backups in this process, one after another. `min_in_sync`: how many nodes, the primary included, are to
  /// have a write before it is acknowledged; 1: the primary alone will do, if there is nobody else.
  explicit ReplicaSet(
      ViewKeeper* views, IndexMode mode = IndexMode::kSend, MayAnswerFunction may_answer = {},
      std::shared_ptr<UnsettledMemory> unsettled = std::make_shared<UnsettledMemory>(),
      uint32_t min_in_sync = 1)
      : views_(views),
        mode_(mode),
        may_answer_(std::move(may_answer)),
        unsettled_(std::move(unsettled)),
        min_in_sync_(min_in_sync) {}
  /// Whose mirror this is. Before anything is added, and once.
  void set_store(index::lsm::LsmStore* store) { store_ = store; }

  /// Fills the backup while the store is served, and includes it in the view. Fails with what the backup, the store or the membership says; then it is no
  /// member. Unavailable also while something that was WRITTEN to its memory before may land yet: try again later.
  dsm::Task<Status> Add(Worker& worker, std::shared_ptr<BackupLink> link);
  /// As if it had failed. Ok also if it was no member.
  dsm::Task<Status> Remove(Worker& worker, NodeId node);
  /// Those that are written to.
  std::vector<NodeId> members() const;
  /// One of them is in the view.
  bool has_copies() const override { return copies_.load(std::memory_order_acquire) > 0; }
  Status EnoughCopies() const override;

  dsm::Task<Status> Open(Worker& worker, index::lsm::LogKind log,
                         index::storage::SegmentId segment) override;
  dsm::Task<Status> PrepareAppend(Worker& worker,
                                  std::span<const index::lsm::MirrorPiece> pieces) override;
  dsm::Task<Status> Append(Worker& worker,
                           std::span<const index::lsm::MirrorPiece> pieces) override;
  dsm::Task<Status> Seal(Worker& worker, index::lsm::LogKind log, index::storage::SegmentId segment,
                         uint32_t used) override;
  dsm::Task<Status> Sync(Worker& worker, index::lsm::SyncReach reach) override;
  dsm::Task<Status> WriteTable(Worker& worker, index::storage::SegmentId segment, uint32_t offset,
                               std::span<const std::byte> bytes) override;
  dsm::Task<Status> Commit(Worker& worker, const index::lsm::StateEdit& edit) override;
  dsm::Task<Status> DropTables(Worker& worker,
                               std::span<const index::storage::SegmentId> segments) override;
  Status MayAnswer() const override { return may_answer_ ? may_answer_() : Status::Ok(); }

  /// Asks the members for stamps of their clocks, and tells them which are proved (README.md, Staleness). REQUIRES: it has ended before the store is gone.
  dsm::Task<void> Stamp(Worker& worker);

  /// Nothing is waited for any more that was WRITTEN to those who are excluded. Behind it the workers run out of what this has spawned there.
  void Stop() { unsettled_->Stop(); }
  /// The process is gone.
  void Abandon();

  struct Counts {
    uint64_t appends = 0;     ///< calls of Append that WROTE something
    dsm::FabricCounts verbs;  ///< of Append
    uint64_t excluded = 0;
  };
  Counts counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
  }
  /// To all backups, those that were lost included.
  BackupLink::Counts sent() const;

 private:
  using Link = std::shared_ptr<BackupLink>;
  using Links = std::vector<Link>;
  Links links() const {
    std::lock_guard lock(mutex_);
    return links_;
  }
  void NoteIncluded(const Link& link, bool included);
  /// Others may have been taken out of the view, and not by this process.
  void NoteMembers(const std::vector<NodeId>& members);
  using OfOne = std::function<dsm::Task<Status>(BackupLink& link)>;
  /// Of each in parallel; then those that failed are excluded.
  dsm::Task<Status> OfEach(Worker& worker, const OfOne& of_one);
  dsm::Task<Status> Exclude(Worker& worker, Link link, Status why);
  /// Unavailable: it does not count any more.
  dsm::Task<Status> Include(Worker& worker, Link link);

  /// Until nothing of what this worker has WRITTEN there can land any more; or until that is stopped. It may end behind the set.
  static dsm::Task<void> Settle(Worker& worker, Link link,
                                std::shared_ptr<UnsettledMemory> unsettled);

  ViewKeeper* const views_;
  const IndexMode mode_;
  const MayAnswerFunction may_answer_;
  index::lsm::LsmStore* store_ = nullptr;
  index::lsm::CoroutineMutex changing_;  // of who changes the view
  const std::shared_ptr<UnsettledMemory> unsettled_;
  const uint32_t min_in_sync_;
  std::atomic<size_t> copies_{0};  ///< included_.size()
  mutable std::mutex mutex_;       // guards all below
  Links links_;                    // that are written to
  Links included_;                 // of these: in the view
  std::vector<std::weak_ptr<BackupLink>>
      added_;  // whether they count or not, as long as calls on them run
  Counts counts_;
  BackupLink::Counts sent_to_lost_;
};

}  // namespace farleaf::server::replication
