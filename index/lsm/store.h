// LsmStore: a RangeIndex that is larger than memory and survives crashes (README.md: how it goes, and its invariants).
//
// An operation looks at one ReadView, the newest when it began. As long as all that it needs is in memory it runs through without
// suspending; where a block is missing it pins the view, fetches the block, and looks again.
//
// A change that depends on what it replaces is committed under the lock of its key's stripe, if the key has not been written
// since it was looked at; else it looks again. So no lock is held across a suspension, and whoever has to look again has seen
// somebody else's change succeed. By cases: a change of the key since the look is in a memtable, and its sequence is another
// than the one that was seen there; or its memtable was flushed, and then the count of flushes is another.
//
// Lock order: stripes, ascending; then view_mutex_; then the recovery log's lock. None is held across a suspension, nor while
// memory of views is freed or segments are removed.
//
// Thread rule: thread-safe. Outlives every operation on it; the storage outlives it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/clock.h"
#include "index/lsm/block_cache.h"
#include "index/lsm/commit_order.h"
#include "index/lsm/commit_record.h"
#include "index/lsm/compaction_plan.h"
#include "index/lsm/copied_logs.h"
#include "index/lsm/event.h"
#include "index/lsm/followed_segments.h"
#include "index/lsm/log.h"
#include "index/lsm/log_group.h"
#include "index/lsm/lookup.h"
#include "index/lsm/manifest.h"
#include "index/lsm/merge.h"
#include "index/lsm/modify_entry.h"
#include "index/lsm/open_values.h"
#include "index/lsm/options.h"
#include "index/lsm/reclaim_plan.h"
#include "index/lsm/segment_grants.h"
#include "index/lsm/snapshot.h"
#include "index/lsm/store_metrics.h"
#include "index/lsm/value_garbage.h"
#include "index/lsm/version.h"
#include "index/lsm/view_read.h"
#include "index/lsm/wary_cursor.h"
#include "index/lsm/write_pace.h"
#include "index/lsm/write_room.h"
#include "index/range_index.h"

namespace farleaf::index::lsm {

/// [0, bytes) of a segment, whole blocks.
struct SegmentPart {
  SegmentId segment = SegmentId::kNone;
  uint32_t bytes = 0;
};
/// What a table has of each of its segments.
std::vector<SegmentPart> SegmentsOf(const TableInfo& table);

class LsmStore final : public RangeIndex {
 public:
  struct Deps {
    storage::Storage* storage = nullptr;
    dsm::EpochDomain* epochs = nullptr;  ///< of all workers that call into the store
    const Clock* wall = nullptr;         ///< time since 1970, by which entries expire
    /// Of a new store's epoch: drawn anew by each process, but for simulations. With one seed, bytes that an earlier store has left in
    /// segments of the same numbers would be records of this one.
    uint64_t seed = 1;
    Mirror* mirror = nullptr;  ///< of the store's copies, and outlives it; null: there are none
  };
  enum class IfMissing : uint8_t { kFail, kCreate };

  /// Reads the manifest and replays the recovery log. NotFound: no store, and kFail. Corruption names the file. The mirror is not called for what an
  /// opening commits: its copies are filled (FillCopy) from what was opened.
  static Task<Result<std::unique_ptr<LsmStore>>> Open(dsm::Worker& worker, Deps deps,
                                                      LsmOptions options, IfMissing if_missing);
  /// REQUIRES: Close or Abandon has ended.
  ~LsmStore() override;

