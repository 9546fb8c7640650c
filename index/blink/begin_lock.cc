// The first try at a lock: what is posted if nobody in this process has the page.
//
// By itself it is what usually takes a lock (LockPage, ModifyInParts, ModifyInLeaf). It may also stand beside something else,
// in the same round trip: the parent's, beside the write-back that it is to be told of. That one is asked for
// once, and not waited for; without it the publication finds and locks the parent. Nobody may read anything
// into the parent's image but what it is at the time of the lock: it is edited only behind the write-back's
// completion.
#include <utility>

#include "index/blink/publication.h"
#include "index/blink/tree.h"

namespace farleaf::index {

bool BlinkTree::BeginLock(GlobalAddress address, LockClass lock_class, LockedPage& locked,
                          Batch& batch) {
  FARLEAF_CHECK(!locked.held() && locked.begun.word == 0, locked.address);
  if (pool_->self().id == 0) [[unlikely]]
    return false;
  dsm::RedoSlots& slots = pool_->redo_slots(address.server());
  if (slots.area() == 0) return false;
  // The slot first: the turn may be taken from somebody who waits for one.
  const auto word = slots.Take(lock_class);
  if (!word) return false;
  if (!pool_->locks().TryAcquire(address, lock_class)) {
    slots.Give(*word);
    return false;
  }
  locked.address = address;
  locked.level_class = lock_class;
  locked.packed = false;
  locked.BeginTurn(info_.geometry, &pool_->locks());
  locked.begun.word = *word;
  AddLockVerbs(locked, *word, &locked.begun.old, batch);
  return true;
}

bool BlinkTree::TakeBegunParts(LockedPage& leaf) {
  if (!leaf.begun.status.ok() || leaf.begun.old != dsm::kUnlockedWord) return false;
  leaf.lock_word = std::exchange(leaf.begun, {}).word;
  leaf.BeginPartChanges(leaf.wanted);
  return true;
}

bool BlinkTree::TakeBegunLeaf(LockedPage& leaf) {
  if (!leaf.begun.status.ok() || leaf.begun.old != dsm::kUnlockedWord) return false;
  if (leaf.Open(info_.geometry) != OpenOutcome::kValid) return false;
  leaf.lock_word = std::exchange(leaf.begun, {}).word;
  leaf.BeginChanges(info_.geometry);
  return true;
}

GlobalAddress BlinkTree::CachedParentOf(const Publication& publication) const {
  const SearchCache::Path path = cache_.Find(publication.low, Side::kAt, publication.level);
  return path.complete && path.level == publication.level ? path.node : GlobalAddress();
}

Task<void> BlinkTree::PostBesideParent(OpContext& op, std::span<Batch, 2> batches,
                                       GlobalAddress known, Publication& publication) {
  LockedPage& parent = *publication.parent;
  const bool begun =
      !known.is_null() && BeginLock(known, LeftLockClass(publication.level), parent, batches[1]);
  // Each batch holds its own status.
  [[maybe_unused]] Status posted = co_await op.worker.RoundTrip(batches, op.counts);
  if (begun) {
    parent.begun.status = batches[1].status();
  } else {
    publication.parent = nullptr;
  }
}

Task<void> BlinkTree::TakeBegunParent(OpContext& op, GlobalAddress known,
                                      Publication& publication) {
  if (publication.parent == nullptr) co_return;
  // Without it the publication finds and locks the parent.
  [[maybe_unused]] Status taken =
      co_await LockPage(op, known, LeftLockClass(publication.level), kNoWait, *publication.parent);
  if (!publication.parent->held()) publication.parent = nullptr;
}

Task<void> BlinkTree::LetParentGo(OpContext& op, Publication& publication) {
  LockedPage* const parent = std::exchange(publication.parent, nullptr);
  if (parent == nullptr) co_return;
  Status unlocked = co_await Unlock(op, *parent);
  stats_.upkeep_given_up.fetch_add(!unlocked.ok(), std::memory_order_relaxed);
}

}  // namespace farleaf::index
