// Which parts of a parted leaf an operation reads: as few as it can know to suffice.
//
// A compute server remembers of each part that it has met whether it was full, and whether entries had
// gone past it, and of each leaf whether its keys are placed by a hash. What it remembers may be out of
// date, and costs a round trip then, no more: whether what was read suffices is said by the parts
// themselves (parted_leaf.h).
//
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "index/blink/parted_leaf.h"

namespace farleaf::index {

using PartMask = uint32_t;  ///< bit i: part i

constexpr PartMask AllParts(size_t parts) { return (PartMask{1} << parts) - 1; }

/// What is remembered of a leaf's parts, in one word: bits 2i and 2i + 1: 0: part i was never met; 1: it had
/// room; 2: it was full; 3: entries had gone past it; above those of all parts the number of entries (CountField), if it is
/// known; bit 63: homes are hashed, else they are ordered where the leaf has both fences.
struct PartHints {
  uint64_t word = 0;
  static constexpr int kHashedBit = 63;
  static constexpr uint64_t kHashed = uint64_t{1} << kHashedBit;
  Placement placement() const {
    return (word & kHashed) != 0 ? Placement::kHashed : Placement::kOrdered;
  }
  /// Of leaves of more parts the number of entries is not remembered.
  static constexpr size_t kCountedPartsMax = 29;
  /// `parts`: of the leaf. How many entries it had when it was seen last, about.
  std::optional<double> count(size_t parts) const;
  static constexpr uint64_t kMet = 1, kFull = 2, kPassed = 3;
  static uint64_t StateOf(ConstPart part) {
    return part.passed() ? kPassed : part.full() ? kFull : kMet;
  }
  uint64_t state(size_t part) const { return word >> 2 * part & 3; }
  bool met(size_t part) const { return state(part) != 0; }
  /// Or was so before entries went past it.
  bool full(size_t part) const { return state(part) >= kFull; }
  bool passed(size_t part) const { return state(part) == kPassed; }
};

/// Where PartHints has the number of entries: in units of as few entries as its bits allow, plus one unit; 0: it is not known.
class CountField {
 public:
  /// REQUIRES: parts <= PartHints::kCountedPartsMax.
  static const CountField& Of(size_t parts);
  explicit constexpr CountField(size_t parts)
      : shift_(2 * parts),
        max_((uint64_t{1} << std::min<size_t>(PartHints::kHashedBit - shift_, 8)) - 1),
        unit_((parts * kPartSlots + max_ - 2) / (max_ - 1)) {}

  constexpr uint64_t unit() const { return unit_; }
  constexpr uint64_t mask() const { return max_ << shift_; }
  /// REQUIRES: entries <= those that the parts have room for.
  constexpr uint64_t Bits(double entries) const {
    return (static_cast<uint64_t>(entries / static_cast<double>(unit_) + 0.5) + 1) << shift_;
  }
  constexpr std::optional<double> In(uint64_t word) const {
    const uint64_t units = (word & mask()) >> shift_;
    if (units == 0) return std::nullopt;
    return static_cast<double>((units - 1) * unit_);
  }

 private:
  size_t shift_;
  uint64_t max_, unit_;
};
inline constexpr auto kCountFields = []<size_t... parts>(std::index_sequence<parts...>) {
  return std::array{CountField(parts)...};
}(std::make_index_sequence<PartHints::kCountedPartsMax + 1>());
static_assert(kCountFields[27].unit() == 1 && kCountFields[28].unit() == 2 &&
              kCountFields[29].unit() == 7);

inline const CountField& CountField::Of(size_t parts) { return kCountFields[parts]; }

inline std::optional<double> PartHints::count(size_t parts) const {
  return parts <= kCountedPartsMax ? CountField::Of(parts).In(word) : std::nullopt;
}

/// The hints of the parts in hand, and which bits they are about.
struct FreshHints {
  uint64_t about = 0, bits = 0;

