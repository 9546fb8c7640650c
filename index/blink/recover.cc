// Recovery of locks whose owner is gone: what to do about one, and taking it over.
//
// Who waits for a lock reads its owner's fence word beside it (lock.cc, descent.cc). A fence says that
// nothing of that owner can land at that memory server any more: page, lock word and redo slot stand
// still there, until somebody takes the lock over by CAS from exactly the dead word.
//
// All that a decision rests on is read before the CAS, while nothing is held for it: so recoveries
// wait for nobody on their own level, and nest only upwards. README.md, "Crash", has the cases.
#include <algorithm>
#include <cstring>

#include "dsm/base/mutation.h"
#include "dsm/redo_area.h"
#include "index/blink/recovery.h"
#include "index/blink/tree.h"

namespace farleaf::index {

using dsm::LockWord;
using dsm::RedoKind;

namespace {
constexpr int kNeighbourLooksMax = 8;

/// If another tree has got the number, its pages may have their lock words elsewhere: then what is read there
/// says nothing of this lock, which may need its record yet.
bool IsOfSize(const Geometry& geometry, const UnresolvedLocks::Lock& lock) {
  return lock.page_bytes == 0 || lock.page_bytes == geometry.page_bytes(lock.level);
}
}  // namespace

bool BlinkTree::IsOwn(uint64_t word) const {
  const LockWord lock = LockWord::Decode(word);
  return lock.owner == pool_->self().id && lock.incarnation == pool_->self().short_incarnation();
}

bool BlinkTree::IsGone(OpContext& op, GlobalAddress address, uint64_t word,
                       const FenceLook& look) const {
  const LockWord lock = LockWord::Decode(word);
  if (lock.state != LockWord::State::kLocked) return false;
  if (IsOwn(word)) return pool_->unresolved_locks().Has(address, word, op.worker.number());
  if (Mutated(Mutation::kTakeOverWithoutFence)) return true;
  return look.owner == lock.owner && dsm::IsFenced(look.fence_word, lock.owner, lock.incarnation);
}

Task<Result<bool>> BlinkTree::IsConfirmed(OpContext& op, uint64_t word, dsm::ServerId server) {
  if (IsOwn(word)) co_return true;  // it is this member itself, and nothing of it is under way
  FenceLook look{LockWord::Decode(word).owner};
  Batch batch(server);
  batch.ReadWord(dsm::FenceWordOffset(look.owner), &look.fence_word);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  co_return dsm::IsFenced(look.fence_word, look.owner, LockWord::Decode(word).incarnation);
}

Task<Result<uint64_t>> BlinkTree::RedoSlotOffset(OpContext& op, dsm::ServerId server,
                                                 uint64_t word) {
  const LockWord lock = LockWord::Decode(word);
  const uint64_t own_area = IsOwn(word) ? pool_->redo_slots(server).area() : 0;
  if (own_area != 0) co_return pool_->redo_slots(server).SlotOffset(word);
  const RedoAreaKey key{server, lock.owner, lock.incarnation};
  uint64_t area = 0;
  {
    std::lock_guard guard(redo_areas_mutex_);
    if (const auto known = redo_areas_.find(key); known != redo_areas_.end()) area = known->second;
  }
  if (area == 0) {
    auto found =
        co_await dsm::FindRedoArea(op, pool_->layouts()[server], lock.owner, lock.incarnation);
    if (!found.ok()) co_return found.status();
    if (!*found) co_return uint64_t{0};
    area = **found;
    std::lock_guard guard(redo_areas_mutex_);
    redo_areas_[key] = area;
  }
  const dsm::RegionLayout& layout = pool_->layouts()[server];
  if (lock.redo_slot >= dsm::RedoAreaSlots(layout)) co_return uint64_t{0};
  co_return area + lock.redo_slot* uint64_t{dsm::kRedoSlotBytes};
}

Task<Status> BlinkTree::ReadDeadLock(OpContext& op, DeadLock& dead, uint64_t* lock_word) {
  const Geometry& geometry = info_.geometry;
  const dsm::ServerId server = dead.address.server();
  auto slot = co_await RedoSlotOffset(op, server, dead.word);
  if (!slot.ok()) co_return slot.status();
  Batch batch(server);
  batch.Read(dead.address.offset(), dead.page.page(geometry, dead.level));
  if (*slot != 0) batch.Read(*slot, dead.slot);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_return status;
  *lock_word = LoadLittle<uint64_t>(dead.page.bytes + geometry.image_bytes(dead.level));
  dead.record.reset();
  if (*slot != 0) dead.record = dsm::ParseRedo(dead.slot);
  if (dead.record && (dead.record->lock_word != dead.word || dead.record->page != dead.address)) {
    dead.record.reset();  // of an earlier use of the slot
  }
  const auto image = dead.page.image(geometry, dead.level);
  if (dead.record && dead.record->tree == info_.id) dsm::ApplyRedo(*dead.record, image);
  dead.readable = OpenPage(geometry, dead.level, image) == OpenOutcome::kValid;
  co_return Status::Ok();
}

Task<Result<RecoveryPlan>> BlinkTree::PlanRecovery(OpContext& op, DeadLock& dead) {
  uint64_t lock_word = 0;
  Status status = co_await ReadDeadLock(op, dead, &lock_word);
  if (!status.ok()) co_return status;
  if (lock_word != dead.word) co_return RecoveryPlan::kOver;
  // No record: the page was not written under this lock, or only by write-backs that were completed;
  // and nothing that is written elsewhere asks for more (an announcement stands before it).
  if (!dead.record) co_return RecoveryPlan::kUnlock;
  if (dead.record->tree != info_.id) co_return RecoveryPlan::kForeign;
  switch (dead.record->kind) {
    case RedoKind::kChange:
    case RedoKind::kSplitLeft:
      if (Mutated(Mutation::kNoReplay)) co_return RecoveryPlan::kUnlock;
      co_return dead.readable ? RecoveryPlan::kReplay : RecoveryPlan::kUnlock;
    case RedoKind::kMergeLeft: {
      if (!dead.readable) co_return RecoveryPlan::kUnlock;
      // The right page is killed under its dead lock: whoever could still write there must not.
      if (pool_->unresolved_locks().IsBoundElsewhere(
              dead.record->follow_up, dead.record->follow_up_word, op.worker.number())) {
        co_return RecoveryPlan::kWait;  // another worker of this member could
      }
      for (const uint64_t word : {dead.word, dead.record->follow_up_word}) {
        auto confirmed = co_await IsConfirmed(op, word, dead.record->follow_up.server());
        if (!confirmed.ok()) co_return confirmed.status();
        if (!*confirmed) co_return RecoveryPlan::kWait;
      }
      co_return RecoveryPlan::kMergeLeft;
    }
    case RedoKind::kNewPage:
    case RedoKind::kDying:
      break;
  }
  auto plan = co_await PlanByLink(op, dead);
  co_return plan;
}

Task<Result<RecoveryPlan>> BlinkTree::PlanByLink(OpContext& op, DeadLock& dead) {
  const bool is_root = dead.record->follow_up.is_null();
  bool linked = false;
  if (is_root) {  // linked and unlinked by the root word
    auto confirmed = co_await IsConfirmed(op, dead.word, dsm::kCatalogServer);
    if (!confirmed.ok()) co_return confirmed.status();
    if (!*confirmed) co_return RecoveryPlan::kWait;
    auto root = co_await RefreshRoot(op);
    if (!root.ok()) co_return root.status();
    linked = root->address == dead.address;
  } else {
    auto neighbour = co_await SettleNeighbour(op, dead);
    if (!neighbour.ok()) co_return neighbour.status();
    if (*neighbour != Recovery::kOver) co_return RecoveryPlan::kWait;
    auto found = co_await IsLinked(op, dead);
    if (!found.ok()) co_return found.status();
    linked = *found;
  }
  if (!linked) co_return RecoveryPlan::kVoid;
  if (is_root || dead.record->kind == RedoKind::kDying) co_return RecoveryPlan::kUnlock;
  co_return RecoveryPlan::kPublish;
}

// Whether the left page's holder may still link the page, or have it die, is written in the record of
// the lock that the left page has now, whoever has it: a record that names this page and this lock
// stands before the image that does it, and a taker copies it before it takes the lock.
Task<Result<Recovery>> BlinkTree::SettleNeighbour(OpContext& op, const DeadLock& dead) {
  const GlobalAddress left = dead.record->follow_up;
  for (int look = 0; look < kNeighbourLooksMax; ++look) {
    uint64_t word = 0;
    Batch batch(left.server());
    batch.ReadWord(LockWordOffset(left, dead.level), &word);
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
    const LockWord lock = LockWord::Decode(word);
    if (lock.state != LockWord::State::kLocked) co_return Recovery::kOver;
    const bool own = IsOwn(word);
    bool gone = own && pool_->unresolved_locks().Has(left, word, op.worker.number());
    if (!own) {
      auto confirmed = co_await IsConfirmed(op, word, left.server());
      if (!confirmed.ok()) co_return confirmed.status();
      gone = *confirmed;
    }
    if (gone) {
      auto recovered = co_await TryRecoverPage(op, {left, dead.level, word});
      if (!recovered.ok()) co_return recovered.status();
      if (*recovered == Recovery::kForeign) co_return Recovery::kOver;  // it is no neighbour now
      if (*recovered == Recovery::kWait) co_return Recovery::kWait;
      continue;
    }
    const LockWord dead_lock = LockWord::Decode(dead.word);
    if (!own && lock.owner == dead_lock.owner && lock.incarnation == dead_lock.incarnation) {
      co_return Recovery::kWait;  // for the fence at its server
    }
    auto other = std::make_unique<DeadLock>();
    other->address = left;
    other->level = dead.level;
    other->word = word;
    uint64_t now_word = 0;
    status = co_await ReadDeadLock(op, *other, &now_word);
    if (!status.ok()) co_return status;
    if (now_word != word) continue;
    const bool names = other->record && other->record->follow_up == dead.address &&
                       other->record->follow_up_word == dead.word;
    co_return names ? Recovery::kWait : Recovery::kOver;
  }
  co_return Recovery::kWait;
}

// By what the page's left neighbour says, not by the page, or by what leads to it: a page that was in
// use before may still be named by what is out of date.
Task<Result<bool>> BlinkTree::IsLinked(OpContext& op, DeadLock& dead) {
  if (!dead.readable) co_return false;  // it is linked when all of it is written
  auto linked = co_await HasLeftNeighbour(op, dead.address, dead.level, dead.page);
  co_return linked;
}

Task<Result<bool>> BlinkTree::HasLeftNeighbour(OpContext& op, GlobalAddress target,
                                               Level page_level, PageBuffer& image) {
  const Geometry& geometry = info_.geometry;
  const ConstNode node(geometry, image.image(geometry, page_level));
  if (node.tree() != info_.id || node.dead() || !node.has_low()) co_return false;
  const Level level = node.level();
  const std::string low = node.low();
  const uint64_t give_up_ns = WaitDeadlineNs(op);
  for (;;) {
    auto path = co_await FindNode(op, low, Side::kBefore, level, Freshness::kFromRoot);
    if (!path.ok()) co_return path.status();
    if (!path->complete) co_return false;  // the tree is not that high
    GlobalAddress address = path->node;
    while (!address.is_null()) {
      PageBuffer page;
      auto state = co_await ReadPage(op, address, level, page);
      if (!state.ok()) co_return state.status();
      if (*state == PageState::kForeign) break;
      const ConstNode left(geometry, page.image(geometry, level));
      const Fit fit = FitOf(left, low, Side::kBefore, level);
      if (fit == Fit::kCovers) co_return left.HighEquals(low) && left.right() == target;
      if (fit == Fit::kRestart) break;
      address = left.right();
    }
    if (op.worker.clock().NowNs() >= give_up_ns) {
      co_return Status::DeadlineExceeded("no path to the left neighbour of page " +
                                         target.ToString() + " of tree '" + info_.name + "'");
    }
    co_await op.worker.Sleep(kNsPerUs * (1 + op.worker.random().Below(100)));
  }
}

Task<Result<Recovery>> BlinkTree::TryRecoverPage(OpContext& op, PageLock lock) {
  if (!pool_->locks().TryAcquire(lock.address, TakenLockClass(lock.level)))
    co_return Recovery::kWait;  // another thread is at it
  auto recovered = co_await RecoverPage(op, lock);
  co_return recovered;
}

Task<Result<bool>> BlinkTree::RecoverLock(OpContext& op, PageLock lock) {
  auto recovered = co_await TryRecoverPage(op, lock);
  if (!recovered.ok()) co_return recovered.status();
  co_return *recovered == Recovery::kOver;
}

Task<Result<Recovery>> BlinkTree::RecoverPage(OpContext& op, PageLock lock) {
  auto dead = std::make_unique<DeadLock>();
  static_cast<PageLock&>(*dead) = lock;
  auto plan = co_await PlanRecovery(op, *dead);
  if (plan.ok() && *plan > RecoveryPlan::kUnlock) {
    auto finished = co_await TakeOverAndFinish(op, *dead, *plan);
    co_return finished;
  }
  Status status = plan.status();
  if (plan.ok() && *plan == RecoveryPlan::kUnlock) {
    uint64_t old = 0;
    Batch batch(lock.address.server());
    batch.CompareAndSwap(LockWordOffset(lock.address, lock.level), lock.word, dsm::kUnlockedWord,
                         &old);
    status = co_await op.worker.RoundTrip(batch, op.counts);
    stats_.locks_taken_over.fetch_add(status.ok() && old == lock.word, std::memory_order_relaxed);
    CountRecovery(*plan);
  }
  pool_->locks().Release(lock.address);
  if (!status.ok()) co_return status;
  if (*plan == RecoveryPlan::kWait) co_return Recovery::kWait;
  if (*plan == RecoveryPlan::kForeign) co_return Recovery::kForeign;
  const auto own = pool_->unresolved_locks().Remove(lock.address, lock.word);
  stats_.locks_resolved.fetch_add(own.has_value(), std::memory_order_relaxed);
  // Nobody else takes over what is this member's own: if its word is gone, its unlock has landed, and all
  // that stood before.
  if (own && *plan == RecoveryPlan::kOver && !own->old_block.is_null()) {
    co_await FreeOldBlockOf(op, *own);
  } else if (own && own->keeps_slot &&
             (*plan != RecoveryPlan::kOver || IsOfSize(info_.geometry, *own))) {
    pool_->redo_slots(lock.address.server()).Give(lock.word);
  }
  co_return Recovery::kOver;
}

Task<Result<Recovery>> BlinkTree::TakeOverAndFinish(OpContext& op, DeadLock& dead,
                                                    RecoveryPlan plan) {
  LockedPage taken;
  stats_.takeovers_copying.fetch_add(1, std::memory_order_relaxed);
  auto took = co_await TakeOver(op, dead, plan, taken);
  stats_.takeovers_copying.fetch_sub(1, std::memory_order_relaxed);
  if (!taken.held()) {
    pool_->locks().Release(dead.address);
    co_return took;
  }
  stats_.locks_taken_over.fetch_add(1, std::memory_order_relaxed);
  stats_.takeovers_finishing.fetch_add(1, std::memory_order_relaxed);
  Status finished = co_await FinishRecovery(op, dead, plan, taken);  // lets the turn go
  stats_.takeovers_finishing.fetch_sub(1, std::memory_order_relaxed);
  if (finished.ok()) {
    CountRecovery(plan);
    co_return Recovery::kOver;
  }
  stats_.upkeep_given_up.fetch_add(1, std::memory_order_relaxed);
  co_return Recovery::kWait;
}

void BlinkTree::CountRecovery(RecoveryPlan plan) {
  const auto count = [plan](RecoveryPlan counted, std::atomic<uint64_t>& counter) {
    counter.fetch_add(plan == counted, std::memory_order_relaxed);
  };
  count(RecoveryPlan::kUnlock, stats_.dead_locks_without_record);
  count(RecoveryPlan::kReplay, stats_.redo_replays);
  count(RecoveryPlan::kMergeLeft, stats_.dead_merges_finished);
  count(RecoveryPlan::kPublish, stats_.dead_splits_published);
  count(RecoveryPlan::kVoid, stats_.dead_pages_voided);
}

Task<Result<Recovery>> BlinkTree::TakeOver(OpContext& op, DeadLock& dead, RecoveryPlan plan,
                                           LockedPage& taken) {
  const dsm::ServerId server = dead.address.server();
  if (pool_->redo_slots(server).area() == 0) {
    Status claimed = co_await ClaimRedoArea(op, server);
    if (!claimed.ok()) co_return claimed;
  }
  // A page that dies needs no further lock: its class is the highest.
  const LockClass lock_class = plan == RecoveryPlan::kVoid
                                   ? static_cast<LockClass>(dsm::kLockClasses - 1)
                                   : TakenLockClass(std::min<Level>(dead.record->level, kLevelMax));
  const std::optional<uint64_t> word = pool_->redo_slots(server).Take(lock_class);
  if (!word) co_return Recovery::kWait;
  // First the record's copy, complete; then the lock. (The other way round a second crash would leave
  // a half-written page without a record.)
  const size_t bytes = dsm::CopyRedo(*dead.record, *word, taken.redo);
  Batch copy(server);
  copy.Write(pool_->redo_slots(server).SlotOffset(*word), std::span(taken.redo).first(bytes));
  if (Mutated(Mutation::kNoRedoCopy)) taken.redo[0] ^= std::byte{1};  // fails its checksum
  Status status = co_await op.worker.RoundTrip(copy, op.counts);
  if (!status.ok()) {
    // The copy may land yet: the slot is not used again before nothing of it can.
    UnresolvedLocks::Lock copied{.address = dead.address, .word = *word, .level = dead.level};
    copied.keeps_slot = true;
    NoteUnresolved(op, copied, status);
    co_return status;
  }
  taken.level_class = TakenLockClass(std::min<Level>(dead.record->level, kLevelMax));
  uint64_t old = 0;
  Batch take(server);
  take.CompareAndSwap(LockWordOffset(dead.address, dead.level), dead.word, *word, &old);
  take.Read(dead.address.offset(), taken.arrival(info_.geometry));
  status = co_await op.worker.RoundTrip(take, op.counts);
  if (!status.ok()) {
    UnresolvedLocks::Lock copied{.address = dead.address, .word = *word, .level = dead.level};
    copied.keeps_slot = true;
    NoteUnresolved(op, copied, status);
    co_return status;
  }
  if (old != dead.word) {
    pool_->redo_slots(server).Give(*word);
    co_return Recovery::kOver;
  }
  const auto lock = pool_->unresolved_locks().Remove(dead.address, dead.word);
  stats_.locks_resolved.fetch_add(lock.has_value(), std::memory_order_relaxed);
  if (lock && lock->keeps_slot) pool_->redo_slots(server).Give(dead.word);
  // The record may be that of the lock's last holder, who handed it over, and has freed its block.
  dead.frees_own = lock && lock->old_block == dead.record->follow_up &&
                   lock->old_block_id == dead.record->follow_up_word;
  taken.resolve_wait_ns = lock ? lock->wait_ns : 0;
  taken.address = dead.address;
  taken.lock_word = *word;
  taken.turn.table = &pool_->locks();
  taken.turn.slot_class = lock_class;
  taken.ForbidHandOver();
  taken.redo_kind = dead.record->kind;
  taken.follow_up = dead.record->follow_up;
  taken.follow_up_word = dead.record->follow_up_word;
  if (plan != RecoveryPlan::kVoid) {
    ReplayRedo(*dead.record, taken);
  }
  co_return Recovery::kOver;
}

void BlinkTree::ReplayRedo(const dsm::RedoRecord& record, LockedPage& taken) {
  const auto image = taken.arrival(info_.geometry);
  const bool parted = !StandsAsNode(info_.geometry, taken.level());
  const size_t parts = parted ? PartsOf(info_.geometry.leaf_bytes) : 0;
  std::array<uint64_t, kLeafPartsMax> checks;
  const auto check = [&](size_t i) { return LoadLittle<uint64_t>(&image[i * kPartBytes]); };
  for (size_t i = 0; i < parts; ++i) checks[i] = check(i);
  dsm::ApplyRedo(record, image);
  for (size_t i = 0; i < parts; ++i) taken.replayed |= PartMask{checks[i] != check(i)} << i;
}

void BlinkTree::NoteUnresolved(OpContext& op, UnresolvedLocks::Lock lock, const Status& why) {
  if (why.code() == StatusCode::kFenced) return;  // others recover what this member has locked
  stats_.locks_unresolved.fetch_add(1, std::memory_order_relaxed);
  lock.tree = info_.id;
  // Bound to this worker whichever memory server it is in doubt about: what was begun under this lock
  // may concern other servers than the page's (the right page of a merge, the root word).
  if (op.worker.in_doubt()) lock.worker = op.worker.number();
  lock.due_ns = op.worker.clock().NowNs() + lock.wait_ns;
  pool_->unresolved_locks().Add(lock);
}

void BlinkTree::AbandonPage(OpContext& op, LockedPage& page, const Status& why) {
  // It stays in this member's name, and this member recovers it like a dead one's.
  UnresolvedLocks::Lock lock{
      .address = page.address, .word = page.lock_word, .level = page.level()};
  lock.keeps_slot = true;
  lock.wait_ns = page.resolve_wait_ns;
  if (page.redo_kind == dsm::RedoKind::kChange && !page.follow_up.is_null()) {
    lock.old_block = page.follow_up;
    lock.old_block_id = page.follow_up_word;
  }
  NoteUnresolved(op, lock, why);
  page.lock_word = 0;
  pool_->locks().Release(page.address);
}

void BlinkTree::Resolved(GlobalAddress address, uint64_t word) {
  const auto lock = pool_->unresolved_locks().Remove(address, word);
  if (!lock) return;
  stats_.locks_resolved.fetch_add(1, std::memory_order_relaxed);
  if (lock->keeps_slot) pool_->redo_slots(address.server()).Give(word);
}

Task<Status> BlinkTree::Upkeep(OpContext& op) {
  if (Mutated(Mutation::kNoUpkeep)) co_return Status::Ok();
  Status catalog = co_await SettleCatalogLock(op, *pool_);
  Status resolved = co_await ResolveDue(op, UnresolvedLocks::kWaitNsMax);  // all of them
  if (resolved.ok()) resolved = catalog;
  const size_t left = pool_->unresolved_locks().CountFor(info_.id, op.worker.number());
  if (left == 0 && late_blocks_.empty()) co_return catalog;
  if (resolved.code() == StatusCode::kFenced) co_return resolved;
  co_return Status::Unavailable(std::to_string(left) + " locks, and value blocks, of tree '" +
                                info_.name + "' that connections broke under are not let go yet" +
                                (resolved.ok() ? "" : ": " + resolved.ToString()));
}

Task<Status> BlinkTree::SettleLocks(OpContext& op) {
  const uint64_t give_up_ns = WaitDeadlineNs(op);
  for (;;) {
    Status status = co_await Upkeep(op);
    if (status.ok() || status.code() == StatusCode::kFenced) co_return status;
    if (op.worker.clock().NowNs() >= give_up_ns) {
      co_return Status::DeadlineExceeded(std::string(status.message()));
    }
    co_await op.worker.Sleep(dsm::UnresolvedLocks::kWaitNsMin);
  }
}

Task<Status> BlinkTree::ResolveDue(OpContext& op, uint64_t ahead_ns) {
  Status failure;
  const uint64_t now_ns = op.worker.clock().NowNs();
  const auto note = [&](const Status& status) {
    stats_.upkeep_given_up.fetch_add(!status.ok(), std::memory_order_relaxed);
    if (failure.ok()) failure = status;
  };
  const auto locks =
      pool_->unresolved_locks().TakeDue(info_.id, op.worker.number(), now_ns, ahead_ns);
  for (const UnresolvedLocks::Lock& lock : locks) {
    // There may be thousands, at a memory server that lets each attempt wait. The rest: in its next turn.
    if (op.expired()) {
      note(Status::DeadlineExceeded("letting go locks of tree '" + info_.name + "'"));
      co_return failure;
    }
    auto resolved = co_await TryRecoverPage(op, {lock.address, lock.level, lock.word});
    note(resolved.status());
  }
  for (LateBlocks::Block& late : late_blocks_.TakeDue(now_ns, ahead_ns)) {
    Status freed = co_await FreeOldBlock(op, late.address, late.unique_id, BlockWas::kFreedPerhaps);
    note(freed);
    if (freed.ok()) {
      pool_->redo_slots(late.slot_server).Give(late.slot_word);
    } else {
      FreeLater(late);
    }
  }
  co_return failure;
}

}  // namespace farleaf::index
