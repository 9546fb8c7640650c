// Pages in this process's memory: a buffer for one image, and a page that is locked.
//
// Thread rule: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dsm/address.h"
#include "dsm/base/check.h"
#include "dsm/local_lock.h"
#include "dsm/remote_lock.h"
#include "index/blink/geometry.h"
#include "index/blink/node.h"

namespace farleaf::index {

using dsm::Batch;
using dsm::LockClass;

/// Room for any page, uninitialised.
struct PageBuffer {
  alignas(16) std::byte bytes[kPageBytesMax];

  std::span<std::byte> image(const Geometry& geometry) { return {bytes, geometry.image_bytes()}; }
  std::span<std::byte> page(const Geometry& geometry) { return {bytes, geometry.page_bytes}; }
};

/// The order of locks within an operation (tree.h): by level, then left before right.
constexpr LockClass LeftLockClass(Level level) { return static_cast<LockClass>(2 * level); }
constexpr LockClass RightLockClass(Level level) { return static_cast<LockClass>(2 * level + 1); }
static_assert(2 * kLevelMax + 1 < dsm::kLockClasses);

/// A page whose lock this operation holds, and its current image. Whoever locks must let go, by
/// write-back, unlock or hand-over: destruction checks it.
struct LockedPage {
  GlobalAddress address;
  uint64_t lock_word = 0;  ///< in the pool while held; 0: not held
  dsm::LocalLockTable::Turn turn;
  bool handing_over = false;  ///< the lock stays for a local waiter when the write-back completes
  PageBuffer buffer;

  LockedPage() = default;
  LockedPage(const LockedPage&) = delete;
  ~LockedPage() { FARLEAF_CHECK(!held(), "a page was left locked", address); }
  bool held() const { return lock_word != 0; }
  /// The buffer holds changes that were given up: a local waiter must read the page itself.
  void ForbidHandOver() { turn.handovers = dsm::LocalLockTable::kHandoversMax; }
  Node node(const Geometry& geometry) { return Node(geometry, buffer.image(geometry)); }
};

}  // namespace farleaf::index