  Task<Result<bool>> Get(OpContext& op, std::string_view key, std::string* value) override;
  Task<Status> MultiGet(OpContext& op, std::span<const std::string_view> keys,
                        std::vector<std::optional<std::string>>* values) override;
  size_t VisitAtOnce(OpContext& op, std::span<const std::string_view> keys,
                     ValueVisitor& visitor) override;
  /// With kRead the key keeps its expiry; else it has none afterwards, as behind a put.
  Task<Result<ModifyResult>> Modify(OpContext& op, std::string_view key,
                                    const ModifyFunction& modify, CurrentValue use) override;
  Task<size_t> ModifyTogether(OpContext& op, std::span<const std::string_view> keys,
                              CurrentValue use, KeyChanges& changes) override;
  /// Reads nothing.
  Task<Status> BlindPut(OpContext& op, std::string_view key, std::string_view value) override;
  Task<Status> Scan(OpContext& op, ScanRange range, std::vector<KeyValue>* rows) override;
  Task<Status> DeleteRange(OpContext& op, std::string_view start, std::string_view end) override;
  Task<Status> Upkeep(OpContext& op) override;

  /// Modify that sees the key's expiry, and says which one it has afterwards. `use`: as of Modify; with any of them the expiry is seen.
  Task<Result<ModifyResult>> ModifyEntry(OpContext& op, std::string_view key,
                                         ModifyEntryFunction modify, CurrentValue use);
  /// When the key expires, in ms since 1970; 0: never. nullopt: it is not there, or has expired. Nothing is read of a large value.
  Task<Result<std::optional<uint64_t>>> ExpiryOf(OpContext& op, std::string_view key);
  /// The same of what the snapshot sees. REQUIRES: as GetAt.
  Task<Result<std::optional<uint64_t>>> ExpiryAt(OpContext& op, const Snapshot& snapshot,
                                                 std::string_view key);

  /// For whoever finds that there are no copies any more: if anything was acknowledged because copies have it, until all that was appended so far
  /// is on this disk.
  Task<Status> SyncReplicated(dsm::Worker& worker) { return logs_->SyncReplicated(worker); }

  /// What is committed now: for GetAt, ScanAt and SnapshotIterator, until the last copy of it is gone.
  Snapshot TakeSnapshot();
  /// Get and Scan of what the snapshot sees. REQUIRES: it is one of this store, and outlives the call.
  Task<Result<bool>> GetAt(OpContext& op, const Snapshot& snapshot, std::string_view key,
                           std::string* value);
  Task<Status> ScanAt(OpContext& op, const Snapshot& snapshot, ScanRange range,
                      std::vector<KeyValue>* rows);
  struct SnapshotMetrics {
    uint64_t open = 0;  ///< copies are one
    Sequence oldest = 0;
    uint64_t oldest_age_ms = 0;
    /// Of the value log, that were collected, and wait for who reads on: snapshots, and operations on older views.
    uint64_t segments_held = 0;
  };
  /// As they are now: for whoever watches that none is forgotten.
  SnapshotMetrics snapshot_metrics() const;

  /// All changes or none, also after a crash, and for readers that hold a snapshot. They get sequences in their order. Keys are of 1 to
  /// kKeyBytesMax bytes, but a range may begin with the empty key, which is before all. InvalidArgument: one of them cannot be
  /// stored, or all of them are too long for a record of the log; then nothing was done.
  Task<Status> Write(OpContext& op, std::span<const Change> changes);

  // ---- Of a follower (follower.h): a store whose logs another process writes. Nothing is written to it otherwise, and of what runs in the
  // background only flushes and compactions.
  /// Replays what is on the storage of the manifest's recovery log. `open`: segments that are being filled.
  static Task<Result<std::unique_ptr<LsmStore>>> OpenFollower(dsm::Worker& worker, Deps deps,
                                                              LsmOptions options,
                                                              std::unique_ptr<Manifest> manifest,
                                                              std::set<SegmentId> open);
  enum class Followed : uint8_t { kDone, kFull };
  /// Puts a commit into the memtable, and into `named` what it names of the value log. kFull: nothing was done; RotateFollowed. REQUIRES: it is the next
  /// one; one call at a time, on a worker that is online; this and RotateFollowed on one worker.
  Followed TryFollow(const CommitReader& commit, OpenBytes* named);
  /// Until no memtable is being flushed. Fails with what keeps it from that.
  Task<Status> AwaitFlushed(dsm::Worker& worker);
  /// Has the memtable flushed. REQUIRES: no other one is; all values that it names are durable.
  void RotateFollowed();
  /// The segment's commits are all in memtables or tables; `last` is the last one, or a later one.
  void AddFollowed(SegmentId segment, Sequence last) { followed_.Add(segment, last); }
  bool IsFollowed(SegmentId segment) const { return followed_.Contains(segment); }
  /// Those that are to be removed, since no recovery needs them.
  std::vector<SegmentId> TakeDropped() { return followed_.TakeDropped(); }
  /// What the other process has granted to the logs, or dropped.
  Task<Status> CommitOfLogs(dsm::Worker& worker, StateEdit edit);

