// Pages in this process's memory: a buffer for one image, and a page that is locked.
//
// Thread rule: one owner.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "dsm/address.h"
#include "dsm/base/check.h"
#include "dsm/local_lock.h"
#include "dsm/redo_record.h"
#include "dsm/remote_lock.h"
#include "index/blink/geometry.h"
#include "index/blink/leaf_codec.h"
#include "index/blink/node.h"
#include "index/blink/part_window.h"

namespace farleaf::index {

using dsm::Batch;
using dsm::LockClass;

/// Room for any page, uninitialised.
struct PageBuffer {
  alignas(16) std::byte bytes[kPageBytesMax];

  std::span<std::byte> image(const Geometry& geometry, Level level) {
    return {bytes, geometry.image_bytes(level)};
  }
  std::span<std::byte> page(const Geometry& geometry, Level level) {
    return {bytes, geometry.page_bytes(level)};
  }
};

/// The order of locks within an operation (tree.h): by level, then left before right, then what a
/// recovery takes over to the right of that.
constexpr LockClass LeftLockClass(Level level) { return static_cast<LockClass>(3 * level); }
constexpr LockClass RightLockClass(Level level) { return static_cast<LockClass>(3 * level + 1); }
constexpr LockClass TakenLockClass(Level level) { return static_cast<LockClass>(3 * level + 2); }
constexpr Level LevelOf(LockClass lock_class) { return static_cast<Level>(lock_class / 3); }
static_assert(TakenLockClass(kLevelMax) < dsm::kLockClasses);

/// A page whose lock this operation holds, and its current image. Whoever locks must let go, by
/// write-back, unlock or hand-over: destruction checks it, unless the process is one that a simulation
/// has let crash (Pool::Abandon).
struct LockedPage {
  GlobalAddress address;
  uint64_t lock_word = 0;  ///< in the pool while held; 0: not held
  dsm::LocalLockTable::Turn turn;
  bool handing_over = false;  ///< the lock stays for a local waiter when the write-back completes
  /// Of a lock of this member's own that was taken over: between the last attempts to finish it.
  uint64_t resolve_wait_ns = 0;
  bool keeps_slot = false;    ///< the redo slot is used on when the lock is let go
  LockClass level_class = 0;  ///< that it was locked as; tells its level
  /// What a recovery has to do besides finishing the write-back (dsm/redo_record.h).
  dsm::RedoKind redo_kind = dsm::RedoKind::kChange;
  GlobalAddress follow_up;
  uint64_t follow_up_word = 0;
  PageBuffer buffer;    ///< the node image, which is the raw one too where StandsAsNode
  PageBuffer before;    ///< the raw image as it was in the pool before the next write-back
  PageBuffer raw;       ///< the raw image to be written, of a page that does not stand as its node
  bool packed = false;  ///< `raw` is later than `before`
  /// Of a parted leaf: the parts that are to be read with the lock (none: the whole page, and its node is
  /// made), and those that then are in hand, in `before` and `raw`.
  PartMask wanted = 0, loaded = 0;
  LeafRange range;  ///< its fences, as far as they are known
  /// How its entries are to be placed when it is written whole.
  Placement placement = Placement::kOrdered;
  /// The key that this whole write-back adds, if it adds one: its part is written last, for its home may
  /// be another than before, and who saw it in the new part is not to miss it in the old one.
  std::optional<uint64_t> added;
  /// Of a sorted leaf: the entry whose value this write-back replaces, if that is all that it changes.
  std::optional<uint32_t> replaced;
  PartMask replayed = 0;  ///< of a lock taken over: parts whose check its redo record changed
  dsm::LocalLockTable::Work* work = nullptr;  ///< what the lock is for, if its holder may do it
  /// CAS and READ that have been posted already, with the turn in hand. `word` 0: have not.
  struct FirstTry {
    uint64_t word = 0, old = 0;
    Status status;
  };
  FirstTry begun;                                                    ///< by BlinkTree::BeginLock
  alignas(16) std::byte redo[dsm::RedoBytesMax(kPageBytesMax - 8)];  ///< the last record

