#include "index/blink/value_hints.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

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

ValueHints::~ValueHints() { std::free(memory_.load()); }

ValueHints::Set* ValueHints::Sets() {
  Set* sets = sets_.load(std::memory_order_acquire);
  if (sets) [[likely]]
    return sets;
  // Not written here: what is large is zero already, and takes memory page by page as hints are noted.
  void* const fresh = std::calloc(1, SetsBytes() + sizeof(Set));
  if (!fresh) return nullptr;  // then there are no hints
  void* memory = nullptr;
  if (!memory_.compare_exchange_strong(memory, fresh, std::memory_order_acq_rel)) {
    std::free(fresh);
  } else {
    memory = fresh;
  }
  const uint64_t first =
      (reinterpret_cast<uintptr_t>(memory) + sizeof(Set) - 1) & ~(sizeof(Set) - 1);
  sets = reinterpret_cast<Set*>(first);
  sets_.store(sets, std::memory_order_release);  // whoever else stores it stores the same
  return sets;
}

std::optional<ValueHint> ValueHints::Find(uint64_t hash) const {
  if (!enabled()) return std::nullopt;
  Set* const set = SetOf(hash);
  if (!set) return std::nullopt;
  const uint64_t tag = TagOf(hash);
  for (uint64_t& stored : set->hints) {
    const std::atomic_ref<uint64_t> place(stored);
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
  Set* const sets = Sets();
  if (!sets) return;
  Set& set = sets[hash & ((uint64_t{1} << set_bits_) - 1)];
  const uint64_t tag = TagOf(hash);
  const uint64_t fresh = tag | unit << kUnitShift | hint.bytes / 8;
  uint64_t* empty = nullptr;
  for (uint64_t& stored : set.hints) {
    const std::atomic_ref<uint64_t> place(stored);
    const uint64_t word = place.load(std::memory_order_relaxed);
    if (Matches(word, tag)) {
      if ((word | kUsed) != (fresh | kUsed)) place.store(fresh | kUsed, std::memory_order_relaxed);
      return;
    }
    if (word == 0 && !empty) empty = &stored;
  }
  if (empty) {
    std::atomic_ref(*empty).store(fresh, std::memory_order_relaxed);
    return;
  }
  // Any place to begin at, so that not always the same ones are passed over.
  const size_t begin = (hash >> 32 ^ unit) % kSetHints;
  for (size_t i = 0; i < kSetHints; ++i) {
    const std::atomic_ref<uint64_t> place(set.hints[(begin + i) % kSetHints]);
    uint64_t word = place.load(std::memory_order_relaxed);
    if ((word & kUsed) == 0) {
      place.store(fresh, std::memory_order_relaxed);
      return;
    }
    place.compare_exchange_strong(word, word & ~kUsed, std::memory_order_relaxed);
  }
  std::atomic_ref(set.hints[begin]).store(fresh, std::memory_order_relaxed);
}

void ValueHints::Forget(uint64_t hash) {
  if (!enabled()) return;
  Set* const set = SetOf(hash);
  if (!set) return;
  for (uint64_t& stored : set->hints) {
    const std::atomic_ref<uint64_t> place(stored);
    uint64_t word = place.load(std::memory_order_relaxed);
    if (Matches(word, TagOf(hash))) {
      place.compare_exchange_strong(word, 0, std::memory_order_relaxed);
    }
  }
}

}  // namespace farleaf::index
