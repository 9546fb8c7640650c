// BlinkTree: the Spread B-link tree (RF-tree, paper sections 3.1 to 3.3.4) on a pool.
//
// Leaves lie in the data layer, spread over the memory servers; internal nodes in the search layer,
// which every compute server caches (SearchCache). A get on a warm cache is one READ of one leaf.
// Writers lock a page with CAS and READ in one batch and write it back with the unlock in one batch.
// index/blink/README.md states the protocol, its invariants and the argument by cases.
//
// Lock order (no deadlock): from the leaves upwards, and on a level from left to right.
//
// Thread rule: thread-safe; one object a process and tree, shared by its threads. Outlived by nothing
// that runs on it; the Pool outlives it.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "dsm/pool.h"
#include "index/blink/catalog.h"
#include "index/blink/count_by_worker.h"
#include "index/blink/entry_change.h"
#include "index/blink/expected_leaf.h"
#include "index/blink/geometry.h"
#include "index/blink/leaf_hints.h"
#include "index/blink/node.h"
#include "index/blink/options.h"
#include "index/blink/page.h"
#include "index/blink/publication.h"
#include "index/blink/recovery.h"
#include "index/blink/search_cache.h"
#include "index/blink/tree_stats.h"
#include "index/blink/value_fetch.h"
#include "index/blink/value_hints.h"
#include "index/blink/value_lists.h"
#include "index/range_index.h"

namespace farleaf::index {

struct WantedKeys;  // scan_plan.h

class BlinkTree final : public RangeIndex {
 public:
  /// `info`: from CreateTree or OpenTree. The cache fills as it is used, or by WarmCache.
  BlinkTree(dsm::Pool* pool, TreeInfo info, TreeOptions options);
  ~BlinkTree() override;

  Task<Result<bool>> Get(OpContext& op, std::string_view key, std::string* value) override;
  Task<Status> MultiGet(OpContext& op, std::span<const std::string_view> keys,
                        std::vector<std::optional<std::string>>* values) override;
  Task<Status> VisitValues(OpContext& op, std::span<const std::string_view> keys,
                           ValueVisitor& visitor) override;
  size_t VisitAtOnce(OpContext& op, std::span<const std::string_view> keys,
                     ValueVisitor& visitor) override;
  Task<Result<ModifyResult>> Modify(OpContext& op, std::string_view key,
                                    const ModifyFunction& modify, CurrentValue current) override;
  size_t ModifyAtOnce(OpContext& op, std::span<const std::string_view> keys, CurrentValue use,
                      KeyChanges& changes) override;
  void Expect(OpContext& op, std::string_view key) override;
  Task<Status> Scan(OpContext& op, ScanRange range, std::vector<KeyValue>* rows) override;
  /// Lets go locks of this member that were left when connections broke (dsm/unresolved_locks.h), and frees
  /// value blocks that could not be freed then. Writes do so by the way.
  Task<Status> Upkeep(OpContext& op) override;

  /// Reads the change counters of the whole search layer, then every node that changed since it was
  /// cached: at a cold start all of them, in large READs.
  Task<Status> WarmCache(OpContext& op);

  /// Deals with a lock of a member that is fenced at all memory servers. False: not yet, or the page is
  /// another tree's.
  Task<Result<bool>> RecoverLock(OpContext& op, PageLock lock);
  /// Whether the page at `address`, which is in use and not locked, is in the tree. False also if it is
  /// no node of this tree, or was never written whole. `level`: 0 for a leaf's page, else any.
  Task<Result<bool>> Reaches(OpContext& op, GlobalAddress address, Level level);
  /// Every out-of-line value that a leaf names, in the order of keys. None that is named throughout is left out.
  Task<Status> VisitOutOfLine(OpContext& op,
                              const std::function<void(const OutOfLineValue&)>& visit);
  /// Upkeep until Ok, or until the operation's deadline or lock_wait_ms: then DeadlineExceeded.
  Task<Status> SettleLocks(OpContext& op);

  const TreeInfo& info() const { return info_; }
  const TreeOptions& options() const { return options_; }
  const TreeStats& stats() const { return stats_; }
  const SearchCache& cache() const { return cache_; }
  /// Searches for a node, most often for a key's leaf, that the cached nodes have led to their end. (Nodes that they
  /// lacked: TreeStats::cache_misses.) An operation that looks again counts again.
  uint64_t cache_hits() const { return cache_hits_.Sum(); }
  const ValueHints& value_hints() const { return value_hints_; }
  const ValueLists& value_lists() const { return value_lists_; }

