// What the parts of the LSM store say to one another: changes of keys, and where large values are.
//
// Thread rule: value types.
#pragma once

#include <cstdint>
#include <string_view>

#include "index/storage/storage.h"

namespace farleaf::index::lsm {

using storage::SegmentId;

/// Of one change of one key, dense from 1, in the order of the recovery log. 0: older than any snapshot.
using Sequence = uint64_t;
inline constexpr Sequence kSequenceMax = (Sequence{1} << 56) - 1;

inline constexpr uint32_t kKeyBytesMax = 4096;
inline constexpr uint32_t kValueBytesMax = uint32_t{1} << 20;

/// A record of the value log: [offset, offset + bytes) of the segment.
struct ValuePointer {
  SegmentId segment = SegmentId::kNone;
  uint32_t offset = 0;
  uint32_t bytes = 0;        ///< of the whole record, header and key included
  uint32_t value_bytes = 0;  ///< of the value, which is the record's end
  bool operator==(const ValuePointer&) const = default;
};

enum class EntryKind : uint8_t {
  kValue = 0,    ///< `value`
  kPointer = 1,  ///< the value is in the value log, at `pointer`
  kDeleted = 2,
};

/// One version of a key. The views belong to whoever hands the entry out.
struct Entry {
  std::string_view key;
  Sequence sequence = 0;
  EntryKind kind = EntryKind::kDeleted;
  std::string_view value = {};
  ValuePointer pointer = {};
  uint64_t expires_ms = 0;  ///< since 1970; 0: never. From then on the entry reads as kDeleted
};

/// Entries come in the order of keys, and for one key the newest first.
inline bool ComesBefore(std::string_view key, Sequence sequence, const Entry& other) {
  const int order = key.compare(other.key);
  return order < 0 || (order == 0 && sequence > other.sequence);
}

}  // namespace farleaf::index::lsm
