// Locked pages: taking, writing back, letting go.
//
// Taking is CAS on the lock word and READ of the page in one batch: the READ stands behind the
// atomic, so the image is the one that the lock protects. Writing back is WRITE redo record, WRITE
// image, WRITE change counter (search layer), WRITE unlock in one batch: the record stands ahead of
// the image, the unlock behind it.
#include <algorithm>

#include "dsm/base/mutation.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {
constexpr uint64_t kBackoffNsMin = 1 * kNsPerUs, kBackoffNsMax = 256 * kNsPerUs;
/// While a lock goes from hand to hand its waiters look often, or whoever holds it has it back before they
/// wake. One that stands for longer than a few round trips is of an owner that is slow, or dead.
constexpr uint64_t kBusyBackoffNsMax = 2 * kNsPerUs, kHolderIsSlowNs = 128 * kNsPerUs;
constexpr int kResolveAttemptsMin = 4;
constexpr uint64_t kResolveBackoffNsMax = 10 * kNsPerMs;
}  // namespace

dsm::PageClass BlinkTree::PageClassOf(Level level) const {
  const uint32_t page_bytes = info_.geometry.page_bytes(level);
  if (level == 0) return {dsm::ChunkKind::kLeaf, page_bytes, 0};
  return {dsm::ChunkKind::kSearch, page_bytes, info_.id};
}

uint64_t BlinkTree::LockWordOffset(GlobalAddress address, Level level) const {
  return address.offset() + info_.geometry.image_bytes(level);
}

Task<Status> BlinkTree::LockPage(OpContext& op, GlobalAddress address, LockClass lock_class,
                                 uint64_t give_up_ns, LockedPage& locked) {
  FARLEAF_CHECK(!locked.held(), locked.address);
  if (pool_->self().id == 0) {
    co_return Status::InvalidArgument("an observer of the pool cannot write: join as a member");
  }
  locked.address = address;
  locked.level_class = lock_class;
  locked.packed = false;
  if (pool_->redo_slots(address.server()).area() == 0) [[unlikely]] {
    Status claimed = co_await ClaimRedoArea(op, address.server());
    if (!claimed.ok()) co_return claimed;
  }
  // What usually happens, in one frame: nobody has the page.
  const bool announces = locked.redo_kind != dsm::RedoKind::kChange;
  if (locked.begun.word == 0 && !announces) [[likely]] {
    Batch batch(address.server());
    if (BeginLock(address, lock_class, locked, batch)) {
      Status posted = co_await op.worker.RoundTrip(batch, op.counts);
      locked.begun.status = std::move(posted);
      if (locked.wanted != 0 && TakeBegunParts(locked)) [[likely]]
        co_return Status::Ok();
    }
  }
  FirstTry first = std::exchange(locked.begun, {});
  if (give_up_ns == kFromFirstWait) give_up_ns = WaitDeadlineNs(op);
  if (give_up_ns == kNoWait && first.word == 0) {
    co_return Status::DeadlineExceeded("page " + address.ToString() + " of tree '" + info_.name +
                                       "' is locked in this process");
  }
  uint64_t wait_ns = kBackoffNsMin;
  Contention contention;
  for (;;) {
    auto attempt = co_await TryLockPage(op, lock_class, give_up_ns, locked, &first, &contention);
    if (!attempt.ok()) co_return attempt.status();
    if (*attempt == LockAttempt::kEnded) co_return Status::Ok();
    if (*attempt == LockAttempt::kBusy) {
      co_await op.worker.Sleep(contention.sleep_ns);
      continue;
    }
    if (op.worker.clock().NowNs() >= give_up_ns) {
      if (*attempt == LockAttempt::kNoSlot) co_return NoSlot(address.server());
      co_return Status::DeadlineExceeded("page " + address.ToString() + " of tree '" + info_.name +
                                         "' is locked by a compute server that is gone, and what " +
                                         "it left cannot be finished yet");
    }
    co_await op.worker.Sleep(wait_ns);
    if (*attempt == LockAttempt::kRecovering) wait_ns = std::min(2 * wait_ns, kBackoffNsMax);
    if (*attempt == LockAttempt::kNoSlot && lock_class == LeftLockClass(0) && HasUnfinished()) {
      // Nothing is held, as ahead of any change; and locks that were lost sight of may keep all slots. By now who
      // waits for the page waits for a slot in turn, and lets a recovery have the page.
      [[maybe_unused]] Status resolved = co_await ResolveDue(op, 0);
    }
  }
}

