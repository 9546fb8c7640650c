// Scans of parted leaves, read in part (scan_plan.h says which parts).
//
// A leaf's parts from one READ are believed if they are intact, of the expected fences, and of one
// structure: then no entry that stayed moved between them. What they prove is said by homes: the entries of
// one home are all in hand if its part is, and, as long as entries went past the last of them, the next.
// The scan's `position` moves over the homes that are proven, in the order of keys, and no further.
#include <algorithm>
#include <array>

#include "dsm/base/mutation.h"
#include "index/blink/scan_plan.h"
#include "index/blink/scan_state.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {

struct Row {
  uint64_t key;
  const std::byte* value;
};
using Rows = std::array<Row, kLeafPartsMax * kPartSlots>;

/// Of the parts, by homes: [first, end).
struct Homes {
  size_t first = 0, end = 0;
};

bool AllInHand(const LeafParts& leaf, size_t home) {
  size_t at = home;
  for (size_t i = 0; i < leaf.parts(); ++i, at = leaf.Next(at)) {
    if (!leaf.Has(at)) return i > 0 && Mutated(Mutation::kScanTrustsOpenChains);
    if (!leaf.part(at).passed()) return true;
  }
  return true;
}

/// Of the homes that the wanted keys have, those that are proven without a gap from the scan's position on.
Homes Proven(const LeafParts& leaf, const LeafHomes& homes, WantedKeys wanted, bool forward) {
  if (!homes.ordered()) return leaf.whole() ? Homes{0, leaf.parts()} : Homes{};
  const size_t first = homes.Of(wanted.first), last = homes.Of(wanted.end - 1);
  Homes proven;
  if (forward) {
    for (proven = {first, first}; proven.end <= last && AllInHand(leaf, proven.end);) ++proven.end;
  } else {
    for (proven = {last + 1, last + 1};
         proven.first > first && AllInHand(leaf, proven.first - 1);) {
      --proven.first;
    }
  }
  return proven;
}

/// Whether every part between the home and `part` says that entries went past it.
bool WayIsMarked(const LeafParts& leaf, size_t home, size_t part) {
  for (size_t at = home; at != part; at = leaf.Next(at)) {
    if (!leaf.Has(at) || !leaf.part(at).passed()) return false;
  }
  return true;
}

/// The wanted entries of these homes in the order of keys. Nullopt: torn; an entry stands where nobody looks
/// for it yet, or twice, since it was deleted and stored again meanwhile.
std::optional<size_t> Collect(const LeafParts& leaf, const LeafHomes& homes, Homes proven,
                              WantedKeys wanted, Rows* rows) {
  size_t count = 0;
  for (PartMask rest = leaf.loaded(); rest != 0; rest &= rest - 1) {
    const auto p = static_cast<size_t>(std::countr_zero(rest));
    const ConstPart part = leaf.part(p);
    for (uint32_t used = part.used(); used != 0; used &= used - 1) {
      const auto slot = static_cast<size_t>(std::countr_zero(used));
      const Row row{part.key(slot), part.value(slot)};
      if (row.key < wanted.first || row.key >= wanted.end) continue;
      const size_t home = homes.Of(row.key);
      if (home < proven.first || home >= proven.end) continue;
      if (home != p && !WayIsMarked(leaf, home, p) &&
          !Mutated(Mutation::kScanTrustsPlacementHint)) {
        return std::nullopt;
      }
      // Parts of an ordered leaf are nearly in order.
      size_t at = count++;
      for (; at > 0 && (*rows)[at - 1].key > row.key; --at) (*rows)[at] = (*rows)[at - 1];
      (*rows)[at] = row;
      if (at > 0 && (*rows)[at - 1].key == row.key) return std::nullopt;
    }
  }
  return count;
}

}  // namespace

std::optional<WantedKeys> BlinkTree::WantedOf(const ScanState& state, LeafRange range,
                                              LeafIs leaf_is) const {
  WantedKeys wanted{range.low, range.high};
  const uint64_t position = LoadBig64(state.position.data());
  const bool next = leaf_is == LeafIs::kNext;
  if (state.forward()) {
    if (next && (position < range.low || position >= range.high)) return std::nullopt;
    if (next) wanted.first = position;
    if (state.range.end) wanted.end = std::min(wanted.end, LoadBig64(state.range.end->data()));
  } else {
    const bool covers = !state.from_last && position > range.low && position <= range.high;
    if (next && !covers) return std::nullopt;
    if (next) wanted.end = position;
    if (!state.range.start.empty()) {
      wanted.first = std::max(wanted.first, LoadBig64(state.range.start.data()));
    }
  }
  if (wanted.first >= wanted.end) return std::nullopt;
  return wanted;
}

