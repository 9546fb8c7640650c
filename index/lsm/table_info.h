// TableInfo: all there is to know of a table besides its blocks. Manifest and footer record it; a table is opened from it alone.
//
// Only `segments` and `dictionary` name segments, so that a table whose blocks are moved verbatim to other segments
// gets another TableInfo and keeps its blocks.
//
// Thread rule: a value type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/result.h"
#include "index/lsm/block.h"
#include "index/lsm/expiry_times.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

/// A list that does not change, and that all copies share: it may be large.
template <typename T>
class SharedList {
 public:
  SharedList() = default;
  SharedList(std::vector<T> items)
      : items_(std::make_shared<const std::vector<T>>(std::move(items))) {}
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}

  size_t size() const { return items_ ? items_->size() : 0; }
  bool empty() const { return size() == 0; }
  const T& operator[](size_t i) const { return (*items_)[i]; }
  const T& front() const { return (*items_)[0]; }
  const T* begin() const { return items_ ? items_->data() : nullptr; }
  const T* end() const { return begin() + size(); }
  bool operator==(const SharedList& other) const {
    return items_ == other.items_ || std::ranges::equal(*this, other);
  }

 private:
  std::shared_ptr<const std::vector<T>> items_;
};

struct TableInfo {
  /// A value-log segment, and the bytes of its records that the table's pointers name.
  /// In 8 bytes, since a large store has a great many of them: for segments of all that can ever be written, and eight times
  /// what a segment holds.
  struct LogSegment {
    SegmentId segment : 40 = SegmentId::kNone;
    uint64_t live_bytes : 24 = 0;
    LogSegment() = default;
    LogSegment(SegmentId id, uint64_t bytes) : segment(id), live_bytes(bytes) {}
    static constexpr uint64_t kSegmentMax = (uint64_t{1} << 40) - 1;
    static constexpr uint64_t kLiveBytesMax = (uint64_t{1} << 24) - 1;
    bool operator==(const LogSegment&) const = default;
  };

  std::vector<SegmentId> segments;
  uint64_t stamp = 0;  ///< in the checksums of its blocks: made with the table, and never changed
  std::string smallest, largest;
  BlockPlace root;
  uint8_t root_level = 1;
  uint32_t leaves = 0;
  uint64_t bytes = 0;  ///< of the segments that are used: blocks end here, and the footer begins
  uint32_t footer_bytes = 0;
  uint64_t entries = 0, deletes = 0, expiring = 0;
  /// Of keys, and of values here and in the value log. Of tables that were built before this was kept, nothing is known: it is empty.
  ExpiryTimes expiry;
  uint64_t content_bytes = 0;  ///< of keys and inline values, as they were added
  Sequence sequence_max = 0;
  SharedList<LogSegment> dictionary;  ///< pointers name value-log segments by their place here

  /// Names the table on this node.
  SegmentId id() const { return segments.empty() ? SegmentId::kNone : segments.front(); }
  bool operator==(const TableInfo&) const = default;

  /// Of the process's memory, by a copy that shares the dictionary with others.
  uint64_t description_bytes() const {
    return sizeof(*this) + segments.capacity() * sizeof(SegmentId) + smallest.capacity() +
           largest.capacity();
  }
  uint64_t dictionary_bytes() const { return dictionary.size() * sizeof(LogSegment); }

  std::string Encode() const;
  /// Whatever the bytes are; they end with what is read. Corruption says what is wrong.
  static Result<TableInfo> Decode(std::span<const std::byte> bytes);
};

static_assert(sizeof(TableInfo::LogSegment) == 8);

/// The footer begins at the multiple of storage::kBlockBytes behind the blocks; whoever has lost the manifest finds it by this.
inline constexpr uint64_t kFooterMagic = 0x31656c6261746c66;  // "fltable1"
inline constexpr uint32_t kFooterHeaderBytes = 16;

/// magic:8 bytes:4 checksum:4 TableInfo, filled up with zeros to a multiple of storage::kBlockBytes.
std::string EncodeFooter(TableInfo* info);
Result<TableInfo> DecodeFooter(std::span<const std::byte> bytes);

}  // namespace farleaf::index::lsm
