// RedoSlots: which redo slot and sequence number each acquisition of a remote lock uses. The lock
// word names both, so that every acquisition's word is unique and a redo record belongs to one.
//
// A slot's sequence grows with each use; (member, incarnation, slot, sequence) never repeats. A slot
// whose sequence is used up (2^28 uses) is retired.
//
// No deadlock: an operation takes locks in ascending order of their class, and a lock of class c is
// given a slot only while more than kLockClasses - 1 - c slots are free. From class 1 up a slot is held
// only with its lock, or for the round trips that try to take it: who finds the lock another's gives the
// slot back, and takes one again for the next try (LockPage). Class 0 keeps its slot meanwhile: it holds no
// lock that is waited for with a slot in hand. (Locks in doubt are no operation's; what keeps them is below.)
// Suppose that some operations wait for each other, c being the highest class that one of them waits for.
//   - He waits for a slot of class c > 0: those in use by who waits are of locks of classes below c, so that
//     at least kLockClasses - c were left free by the last of them, and so many are enough. Those in use by
//     who does not wait come back.
//   - He waits for a slot of class 0, and so nobody for more: who holds a lock waits for nothing then, and
//     gives his slot back; and with it that lock, for which others of class 0 wait with theirs.
//   - He waits for a page that is locked, here or elsewhere: its holder waits too, for a page further
//     right on the level, or further up, and so on; the last of that chain waits for a slot of class c.
// Nor does the line in which they wait get in the way: the highest class comes first, and who waits with the
// turn for a page loses it to whoever wants the page as of a higher class (dsm/local_lock.h, Parked); nobody
// waits for a turn with a slot of that turn's class in hand.
//
// No starvation: a slot that comes free is given to the first in line, which is ordered by class and then by
// arrival, and nobody takes one past those of his class or a higher one, but who goes on with the slot of a
// lock that he releases (Again). Whoever got none for a millisecond while he was first has to look for locks in
// doubt that keep slots, and comes to the end of the line.
// Thread rule: thread-safe. A waiter is resumed on its own worker's thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <coroutine>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "dsm/base/spin_lock.h"
#include "dsm/member.h"
#include "dsm/region_layout.h"
#include "dsm/task.h"
#include "dsm/worker.h"

namespace farleaf::dsm {

/// Position of a lock in the order in which an operation may take locks.
using LockClass = uint8_t;
inline constexpr uint32_t kLockClasses = 51;

class RedoSlots {
 public:
  /// `slots`: how many the member's redo chunk on this server holds. REQUIRES: slots > kLockClasses.
  RedoSlots(MemberIdentity self, uint32_t slots) : self_(self) {
    FARLEAF_CHECK(slots > kLockClasses, slots);
    for (uint32_t slot = std::min(slots, kRedoSlotsMax); slot > 0; --slot) {
      free_.push_back({static_cast<uint16_t>(slot - 1), 0});
    }
  }
  /// A fresh locked word; nullopt while too many slots are in use for a lock of this class, or others wait in line
  /// whose class is as high.
  std::optional<uint64_t> Take(LockClass lock_class) {
    std::lock_guard lock(lock_);
    return TakeUnlessInLine(lock_class);
  }
  /// The same, having waited in line. Nullopt: `give_up_ns` has come; or, of the first in line, `lost` was set, or he got
  /// none for kPatienceNs. Then what keeps them has to be seen to, and the slot be asked for again. Those who hold locks
  /// may not do so: when one of a higher class loses his patience, one of class 0 is sent off as well.
  static constexpr uint64_t kPatienceNs = 1 * kNsPerMs;
  Task<std::optional<uint64_t>> TakeInTurn(Worker& worker, LockClass lock_class,
                                           uint64_t give_up_ns, const std::atomic<bool>& lost);
  /// The word of the next acquisition, for who goes on with the slot of `word`, whose lock is released: as Give and Take,
  /// but that nobody else gets it in between. nullopt: it has been used up.
  static std::optional<uint64_t> Again(uint64_t word) {
    LockWord next = LockWord::Decode(word);
    if (next.sequence == kLockSequenceMax) return std::nullopt;
    ++next.sequence;
    return next.Encode();
  }
  /// Where this member's slots begin on this server; 0 until set_area.
  uint64_t area() const { return area_.load(std::memory_order_acquire); }
  void set_area(uint64_t offset) { area_.store(offset, std::memory_order_release); }
  /// The slot that a lock word of this member names. REQUIRES: the area is set.
  uint64_t SlotOffset(uint64_t word) const {
    const uint64_t area_offset = area();
    FARLEAF_CHECK(area_offset != 0, "no redo area on this server yet");
    return area_offset + LockWord::Decode(word).redo_slot * uint64_t{kRedoSlotBytes};
  }
  /// After the lock that carried `word` is released (or was never obtained).
  void Give(uint64_t word) {
    const LockWord used = LockWord::Decode(word);
    if (used.sequence == kLockSequenceMax) return;
    bool anyone_waits;
    {
      std::lock_guard lock(lock_);
      free_.push_back({used.redo_slot, used.sequence + 1});
      anyone_waits = first_ != nullptr;
    }
    if (anyone_waits) [[unlikely]]
      ServeFirst();
  }

 private:
  struct Slot {
    uint16_t number;
    uint32_t sequence;
  };
  /// In the line; lives in its waiter's frame.
  struct Waiter {
    Worker* worker;
    LockClass lock_class;
    uint64_t give_up_ns;
    const std::atomic<bool>* lost;
    uint64_t leave_ns = 0;                     ///< of the first: the end of his patience
    std::coroutine_handle<> handle = nullptr;  ///< while suspended
    Waiter* next = nullptr;
    bool in_line = true;
    std::optional<uint64_t> word;  ///< given, having left the line
  };
  /// Suspends until the waiter is the first in line, or has left it.
  struct UntilFirst {
    RedoSlots* slots;
    Waiter* waiter;
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle);
    void await_resume() const noexcept {}
  };
  /// Those to resume when the lock is let go: waiters who have left the line, and who is first in it now.
  class Woken;
  /// REQUIRES: lock_ is held.
  std::optional<uint64_t> TakeFree(LockClass lock_class) {
    if (free_.size() <= kLockClasses - 1u - lock_class) return std::nullopt;
    const Slot slot = free_.back();
    free_.pop_back();
    return LockWord{LockWord::State::kLocked, self_.id, self_.short_incarnation(), slot.number,
                    slot.sequence}
        .Encode();
  }
  std::optional<uint64_t> TakeUnlessInLine(LockClass lock_class) {
    if (first_ != nullptr && first_->lock_class >= lock_class) [[unlikely]]
      return std::nullopt;
    return TakeFree(lock_class);
  }
  void Join(Waiter* waiter);
  /// A slot has come free.
  void ServeFirst();
  /// Whether the waiter has left the line, or does so now; of the first in it, who sends off those whose time is up.
  bool LosesPatience(Waiter* waiter);
  void Leave(Waiter* waiter);
  void Unlink(Waiter* waiter, Waiter* before, Woken* woken);

  MemberIdentity self_;
  std::atomic<uint64_t> area_{0};
  SpinLock lock_;  // guards what follows
  std::vector<Slot> free_;
  // The line, ordered by class, highest first, then by arrival. What is free would not do for its first, who looks
  // at the clock now and then; the others are suspended, or on their way to be.
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
  uint64_t sweep_ns_ = 0;  ///< when to look again for those whose time is up
};

}  // namespace farleaf::dsm