void BlinkTree::PlanScan(ScanState& state) const {
  const size_t parts = PartsOf(info_.geometry.leaf_bytes);
  const double usual =
      static_cast<double>(entries_per_leaf_x16_.load(std::memory_order_relaxed)) / 16;
  const auto rows = static_cast<double>(state.range.limit - state.rows->size());
  const auto bytes = static_cast<double>(state.range.bytes_max - state.bytes);
  ScanPlan plan(std::min(rows, bytes / 16 + 1), std::max(usual, 1.0), parts, state.range.direction);
  for (const CachedLeaf& cached : state.cached) {
    if (!state.leaves.empty() && plan.enough()) break;
    ScanLeaf& leaf = state.leaves.emplace_back(ScanLeaf{cached});
    const PartHints hints{hints_.Load(leaf.address)};
    const bool first = state.leaves.size() == 1;
    const auto wanted = WantedOf(state, leaf.range, first ? LeafIs::kNext : LeafIs::kLater);
    if (leaf.range.bounded() && wanted) {
      leaf.window = plan.Next(leaf.range, hints, *wanted);
      leaf.assumed = hints.placement();
    } else if (leaf.range.bounded() && !first) {  // reverse: it lies before the range
      state.leaves.pop_back();
      break;
    } else {
      plan.NextWhole(hints, first && !state.from_last ? 0.5 : 1);
    }
  }
}

BlinkTree::ScanTaken BlinkTree::TakeScanParts(ScanState& state, const ScanLeaf& planned,
                                              std::span<std::byte> image) {
  const LeafParts leaf(image, planned.window, planned.range);
  const auto wanted = WantedOf(state, planned.range, LeafIs::kNext);
  if (!wanted || !leaf.Fits(planned.fence_digest)) return ScanTaken::kNoLeaf;
  const FreshHints fresh = HintsOfScan(leaf, {hints_.Load(planned.address)});
  hints_.Update(planned.address, fresh.about, fresh.bits);
  if (leaf.whole()) NoteLeafFill(leaf.count());
  const LeafHomes assumed(leaf.parts(), planned.assumed, planned.range);
  const LeafHomes& homes = Mutated(Mutation::kScanTrustsPlacementHint) ? assumed : leaf.homes();
  const Homes proven = Proven(leaf, homes, *wanted, state.forward());
  if (proven.first == proven.end) return ScanTaken::kTooLittle;
  Rows rows;
  const std::optional<size_t> count = Collect(leaf, homes, proven, *wanted, &rows);
  if (!count) return ScanTaken::kNoLeaf;
  for (size_t i = 0; i < *count; ++i) {
    const Row& row = rows[state.forward() ? i : *count - 1 - i];
    if (state.full()) {  // reverse: up to the key itself, exclusive
      StoreBig64(state.position.data(), state.forward() ? row.key : row.key + 1);
      return ScanTaken::kLeaf;
    }
    KeyValue& out = state.rows->emplace_back();
    out.key.resize(8);
    StoreBig64(out.key.data(), row.key);
    out.value.assign(AsChars({row.value, 8}));
    state.bytes += 16;
  }
  const LeafRange& range = planned.range;
  if (state.forward()) {
    const bool all = proven.end == homes.parts() || homes.FirstKeyOf(proven.end) >= range.high;
    const uint64_t next = all ? range.high : homes.FirstKeyOf(proven.end);
    StoreBig64(state.position.data(), next);
    state.done = state.range.end && state.position >= *state.range.end;
    return all ? ScanTaken::kLeaf : ScanTaken::kSome;
  }
  const uint64_t next = proven.first == 0 ? range.low : homes.FirstKeyOf(proven.first);
  StoreBig64(state.position.data(), next);
  state.done = !state.range.start.empty() && state.position <= state.range.start;
  return next == range.low ? ScanTaken::kLeaf : ScanTaken::kSome;
}

}  // namespace farleaf::index