  // What runs in the background: the host spawns each of these on a worker of its own or of others; they end after
  // Stop.
  Task<void> RunLogs(dsm::Worker& worker);
  Task<void> RunLogFlushes(dsm::Worker& worker);
  Task<void> RunFlushes(dsm::Worker& worker);
  Task<void> RunCompactions(dsm::Worker& worker);
  Task<void> RunCollection(dsm::Worker& worker);
  /// Looks once a second for what has expired or was deleted by ranges, and has it flushed, written anew by RunCompactions, and collected.
  Task<void> RunReclaim(dsm::Worker& worker);
  /// Of the last commit: whatever was acknowledged, or seen by a reader, has this one or an earlier one. Of a follower: of the last one that is in a
  /// memtable or table.
  Sequence last_sequence();
  /// Has what the memtable holds flushed, however little it is, as soon as no other flush runs.
  void FlushSoon();
  /// From now on every level's run sinks at the next occasion, whatever its size: all ends up in the lowest level, at the cost of
  /// more writing.
  void CompactEagerly(bool eagerly) {
    eager_ = eagerly;
    levels_changed_.Notify();
  }
  void Stop();
  /// Gives the sink all that a copy needs, while the store is served: what is on disk first, then, while writers wait, the rest, and
  /// ends with CopySink::Install: from then on the mirror's calls are for that copy as well. REQUIRES: there is a mirror; one at a time.
  Task<Status> FillCopy(dsm::Worker& worker, CopySink& sink);
  /// Brings [0, bytes) of a segment to the sink.
  Task<Status> SendSegment(dsm::Worker& worker, CopySink& sink, SegmentPart part);
  /// The process is taken to have crashed: workers were abandoned, and nothing is done any more but to destroy the store.
  void Abandon();
  /// Everything acknowledged becomes durable. Once. REQUIRES: what ran in the background has ended, and no operation runs.
  Task<Status> Close(dsm::Worker& worker);

  const LsmOptions& options() const { return options_; }
  /// Nothing is being flushed or compacted, nor has to be. On a worker that is online.
  bool Quiet() const;
  /// As they are now, with all that is in them. On a worker that is online.
  std::shared_ptr<const Version> version() const { return View().version; }
  /// No commit that is not in a memtable yet names a value in a segment with a lower id, nor will any: what of these segments is not
  /// found by way of a view (taken afterwards) or a snapshot, nobody will find.
  SegmentId ValuesClosedBelow() const { return open_values_.ClosedBelow(*value_log_); }
  /// A copy of what the manifest says: which segments there are, and what for.
  Task<StoreState> State(dsm::Worker& worker);
  const BlockCache& cache() const { return cache_; }
  /// Segments of the value log that were emptied and freed since the store was opened.
  uint64_t collected_segments() const {
    return collected_segments_.load(std::memory_order_relaxed);
  }
  /// Those that stay, whatever of them is garbage, because something that has to be read for it cannot be.
  uint64_t kept_segments() const { return garbage_.kept(); }
  StoreMetrics metrics() const;
  /// Nothing but deletes is taken: the device has no room beside the reserve.
  bool full() const { return room_.closed(); }
  /// Of the full segments of values.
  const ValueGarbage& garbage() const { return garbage_; }
  struct Memtables {
    uint64_t active_bytes = 0;
    bool active_empty = true;
    std::optional<uint64_t> flushing_bytes = std::nullopt;  ///< nullopt: none is being flushed
    uint64_t flushes = 0;                                   ///< since the store was opened
  };
  /// As they are now. On a worker that is online.
  Memtables memtables() const {
    const ReadView& view = View();
    Memtables now{view.active->bytes(), view.active->empty(), std::nullopt, view.flushes};
    if (view.flushing) now.flushing_bytes = view.flushing->bytes();
    return now;
  }

