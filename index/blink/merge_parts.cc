// Merges of parted leaves, behind a delete that has emptied a part.
//
// A leaf that is remembered to have few entries is not let go by the delete: its write-back brings the whole
// leaf, which names its right sibling.
//
//   round trip 1   CAS on the lock word, READ of the parts
//   round trip 2   write-back of the delete, READ of the leaf
//   round trip 3   announcement, CAS and READ of the right
//   round trip 4   WRITE of the merged leaf and of the dead one; beside, CAS and READ of the parent
//   round trip 5   write-back of the parent, unlocks
//
// Only the locked leaf's own image may say which page is announced to die: one that a stale cache takes for
// the sibling may be another tree's leaf, and a recovery would take it for a page that has died half.
// Another leaf is let go by the delete, and looked at behind that.
#include <cstring>

#include "index/blink/entry_change.h"
#include "index/blink/leaf_codec.h"
#include "index/blink/publication.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {
/// A leaf is held if it has not many more entries than one that is to be merged, as it was seen last: it loses
/// some, most often, from one look to the next, and a wrong guess costs a round trip.
constexpr double kLost = 9;
/// Two that are held anyway are merged a little earlier.
constexpr double kNearly = 1.3;
}  // namespace

bool BlinkTree::ExpectsMerge(const LockedPage& leaf) const {
  const size_t parts = PartsOf(info_.geometry.leaf_bytes);
  const auto slots = static_cast<double>(parts * kPartSlots);
  const auto count = PartHints{hints_.Load(leaf.address)}.count(parts);
  if (!caching() || !leaf.range.bounded() || !count) return false;
  const double now = *count - kLost;
  if (now >= options_.merge_below * kPartedFillMax * slots) return false;
  char high[8];
  StoreBig64(high, leaf.range.high);
  const SearchCache::LeafPath right = cache_.FindLeaf({high, sizeof high});
  if (!right.complete || right.node.is_null() || right.node == leaf.address) return false;
  const auto right_count = PartHints{hints_.Load(right.node)}.count(parts);
  return now + right_count.value_or(kLost) - kLost <= options_.merge_up_to * kPartedFillMax * slots;
}

Task<Status> BlinkTree::ChangeAndMerge(OpContext& op, LockedPage& leaf, PartMask dirty,
                                       std::string_view key,
                                       dsm::LocalLockTable::TakenWork& served) {
  const Geometry& geometry = info_.geometry;
  Batch batch(leaf.address.server());
  AddPartsWriteBack(leaf, dirty, batch);
  batch.Read(leaf.address.offset(), leaf.arrival(geometry));
  const Status written = co_await PostUntilDone(op, batch);
  Status status;
  if (!written.ok()) {  // one of the attempts may have landed
    status = Status::Unknown("write-back of page " + leaf.address.ToString() + ": " +
                             written.ToString());
  }
  Answer(served, status);
  if (!status.ok()) {
    AbandonPage(op, leaf, written);
    co_return status;
  }
  if (leaf.Open(geometry) != OpenOutcome::kValid) {
    Status unlocked = co_await Unlock(op, leaf);
    if (!unlocked.ok()) co_return unlocked;
    co_return NotANode(leaf.address);
  }
  leaf.BeginLeafChanges(geometry);
  NoteHints(leaf.address, leaf.parts(geometry));
  // The delete is done; a merge that cannot be finished now is left for a later one.
  Status merged = co_await MergeHeld(op, leaf, key);
  stats_.merges_given_up.fetch_add(!merged.ok(), std::memory_order_relaxed);
  co_return status;
}

Task<Status> BlinkTree::MergeHeld(OpContext& op, LockedPage& leaf, std::string_view key) {
  const Geometry& geometry = info_.geometry;
  const ConstNode node = leaf.node(geometry);
  LockedPage right;
  if (Underfull(node, kNearly) && !node.right().is_null()) {
    const GlobalAddress right_address = node.right();
    right.redo_kind = dsm::RedoKind::kDying;
    right.follow_up = leaf.address;
    right.follow_up_word = leaf.lock_word;
    Batch batch(right_address.server());
    if (BeginLock(right_address, RightLockClass(0), right, batch)) {
      Status posted = co_await op.worker.RoundTrip(batch, op.counts);
      right.begun.status = std::move(posted);
      // Without it nothing is merged.
      [[maybe_unused]] Status taken =
          co_await LockPage(op, right_address, RightLockClass(0), kNoWait, right);
    }
  }
  if (right.held() && AreToMerge(node, right.node(geometry), kNearly)) {
    Publication publication;
    Status merged = co_await MergeLocked(op, leaf, right, publication);
    if (merged.ok()) merged = co_await MergeParents(op, publication);
    co_return merged;
  }
  const auto tried = right.held() ? Tried::kRight : Tried::kNone;
  Status unlocked = co_await UnlockBoth(op, leaf, right);
  if (!unlocked.ok() || !Underfull(node)) co_return unlocked;
  Status merged = co_await MergeAround(op, 0, std::string(key), {&node, tried});
  co_return merged;
}

Task<Status> BlinkTree::UnlockBoth(OpContext& op, LockedPage& left, LockedPage& right) {
  Batch batches[2] = {Batch(left.address.server()), Batch(right.address.server())};
  if (left.held()) AddUnlock(left, batches[0]);
  if (right.held()) AddUnlock(right, batches[1]);
  // Failures are resolved by Finish, batch by batch.
  [[maybe_unused]] Status posted = co_await op.worker.RoundTrip(batches, op.counts);
  Status status;
  if (left.held()) status = co_await Finish(op, left, batches[0]);
  if (right.held()) {
    Status finished = co_await Finish(op, right, batches[1]);
    if (status.ok()) status = std::move(finished);
  }
  co_return status;
}

Task<Status> BlinkTree::MergeParents(OpContext& op, const Publication& publication) {
  if (publication.root_has_one_child) {
    Status shrunk = co_await ShrinkRoot(op);
    if (!shrunk.ok()) co_return shrunk;
  }
  if (!publication.parent_underfull) co_return Status::Ok();
  Status merged = co_await MergeAround(op, publication.level, publication.underfull_key, {});
  co_return merged;
}

Task<void> BlinkTree::MergeIfUnderfull(OpContext& op, GlobalAddress address, std::string_view key,
                                       PageBuffer& look) {
  const Geometry& geometry = info_.geometry;
  PageBuffer opened;
  if (OpenLeaf(geometry, look.image(geometry, 0), opened.image(geometry, 0)) !=
      OpenOutcome::kValid) {
    co_return;  // somebody changes it: who empties its next part looks again
  }
  const ConstNode node(geometry, opened.image(geometry, 0));
  const PartMask all = AllParts(PartsOf(geometry.leaf_bytes));
  NoteHints(address, LeafParts(look.image(geometry, 0), all, RangeOf(node)));
  if (node.dead() || !Underfull(node) || !(node.has_low() || node.has_high())) co_return;
  // The delete is done; a merge that cannot be finished now (a full or failing pool) is left for a
  // later one, and the tree is correct without it.
  Status merged = co_await MergeAround(op, 0, std::string(key), {&node, Tried::kNone});
  stats_.merges_given_up.fetch_add(!merged.ok(), std::memory_order_relaxed);
}

}  // namespace farleaf::index