  LockedPage() = default;
  LockedPage(const LockedPage&) = delete;
  ~LockedPage() {
    const bool may_stay_locked = turn.table != nullptr && turn.table->abandoned();
    FARLEAF_CHECK(!held() || may_stay_locked, "a page was left locked", address);
  }
  bool held() const { return lock_word != 0; }
  /// The local turn was had at once.
  void BeginTurn(const Geometry& geometry, const dsm::LocalLockTable* table) {
    turn = {.slot_class = level_class, .table = table, .image_bytes = handed_over(geometry).size()};
  }
  Level level() const { return LevelOf(level_class); }
  /// The buffer holds changes that were given up: a local waiter must read the page itself.
  void ForbidHandOver() { turn.handovers = dsm::LocalLockTable::kHandoversMax; }
  std::span<std::byte> image(const Geometry& geometry) { return buffer.image(geometry, level()); }
  Node node(const Geometry& geometry) { return Node(geometry, image(geometry)); }
  /// Where the raw image as it is in the pool is put: by a READ, or by who hands the lock over.
  std::span<std::byte> arrival(const Geometry& geometry) {
    return StandsAsNode(geometry, level()) ? image(geometry) : before.image(geometry, level());
  }
  /// Makes the node of what arrived.
  OpenOutcome Open(const Geometry& geometry) {
    if (StandsAsNode(geometry, level())) [[likely]] {
      return ConstNode::Open(geometry, image(geometry));
    }
    return OpenLeaf(geometry, before.image(geometry, level()), image(geometry));
  }
  /// The buffer holds the page as it is in the pool: what changes from here on goes into the redo
  /// record of the next write-back.
  void BeginChanges(const Geometry& geometry) {
    if (StandsAsNode(geometry, level())) [[likely]] {
      std::memcpy(before.bytes, buffer.bytes, geometry.image_bytes(level()));
    } else if (packed) {
      std::memcpy(before.bytes, raw.bytes, geometry.image_bytes(level()));
    }
    packed = false;
  }
  /// The raw image of what the buffer holds, sealed: what WRITE and redo record take. It stays until
  /// the next Pack, and the buffer unchanged until the WRITE is done.
  enum class PageIs : uint8_t { kChanged, kNew };
  std::span<std::byte> Pack(const Geometry& geometry, PageIs page_is = PageIs::kChanged) {
    if (StandsAsNode(geometry, level())) [[likely]] {
      return image(geometry);
    }
    const auto out = raw.image(geometry, level());
    std::span<const std::byte> previous;
    if (page_is == PageIs::kChanged) previous = before.image(geometry, level());
    PackLeaf(geometry, image(geometry), previous, out, placement);
    packed = true;
    return out;
  }
  /// What a lock that is handed over brings along: the image as it is in the pool. Of a parted leaf
  /// nothing: who receives its lock reads the parts that it needs.
  std::span<std::byte> handed_over(const Geometry& geometry) {
    return StandsAsNode(geometry, level()) ? image(geometry) : std::span<std::byte>();
  }
  LeafParts parts(const Geometry& geometry) { return {raw.image(geometry, 0), loaded, range}; }
  /// The leaf's node is in the buffer, and its raw image in `before`.
  void BeginLeafChanges(const Geometry& geometry) {
    range = RangeOf(node(geometry));
    BeginPartChanges(AllParts(PartsOf(geometry.leaf_bytes)));
  }
  /// The parts are in hand, in `before`.
  void BeginPartChanges(PartMask parts_read) {
    loaded = parts_read;
    // One by one: of a length that is not known the compiler makes an instruction that takes longer to begin than most
    // of these copies take.
    for (PartMask rest = parts_read; rest != 0; rest &= rest - 1) {
      const size_t at = static_cast<size_t>(std::countr_zero(rest)) * kPartBytes;
      std::memcpy(raw.bytes + at, before.bytes + at, kPartBytes);
    }
  }
};

/// Why a remote lock was not had, unless the page is free or of a lower level.
struct NotTaken {
  uint64_t dead_word = 0;    ///< its owner is gone
  bool slot_in_use = false;  ///< a record may land yet
  bool busy = false;         ///< it is another's, and the slot is not kept meanwhile
};

}  // namespace farleaf::index
