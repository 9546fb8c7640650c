// Split: the new right node first, locked until the parent names it, so that nobody changes it
// through a stale pointer; then the left node with its new fence and sibling, and its unlock; then
// the parent's separator, and the right node's unlock with it. Beside the left node's WRITE the parent
// is locked and read, if its lock is to be had at once: so a split adds one round trip, or two, if its pages
// are on two servers.
//
// Cases for a reader at any moment:
//   before the left WRITE       the left node still covers all; the right one is unreachable
//   the left WRITE is torn      checksum fails; read again
//   after it                    left covers up to the separator, its sibling is the right node,
//                               which is complete: the WRITE of it was awaited, or stands ahead of
//                               the left's in the same batch on the same server
//   before it, by a stale       the page of the right node was in use before, and a stale cache may
//   pointer to the right one    name it: it answers as left does, for a pending entry that belongs to
//                               a right leaf is written with the leaf's unlock, when it is linked
//                               (else one reader would see it, and a later one not)
#include <cstring>

#include "dsm/base/mutation.h"
#include "index/blink/publication.h"
#include "index/blink/tree.h"

namespace farleaf::index {

uint64_t BlinkTree::FreePageWord() const {
  dsm::LockWord word;
  word.state = dsm::LockWord::State::kFreePage;
  word.owner = pool_->self().id;
  word.incarnation = pool_->self().short_incarnation();
  return word.Encode();
}

Task<Status> BlinkTree::GiveBackUnused(OpContext& op, Level level, dsm::PageGrant grant) {
  const uint64_t word = FreePageWord();
  Batch batch(grant.address.server());
  batch.WriteWord(LockWordOffset(grant.address, level), &word);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (status.ok()) {
    pool_->allocator().Retire(pool_->clock(), PageClassOf(level), grant);
  } else {
    pool_->allocator().GiveUp();
  }
  co_return status;
}

namespace {
/// Makes `right`, the right half of a leaf that was split with `pending`, what it was without.
void TakeOutPending(const ConstNode& full, const PendingEntry& pending, Node* right) {
  const size_t i = right->Search(pending.key).index;
  if (!pending.replaces) {
    right->Remove(i);
    return;
  }
  // A value that made the leaf overflow is longer than the one that it replaces.
  const bool fits = right->ReplaceValue(i, full.Value(full.Search(pending.key).index));
  FARLEAF_CHECK(fits, "the replaced value does not fit where the new one did");
}
}  // namespace

Task<Status> BlinkTree::SplitAndInsert(OpContext& op, LockedPage& left, PendingEntry pending,
                                       Batch& left_batch) {
  const Geometry& geometry = info_.geometry;
  const Level level = left.node(geometry).level();
  LockedPage right;
  // What comes from the pool is not trusted to be a node that can be split.
  Status status = left.node(geometry).ValidateOpened();
  if (status.ok()) status = co_await ClaimSibling(op, left, right);
  if (!status.ok()) {
    left.ForbidHandOver();  // a parent's buffer holds a publication's edits
    Status unlocked = co_await Unlock(op, left);
    if (!unlocked.ok()) co_return unlocked;
    co_return status;
  }
  Publication publication;
  PageBuffer late;  // the right leaf with the pending entry, if that belongs there
  {
    PageBuffer left_image;
    Node left_node(geometry, left_image.image(geometry, level));
    Node right_node = right.node(geometry);
    const ConstNode full = left.node(geometry);
    const uint64_t right_version = right_node.version();  // ClaimSibling left it there
    publication.low = SplitNode(full, pending, right.address, &left_node, &right_node);
    SealNode(left_node, full.version() + 1);
    if (right_node.has_high()) publication.high = right_node.high();
    if (level == 0 && pending.key >= publication.low) {
      std::memcpy(late.bytes, right.buffer.bytes, geometry.image_bytes(level));
      SealNode(Node(geometry, late.image(geometry, level)), right_version + 2);
      publication.child_changed = true;
      TakeOutPending(full, pending, &right_node);
    } else if (!StandsAsNode(geometry, level)) {
      left.added = LoadBig64(pending.key.data());
    }
    SealNode(right_node, right_version + 1);
    std::memcpy(left.buffer.bytes, left_image.bytes, geometry.image_bytes(level));
  }
  publication.level = static_cast<Level>(level + 1);
  publication.child = right.address;
  publication.replaced = left.address;
  publication.insert_missing = true;
  publication.child_lock = &right;
  stats_.splits.fetch_add(1, std::memory_order_relaxed);

  left.redo_kind = dsm::RedoKind::kSplitLeft;
  left.follow_up = right.address;
  left.follow_up_word = right.lock_word;
  right.redo_kind = dsm::RedoKind::kNewPage;
  right.follow_up = left.address;
  right.follow_up_word = left.lock_word;
  if (Mutated(Mutation::kRightUnlockedBeforeLeft)) {
    StoreLittle(right.buffer.bytes + geometry.image_bytes(level), dsm::kUnlockedWord);
  }
  Batch right_batch(right.address.server());
  const bool same_server = right.address.server() == left.address.server();
  AddNewPage(right, same_server ? left_batch : right_batch);
  if (!same_server) {
    status = co_await PostUntilDone(op, right_batch);
    if (!status.ok()) {  // the right node is not linked: nothing has happened
      co_await VoidNewPage(op, right);
      left.ForbidHandOver();
      Status unlocked = co_await Unlock(op, left);
      if (!unlocked.ok()) co_return unlocked;
      co_return status;
    }
  }
  if (level == 0) value_lists_.NoteSplit(left.address, right.address, right.node(geometry));
  if (level > 0 && caching()) {  // before the lock is let go: a later image is then the newer one
    cache_.Install(right.address, right.node(geometry).image());
    cache_.Install(left.address, left.node(geometry).image());
  }
  status = co_await LinkRight(op, left, left_batch, {&pending, &late}, publication);
  co_return status;
}

Task<Status> BlinkTree::LinkRight(OpContext& op, LockedPage& left, Batch& left_batch,
                                  LateEntry late, Publication& publication) {
  const Geometry& geometry = info_.geometry;
  const Level level = left.level();
  LockedPage& right = *publication.child_lock;
  LockedPage parent;
  publication.parent = &parent;
  AddWriteBackAndUnlock(left, left_batch);
  const GlobalAddress known = CachedParentOf(publication);
  Batch batches[2] = {std::move(left_batch), Batch(known.server())};
  co_await PostBesideParent(op, batches, known, publication);
  Status status = batches[0].status();
  // Neither page is kept while the other one's server does not answer.
  const bool failed = !status.ok();
  if (failed) {
    co_await TakeBegunParent(op, known, publication);
    co_await LetParentGo(op, publication);
  }
  if (LetGo(left, status)) {
    status = Status::Ok();
  } else {
    Status finished = co_await Finish(op, left, batches[0]);
    status = std::move(finished);
  }
  if (!failed) co_await TakeBegunParent(op, known, publication);
  if (!status.ok()) {
    // The right page is free yet if nothing of the batch has landed.
    pool_->allocator().GiveUp();
    AbandonPage(op, right, status);
    co_return status;
  }
  pool_->allocator().NoteWritten(PageClassOf(level), right.address);
  if (publication.child_changed && StandsAsNode(geometry, level)) {
    std::memcpy(right.buffer.bytes, late.leaf->bytes, geometry.image_bytes(level));
  } else if (publication.child_changed) {
    publication.child_parts = PutLate(right, *late.pending);
  }
  // The split is done. A separator that cannot be inserted now (a full or failing pool) is a slow
  // path, not an error: whoever moves right to the new node completes it. What must not fail is the
  // write-back of the right node, if it holds the pending entry.
  Status published = co_await Publish(op, publication);
  stats_.separators_deferred.fetch_add(!published.ok(), std::memory_order_relaxed);
  co_return publication.child_changed ? publication.child_status : Status::Ok();
}

PartMask BlinkTree::PutLate(LockedPage& right, const PendingEntry& pending) const {
  right.BeginLeafChanges(info_.geometry);
  LeafParts parts = right.parts(info_.geometry);
  const uint64_t number = LoadBig64(pending.key.data());
  const LeafParts::Place room = parts.FindRoom(number, parts.parts());
  FARLEAF_CHECK(room.outcome == LeafParts::Outcome::kYes, right.address, parts.count());
  return PutIn(parts, room, number, pending.value.bytes.data());
}

Task<Status> BlinkTree::ClaimSibling(OpContext& op, const LockedPage& left, LockedPage& right) {
  const Level level = left.level();
  dsm::Allocator& allocator = pool_->allocator();
  const dsm::ServerId server = allocator.NextServer(left.address.server());
  auto grant = co_await allocator.Allocate(op, PageClassOf(level), server);
  if (!grant.ok()) co_return grant.status();
  Status claimed = co_await ClaimNewPage(op, grant->address, RightLockClass(level), right);
  if (!claimed.ok()) {
    Status returned = co_await GiveBackUnused(op, level, *grant);
    if (!returned.ok()) co_return returned;
    co_return claimed;
  }
  // The page's last version travels in the buffer, where Seal will put the next one.
  StoreLittle<uint64_t>(right.buffer.bytes + 8, grant->version);
  co_return Status::Ok();
}

void BlinkTree::AddNewPage(LockedPage& fresh, Batch& batch) {
  // What the page was is of no use to anyone: half of the new one that is not linked is discarded.
  AddRedo(fresh, {}, {}, batch);
  if (options_.placement == Placement::kHashed) fresh.placement = Placement::kHashed;
  const auto raw = fresh.Pack(info_.geometry, LockedPage::PageIs::kNew);
  const size_t image_bytes = raw.size();
  if (fresh.packed) {  // the lock word goes with it
    std::memcpy(raw.data() + image_bytes, fresh.buffer.bytes + image_bytes, sizeof(uint64_t));
  }
  if (fresh.packed) NoteWholeLeaf(fresh, raw);
  fresh.BeginChanges(info_.geometry);
  batch.Write(fresh.address.offset(), {raw.data(), image_bytes + sizeof(uint64_t)});
  if (fresh.level() > 0) batch.Write(ChangeCounterOffset(fresh.address), raw.subspan(8, 8));
}

Task<void> BlinkTree::VoidNewPage(OpContext& op, LockedPage& fresh) {
  // Its image may have landed, and a cache that is stale enough may name it: it must not answer when
  // the node beside it changes again.
  const Level level = fresh.node(info_.geometry).level();
  [[maybe_unused]] Status status = co_await KillPage(op, fresh, level);
}

}  // namespace farleaf::index
