// Recovery, second half: finishing what the former owner of a lock had begun, under a lock word of this
// member's own. Each step may be the last: what stands in the pool then, with the copied record, is one
// of the cases that recovery begins with.
#include <algorithm>
#include <cstring>
#include <utility>

#include "index/blink/publication.h"
#include "index/blink/recovery.h"
#include "index/blink/tree.h"
#include "index/blink/value_block.h"

namespace farleaf::index {

namespace {
/// A page that was torn in so many READs is read under its lock: it may be half-written for good.
constexpr int kTornReadsBeforeLock = 4;
}  // namespace

Task<Status> BlinkTree::FinishRecovery(OpContext& op, const DeadLock& dead, RecoveryPlan plan,
                                       LockedPage& taken) {
  // Neither the operation's deadline nor anybody's patience ends a recovery half-way.
  OpContext context{op.worker, op.counts};
  const Geometry& geometry = info_.geometry;
  if (plan == RecoveryPlan::kVoid) {
    Status status = co_await KillPage(context, taken, dead.record->level);
    co_return status;
  }
  if (taken.Open(geometry) != OpenOutcome::kValid) {
    // Examined before as whole, and nobody but us could write since.
    Status status = co_await Unlock(context, taken);
    if (!status.ok()) co_return status;
    co_return Status::Corruption("page " + taken.address.ToString() + " of tree '" + info_.name +
                                 "' fails its checksum with its redo record applied");
  }
  if (taken.node(geometry).level() > 0 && caching()) {
    cache_.Install(taken.address, taken.node(geometry).image());
  }
  Batch batch(taken.address.server());
  if (taken.replayed != 0) AddTornParts(taken, batch);
  AddImage(taken, taken.arrival(geometry), batch);
  const bool frees = taken.redo_kind == dsm::RedoKind::kChange && !taken.follow_up.is_null();
  if (plan == RecoveryPlan::kReplay && !frees) {
    AddUnlock(taken, batch);
    Status status = co_await PostAndFinish(context, taken, batch);
    co_return status;
  }
  Status status = co_await PostUntilDone(context, batch);
  if (!status.ok()) {
    AbandonPage(context, taken, status);
    co_return status;
  }
  if (plan == RecoveryPlan::kReplay) {
    const BlockWas was = dead.frees_own ? BlockWas::kFreedPerhaps : BlockWas::kNamed;
    status = co_await FreeOldBlock(context, taken.follow_up, taken.follow_up_word, was);
    // If the block's server does not answer, the record that names the block must stand.
    const LateBlocks::Block late{std::exchange(taken.follow_up, {}), taken.follow_up_word,
                                 taken.address.server(), taken.lock_word};
    taken.keeps_slot = !status.ok();
    status = co_await Unlock(context, taken);
    if (taken.keeps_slot && status.ok()) FreeLater(late);
  } else if (plan == RecoveryPlan::kMergeLeft) {
    status = co_await FinishMerge(context, taken);
  } else {
    status = co_await PublishWhole(context, taken, GlobalAddress());
  }
  co_return status;
}

// An entry that a whole write-back added may have its home in another part than before. Its author wrote
// that part last; here, all parts that are to change fail their checks first, so that nobody finds it in a
// new part, and somebody later misses it in an old one. What fails is in the record: a word that differs
// from the after-image.
void BlinkTree::AddTornParts(LockedPage& taken, Batch& batch) {
  const auto torn = taken.raw.image(info_.geometry, 0);
  const auto image = taken.arrival(info_.geometry);
  std::memcpy(torn.data(), image.data(), torn.size());
  for (PartMask rest = taken.replayed; rest != 0; rest &= rest - 1) {
    torn[static_cast<size_t>(std::countr_zero(rest)) * kPartBytes] ^= std::byte{1};
  }
  batch.Write(taken.address.offset(), torn);
}

Task<Status> BlinkTree::FreeOldBlock(OpContext& op, GlobalAddress block, uint64_t unique_id,
                                     BlockWas was) {
  std::byte head[kBlockHeaderBytes];
  Batch look(block.server());
  look.Read(block.offset(), head);
  Status status = co_await op.worker.RoundTrip(look, op.counts);
  // A block that was freed still tells its length.
  if (status.ok()) status = co_await FreeBlock(op, {block, unique_id, BlockLength(head)}, was);
  co_return status;
}

Task<void> BlinkTree::FreeOldBlockOf(OpContext& op, const UnresolvedLocks::Lock& lock) {
  Status freed =
      co_await FreeOldBlock(op, lock.old_block, lock.old_block_id, BlockWas::kFreedPerhaps);
  if (freed.ok()) {
    if (lock.keeps_slot) pool_->redo_slots(lock.address.server()).Give(lock.word);
    co_return;
  }
  // As it was: the next look at the lock finds it gone again.
  pool_->unresolved_locks().Add(lock);
}

Task<Status> BlinkTree::PublishWhole(OpContext& op, LockedPage& child, GlobalAddress replaced) {
  const ConstNode node = child.node(info_.geometry);
  Publication publication;
  publication.level = static_cast<Level>(node.level() + 1);
  publication.low = node.has_low() ? node.low() : LowestKey();
  if (node.has_high()) publication.high = node.high();
  publication.child = child.address;
  publication.replaced = replaced;
  publication.insert_missing = replaced.is_null();
  publication.child_lock = &child;
  Status status = co_await Publish(op, publication);
  co_return status;
}

// The right page dies under its old lock: as long as the left page's lock and record name it, nobody
// else touches it, and whoever takes the left page over from us needs our fence at its server.
Task<Status> BlinkTree::FinishMerge(OpContext& op, LockedPage& left) {
  const Geometry& geometry = info_.geometry;
  const Level level = left.node(geometry).level();
  const GlobalAddress right = left.follow_up;
  PageBuffer page;
  Batch look(right.server());
  look.Read(right.offset(), page.page(geometry, level));
  Status status = co_await PostUntilDone(op, look);
  std::optional<dsm::PageGrant> freed;
  if (status.ok() &&
      LoadLittle<uint64_t>(page.bytes + geometry.image_bytes(level)) == left.follow_up_word) {
    const auto image = page.image(geometry, level);
    const uint64_t version = MakeDead(image, level, left.address);
    const uint64_t free_word = FreePageWord();
    Batch kill(right.server());
    AddDeadPage(right, image, level, {left.follow_up_word, &free_word}, kill);
    status = co_await PostUntilDone(op, kill);
    freed = dsm::PageGrant{right, version};
    if (status.ok()) Resolved(right, left.follow_up_word);
  }
  if (!status.ok()) {
    if (freed) pool_->allocator().GiveUp();  // its free word may have landed
    AbandonPage(op, left, status);
    co_return status;
  }
  status = co_await PublishWhole(op, left, right);
  if (!status.ok()) {  // parents may still name the dead page: it is not reused
    if (freed) pool_->allocator().GiveUp();
    co_return status;
  }
  if (freed) pool_->allocator().Retire(pool_->clock(), PageClassOf(level), *freed);
  co_return status;
}

uint64_t BlinkTree::MakeDead(std::span<std::byte> raw, Level level, GlobalAddress forward) const {
  const uint64_t version = LastVersion(info_.geometry, level, raw) + 1;
  Node node(info_.geometry, raw);
  node.Init({.tree = info_.id, .level = level});
  if (level > 0) {  // an internal node has an entry
    [[maybe_unused]] const bool fits = node.InsertChild(0, LowestKey(), forward);
  }
  node.MarkDead(forward);
  SealNode(node, version);
  PackNewPage(info_.geometry, level, raw);
  return version;
}

void BlinkTree::AddDeadPage(GlobalAddress address, std::span<const std::byte> raw, Level level,
                            PageDeath words, Batch& batch) {
  batch.Write(address.offset(), raw);
  if (level > 0) batch.Write(ChangeCounterOffset(address), raw.subspan(8, 8));
  batch.ReplaceWord(LockWordOffset(address, level), words.held, words.free);
}

Task<Status> BlinkTree::KillPage(OpContext& op, LockedPage& page, Level level) {
  // No record of it: the one that stands says what is to be done with a page that is half-dead.
  const auto raw = page.arrival(info_.geometry);
  const uint64_t version = MakeDead(raw, level, GlobalAddress());
  const uint64_t free_word = FreePageWord();
  Batch batch(page.address.server());
  AddDeadPage(page.address, raw, level, {page.lock_word, &free_word}, batch);
  Status status = co_await PostUntilDone(op, batch);
  if (!status.ok()) {
    pool_->allocator().GiveUp();  // its free word may have landed
    AbandonPage(op, page, status);
    co_return status;
  }
  if (level > 0 && caching()) {
    cache_.Install(page.address, page.node(info_.geometry).image());
  }
  pool_->redo_slots(page.address.server()).Give(std::exchange(page.lock_word, 0));
  pool_->locks().Release(page.address);
  pool_->allocator().Retire(pool_->clock(), PageClassOf(level), {page.address, version});
  co_return status;
}

// A READ that is torn tells nothing of a page that is in use: it met a write-back. Under the lock there is none,
// and what fails its checksum there was never written whole. Nothing leads to such a page, so that nobody
// but a recovery ever locks it; who dies with that lock leaves no record, and the page as it was.
Task<Result<BlinkTree::PageState>> BlinkTree::ReadSettledPage(OpContext& op, GlobalAddress address,
                                                              Level level, PageBuffer& page) {
  const Geometry& geometry = info_.geometry;
  const auto image = page.image(geometry, level);
  for (int attempt = 0; attempt < kTornReadsBeforeLock; ++attempt) {
    Batch batch(address.server());
    batch.Read(address.offset(), image);
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
    const OpenOutcome outcome = OpenPage(geometry, level, image);
    if (outcome == OpenOutcome::kValid) co_return PageState::kRead;
    // Of a page of this tree the word that says so stands through all its write-backs.
    if (outcome == OpenOutcome::kMalformed || RawTree(geometry, level, image) != info_.id ||
        (level == 0 && IsOtherLayout(geometry, image))) {
      co_return PageState::kForeign;
    }
    stats_.torn_reads.fetch_add(1, std::memory_order_relaxed);
  }
  LockedPage locked;
  Status status = co_await LockPage(op, address, LeftLockClass(level), WaitDeadlineNs(op), locked);
  if (status.code() == StatusCode::kCorruption) co_return PageState::kForeign;  // half-written
  if (!status.ok()) co_return status;
  if (!locked.held()) co_return PageState::kForeign;  // free by now, or another tree's
  std::memcpy(image.data(), locked.image(geometry).data(), image.size());
  status = co_await Unlock(op, locked);
  if (!status.ok()) co_return status;
  co_return PageState::kRead;
}

Task<Result<bool>> BlinkTree::Reaches(OpContext& op, GlobalAddress address, Level level) {
  const Geometry& geometry = info_.geometry;
  PageBuffer page;
  auto state = co_await ReadSettledPage(op, address, level, page);
  if (!state.ok()) co_return state.status();
  if (*state == PageState::kForeign) co_return false;
  const ConstNode node(geometry, page.image(geometry, level));
  if (node.tree() != info_.id || node.dead()) co_return false;
  if (node.has_low()) {
    auto linked = co_await HasLeftNeighbour(op, address, level, page);
    co_return linked;
  }
  auto path = co_await FindNode(op, LowestKey(), Side::kAt, node.level(), Freshness::kFromRoot);
  if (!path.ok()) co_return path.status();
  co_return path->complete && path->node == address;
}

Task<Status> BlinkTree::VisitOutOfLine(OpContext& op,
                                       const std::function<void(const OutOfLineValue&)>& visit) {
  if (info_.geometry.layout == Layout::kFixed8) co_return Status::Ok();
  for (std::string position = LowestKey();;) {
    PageBuffer page;
    auto leaf = co_await ReadNode(op, position, Side::kAt, 0, page);
    if (!leaf.ok()) co_return leaf.status();
    const ConstNode node(info_.geometry, page.image(info_.geometry, 0));
    for (size_t i = node.Search(position).index; i < node.count(); ++i) {
      if (const StoredValue value = node.Value(i); value.out_of_line) {
        visit(DecodeOutOfLine(value.bytes));
      }
    }
    if (!node.has_high()) co_return Status::Ok();
    position = node.high();
  }
}

}  // namespace farleaf::index