Status BlinkTree::NoSlot(dsm::ServerId server) const {
  return Status::DeadlineExceeded("all redo slots on memory server " + std::to_string(server) +
                                  " are in use");
}

Task<Status> BlinkTree::AwaitTurn(OpContext& op, LockClass lock_class, LockedPage& locked) {
  // A page that is locked as of a lower level is another one by now: whoever holds it may wait for us.
  auto turn = co_await pool_->locks().Acquire(op.worker, locked.address, lock_class,
                                              locked.handed_over(info_.geometry), locked.work,
                                              LeftLockClass(locked.level()));
  locked.turn = turn;
  if (turn.refused) {
    Batch batch(locked.address.server());
    batch.Read(locked.address.offset(), locked.arrival(info_.geometry));
    Status read = co_await PostUntilDone(op, batch);
    co_return read;
  }
  if (turn.served || turn.lock_word == 0) co_return Status::Ok();
  stats_.handovers.fetch_add(1, std::memory_order_relaxed);
  locked.lock_word = turn.lock_word;
  if (!StandsAsNode(info_.geometry, locked.level())) {
    Status opened = co_await ReadHandedOver(op, locked);
    if (!opened.ok() || locked.wanted != 0) co_return opened;
  }
  locked.BeginChanges(info_.geometry);
  if (locked.redo_kind == dsm::RedoKind::kChange) co_return Status::Ok();
  Status announced = co_await Announce(op, locked);
  co_return announced;
}

Task<Result<BlinkTree::LockAttempt>> BlinkTree::TryLockPage(OpContext& op, LockClass lock_class,
                                                            uint64_t give_up_ns, LockedPage& locked,
                                                            FirstTry* first,
                                                            Contention* contention) {
  const GlobalAddress address = locked.address;
  if (first->word == 0) {
    Status status = co_await AwaitTurn(op, lock_class, locked);
    if (!status.ok()) co_return status;
    if (locked.turn.served || locked.turn.refused || locked.held()) co_return LockAttempt::kEnded;
  }
  std::optional<uint64_t> word = first->word;
  if (first->word == 0) word = pool_->redo_slots(address.server()).Take(lock_class);
  if (!word) [[unlikely]] {
    word = co_await AwaitSlot(op, address, lock_class, give_up_ns);
    if (!word) co_return LockAttempt::kNoSlot;
  }
  NotTaken not_taken;
  Status status = co_await TakeRemoteLock(op, lock_class, *word, give_up_ns, locked, first,
                                          contention, &not_taken);
  if (!locked.held()) {
    if (!not_taken.slot_in_use) pool_->redo_slots(address.server()).Give(*word);
    if (not_taken.dead_word == 0) {
      pool_->locks().Release(address);
      if (!status.ok()) co_return status;
      if (not_taken.busy) co_return LockAttempt::kBusy;
      co_return LockAttempt::kEnded;
    }
    auto recovered = co_await RecoverPage(
        op, {address, locked.level(), not_taken.dead_word});  // lets the turn go
    if (!recovered.ok()) co_return recovered.status();
    if (*recovered == Recovery::kForeign) co_return LockAttempt::kEnded;
    co_return LockAttempt::kRecovering;
  }
  if (locked.wanted != 0) {
    locked.BeginPartChanges(locked.wanted);
    co_return LockAttempt::kEnded;
  }
  if (const OpenOutcome opened = locked.Open(info_.geometry); opened != OpenOutcome::kValid) {
    const auto raw = locked.arrival(info_.geometry);
    const bool foreign = opened == OpenOutcome::kMalformed
                             ? RawTree(info_.geometry, locked.level(), raw) != info_.id
                             : locked.level() == 0 && IsOtherLayout(info_.geometry, raw);
    Status unlocked = co_await Unlock(op, locked);
    if (!unlocked.ok()) co_return unlocked;
    if (foreign) co_return LockAttempt::kEnded;
    co_return NotANode(address);
  }
  locked.BeginChanges(info_.geometry);
  co_return LockAttempt::kEnded;
}

