// Record: what a key of the generic front ends (memcached, Redis) is in the tree. format.md has the layout of keys and values.
//
// Invariants:
//   - the first byte of a tree's key is its space: database and kind. User keys follow as they are, so that
//     in a space they sort as their bytes;
//   - parsing is total: any bytes give a record or Corruption;
//   - a record whose expiry has passed is absent for every reader and writer.
// Thread rule: pure functions and value types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dsm/base/clock.h"
#include "dsm/base/result.h"

namespace farleaf::server {

/// What stands behind a key. Their numbers are in the pool: never renumber.
enum class SpaceKind : uint8_t {
  kKeys = 1,     ///< the keys that users name: a string each, or the head of something larger
  kCursors = 2,  ///< where iterations over keys go on
  kMembers = 3,  ///< of collections
};

/// Databases are numbered 0..15, kinds 1..15.
constexpr char SpaceByte(uint8_t database, SpaceKind kind) {
  return static_cast<char>(database << 4 | static_cast<uint8_t>(kind));
}
/// Where the keys are that clients of every protocol name.
inline constexpr char kUserKeySpace = SpaceByte(0, SpaceKind::kKeys);
/// A record for each iteration, by its number; it expires.
inline constexpr char kCursorSpace = SpaceByte(0, SpaceKind::kCursors);

/// Its numbers are in the pool: never renumber.
enum class RecordType : uint8_t { kString = 1, kHash = 2, kSortedSet = 3 };

struct Record {
  RecordType type = RecordType::kString;
  bool stale = false;      ///< invalidated, and still served until somebody has stored anew
  bool won = false;        ///< somebody was told to store anew
  uint32_t flags = 0;      ///< the client's
  uint64_t expiry_ms = 0;  ///< since 1970; 0: never
  /// Grows with every change of the data, also where the key was deleted in between (as far as the wall
  /// clocks of compute servers agree).
  uint64_t cas = 0;
  std::string_view data;
};

inline constexpr size_t kRecordHeaderBytes = 22;
/// What a tree takes as a value (16 MiB) less the header, in round figures: memcached's own limit is 1 MiB.
inline constexpr uint64_t kRecordDataBytesMax = uint64_t{15} << 20;

Result<Record> ParseRecord(std::string_view value);
/// The record with `tail` behind its data.
void AppendRecord(const Record& record, std::string_view tail, std::string* out);

constexpr bool IsExpired(const Record& record, uint64_t now_ms) {
  return record.expiry_ms != 0 && record.expiry_ms <= now_ms;
}

/// Time since 1970, which may be set back.
class WallClock final : public Clock {
 public:
  uint64_t NowNs() const override {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  }
};

}  // namespace farleaf::server
