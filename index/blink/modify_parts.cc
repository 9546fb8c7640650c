// Changes of single keys of a parted leaf: of one part, with what else waits for the leaf's lock.
//
//   round trip 1   CAS on the lock word, READ of the parts that the key may stand in
//   round trip 2   WRITE of the redo record, of the parts from the first changed word to the last, of
//                  the unlock
//
// The parts that were read are known to be the leaf's for the key by the digest of its fences
// (parted_leaf.h). Where that differs from the cached one, the whole leaf is read under the lock: one round trip
// more. Where the parts do not suffice, those are that may help, and the whole leaf if these do not either, or if it is
// to be split, as far as one can know: one round trip more, or two.
//
// Combining: what waits locally for the same lock is done by its holder, if it was led to the same leaf
// (the digest is the same, so the key is the leaf's) and the parts in hand suffice. The holder's one
// write-back carries it, and its authors are told when that has completed: each change was invoked
// before it was applied, and returns after it can be seen. Whoever is handed the lock READs the parts of
// all that waits, in one round trip.
#include <boost/container/static_vector.hpp>
#include <cstring>

#include "dsm/base/mutation.h"
#include "index/blink/entry_change.h"
#include "index/blink/leaf_codec.h"
#include "index/blink/parent_claim.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {
/// A leaf filled less than this takes a key away from its usual parts rather than being split.
constexpr size_t kSlotsPercentBeforeSplit = 40;
/// Runs of parts that are written one by one; more are written as one, if the whole leaf is in hand.
constexpr size_t kWritesMax = 2;

bool HasEmptyPart(const LeafParts& leaf, PartMask among) {
  for (; among != 0; among &= among - 1) {
    if (leaf.part(static_cast<size_t>(std::countr_zero(among))).used() == 0) return true;
  }
  return false;
}

/// Whether the change has taken away the last entry of a part.
bool Empties(const EntryChange& change, const LeafParts& leaf, PartMask dirty) {
  return change.result.action == ModifyAction::kDelete && HasEmptyPart(leaf, dirty);
}
}  // namespace

void BlinkTree::Decide(EntryChange& change, std::optional<std::string_view> current) const {
  change.result = {current.has_value(), (*change.modify)(current, &change.replacement)};
  if (change.result.action == ModifyAction::kDelete && !current) {
    change.result.action = ModifyAction::kKeep;
  }
  if (change.result.action == ModifyAction::kWrite) {
    change.status = CheckValue(change.replacement);
    if (!change.status.ok()) change.result.action = ModifyAction::kKeep;
  }
  change.decided = true;
}

BlinkTree::Applied BlinkTree::Apply(LeafParts& leaf, EntryChange& change, PartMask* dirty) const {
  using Outcome = LeafParts::Outcome;
  const LeafParts::Place at = leaf.Find(change.number);
  if (at.outcome == Outcome::kNotLoaded) return Applied::kNeedsLeaf;
  const bool found = at.outcome == Outcome::kYes;
  if (!change.decided) {
    std::optional<std::string_view> current;
    if (found) current = AsChars({leaf.part(at.part).value(at.slot), 8});
    Decide(change, current);
  }
  if (change.result.action == ModifyAction::kKeep) return Applied::kDone;
  if (change.result.action == ModifyAction::kDelete) {
    leaf.Remove(at);
    *dirty |= PartMask{1} << at.part;
    return Applied::kDone;
  }
  if (found) {
    leaf.SetValue(at, change.replacement.data());
    *dirty |= PartMask{1} << at.part;
    return Applied::kDone;
  }
  LeafParts::Place room = leaf.FindRoom(change.number, ChainPartsOf(leaf.parts()));
  if (room.outcome == Outcome::kNo && leaf.whole()) {
    const size_t percent = leaf.count() * 100 / (leaf.parts() * kPartSlots);
    if (percent < kSlotsPercentBeforeSplit) room = leaf.FindRoom(change.number, leaf.parts());
  }
  if (room.outcome == Outcome::kNotLoaded) return Applied::kNeedsLeaf;
  if (room.outcome == Outcome::kNo)
    return leaf.whole() ? Applied::kNeedsSplit : Applied::kNeedsLeaf;
  *dirty |= PutIn(leaf, room, change.number, change.replacement.data());
  return Applied::kDone;
}