Task<std::optional<uint64_t>> BlinkTree::AwaitSlot(OpContext& op, GlobalAddress address,
                                                   LockClass lock_class, uint64_t give_up_ns) {
  stats_.slot_waits.fetch_add(1, std::memory_order_relaxed);
  dsm::RedoSlots& slots = pool_->redo_slots(address.server());
  dsm::LocalLockTable::Parked parked(Mutated(Mutation::kParkedTurnKept) ? dsm::kLockClasses
                                                                        : lock_class);
  if (op.worker.clock().NowNs() >= give_up_ns || !pool_->locks().Park(address, &parked)) {
    pool_->locks().Release(address);
    co_return std::nullopt;
  }
  auto word = co_await slots.TakeInTurn(op.worker, lock_class, give_up_ns, parked.lost);
  const bool has_turn = pool_->locks().Unpark(address, &parked);
  if (word && has_turn) co_return word;
  if (word) slots.Give(*word);
  if (has_turn) pool_->locks().Release(address);
  co_return std::nullopt;
}

Status BlinkTree::NotANode(GlobalAddress address) const {
  return Status::Corruption("page " + address.ToString() + " of tree '" + info_.name +
                            "' fails its checksum under its own lock");
}

void BlinkTree::AddReads(LockedPage& locked, Batch& batch) {
  if (locked.wanted == 0) {
    batch.Read(locked.address.offset(), locked.arrival(info_.geometry));
    return;
  }
  // And the parts of what waits for the lock: it may be done along with this.
  pool_->locks().ForEachWork(locked.address, kCombinedMax, [&](dsm::LocalLockTable::Work& work) {
    locked.wanted |= static_cast<EntryChange&>(work).window;
  });
  if (locked.wanted ==
      AllParts(PartsOf(info_.geometry.leaf_bytes))) {  // and the trailer: to be split
    batch.Read(locked.address.offset(), locked.arrival(info_.geometry));
  } else {
    AddPartReads(locked.address, locked.wanted, locked.arrival(info_.geometry), batch);
  }
}

Task<Status> BlinkTree::ReadHandedOver(OpContext& op, LockedPage& locked) {
  Batch batch(locked.address.server());
  AddReads(locked, batch);
  Status status = co_await PostUntilDone(op, batch);
  if (status.ok() && locked.wanted != 0) {
    locked.BeginPartChanges(locked.wanted);
    co_return status;
  }
  if (status.ok() && locked.Open(info_.geometry) != OpenOutcome::kValid) {
    status = NotANode(locked.address);
  }
  if (!status.ok()) {
    locked.ForbidHandOver();
    Status unlocked = co_await Unlock(op, locked);
    if (!unlocked.ok()) co_return unlocked;
  }
  co_return status;
}

Task<Status> BlinkTree::Announce(OpContext& op, LockedPage& locked) {
  Batch batch(locked.address.server());
  AddRedo(locked, {}, {}, batch);
  Status status = co_await PostUntilDone(op, batch);
  if (status.ok()) co_return status;
  Status unlocked = co_await Unlock(op, locked);
  if (!unlocked.ok()) co_return unlocked;
  co_return status;
}

Task<Status> BlinkTree::ClaimRedoArea(OpContext& op, dsm::ServerId server) {
  auto area = co_await pool_->allocator().RedoArea(op, server);
  if (!area.ok()) co_return area.status();
  pool_->redo_slots(server).set_area(area->offset());
  co_return Status::Ok();
}

void BlinkTree::AddLockVerbs(LockedPage& locked, uint64_t word, uint64_t* old, Batch& batch) {
  if (locked.redo_kind != dsm::RedoKind::kChange) {  // announces
    locked.lock_word = word;                         // the record's; not held yet
    AddRedo(locked, {}, {}, batch);
    locked.lock_word = 0;
  }
  const bool read_first = Mutated(Mutation::kReadAheadOfLock);
  if (read_first) AddReads(locked, batch);
  batch.CompareAndSwap(LockWordOffset(locked.address, locked.level()), dsm::kUnlockedWord, word,
                       old);
  if (!read_first) AddReads(locked, batch);
}

