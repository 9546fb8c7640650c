// Messages and replies of a channel, as they lie in an area (channel.md has the picture and the protocol).
//
//   offset  bytes  message                          reply
//   0       8      rendezvous word                  rendezvous word
//   8       4      CRC32C of bytes [12, 72 + head)  the same
//   12      1      kind, the user's                 StatusCode
//   13      1      0                                ReplyOutcome
//   14      2      bytes of the head                bytes of the text
//   16      4      bytes of the payload             bytes of the payload
//   20      4      CRC32C of the payload            CRC32C of the payload
//   24      8      token of the channel             the same
//   32      8      sequence                         the same, of the message
//   40      32     arguments, the user's            values, the user's
//   72      ...    head, the user's                 text
//
// The payload lies apart (area_layout.h). The rendezvous word is written last, by itself.
//
// Thread rule: pure functions and value types.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dsm/base/crc32c.h"
#include "dsm/base/random.h"
#include "dsm/base/status.h"
#include "server/replication/area_layout.h"

namespace farleaf::server::replication {

using Arguments = std::array<uint64_t, 4>;

/// Of both directions. Little-endian, no padding.
struct ChannelHeader {
  uint64_t word;
  uint32_t crc;
  uint8_t kind;
  uint8_t outcome;
  uint16_t head_bytes;
  uint32_t payload_bytes;
  uint32_t payload_crc;
  uint64_t token;
  uint64_t sequence;
  Arguments arguments;
};
inline constexpr size_t kHeaderBytes = sizeof(ChannelHeader);
inline constexpr size_t kCrcFrom = 12;  ///< the first byte that the CRC covers
static_assert(kHeaderBytes == 72 && offsetof(ChannelHeader, kind) == kCrcFrom &&
              offsetof(ChannelHeader, token) == 24 && offsetof(ChannelHeader, arguments) == 40);

inline constexpr size_t kMessageHeadBytesMax = kHeadPageBytes - kHeaderBytes;  // 4,024
inline constexpr size_t kReplyTextBytesMax = kReplySlotBytes - kHeaderBytes;   // 184

enum class ReplyOutcome : uint8_t {
  kExecuted = 1,
  kRefused =
      2,  ///< the message was damaged, or follows one that was: it was not given to the handler
};

/// A message of the user's. The bytes are the caller's.
struct Message {
  uint8_t kind = 0;
  Arguments arguments{};
  std::string_view head;               ///< at most kMessageHeadBytesMax; copied
  std::span<const std::byte> payload;  ///< at most the area's payload_bytes; not copied
};

/// An answer of the user's.
struct Reply {
  StatusCode code = StatusCode::kOk;
  Arguments values{};
  std::string text;     ///< what follows kReplyTextBytesMax is cut off
  std::string payload;  ///< at most kReplyPayloadBytesMax
};

/// What announces a message, or a reply. No two sequences of one channel have the same, since Mix64 is a bijection; of two channels,
/// whose tokens are drawn at random, two have the same with probability 2^-64.
constexpr uint64_t RendezvousWord(uint64_t token, uint64_t sequence) {
  return token ^ Mix64(sequence);
}
constexpr uint32_t SlotOf(uint64_t sequence, uint32_t slots) {
  return static_cast<uint32_t>(sequence % slots);
}

/// Of a header and the head, or text, behind it.
uint32_t HeadCrc(const ChannelHeader& header, std::string_view head);

struct ChannelPlace {
  uint64_t token = 0;
  uint64_t sequence = 0;
};
/// With all fields but the head's: its bytes and CRC.
ChannelHeader HeaderOf(const ChannelPlace& place, const Message& message);
ChannelHeader HeaderOf(const ChannelPlace& place, const Reply& reply, ReplyOutcome outcome);

/// Header and head as they lie in the slot, padded with zeros to whole words.
std::string EncodeHead(ChannelHeader header, std::string_view head);

struct HeadLimits {
  size_t head_bytes_max = 0;
  size_t payload_bytes_max = 0;
};
/// Corruption unless the header belongs to `place` and its lengths are within the limits. Any header may be given; its CRC
/// can be checked behind this, when the head is there.
Status CheckPlace(const ChannelHeader& header, const ChannelPlace& place, const HeadLimits& limits);
/// Corruption unless the CRC is that of header and head.
Status CheckHead(const ChannelHeader& header, std::string_view head);
Status CheckPayload(const ChannelHeader& header, std::span<const std::byte> payload);

}  // namespace farleaf::server::replication
