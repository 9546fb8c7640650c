// PageClass: which pages of the pool are interchangeable, and where they lie in a chunk.
//
// A page class is (kind, page size, tree). Search-layer pages belong to one tree; leaf pages and
// value blocks of one size serve every tree.
//
// Layout of a search chunk: u64 change counter for each page, in page order, padded to a whole
// number of pages; then the pages. Other chunks: pages from the first byte on; what is left at the
// end is unused.
//
// Thread rule: pure functions and value types.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "dsm/region_layout.h"

namespace farleaf::dsm {

struct PageClass {
  ChunkKind kind = ChunkKind::kUnused;  ///< kLeaf, kSearch or kValue
  uint32_t page_bytes = 0;              ///< a multiple of 64; for kValue one of ValueBlockBytes()
  uint16_t tree = 0;                    ///< kSearch only
  auto operator<=>(const PageClass&) const = default;
};

inline constexpr uint32_t kPageBytesMin = 128;
/// Of a leaf or search page. (Pages that are written under locks are a little smaller: a redo slot
/// holds after-image and head, dsm/redo_record.h.)
inline constexpr uint32_t kPageBytesMax = kRedoSlotBytes;
inline constexpr uint16_t kTreesMax = 128;  ///< tree ids are 1..128, so that each has a free list
/// The greatest value block that ChunkWord::page_units can name. Chunks may be larger.
inline constexpr uint32_t kValueBlockBytesMax = 7 << 19;

/// The chunk word of a chunk of this class (without owner), and back. nullopt if the word names no
/// valid class.
ChunkWord ChunkWordOf(const PageClass& page_class);
std::optional<PageClass> PageClassOf(const ChunkWord& chunk);

/// Whether a page of this class can exist: sizes and tree id are within their limits.
bool IsValid(const PageClass& page_class);

/// The pool's free list for this class, the same on every server: 0..511. REQUIRES: IsValid.
///   0..127    search pages of tree 1..128 (a tree has one page size)
///   128..255  leaf pages of 64 B x (1..128)
///   256..511  value blocks, one a size
uint32_t FreeListIndex(const PageClass& page_class);

/// Where a page's lock word (a block's block word) is, from the page's first byte.
inline uint64_t LockWordOffset(const PageClass& page_class) {
  return page_class.kind == ChunkKind::kValue ? 0 : page_class.page_bytes - 8;
}

/// Where a page of the tree has its version, from the page's first byte: at the end of its image, which is
/// so in every layout.
inline uint64_t VersionOffset(const PageClass& page_class) { return page_class.page_bytes - 16; }

/// Offset in its chunk of page `index` of a chunk of class `page_class`, and how many fit.
uint64_t PageOffsetInChunk(const PageClass& page_class, uint64_t chunk_bytes, uint64_t index);
uint64_t PagesPerChunk(const PageClass& page_class, uint64_t chunk_bytes);
/// Index of the page at `offset_in_chunk`; nullopt if no page begins there.
std::optional<uint64_t> PageIndexInChunk(const PageClass& page_class, uint64_t chunk_bytes,
                                         uint64_t offset_in_chunk);

/// The smallest value block that holds `bytes` (block header included): from 128 B on in steps of
/// 64 B or a quarter of a power of two, whichever is greater, up to the chunk's size or
/// kValueBlockBytesMax, whichever is smaller. nullopt above: that takes an extent.
std::optional<uint32_t> ValueBlockBytes(uint64_t bytes, uint64_t chunk_bytes);

}  // namespace farleaf::dsm
