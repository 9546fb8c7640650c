#include "index/blink/leaf_hints.h"

#include <algorithm>
#include <bit>

#include "dsm/base/check.h"

namespace farleaf::index {

namespace {
constexpr uint64_t kUnitsPerChunkMax = dsm::kChunkBytesMax / 64;
constexpr uint64_t kUnitsPerPageMax = 256;
// units * ceil(2^32 / d) >> 32 is units / d, if the error of the reciprocal, less than 1, times units
// does not reach 2^32 / d.
static_assert(kUnitsPerChunkMax * kUnitsPerPageMax < uint64_t{1} << 32);
constexpr int kAttemptsMax = 8;
}  // namespace

LeafHints::LeafHints(uint32_t leaf_bytes, std::span<const dsm::RegionLayout> layouts) {
  const uint64_t units = leaf_bytes / 64;
  FARLEAF_CHECK(leaf_bytes % 64 == 0 && units >= 1 && units <= kUnitsPerPageMax, leaf_bytes);
  reciprocal_ = ((uint64_t{1} << 32) + units - 1) / units;
  for (const dsm::RegionLayout& layout : layouts) {
    FARLEAF_CHECK(std::has_single_bit(layout.chunk_bytes), layout.chunk_bytes);
    if (regions_.size() <= layout.server) regions_.resize(layout.server + size_t{1});
    Region& region = regions_[layout.server];
    region.first_chunk = layout.first_chunk;
    region.chunk_count = layout.chunk_count;
    region.chunk_shift = std::countr_zero(layout.chunk_bytes);
    region.chunks = std::make_unique<std::atomic<Words>[]>(layout.chunk_count);
    table_bytes_ += layout.chunk_count * sizeof(std::atomic<Words>);
    words_per_chunk_ = std::max(words_per_chunk_, layout.chunk_bytes / leaf_bytes + 1);
  }
}

LeafHints::~LeafHints() {
  for (Region& region : regions_) {
    for (uint64_t i = 0; i < region.chunk_count; ++i) delete[] region.chunks[i].load();
  }
}

void LeafHints::Update(dsm::GlobalAddress leaf, uint64_t clear_mask, uint64_t set_mask) {
  const Place place = PlaceOf(leaf);
  if (!place.chunk) return;
  Words words = place.chunk->load(std::memory_order_acquire);
  if (!words) {
    auto fresh = std::make_unique<std::atomic<uint64_t>[]>(words_per_chunk_);
    // Released: who finds the pointer finds zeros behind it.
    if (place.chunk->compare_exchange_strong(words, fresh.get(), std::memory_order_acq_rel)) {
      words = fresh.release();
      chunks_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  std::atomic<uint64_t>& word = words[place.page];
  uint64_t old = word.load(std::memory_order_relaxed);
  for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const uint64_t changed = (old & ~clear_mask) | set_mask;
    if (changed == old) return;  // the line stays shared among threads
    if (word.compare_exchange_strong(old, changed, std::memory_order_relaxed)) return;
  }
}

}  // namespace farleaf::index
