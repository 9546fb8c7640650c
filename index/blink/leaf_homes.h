// LeafHomes: in which of a parted leaf's parts each key is at home (parted_leaf.h).
//
// Ordered: the part is interpolated between the leaf's fences, so that parts are in the order of keys and
// a scan reads some of them. Keys that are spread evenly fill parts as a hash of them would. Hashed: for a
// leaf without both fences, or of keys that are not spread evenly. Each leaf says which it has.
//
// Exact, and the same for everybody who knows the fences: integers only. Let last = high - 1 - low, shift
// the least number that leaves last >> shift below 2^32, and units = (last >> shift) + 1. Then
//
//   home(key) = (2 * ((key - low) >> shift) + 1) * floor(parts * 2^57 / units) >> 58
//
// which never falls as keys grow, and is below `parts` up to the last key: that of the unit's middle, so
// that what is rounded off does not put the first key of a part into the part before.
//
// Thread rule: value types.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace farleaf::index {

enum class Placement : uint8_t {
  kHashed,
  kOrdered,
};

/// The fences of a leaf that has both.
struct LeafRange {
  uint64_t low = 0, high = 0;
  bool bounded() const { return low < high; }  ///< else the leaf lacks one
};

/// The hashed home of a key.
inline size_t HomePart(uint64_t key, size_t parts) {
  uint64_t mixed = key * 0x9e3779b97f4a7c15;
  mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93;
  return static_cast<size_t>((mixed >> 32) * parts >> 32);
}

class LeafHomes {
 public:
  /// Ordered only where the range is bounded.
  LeafHomes(size_t parts, Placement placement, LeafRange range)
      : parts_(parts), bounded_(range.bounded()) {
    if (placement == Placement::kHashed || !range.bounded()) return;
    low_ = range.low;
    last_ = range.high - 1 - range.low;
    shift_ = std::max(0, static_cast<int>(std::bit_width(last_)) - 32);
    multiplier_ = (uint64_t{parts} << (kScale - 1)) / ((last_ >> shift_) + 1);
  }

  size_t parts() const { return parts_; }
  bool bounded() const { return bounded_; }  ///< whether the leaf has both fences
  bool ordered() const { return multiplier_ != 0; }
  size_t Next(size_t part) const { return part + 1 == parts_ ? 0 : part + 1; }
  /// Of a key outside of the range: the first part, or the last.
  size_t Of(uint64_t key) const {
    if (!ordered()) return HomePart(key, parts_);
    const uint64_t offset = key <= low_ ? 0 : std::min(key - low_, last_);
    return static_cast<size_t>((2 * (offset >> shift_) + 1) * multiplier_ >> kScale);
  }
  /// The lowest key of the range whose home is `part` or behind it; the high fence if none is. REQUIRES:
  /// ordered(), part < parts().
  uint64_t FirstKeyOf(size_t part) const {
    const uint64_t unit = ((uint64_t{part} << kScale) + multiplier_ - 1) / multiplier_ / 2;
    return unit > last_ >> shift_ ? low_ + last_ + 1 : low_ + (unit << shift_);
  }
  /// The first key behind those whose home is `part` or ahead of it.
  uint64_t EndKeyOf(size_t part) const {
    return part + 1 == parts_ ? low_ + last_ + 1 : FirstKeyOf(part + 1);
  }

 private:
  /// Parts are fewer than 2^5, so no product reaches 2^63.
  static constexpr int kScale = 58;
  size_t parts_;
  bool bounded_;
  uint64_t low_ = 0;
  uint64_t last_ = 0;  ///< the highest offset from low_
  int shift_ = 0;
  uint64_t multiplier_ = 0;  ///< 0: hashed
};

}  // namespace farleaf::index
