// ValueHints: where this compute server last saw the out-of-line value of a key: its block, and how long
// that is. A get reads the block beside the leaf, in one round trip, and the leaf decides.
//
// One word a hint, in sets of eight that fill a cache line:
//
//   low bits           the block's name (block_name.h); 0: no hint
//   one bit            used since it was last passed over for replacement
//   the rest           of the hash of tree and key, whatever bits are left: 11 in a pool of 2^48 bytes
//
// A hint may be out of date, or another key's whose hash agrees: whoever uses one finds out by the unique id
// that the leaf names. The block was one when the hint was noted, so that it can be read at any time.
//
// Replacement: an empty place of the set; else one that was not used since it was last passed over; the
// marks of those passed over go. So what is read once, by however many, does not drive out what is read
// often.
// Invariants: no more than the bytes that it was given, which are allocated when the first hint is noted.
// Thread rule: thread-safe, with relaxed atomics: nothing else is ordered by them, and a hint is one word.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "dsm/region_layout.h"
#include "index/blink/block_name.h"
#include "index/blink/fence_digest.h"

namespace farleaf::index {

class ValueHints {
 public:
  /// `bytes_max`: less than one set's 64: there are no hints.
  ValueHints(uint64_t bytes_max, std::span<const dsm::RegionLayout> layouts);
  ~ValueHints();
  ValueHints(const ValueHints&) = delete;

  bool enabled() const { return set_bits_ >= 0; }
  static uint64_t HashOf(TreeId tree, std::string_view key) {
    return internal::DigestBytes(internal::kDigestKeys[0] ^ tree, key);
  }
  std::optional<ValueHint> Find(uint64_t hash) const;
  /// The key's value is there. Nothing is noted of a block that has no name.
  void Note(uint64_t hash, ValueHint hint);
  /// The key has no out-of-line value.
  void Forget(uint64_t hash);

  /// What was allocated; that of it where no hint was noted takes no memory.
  uint64_t bytes() const { return sets_.load(std::memory_order_relaxed) ? SetsBytes() : 0; }

 private:
  static constexpr size_t kSetHints = 8;
  static constexpr int kTagBitsMin = 8;
  struct alignas(64) Set {
    uint64_t hints[kSetHints];  ///< through std::atomic_ref
  };

  uint64_t SetsBytes() const { return sizeof(Set) << set_bits_; }
  uint64_t TagOf(uint64_t hash) const { return hash >> tag_shift_ << tag_shift_; }
  bool Matches(uint64_t word, uint64_t tag) const {
    return word != 0 && word >> tag_shift_ << tag_shift_ == tag;
  }
  /// The tag is of the hash's high bits, the set of its low ones.
  Set* SetOf(uint64_t hash) const {
    Set* const sets = sets_.load(std::memory_order_acquire);
    return sets ? &sets[hash & ((uint64_t{1} << set_bits_) - 1)] : nullptr;
  }
  Set* Sets();

  BlockNames names_;
  const uint64_t used_;  ///< the bit that says so
  const int tag_shift_;
  int set_bits_ = -1;                   ///< -1: no hints
  std::atomic<void*> memory_{nullptr};  ///< that the sets lie in
  std::atomic<Set*> sets_{nullptr};
};

}  // namespace farleaf::index
