// TableCheck: whether bytes that came from elsewhere are the table that a description says, one segment after the other.
//
// Each block's checksum, zeros wherever no block is, each inner node's children (so that no block is missing, and none too many), and
// the footer, which must be the description's bytes. What is in a leaf is its checksum's word, and its builder's: no entry is looked at
// (scrub_table.cc does). So a bit that is another one, anywhere, is a fault; and what it costs is a pass of CRC32C.
//
// Memory: the places of blocks that no inner node has named yet.
// Thread rule: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "index/lsm/background_io.h"
#include "index/lsm/block.h"
#include "index/lsm/table_info.h"

namespace farleaf::index::lsm {

/// Of one of a table's segments: blocks and footer, whole storage blocks.
uint32_t TableBytesIn(const TableInfo& table, size_t segment_index);

class TableCheck {
 public:
  struct Damage {
    size_t segment_index = 0;
    uint32_t offset = 0;
    std::string what;
  };

  /// `table` outlives it.
  explicit TableCheck(const TableInfo* table) : table_(*table) {}

  /// The next segment's, as many as TableBytesIn says, aligned as for I/O. Nothing more may be asked behind damage.
  std::optional<Damage> Next(std::span<const std::byte> bytes);
  /// Behind the last one.
  std::optional<Damage> End() const;

 private:
  std::span<const std::byte> Bytes(uint64_t at, uint64_t bytes) const {
    return segment_.subspan(at - begin_, bytes);
  }
  Damage At(uint64_t at, std::string what) const {
    const BlockPlace place{at, 0};
    return {place.segment_index(), place.offset(), std::move(what)};
  }
  Fault CheckBlock(uint64_t at, std::span<const std::byte> stored);
  Fault CheckChildren(std::span<const std::byte> stored, const BlockHeader& header);
  std::optional<Damage> CheckFooter() const;

  const TableInfo& table_;
  std::span<const std::byte> segment_;
  uint64_t begin_ = 0, next_ = 0;  // of segment_, of the next one; in the table
  uint32_t leaves_ = 0;
  IoBuffer unpacked_;
  std::array<std::deque<BlockPlace>, kBlockLevelMax + 1> unnamed_;  // by level
};

}  // namespace farleaf::index::lsm