void BlinkTree::ExpectParts(OpContext& op, const SearchCache::LeafPath& path, EntryChange& change,
                            LockedPage& leaf) const {
  change.fence_digest = path.fence_digest;
  // Ahead of the CAS, behind which the READ would wait for its own cache miss.
  op.worker.transport().Prefetch(GlobalAddress(path.node.server(), LockWordOffset(path.node, 0)),
                                 8);
  PrefetchHome(op, path, change.number);
  change.window = WindowToChange(path, change);
  leaf.range = path.range;
  leaf.wanted = change.window;
  if (options_.write_combining == WriteCombining::kOn) leaf.work = &change;
}

Task<Status> BlinkTree::LockPartsFor(OpContext& op, SearchCache::LeafPath path, EntryChange& change,
                                     LockedPage& leaf) {
  // A second time where the leaf was another's: its parent has been read again by then.
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (attempt > 0) {
      path = caching() ? cache_.FindLeaf(change.key) : SearchCache::LeafPath{};
      NoteCacheHits(op, path.complete && !path.node.is_null());
    }
    if (!path.complete || path.node.is_null()) {
      auto found = co_await FindNode(op, change.key, Side::kAt, 0, Freshness::kCached);
      if (!found.ok()) co_return found.status();
      path = *found;
    }
    if (attempt > 0 && path.fence_digest == change.fence_digest) [[unlikely]]
      break;
    Status status;
    if (!leaf.held()) {
      if (leaf.begun.word == 0) ExpectParts(op, path, change, leaf);
      status = co_await LockPage(op, path.node, LeftLockClass(0), kFromFirstWait, leaf);
      if (!status.ok() || leaf.turn.served) co_return status;
      if (!leaf.held()) break;
    }
    if (leaf.parts(info_.geometry).Fits(change.fence_digest)) [[likely]]
      co_return status;
    stats_.stale_parts.fetch_add(1, std::memory_order_relaxed);
    const CachedParent parent{path.parent, path.parent_version};
    status = co_await ReadWholeLeaf(op, leaf, parent);
    if (!status.ok()) co_return status;
    const bool covers = leaf.loaded != 0 &&
                        FitOf(leaf.node(info_.geometry), change.key, Side::kAt, 0) == Fit::kCovers;
    if (covers) {
      change.fence_digest = FenceDigestOf(leaf.node(info_.geometry));
      co_return status;
    }
    stats_.stale_locks.fetch_add(1, std::memory_order_relaxed);
    status = co_await Unlock(op, leaf);
    if (!status.ok()) co_return status;
  }
  change.fence_digest = 0;
  leaf.wanted = 0;
  leaf.work = nullptr;
  Status status = co_await LockNodeFor(op, change.key, 0, LeftLockClass(0), leaf);
  if (status.ok()) leaf.BeginLeafChanges(info_.geometry);
  co_return status;
}

Task<Status> BlinkTree::ReadWholeLeaf(OpContext& op, LockedPage& leaf, CachedParent parent) {
  const Geometry& geometry = info_.geometry;
  PageBuffer parent_page;
  const auto parent_image = parent_page.image(geometry, 1);
  Batch batches[2] = {Batch(leaf.address.server()), Batch(parent.node.server())};
  batches[0].Read(leaf.address.offset(), leaf.arrival(geometry));
  // As one who hops does: whoever else is there at once has the parent for us, or will.
  const ParentClaim claim(&parents_being_read_, parent.node);
  const bool with_parent = !parent.node.is_null() && ParentIsDue(parent.node) && claim.mine() &&
                           cache_.VersionOf(parent.node) <= parent.version;
  if (with_parent) {
    batches[1].Read(parent.node.offset(), parent_image);
    stats_.hop_refresh_bytes.fetch_add(parent_image.size(), std::memory_order_relaxed);
  }
  [[maybe_unused]] Status both = co_await op.worker.RoundTrip(batches, op.counts);
  if (!batches[0].status().ok()) {
    Status unlocked = co_await Unlock(op, leaf);
    if (!unlocked.ok()) co_return unlocked;
    co_return batches[0].status();
  }
  if (with_parent && batches[1].status().ok() &&
      ConstNode::Open(geometry, parent_image) == OpenOutcome::kValid) {
    cache_.Install(parent.node, parent_image);
  }
  leaf.loaded = 0;
  if (leaf.Open(geometry) == OpenOutcome::kValid) {
    leaf.BeginLeafChanges(geometry);
    if (!parent.node.is_null()) {
      LearnSplit(parent.node, leaf.address, leaf.node(geometry));
    }
  }
  co_return Status::Ok();
}

