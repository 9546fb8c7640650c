// Merge: a node that became underfull and a neighbour become one; the right one of the two dies.
//
// Lock left, then right. Write left with both nodes' entries (still locked), await. Mark right dead
// with a forward pointer, and its lock word free, await. Tell the parents, still under left's lock.
// Unlock left. Retire right: it is reused after the grace period at the earliest.
//
// Cases for a reader at any moment:
//   before left's WRITE        both nodes stand as they were
//   between the two WRITEs     right still answers for its range; nobody can change it (locked), and
//                              left holds the same entries: either answer is right
//   after right's WRITE        right is dead and names left, which was complete before
//   after right's reuse        its tree, level or fences do not fit: descend again; the parents do
//                              not name it any more, for it was retired after Publish
//
// Left's lock is kept until the parents are told, so that left can neither die nor split before
// every entry that named right names left (the alternative, to unlock first, lets a second merge
// kill left and leave the parents with a pointer to a page that is free).
#include <cstring>
#include <utility>

#include "dsm/base/mutation.h"
#include "index/blink/publication.h"
#include "index/blink/tree.h"

namespace farleaf::index {

bool BlinkTree::MayMerge(const ConstNode& left, const ConstNode& right) const {
  const bool one_is_empty = left.count() == 0 || right.count() == 0;
  return FitsMerged(left, right, one_is_empty ? 1.0 : options_.merge_up_to * UsualFillMax(left));
}

bool BlinkTree::AreToMerge(const ConstNode& left, const ConstNode& right, double slack) const {
  return left.has_high() && right.LowEquals(left.high()) &&
         FitOf(right, left.high(), Side::kAt, left.level()) == Fit::kCovers &&
         (Underfull(left, slack) || Underfull(right, slack)) && MayMerge(left, right);
}

Task<Status> BlinkTree::MergeAround(OpContext& op, Level level, std::string key, KnownNode known) {
  const Geometry& geometry = info_.geometry;
  for (;;) {
    PageBuffer page, neighbour;
    if (!known.node) {
      auto address = co_await ReadNode(op, key, Side::kAt, level, page);
      if (!address.ok()) co_return address.status();
      if (address->is_null()) co_return Status::Ok();
    }
    const ConstNode read(geometry, page.image(geometry, level));
    const ConstNode node = known.node ? *known.node : read;
    const bool asks_right = known.tried == Tried::kNone;
    known = {};
    if (!Underfull(node)) co_return Status::Ok();

    std::optional<std::string> left_key;  // a key of the left one of the two to merge
    if (node.has_high() && asks_right) {
      auto state = co_await ReadPage(op, node.right(), level, neighbour);
      if (!state.ok()) co_return state.status();
      const ConstNode right(geometry, neighbour.image(geometry, level));
      if (*state == PageState::kRead &&
          FitOf(right, node.high(), Side::kAt, level) == Fit::kCovers && MayMerge(node, right)) {
        left_key = node.low();
      }
    }
    if (!left_key && node.has_low()) {
      const std::string low = node.low();
      auto left_address = co_await ReadNode(op, low, Side::kBefore, level, neighbour);
      if (!left_address.ok()) co_return left_address.status();
      const ConstNode left(geometry, neighbour.image(geometry, level));
      if (!left_address->is_null() && left.HighEquals(low) && MayMerge(left, node)) {
        left_key = left.low();
      }
    }
    if (!left_key) co_return Status::Ok();
    Publication publication;
    Status status = co_await TryMerge(op, level, *left_key, publication);
    if (!status.ok()) co_return status;
    if (publication.root_has_one_child) {
      status = co_await ShrinkRoot(op);
      if (!status.ok()) co_return status;
    }
    if (!publication.parent_underfull) co_return Status::Ok();
    level = publication.level;  // go on one level up
    key = publication.underfull_key;
  }
}

Task<Status> BlinkTree::TryMerge(OpContext& op, Level level, std::string_view left_key,
                                 Publication& publication) {
  LockedPage left;
  Status status = co_await LockNodeFor(op, left_key, level, LeftLockClass(level), left);
  if (!status.ok() || !left.held()) co_return status;
  const GlobalAddress right_address = left.node(info_.geometry).right();
  LockedPage right;
  if (!right_address.is_null()) {
    // Announced with its lock: whoever finds the right page's lock without its owner looks at the left
    // page before it lets the right one live on.
    right.redo_kind = dsm::RedoKind::kDying;
    right.follow_up = left.address;
    right.follow_up_word = left.lock_word;
    status = co_await LockPage(op, right_address, RightLockClass(level), WaitDeadlineNs(op), right);
  }
  if (status.ok() && right.held()) {
    if (AreToMerge(left.node(info_.geometry), right.node(info_.geometry))) {
      status = co_await MergeLocked(op, left, right, publication);
      co_return status;
    }
    Status unlocked = co_await Unlock(op, right);
    if (status.ok()) status = unlocked;
  }
  Status unlocked = co_await Unlock(op, left);
  if (status.ok()) status = unlocked;
  co_return status;
}

void BlinkTree::BuildMerged(LockedPage& left, LockedPage& right, Publication& publication) {
  const Geometry& geometry = info_.geometry;
  const Level level = left.node(geometry).level();
  publication.level = static_cast<Level>(level + 1);
  publication.low = right.node(geometry).low();
  if (right.node(geometry).has_high()) publication.high = right.node(geometry).high();
  publication.child = left.address;
  publication.replaced = right.address;
  publication.child_lock = &left;
  {
    PageBuffer merged;
    Node out(geometry, merged.image(geometry, level));
    MergeNodes(left.node(geometry), right.node(geometry), &out);
    SealNode(out, left.node(geometry).version() + 1);
    std::memcpy(left.buffer.bytes, merged.bytes, geometry.image_bytes(level));
  }
  Node dead = right.node(geometry);
  dead.MarkDead(left.address);
  Seal(right);
  left.redo_kind = dsm::RedoKind::kMergeLeft;
  left.follow_up = right.address;
  left.follow_up_word = right.lock_word;
}

Task<Status> BlinkTree::WriteMerged(OpContext& op, LockedPage& left, LockedPage& right,
                                    Publication& publication) {
  const Geometry& geometry = info_.geometry;
  const Level level = left.level();
  // On one server the two WRITEs are ordered in one batch; else the first is awaited.
  const uint64_t free_word = FreePageWord();
  Batch left_batch(left.address.server()), right_batch(right.address.server());
  const bool same_server = left.address.server() == right.address.server();
  Batch& kill_batch = same_server ? left_batch : right_batch;
  if (Mutated(Mutation::kMergeKillsRightFirst)) {
    Batch early(right.address.server());
    early.Write(right.address.offset(), right.Pack(geometry));
    [[maybe_unused]] Status killed = co_await PostUntilDone(op, early);
  }
  AddWriteBack(left, left_batch);
  // No record of it: the announcement stays, or a death between record and image would leave neither.
  AddDeadPage(right.address, right.Pack(geometry), level, {right.lock_word, &free_word},
              kill_batch);
  const GlobalAddress known = CachedParentOf(publication);
  Batch first[2] = {std::move(left_batch), Batch(known.server())};
  co_await PostBesideParent(op, first, known, publication);
  co_await TakeBegunParent(op, known, publication);
  // Idempotent: both locks are ours until the free word lands, and that is the last verb.
  Status status = first[0].status();
  if (!status.ok()) {
    // For as long as a leaf's server does not answer, nobody is to wait for the parent, which others want too.
    co_await LetParentGo(op, publication);
    status = co_await PostUntilDone(op, first[0]);
  }
  if (!status.ok() || same_server) co_return status;
  status = co_await op.worker.RoundTrip(right_batch, op.counts);
  if (!status.ok()) {
    co_await LetParentGo(op, publication);
    status = co_await PostUntilDone(op, right_batch);
  }
  co_return status;
}

Task<Status> BlinkTree::MergeLocked(OpContext& op, LockedPage& left, LockedPage& right,
                                    Publication& publication) {
  const Level level = left.level();
  BuildMerged(left, right, publication);
  const Node dead = right.node(info_.geometry);
  stats_.merges.fetch_add(1, std::memory_order_relaxed);
  LockedPage parent;
  publication.parent = &parent;
  Status status = co_await WriteMerged(op, left, right, publication);
  if (!status.ok()) {             // half a merge, which is finished when the server answers again
    pool_->allocator().GiveUp();  // the right page, if its free word has landed
    AbandonPage(op, right, status);
    AbandonPage(op, left, status);
    co_return Status::Unknown("merge of pages " + left.address.ToString() + " and " +
                              right.address.ToString() + ": " + status.ToString());
  }
  const uint64_t dead_version = dead.version();
  if (level > 0 && caching()) {
    cache_.Install(left.address, left.node(info_.geometry).image());
    cache_.Install(right.address, dead.image());
  }
  pool_->redo_slots(right.address.server()).Give(std::exchange(right.lock_word, 0));
  pool_->locks().Release(right.address);

  if (Mutated(Mutation::kMergeForgetsParents)) {
    if (parent.held()) {
      [[maybe_unused]] Status let_go = co_await Unlock(op, parent);
    }
    Status unlocked = co_await Unlock(op, left);
    if (!unlocked.ok()) co_return unlocked;
  } else {
    status = co_await Publish(op, publication);
  }
  if (!status.ok()) {  // parents may still name the dead page: it is not reused
    pool_->allocator().GiveUp();
    co_return status;
  }
  if (Mutated(Mutation::kPageNeverFreed)) co_return status;
  if (Mutated(Mutation::kPageFreedTwice)) {
    pool_->allocator().Retire(pool_->clock(), PageClassOf(level), {right.address, dead_version});
  }
  pool_->allocator().Retire(pool_->clock(), PageClassOf(level), {right.address, dead_version});
  status = co_await pool_->allocator().Trim(op);
  co_return status;
}

Task<Status> BlinkTree::ShrinkRoot(OpContext& op) {
  const Geometry& geometry = info_.geometry;
  for (;;) {
    auto fresh = co_await RefreshRoot(op);
    if (!fresh.ok()) co_return fresh.status();
    const RootWord old_root = *fresh;
    if (old_root.level == 0) co_return Status::Ok();
    LockedPage root;
    root.redo_kind = dsm::RedoKind::kDying;  // announced with the lock
    Status status = co_await LockPage(op, old_root.address, LeftLockClass(old_root.level),
                                      WaitDeadlineNs(op), root);
    if (!status.ok() || !root.held()) co_return status;
    const ConstNode node = root.node(geometry);
    // The lock keeps the node from growing while the root word is swapped.
    if (FitOf(node, node.low(), Side::kAt, old_root.level) != Fit::kCovers || node.count() != 1 ||
        node.has_low() || node.has_high()) {
      status = co_await Unlock(op, root);
      co_return status;
    }
    const RootWord new_root{node.Child(0), static_cast<Level>(old_root.level - 1)};
    auto swapped = co_await SwapRoot(op, old_root, new_root);
    if (!swapped.ok()) {  // it may be the root no more
      AbandonPage(op, root, swapped.status());
      co_return swapped.status();
    }
    if (!*swapped) {
      status = co_await Unlock(op, root);
      if (!status.ok()) co_return status;
      continue;
    }
    status = co_await KillPage(op, root, old_root.level);
    if (!status.ok()) co_return status;
    stats_.roots_shrunk.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace farleaf::index
