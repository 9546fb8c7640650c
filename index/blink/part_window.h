// Which parts of a parted leaf an operation reads: as few as it can know to suffice.
//
// A compute server remembers of each part that it has met whether it was full, and whether entries had
// gone past it, and of each leaf whether its keys are placed by a hash. What it remembers may be out of
// date, and costs a round trip then, no more: whether what was read suffices is said by the parts
// themselves (parted_leaf.h).
//
// Thread rule: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "index/blink/parted_leaf.h"

namespace farleaf::index {

using PartMask = uint32_t;  ///< bit i: part i

constexpr PartMask AllParts(size_t parts) { return (PartMask{1} << parts) - 1; }

/// What is remembered of a leaf's parts, in one word: bits 2i and 2i + 1: 0: part i was never met; 1: it had
/// room; 2: it was full; 3: entries had gone past it; of leaves of at most 27 parts, bits 54..61: entries + 1, 0 if that is not known; bit 62: homes are
/// hashed, else they are ordered where the leaf has both fences.
struct PartHints {
  uint64_t word = 0;
  static constexpr uint64_t kHashed = uint64_t{1} << 62;
  Placement placement() const {
    return (word & kHashed) != 0 ? Placement::kHashed : Placement::kOrdered;
  }
  static constexpr int kCountShift = 54;
  static constexpr size_t kCountedPartsMax = 27;
  static_assert(kCountedPartsMax * kPartSlots + 1 < 256);
  static constexpr uint64_t kCountMask = uint64_t{255} << kCountShift;
  /// `parts`: of the leaf. How many entries it had when it was seen last, about.
  std::optional<double> count(size_t parts) const {
    const uint64_t plus_one = (word & kCountMask) >> kCountShift;
    if (parts > kCountedPartsMax || plus_one == 0) return std::nullopt;
    return static_cast<double>(plus_one - 1);
  }
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

/// The hints of the parts in hand, and which bits they are about.
struct FreshHints {
  uint64_t about = 0, bits = 0;
};
inline FreshHints HintsOf(const LeafParts& leaf) {
  FreshHints fresh;
  if (leaf.loaded() == 0) return fresh;
  fresh.about = PartHints::kHashed;
  // Of a leaf without two fences nothing needs to be remembered.
  const bool hashed = leaf.homes().bounded() && !leaf.homes().ordered();
  fresh.bits = hashed ? PartHints::kHashed : 0;
  if (leaf.whole() && leaf.parts() <= PartHints::kCountedPartsMax) {
    fresh.about |= PartHints::kCountMask;
    fresh.bits |= uint64_t{leaf.count() + 1} << PartHints::kCountShift;
  }
  for (PartMask rest = leaf.loaded(); rest != 0; rest &= rest - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(rest));
    fresh.about |= uint64_t{3} << 2 * i;
    fresh.bits |= PartHints::StateOf(leaf.part(i)) << 2 * i;
  }
  return fresh;
}

/// The same as a scan notes it: with what can be told of the number of entries from some of the parts.
inline FreshHints HintsOfScan(const LeafParts& leaf, PartHints before) {
  FreshHints fresh = HintsOf(leaf);
  const size_t parts = leaf.parts();
  const auto in_hand = static_cast<double>(std::popcount(leaf.loaded()));
  const double share = in_hand / static_cast<double>(parts);
  const std::optional<double> known = before.count(parts);
  const bool enough = known || share >= 0.375;
  if (leaf.whole() || !enough || parts > PartHints::kCountedPartsMax) return fresh;
  const auto seen = static_cast<double>(leaf.count());
  const double entries = known ? seen + *known * (1 - share) : seen / share;
  fresh.about |= PartHints::kCountMask;
  fresh.bits |= (static_cast<uint64_t>(entries + 0.5) + 1) << PartHints::kCountShift;
  return fresh;
}

/// The parts that hold the key if it is there. Of a home that was never met the next part is read too: one in
/// six keys has gone past its home.
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

/// The same where nothing is remembered of the leaf: all parts that an entry goes to in most leaves.
inline PartMask WindowOfChain(uint64_t key, const LeafHomes& homes) {
  size_t at = homes.Of(key);
  PartMask window = PartMask{1} << at;
  for (size_t i = 1; i < std::min(kChainParts, homes.parts()); ++i) {
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
    if (taken >= kChainParts && !hints.passed(at)) return AllParts(homes.parts());
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