 private:
  // store_open.cc
  LsmStore(Deps deps, LsmOptions options, std::unique_ptr<Manifest> manifest,
           uint64_t next_segment);
  static Task<Result<std::unique_ptr<Manifest>>> OpenManifest(dsm::Worker& worker, Deps deps,
                                                              IfMissing if_missing);
  Task<Status> Recover(dsm::Worker& worker);
  /// `last`: commit, behind which the recovery log goes on; all up to there is in the memtable or in tables.
  void StartLogs(Sequence last, std::shared_ptr<Memtable> memtable);

  // store_follow.cc
  Task<Status> RecoverFollower(dsm::Worker& worker, const std::set<SegmentId>& open);
  static void InsertFollowed(CommitReader commit, Memtable* memtable, OpenBytes* named);

  // store_read.cc
  static Status CheckKey(std::string_view key) { return CheckLookupKey(key); }
  LookupPlaces Places() {
    return {&cache_, value_log_.get(), deps_.wall, manifest_->epoch(), deps_.storage};
  }
  /// Looks until the outcome is known, or the deadline is over. `found` is good until the next suspension, but for what it pins.
  Task<Result<bool>> Find(OpContext& op, LookupPlaces places, std::string_view key,
                          Sequence snapshot, Wanted wanted, Found* found);

  /// Whether all that a read of this key may have seen is as safe as an acknowledged write: what is in memory here only may be lost with this process,
  /// and must not have been seen then. REQUIRES: deps_.mirror.
  bool IsSafe(std::string_view key) const {
    if (options_.durability == Durability::kLocal) return true;
    // In this order: a copy that counts now has all that was mirrored by then.
    const Sequence newest = NewestInMemory(View(), key);
    const Sequence mirrored = recovery_log_->mirrored_sequence();
    return newest <= (deps_.mirror->has_copies() ? mirrored : recovery_log_->durable_sequence());
  }
  /// Until all that was appended so far is safe; then whether this process may answer. REQUIRES: deps_.mirror.
  Task<Status> AwaitAnswerable(OpContext& op);
  /// The same of what was read of one key.
  Task<Status> AwaitAnswerable(OpContext& op, std::string_view key);

  // store_views.cc
  /// Good until the worker's next suspension.
  const ReadView& View() const { return *view_.load(std::memory_order_acquire); }
  /// Good as long as it is held.
  std::shared_ptr<const ReadView> PinView() const { return View().shared_from_this(); }
  /// The view before, for RetireView. REQUIRES: view_mutex_ held.
  [[nodiscard]] std::shared_ptr<ReadView> Install(std::shared_ptr<ReadView> next);
  /// In the cache's budget, for what is known of tables and of the value log.
  void MakeRoomFor(const StoreState& state, const Version& version);
  /// REQUIRES: no lock is held.
  void RetireView(std::shared_ptr<ReadView> before);
  std::shared_ptr<ReadView> NextView() const;
  /// Takes the active memtable for the next flush, if it is full, and there is none. Returns whether it did.
  bool RotateIfFull();
  bool IsFull(const Memtable& memtable) const {
    return memtable.Fullness(options_.memtable_bytes) >= 1;
  }
  enum class Rotate : uint8_t { kIfFull, kAlways };
  bool RotateMemtable(Rotate when);

  // store_scan.cc
  ReadPoint TakeReadPoint();

  Task<Result<std::optional<uint64_t>>> FindExpiry(OpContext& op, LookupPlaces places,
                                                   std::string_view key, Sequence snapshot);

