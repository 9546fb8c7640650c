// A lock that is taken beside something else, in the same round trip.
#include "index/blink/tree.h"

namespace farleaf::index {

bool BlinkTree::BeginLock(GlobalAddress address, LockClass lock_class, LockedPage& locked,
                          Batch& batch) {
  FARLEAF_CHECK(!locked.held() && locked.wanted == 0, locked.address);
  dsm::RedoSlots& slots = pool_->redo_slots(address.server());
  if (slots.area() == 0 || !pool_->locks().TryAcquire(address, lock_class)) return false;
  const auto word = slots.Take(lock_class);
  if (!word) {
    pool_->locks().Release(address);
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

}  // namespace farleaf::index