void BlinkTree::Combine(LockedPage& leaf, LeafParts& parts, uint64_t fence_digest, PartMask* dirty,
                        dsm::LocalLockTable::TakenWork* served) {
  if (fence_digest == 0) return;
  dsm::LocalLockTable& locks = pool_->locks();
  dsm::LocalLockTable::TakenWork taken, left;
  locks.TakeWork(leaf.address, kCombinedMax, &taken);
  for (auto* waiter : taken) {
    auto& change = static_cast<EntryChange&>(dsm::LocalLockTable::WorkOf(waiter));
    const bool same_leaf =
        change.fence_digest == fence_digest || Mutated(Mutation::kCombinesOtherLeaves);
    const bool done = same_leaf && Apply(parts, change, dirty) == Applied::kDone;
    if (same_leaf && !done) change.Forget();
    (done ? served : &left)->push_back(waiter);
  }
  locks.PutBack(leaf.address, left);
  stats_.combined.fetch_add(served->size(), std::memory_order_relaxed);
}

void BlinkTree::CombineWaiting(LockedPage& leaf, LeafParts& parts, const EntryChange& change,
                               PartMask* dirty, dsm::LocalLockTable::TakenWork* served) {
  NoteHints(leaf.address, parts);
  Combine(leaf, parts, change.fence_digest, dirty, served);
  if (Mutated(Mutation::kServedBeforeWriteBack)) {
    dsm::LocalLockTable::Serve(*served);
    served->clear();
  }
}

void BlinkTree::AddPartsWriteBack(LockedPage& leaf, PartMask dirty, Batch& batch) {
  const auto before = leaf.before.image(info_.geometry, 0),
             after = leaf.raw.image(info_.geometry, 0);
  const auto differs = [&](size_t at) {
    return LoadLittle<uint64_t>(before.data() + at) != LoadLittle<uint64_t>(after.data() + at);
  };
  boost::container::static_vector<dsm::RedoExtent, 16> extents;  // an array would be cleared first
  ForEachRun(dirty, [&](size_t first, size_t parts) {
    size_t begin = first * kPartBytes, end = (first + parts) * kPartBytes;
    while (begin < end && !differs(begin)) begin += 8;
    while (end > begin && !differs(end - 8)) end -= 8;
    if (begin == end) return;
    extents.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin)});
  });
  if (extents.size() > kWritesMax && leaf.parts(info_.geometry).whole()) {
    const dsm::RedoExtent last = extents.back();
    extents[0].length = last.offset + last.length - extents[0].offset;
    extents.resize(1);
  }
  AddRedoRecord(leaf, dsm::EncodeRedo(RedoHeadOf(leaf), before, after, extents, leaf.redo), batch);
  if (options_.small_write_backs == SmallWriteBacks::kOff && leaf.parts(info_.geometry).whole()) {
    // Whoever reads another part meanwhile reads what stands there. The trailer is not in hand, and does not change.
    batch.Write(leaf.address.offset(),
                after.first(PartsOf(info_.geometry.leaf_bytes) * kPartBytes));
    return;
  }
  for (const dsm::RedoExtent& extent : extents) {
    batch.Write(leaf.address.offset() + extent.offset, after.subspan(extent.offset, extent.length));
  }
}