 private:
  // descent.cc: finding nodes.
  bool caching() const { return options_.cache == CacheMode::kSearchLayer; }
  /// Whether this tree may have such a key.
  bool IsKey(std::string_view key) const {
    const Geometry& geometry = info_.geometry;
    return geometry.layout == Layout::kFixed8
               ? key.size() == 8
               : !key.empty() && key.size() <= geometry.key_bytes_max;
  }
  Status CheckKey(std::string_view key) const;
  void NoteCacheHits(OpContext& op, uint64_t searches) {
    cache_hits_.Add(op.worker.number(), searches);
  }
  uint64_t WaitDeadlineNs(const OpContext& op) const;
  enum class PageState : uint8_t { kRead, kForeign };
  /// READs one page until its image is valid (a dead page's is). kForeign: its lock word says free, or
  /// it is a node of another tree, which may have another geometry.
  Task<Result<PageState>> ReadPage(OpContext& op, GlobalAddress address, Level level,
                                   PageBuffer& page);
  /// READs a page in use, once nobody writes to it. kForeign: as above, or its first write never ended.
  Task<Result<PageState>> ReadSettledPage(OpContext& op, GlobalAddress address, Level level,
                                          PageBuffer& page);
  /// Reads the root word and caches it. Use what it returns: another thread may cache an older one.
  Task<Result<RootWord>> RefreshRoot(OpContext& op);
  enum class Freshness : uint8_t { kCached, kFromRoot };
  /// The address of a node at `level` from which moving right finds the key: from the cache, reading
  /// (and caching) what it lacks, or anew from the root word. Not complete: the tree is not that high.
  Task<Result<SearchCache::LeafPath>> FindNode(OpContext& op, std::string_view key, Side side,
                                               Level level, Freshness freshness);
  Task<Result<SearchCache::LeafPath>> DescendFromRoot(OpContext& op, std::string_view key,
                                                      Side side, Level level, Freshness freshness);
  enum class Fit : uint8_t { kCovers, kMoveRight, kMoveForward, kRestart };
  Fit FitOf(const ConstNode& node, std::string_view key, Side side, Level level) const;
  /// Whether a page of another's lock, as it was read, is of a lower level than it is to be locked as.
  bool IsOfLowerLevel(LockedPage& locked) const;
  /// Reads the node at `level` that covers the key, from `known` on. Null: the tree is not that high.
  Task<Result<GlobalAddress>> ReadNode(OpContext& op, std::string_view key, Side side, Level level,
                                       PageBuffer& page,
                                       std::optional<SearchCache::LeafPath> known = std::nullopt);
  /// Whether a parent that led to a leaf which has split is to be read again, rather than told of that split.
  bool ParentIsDue(GlobalAddress parent) const;
  /// SearchCache::LearnSplit, if that is on.
  bool LearnSplit(GlobalAddress parent, GlobalAddress address, const ConstNode& leaf);
  /// Reads `next`, of `level`, and re-reads `parent` beside it, in one round trip, unless somebody else
  /// has done so, or is about to.
  Task<Result<PageState>> ReadNextAndParent(OpContext& op, GlobalAddress next, Level level,
                                            PageBuffer& page, CachedParent parent,
                                            bool* parent_unchanged);
  /// Puts right what made a search hop. Failing to (a full pool, a lock that stays, an observer's
  /// pool) is counted and fails no operation: it has found its node.
  Task<void> AfterHops(OpContext& op, uint32_t hops, bool separator_missing, GlobalAddress node);

  // warm_cache.cc
  enum class RefreshOf : uint8_t { kPool, kKnownChunks };
  struct PageRun;
  /// The same as WarmCache for the chunks that the cache knows.
  Task<Status> RefreshCache(OpContext& op);
  Task<Status> BringCacheUpToDate(OpContext& op, RefreshOf what);
  Task<Status> ReadSearchChunks(OpContext& op, std::vector<GlobalAddress>* chunks);
  Task<Status> RefreshChangedNodes(OpContext& op, std::vector<GlobalAddress> chunks);
  Task<Status> ReadPageRuns(OpContext& op, std::vector<PageRun> runs);

