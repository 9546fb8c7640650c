#include "index/blink/value_hints.h"

#include <algorithm>
#include <bit>

#include "dsm/base/check.h"

namespace farleaf::index {

namespace {
constexpr uint64_t kUnitBytes = 64;
constexpr int kTagBitsMin = 8;
}  // namespace

ValueHints::ValueHints(uint64_t bytes_max, std::span<const dsm::RegionLayout> layouts) {
  uint64_t units = 0;
  for (const dsm::RegionLayout& layout : layouts) {
    if (first_unit_.size() <= layout.server) first_unit_.resize(layout.server + size_t{1}, units);
    first_unit_[layout.server] = units;
    units += (layout.first_chunk + layout.chunk_count * layout.chunk_bytes) / kUnitBytes;
  }
  first_unit_.push_back(units);
  tag_shift_ = kUnitShift + std::bit_width(units);
  if (bytes_max < sizeof(Set) || tag_shift_ > 64 - kTagBitsMin) return;
  set_bits_ = std::bit_width(bytes_max / sizeof(Set)) - 1;
}

ValueHints::~ValueHints() { delete[] sets_.load(); }

ValueHints::Set* ValueHints::Sets() {
  Set* sets = sets_.load(std::memory_order_acquire);
  if (sets) [[likely]]
    return sets;
  auto fresh = std::make_unique<Set[]>(uint64_t{1} << set_bits_);
  // Released: who finds the pointer finds zeros behind it.
  if (!sets_.compare_exchange_strong(sets, fresh.get(), std::memory_order_acq_rel)) return sets;
  return fresh.release();
}

std::optional<ValueHint> ValueHints::Find(uint64_t hash) const {
  if (!enabled()) return std::nullopt;
  Set* const set = SetOf(hash);
  if (!set) return std::nullopt;
  const uint64_t tag = TagOf(hash);
  for (std::atomic<uint64_t>& place : set->hints) {
    uint64_t word = place.load(std::memory_order_relaxed);
    if (!Matches(word, tag)) continue;
    // Swapped, not stored: another hint may stand there by now. The line stays shared if it is marked.
    if ((word & kUsed) == 0) {
      place.compare_exchange_strong(word, word | kUsed, std::memory_order_relaxed);
      if (!Matches(word, tag)) continue;
    }
    const uint64_t unit = (word & ((uint64_t{1} << tag_shift_) - 1)) >> kUnitShift;
    const auto next = std::upper_bound(first_unit_.begin(), first_unit_.end(), unit);
    const auto server = static_cast<dsm::ServerId>(next - first_unit_.begin() - 1);
    return ValueHint{{server, (unit - first_unit_[server]) * kUnitBytes},
                     static_cast<uint32_t>(word & kLengthMask) * 8};
  }
  return std::nullopt;
}

void ValueHints::Note(uint64_t hash, ValueHint hint) {
  const uint64_t offset = hint.block.offset();
  if (!enabled() || hint.bytes > kBlockBytesMax || offset % kUnitBytes != 0) return;
  const dsm::ServerId server = hint.block.server();
  if (server + size_t{1} >= first_unit_.size()) return;
  const uint64_t unit = first_unit_[server] + offset / kUnitBytes;
  if (unit + (hint.bytes + kUnitBytes - 1) / kUnitBytes > first_unit_[server + size_t{1}]) return;
  Set& set = Sets()[hash & ((uint64_t{1} << set_bits_) - 1)];
  const uint64_t tag = TagOf(hash);
  const uint64_t fresh = tag | unit << kUnitShift | hint.bytes / 8;
  std::atomic<uint64_t>* empty = nullptr;
  for (std::atomic<uint64_t>& place : set.hints) {
    const uint64_t word = place.load(std::memory_order_relaxed);
    if (Matches(word, tag)) {
      if ((word | kUsed) != (fresh | kUsed)) place.store(fresh | kUsed, std::memory_order_relaxed);
      return;
    }
    if (word == 0 && !empty) empty = &place;
  }
  if (empty) {
    empty->store(fresh, std::memory_order_relaxed);
    return;
  }
  // Any place to begin at, so that not always the same ones are passed over.
  const size_t begin = (hash >> 32 ^ unit) % kSetHints;
  for (size_t i = 0; i < kSetHints; ++i) {
    std::atomic<uint64_t>& place = set.hints[(begin + i) % kSetHints];
    uint64_t word = place.load(std::memory_order_relaxed);
    if ((word & kUsed) == 0) {
      place.store(fresh, std::memory_order_relaxed);
      return;
    }
    place.compare_exchange_strong(word, word & ~kUsed, std::memory_order_relaxed);
  }
  set.hints[begin].store(fresh, std::memory_order_relaxed);
}

void ValueHints::Forget(uint64_t hash) {
  if (!enabled()) return;
  Set* const set = SetOf(hash);
  if (!set) return;
  for (std::atomic<uint64_t>& place : set->hints) {
    uint64_t word = place.load(std::memory_order_relaxed);
    if (Matches(word, TagOf(hash))) {
      place.compare_exchange_strong(word, 0, std::memory_order_relaxed);
    }
  }
}

}  // namespace farleaf::index
