// Where things are in a memory server's region, and the words that live there.
//
//   offset            bytes               what
//   0                 2 KiB               RegionHeader, written by the memory server before it opens
//   2 KiB             2 KiB               region words, one a memory server       (server 0 only)
//   4 KiB             32 KiB              member words, one a compute server id   (server 0 only)
//   36 KiB            32 KiB              lease words, one a compute server id
//   68 KiB            32 KiB              fence words, one a compute server id
//   100 KiB           4 KiB               heads of the pool's free lists, 512 words
//   104 KiB           64 KiB              catalog: 128 entries of 512 B           (server 0 only)
//   168 KiB           8 B x chunks        chunk table: one ChunkWord a chunk
//   behind it         8 B x chunks        carve marks: one CarveMark a chunk
//   up to chunk_bytes                     unused
//   first_chunk       chunk_bytes each    chunks, aligned to chunk_bytes
//
// Once the region is open, the memory server's own CPU writes the fence words and nothing else, and no
// verb ever writes them. All other words are changed by 8-byte verbs only.
// Thread rule: pure functions and value types.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "dsm/address.h"
#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"
#include "dsm/base/result.h"

namespace farleaf::dsm {

/// Compute server id, 1..4095; 0 is nobody.
using MemberId = uint16_t;

inline constexpr ServerId kCatalogServer = 0;  ///< the memory server that holds members and catalog
inline constexpr uint32_t kMembersMax = 4096;
inline constexpr uint32_t kFreeListsMax = 512;
inline constexpr uint32_t kCatalogEntries = 128;
inline constexpr uint32_t kCatalogEntryBytes = 512;

/// Word i: the incarnation of memory server i's region, set by the first compute server that saw it;
/// 0 until then. Another incarnation is a server that lost the pool's pages.
inline constexpr uint64_t kRegionWordsOffset = 2 << 10;
inline constexpr uint32_t kMemoryServersMax = 256;
inline constexpr uint64_t kMembersOffset = 4 << 10;
static_assert(kRegionWordsOffset + kMemoryServersMax * 8 == kMembersOffset);
inline constexpr uint64_t kLeasesOffset = kMembersOffset + kMembersMax * 8;
inline constexpr uint64_t kFencesOffset = kLeasesOffset + kMembersMax * 8;
inline constexpr uint64_t kFreeListsOffset = kFencesOffset + kMembersMax * 8;
inline constexpr uint64_t kCatalogOffset = kFreeListsOffset + kFreeListsMax * 8;
inline constexpr uint64_t kChunkTableOffset = kCatalogOffset + kCatalogEntries * kCatalogEntryBytes;
static_assert(kChunkTableOffset == 168 << 10);

inline constexpr uint32_t kChunkBytesMin = 64 << 10;
inline constexpr uint32_t kChunkBytesMax = 64 << 20;
inline constexpr uint32_t kChunkBytesDefault = 1 << 20;
inline constexpr uint32_t kLeaseMsMin = 100;  ///< if it is not 0
inline constexpr uint32_t kLeaseMsMax = 3'600'000;

/// The first bytes of a region. Little-endian, no padding.
struct RegionHeader {
  static constexpr uint64_t kMagic = 0x31464145'4c524146;  // "FARLEAF1"
  static constexpr uint32_t kFormat = 3;

  uint64_t magic;
  uint32_t format;
  uint32_t crc;  ///< CRC32C of the header with this field 0
  uint64_t region_bytes;
  uint64_t incarnation;
  uint64_t chunk_bytes;
  uint64_t chunk_count;
  uint64_t first_chunk;  ///< offset
  uint16_t server;
  uint16_t reserved;
  uint32_t lease_ms;
};
static_assert(sizeof(RegionHeader) == 64);

/// The geometry of one region.
struct RegionLayout {
  ServerId server = 0;
  uint64_t incarnation = 0;
  uint64_t region_bytes = 0;
  uint64_t chunk_bytes = 0;
  uint64_t chunk_count = 0;
  uint64_t first_chunk = 0;
  uint32_t lease_ms = 0;  ///< whose lease word has not moved for so long is cut off; 0: nobody is

  uint64_t ChunkOffset(uint64_t chunk) const { return first_chunk + chunk * chunk_bytes; }
  uint64_t ChunkWordOffset(uint64_t chunk) const { return kChunkTableOffset + chunk * 8; }
  uint64_t CarveMarkOffset(uint64_t chunk) const { return ChunkWordOffset(chunk_count + chunk); }
  /// The chunk that holds `offset`. REQUIRES: offset >= first_chunk.
  uint64_t ChunkOf(uint64_t offset) const { return (offset - first_chunk) / chunk_bytes; }

