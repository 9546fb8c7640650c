// CachedNode: an internal node as the search cache keeps it.
//
//   bytes     what
//   8         what the cache has to know of it
//   64        guide: of fixed8, every eighth key from key 1 on, as a number; behind the last: the largest number
//   n         its image, trimmed to what it uses (trimmed_node.h)
//   8 x count from level 2 on: the slots of its children, null where an address is in no chunk
//
// A level-1 node is rarely in the nearer caches: all of it is fetched at once, and then searched without a jump that
// depends on the key: by the guide, which tells the line of eight keys, and in that line. The slots spare a descent the way
// from a child's address to its slot, by way of region and chunk: loads that wait for one another.
//
// Thread rule: immutable once it is in a slot, but for what is mutable.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "dsm/base/bytes.h"
#include "index/blink/node.h"
#include "index/blink/node_fixed8.h"

namespace farleaf::index {

struct CachedNode {
  using Slot = std::atomic<const CachedNode*>;
  /// Keys from one sample of the guide to the next: a cache line of them.
  static constexpr size_t kLineKeys = 8;
  static constexpr size_t kSamples = 8;
  /// Of fixed8: the most entries that the guide is good for; nodes of 1 KiB have fewer.
  static constexpr size_t kGuidedMax = 1 + kLineKeys * kSamples;

  uint32_t image_bytes;
  Level level;
  /// How often it was used, of late: counted up to kUsesMax, down each time the clock's hand comes by.
  /// Written only if there is a budget.
  mutable std::atomic<uint8_t> uses{0};
  mutable bool guest = false;               ///< guarded by the cache's install_mutex_
  mutable std::atomic<uint8_t> learned{0};  ///< calls of LearnSplit since it was read
  std::array<uint64_t, kSamples> guide;

  static constexpr uint8_t kUsesMax = 7;

  std::byte* image() { return reinterpret_cast<std::byte*>(this + 1); }
  const std::byte* image() const { return reinterpret_cast<const std::byte*>(this + 1); }

  /// With `children` slots.
  static size_t BytesOf(size_t image_bytes, size_t children) {
    return sizeof(CachedNode) + RoundUp(image_bytes, sizeof(Slot*)) + children * sizeof(Slot*);
  }
  /// Of an image's children those which are internal nodes have slots.
  static size_t SlotsOf(Level level, size_t count) { return level >= 2 ? count : 0; }
  size_t bytes() const {
    return BytesOf(image_bytes, SlotsOf(level, internal::PageCount(image())));
  }
  void SetChildSlot(size_t i, const Slot* slot) { slots()[i] = slot; }
  /// The child of entry i; null if it is not cached. REQUIRES: level >= 2.
  const CachedNode* Child(size_t i) const {
    const Slot* const slot = slots()[i];
    return slot ? slot->load(std::memory_order_acquire) : nullptr;
  }

  /// Begins to fetch the first bytes of the image, all at once instead of one miss after another as a search goes.
  void Prefetch(size_t bytes) const {
    for (size_t line = 0; line < bytes; line += 64) __builtin_prefetch(image() + line);
  }

  /// REQUIRES: fixed8, and an image with `count` entries.
  void MakeGuide(size_t count) {
    for (size_t sample = 0; sample < kSamples; ++sample) {
      const size_t key = 1 + kLineKeys * sample;
      guide[sample] = key < count ? internal::Fixed8::Key(image(), key) : UINT64_MAX;
    }
  }
  /// Of fixed8: the entry whose child covers `key`, as Fixed8::ChildIndexFor. REQUIRES: 0 < count <= kGuidedMax.
  size_t ChildIndexFor(uint64_t key, size_t count) const {
    size_t lines = 0;
#pragma GCC unroll 8
    for (size_t sample = 0; sample < kSamples; ++sample) lines += guide[sample] <= key;
    lines = std::min(lines, (count + kLineKeys - 2) / kLineKeys);
    if (lines == 0) return 0;
    const size_t first = 1 + kLineKeys * (lines - 1);
    const std::byte* const line = image() + internal::Fixed8::kKeys + 8 * first;
    // Behind the last key there are children, which are no keys.
    uint32_t above = ~uint32_t{0} << std::min(kLineKeys, count - first);
#pragma GCC unroll 8
    for (size_t i = 0; i < kLineKeys; ++i) {
      above |= static_cast<uint32_t>(LoadBig64(line + 8 * i) > key) << i;
    }
    return first - 1 + static_cast<size_t>(std::countr_zero(above));
  }

 private:
  const Slot** slots() const {
    const auto* const end = reinterpret_cast<const std::byte*>(this) + BytesOf(image_bytes, 0);
    return reinterpret_cast<const Slot**>(const_cast<std::byte*>(end));
  }
};
// The keys begin with a cache line, where the node does: key 1, the first that is searched, is 56 bytes into the image.
static_assert((sizeof(CachedNode) + internal::Fixed8::kKeys + 8) % 64 == 0);

}  // namespace farleaf::index