  // store_snapshot.cc
  LookupPlaces PlacesAt(const Snapshot& snapshot);

  // store_write.cc, store_modify.cc
  /// What a change found, and depends on.
  struct Seen {
    uint64_t flushes = 0;
    Sequence newest = 0;  ///< of the key in memtables; 0: none
  };
  enum class CommitOutcome : uint8_t { kDone, kChanged, kNoRoom, kFailed };
  struct Committed {
    Log::Appended recovery;
    LogPosition values_end = 0;
    bool sealed = false;
  };
  /// Until there is room for more in the active memtable, and not too much garbage; and a little longer near either limit, or while merges do
  /// not keep up.
  /// `from`: kLogs for deletes, which are taken also while the device is full. Else ResourceExhausted, then.
  using From = std::optional<storage::Reserve>;
  Task<Status> Admit(OpContext& op, size_t changes, From from);
  /// Admit of what may have to wait.
  Task<Status> AdmitLater(OpContext& op, size_t changes, From from);
  /// Ok where there is nothing that would keep it from being acknowledged.
  Status MayBegin(const OpContext& op) const;
  /// Admit of a put might wait for more than its turn, or refuse; and it waits its turn, in which merges or collection get on.
  bool MayHaveToWait() const;
  bool WaitsItsTurn() const;
  /// WritePace::Pressure, as it is now.
  double Pressure() const;
  /// For the sake of merges.
  Task<void> WaitItsTurn(dsm::Worker& worker, uint64_t deadline_ns, uint64_t delay_ns);
  Task<Status> AwaitMemtableRoom(dsm::Worker& worker, uint64_t deadline_ns);
  Task<Status> AwaitLogRoom(dsm::Worker& worker, Log& log, From from);
  /// In the recovery log.
  Task<Status> AwaitCommitRoom(dsm::Worker& worker, uint64_t deadline_ns, From from);
  void CloseRoom(Status why);
  Status MergeFailure();
  bool OverGarbageLimit() const;
  /// Until no more than its limit of the value log is known garbage; and a little near that.
  Task<Status> AwaitCollection(dsm::Worker& worker, uint64_t deadline_ns);
  Status CheckChange(const Change& change) const;
  Task<Status> AppendValue(dsm::Worker& worker, std::string_view key, std::string_view value,
                           ValuePointer* pointer, Committed* committed, From from);
  /// Appends the values that go to the value log, then commits.
  Task<Status> CommitChanges(OpContext& op, std::span<Change> changes, Committed* committed);
  /// Those of all keys, in order; of one key without memory of its own.
  struct StripeLocks {
    std::unique_lock<SpinLock> one;
    std::vector<std::unique_lock<SpinLock>> several;
  };
  StripeLocks LockStripes(std::span<const Change> changes);
  CommitOutcome TryCommit(dsm::Worker& worker, std::span<const Change> changes, const Seen* seen,
                          Committed* committed);
  void InsertIntoMemtable(std::span<const Change> changes, Sequence first);
  /// Of the store, or what the operation asks for beyond that.
  Durability DurabilityOf(const OpContext& op) const;
  void CountUserBytes(std::span<const Change> changes);
  Task<Status> AwaitDurable(OpContext& op, LogGroup::Positions positions);
  /// Of what is durable, until as many copies have it as are to. REQUIRES: deps_.mirror.
  Task<Status> AwaitCopies(OpContext& op);
  Task<Status> AfterCommit(OpContext& op, const Committed& committed);
  /// The first half of AfterCommit; true: it is to be others' turn, if only for a moment. And the second half: until all that was appended up to there is as durable
  /// as is asked for, and may be answered.
  bool NoteCommit(const Committed& committed);
  Task<Status> AwaitAcknowledged(OpContext& op, LogGroup::Positions positions,
                                 bool others_turn = false);
  /// `key`: that was looked at; nullopt: several.
  Task<Status> AfterNoChange(OpContext& op, std::optional<std::string_view> key);
  /// What changes that are made together are to wait for, behind the last of them.
  struct Together {
    std::optional<LogGroup::Positions> committed;
    bool unchanged = false;  ///< of the last one it was seen that it needs no change
    void Note(const Committed& one);
  };
  /// As ModifyEntry. `together`: what is to be waited for is noted there, and the change not acknowledged yet; null: it is waited for.
  Task<Result<ModifyResult>> ModifyOne(OpContext& op, std::string_view key,
                                       ModifyEntryFunction modify, CurrentValue use,
                                       Together* together);
  /// The checked changes, whatever is there. Large values are taken out of them.
  Task<Status> CommitBlindly(OpContext& op, std::span<Change> changes);
  Sequence NewestInMemory(const ReadView& view, std::string_view key) const;

