// The layout of a ring between a client and a compute server (client/ring/README.md has the protocol, and
// the argument that it is right).
//
//   mapping   = control area · request area · reply area
//   message   = rendezvous word · 3 header words · payload, padded to whole units
//   rendezvous word = mark (upper half) · payload bytes (lower half); 0: nothing is there
//
// Thread rule: constants and value types.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace farleaf::client::ring {

/// A message takes whole units. Two cache lines: as much as a processor fetches together.
inline constexpr size_t kUnitBytes = 128;
inline constexpr size_t kHeaderBytes = 32;  ///< the rendezvous word included
inline constexpr uint32_t kMessageMark = 0x464c524d;
inline constexpr uint32_t kResetMark = 0x464c5253;

inline constexpr size_t kControlBytes = 4096;
inline constexpr size_t kServerSleepsAt = 0;
inline constexpr size_t kClientSleepsAt = 128;
inline constexpr uint32_t kAreaBytesMin = 16 << 10;
inline constexpr uint32_t kAreaBytesMax = 64 << 20;

/// Of a message to the server. On the wire as it stands.
enum class Kind : uint8_t {
  kWhole = 1,     ///< one frame of the native protocol, or the last part of one
  kPart = 2,      ///< a part of one that does not fit; answered with nothing, when it was taken
  kContinue = 3,  ///< asks for the next part of an answer; the payload is its message's sequence
};

/// The three words behind the rendezvous word of a message to the server.
struct RequestHeader {
  uint32_t reply_unit = 0;   ///< where the answer goes: the first unit in the reply area,
  uint32_t reply_units = 0;  ///< and how many there are
  uint64_t sequence = 0;     ///< 1, 2, 3… by message
  uint64_t kind = 0;
};
/// Of an answer.
struct ReplyHeader {
  uint64_t sequence = 0;    ///< of the message that it answers
  uint64_t rest_bytes = 0;  ///< of the answer that did not fit, to be asked for
  uint64_t unused = 0;
};
static_assert(sizeof(RequestHeader) == kHeaderBytes - 8 && sizeof(ReplyHeader) == kHeaderBytes - 8);

constexpr uint64_t RendezvousWord(uint32_t mark, uint32_t payload_bytes) {
  return uint64_t{mark} << 32 | payload_bytes;
}
constexpr uint32_t MarkOf(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
constexpr uint32_t PayloadBytesOf(uint64_t word) { return static_cast<uint32_t>(word); }
/// Units of a message with so much payload.
constexpr uint64_t UnitsFor(uint64_t payload_bytes) {
  return (kHeaderBytes + payload_bytes + kUnitBytes - 1) / kUnitBytes;
}

inline std::atomic_ref<uint64_t> WordAt(std::byte* area, uint64_t offset) {
  return std::atomic_ref(*reinterpret_cast<uint64_t*>(area + offset));
}

}  // namespace farleaf::client::ring
