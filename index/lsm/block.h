// Blocks: what tables are made of; leaves hold entries, inner nodes separators and places of blocks (format.md).
//
// A block is *stored* (as it is in a segment: perhaps compressed) or *raw* (as it is searched: header, then the rest
// uncompressed). Bytes from a segment pass OpenBlock, then Block::Check; only what has passed both is searched, and the search
// does not check again.
//
// Thread rule: pure functions, and views of immutable bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dsm/base/bytes.h"
#include "index/lsm/filter.h"
#include "index/lsm/options.h"
#include "index/lsm/types.h"
#include "index/lsm/varint.h"

namespace farleaf::index::lsm {

/// Blocks begin at multiples of this.
inline constexpr uint32_t kBlockUnit = 16;
inline constexpr uint32_t kBlockHeaderBytes = 28;
/// Raw or stored, whatever is in it.
inline constexpr uint32_t kRawBytesMax = uint32_t{1} << 18;
inline constexpr uint32_t kInlineValueBytesMax = uint32_t{1} << 16;
inline constexpr uint8_t kBlockLevelMax = 15;

/// Where a block is in its table: the table's segments are taken for one run of bytes, so that `at` names segment
/// number at / kSegmentBytes of the table, whichever that is. No block crosses a segment's end.
struct BlockPlace {
  uint64_t at = 0;     ///< a multiple of kBlockUnit
  uint32_t bytes = 0;  ///< as it is stored
  bool operator==(const BlockPlace&) const = default;

  size_t segment_index() const { return at / storage::kSegmentBytes; }
  uint32_t offset() const { return static_cast<uint32_t>(at % storage::kSegmentBytes); }
};

struct BlockHeader {
  uint32_t checksum = 0;
  uint32_t stored_bytes = 0;  ///< this header included
  uint32_t raw_bytes = 0;     ///< likewise
  uint32_t number = 0;        ///< of leaves: in the table, from 0
  uint16_t count = 0;
  uint8_t level = 0;  ///< 0: leaf
  uint8_t flags = 0;
  uint16_t prefix_bytes = 0;
  uint16_t suffix_base = 0;
  uint16_t filter_lines = 0;
  uint16_t reserved = 0;

  static constexpr uint8_t kCompressionMask = 3, kWide = 4, kReservedFlag = 8;
  static constexpr unsigned kProbesShift = 4;
  Compression compression() const { return static_cast<Compression>(flags & kCompressionMask); }
  uint32_t probes() const { return flags >> kProbesShift; }

  static BlockHeader Load(const std::byte* from) {
    BlockHeader header;
    std::memcpy(&header, from, sizeof header);
    return header;
  }
  void Store(std::byte* to) const { std::memcpy(to, this, sizeof *this); }
};
static_assert(sizeof(BlockHeader) == kBlockHeaderBytes);

/// CRC32C of a stored block behind its checksum, of the table that it belongs to, and of its place there.
uint32_t BlockChecksum(uint64_t stamp, uint64_t at, std::span<const std::byte> stored);

/// Why bytes are not a block; nullptr: they are.
using Fault = const char*;

/// Checks what must hold before anything else of the header is looked at.
Fault CheckStored(uint64_t stamp, uint64_t at, std::span<const std::byte> stored);
/// Makes the raw block of a stored one that passed CheckStored. REQUIRES: raw.size() is the header's raw_bytes.
Fault Unpack(std::span<const std::byte> stored, std::span<std::byte> raw);

/// What entries of a block may name.
struct BlockLimits {
  uint8_t level = 0;            ///< that the block must have
  uint64_t table_bytes = 0;     ///< children end before this
  size_t dictionary_count = 0;  ///< value-log segments that pointers may name
};

/// A version of a key as a block holds it: the key is Block::prefix, then `head`, then `rest`.
struct PackedEntry {
  const char* rest = nullptr;
  uint32_t rest_bytes = 0;
  uint32_t suffix_bytes = 0;  ///< of the key without the prefix; head and rest
  EntryKind kind = EntryKind::kValue;
  Sequence sequence = 0;
  uint64_t expires_ms = 0;
  std::string_view
      value;  ///< kValue: the value; kPointer: see ParsePointer; inner nodes: see Child
};

struct PackedPointer {
  uint64_t dictionary_index = 0, offset = 0, bytes = 0, value_bytes = 0;
};

/// A raw block. All but Check REQUIRES that it has passed it.
class Block {
 public:
  Block() = default;
  explicit Block(const std::byte* raw) : raw_(reinterpret_cast<const char*>(raw)) {}

  /// That every access below stays inside `raw`. Order is not checked: it is the checksum's and the builder's word,
  /// and if they are wrong, a search finds the wrong entry, but nothing outside.
  static Fault Check(std::span<const std::byte> raw, const BlockLimits& limits);

