// The frames of the tcp fabric (format.md), as pure functions over bytes.
//
// Thread rule: pure functions and value types. Bytes from outside never fail a check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dsm/base/result.h"
#include "dsm/tcp/byte_queue.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

inline constexpr size_t kFrameHeaderBytes = 16;
inline constexpr size_t kFrameVerbBytes = 16;
inline constexpr size_t kReplyMessageBytesMax = 1000;

/// Payload of a verb in a request, and its result in a reply.
constexpr uint64_t RequestPayloadBytes(VerbKind kind, uint32_t length) {
  if (kind == VerbKind::kWrite) return length;
  if (kind == VerbKind::kCompareAndSwap) return 16;
  return kind == VerbKind::kFetchAdd ? 8 : 0;
}
constexpr uint64_t ReplyPayloadBytes(VerbKind kind, uint32_t length) {
  return kind == VerbKind::kWrite ? 0 : length;
}

struct RequestHeader {
  uint32_t frame_bytes = 0;
  uint16_t verb_count = 0;
  uint64_t sequence = 0;
};
struct FrameVerb {
  uint8_t kind = 0;
  uint32_t length = 0;
  uint64_t offset = 0;
};
struct ReplyHeader {
  uint32_t frame_bytes = 0;
  StatusCode code = StatusCode::kOk;
  uint64_t sequence = 0;
};

void EncodeRequestHeader(const RequestHeader& header, std::byte* to);
void EncodeFrameVerb(const Verb& verb, std::byte* to);
void EncodeReplyHeader(const ReplyHeader& header, std::byte* to);

/// REQUIRES: kFrameHeaderBytes bytes. Corruption: lengths that no frame has.
Result<RequestHeader> ParseRequestHeader(std::span<const std::byte> bytes);
/// REQUIRES: kFrameVerbBytes bytes. Not validated: see ValidateRequest.
FrameVerb ParseFrameVerb(std::span<const std::byte> bytes);
/// REQUIRES: kFrameHeaderBytes bytes.
Result<ReplyHeader> ParseReplyHeader(std::span<const std::byte> bytes);

/// What may be done with a request whose header and verbs have arrived. A failure of code
/// InvalidArgument refuses the batch and lets the connection live; Corruption ends it.
Status ValidateRequest(const RequestHeader& header, std::span<const FrameVerb> verbs,
                       uint64_t region_bytes);

/// Appends a failed batch's reply. REQUIRES: room for kFrameHeaderBytes + kReplyMessageBytesMax.
void AppendRefusal(uint64_t sequence, const Status& status, ByteQueue* out);

}  // namespace farleaf::dsm