  void SetCount(size_t parts, double entries) {
    const CountField& field = CountField::Of(parts);
    about |= field.mask();
    bits = (bits & ~field.mask()) | field.Bits(entries);
  }
  void ForgetCount(size_t parts) {
    if (parts <= PartHints::kCountedPartsMax) bits &= ~CountField::Of(parts).mask();
  }
};
inline FreshHints HintsOf(const LeafParts& leaf) {
  FreshHints fresh;
  if (leaf.loaded() == 0) return fresh;
  fresh.about = PartHints::kHashed;
  // Of a leaf without two fences nothing needs to be remembered.
  const bool hashed = leaf.homes().bounded() && !leaf.homes().ordered();
  fresh.bits = hashed ? PartHints::kHashed : 0;
  if (leaf.whole() && leaf.parts() <= PartHints::kCountedPartsMax) {
    fresh.SetCount(leaf.parts(), static_cast<double>(leaf.count()));
  }
  for (PartMask rest = leaf.loaded(); rest != 0; rest &= rest - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(rest));
    fresh.about |= uint64_t{3} << 2 * i;
    fresh.bits |= PartHints::StateOf(leaf.part(i)) << 2 * i;
  }
  return fresh;
}

inline double ShareInHand(const LeafParts& leaf) {
  return static_cast<double>(std::popcount(leaf.loaded())) / static_cast<double>(leaf.parts());
}

/// The same as a scan notes it: with what can be told of the number of entries from some of the parts.
inline FreshHints HintsOfScan(const LeafParts& leaf, PartHints before) {
  FreshHints fresh = HintsOf(leaf);
  const size_t parts = leaf.parts();
  const double share = ShareInHand(leaf);
  const std::optional<double> known = before.count(parts);
  const bool enough = known || share >= 0.375;
  if (leaf.whole() || !enough || parts > PartHints::kCountedPartsMax) return fresh;
  const auto seen = static_cast<double>(leaf.count());
  fresh.SetCount(parts, known ? seen + *known * (1 - share) : seen / share);
  return fresh;
}

/// Looks at parts that are torn, or do not suffice, before the whole leaf is read.
inline constexpr int kPartReadsMax = 8;
/// Of a leaf of which nothing ever is remembered so many parts are read: all but one entry in a thousand stand in them.
inline constexpr size_t kUsualParts = 3;

/// The parts that hold the key if it is there. Of a home that was never met the next part is read too: all but one entry in
/// 200 stand in the two.
inline PartMask WindowToRead(uint64_t key, const LeafHomes& homes, PartHints hints) {
  size_t at = homes.Of(key);
  PartMask window = PartMask{1} << at;
  bool goes_on = hints.passed(at) || !hints.met(at);
  for (size_t i = 1; i < homes.parts() && goes_on; ++i) {
    at = homes.Next(at);
    window |= PartMask{1} << at;
    goes_on = hints.passed(at);
  }
  return window;
}

/// So many parts from the home on.
inline PartMask WindowOfChain(uint64_t key, const LeafHomes& homes, size_t chain) {
  size_t at = homes.Of(key);
  PartMask window = PartMask{1} << at;
  for (size_t i = 1; i < std::min(chain, homes.parts()); ++i) {
    at = homes.Next(at);
    window |= PartMask{1} << at;
  }
  return window;
}

/// Those that WindowToRead has, and one with room for it; the whole leaf if it is to be split.
inline PartMask WindowToCreate(uint64_t key, const LeafHomes& homes, PartHints hints) {
  size_t at = homes.Of(key);
  PartMask window = PartMask{1} << at;
  bool goes_on = hints.full(at) || !hints.met(at);
  for (size_t taken = 1; taken < homes.parts() && goes_on; ++taken) {
    if (taken >= ChainPartsOf(homes.parts()) && !hints.passed(at)) return AllParts(homes.parts());
    at = homes.Next(at);
    window |= PartMask{1} << at;
    goes_on = hints.full(at);
  }
  return window;
}

/// Puts an entry where FindRoom said. Returns which parts that changed.
inline PartMask PutIn(LeafParts& leaf, const LeafParts::Place& room, uint64_t key,
                      const void* value) {
  leaf.Put(room, key, value);
  PartMask changed = PartMask{1} << room.part;
  for (size_t at = leaf.homes().Of(key); at != room.part; at = leaf.Next(at)) {
    changed |= PartMask{1} << at;
  }
  return changed;
}

/// Calls run(first part, parts) for each run of neighbours.
template <typename Run>
void ForEachRun(PartMask parts, const Run& run) {
  while (parts != 0) {
    const auto first = static_cast<size_t>(std::countr_zero(parts));
    const auto count = static_cast<size_t>(std::countr_one(parts >> first));
    run(first, count);
    parts &= count + first >= 32 ? 0 : ~PartMask{0} << (first + count);
  }
}

}  // namespace farleaf::index
