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
#include "index/blink/scan_plan.h"
#include "index/blink/scan_state.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {

/// Of each leaf, while it is thought about which of them to read.
constexpr size_t kPartsFetchedAhead = 4;
constexpr uint64_t kRowBytes = 16;

/// Entries by where they stand, in the order of keys: of each the key's offset from the low fence, as far as it
/// fits, then part and slot. These 61 bits, below bit 62, are those of a positive double, so that they are
/// ordered as numbers are: for which processors have instructions without a jump, as few have for words.
struct Entries {
  static constexpr int kPlaceBits = 8, kSlotBits = 3, kOffsetBits = 53;
  static constexpr uint64_t kEntry = uint64_t{1} << 62, kNone = uint64_t{7} << 60;
  static constexpr uint64_t kPlaceMask = (1 << kPlaceBits) - 1, kSlotMask = (1 << kSlotBits) - 1;
  static_assert(kLeafPartsMax < 1 << (kPlaceBits - kSlotBits) && kPartSlots < 1 << kSlotBits);

  std::array<uint64_t, kLeafPartsMax * kPartSlots> entries;
  size_t count = 0;

  size_t part(size_t i) const { return (entries[i] & kPlaceMask) >> kSlotBits; }
  size_t slot(size_t i) const { return entries[i] & kSlotMask; }
};

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

/// Sorts the entries of a part: 16 comparisons, none of which is a jump that could be predicted wrongly.
inline void SortSlots(const double (&slots)[kPartSlots], uint64_t* out) {
  static_assert(kPartSlots == 7);
  double a = slots[0], b = slots[1], c = slots[2], d = slots[3], e = slots[4], f = slots[5],
         g = slots[6];
  const auto order = [](double& x, double& y) {
    const double low = x < y ? x : y, high = x > y ? x : y;
    x = low;
    y = high;
  };
  order(a, g), order(c, d), order(e, f);
  order(a, c), order(b, e), order(d, g);
  order(a, b), order(c, f), order(d, e);
  order(b, c), order(e, g);
  order(c, d), order(e, f);
  order(b, c), order(d, e), order(f, g);
  // One by one from registers: a wider copy would wait for these stores.
  size_t i = 0;
  for (const double entry : {a, b, c, d, e, f, g}) out[i++] = std::bit_cast<uint64_t>(entry);
}

/// Puts entries that are nearly in order into the order of their keys. False: a key stands twice.
bool SortByKeys(const LeafParts& leaf, Entries* out) {
  const auto key = [&](size_t i) { return leaf.part(out->part(i)).key(out->slot(i)); };
  for (size_t i = 1; i < out->count; ++i) {
    for (size_t at = i; at > 0 && key(at - 1) >= key(at); --at) {
      if (key(at - 1) == key(at)) return false;
      std::swap(out->entries[at - 1], out->entries[at]);
    }
  }
  return true;
}

/// Of the entries of `part`, from `first` on: whether the way to each from its home is marked.
bool StraysAreMarked(const LeafParts& leaf, const LeafHomes& homes, size_t part,
                     const Entries& entries, size_t first) {
  const auto home = [&](size_t i) { return homes.Of(leaf.part(part).key(entries.slot(i))); };
  const auto marked = [&](size_t i) {
    return WayIsMarked(leaf, home(i), part) || Mutated(Mutation::kScanTrustsPlacementHint);
  };
  // In an ordered leaf homes are in the order of keys: those between two that are at home are, too.
  size_t i = first, end = entries.count;
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
             Entries* out) {
  const int shift = std::max(
      0, static_cast<int>(std::bit_width(range.high - 1 - range.low)) - Entries::kOffsetBits);
  const uint64_t first = wanted.first - range.low, span = wanted.end - wanted.first;
  uint64_t* const all = out->entries.data();
  size_t count = out->count = 0;
  for (PartMask rest = leaf.loaded(); rest != 0; rest &= rest - 1) {
    const auto p = static_cast<size_t>(std::countr_zero(rest));
    const ConstPart part = leaf.part(p);
    const uint64_t used = part.used(), base = Entries::kEntry | p << Entries::kSlotBits;
    uint64_t taken = 0;
    double slots[kPartSlots];
#pragma GCC unroll 7
    for (size_t slot = 0; slot < kPartSlots; ++slot) {
      const uint64_t offset = part.key(slot) - range.low;
      const uint64_t takes = uint64_t{offset - first < span} & used >> slot;
      const uint64_t mask = takes - 1;  // of those that are not taken: all bits
      const uint64_t entry = offset >> shift << Entries::kPlaceBits | base | slot;
      slots[slot] = std::bit_cast<double>((entry & ~mask) | (Entries::kNone & mask));
      taken += takes;
    }
    SortSlots(slots, all + count);
    out->count = count + taken;
    if (!StraysAreMarked(leaf, homes, p, *out, count)) return false;
    count = out->count;
  }
  if (!homes.ordered()) std::sort(all, all + count);
  // Parts of an ordered leaf are in order, but for what went past its home.
  bool equal = false;
  for (size_t i = 1; i < count; ++i) {
    const uint64_t entry = all[i];
    size_t at = i;
    for (; at > 0 && all[at - 1] > entry; --at) all[at] = all[at - 1];
    all[at] = entry;
    equal |= at > 0 && (all[at - 1] ^ entry) >> Entries::kPlaceBits == 0;
    equal |= at < i && (all[at + 1] ^ entry) >> Entries::kPlaceBits == 0;
  }
  return !equal || SortByKeys(leaf, out);
}

/// Without a call where the string has the length of all keys and values already.
inline void Assign8(const std::byte* bytes, std::string* out) {
  if (out->size() != 8) {
    ScanRows::Clear(out);
    out->assign(AsChars({bytes, 8}));
    return;
  }
  std::memcpy(out->data(), bytes, 8);
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
  const double usual =
      static_cast<double>(entries_per_leaf_x16_.load(std::memory_order_relaxed)) / 16;
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
  if (leaf.whole()) NoteLeafFill(leaf.count());
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
  Entries entries;
  if (!Collect(leaf, homes, range, taken, &entries)) return ScanTaken::kNoLeaf;
  const auto at = [&](size_t i) { return state.forward() ? i : entries.count - 1 - i; };
  const size_t count = std::min(entries.count, state.RowsMissing(kRowBytes));
  KeyValue* row = state.rows.Add(count);
  for (size_t i = 0; i < count; ++i, ++row) {
    const ConstPart part = leaf.part(entries.part(at(i)));
    const size_t slot = entries.slot(at(i));
    Assign8(part.key_bytes(slot), &row->key);
    Assign8(part.value(slot), &row->value);
  }
  state.bytes += count * kRowBytes;
  if (count < entries.count) {  // reverse: up to the key itself, exclusive
    const ConstPart part = leaf.part(entries.part(at(count)));
    const uint64_t key = part.key(entries.slot(at(count)));
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