  // get_parts.cc
  bool parted() const { return info_.geometry.leaf_layout == LeafLayout::kParted; }
  /// READs of some parts of a leaf, into their places in `image`.
  void AddPartReads(GlobalAddress leaf, PartMask parts, std::span<std::byte> image,
                    Batch& batch) const;
  void NoteHints(GlobalAddress leaf, const LeafParts& parts);
  void NoteWholeLeaf(LockedPage& locked, std::span<std::byte> raw);
  /// Begins to fetch the part that is the key's home in most leaves, while hints are fetched too.
  void PrefetchHome(OpContext& op, const SearchCache::LeafPath& path, uint64_t key) const;
  /// The parts of a leaf that hold the key if what is remembered of it, or known of most leaves, is right.
  PartMask UsualWindow(const SearchCache::LeafPath& path, uint64_t key) const;
  /// Of a leaf whose parts in hand have not told: all that entries go to in most leaves, and what is remembered by now.
  PartMask NextWindow(const SearchCache::LeafPath& path, const LeafParts& leaf, uint64_t key) const;
  PartMask WindowToChange(const SearchCache::LeafPath& path, const EntryChange& change) const;
  /// Get where the leaf cannot be looked at in place, or that did not tell.
  Task<Result<bool>> GetByReading(OpContext& op, std::string_view key, std::string* value);
  /// From the parts of one leaf, if the cached fences are its own: whether the key is there; nullopt:
  /// they cannot tell. Then `page` holds the leaf that covers the key, if the page led to one.
  Task<Result<std::optional<bool>>> GetFromParts(OpContext& op, std::string_view key,
                                                 std::string* value, PageBuffer& page,
                                                 bool* covers);
  // get_parts_in_place.cc
  /// Whether the key is there; nullopt: it cannot be told in place.
  std::optional<bool> GetPartsInPlace(OpContext& op, std::string_view key, std::string* value);

  // in_place.cc
  struct AtPlace;
  /// Whether the key is there; nullopt: it cannot be told in place.
  std::optional<bool> GetInPlace(OpContext& op, std::string_view key, std::string* value);
  /// Modify, if it can be done in place.
  std::optional<Result<ModifyResult>> ModifyInPlace(OpContext& op, std::string_view key,
                                                    const ModifyFunction& modify, CurrentValue use);

  // multi_get.cc
  struct WantedLeaf;
  struct MultiGetState;
  /// Answers the keys of one leaf, or adds them to `rest`.
  void AnswerFromParts(const WantedLeaf& wanted, std::span<std::byte> image, MultiGetState& state);
  void AnswerFromLeaf(const WantedLeaf& wanted, std::span<std::byte> image, MultiGetState& state);
  void AddLeafReads(std::span<const WantedLeaf> wanted, std::span<std::byte> images,
                    MultiGetState& state, std::vector<Batch>& batches, size_t* leaf_batches);
  /// Values out of line that were not guessed, together.
  Task<Status> FetchWanted(OpContext& op, MultiGetState& state);

  // modify_parts.cc
  enum class Applied : uint8_t { kDone, kNeedsLeaf, kNeedsSplit };
  void Decide(EntryChange& change, std::optional<std::string_view> current) const;
  /// Makes the change in the parts in hand, and notes which of them it changed; or nothing.
  Applied Apply(LeafParts& leaf, EntryChange& change, PartMask* dirty) const;
  Task<Result<ModifyResult>> ModifyInParts(OpContext& op, std::string_view key,
                                           const ModifyFunction& modify, CurrentValue use);
  /// What the change is to read of the leaf that `path` leads to; begins to fetch it.
  void ExpectParts(OpContext& op, const SearchCache::LeafPath& path, EntryChange& change,
                   LockedPage& leaf) const;
  /// Locks the leaf that covers the change's key, and has parts of it in hand that are known to be
  /// its. Or the change was made by who held the lock (leaf.turn.served).
  Task<Status> LockPartsFor(OpContext& op, SearchCache::LeafPath path, EntryChange& change,
                            LockedPage& leaf);
  /// Reads a locked leaf whole, and its parent beside it, if that is given. Without loaded parts: it is
  /// no leaf of this tree. Lets it go if it fails.
  Task<Status> ReadWholeLeaf(OpContext& op, LockedPage& leaf, CachedParent parent);
  /// Parts that the change needs beside the ones in hand, as far as these and what is remembered tell; 0: the whole leaf.
  PartMask MoreParts(LockedPage& leaf, const EntryChange& change);
  /// Reads them. If the parts do not fit then: as ReadWholeLeaf.
  Task<Status> ReadMoreParts(OpContext& op, LockedPage& leaf, uint64_t fence_digest, PartMask more);
  /// Makes the change where the parts in hand do not suffice for it, as `applied` says, and lets the leaf go.
  Task<Status> ChangeLocked(OpContext& op, LockedPage& leaf, EntryChange& change, Applied applied);
  /// Writes back what was changed, answers, lets the leaf go, and merges it if it has become too empty.
  Task<Status> WriteChanged(OpContext& op, LockedPage& leaf, const EntryChange& change,
                            PartMask dirty, dsm::LocalLockTable::TakenWork& served);
  /// The changes that wait for the leaf, along with one that was made in the parts.
  void CombineWaiting(LockedPage& leaf, LeafParts& parts, const EntryChange& change,
                      PartMask* dirty, dsm::LocalLockTable::TakenWork* served);
  // merge_parts.cc
  bool ExpectsMerge(const LockedPage& leaf) const;
  /// Writes a delete back, answers, merges the leaf with its right sibling, lets go.
  Task<Status> ChangeAndMerge(OpContext& op, LockedPage& leaf, PartMask dirty, std::string_view key,
                              dsm::LocalLockTable::TakenWork& served);
  Task<Status> MergeHeld(OpContext& op, LockedPage& leaf, std::string_view key);
  Task<void> MergeIfUnderfull(OpContext& op, GlobalAddress address, std::string_view key,
                              PageBuffer& look);
  Task<Status> UnlockBoth(OpContext& op, LockedPage& left, LockedPage& right);
  Task<Status> MergeParents(OpContext& op, const Publication& publication);
  static void Answer(dsm::LocalLockTable::TakenWork& served, const Status& status);
  void Combine(LockedPage& leaf, LeafParts& parts, uint64_t fence_digest, PartMask* dirty,
               dsm::LocalLockTable::TakenWork* served);
  void AddPartsWriteBack(LockedPage& leaf, PartMask dirty, Batch& batch);
  /// WRITEs of what changed, and of the unlock; behind that a READ of the whole leaf into `look`.
  void AddPartsWriteBackAndUnlock(LockedPage& leaf, PartMask dirty, PageBuffer* look, Batch& batch);

