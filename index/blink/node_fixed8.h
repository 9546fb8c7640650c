// The fixed8 layout: keys and values (or children) of exactly 8 bytes, in two sorted arrays.
//
//   offset              bytes         what
//   32                  8             low fence (0 if there is none)
//   40                  8             high fence (0 if there is none)
//   48                  8 x capacity  keys, big-endian, ascending
//   48 + 8 x capacity   8 x capacity  values of a leaf, children of an internal node
//
// capacity = (page_bytes - 64) / 16. Key 0 of an internal node is 0: its separator is the low
// fence. Keys stand together so that a search touches 8 cache lines of a 1 KiB page, and only the
// found entry's value another. The search has no data-dependent branch: on random keys a branching
// one mispredicts every second step.
//
// Thread rule: pure functions over bytes.
#pragma once

#include <cstring>

#include "index/blink/geometry.h"
#include "index/blink/page_header.h"

namespace farleaf::index::internal {

struct Fixed8 {
  static constexpr size_t kLow = 32, kHigh = 40, kKeys = 48, kEntryBytes = 16;
  /// What is not entries: header and fences, tail version, lock word.
  static constexpr size_t kOverhead = kKeys + kTailBytes + 8;
  static_assert(kLow == sizeof(PageHeader) && kOverhead == 64);

  static constexpr size_t Capacity(uint32_t page_bytes) {
    return (page_bytes - kOverhead) / kEntryBytes;
  }
  static size_t ValueOffset(uint32_t page_bytes, size_t i) {
    return kKeys + 8 * (Capacity(page_bytes) + i);
  }
  static uint64_t Low(const std::byte* page) { return LoadBig64(page + kLow); }
  static uint64_t High(const std::byte* page) { return LoadBig64(page + kHigh); }
  static bool HasHigh(const std::byte* page) { return (PageFlags(page) & kFlagNoHigh) == 0; }
  /// Separator 0 of an internal node is its low fence.
  static uint64_t Key(const std::byte* page, size_t i) {
    if (i == 0 && PageLevel(page) > 0) return Low(page);
    return LoadBig64(page + kKeys + 8 * i);
  }

  /// How many of the `count` ascending keys at `keys` are below `key`.
  static size_t CountBelow(const std::byte* keys, size_t count, uint64_t key) {
    const std::byte* base = keys;
    while (count > 1) {
      const size_t half = count / 2;
      base += (8 * half) & -static_cast<size_t>(LoadBig64(base + 8 * (half - 1)) < key);
      count -= half;
    }
    const size_t last = count == 1 && LoadBig64(base) < key;
    return static_cast<size_t>(base - keys) / 8 + last;
  }
  /// How many are at or below it.
  static size_t CountUpTo(const std::byte* keys, size_t count, uint64_t key) {
    const std::byte* base = keys;
    while (count > 1) {
      const size_t half = count / 2;
      base += (8 * half) & -static_cast<size_t>(LoadBig64(base + 8 * (half - 1)) <= key);
      count -= half;
    }
    const size_t last = count == 1 && LoadBig64(base) <= key;
    return static_cast<size_t>(base - keys) / 8 + last;
  }

  static size_t ChildIndexFor(const std::byte* page, uint64_t key) {
    return CountUpTo(page + kKeys + 8, PageCount(page) - 1, key);
  }
  static size_t ChildIndexBelow(const std::byte* page, uint64_t key) {
    return CountBelow(page + kKeys + 8, PageCount(page) - 1, key);
  }

  /// Entry i and those behind it move up by one. REQUIRES: count < capacity.
  static void InsertAt(std::byte* page, uint32_t page_bytes, size_t i, uint64_t key,
                       const void* value) {
    const size_t count = PageCount(page);
    std::byte* keys = page + kKeys;
    std::byte* values = page + ValueOffset(page_bytes, 0);
    std::memmove(keys + 8 * (i + 1), keys + 8 * i, 8 * (count - i));
    std::memmove(values + 8 * (i + 1), values + 8 * i, 8 * (count - i));
    StoreBig64(keys + 8 * i, key);
    std::memcpy(values + 8 * i, value, 8);
    SetPageCount(page, count + 1);
  }
  /// The slot that becomes free is zeroed, so that equal contents have equal images.
  static void RemoveAt(std::byte* page, uint32_t page_bytes, size_t i) {
    const size_t count = PageCount(page);
    std::byte* keys = page + kKeys;
    std::byte* values = page + ValueOffset(page_bytes, 0);
    std::memmove(keys + 8 * i, keys + 8 * (i + 1), 8 * (count - i - 1));
    std::memmove(values + 8 * i, values + 8 * (i + 1), 8 * (count - i - 1));
    std::memset(keys + 8 * (count - 1), 0, 8);
    std::memset(values + 8 * (count - 1), 0, 8);
    SetPageCount(page, count - 1);
  }
};

}  // namespace farleaf::index::internal
