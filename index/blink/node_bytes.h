// The byte-string layout: a slotted page whose keys are stored without what they share with the
// node's low fence.
//
//   offset             bytes       what
//   26                 2           heap_begin: offset of the first byte of the heap
//   28                 2           garbage: bytes of the heap that belong to no entry
//   30                 2           0
//   32                 2, 2        lengths of low and high fence
//   36                 ...         low fence, high fence
//   36 + fences        10 x count  slots, in key order
//   heap_begin         ...         heap, up to image_bytes - 8: of each entry, key rest then value
//
// A slot: 4 bytes head (the first 4 bytes of the key rest as a big-endian number, zero-padded),
// then 48 bits: offset 12 · rest length 11 · shared length 11 · value length 13 · out-of-line 1. A
// key is low[0, shared) + rest, with shared as large as possible.
//
// Why the low fence and not only the prefix common to both fences: it saves at least as much, since
// every key of [low, high) shares that prefix with low; and it bounds the bytes of a split's right
// half by those of its entries, because the new low fence is a prefix of the first of them. Without
// that, three entries with 1 KiB keys and foreign fences can be impossible to split.
//
// Comparing needs no reassembly. For entry e and searched key k, both >= low, with s = shared of e
// and t = lcp(low, k): s > t means e < k (k left low's path earlier, upwards), s < t means e > k,
// and s == t leaves the comparison to the rests.
//
// Memory safety: Check() accepts an image only if all its extents lie inside; every function below
// then stays inside, whatever the contents.
// Thread rule: views; as thread-safe as the bytes behind them.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "dsm/base/status.h"
#include "index/blink/geometry.h"
#include "index/blink/page_header.h"

namespace farleaf::index::internal {

/// Length of the longest common prefix.
inline size_t CommonPrefix(std::string_view a, std::string_view b) {
  const size_t length = std::min(a.size(), b.size());
  size_t i = 0;
  for (; i + 8 <= length; i += 8) {
    const uint64_t difference =
        LoadLittle<uint64_t>(a.data() + i) ^ LoadLittle<uint64_t>(b.data() + i);
    if (difference != 0) return i + static_cast<size_t>(__builtin_ctzll(difference)) / 8;
  }
  // The last ones, once more with those in front of them, which are the same.
  if (i < length && length >= 8) {
    i = length - 8;
    const uint64_t difference =
        LoadLittle<uint64_t>(a.data() + i) ^ LoadLittle<uint64_t>(b.data() + i);
    return difference == 0 ? length : i + static_cast<size_t>(__builtin_ctzll(difference)) / 8;
  }
  while (i < length && a[i] == b[i]) ++i;
  return i;
}

struct BytesSlot {
  uint32_t head;
  uint32_t offset, rest, shared, value;  ///< `rest`, `shared` and `value` are lengths
  bool out_of_line;

  static constexpr size_t kBytes = 10;
  static BytesSlot Decode(const std::byte* at) {
    const uint64_t bits = LoadLittle<uint64_t>(at + 2) >> 16;
    return {LoadLittle<uint32_t>(at),
            static_cast<uint32_t>(bits & 0xfff),
            static_cast<uint32_t>(bits >> 12 & 0x7ff),
            static_cast<uint32_t>(bits >> 23 & 0x7ff),
            static_cast<uint32_t>(bits >> 34 & 0x1fff),
            (bits >> 47 & 1) != 0};
  }
  void Encode(std::byte* at) const {
    const uint64_t bits = uint64_t{offset} | uint64_t{rest} << 12 | uint64_t{shared} << 23 |
                          uint64_t{value} << 34 | uint64_t{out_of_line} << 47;
    StoreLittle(at, head);
    StoreLittle(at + 4, static_cast<uint32_t>(bits));
    StoreLittle(at + 8, static_cast<uint16_t>(bits >> 32));
  }
};
static_assert(kPageBytesMax <= 0x1000 && kKeyBytesMax < 0x800, "fields of BytesSlot");

/// Entries of a node in the order of their keys, as far as slots tell: who leaves the low fence's path later is
/// smaller, then heads compare.
inline uint64_t SlotOrder(uint32_t shared, uint32_t head) {
  return uint64_t{0x7ff - shared} << 32 | head;
}

/// The same of an encoded slot.
inline uint64_t SlotOrderAt(const std::byte* slot) {
  return SlotOrder(static_cast<uint32_t>(LoadLittle<uint64_t>(slot + 2) >> 39 & 0x7ff),
                   LoadLittle<uint32_t>(slot));
}

/// The first slot in [first, count) whose order is not below `wanted`. Without a jump that depends on the key: half of
/// those that a binary search makes are mispredicted.
inline size_t FirstNotBelow(const std::byte* slots, size_t first, size_t count, uint64_t wanted) {
  if (first >= count) return first;
  const auto below = [&](size_t i) {
    return static_cast<size_t>(SlotOrderAt(slots + i * BytesSlot::kBytes) < wanted);
  };
  for (size_t left = count - first; left > 1;) {
    const size_t half = left / 2;
    first += half & (size_t{0} - below(first + half - 1));
    left -= half;
  }
  return first + below(first);
}

/// memcmp of strings whose first 4 bytes, zero-padded, are the same; inline, since most are short.
inline int CompareRests(std::string_view a, std::string_view b) {
  const size_t length = std::min(a.size(), b.size());
  for (size_t i = 4; i < length;) {
    uint64_t left = 0, right = 0;
    if (length >= 8) {  // the last ones once more with those before them, which are the same
      i = std::min(i, length - 8);
      left = LoadBig64(a.data() + i);
      right = LoadBig64(b.data() + i);
      i += 8;
    } else {
      left = __builtin_bswap32(LoadLittle<uint32_t>(a.data() + length - 4));
      right = __builtin_bswap32(LoadLittle<uint32_t>(b.data() + length - 4));
      i = length;
    }
    if (left != right) return left < right ? -1 : 1;
  }
  return a.size() == b.size() ? 0 : a.size() < b.size() ? -1 : 1;
}

/// A searched key beside a node's low fence; computed once a search.
struct BytesProbe {
  std::string_view rest;
  uint32_t shared = 0;
  uint32_t head = 0;
  bool below_low = false;
  uint64_t order() const { return SlotOrder(shared, head); }
};

class BytesPage {
 public:
  static constexpr size_t kHeapBegin = 26, kGarbage = 28, kReserved = 30;
  static constexpr size_t kLowLength = 32, kHighLength = 34, kFences = 36;
  static_assert(kHeapBegin == offsetof(PageHeader, layout_words));
  /// What is neither fences nor entries: header, fence lengths and tail version.
  static constexpr size_t kOverhead = kFences + kTailBytes;