Task<Status> BlinkTree::TakeRemoteLock(OpContext& op, LockClass lock_class, uint64_t word,
                                       uint64_t give_up_ns, LockedPage& locked, FirstTry* first,
                                       Contention* contention, NotTaken* not_taken) {
  const GlobalAddress address = locked.address;
  FenceLook& look = contention->look;
  const bool announces = locked.redo_kind != dsm::RedoKind::kChange;
  for (;;) {
    uint64_t old = 0;
    Status status;
    if (std::exchange(first->word, 0) != 0) {
      old = first->old;
      status = std::move(first->status);
    } else {
      Batch batch(address.server());
      AddLockVerbs(locked, word, &old, batch);
      if (look.owner != 0) batch.ReadWord(dsm::FenceWordOffset(look.owner), &look.fence_word);
      Status posted = co_await op.worker.RoundTrip(batch, op.counts);
      status = std::move(posted);
    }
    if (!status.ok()) {
      // The CAS may have run. Undo it if so; a lock word is unique, so this touches no other's lock.
      Batch undo(address.server());
      undo.CompareAndSwap(LockWordOffset(address, locked.level()), word, dsm::kUnlockedWord, &old);
      Status undone = co_await op.worker.RoundTrip(undo, op.counts);
      // Where even that failed the word may stand in the pool, but the slot may be used again all the
      // same: no write-back ran under this word, and that is what a recovery concludes from a slot
      // that holds no record of it. Keeping the slot would let a lost server use up all of them. An
      // announcement, however, must not land when the slot is another lock's.
      if (!undone.ok()) {
        not_taken->slot_in_use = announces && op.worker.in_doubt();
        UnresolvedLocks::Lock lock{.address = address, .word = word, .level = locked.level()};
        lock.keeps_slot = not_taken->slot_in_use;
        NoteUnresolved(op, lock, undone);
      }
      co_return status;
    }
    if (old == dsm::kUnlockedWord) {
      locked.lock_word = word;
      co_return Status::Ok();
    }
    const auto holder = dsm::LockWord::Decode(old);
    if (holder.state == dsm::LockWord::State::kFreePage || IsOfLowerLevel(locked))
      co_return Status::Ok();
    if (IsGone(op, address, old, look)) {
      not_taken->dead_word = old;
      co_return Status::Ok();
    }
    look = {holder.owner};
    stats_.lock_conflicts.fetch_add(1, std::memory_order_relaxed);
    const uint64_t now_ns = op.worker.clock().NowNs();
    if (now_ns >= give_up_ns) {
      co_return Status::DeadlineExceeded("page " + address.ToString() + " of tree '" + info_.name +
                                         "' stayed locked by compute server " +
                                         std::to_string(holder.owner) + " (incarnation " +
                                         std::to_string(holder.incarnation) + ")");
    }
    BackOffFrom(old, now_ns, op.worker.random(), contention);
    if (lock_class > LeftLockClass(0) && !Mutated(Mutation::kSlotKeptWhileBusy)) {
      // Who has the lock may wait for one that is had by somebody who needs this very slot (dsm/remote_lock.h).
      not_taken->busy = true;
      co_return Status::Ok();
    }
    co_await op.worker.Sleep(contention->sleep_ns);
  }
}

void BlinkTree::BackOffFrom(uint64_t word, uint64_t now_ns, Random& random,
                            Contention* contention) const {
  if (std::exchange(contention->word, word) != word) contention->since_ns = now_ns;
  const bool slow = now_ns - contention->since_ns >= kHolderIsSlowNs;
  if (options_.back_off == BackOff::kOff && !slow) {
    contention->sleep_ns = 0;  // lets this worker's other operations go on
    return;
  }
  uint64_t& wait_ns = contention->wait_ns;
  wait_ns = wait_ns == 0 ? kBackoffNsMin
                         : std::min(2 * wait_ns, slow ? kBackoffNsMax : kBusyBackoffNsMax);
  contention->sleep_ns = wait_ns + random.Below(wait_ns);
}

