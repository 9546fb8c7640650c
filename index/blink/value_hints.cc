#include "index/blink/value_hints.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace farleaf::index {

ValueHints::ValueHints(uint64_t bytes_max, std::span<const dsm::RegionLayout> layouts)
    : names_(layouts), used_(uint64_t{1} << names_.bits()), tag_shift_(names_.bits() + 1) {
  static_assert(BlockNames::kBitsMax + 1 <= 64 - 8);
  sets_max_ = bytes_max / sizeof(Set);
  if (sets_max_ == 0) return;
  const int whole_bits = std::bit_width(sets_max_) - 1;  // rounded down
  const int growth_bits = std::max(0, 64 - tag_shift_ - kTagBitsMin);
  first_bits_ = std::max(std::min(kFirstSetBits, whole_bits),
                         static_cast<int>(std::bit_width(sets_max_ - 1)) - growth_bits);
  if (first_bits_ > whole_bits) {
    first_bits_ = whole_bits;
    sets_max_ = uint64_t{1} << whole_bits;
  }
}

ValueHints::~ValueHints() {
  for (const Segment& segment : segments_) std::free(segment.memory);
}

uint64_t ValueHints::SegmentOf(uint64_t index) const {
  return static_cast<uint64_t>(std::bit_width(index >> first_bits_));
}

ValueHints::Set* ValueHints::SetAt(uint64_t index) const {
  const uint64_t segment = SegmentOf(index);
  Set* const sets = segments_[segment].sets.load(std::memory_order_acquire);
  const uint64_t first = segment == 0 ? 0 : std::bit_floor(index);
  return sets ? sets + (index - first) : nullptr;
}

ValueHints::Set* ValueHints::SetOf(uint64_t hash) const {
  const uint64_t sets = sets_.load(std::memory_order_relaxed);
  if (sets == 0) return nullptr;
  const uint64_t half = std::bit_floor(sets);
  uint64_t index = hash & (2 * half - 1);
  if (index >= sets) index &= half - 1;  // its set is not split yet
  return SetAt(index);
}

ValueHints::Set* ValueHints::MakeSet(uint64_t index) {
  const uint64_t number = SegmentOf(index);
  Segment& segment = segments_[number];
  if (!segment.memory) {
    const uint64_t first = number == 0 ? 0 : std::bit_floor(index);
    const uint64_t end = std::min(uint64_t{1} << (first_bits_ + number), sets_max_);
    // Not written here: what is large is zero already, and takes memory page by page as sets are split.
    segment.memory = std::calloc(end - first + 1, sizeof(Set));
    if (!segment.memory) return nullptr;
    const uint64_t aligned =
        (reinterpret_cast<uintptr_t>(segment.memory) + sizeof(Set) - 1) & ~(sizeof(Set) - 1);
    segment.sets.store(reinterpret_cast<Set*>(aligned), std::memory_order_release);
  }
  return SetAt(index);
}

void ValueHints::Grow() {
  if (growing_.test_and_set(std::memory_order_acquire)) return;  // somebody else does
  const uint64_t sets = sets_.load(std::memory_order_relaxed);
  if (sets == 0) {
    const uint64_t first = uint64_t{1} << first_bits_;
    if (MakeSet(0)) sets_.store(first, std::memory_order_release);
  } else if (sets < sets_max_) {
    // Without memory it stays as it is.
    if (Set* const fresh = MakeSet(sets)) Split(sets, *fresh);
  }
  growing_.clear(std::memory_order_release);
}

void ValueHints::Split(uint64_t sets, Set& fresh) {
  const uint64_t half = std::bit_floor(sets);
  Set& old = *SetAt(sets - half);
  const int bit = tag_shift_ + std::bit_width(half) - 1 - first_bits_;
  const auto moves = [bit](uint64_t word) { return word != 0 && (word >> bit & 1) != 0; };
  for (size_t i = 0; i < kSetHints; ++i) {
    const uint64_t word = std::atomic_ref(old.hints[i]).load(std::memory_order_relaxed);
    if (moves(word)) std::atomic_ref(fresh.hints[i]).store(word, std::memory_order_relaxed);
  }
  sets_.store(sets + 1, std::memory_order_release);
  // Only now, so that they are found meanwhile.
  for (uint64_t& stored : old.hints) {
    const std::atomic_ref<uint64_t> place(stored);
    uint64_t word = place.load(std::memory_order_relaxed);
    while (moves(word) && !place.compare_exchange_weak(word, 0, std::memory_order_relaxed)) {
    }
  }
}

