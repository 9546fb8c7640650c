// RedoSlots: which redo slot and sequence number each acquisition of a remote lock uses. The lock
// word names both, so that every acquisition's word is unique and a redo record belongs to one.
//
// A slot's sequence grows with each use; (member, incarnation, slot, sequence) never repeats. A slot
// whose sequence is used up (2^28 uses) is retired.
// Thread rule: thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "dsm/member.h"
#include "dsm/region_layout.h"

namespace farleaf::dsm {

class RedoSlots {
 public:
  /// `slots`: how many the member's redo chunk on this server holds.
  RedoSlots(MemberIdentity self, uint32_t slots) : self_(self) {
    for (uint32_t slot = std::min(slots, kRedoSlotsMax); slot > 0; --slot) {
      free_.push_back({static_cast<uint16_t>(slot - 1), 0});
    }
  }
  /// A fresh locked word; nullopt while all slots are in use.
  std::optional<uint64_t> Take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return std::nullopt;
    const Slot slot = free_.back();
    free_.pop_back();
    return LockWord{LockWord::State::kLocked, self_.id, self_.short_incarnation(), slot.number,
                    slot.sequence}
        .Encode();
  }
  /// After the lock that carried `word` is released (or was never obtained).
  void Give(uint64_t word) {
    const LockWord used = LockWord::Decode(word);
    if (used.sequence == kLockSequenceMax) return;
    std::lock_guard lock(mutex_);
    free_.push_back({used.redo_slot, used.sequence + 1});
  }

 private:
  struct Slot {
    uint16_t number;
    uint32_t sequence;
  };
  MemberIdentity self_;
  std::mutex mutex_;  // guards free_
  std::vector<Slot> free_;
};

}  // namespace farleaf::dsm