Task<Status> BlinkTree::LockNodeFor(OpContext& op, std::string_view key, Level level,
                                    LockClass lock_class, LockedPage& locked) {
  Freshness freshness = Freshness::kCached;
  const uint64_t give_up_ns = WaitDeadlineNs(op);
  uint64_t wait_ns = kBackoffNsMin;
  for (;;) {
    GlobalAddress address;
    if (locked.held() || locked.begun.word != 0) {
      address = locked.address;
    } else {
      auto path = co_await FindNode(op, key, Side::kAt, level, freshness);
      if (!path.ok()) co_return path.status();
      if (!path->complete) co_return Status::Ok();  // the tree is not that high
      address = path->node;
    }
    while (!address.is_null()) {
      Status status;
      if (!locked.held()) status = co_await LockPage(op, address, lock_class, give_up_ns, locked);
      if (!status.ok() || locked.turn.served) co_return status;
      if (!locked.held()) {
        // What died still leads on, to a page that is locked until the parents know of it: whoever waits
        // for that lock finds out if its owner is gone.
        const ConstNode free_node = locked.node(info_.geometry);
        if (locked.Open(info_.geometry) != OpenOutcome::kValid ||
            FitOf(free_node, key, Side::kAt, level) != Fit::kMoveForward) {
          break;
        }
        address = free_node.forward();
        continue;
      }
      const ConstNode node = locked.node(info_.geometry);
      if (level > 0 && caching()) cache_.Install(address, node.image());
      const Fit fit = FitOf(node, key, Side::kAt, level);
      if (fit == Fit::kCovers) co_return Status::Ok();
      stats_.stale_locks.fetch_add(1, std::memory_order_relaxed);
      const GlobalAddress next = fit == Fit::kMoveRight ? node.right() : GlobalAddress();
      status = co_await Unlock(op, locked);
      if (!status.ok()) co_return status;
      if (next.is_null()) break;
      stats_.hops.fetch_add(1, std::memory_order_relaxed);
      address = next;
      if (level == 0) {  // refresh the cache on the way, as a read does
        PageBuffer page;
        auto found = co_await ReadNode(op, key, Side::kAt, level, page);
        if (!found.ok()) co_return found.status();
        address = *found;
      }
    }
    if (op.worker.clock().NowNs() >= give_up_ns) {
      co_return Status::DeadlineExceeded("no stable path to the key in tree '" + info_.name +
                                         "' within the deadline");
    }
    if (freshness == Freshness::kFromRoot) {  // a merge is telling the parents: let it
      co_await op.worker.Sleep(wait_ns + op.worker.random().Below(wait_ns));
      wait_ns = std::min(2 * wait_ns, kBackoffNsMax);
    }
    freshness = Freshness::kFromRoot;
  }
}

Task<Status> BlinkTree::ClaimNewPage(OpContext& op, GlobalAddress address, LockClass lock_class,
                                     LockedPage& locked) {
  const uint64_t give_up_ns = WaitDeadlineNs(op);
  if (pool_->redo_slots(address.server()).area() == 0) {
    Status claimed = co_await ClaimRedoArea(op, address.server());
    if (!claimed.ok()) co_return claimed;
  }
  // Others may still come here by stale pointers: each finds the page free, or locked by us.
  locked.address = address;
  locked.level_class = lock_class;
  std::optional<uint64_t> word;
  for (;;) {
    locked.turn = co_await pool_->locks().Acquire(op.worker, address, lock_class,
                                                  locked.handed_over(info_.geometry));
    FARLEAF_CHECK(locked.turn.lock_word == 0, "a free page's lock was handed over", address);
    word = pool_->redo_slots(address.server()).Take(lock_class);
    if (!word) word = co_await AwaitSlot(op, address, lock_class, give_up_ns);
    if (word) break;
    if (op.worker.clock().NowNs() >= give_up_ns) co_return NoSlot(address.server());
    co_await op.worker.Sleep(kBackoffNsMin);
  }
  locked.lock_word = *word;
  StoreLittle(locked.buffer.bytes + info_.geometry.image_bytes(locked.level()), *word);
  co_return Status::Ok();
}

void BlinkTree::AddUnlock(LockedPage& locked, Batch& batch) {
  locked.handing_over = options_.hand_over == HandOver::kOn &&
                        pool_->locks().ShouldHandOver(locked.address, locked.turn);
  if (!locked.handing_over) {
    batch.ReplaceWord(LockWordOffset(locked.address, locked.level()), locked.lock_word,
                      &dsm::kUnlockedWord);
  }
}

