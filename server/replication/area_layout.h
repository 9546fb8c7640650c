// Where things are in an *area*: the part of a backup's registered memory that one region's primary writes to.
//
//   offset                          bytes                      what
//   0                               4 KiB                      AreaHeader, written by the backup (ChannelServer::Reset)
//   4 KiB                           256 B x slots, up to 4 KiB reply slots: what the primary looks at, with one READ
//   behind them                     64 KiB x slots             reply payloads
//   behind them                     (4 KiB + payload) x slots  message slots: a page with header and head, then the payload
//   behind them                     2 MiB x log buffers        log buffers (log_buffers.h), each a segment of a log
//
// Every part begins at a multiple of 4 KiB, if the area does, and is a multiple of it: what lies there can go to a disk with O_DIRECT.
// The primary writes message slots and log buffers, and reads the rest; the backup's CPU writes the rest only. Nothing has to be zero at
// first (channel.md).
//
//   default: 4 slots of 1 MiB, 12 log buffers: 4 KiB + 4 KiB + 256 KiB + 4,112 KiB + 24 MiB = 28,952 KiB
//
// Thread rule: pure functions and value types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dsm/base/bytes.h"
#include "dsm/base/result.h"
#include "index/storage/storage.h"

namespace farleaf::server::replication {

inline constexpr uint64_t kAreaAlignment = index::storage::kBlockBytes;
inline constexpr uint64_t kHeadPageBytes =
    kAreaAlignment;  ///< of a message slot, ahead of the payload
inline constexpr uint64_t kReplySlotBytes = 256;
inline constexpr uint32_t kReplyPayloadBytesMax = 64 << 10;
inline constexpr uint64_t kLogBufferBytes = index::storage::kSegmentBytes;
inline constexpr uint32_t kSlotsMax = 64;
inline constexpr uint32_t kPayloadBytesMax = 1 << 20;
inline constexpr uint32_t kLogBuffersMax = 4'096;

struct AreaOptions {
  uint32_t slots = 4;                         ///< messages that may be outstanding
  uint32_t payload_bytes = kPayloadBytesMax;  ///< of a message; a multiple of 4 KiB
  uint32_t log_buffers = 12;
};

/// The geometry of one area. Offsets are from its beginning.
struct AreaLayout {
  uint32_t slots = 0;
  uint32_t payload_bytes = 0;
  uint32_t log_buffers = 0;

  uint64_t ReplySlotOffset(uint32_t slot) const { return kAreaAlignment + slot * kReplySlotBytes; }
  uint64_t ReplyPayloadOffset(uint32_t slot) const {
    return kAreaAlignment + RoundUp(slots * kReplySlotBytes, kAreaAlignment) +
           slot * uint64_t{kReplyPayloadBytesMax};
  }
  uint64_t MessageOffset(uint32_t slot) const {
    return ReplyPayloadOffset(slots) + slot * (kHeadPageBytes + payload_bytes);
  }
  uint64_t PayloadOffset(uint32_t slot) const { return MessageOffset(slot) + kHeadPageBytes; }
  uint64_t LogBufferOffset(uint32_t buffer) const {
    return MessageOffset(slots) + buffer * kLogBufferBytes;
  }
  uint64_t bytes() const { return LogBufferOffset(log_buffers); }
  bool operator==(const AreaLayout&) const = default;

  /// InvalidArgument, naming the value and its range.
  static Result<AreaLayout> For(const AreaOptions& options);
};

/// The first bytes of an area. Little-endian, no padding.
struct AreaHeader {
  static constexpr uint64_t kMagic = 0x31414552'41464c46;  // "FLFAREA1"
  static constexpr uint32_t kFormat = 1;

  uint64_t magic;
  uint32_t format;
  uint32_t crc;    ///< CRC32C of the header with this field 0
  uint64_t token;  ///< of the channel that is served (channel.md); 0: none
  uint32_t slots;
  uint32_t payload_bytes;
  uint32_t log_buffers;
  uint32_t reserved;  ///< 0
  uint64_t area_bytes;
  uint64_t reserved_too[2];  ///< 0
};
static_assert(sizeof(AreaHeader) == 64 && offsetof(AreaHeader, token) == 16 &&
              offsetof(AreaHeader, area_bytes) == 40);

AreaHeader HeaderOf(const AreaLayout& layout, uint64_t token);

struct ParsedArea {
  AreaLayout layout;
  uint64_t token = 0;
};
/// Reads a header back. Corruption: it is none. Unimplemented: of a format that this build does not know.
Result<ParsedArea> ParseAreaHeader(std::span<const std::byte, sizeof(AreaHeader)> bytes);

}  // namespace farleaf::server::replication