  // lock.cc: locked pages.
  dsm::PageClass PageClassOf(Level level) const;
  uint64_t LockWordOffset(GlobalAddress address, Level level) const;
  uint64_t ChangeCounterOffset(GlobalAddress address) const;
  /// Locks the page and reads it; a lock that another holds is waited for until `give_up_ns`, or from the
  /// first wait on for as long as options and the operation allow. Ok without held(): the page is free, or
  /// another tree's, or of a lower level.
  static constexpr uint64_t kFromFirstWait = 0;
  Task<Status> LockPage(OpContext& op, GlobalAddress address, LockClass lock_class,
                        uint64_t give_up_ns, LockedPage& locked);
  /// This member's redo slots on `server` are there to be written.
  Task<Status> ClaimRedoArea(OpContext& op, dsm::ServerId server);
  // begin_lock.cc
  /// Puts the verbs that lock a page into `batch`, if nobody in this process has it. Then the batch's status
  /// goes into `locked.begun`, which TakeBegunParts, TakeBegunLeaf or LockPage takes up.
  bool BeginLock(GlobalAddress address, LockClass lock_class, LockedPage& locked, Batch& batch);
  /// Whether the lock that was begun is had, with the parts in hand; else it stays begun.
  bool TakeBegunParts(LockedPage& leaf);
  /// The same with the whole leaf in hand, of a tree whose leaves are not parted.
  bool TakeBegunLeaf(LockedPage& leaf);
  static constexpr uint64_t kNoWait = 1;  ///< of LockPage: DeadlineExceeded where it would wait
  GlobalAddress CachedParentOf(const Publication& publication) const;  ///< null: not known
  /// Posts batches[0], and beside it what locks `known`. Then publication.parent is begun, or null.
  Task<void> PostBesideParent(OpContext& op, std::span<Batch, 2> batches, GlobalAddress known,
                              Publication& publication);
  /// Then publication.parent is held, or null.
  Task<void> TakeBegunParent(OpContext& op, GlobalAddress known, Publication& publication);
  Task<void> LetParentGo(OpContext& op, Publication& publication);
  using FirstTry = LockedPage::FirstTry;
  enum class LockAttempt : uint8_t { kEnded, kNoSlot, kBusy, kRecovering };
  Task<Result<LockAttempt>> TryLockPage(OpContext& op, LockClass lock_class, uint64_t give_up_ns,
                                        LockedPage& locked, FirstTry* first,
                                        Contention* contention);
  /// Waits for the local turn; held() if the remote lock came along. Refused: the page is read.
  Task<Status> AwaitTurn(OpContext& op, LockClass lock_class, LockedPage& locked);
  /// A lock word for the page whose turn is held. Nullopt: there is something else to be done first (RedoSlots::TakeInTurn),
  /// or somebody of a higher class wants the page; the turn is gone.
  Task<std::optional<uint64_t>> AwaitSlot(OpContext& op, GlobalAddress address,
                                          LockClass lock_class, uint64_t give_up_ns);
  void AddLockVerbs(LockedPage& locked, uint64_t word, uint64_t* old, Batch& batch);
  Status NoSlot(dsm::ServerId server) const;
  /// CAS and READ until the lock is had, or the page is found free, of a lower level, or its owner gone; or, of a class
  /// above the lowest, another's.
  Task<Status> TakeRemoteLock(OpContext& op, LockClass lock_class, uint64_t word,
                              uint64_t give_up_ns, LockedPage& locked, FirstTry* first,
                              Contention* contention, NotTaken* not_taken);
  void BackOffFrom(uint64_t word, uint64_t now_ns, Random& random, Contention* contention) const;
  /// Writes the record of a page that may die, for a lock that was handed over.
  Task<Status> Announce(OpContext& op, LockedPage& locked);
  /// Locks the node at `level` that covers `key`, from the page on whose lock is begun or held already, if one is. Ok
  /// without held(): the tree is not that high, or its work was done by who held it (turn.served).
  Task<Status> LockNodeFor(OpContext& op, std::string_view key, Level level, LockClass lock_class,
                           LockedPage& locked);
  /// Turn and lock word for a page that nothing names yet; the word is put into the buffer.
  Task<Status> ClaimNewPage(OpContext& op, GlobalAddress address, LockClass lock_class,
                            LockedPage& locked);
  void Seal(LockedPage& locked);
  Status NotANode(GlobalAddress address) const;
  /// READ of the page, or of the wanted parts of it and those that waiting changes want.
  void AddReads(LockedPage& locked, Batch& batch);
  /// Of a lock that came without its page; lets it go if it fails.
  Task<Status> ReadHandedOver(OpContext& op, LockedPage& locked);
  dsm::RedoHead RedoHeadOf(const LockedPage& locked) const;
  void AddRedoRecord(LockedPage& locked, size_t bytes, Batch& batch);
  /// WRITE of the redo record of what changed since BeginChanges: it stands ahead of what it is about.
  /// Returns its length.
  size_t AddRedo(LockedPage& locked, std::span<const std::byte> before,
                 std::span<const std::byte> after, Batch& batch);
  /// WRITEs of what changed of the raw image, as the redo record in hand has it, if that is less than all.
  void AddChanged(const LockedPage& locked, std::span<const std::byte> raw, size_t redo_bytes,
                  Batch& batch);
  /// In the search layer.
  void AddChangeCounter(const LockedPage& locked, std::span<const std::byte> raw, Batch& batch);
  /// WRITE of the raw image and, in the search layer, of its change counter.
  void AddImage(const LockedPage& locked, std::span<const std::byte> raw, Batch& batch);
  /// The same of a parted leaf to which the write-back adds a key.
  void AddLeafAndEntry(LockedPage& locked, std::span<std::byte> raw, Batch& batch);
  /// WRITE of the redo record, image and, in the search layer, change counter. Once a batch while it is locked.
  void AddWriteBack(LockedPage& locked, Batch& batch);
  /// WRITE of the unlock, unless the lock will be handed over to a local waiter.
  void AddUnlock(LockedPage& locked, Batch& batch);
  /// Lets the page go after `batch`, its write-back and unlock, has ended, or another that held the same
  /// has failed. What failed is repeated, or found to have run. Unknown if that cannot be told.
  Task<Status> Finish(OpContext& op, LockedPage& locked, Batch& batch, Status other_failed = {});
  bool GoesOnTrying(const OpContext& op, const Status& status, int attempt,
                    uint64_t give_up_ns) const;
  /// Posts a batch that may run any number of times, until it succeeds or keeps failing.
  Task<Status> PostUntilDone(OpContext& op, Batch& batch);
  /// Lets a page go whose state in the pool is unknown; it is resolved later.
  void AbandonPage(OpContext& op, LockedPage& page, const Status& why);
  /// Lets go a page whose write-back and unlock have ended as `posted`, if that is all there is to do.
  bool LetGo(LockedPage& locked, const Status& posted);
  Task<Status> PostAndFinish(OpContext& op, LockedPage& locked, Batch& batch);
  void AddWriteBackAndUnlock(LockedPage& locked, Batch& batch);
  /// Behind what `batch` holds already. REQUIRES: sealed.
  Task<Status> WriteBackAndUnlock(OpContext& op, LockedPage& locked, Batch& batch);
  /// REQUIRES: the buffer holds the page as it is in the pool.
  Task<Status> Unlock(OpContext& op, LockedPage& locked);

