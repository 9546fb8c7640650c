// LeafHints: what this compute server remembers of leaves, one word a page of the data layer. What the
// bits say is for whoever reads leaves to decide.
//
// A word may be out of date, or be another leaf's that was at the same address before: whoever uses one
// finds out by what it reads (a checksum, a digest), so that a wrong hint costs time and nothing else.
//
// Invariants:
//   - the words of a chunk are allocated when the first of its pages is met, zero, and stay;
//   - Load costs one cache miss where the tables fit the nearer caches: a region's table has 8 bytes a
//     chunk, the words 8 bytes a page, and nothing is divided.
// Thread rule: thread-safe, with relaxed atomics: nothing else is ordered by them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dsm/address.h"
#include "dsm/region_layout.h"

namespace farleaf::index {

class LeafHints {
 public:
  /// `leaf_bytes`: of a leaf's page, a multiple of 64.
  LeafHints(uint32_t leaf_bytes, std::span<const dsm::RegionLayout> layouts);
  ~LeafHints();
  LeafHints(const LeafHints&) = delete;

  /// 0 if nothing is known, or the address is in no chunk.
  uint64_t Load(dsm::GlobalAddress leaf) const {
    const Place place = PlaceOf(leaf);
    if (!place.chunk) [[unlikely]]
      return 0;
    const Words words = place.chunk->load(std::memory_order_acquire);
    return words ? words[place.page].load(std::memory_order_relaxed) : 0;
  }
  /// Load is about to be called.
  void Prefetch(dsm::GlobalAddress leaf) const {
    const Place place = PlaceOf(leaf);
    if (!place.chunk) return;
    const Words words = place.chunk->load(std::memory_order_acquire);
    if (words) __builtin_prefetch(&words[place.page]);
  }
  /// The word becomes (word & ~clear_mask) | set_mask. Nothing for an address in no chunk. Where several
  /// threads change one word all the time, a change may be given up: it is a hint.
  void Update(dsm::GlobalAddress leaf, uint64_t clear_mask, uint64_t set_mask);

  /// All memory that this takes, as it was asked for.
  uint64_t bytes() const {
    return table_bytes_ + chunks_.load(std::memory_order_relaxed) * ChunkBytes();
  }

 private:
  using Words = std::atomic<uint64_t>*;
  struct Region {
    uint64_t first_chunk = 0;
    uint64_t chunk_count = 0;
    int chunk_shift = 0;
    std::unique_ptr<std::atomic<Words>[]> chunks;
  };
  struct Place {
    std::atomic<Words>* chunk = nullptr;
    uint64_t page = 0;
  };

  Place PlaceOf(dsm::GlobalAddress leaf) const {
    if (leaf.server() >= regions_.size()) [[unlikely]]
      return {};
    const Region& region = regions_[leaf.server()];
    const uint64_t offset = leaf.offset() - region.first_chunk;  // wraps below first_chunk
    const uint64_t chunk = offset >> region.chunk_shift;
    if (chunk >= region.chunk_count) [[unlikely]]
      return {};
    const uint64_t units = (offset & ((uint64_t{1} << region.chunk_shift) - 1)) / 64;
    return {&region.chunks[chunk], units * reciprocal_ >> 32};
  }
  uint64_t ChunkBytes() const { return words_per_chunk_ * sizeof(uint64_t); }

  std::vector<Region> regions_;  // index: server id
  uint64_t reciprocal_;          ///< 2^32 / (leaf_bytes / 64), rounded up
  uint64_t words_per_chunk_ = 0;
  uint64_t table_bytes_ = 0;
  std::atomic<uint64_t> chunks_{0};  ///< that have words
};

}  // namespace farleaf::index