  /// When what cannot be done, to a segment or a table, is tried again.
  struct Retry {
    uint64_t pause_ns = 0, until_ns = 0;
  };

  // store_flush.cc, store_compact.cc
  Merge::Deps MergeDeps(From from);
  /// As much as the version needs.
  void SetReserve(const Version& version);
  Task<Status> TendLogs(dsm::Worker& worker);
  /// Since when the active memtable has held something, as far as it was looked at.
  struct MemtableAge {
    Sequence first = 0;  ///< ReadView::active_first; 0: it holds nothing
    uint64_t since_ns = 0;
  };
  /// `before_ns`: the last look.
  void FlushIfOld(MemtableAge* age, uint64_t before_ns, uint64_t now_ns);
  enum class Bottom : uint8_t { kNo, kYes };
  /// `range_deletes`: of each source of a merge, the newest first. kYes: nothing lies below its result.
  MergeRule RuleOf(std::vector<std::vector<RangeDelete>> range_deletes, Bottom bottom);
  CompactionPlan Plan() const;
  Task<Status> Flush(dsm::Worker& worker);
  /// As one more fresh run.
  Task<Status> WriteFreshRun(dsm::Worker& worker, const Memtable& memtable, Bottom bottom,
                             StateEdit* edit);
  void NoteFlushed(const Memtable& memtable, StateEdit* edit);
  /// No edit will name them.
  Task<void> DropTables(dsm::Worker& worker, const std::vector<StateEdit::TableAt>& tables);
  /// A table that a merge could not read, and its run.
  struct Unread {
    RunPlace place;
    TableRef table;
  };
  Task<Status> Compact(dsm::Worker& worker, uint8_t into, Unread* unread);
  Task<Status> MergeInto(dsm::Worker& worker, uint8_t into, Unread* unread);
  /// A run that a merge reads, and its range deletes as they were at the merge's begin.
  struct Merged {
    RunPlace place;
    std::vector<RangeDelete> range_deletes;
  };
  /// `merged`: as SourcesOf.
  Task<Status> MergeRuns(dsm::Worker& worker, Merge& merge, const std::vector<Merged>& merged,
                         uint8_t into);
  void NoteMerged(uint64_t bytes, uint64_t took_ns);
  void SetPace(const Version& version);
  /// The same before any memtable was flushed.
  void GuessPace(const Version& version);
  /// When one that has failed may be tried again.
  uint64_t PauseNs(uint8_t into, const Status& compacted);
  /// Does a merge that was taken, and lets it go.
  Task<void> CompactTaken(dsm::Worker& worker, uint8_t into);
  /// The deepest level above `end` into which something has to be merged, and whose last failure is some time ago.
  std::optional<uint8_t> TakeMerge(uint64_t now_ns, uint8_t end);
  /// REQUIRES: compacting_mutex_ held.
  std::optional<uint8_t> ChooseMerge(const CompactionPlan& plan, uint64_t now_ns, uint8_t end);
  bool AnyPauses(uint64_t now_ns);
  enum class Flushed : uint8_t { kNo, kYes };
  /// What runs in the background, each with a Status of its own; merges: this and the level that they merge into.
  enum Work : size_t { kLogs = 0, kFlush = 1, kCollection = 2, kLogFlush = 3, kCompaction = 4 };
  static constexpr size_t kWorks = kCompaction + kLevelsMax;
  /// Until it is in the manifest, and in the view; fails only if the store is being closed.
  Task<Status> CommitState(dsm::Worker& worker, StateEdit edit, Flushed flushed, size_t work);
  /// Waits before another try of what failed. Returns whether the store goes on.
  Task<bool> PauseBehind(dsm::Worker& worker, size_t work, Status failure);
  /// Logs it when it begins to fail, in another way, or gets on again.
  void SetBackgroundStatus(size_t work, Status status);
  Status BackgroundStatus(size_t work) const {
    std::lock_guard lock(status_mutex_);
    return background_status_[work];
  }

