// Merges of parted leaves, behind a delete that has emptied a part.
//
// A leaf that is remembered to have few entries is not let go by the delete: its write-back brings the whole
// leaf, and the right sibling's lock and image come beside, in the same round trip.
//
//   round trip 1   CAS on the lock word, READ of the parts
//   round trip 2   write-back of the delete, READ of the leaf; beside, announcement, CAS and READ of the right
//   round trip 3   WRITE of the merged leaf and of the dead one; beside, CAS and READ of the parent
//   round trip 4   write-back of the parent, unlocks
//
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

std::optional<GlobalAddress> BlinkTree::ExpectsMerge(const LockedPage& leaf) const {
  const size_t parts = PartsOf(info_.geometry.leaf_bytes);
  const auto slots = static_cast<double>(parts * kPartSlots);
  const auto count = PartHints{hints_.Load(leaf.address)}.count(parts);
  if (!caching() || !leaf.range.bounded() || !count) return std::nullopt;
  const double now = *count - kLost;
  if (now >= options_.merge_below * kPartedFillMax * slots) return std::nullopt;
  char high[8];
  StoreBig64(high, leaf.range.high);
  const SearchCache::LeafPath right = cache_.FindLeaf({high, sizeof high});
  if (!right.complete || right.node.is_null() || right.node == leaf.address) return std::nullopt;
  const auto right_count = PartHints{hints_.Load(right.node)}.count(parts);
  if (now + right_count.value_or(kLost) - kLost > options_.merge_up_to * kPartedFillMax * slots) {
    return std::nullopt;
  }
  return right.node;
}

Task<Status> BlinkTree::ChangeAndMerge(OpContext& op, LockedPage& leaf, PartMask dirty,
                                       std::string_view key, GlobalAddress right_address,
                                       dsm::LocalLockTable::TakenWork& served) {
  const Geometry& geometry = info_.geometry;
  LockedPage right;
  Batch batches[2] = {Batch(leaf.address.server()), Batch(right_address.server())};
  AddPartsWriteBack(leaf, dirty, batches[0]);
  batches[0].Read(leaf.address.offset(), leaf.arrival(geometry));
  right.redo_kind = dsm::RedoKind::kDying;
  right.follow_up = leaf.address;
  right.follow_up_word = leaf.lock_word;
  const bool begun = BeginLock(right_address, RightLockClass(0), right, batches[1]);
  [[maybe_unused]] Status posted = co_await op.worker.RoundTrip(batches, op.counts);
  Status status = batches[0].status();
  if (!status.ok()) status = co_await PostUntilDone(op, batches[0]);  // the lock is ours
  Answer(served, status);
  if (begun) {
    right.begun.status = batches[1].status();
    // Without it nothing is merged.
    [[maybe_unused]] Status taken =
        co_await LockPage(op, right_address, RightLockClass(0), kNoWait, right);
  }
  const bool saw_right = right.held();
  const bool readable = status.ok() && leaf.Open(geometry) == OpenOutcome::kValid;
  if (readable) {
    leaf.BeginLeafChanges(geometry);
    NoteHints(leaf.address, leaf.parts(geometry));
    if (right.held() && AreToMerge(leaf.node(geometry), right.node(geometry), kNearly)) {
      Publication publication;
      Status merged = co_await MergeLocked(op, leaf, right, publication);
      if (merged.ok()) merged = co_await MergeParents(op, publication);
      stats_.merges_given_up.fetch_add(!merged.ok(), std::memory_order_relaxed);
      co_return Status::Ok();
    }
  }
  if (!status.ok()) AbandonPage(op, leaf, status);
  Status unlocked = co_await UnlockBoth(op, leaf, right);
  if (!status.ok()) {
    co_return Status::Unknown("write-back of page " + leaf.address.ToString() + ": " +
                              status.ToString());
  }
  if (!unlocked.ok()) co_return unlocked;
  if (!readable) co_return NotANode(leaf.address);
  const ConstNode node = leaf.node(geometry);
  if (Underfull(node)) {
    const auto tried = saw_right ? Tried::kRight : Tried::kNone;
    Status merged = co_await MergeAround(op, 0, std::string(key), {&node, tried});
    stats_.merges_given_up.fetch_add(!merged.ok(), std::memory_order_relaxed);
  }
  co_return Status::Ok();
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
