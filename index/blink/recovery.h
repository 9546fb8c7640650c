// What the recovery of locks works on: the lock of one that is gone, or of this member if it could not
// learn what became of it (dsm/unresolved_locks.h). index/blink/README.md, "Crash", has the argument.
//
// Thread rule: DeadLock lives in one frame.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "dsm/address.h"
#include "dsm/base/clock.h"
#include "dsm/redo_record.h"
#include "dsm/region_layout.h"
#include "dsm/unresolved_locks.h"
#include "index/blink/page.h"

namespace farleaf::index {

/// What a look at the lock of a dead member came to.
enum class Recovery : uint8_t {
  kOver,     ///< the lock word is not the dead one any more
  kWait,     ///< it is not this member's turn: look again later
  kForeign,  ///< the page is another tree's
};

/// What there is to be done about a dead lock.
enum class RecoveryPlan : uint8_t {
  kOver,
  kWait,
  kForeign,
  kUnlock,     ///< nothing was written, or all of it
  kReplay,     ///< the write-back is to be finished
  kMergeLeft,  ///< and then the right page is to die, and the parents to be told
  kPublish,    ///< the new page is linked: the parents are to be told
  kVoid,       ///< the page is not in the tree: it dies and is free
};

/// Whether a block to be freed may say so already, by a verb in doubt, and be in no free list.
enum class BlockWas : uint8_t { kNamed, kFreedPerhaps };

/// The fence word of a lock's owner, as read beside the lock word.
struct FenceLook {
  dsm::MemberId owner = 0;
  uint64_t fence_word = 0;
};

/// Whose lock is waited for, and how long to sleep until the next try.
struct Contention {
  uint64_t word = 0, since_ns = 0;
  FenceLook look;
  uint64_t wait_ns = 0, sleep_ns = 0;
};

/// A lock word that stands, perhaps, at a page.
struct PageLock {
  GlobalAddress address;
  Level level = 0;  ///< of the page; above 0 only that it is an internal node's is relied on
  uint64_t word = 0;
};

/// A page under the lock of a member that is gone, and what that one left in the lock's redo slot.
struct DeadLock : PageLock {
  PageBuffer page;  ///< the node image, if readable, with the record applied; then the lock word
  bool readable = false;
  std::optional<dsm::RedoRecord> record;  ///< of this acquisition; refers to `slot`
  /// The lock is this member's own, and nobody has put the block that is to be freed into its free list,
  /// should its word say free already.
  bool frees_own = false;
  alignas(16) std::byte slot[dsm::kRedoSlotBytes];
};

using dsm::UnresolvedLocks;

/// Value blocks that no leaf names any more, and that could not be freed, since their server does not
/// answer. Each keeps the redo slot whose record names it, so that it is found if this member dies.
class LateBlocks {
 public:
  struct Block {
    GlobalAddress address;
    uint64_t unique_id = 0;
    dsm::ServerId slot_server = 0;
    uint64_t slot_word = 0;
    uint64_t due_ns = 0;  ///< of the next attempt
    uint64_t wait_ns = 0;
  };
  /// Slots are few. What is more is given up.
  static constexpr size_t kBlocksMax = 8;

  bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }
  /// False: there are too many.
  bool Add(const Block& block);
  /// Takes those whose turn it is, or will be within `ahead_ns`; their next one, if they are added again,
  /// is later.
  std::vector<Block> TakeDue(uint64_t now_ns, uint64_t ahead_ns);

 private:
  std::mutex mutex_;  // guards blocks_
  std::vector<Block> blocks_;
  std::atomic<size_t> count_{0};  ///< with those that were taken, and are not done
};

}  // namespace farleaf::index
