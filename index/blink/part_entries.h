// PartEntries: entries of a leaf's parts in the order of keys, by where they stand, for scans.
//
// Of each the key's offset from the low fence, as far as it fits, then part and slot. These 61 bits, below bit 62, are
// those of a positive double, so that they are ordered as numbers are: for which processors have instructions without
// a jump, as few have for words. Where the processor has AVX2 four parts are sorted at a time, a part in each lane.
//
// Thread rule: one owner.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "index/blink/leaf_homes.h"
#include "index/blink/parted_leaf.h"

namespace farleaf::index {

/// Which keys are taken, by their offsets from the leaf's low fence: first, first + 1, ..., first + span - 1.
struct EntryWindow {
  uint64_t low = 0;  ///< the leaf's low fence
  int shift = 0;     ///< bits of an offset that an entry has no room for
  uint64_t first = 0, span = 0;
};

class PartEntries {
 public:
  /// REQUIRES: both fences.
  static int ShiftOf(LeafRange range) {
    const int bits = std::bit_width(range.high - 1 - range.low);
    return std::max(0, bits - kOffsetBits);
  }

  size_t count() const { return count_; }
  size_t part(size_t i) const { return (entries_[i] & kPlaceMask) >> kSlotBits; }
  size_t slot(size_t i) const { return entries_[i] & kSlotMask; }
  /// Where the entry stands in the leaf's image: its key, and its value behind that.
  size_t offset(size_t i) const {
    static_assert(kPartBytes == kEntryBytes << kSlotBits);
    return ConstPart::SlotOffset(entries_[i] & kPlaceMask);
  }
  void Clear() { count_ = 0; }

  /// Parts that Add takes at a time.
  static constexpr size_t kTogether = 4;
  using Parts = std::array<uint8_t, kTogether>;
  /// Where the entries of each of some parts end.
  using Ends = std::array<uint16_t, kTogether>;
  /// Appends the entries of `parts[0, number)` that are in the window: part after part, each part's sorted.
  void Add(const LeafParts& leaf, const Parts& parts, size_t number, const EntryWindow& window,
           Ends* ends);
  /// The same without instructions that not all processors have.
  void AddOneByOne(const LeafParts& leaf, const Parts& parts, size_t number,
                   const EntryWindow& window, Ends* ends);

  /// Of entries in any order.
  void Sort() { std::sort(entries_.data(), entries_.data() + count_); }
  /// Of entries that are in order but for a few. Whether two may be of one key: their offsets, as far as they fit, are equal.
  bool SortNearly();
  /// Whether no key stands twice; keys of which SortNearly could not tell the order are in order then.
  bool SortByKeys(const LeafParts& leaf);

 private:
  static constexpr int kPlaceBits = 8, kSlotBits = 3, kOffsetBits = 53;
  static constexpr size_t kEntryBytes = ConstPart::SlotOffset(1) - ConstPart::SlotOffset(0);
  static constexpr uint64_t kEntry = uint64_t{1} << 62, kNone = uint64_t{7} << 60;
  static constexpr uint64_t kPlaceMask = (1 << kPlaceBits) - 1, kSlotMask = (1 << kSlotBits) - 1;
  static_assert(kLeafPartsMax < 1 << (kPlaceBits - kSlotBits) && kPartSlots < 1 << kSlotBits);

  void AddByVectors(const LeafParts& leaf, const Parts& parts, size_t number,
                    const EntryWindow& window, Ends* ends);

  /// One more: parts are stored by eights.
  std::array<uint64_t, kLeafPartsMax * kPartSlots + 1> entries_;
  size_t count_ = 0;
};

}  // namespace farleaf::index