  BytesPage(const Geometry& geometry, std::span<const std::byte> image)
      : geometry_(&geometry), page_(image.data()), image_bytes_(image.size()) {}

  /// Whether every extent is inside the image and nothing is longer than its place.
  static bool Check(const Geometry& geometry, std::span<const std::byte> image);

  std::string_view Low() const { return PageChars(page_, kFences, LowLength()); }
  std::string_view High() const {
    return PageChars(page_, kFences + LowLength(), Field<uint16_t>(page_, kHighLength));
  }
  BytesSlot Slot(size_t i) const { return BytesSlot::Decode(page_ + SlotOffset(i)); }
  const std::byte* Slots() const { return page_ + SlotOffset(0); }
  std::string_view Rest(const BytesSlot& slot) const {
    return PageChars(page_, slot.offset, slot.rest);
  }
  std::string_view Value(const BytesSlot& slot) const {
    return PageChars(page_, slot.offset + slot.rest, slot.value);
  }
  void AppendKey(size_t i, std::string* out) const;

  static BytesProbe ProbeBeside(std::string_view low, std::string_view key);
  BytesProbe Probe(std::string_view key) const { return ProbeBeside(Low(), key); }
  /// Of the stored key, also for entry 0 of an internal node (whose stored key means nothing).
  int Compare(size_t i, const BytesProbe& probe) const;
  /// The first entry in [first, count) whose key is >= the probe's (kUpper: > the probe's).
  enum class Bound { kLower, kUpper };
  size_t Search(size_t first, const BytesProbe& probe, Bound bound) const;

  size_t CapacityBytes() const { return image_bytes_ - kTailBytes - SlotOffset(0); }
  size_t UsedBytes() const {
    return PageCount(page_) * BytesSlot::kBytes + HeapEnd() - HeapBegin() - Garbage();
  }
  /// Ok, or what is wrong with slots, order or bounds.
  Status Validate() const;

  static uint32_t Head(std::string_view rest) {
    if (rest.size() >= 4) return __builtin_bswap32(LoadLittle<uint32_t>(rest.data()));
    unsigned char raw[4] = {};
    std::copy_n(rest.begin(), std::min<size_t>(rest.size(), 4), raw);
    return __builtin_bswap32(LoadLittle<uint32_t>(raw));
  }

 protected:
  size_t LowLength() const { return Field<uint16_t>(page_, kLowLength); }
  size_t SlotOffset(size_t i) const {
    return kFences + LowLength() + Field<uint16_t>(page_, kHighLength) + i * BytesSlot::kBytes;
  }
  size_t HeapBegin() const { return Field<uint16_t>(page_, kHeapBegin); }
  size_t HeapEnd() const { return image_bytes_ - kTailBytes; }
  size_t Garbage() const { return Field<uint16_t>(page_, kGarbage); }

  const Geometry* geometry_;
  const std::byte* page_;
  size_t image_bytes_;
};

class BytesPageWriter : public BytesPage {
 public:
  BytesPageWriter(const Geometry& geometry, std::span<std::byte> image)
      : BytesPage(geometry, image), out_(image.data()) {}

  void Init(std::string_view low, std::string_view high);
  enum class KeyIs { kStored, kLowFence };
  /// Entry i and those behind it move up. kLowFence (entry 0 of an internal node): the key is not
  /// stored. False: does not fit, nothing changed. `key` and `value` may not point into the page.
  bool Insert(size_t i, KeyIs key_is, std::string_view key, std::string_view value,
              bool out_of_line);
  bool ReplaceValue(size_t i, std::string_view value, bool out_of_line);
  void Remove(size_t i);
  std::byte* ValueBytes(size_t i) {
    const BytesSlot slot = Slot(i);
    return out_ + slot.offset + slot.rest;
  }

 private:
  /// Moves the heap together; slots keep their order.
  void Compact();
  size_t FreeGap(size_t slots) const { return HeapBegin() - SlotOffset(slots); }
  void SetHeap(size_t begin, size_t garbage) {
    StoreLittle(out_ + kHeapBegin, static_cast<uint16_t>(begin));
    StoreLittle(out_ + kGarbage, static_cast<uint16_t>(garbage));
  }
  std::byte* out_;
};

}  // namespace farleaf::index::internal