  // store_reclaim.cc
  ReclaimPlan PlanReclaim() const;
  void LookForDead(uint64_t now_ns, bool idle);
  /// A commit that changes nothing.
  Task<Status> CommitNothing(dsm::Worker& worker);
  /// One of those that were found, of a level that nothing is being merged into.
  std::optional<DeadTable> TakeDead();
  /// Gets rid of it, and lets its level go.
  Task<void> ReclaimTaken(dsm::Worker& worker, DeadTable dead);
  Task<Status> Reclaim(dsm::Worker& worker, DeadTable dead);
  Task<Status> CommitReclaimed(dsm::Worker& worker, RunPlace place, StateEdit edit);
  /// `number`: of the run in the version.
  Task<Status> WriteAnew(dsm::Worker& worker, std::shared_ptr<const Version> version, size_t number,
                         TableRef ref);

  // store_aside.cc
  struct Rest;
  struct Aside {
    uint8_t into = 0;              ///< for a merge into its growing run, behind which it comes
    std::vector<KeyRange> ranges;  ///< ascending, disjoint
    TableId rewritten = SegmentId::kNone;
  };
  Task<Result<std::vector<KeyRange>>> UnreadableRanges(dsm::Worker& worker, const TableRef& ref);
  Task<Status> EndTable(dsm::Worker& worker, Rest& rest);
  Task<Status> AddToRest(dsm::Worker& worker, Rest& rest, const Entry& entry,
                         std::string_view last);
  Task<Status> WriteRest(dsm::Worker& worker, const TableRef& ref, Rest& rest);
  Task<Status> SetAside(dsm::Worker& worker, const Aside& aside, RunPlace from, Unread* unread);
  /// `unread`: another one that cannot be read, and comes first.
  Task<Status> SetAsideDamage(dsm::Worker& worker, uint8_t into, const Unread& what,
                              Unread* unread);
  Task<Status> PassKept(dsm::Worker& worker, uint8_t into, Unread* unread);

  // store_collect.cc, store_gaps.cc
  struct Collection;
  /// Of a segment of values: bytes that are no record.
  struct ValueGap {
    uint32_t begin = 0, end = 0;
    bool may_be_end = false;  ///< it may be that nothing was written there
  };
  using Retries = std::map<SegmentId, Retry>;
  Task<std::vector<SegmentId>> SegmentsToCollect(dsm::Worker& worker, const Retries& retries);
  /// `unread`: why the segment had to be kept; Ok: it had not.
  Task<Status> CollectSegment(dsm::Worker& worker, SegmentId id, Status* unread);
  void KeepSegment(dsm::Worker& worker, SegmentId id, const Status& why, Retries* retries);
  Status DamagedValue(SegmentId id, uint32_t offset) const;
  Task<Status> CheckGaps(dsm::Worker& worker, SegmentId id, const std::vector<ValueGap>& gaps,
                         bool torn);
  /// That no newest version of a key names anything in the gaps. REQUIRES: nothing will name it that does not yet.
  Task<Status> ExpectUnnamed(dsm::Worker& worker, SegmentId id, const std::vector<ValueGap>& gaps);
  Task<Status> ExpectShadowed(dsm::Worker& worker, const Entry& entry,
                              const std::vector<ValueGap>& gaps);
  Task<void> MoveValues(dsm::Worker& worker, Collection& collection);
  Task<Status> MoveValue(dsm::Worker& worker, ValueRecord record, ValuePointer from,
                         Status* unread);
  /// Records that were appended, and that nothing will ever name.
  void NoteUnnamed(std::span<const Change> changes);
  Task<Status> AwaitCollectorsRoom(dsm::Worker& worker);

