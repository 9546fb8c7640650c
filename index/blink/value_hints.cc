#include "index/blink/value_hints.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "dsm/base/check.h"

namespace farleaf::index {

ValueHints::ValueHints(uint64_t bytes_max, std::span<const dsm::RegionLayout> layouts)
    : names_(layouts), used_(uint64_t{1} << names_.bits()), tag_shift_(names_.bits() + 1) {
  static_assert(BlockNames::kBitsMax + 1 <= 64 - kTagBitsMin);
  if (bytes_max < sizeof(Set)) return;
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
    if ((word & used_) == 0) {
      place.compare_exchange_strong(word, word | used_, std::memory_order_relaxed);
      if (!Matches(word, tag)) continue;
    }
    return names_.BlockOf(word & (used_ - 1));
  }
  return std::nullopt;
}

void ValueHints::Note(uint64_t hash, ValueHint hint) {
  const uint64_t name = enabled() ? names_.NameOf(hint) : 0;
  if (name == 0) return;
  Set* const sets = Sets();
  if (!sets) return;
  Set& set = sets[hash & ((uint64_t{1} << set_bits_) - 1)];
  const uint64_t tag = TagOf(hash);
  const uint64_t fresh = tag | name;
  uint64_t* empty = nullptr;
  for (uint64_t& stored : set.hints) {
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
    return;
  }
  // Any place to begin at, so that not always the same ones are passed over.
  const size_t begin = (hash >> 32 ^ name) % kSetHints;
  for (size_t i = 0; i < kSetHints; ++i) {
    const std::atomic_ref<uint64_t> place(set.hints[(begin + i) % kSetHints]);
    uint64_t word = place.load(std::memory_order_relaxed);
    if ((word & used_) == 0) {
      place.store(fresh, std::memory_order_relaxed);
      return;
    }
    place.compare_exchange_strong(word, word & ~used_, std::memory_order_relaxed);
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