  // recover.cc: locks whose owner is gone.
  bool IsOwn(uint64_t word) const;
  /// Whether nothing can come any more of a lock's holder: fenced there, or this member, and it is on its list.
  bool IsGone(OpContext& op, GlobalAddress address, uint64_t word, const FenceLook& look) const;
  Task<Result<bool>> IsConfirmed(OpContext& op, uint64_t word, dsm::ServerId server);
  /// Where the slot that a lock word names is on that server; 0: nowhere.
  Task<Result<uint64_t>> RedoSlotOffset(OpContext& op, dsm::ServerId server, uint64_t word);
  Task<Status> ReadDeadLock(OpContext& op, DeadLock& dead, uint64_t* lock_word);
  Task<Result<RecoveryPlan>> PlanRecovery(OpContext& op, DeadLock& dead);
  Task<Result<RecoveryPlan>> PlanByLink(OpContext& op, DeadLock& dead);
  /// kOver: no lock on the left page links this one any more, or has it die.
  Task<Result<Recovery>> SettleNeighbour(OpContext& op, const DeadLock& dead);
  Task<Result<bool>> IsLinked(OpContext& op, DeadLock& dead);
  /// Whether the node that covers what lies just below the image's low fence names `target`, whose image
  /// it is, as its right sibling.
  Task<Result<bool>> HasLeftNeighbour(OpContext& op, GlobalAddress target, Level page_level,
                                      PageBuffer& image);
  /// Deals with the lock of a member that is gone, wholly, or not at all. REQUIRES: the page's
  /// local turn, which is let go in any case.
  Task<Result<Recovery>> RecoverPage(OpContext& op, PageLock lock);
  /// kWait if another thread has the turn.
  Task<Result<Recovery>> TryRecoverPage(OpContext& op, PageLock lock);
  void CountRecovery(RecoveryPlan plan);
  Task<Result<Recovery>> TakeOverAndFinish(OpContext& op, DeadLock& dead, RecoveryPlan plan);
  Task<Result<Recovery>> TakeOver(OpContext& op, DeadLock& dead, RecoveryPlan plan,
                                  LockedPage& taken);
  void ReplayRedo(const dsm::RedoRecord& record, LockedPage& taken);
  /// `lock`: without tree and worker.
  void NoteUnresolved(OpContext& op, UnresolvedLocks::Lock lock, const Status& why);
  void Resolved(GlobalAddress address, uint64_t word);
  /// What is due on this worker, also what is due so much later. The first failure.
  Task<Status> ResolveDue(OpContext& op, uint64_t ahead_ns);