  /// InvalidArgument if the region cannot hold its tables and at least one chunk.
  static Result<RegionLayout> For(ServerId server, uint64_t region_bytes, uint64_t chunk_bytes);
  /// Reads a header back; Corruption if it is not one.
  static Result<RegionLayout> Parse(std::span<const std::byte> header);
  RegionHeader ToHeader() const;
};

/// What a chunk is used for.
enum class ChunkKind : uint8_t {
  kUnused = 0,
  kLeaf = 1,        ///< pages of the data layer, any tree of that page size
  kSearch = 2,      ///< pages of one tree's search layer, behind a header of change counters
  kValue = 3,       ///< blocks of one size for out-of-line values
  kExtent = 4,      ///< first chunk of a value larger than a chunk
  kExtentRest = 5,  ///< its further chunks
  kRedo = 6,        ///< redo slots of one compute server (one chunk or several in a row)
};
inline constexpr uint8_t kChunkKindMax = 6;

/// One word of the chunk table. `owner` is the compute server that carves pages from it; 0 when
/// there is none: either the chunk was left by a compute server that departed in good order, and
/// may be adopted by a CAS, or all of it is carved.
struct ChunkWord {
  ChunkKind kind = ChunkKind::kUnused;
  uint16_t page_units = 0;   ///< page or block size / 64 B; for kExtent the number of chunks
  uint16_t tree = 0;         ///< kSearch: the tree; else 0
  MemberId owner = 0;        ///< 12 bits
  uint16_t incarnation = 0;  ///< of the owner, low 12 bits
  bool carved = false;       ///< every page was carved: nothing to adopt

  //   bits 0..3 kind, 4..19 page_units, 20..35 tree, 36..47 owner, 48..59 incarnation, 60 carved
  uint64_t Encode() const {
    return uint64_t{static_cast<uint8_t>(kind)} | uint64_t{page_units} << 4 | uint64_t{tree} << 20 |
           uint64_t{owner & 0xfffu} << 36 | uint64_t{incarnation & 0xfffu} << 48 |
           uint64_t{carved} << 60;
  }
  static ChunkWord Decode(uint64_t word) {
    ChunkWord chunk;
    chunk.kind = static_cast<ChunkKind>(word & 0xf);
    chunk.page_units = static_cast<uint16_t>(word >> 4);
    chunk.tree = static_cast<uint16_t>(word >> 20);
    chunk.owner = static_cast<MemberId>(word >> 36 & 0xfff);
    chunk.incarnation = static_cast<uint16_t>(word >> 48 & 0xfff);
    chunk.carved = (word >> 60 & 1) != 0;
    return chunk;
  }
  bool operator==(const ChunkWord&) const = default;
};

/// One word of the carve marks: how many pages of a chunk without owner were carved. Stale (too
/// low) while a chunk has an owner, who counts in its own memory.
inline constexpr uint64_t kCarveMarkNone = 0;
/// The chunk once held an extent and was not cleared since: whoever claims it for pages or redo
/// slots clears it first, then writes kCarveMarkNone.
inline constexpr uint64_t kCarveMarkDirty = UINT64_MAX;

/// The word that locks a page, and says when the page is free. 0 is unlocked.
///
/// A locked word is unique for ever (member, incarnation and sequence), so that a redo record that
/// carries it belongs to exactly one acquisition.
struct LockWord {
  enum class State : uint8_t { kUnlocked = 0, kLocked = 1, kFreePage = 2 };
  State state = State::kUnlocked;
  MemberId owner = 0;        ///< kLocked: who holds the lock. kFreePage: who holds the page
  uint16_t incarnation = 0;  ///< low 12 bits
  uint16_t redo_slot = 0;    ///< 0..1023, in the owner's redo area on the page's memory server
  uint32_t sequence = 0;     ///< 28 bits

