// ValueHints: where this compute server last saw the out-of-line value of a key: its block, and how long
// that is. A get reads the block beside the leaf, in one round trip, and the leaf decides.
//
// One word a hint, in sets of sixteen that fill two cache lines, which processors fetch together:
//
//   low bits           the block's name (block_name.h); 0: no hint
//   one bit            used since it was last passed over for replacement
//   the rest           of the hash of tree and key, whatever bits are left: 23 in a pool of 64 GiB
//
// A hint may be out of date, or another key's whose hash agrees: whoever uses one finds out by the unique id
// that the leaf names. The block was one when the hint was noted, so that it can be read at any time.
//
// The table grows with what is met (linear hashing): beyond five hints a set each new one has a set split in
// two, and so has each that takes another one's place; the sets in their order, so that no operation waits for more
// than that. Which half a hint goes to its
// word tells, for the hash's bits in it begin where the table's size did; as many of them as the table may grow
// tell keys of a set apart no more, so that where a large pool leaves few, the table begins large.
//
// Replacement: an empty place of the set; else one that was not used since it was last passed over; the
// marks of those passed over go. So what is read once, by however many, does not drive out what is read
// often.
// Invariants: no more than the bytes that it was given; sets never move, nor does their number fall.
// Thread rule: thread-safe, with relaxed atomics: nothing else is ordered by them, and a hint is one word. Who
// looks into a set that is being split may miss a hint, or leave one where nobody looks: either is as if it
// had not been noted.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "dsm/base/random.h"
#include "dsm/region_layout.h"
#include "index/blink/block_name.h"
#include "index/blink/fence_digest.h"

namespace farleaf::index {

class ValueHints {
 public:
  /// `bytes_max`: less than one set's 128: there are no hints.
  ValueHints(uint64_t bytes_max, std::span<const dsm::RegionLayout> layouts);
  ~ValueHints();
  ValueHints(const ValueHints&) = delete;

  bool enabled() const { return sets_max_ > 0; }
  static uint64_t HashOf(TreeId tree, std::string_view key) {
    // Mixed once more: of keys that differ in few last bytes the digest's bits are not spread evenly.
    return Mix64(internal::DigestBytes(internal::kDigestKeys[0] ^ tree, key));
  }
  std::optional<ValueHint> Find(uint64_t hash) const;
  /// Find or Note is about to be called.
  void Prefetch(uint64_t hash) const;
  /// The key's value is there. Nothing is noted of a block that has no name.
  void Note(uint64_t hash, ValueHint hint);
  /// The key has no out-of-line value.
  void Forget(uint64_t hash);

  /// Of the sets in use; other memory that is allocated was never written.
  uint64_t bytes() const { return sets_.load(std::memory_order_relaxed) * sizeof(Set); }

 private:
  static constexpr size_t kSetHints = 16;
  /// Of a set, on average, beyond which the table grows. Sets that are not split yet have twice as many as the others:
  /// of hints noted once 0.2 % find no place, and of those noted whenever they are missed 0.03 %.
  static constexpr uint64_t kSetFill = 5;
  static constexpr int kFirstSetBits = 5;
  /// Of the hash, that tell keys of a set apart however far the table has grown, where a word has as many.
  static constexpr int kTagBitsMin = 12;
  static constexpr size_t kSegmentsMax = 64;
  struct alignas(128) Set {
    uint64_t hints[kSetHints];  ///< through std::atomic_ref
  };
  /// Sets are allocated in segments, each of which doubles the table.
  struct Segment {
    std::atomic<Set*> sets{nullptr};
    void* memory = nullptr;  ///< that they lie in
  };

  uint64_t TagOf(uint64_t hash) const { return hash >> first_bits_ << tag_shift_; }
  bool Matches(uint64_t word, uint64_t tag) const {
    return word != 0 && word >> tag_shift_ << tag_shift_ == tag;
  }
  /// nullptr: nothing was noted there yet.
  Set* SetOf(uint64_t hash) const;
  Set* SetAt(uint64_t index) const;
  /// The same; allocates it. nullptr: there is no memory.
  Set* MakeSet(uint64_t index);
  uint64_t SegmentOf(uint64_t index) const;
  void Grow();
  void Split(uint64_t sets, Set& fresh);

  BlockNames names_;
  const uint64_t used_;  ///< the bit that says so
  const int tag_shift_;
  uint64_t sets_max_ = 0;
  int first_bits_ = 0;  ///< of the index of a set, in the table as it begins
  std::atomic<uint64_t> sets_{0};
  std::array<Segment, kSegmentsMax> segments_;
  alignas(64) std::atomic<int64_t> hints_{0};  ///< about as many are there
  std::atomic_flag growing_{};                 ///< guards growth: segments, save their pointers
};

}  // namespace farleaf::index
