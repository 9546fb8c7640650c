// Scans of parted leaves, read in part (scan_plan.h says which parts).
//
// A leaf's parts from one READ are believed if they are intact, of the expected fences, and of one
// structure: then no entry that stayed moved between them. What they prove is said by homes: the entries of
// one home are all in hand if its part is, and, as long as entries went past the last of them, the next.
// The scan's `position` moves over the homes that are proven, in the order of keys, and no further.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "dsm/base/mutation.h"
#include "index/blink/part_entries.h"
#include "index/blink/scan_plan.h"
#include "index/blink/scan_state.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {

/// Of each leaf, while it is thought about which of them to read.
constexpr size_t kPartsFetchedAhead = 4;
constexpr uint64_t kRowBytes = 16;

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

/// Of the entries [first, end), those of `part`: whether the way to each from its home is marked.
bool StraysAreMarked(const LeafParts& leaf, const LeafHomes& homes, size_t part,
                     const PartEntries& entries, size_t first, size_t end) {
  const auto home = [&](size_t i) { return homes.Of(leaf.part(part).key(entries.slot(i))); };
  const auto marked = [&](size_t i) {
    return WayIsMarked(leaf, home(i), part) || Mutated(Mutation::kScanTrustsPlacementHint);
  };
  // In an ordered leaf homes are in the order of keys: those between two that are at home are, too.
  size_t i = first;
  const bool ordered = homes.ordered();
  for (; i < end && (!ordered || home(i) != part); ++i) {
    if (!marked(i)) return false;
  }
  for (; i < end && home(end - 1) != part; --end) {
    if (!marked(end - 1)) return false;
  }
  return true;
}

/// The entries with these keys in the order of keys. False: torn; an entry stands where nobody looks for it
/// yet, or twice, since it was deleted and stored again meanwhile.
bool Collect(const LeafParts& leaf, const LeafHomes& homes, LeafRange range, WantedKeys wanted,
             PartEntries* out) {
  const EntryWindow window{range.low, PartEntries::ShiftOf(range), wanted.first - range.low,
                           wanted.end - wanted.first};
  out->Clear();
  for (PartMask rest = leaf.loaded(); rest != 0;) {
    PartEntries::Parts parts{};
    PartEntries::Ends ends;
    size_t number = 0, first = out->count();
    for (; number < parts.size() && rest != 0; rest &= rest - 1) {
      parts[number++] = static_cast<uint8_t>(std::countr_zero(rest));
    }
    out->Add(leaf, parts, number, window, &ends);
    for (size_t i = 0; i < number; first = ends[i++]) {
      if (!StraysAreMarked(leaf, homes, parts[i], *out, first, ends[i])) return false;
    }
  }
  // Parts of an ordered leaf are in order, but for what went past its home.
  if (!homes.ordered()) out->Sort();
  return !out->SortNearly() || out->SortByKeys(leaf);
}

inline void AssignToRow(const std::byte* word, std::string* out) {
  if (out->size() != 8) ScanRows::Clear(out);
  AssignWord(word, out);
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

void BlinkTree::PrefetchScan(OpContext& op, const ScanState& state, double leaves) const {
  if (!state.forward() || state.cached.empty()) return;
  const size_t parts = PartsOf(info_.geometry.leaf_bytes);
  const LeafHomes homes(parts, Placement::kOrdered, state.cached[0].range);
  size_t part = homes.Of(LoadBig64(state.position.data()));
  const size_t count = std::min(state.cached.size(), static_cast<size_t>(leaves + 1.5));
  for (size_t i = 0; i < count; ++i) {
    const GlobalAddress leaf = state.cached[i].address;
    op.worker.transport().Prefetch(
        GlobalAddress(leaf.server(), leaf.offset() + part * kPartBytes),
        static_cast<uint32_t>(std::min(parts - part, kPartsFetchedAhead)) * kPartBytes);
    hints_.Prefetch(leaf);
    part = 0;
  }
}

void BlinkTree::PlanScan(ScanState& state) const {
  const size_t parts = PartsOf(info_.geometry.leaf_bytes);
  const double usual = entries_per_leaf_.load(std::memory_order_relaxed);
  const auto rows = static_cast<double>(state.range.limit - state.rows.size());
  const auto bytes = static_cast<double>(state.range.bytes_max - state.bytes);
  ScanPlan plan(std::min(rows, bytes / kRowBytes + 1), std::max(usual, 1.0), parts,
                state.range.direction);
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
  NoteLeafFill(leaf.count(), ShareInHand(leaf));
  LeafHomes homes = leaf.homes();
  if (Mutated(Mutation::kScanTrustsPlacementHint)) {
    homes = LeafHomes(leaf.parts(), planned.assumed, planned.range);
  }
  const Homes proven = Proven(leaf, homes, *wanted, state.forward());
  if (proven.first == proven.end) return ScanTaken::kTooLittle;
  // Those of proven homes. Of a hashed leaf all homes are proven.
  const LeafRange& range = planned.range;
  LeafRange keys = range;
  if (state.forward()) {
    if (proven.end < homes.parts()) keys.high = homes.FirstKeyOf(proven.end);
  } else if (proven.first > 0) {
    keys.low = homes.FirstKeyOf(proven.first);
  }
  const WantedKeys taken{std::max(wanted->first, keys.low), std::min(wanted->end, keys.high)};
  PartEntries entries;
  if (!Collect(leaf, homes, range, taken, &entries)) return ScanTaken::kNoLeaf;
  // The next one, in the scan's order.
  size_t at = state.forward() ? 0 : entries.count() - 1;
  const size_t step = state.forward() ? 1 : SIZE_MAX;
  const size_t count = std::min(entries.count(), state.RowsMissing(kRowBytes));
  KeyValue* row = state.rows.Add(count);
  for (size_t i = 0; i < count; ++i, ++row, at += step) {
    const std::byte* const entry = image.data() + entries.offset(at);
    AssignToRow(entry, &row->key);
    AssignToRow(entry + 8, &row->value);
  }
  state.bytes += count * kRowBytes;
  if (count < entries.count()) {  // reverse: up to the key itself, exclusive
    const uint64_t key = LoadBig64(image.data() + entries.offset(at));
    StoreBig64(state.position.data(), key + (state.forward() ? 0 : 1));
    return ScanTaken::kLeaf;
  }
  if (state.forward()) {
    StoreBig64(state.position.data(), keys.high);
    state.done = state.range.end && state.position >= *state.range.end;
    return keys.high == range.high ? ScanTaken::kLeaf : ScanTaken::kSome;
  }
  StoreBig64(state.position.data(), keys.low);
  state.done = !state.range.start.empty() && state.position <= state.range.start;
  return keys.low == range.low ? ScanTaken::kLeaf : ScanTaken::kSome;
}

}  // namespace farleaf::index