  // recover_finish.cc
  Task<Status> FinishRecovery(OpContext& op, const DeadLock& dead, RecoveryPlan plan,
                              LockedPage& taken);
  /// WRITE of the image with parts that nobody believes in the place of those that are to change.
  void AddTornParts(LockedPage& taken, Batch& batch);
  /// Frees the value block that a write-back has ceased to name, if nobody has.
  Task<Status> FreeOldBlock(OpContext& op, GlobalAddress block, uint64_t unique_id, BlockWas was);
  /// The same for a write-back of this member that was in doubt, and has landed.
  Task<void> FreeOldBlockOf(OpContext& op, const UnresolvedLocks::Lock& lock);
  Task<Status> FinishMerge(OpContext& op, LockedPage& left);
  /// Tells the parents of all that `child` covers, lets it go.
  Task<Status> PublishWhole(OpContext& op, LockedPage& child, GlobalAddress replaced);
  /// Makes a raw image a dead one, whatever it was. Returns its version.
  uint64_t MakeDead(std::span<std::byte> raw, Level level, GlobalAddress forward) const;
  /// What the lock word of a page that dies is, and what it becomes.
  struct PageDeath {
    uint64_t held;
    const uint64_t* free;
  };
  /// WRITE of a dead image, its change counter and the free word.
  void AddDeadPage(GlobalAddress address, std::span<const std::byte> raw, Level level,
                   PageDeath words, Batch& batch);
  /// Lets a locked page die that is not in the tree (any more), and frees it.
  Task<Status> KillPage(OpContext& op, LockedPage& page, Level level);

  // modify.cc
  /// Locks or blocks of this member's are left to be dealt with by the way.
  bool HasUnfinished() const { return !pool_->unresolved_locks().empty() || !late_blocks_.empty(); }
  Task<Result<ModifyResult>> ModifyInLeaf(OpContext& op, std::string_view key,
                                          const ModifyFunction& modify, CurrentValue use);
  /// Whether the value will lie out of line, so that a look in place would be in vain: it takes the place of none there.
  /// `replacement`: room for the value.
  bool GoesOutOfLine(const ModifyFunction& modify, CurrentValue use,
                     std::string* replacement) const;
  Status CheckValue(std::string_view value) const;
  /// The part of its capacity that a node is filled to before it is split.
  double UsualFillMax(const ConstNode& node) const;
  bool Underfull(const ConstNode& node, double slack = 1) const;
  /// Whether a leaf that has just lost an entry is to be merged with a neighbour, by who removed that.
  bool ShouldMerge(const ConstNode& leaf) const;
  Task<void> MergeAfterDelete(OpContext& op, std::string_view key);
  /// Makes another's change in a leaf in hand, if that needs no block and no split; or nothing.
  bool ApplyInLeaf(LockedPage& leaf, EntryChange& change) const;
  /// Makes the changes that wait for the leaf, as far as it is theirs. They are answered behind the write-back.
  void CombineInLeaf(LockedPage& leaf, dsm::LocalLockTable::TakenWork* served);
  Task<Status> DeleteEntry(OpContext& op, LockedPage& leaf, size_t index, std::string_view key,
                           std::optional<OutOfLineValue> old_block);
  Task<Status> WriteEntry(OpContext& op, LockedPage& leaf, ConstNode::Position at,
                          std::string_view key, std::string_view value,
                          std::optional<OutOfLineValue> old_block);