  // store_fill.cc
  struct Filling;
  Task<Status> SendMissing(dsm::Worker& worker, const StoreState& state,
                           const LogGroup::Memory& memory, Filling& filling);

  const Deps deps_;
  const LsmOptions options_;
  const std::shared_ptr<SegmentRemover> remover_;
  BlockCache cache_;
  std::unique_ptr<Manifest> manifest_;
  SegmentGrants grants_;
  const SegmentId first_segment_;  // that this process may make
  LogBuffers log_buffers_;
  std::unique_ptr<Log> recovery_log_, value_log_;
  std::unique_ptr<LogGroup> logs_;
  CommitOrder order_;
  const std::shared_ptr<OpenSnapshots> snapshots_ = std::make_shared<OpenSnapshots>();
  OpenValues open_values_;
  bool follows_ = false;       // another process writes the logs; since before anything runs
  FollowedSegments followed_;  // empty, unless follows_

  static constexpr size_t kStripes = 1024;
  struct alignas(64) Stripe {
    SpinLock lock;
  };
  std::array<Stripe, kStripes> stripes_;  // each: the newest version of the keys that hash to it

  std::atomic<const ReadView*> view_{nullptr};
  mutable std::mutex view_mutex_;          // guards who changes the view, and down to here:
  std::shared_ptr<ReadView> newest_view_;  // owns what view_ points to

  std::vector<SegmentId>
      replayed_;  // recovery-log segments of before the store was opened; RunFlushes only
  uint64_t moved_told_ =
      0;  // of StoreMetrics::moved_bytes, in edits' WrittenBytes; RunFlushes only
  std::atomic<size_t> replayed_count_{0};
  std::atomic<uint64_t> recovery_segments_max_{0};  // at a time, so far
  mutable std::mutex compacting_mutex_;             // guards, down to here:
  uint32_t compacting_ = 0;                         // bit: a level that is being merged into
  bool sinks_next_ = false;  // for room, before fresh runs have their turn again
  std::array<uint64_t, kLevelsMax> not_before_ns_{};  // when one that failed may be taken again
  std::array<uint32_t, kLevelsMax> unread_{};         // tries one after another that could not read
  std::vector<DeadTable> dead_;                       // found, and not taken yet: from the end
  std::map<TableId, Retry> reclaim_retries_;          // of those that could not be written anew
  std::atomic<bool> reclaimed_values_{false};         // some, since the store was opened
  std::atomic<uint64_t> flush_bytes_{0};              // StoreState::flush_bytes
  std::atomic<double> changes_of_memtable_{0};        // of those flushed lately; 0: none was
  std::atomic<double> merge_speed_;                   // of merges into level 0, bytes read a second
  WritePace pace_;
  WriteRoom room_;
  std::atomic<bool> merges_short_{false};  // the last merge that ended failed, as there was no room
  std::atomic<bool> stopping_{false};
  std::atomic<bool> eager_{false};
  std::atomic<bool> room_warned_{false};  // by MakeRoomFor
  std::atomic<bool> flush_soon_{false};   // asked for while a flush ran
  Event log_work_;                        // segments are full, or Stop
  Event flush_work_;                      // a memtable was rotated, or Stop
  Event levels_changed_;
  Event garbage_changed_;
  const FixedClock time_zero_{0};  // at which nothing has expired
  ValueGarbage garbage_;
  StoreCounters counters_;
  std::atomic<uint64_t> collected_segments_{0};
  mutable std::mutex status_mutex_;               // guards background_status_
  std::array<Status, kWorks> background_status_;  // why each does not get on; Ok: it does
};

}  // namespace farleaf::index::lsm