Task<Status> BlinkTree::Finish(OpContext& op, LockedPage& locked, Batch& batch,
                               Status other_failed) {
  Status status = other_failed.ok() ? batch.status() : std::move(other_failed);
  Status unknown;  // of an attempt that may land yet
  const uint64_t give_up_ns = status.ok() ? 0 : WaitDeadlineNs(op);
  uint64_t wait_ns = kBackoffNsMin;
  for (int attempt = 0; !status.ok() && GoesOnTrying(op, status, attempt, give_up_ns); ++attempt) {
    if (attempt > 0) {
      co_await op.worker.Sleep(wait_ns);
      wait_ns = std::min(2 * wait_ns, kResolveBackoffNsMax);
    }
    // The batch failed; some prefix of it ran, and nothing of it can land any more. If the lock word
    // is still ours, so is the page: write it again. If it is not, the unlock ran, and with it all
    // that stood before.
    if (status.code() == StatusCode::kUnknown) unknown = status;
    uint64_t word = 0;
    Batch look(locked.address.server());
    look.ReadWord(LockWordOffset(locked.address, locked.level()), &word);
    Status looked = co_await op.worker.RoundTrip(look, op.counts);
    if (!looked.ok()) continue;
    unknown = Status::Ok();  // by a new connection
    if (word != locked.lock_word) {
      status = Status::Ok();
    } else {
      status = co_await op.worker.RoundTrip(batch, op.counts);
    }
  }
  if (!status.ok()) {
    AbandonPage(op, locked, unknown.ok() ? status : unknown);
    co_return Status::Unknown("write-back of page " + locked.address.ToString() + ": " +
                              status.ToString());
  }
  const uint64_t word = std::exchange(locked.lock_word, 0);
  if (locked.handing_over) {
    pool_->locks().HandOver(locked.address, {word, locked.turn.handovers, locked.turn.slot_class},
                            locked.handed_over(info_.geometry));
  } else {
    if (!locked.keeps_slot) pool_->redo_slots(locked.address.server()).Give(word);
    pool_->locks().Release(locked.address);
  }
  co_return Status::Ok();
}

bool BlinkTree::GoesOnTrying(const OpContext& op, const Status& status, int attempt,
                             uint64_t give_up_ns) const {
  if (status.code() == StatusCode::kFenced) return false;
  return attempt < kResolveAttemptsMin || op.worker.clock().NowNs() < give_up_ns;
}

Task<Status> BlinkTree::PostUntilDone(OpContext& op, Batch& batch) {
  const uint64_t give_up_ns = WaitDeadlineNs(op);
  uint64_t wait_ns = kBackoffNsMin;
  Status unknown;  // of an attempt that may land yet, for all that the later ones tell
  for (int attempt = 1;; ++attempt) {
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (status.ok()) co_return status;
    if (status.code() == StatusCode::kUnknown) unknown = status;
    if (!GoesOnTrying(op, status, attempt, give_up_ns)) co_return unknown.ok() ? status : unknown;
    co_await op.worker.Sleep(wait_ns);
    wait_ns = std::min(2 * wait_ns, kResolveBackoffNsMax);
  }
}

bool BlinkTree::LetGo(LockedPage& locked, const Status& posted) {
  const bool done = posted.ok() || Mutated(Mutation::kIgnoreFailedBatch);
  if (!done || locked.handing_over) [[unlikely]]
    return false;
  const uint64_t word = std::exchange(locked.lock_word, 0);
  if (!locked.keeps_slot) pool_->redo_slots(locked.address.server()).Give(word);
  pool_->locks().Release(locked.address);
  return true;
}

Task<Status> BlinkTree::PostAndFinish(OpContext& op, LockedPage& locked, Batch& batch) {
  if (Mutated(Mutation::kHandOverBeforeWriteBack) && locked.handing_over) {
    const uint64_t word = std::exchange(locked.lock_word, 0);
    pool_->locks().HandOver(locked.address, {word, locked.turn.handovers, locked.turn.slot_class},
                            locked.handed_over(info_.geometry));
    Status late = co_await op.worker.RoundTrip(batch, op.counts);
    co_return late;
  }
  // A failure is resolved by Finish, which reads the batch's status.
  Status posted = co_await op.worker.RoundTrip(batch, op.counts);
  if (LetGo(locked, posted)) co_return Status::Ok();
  Status status = co_await Finish(op, locked, batch);
  co_return status;
}

Task<Status> BlinkTree::Unlock(OpContext& op, LockedPage& locked) {
  Batch batch(locked.address.server());
  AddUnlock(locked, batch);
  if (batch.empty()) {  // handed over, and nothing changed: no round trip
    Status status = co_await Finish(op, locked, batch);
    co_return status;
  }
  Status status = co_await PostAndFinish(op, locked, batch);
  co_return status;
}

}  // namespace farleaf::index