  // split.cc
  uint64_t FreePageWord() const;
  Task<Status> GiveBackUnused(OpContext& op, Level level, dsm::PageGrant grant);
  /// Splits `left` with the pending entry and tells the parents. `left_batch` may hold WRITEs that
  /// go ahead (a value block). ResourceExhausted: nothing has happened. `left` is let go in any case.
  Task<Status> SplitAndInsert(OpContext& op, LockedPage& left, PendingEntry pending,
                              Batch& left_batch);
  /// Writes `left`, which names the new right page, and tells the parents.
  Task<Status> LinkRight(OpContext& op, LockedPage& left, Batch& left_batch, LateEntry late,
                         Publication& publication);
  /// Puts the pending entry, which came with the split, into the new right leaf.
  PartMask PutLate(LockedPage& right, const PendingEntry& pending) const;
  Task<Status> ClaimSibling(OpContext& op, const LockedPage& left, LockedPage& right);
  void AddNewPage(LockedPage& fresh, Batch& batch);
  /// Gives back a page that was written, perhaps, and is not linked.
  Task<void> VoidNewPage(OpContext& op, LockedPage& fresh);

  // publish.cc
  Task<Status> Publish(OpContext& op, Publication& publication);
  Task<Status> PublishHoldingChild(OpContext& op, Publication& publication);
  Task<Status> FinishParent(OpContext& op, LockedPage& parent, ParentEdit edit,
                            Publication& publication);
  Task<Status> LockParent(OpContext& op, const std::string& position, Publication& publication,
                          LockedPage& parent);
  void AddChildWriteBack(const Publication& publication, LockedPage& child, Batch& batch);
  /// Posts `parent_batch`, which lets the parent go, and beside it what lets the child go, if `child`.
  Task<Status> LetGoWithChild(OpContext& op, LockedPage& parent, Batch parent_batch,
                              LockedPage* child, Publication& publication);
  Task<Result<bool>> RunGoesOn(OpContext& op, std::string_view position,
                               const Publication& publication);
  Task<Result<bool>> GrowRoot(OpContext& op, Publication& publication);
  Task<Status> ClaimRoot(OpContext& op, Level level, LockedPage& root);
  Task<Result<bool>> SwapRoot(OpContext& op, RootWord from, RootWord to);
  Task<Status> CompleteSeparator(OpContext& op, GlobalAddress address);

  // merge.cc
  bool MayMerge(const ConstNode& left, const ConstNode& right) const;
  bool AreToMerge(const ConstNode& left, const ConstNode& right, double slack = 1) const;
  enum class Tried : uint8_t { kNone, kRight };
  /// The node of a key as it was just now, and whether its right sibling was seen not to fit.
  struct KnownNode {
    const ConstNode* node = nullptr;
    Tried tried = Tried::kNone;
  };
  Task<Status> MergeAround(OpContext& op, Level level, std::string key, KnownNode known);
  Task<Status> TryMerge(OpContext& op, Level level, std::string_view left_key,
                        Publication& publication);
  Task<Status> MergeLocked(OpContext& op, LockedPage& left, LockedPage& right,
                           Publication& publication);
  /// The left image, then the right's dead one; beside, publication.parent is locked, if it is free.
  Task<Status> WriteMerged(OpContext& op, LockedPage& left, LockedPage& right,
                           Publication& publication);
  void BuildMerged(LockedPage& left, LockedPage& right, Publication& publication);
  Task<Status> ShrinkRoot(OpContext& op);

