#include "dsm/page_class.h"

#include <algorithm>
#include <bit>

#include "dsm/base/check.h"

namespace farleaf::dsm {

namespace {

constexpr uint32_t kFirstLeafList = 128;
constexpr uint32_t kFirstValueList = 256;

/// The size class at or above `bytes`, unbounded.
constexpr uint64_t RoundUpToValueBlock(uint64_t bytes) {
  if (bytes <= kPageBytesMin) return kPageBytesMin;
  const uint64_t step = std::max<uint64_t>(64, std::bit_floor(bytes - 1) / 4);
  return RoundUp(bytes, step);
}

/// 0 for 128 B, then one a size: 128, 192, 256, 320, 384, 448, 512, 640, …
constexpr uint32_t ValueBlockIndex(uint64_t block_bytes) {
  if (block_bytes < 256) return static_cast<uint32_t>(block_bytes / 64) - 2;
  const auto doubling = static_cast<uint32_t>(std::bit_width(block_bytes)) - 9;  // 256: 0
  const uint64_t floor = uint64_t{256} << doubling;
  return 2 + doubling * 4 + static_cast<uint32_t>((block_bytes - floor) / (floor / 4));
}
static_assert(ValueBlockIndex(192) == 1 && ValueBlockIndex(256) == 2 && ValueBlockIndex(448) == 5 &&
              ValueBlockIndex(512) == 6 && ValueBlockIndex(640) == 7);
static_assert(RoundUpToValueBlock(kValueBlockBytesMax) == kValueBlockBytesMax);
static_assert(kValueBlockBytesMax / 64 <= UINT16_MAX);
static_assert(kFirstValueList + ValueBlockIndex(kValueBlockBytesMax) < kFreeListsMax);
static_assert(kPageBytesMax / 64 <= kFirstValueList - kFirstLeafList);
static_assert(kTreesMax <= kFirstLeafList);

/// Pages at the start of a search chunk that hold the change counters.
uint64_t CounterPages(const PageClass& page_class, uint64_t chunk_bytes) {
  if (page_class.kind != ChunkKind::kSearch) return 0;
  const uint64_t pages = chunk_bytes / page_class.page_bytes;
  // The least h with 8 * (pages - h) <= h * page_bytes.
  return (8 * pages + page_class.page_bytes + 7) / (page_class.page_bytes + 8);
}

}  // namespace

ChunkWord ChunkWordOf(const PageClass& page_class) {
  return {.kind = page_class.kind,
          .page_units = static_cast<uint16_t>(page_class.page_bytes / 64),
          .tree = page_class.tree};
}

std::optional<PageClass> PageClassOf(const ChunkWord& chunk) {
  const PageClass page_class{chunk.kind, uint32_t{chunk.page_units} * 64, chunk.tree};
  if (!IsValid(page_class)) return std::nullopt;
  return page_class;
}

bool IsValid(const PageClass& page_class) {
  const uint32_t bytes = page_class.page_bytes;
  if (bytes % 64 != 0 || bytes < kPageBytesMin) return false;
  switch (page_class.kind) {
    case ChunkKind::kLeaf:
      return bytes <= kPageBytesMax && page_class.tree == 0;
    case ChunkKind::kSearch:
      return bytes <= kPageBytesMax && page_class.tree >= 1 && page_class.tree <= kTreesMax;
    case ChunkKind::kValue:
      return bytes <= kValueBlockBytesMax && RoundUpToValueBlock(bytes) == bytes &&
             page_class.tree == 0;
    default:
      return false;
  }
}

uint32_t FreeListIndex(const PageClass& page_class) {
  FARLEAF_CHECK(IsValid(page_class), static_cast<int>(page_class.kind), page_class.page_bytes,
                page_class.tree);
  switch (page_class.kind) {
    case ChunkKind::kSearch:
      return page_class.tree - 1u;
    case ChunkKind::kLeaf:
      return kFirstLeafList + page_class.page_bytes / 64 - 1;
    default:
      return kFirstValueList + ValueBlockIndex(page_class.page_bytes);
  }
}

uint64_t PageOffsetInChunk(const PageClass& page_class, uint64_t chunk_bytes, uint64_t index) {
  return (CounterPages(page_class, chunk_bytes) + index) * page_class.page_bytes;
}

uint64_t PagesPerChunk(const PageClass& page_class, uint64_t chunk_bytes) {
  return chunk_bytes / page_class.page_bytes - CounterPages(page_class, chunk_bytes);
}

std::optional<uint64_t> PageIndexInChunk(const PageClass& page_class, uint64_t chunk_bytes,
                                         uint64_t offset_in_chunk) {
  if (offset_in_chunk % page_class.page_bytes != 0) return std::nullopt;
  const uint64_t first = CounterPages(page_class, chunk_bytes);
  const uint64_t page = offset_in_chunk / page_class.page_bytes;
  if (page < first || page >= chunk_bytes / page_class.page_bytes) return std::nullopt;
  return page - first;
}

std::optional<uint32_t> ValueBlockBytes(uint64_t bytes, uint64_t chunk_bytes) {
  const uint64_t bytes_max = std::min<uint64_t>(chunk_bytes, kValueBlockBytesMax);
  if (bytes > bytes_max) return std::nullopt;
  const uint64_t block = RoundUpToValueBlock(bytes);
  FARLEAF_CHECK(block <= bytes_max, bytes, chunk_bytes);  // both bounds are size classes themselves
  return static_cast<uint32_t>(block);
}

}  // namespace farleaf::dsm
