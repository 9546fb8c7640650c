// Records of both logs (log_format.md): how they are framed and checked.
//
// Invariants:
//   - a record's CRC covers the store's epoch, the segment and the offset: what was written elsewhere, or by another store,
//     is no record here, whatever its bytes;
//   - parsing is total: any bytes are a record, or none.
// Thread rule: pure functions and value types.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

enum class LogRecordKind : uint8_t {
  kHead = 1,    ///< LogHead: the first record of each segment
  kCommit = 2,  ///< commit_record.h
  kValue = 3,   ///< ValueRecord
};
inline constexpr uint8_t kLogRecordKindMax = 3;

/// crc u32 · length u24 · kind u8
inline constexpr uint32_t kLogHeaderBytes = 8;

enum class LogKind : uint8_t { kRecovery = 1, kValues = 2 };

/// What stands at the beginning of each segment.
struct LogHead {
  LogKind log = LogKind::kRecovery;
  /// Recovery log: of the first commit in this segment, whether there is one or not. What an earlier segment
  /// holds from there on was given up by a recovery.
  Sequence first = 0;
  /// Recovery log: all commits up to here were durable when the segment was begun.
  Sequence durable = 0;
};
inline constexpr uint32_t kLogHeadBytes = kLogHeaderBytes + 1 + 8 + 8;
/// The largest that fits, in a segment of its own.
inline constexpr uint32_t kLogPayloadBytesMax =
    storage::kSegmentBytes - kLogHeadBytes - kLogHeaderBytes;

struct LogRecord {
  LogRecordKind kind;
  uint32_t offset;  ///< of the header, in the segment
  std::span<const std::byte> payload;
  uint32_t bytes() const { return kLogHeaderBytes + static_cast<uint32_t>(payload.size()); }
};

/// The CRC of where a segment's records are.
inline uint32_t SegmentSeed(uint64_t epoch, SegmentId segment) {
  std::byte place[16];
  StoreLittle(place, epoch);
  StoreLittle(place + 8, storage::Number(segment));
  return Crc32c(place);
}

/// REQUIRES: `header` and `payload` are one behind the other in memory.
inline uint32_t LogRecordCrc(uint32_t segment_seed, uint32_t offset, const std::byte* header,
                             uint32_t payload_bytes) {
  std::byte place[4];
  StoreLittle(place, offset);
  return Crc32c({header + 4, payload_bytes + 4}, Crc32c(place, segment_seed));
}

/// Writes the header in front of a payload that stands already. REQUIRES: payload_bytes <= kLogPayloadBytesMax.
inline void SealLogRecord(uint32_t segment_seed, uint32_t offset, LogRecordKind kind,
                          std::byte* header, uint32_t payload_bytes) {
  StoreLittle(header + 4, payload_bytes | static_cast<uint32_t>(kind) << 24);
  StoreLittle(header, LogRecordCrc(segment_seed, offset, header, payload_bytes));
}

/// The record at `offset` of a segment, of which `bytes` stand from there on.
inline std::optional<LogRecord> ParseLogRecord(uint32_t segment_seed, uint32_t offset,
                                               std::span<const std::byte> bytes) {
  if (bytes.size() < kLogHeaderBytes) return std::nullopt;
  const uint32_t word = LoadLittle<uint32_t>(bytes.data() + 4);
  const uint32_t payload_bytes = word & 0xffffff, kind = word >> 24;
  if (kind == 0 || kind > kLogRecordKindMax) return std::nullopt;
  if (payload_bytes > bytes.size() - kLogHeaderBytes) return std::nullopt;
  if (LoadLittle<uint32_t>(bytes.data()) !=
      LogRecordCrc(segment_seed, offset, bytes.data(), payload_bytes)) {
    return std::nullopt;
  }
  return LogRecord{static_cast<LogRecordKind>(kind), offset,
                   bytes.subspan(kLogHeaderBytes, payload_bytes)};
}

inline void EncodeLogHead(const LogHead& head, std::byte* payload) {
  payload[0] = static_cast<std::byte>(head.log);
  StoreLittle(payload + 1, head.first);
  StoreLittle(payload + 9, head.durable);
}
inline std::optional<LogHead> ParseLogHead(const LogRecord& record) {
  if (record.kind != LogRecordKind::kHead || record.offset != 0) return std::nullopt;
  if (record.bytes() != kLogHeadBytes) return std::nullopt;
  const auto log = static_cast<LogKind>(record.payload[0]);
  if (log != LogKind::kRecovery && log != LogKind::kValues) return std::nullopt;
  return LogHead{log, LoadLittle<uint64_t>(record.payload.data() + 1),
                 LoadLittle<uint64_t>(record.payload.data() + 9)};
}

/// A value with its key: key length u16 · key · value.
struct ValueRecord {
  std::string_view key, value;
};
inline constexpr uint32_t ValueRecordBytes(size_t key_bytes, size_t value_bytes) {
  return static_cast<uint32_t>(kLogHeaderBytes + 2 + key_bytes + value_bytes);
}
inline std::optional<ValueRecord> ParseValueRecord(const LogRecord& record) {
  if (record.kind != LogRecordKind::kValue) return std::nullopt;
  ByteReader reader(record.payload);
  const size_t key_bytes = reader.Read<uint16_t>();
  const std::string_view key = AsChars(reader.ReadBytes(key_bytes));
  if (!reader.ok() || key_bytes > kKeyBytesMax) return std::nullopt;
  return ValueRecord{key, AsChars(record.payload.subspan(2 + key_bytes))};
}

}  // namespace farleaf::index::lsm