std::optional<ValueHint> ValueHints::Find(uint64_t hash) const {
  Set* const set = SetOf(hash);
  if (!set) return std::nullopt;
  const uint64_t tag = TagOf(hash);
  for (uint64_t& stored : set->hints) {
    const std::atomic_ref<uint64_t> place(stored);
    uint64_t word = place.load(std::memory_order_relaxed);
    if (!Matches(word, tag)) continue;
    // Swapped, not stored: another hint may stand there by now. The line stays shared if it is marked.
    if ((word & used_) == 0) {
      place.compare_exchange_strong(word, word | used_, std::memory_order_relaxed);
      if (!Matches(word, tag)) continue;
    }
    return names_.BlockOf(word & (used_ - 1));
  }
  return std::nullopt;
}

void ValueHints::Prefetch(uint64_t hash) const {
  if (Set* const set = SetOf(hash)) {
    __builtin_prefetch(&set->hints[0], 1);
    __builtin_prefetch(&set->hints[kSetHints / 2], 1);
    asm volatile("" ::"r"(set));  // GCC drops calls of a function that does nothing but prefetch
  }
}

void ValueHints::Note(uint64_t hash, ValueHint hint) {
  const uint64_t name = enabled() ? names_.NameOf(hint) : 0;
  if (name == 0) return;
  Set* set = SetOf(hash);
  if (!set) [[unlikely]] {
    Grow();
    set = SetOf(hash);
    if (!set) return;
  }
  const uint64_t tag = TagOf(hash);
  const uint64_t fresh = tag | name;
  uint64_t* empty = nullptr;
  for (uint64_t& stored : set->hints) {
    const std::atomic_ref<uint64_t> place(stored);
    const uint64_t word = place.load(std::memory_order_relaxed);
    if (Matches(word, tag)) {
      if ((word | used_) != (fresh | used_)) place.store(fresh | used_, std::memory_order_relaxed);
      return;
    }
    if (word == 0 && !empty) empty = &stored;
  }
  if (empty) {
    std::atomic_ref(*empty).store(fresh, std::memory_order_relaxed);
    const int64_t hints = hints_.fetch_add(1, std::memory_order_relaxed);
    const uint64_t fill_max = sets_.load(std::memory_order_relaxed) * kSetFill;
    if (hints >= static_cast<int64_t>(fill_max)) Grow();
    return;
  }
  Grow();  // for those that come
  // Any place to begin at, so that not always the same ones are passed over.
  const size_t begin = (hash >> 32 ^ name) % kSetHints;
  for (size_t i = 0; i < kSetHints; ++i) {
    const std::atomic_ref<uint64_t> place(set->hints[(begin + i) % kSetHints]);
    uint64_t word = place.load(std::memory_order_relaxed);
    if ((word & used_) == 0) {
      place.store(fresh, std::memory_order_relaxed);
      return;
    }
    place.compare_exchange_strong(word, word & ~used_, std::memory_order_relaxed);
  }
  std::atomic_ref(set->hints[begin]).store(fresh, std::memory_order_relaxed);
}

void ValueHints::Forget(uint64_t hash) {
  Set* const set = SetOf(hash);
  if (!set) return;
  for (uint64_t& stored : set->hints) {
    const std::atomic_ref<uint64_t> place(stored);
    uint64_t word = place.load(std::memory_order_relaxed);
    if (Matches(word, TagOf(hash)) &&
        place.compare_exchange_strong(word, 0, std::memory_order_relaxed)) {
      hints_.fetch_sub(1, std::memory_order_relaxed);
    }
  }
}

}  // namespace farleaf::index