  //   bits 0..1 state, 2..13 owner, 14..25 incarnation, 26..35 redo_slot, 36..63 sequence
  uint64_t Encode() const {
    return uint64_t{static_cast<uint8_t>(state)} | uint64_t{owner & 0xfffu} << 2 |
           uint64_t{incarnation & 0xfffu} << 14 | uint64_t{redo_slot & 0x3ffu} << 26 |
           uint64_t{sequence} << 36;
  }
  static LockWord Decode(uint64_t word) {
    LockWord lock;
    lock.state = static_cast<State>(word & 3);
    lock.owner = static_cast<MemberId>(word >> 2 & 0xfff);
    lock.incarnation = static_cast<uint16_t>(word >> 14 & 0xfff);
    lock.redo_slot = static_cast<uint16_t>(word >> 26 & 0x3ff);
    lock.sequence = static_cast<uint32_t>(word >> 36);
    return lock;
  }
  bool operator==(const LockWord&) const = default;
};
inline constexpr uint64_t kUnlockedWord = 0;
inline constexpr uint32_t kLockSequenceMax = (1u << 28) - 1;

/// A compute server's redo area on one memory server is an array of slots of this size, indexed by
/// LockWord::redo_slot: room for the after-image of the largest page and its record header.
inline constexpr uint32_t kRedoSlotBytes = 8 << 10;
inline constexpr uint32_t kRedoSlotsMax = 1024;
inline constexpr uint32_t kRedoSlotsMin = 64;
/// The redo area: one chunk, or as many in a row as kRedoSlotsMin slots take.
inline uint64_t RedoAreaChunks(const RegionLayout& layout) {
  return (kRedoSlotsMin * kRedoSlotBytes + layout.chunk_bytes - 1) / layout.chunk_bytes;
}
inline uint32_t RedoAreaSlots(const RegionLayout& layout) {
  const uint64_t slots = RedoAreaChunks(layout) * layout.chunk_bytes / kRedoSlotBytes;
  return slots < kRedoSlotsMax ? static_cast<uint32_t>(slots) : kRedoSlotsMax;
}

/// One word per compute server id on the catalog server.
struct MemberWord {
  bool live = false;
  uint64_t incarnation = 0;  ///< grows by one with every join under this id; 63 bits

  uint64_t Encode() const { return incarnation << 1 | live; }
  static MemberWord Decode(uint64_t word) { return {(word & 1) != 0, word >> 1}; }
};

/// One word per compute server id on every memory server, written by that compute server alone: before
/// it takes a lock there, then several times in lease_ms, each time with another count. 0: not watched.
struct LeaseWord {
  static constexpr uint64_t kIncarnationMax = (uint64_t{1} << 48) - 1;
  uint64_t incarnation = 0;  ///< 48 bits; not 0
  uint16_t count = 0;        ///< goes around

  uint64_t Encode() const { return incarnation << 16 | count; }
  static LeaseWord Decode(uint64_t word) { return {word >> 16, static_cast<uint16_t>(word)}; }
};
inline constexpr uint64_t LeaseWordOffset(MemberId id) { return kLeasesOffset + id * uint64_t{8}; }

/// The fence word of an id is the newest incarnation of it, in full, that this memory server has cut
/// off and has confirmed to be: nothing from that compute server can land here any more. 0: there is
/// none, or the id has been let in anew since (dsm/fenced_members.h, which alone writes these words).
/// Whoever sees a fence by a READ still has to read what the compute server may have written by
/// another READ, posted later: nothing orders two READs of one batch.
inline constexpr uint64_t FenceWordOffset(MemberId id) { return kFencesOffset + id * uint64_t{8}; }

/// Whether the holder of a lock or chunk word, {owner, low 12 bits of its incarnation}, is fenced by
/// the fence word of that id on that memory server, both words being read in one round trip (in which
/// no id is granted 4096 times), or the fence word after the other.
///
/// Equality of the low 12 bits is exact. The holder's full incarnation I and the fence F, which agree
/// in those bits, could only differ by a multiple of 4096:
///   - I < F: I left nothing behind, because an id is granted again only when its last holder has
///     departed in good order, or a full scan has dealt with all that it left;
///   - I > F: I was let in here before it wrote its word, which has set the fence word to 0.
inline bool IsFenced(uint64_t fence_word, MemberId owner, uint16_t short_incarnation) {
  return owner != 0 && fence_word != 0 && (fence_word & 0xfff) == short_incarnation;
}

/// Of a fresh region: random, not 0. IoError: the system gives no random numbers.
Result<uint64_t> DrawIncarnation();

/// Writes header and empty tables into a fresh (all zero) region. REQUIRES: layout fits.
void FormatRegion(const RegionLayout& layout, std::span<std::byte> region);

}  // namespace farleaf::dsm
