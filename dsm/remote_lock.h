// RedoSlots: which redo slot and sequence number each acquisition of a remote lock uses. The lock
// word names both, so that every acquisition's word is unique and a redo record belongs to one.
//
// A slot's sequence grows with each use; (member, incarnation, slot, sequence) never repeats. A slot
// whose sequence is used up (2^28 uses) is retired.
//
// No deadlock: an operation takes locks in ascending order of their class, and a lock of class c is
// given a slot only while more than kLockClasses - 1 - c slots are free. Suppose all operations that
// hold slots waited for slots, c being the highest class waited for. Then every slot in use was
// taken at a class below c, so that at least kLockClasses - c slots were left free by the last of
// them, which is more than the waiter needs: a contradiction.
// Thread rule: thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "dsm/member.h"
#include "dsm/region_layout.h"

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
  /// A fresh locked word; nullopt while too many slots are in use for a lock of this class.
  std::optional<uint64_t> Take(LockClass lock_class) {
    std::lock_guard lock(lock_);
    if (free_.size() <= kLockClasses - 1u - lock_class) return std::nullopt;
    const Slot slot = free_.back();
    free_.pop_back();
    return LockWord{LockWord::State::kLocked, self_.id, self_.short_incarnation(), slot.number,
                    slot.sequence}
        .Encode();
  }
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
    std::lock_guard lock(lock_);
    free_.push_back({used.redo_slot, used.sequence + 1});
  }

 private:
  struct Slot {
    uint16_t number;
    uint32_t sequence;
  };
  MemberIdentity self_;
  std::atomic<uint64_t> area_{0};
  SpinLock lock_;  // guards free_
  std::vector<Slot> free_;
};

}  // namespace farleaf::dsm
