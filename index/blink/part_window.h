// Which parts of a parted leaf an operation reads: as few as it can know to suffice.
//
// A compute server remembers of each part that it has met whether it was full, and whether entries had
// gone past it. What it remembers may be out of date, and costs a round trip then, no more: whether
// what was read suffices is said by the parts themselves (parted_leaf.h).
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "index/blink/parted_leaf.h"

namespace farleaf::index {

using PartMask = uint32_t;  ///< bit i: part i

constexpr PartMask AllParts(size_t parts) { return (PartMask{1} << parts) - 1; }

/// What is remembered of a leaf's parts, in one word: bit 2i: part i was full, 2i + 1: entries went
/// past it.
struct PartHints {
  uint64_t word = 0;
  bool full(size_t part) const { return (word >> 2 * part & 1) != 0; }
  bool passed(size_t part) const { return (word >> (2 * part + 1) & 1) != 0; }
};

/// The hints of the parts in hand, and which bits they are about.
struct FreshHints {
  uint64_t about = 0, bits = 0;
};
inline FreshHints HintsOf(const LeafParts& leaf) {
  FreshHints fresh;
  for (PartMask rest = leaf.loaded(); rest != 0; rest &= rest - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(rest));
    fresh.about |= uint64_t{3} << 2 * i;
    fresh.bits |= uint64_t{leaf.part(i).full()} << 2 * i;
    fresh.bits |= uint64_t{leaf.part(i).passed()} << (2 * i + 1);
  }
  return fresh;
}

/// The parts that hold the key if it is there.
inline PartMask WindowToRead(uint64_t key, size_t parts, PartHints hints) {
  size_t at = HomePart(key, parts);
  PartMask window = PartMask{1} << at;
  for (size_t i = 1; i < parts && hints.passed(at); ++i) {
    at = at + 1 == parts ? 0 : at + 1;
    window |= PartMask{1} << at;
  }
  return window;
}

/// Those, and one with room for it; the whole leaf if it is to be split.
inline PartMask WindowToCreate(uint64_t key, size_t parts, PartHints hints) {
  size_t at = HomePart(key, parts);
  PartMask window = PartMask{1} << at;
  for (size_t taken = 1; taken < parts && (hints.passed(at) || hints.full(at)); ++taken) {
    if (taken >= kChainParts && !hints.passed(at)) return AllParts(parts);
    at = at + 1 == parts ? 0 : at + 1;
    window |= PartMask{1} << at;
  }
  return window;
}

/// Puts an entry where FindRoom said. Returns which parts that changed.
inline PartMask PutIn(LeafParts& leaf, const LeafParts::Place& room, uint64_t key,
                      const void* value) {
  leaf.Put(room, key, value);
  PartMask changed = PartMask{1} << room.part;
  for (size_t at = HomePart(key, leaf.parts()); at != room.part; at = leaf.Next(at)) {
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