  // values.cc: out-of-line values.
  GuessedValue GuessValue(std::string_view key) const;
  /// Reads a leaf and the guessed block in one round trip. Of the block's server no failure is told.
  Task<Status> ReadLeafAndGuess(OpContext& op, GlobalAddress leaf, std::span<std::byte> image,
                                GuessedValue& guess);
  /// Whether the guessed block is the one that the leaf names; `value` is then in it.
  bool TakeGuess(GuessedValue& guess, const OutOfLineValue& where, std::string* value);
  void NoteValue(uint64_t hash, const OutOfLineValue& where);
  /// The leaf has no out-of-line value of the key.
  void ForgetGuess(const GuessedValue& guess);
  Task<Status> ReadValues(OpContext& op, std::span<ValueFetch> fetches);
  Task<Status> ReadSomeValues(OpContext& op, std::span<ValueFetch> fetches);
  Task<Result<ValueState>> ReadValue(OpContext& op, OutOfLineValue where, std::string* value);
  Task<Status> PrepareValue(OpContext& op, std::string_view value, dsm::ServerId server,
                            NewValue& fresh);
  Task<Status> PlaceValue(OpContext& op, std::string_view key, const NewValue& fresh,
                          Batch& leaf_batch);
  /// nullopt: an extent.
  std::optional<dsm::PageClass> BlockClassOf(const OutOfLineValue& where) const;
  /// Behind the write of the leaf that was to name it: what becomes of a new block.
  Task<void> SettleNewValue(OpContext& op, std::string_view key, const NewValue& fresh,
                            Status written);
  /// Frees a block that no leaf has named: its word, and RetireValue.
  Task<Status> DiscardValue(OpContext& op, OutOfLineValue where);
  /// Frees a block that no leaf names any more, unless another member has.
  Task<Status> FreeBlock(OpContext& op, OutOfLineValue where, BlockWas was);
  void FreeLater(const LateBlocks::Block& late);
  /// The part of it that follows when the block's word says free.
  Task<Status> RetireValue(OpContext& op, OutOfLineValue where);
  /// Writes the leaf back, answers those whose changes it carries, and frees `old_block`, in one round trip where both are
  /// on one server.
  Task<Status> WriteBackAndFree(OpContext& op, LockedPage& leaf, Batch& batch,
                                std::optional<OutOfLineValue> old_block,
                                dsm::LocalLockTable::TakenWork& served);

  // scan.cc
  struct ScanState;
  struct ScanLeaf;
  std::string LowestKey() const;
  void ChooseScanLeaves(OpContext& op, ScanState& state) const;
  /// Which blocks to read beside the chosen leaves, of which those go that will not be needed.
  void GuessScanValues(ScanState& state, double per_leaf) const;
  Task<Status> ReadScanLeaves(OpContext& op, ScanState& state);
  bool IsNextLeaf(const ScanState& state, std::span<const std::byte> image) const;
  void TakeScanLeaf(ScanState& state, const ConstNode& leaf);
  void TakeAndNoteScanLeaf(ScanState& state, const ScanLeaf& planned, const ConstNode& leaf);
  void AddScanRow(ScanState& state, const ConstNode& leaf, size_t i);
  /// So many were in a share of a leaf, above 0 and up to 1.
  void NoteLeafFill(size_t entries, double share = 1);
  // scan_parts.cc
  enum class LeafIs : uint8_t { kNext, kLater };
  /// What a scan wants of a leaf with these fences, the one that covers `position` or one that comes later.
  std::optional<WantedKeys> WantedOf(const ScanState& state, LeafRange range, LeafIs leaf_is) const;
  /// Begins to fetch what a scan will probably read of so many leaves, and what is remembered of them.
  void PrefetchScan(OpContext& op, const ScanState& state, double leaves) const;
  void PlanScan(ScanState& state) const;
  enum class ScanTaken : uint8_t;
  ScanTaken TakeScanParts(ScanState& state, const ScanLeaf& planned, std::span<std::byte> image);
  Task<Status> FetchScanValues(OpContext& op, ScanState& state);

  dsm::Pool* pool_;
  TreeInfo info_;
  TreeOptions options_;
  SearchCache cache_;
  LeafHints hints_;
  ValueHints value_hints_;
  ValueLists value_lists_;
  ExpectedLeaves expected_;
  CountByWorker cache_hits_;
  TreeStats stats_;
  LateBlocks late_blocks_;
  using RedoAreaKey = std::tuple<dsm::ServerId, dsm::MemberId, uint16_t>;  ///< member, incarnation
  std::mutex redo_areas_mutex_;                                            // guards redo_areas_
  std::map<RedoAreaKey, uint64_t> redo_areas_;
  std::atomic<double> entries_per_leaf_;  ///< running mean, for scans
  std::array<std::atomic<uint64_t>, 32> parents_being_read_{};
  std::atomic<bool> refreshing_{false};  ///< one cache refresh at a time
};

}  // namespace farleaf::index