void BlinkTree::AddPartsWriteBackAndUnlock(LockedPage& leaf, PartMask dirty, PageBuffer* look,
                                           Batch& batch) {
  const bool unlock_first = Mutated(Mutation::kUnlockBeforeWriteBack);
  if (unlock_first) AddUnlock(leaf, batch);
  AddPartsWriteBack(leaf, dirty, batch);
  if (!unlock_first) AddUnlock(leaf, batch);
  if (look) batch.Read(leaf.address.offset(), look->image(info_.geometry, 0));
}

void BlinkTree::Answer(dsm::LocalLockTable::TakenWork& served, const Status& status) {
  for (auto* waiter : served) {
    auto& done = static_cast<EntryChange&>(dsm::LocalLockTable::WorkOf(waiter));
    if (!status.ok()) done.status = status;
  }
  dsm::LocalLockTable::Serve(served);
  served.clear();
}

Task<Result<ModifyResult>> BlinkTree::ModifyInParts(OpContext& op, std::string_view key,
                                                    const ModifyFunction& modify,
                                                    CurrentValue use) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  if (HasUnfinished()) [[unlikely]] {
    // What cannot be resolved yet is no reason to fail this write.
    [[maybe_unused]] Status resolved = co_await ResolveDue(op, 0);
  }
  EntryChange change(this, key, modify, use);
  change.number = LoadBig64(key.data());
  LockedPage leaf;
  SearchCache::LeafPath path;
  if (caching()) path = cache_.FindLeaf(key);
  // What usually happens, in one frame: nobody has the leaf, and it is the one expected.
  bool in_hand = false;
  if (path.complete && !path.node.is_null()) {
    NoteCacheHits(op, 1);
    ExpectParts(op, path, change, leaf);
    Batch batch(path.node.server());
    if (BeginLock(path.node, LeftLockClass(0), leaf, batch)) {
      Status posted = co_await op.worker.RoundTrip(batch, op.counts);
      leaf.begun.status = std::move(posted);
      in_hand = TakeBegunParts(leaf) && leaf.parts(info_.geometry).Fits(change.fence_digest);
    }
  }
  if (!in_hand) {
    Status locked = co_await LockPartsFor(op, path, change, leaf);
    if (!locked.ok()) co_return locked;
  }
  if (!leaf.turn.served) {
    PartMask dirty = 0;
    LeafParts parts = leaf.parts(info_.geometry);
    const Applied applied = Apply(parts, change, &dirty);
    Status status;
    dsm::LocalLockTable::TakenWork served;
    if (applied == Applied::kDone) CombineWaiting(leaf, parts, change, &dirty, &served);
    if (applied != Applied::kDone) {
      status = co_await ChangeLocked(op, leaf, change, applied);
    } else if (dirty == 0 || Empties(change, parts, dirty)) {
      status = co_await WriteChanged(op, leaf, change, dirty, served);
    } else {
      Batch batch(leaf.address.server());
      AddPartsWriteBackAndUnlock(leaf, dirty, nullptr, batch);
      if (leaf.handing_over) {
        status = co_await PostAndFinish(op, leaf, batch);
      } else {
        Status posted = co_await op.worker.RoundTrip(batch, op.counts);
        if (!LetGo(leaf, posted)) status = co_await Finish(op, leaf, batch);
      }
      Answer(served, status);
    }
    if (!status.ok()) co_return status;
  }
  if (!change.status.ok()) co_return change.status;
  co_return change.result;
}

PartMask BlinkTree::MoreParts(LockedPage& leaf, const EntryChange& change) {
  const LeafParts in_hand = leaf.parts(info_.geometry);
  NoteHints(leaf.address, in_hand);
  SearchCache::LeafPath path;
  path.node = leaf.address;
  path.range = leaf.range;
  // All that entries go to, as of gets: the hints of parts that were never met say nothing of going on.
  const PartMask wanted =
      WindowToChange(path, change) | NextWindow(path, in_hand, change.number) | leaf.loaded;
  return wanted == in_hand.all() ? 0 : wanted & ~leaf.loaded;
}

