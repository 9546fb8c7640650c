#include "dsm/tcp/frame.h"

#include <string>

#include "dsm/base/bytes.h"

namespace farleaf::dsm {

namespace {

constexpr uint64_t kFrameBytesMax =
    kFrameHeaderBytes + Batch::kVerbsMax * (kFrameVerbBytes + 16) + Batch::kPayloadBytesMax;
static_assert(kFrameBytesMax <= UINT32_MAX);

bool IsKnown(uint8_t kind) {
  return kind >= static_cast<uint8_t>(VerbKind::kRead) &&
         kind <= static_cast<uint8_t>(VerbKind::kFetchAdd);
}

Status ValidateVerb(const FrameVerb& verb, bool write_refused, uint64_t region_bytes) {
  if (!IsKnown(verb.kind)) {
    return Status::InvalidArgument("unknown verb kind " + std::to_string(verb.kind));
  }
  const auto kind = static_cast<VerbKind>(verb.kind);
  const bool is_atomic = kind == VerbKind::kCompareAndSwap || kind == VerbKind::kFetchAdd;
  if (verb.length == 0 || verb.length % 8 != 0 || verb.offset % 8 != 0 ||
      verb.length > Batch::kVerbBytesMax || (is_atomic && verb.length != 8) ||
      verb.length > region_bytes || verb.offset > region_bytes - verb.length) {
    return Status::InvalidArgument("verb on [" + std::to_string(verb.offset) + ", +" +
                                   std::to_string(verb.length) + ") is outside the region of " +
                                   std::to_string(region_bytes) + " bytes, or misaligned");
  }
  if (kind == VerbKind::kWrite && write_refused) {
    return Status::InvalidArgument("a WRITE behind a READ or an atomic is not ordered");
  }
  return Status::Ok();
}

}  // namespace

void EncodeRequestHeader(const RequestHeader& header, std::byte* to) {
  StoreLittle<uint32_t>(to, header.frame_bytes);
  StoreLittle<uint16_t>(to + 4, header.verb_count);
  StoreLittle<uint16_t>(to + 6, 0);
  StoreLittle<uint64_t>(to + 8, header.sequence);
}

void EncodeFrameVerb(const Verb& verb, std::byte* to) {
  StoreLittle<uint32_t>(to, static_cast<uint8_t>(verb.kind));
  StoreLittle<uint32_t>(to + 4, verb.length);
  StoreLittle<uint64_t>(to + 8, verb.offset);
}

void EncodeReplyHeader(const ReplyHeader& header, std::byte* to) {
  StoreLittle<uint32_t>(to, header.frame_bytes);
  StoreLittle<uint32_t>(to + 4, static_cast<uint8_t>(header.code));
  StoreLittle<uint64_t>(to + 8, header.sequence);
}

Result<RequestHeader> ParseRequestHeader(std::span<const std::byte> bytes) {
  RequestHeader header;
  header.frame_bytes = LoadLittle<uint32_t>(bytes.data());
  header.verb_count = LoadLittle<uint16_t>(bytes.data() + 4);
  header.sequence = LoadLittle<uint64_t>(bytes.data() + 8);
  if (header.verb_count == 0 || header.verb_count > Batch::kVerbsMax ||
      LoadLittle<uint16_t>(bytes.data() + 6) != 0) {
    return Status::Corruption("a batch of " + std::to_string(header.verb_count) +
                              " verbs, allowed are 1 to " + std::to_string(Batch::kVerbsMax));
  }
  if (header.frame_bytes < kFrameHeaderBytes + header.verb_count * kFrameVerbBytes ||
      header.frame_bytes > kFrameBytesMax) {
    return Status::Corruption("a frame of " + std::to_string(header.frame_bytes) + " bytes for " +
                              std::to_string(header.verb_count) + " verbs");
  }
  return header;
}

FrameVerb ParseFrameVerb(std::span<const std::byte> bytes) {
  return {LoadLittle<uint8_t>(bytes.data()), LoadLittle<uint32_t>(bytes.data() + 4),
          LoadLittle<uint64_t>(bytes.data() + 8)};
}

Result<ReplyHeader> ParseReplyHeader(std::span<const std::byte> bytes) {
  ReplyHeader header;
  header.frame_bytes = LoadLittle<uint32_t>(bytes.data());
  const uint8_t code = LoadLittle<uint8_t>(bytes.data() + 4);
  header.sequence = LoadLittle<uint64_t>(bytes.data() + 8);
  if (code > kStatusCodeMax || header.frame_bytes < kFrameHeaderBytes ||
      (code != 0 && header.frame_bytes > kFrameHeaderBytes + kReplyMessageBytesMax)) {
    return Status::Corruption("a malformed reply (" + std::to_string(header.frame_bytes) +
                              " bytes, status " + std::to_string(code) + ")");
  }
  header.code = static_cast<StatusCode>(code);
  return header;
}

Status ValidateRequest(const RequestHeader& header, std::span<const FrameVerb> verbs,
                       uint64_t region_bytes) {
  Status refusal;
  bool all_known = true, write_refused = false;
  uint64_t payload_bytes = 0, result_bytes = 0;
  for (const FrameVerb& verb : verbs) {
    if (refusal.ok()) refusal = ValidateVerb(verb, write_refused, region_bytes);
    if (!IsKnown(verb.kind)) {
      all_known = false;
      continue;
    }
    const auto kind = static_cast<VerbKind>(verb.kind);
    write_refused |= kind != VerbKind::kWrite;
    payload_bytes += RequestPayloadBytes(kind, verb.length);
    result_bytes += ReplyPayloadBytes(kind, verb.length);
  }
  const uint64_t expected_bytes =
      kFrameHeaderBytes + verbs.size() * kFrameVerbBytes + payload_bytes;
  if (all_known && expected_bytes != header.frame_bytes) {
    return Status::Corruption("a frame of " + std::to_string(header.frame_bytes) +
                              " bytes whose verbs take " + std::to_string(expected_bytes));
  }
  if (refusal.ok() && result_bytes > Batch::kPayloadBytesMax) {
    return Status::InvalidArgument("a batch that reads " + std::to_string(result_bytes) +
                                   " bytes, allowed are " +
                                   std::to_string(Batch::kPayloadBytesMax));
  }
  return refusal;
}

void AppendRefusal(uint64_t sequence, const Status& status, ByteQueue* out) {
  const std::string_view message = status.message().substr(0, kReplyMessageBytesMax);
  std::byte header[kFrameHeaderBytes];
  EncodeReplyHeader(
      {static_cast<uint32_t>(kFrameHeaderBytes + message.size()), status.code(), sequence}, header);
  out->Append(header);
  out->Append(AsBytes(message));
}

}  // namespace farleaf::dsm