  bool valid() const { return raw_ != nullptr; }
  uint32_t count() const { return Load<uint16_t>(16); }
  uint8_t level() const { return static_cast<uint8_t>(raw_[18]); }
  uint32_t number() const { return Load<uint32_t>(12); }
  uint32_t stored_bytes() const { return Load<uint32_t>(4); }
  std::string_view prefix() const {
    const uint32_t count = this->count();
    const uint32_t width = wide() ? 4 : 2;
    return {raw_ + kBlockHeaderBytes + 4 * count + width * (count + 1), Load<uint16_t>(20)};
  }
  /// Of key `i` behind the prefix: 4 bytes, filled up with zeros, as a number.
  uint32_t head(uint32_t i) const { return heads()[i]; }

  PackedEntry entry(uint32_t i) const;
  static PackedPointer ParsePointer(std::string_view value);
  /// Writes key `i` to `to` with `prefix_bytes` of it already there. Returns the key's length. REQUIRES: room for
  /// kKeyBytesMax + 4.
  uint32_t CopySuffix(uint32_t i, const PackedEntry& entry, char* to, uint32_t prefix_bytes) const {
    StoreLittle<uint32_t>(to + prefix_bytes, __builtin_bswap32(head(i)));
    std::memcpy(to + prefix_bytes + 4, entry.rest, entry.rest_bytes);
    return prefix_bytes + entry.suffix_bytes;
  }

  struct Position {
    uint32_t index = 0;
    bool same_key = false;  ///< entry `index` is of the key that was sought
  };
  /// Leaves: the first entry that does not come before (key, sequence); count() if none.
  Position LowerBound(std::string_view key, Sequence sequence) const;
  /// Inner nodes: the child that holds (key, sequence), if any does.
  uint32_t ChildOf(std::string_view key, Sequence sequence) const;
  BlockPlace Child(uint32_t i) const;

  bool has_filter() const { return Load<uint16_t>(24) != 0; }
  /// False: no key of this hash is below this node.
  bool MayContain(uint64_t hash) const {
    const uint32_t lines = Load<uint16_t>(24);
    const uint32_t filter_bytes = lines * kFilterLineBytes;
    return lsm::MayContain(
        reinterpret_cast<const std::byte*>(raw_) + Load<uint32_t>(8) - filter_bytes, lines,
        static_cast<uint8_t>(raw_[19]) >> BlockHeader::kProbesShift, hash);
  }
  /// Asks the processor for what a search looks at first.
  void Prefetch() const {
    for (uint32_t at = 0; at < 512; at += 64) __builtin_prefetch(raw_ + at);
  }

 private:
  template <typename T>
  T Load(uint32_t at) const {
    return LoadLittle<T>(raw_ + at);
  }
  bool wide() const { return (raw_[19] & BlockHeader::kWide) != 0; }
  const uint32_t* heads() const {
    return reinterpret_cast<const uint32_t*>(raw_ + kBlockHeaderBytes);
  }
  uint32_t offset(uint32_t i) const {
    const uint32_t base = kBlockHeaderBytes + 4 * count();
    return wide() ? Load<uint32_t>(base + 4 * i) : Load<uint16_t>(base + 2 * i);
  }
  /// The first entry of which `before` does not hold; `before(sequence)` answers for entries of the key itself.
  template <typename Before>
  Position Partition(std::string_view key, const Before& before) const;

  const char* raw_ = nullptr;
};

inline BlockPlace ParseChild(std::string_view value) {
  uint64_t units = 0, bytes = 0;
  const char* at = GetCheckedVarint(value.data(), &units);
  GetCheckedVarint(at, &bytes);
  return {units * kBlockUnit, static_cast<uint32_t>(bytes)};
}

/// The sequence of a separator is stored as its distance from the newest: mostly 0, which takes no room.
constexpr uint64_t SeparatorRank(Sequence sequence) { return kSequenceMax - sequence; }

namespace internal {
/// The first byte of an entry: kind, what follows, and the length of its suffix above the block's base.
inline constexpr uint8_t kTagKindMask = 3, kTagSequence = 4, kTagExpiry = 8;
inline constexpr unsigned kTagLengthShift = 4;
inline constexpr uint32_t kTagLengthLong = 15;  ///< a varint follows, to be added

/// 4 bytes from the front of a suffix, as a number that compares as they do.
inline uint32_t HeadOf(const char* suffix, size_t bytes) {
  if (bytes >= 4) [[likely]]
    return __builtin_bswap32(LoadLittle<uint32_t>(suffix));
  uint32_t head = 0;
  for (size_t i = 0; i < bytes; ++i) {
    head |= static_cast<uint32_t>(static_cast<uint8_t>(suffix[i])) << (24 - 8 * i);
  }
  return head;
}
}  // namespace internal

}  // namespace farleaf::index::lsm