Task<Status> BlinkTree::ReadMoreParts(OpContext& op, LockedPage& leaf, uint64_t fence_digest,
                                      PartMask more) {
  stats_.more_locked_parts.fetch_add(1, std::memory_order_relaxed);
  Batch batch(leaf.address.server());
  AddPartReads(leaf.address, more, leaf.before.image(info_.geometry, 0), batch);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) {
    Status unlocked = co_await Unlock(op, leaf);
    co_return unlocked.ok() ? status : unlocked;
  }
  leaf.BeginPartChanges(leaf.loaded | more);
  if (leaf.parts(info_.geometry).Fits(fence_digest)) co_return status;
  const CachedParent no_parent;
  status = co_await ReadWholeLeaf(op, leaf, no_parent);
  co_return status;
}

Task<Status> BlinkTree::ChangeLocked(OpContext& op, LockedPage& leaf, EntryChange& change,
                                     Applied applied) {
  const Geometry& geometry = info_.geometry;
  PartMask dirty = 0;
  LeafParts parts = leaf.parts(geometry);
  for (bool first = true; applied == Applied::kNeedsLeaf && leaf.loaded != 0; first = false) {
    const PartMask more = first ? MoreParts(leaf, change) : 0;
    Status status;
    if (more != 0) {
      status = co_await ReadMoreParts(op, leaf, change.fence_digest, more);
    } else {
      const CachedParent no_parent;
      status = co_await ReadWholeLeaf(op, leaf, no_parent);
    }
    if (!status.ok()) co_return status;
    parts = leaf.parts(geometry);
    if (leaf.loaded != 0) applied = Apply(parts, change, &dirty);
  }
  const bool readable = applied == Applied::kDone || leaf.Open(geometry) == OpenOutcome::kValid;
  if (!readable) {
    Status unlocked = co_await Unlock(op, leaf);
    if (!unlocked.ok()) co_return unlocked;
    co_return NotANode(leaf.address);
  }
  if (applied != Applied::kDone) {
    PendingEntry pending;
    pending.key = change.key;
    pending.value = {change.replacement, false};
    Batch batch(leaf.address.server());
    Status status = co_await SplitAndInsert(op, leaf, pending, batch);
    co_return status;
  }
  dsm::LocalLockTable::TakenWork served;
  CombineWaiting(leaf, parts, change, &dirty, &served);
  Status status = co_await WriteChanged(op, leaf, change, dirty, served);
  co_return status;
}

Task<Status> BlinkTree::WriteChanged(OpContext& op, LockedPage& leaf, const EntryChange& change,
                                     PartMask dirty, dsm::LocalLockTable::TakenWork& served) {
  const Geometry& geometry = info_.geometry;
  const LeafParts parts = leaf.parts(geometry);
  // A leaf that loses entries is looked at when one of its parts becomes empty: behind its unlock.
  PageBuffer look;
  const bool emptied = Empties(change, parts, dirty);
  if (emptied && ExpectsMerge(leaf)) {
    Status changed = co_await ChangeAndMerge(op, leaf, dirty, change.key, served);
    co_return changed;
  }
  if (emptied) {  // a write-back that is found to have landed brings no look: zeros are no leaf
    std::memset(look.bytes, 0, geometry.image_bytes(0));
  }
  Batch batch(leaf.address.server());
  Status status;
  if (dirty == 0) {
    Status unlocked = co_await Unlock(op, leaf);
    status = std::move(unlocked);
  } else {
    AddPartsWriteBackAndUnlock(leaf, dirty, emptied ? &look : nullptr, batch);
    Status finished = co_await PostAndFinish(op, leaf, batch);
    status = std::move(finished);
  }
  Answer(served, status);
  if (status.ok() && emptied) {
    co_await MergeIfUnderfull(op, leaf.address, change.key, look);
  }
  co_return status;
}

}  // namespace farleaf::index
