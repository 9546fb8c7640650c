// The native protocol: frames between a client and a compute server (client/format.md has the
// grammar, a picture and a worked example).
//
// A connection opens with one hello frame in each direction; then the client sends batches of
// requests, a frame each, as many as it likes in one write, and the server answers each request with
// one response frame of the same request id, in any order. A batch carries the view by which its
// requests were routed; a server of another view refuses it whole, unexecuted, and names its own.
//
// Invariants:
//   - parsing is total: any bytes give a message or a Status::Corruption, never more memory than a
//     constant times the frame's own size, never a read beyond the frame;
//   - every count and length is bounded by a constant of messages.h, checked before it is used;
//   - a parsed message holds views into the frame and is valid as long as the frame's bytes.
// Thread rule: pure functions and value types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "client/internal/fields.h"
#include "client/messages.h"
#include "client/password.h"
#include "dsm/base/bytes.h"
#include "dsm/base/result.h"
#include "dsm/base/status.h"

namespace farleaf::client::protocol {

// ---- Frames ----

/// The outcome of looking for a frame at the front of a buffer.
struct FrameLookup {
  enum class State : uint8_t { kIncomplete, kComplete, kTooLong };
  State state = State::kIncomplete;
  std::span<const std::byte> body;  ///< kComplete
  size_t frame_bytes = 4;           ///< with the length field: what the whole frame needs
};

inline FrameLookup FindFrame(std::span<const std::byte> buffer, uint32_t body_bytes_max) {
  FrameLookup found;
  if (buffer.size() < 4) return found;
  const auto length = LoadLittle<uint32_t>(buffer.data());
  found.frame_bytes = size_t{4} + length;
  if (length > body_bytes_max) {
    found.state = FrameLookup::State::kTooLong;
  } else if (buffer.size() >= found.frame_bytes) {
    found.state = FrameLookup::State::kComplete;
    found.body = buffer.subspan(4, length);
  }
  return found;
}

// ---- Requests ----
//
// A request stands in its batch like a frame: length, then id u64 · tree u32 · deadline_ms u32 · opcode u8.

/// Where a client that sends an encoded request again puts what has changed since (from the request's
/// first byte, the length field).
inline constexpr size_t kRequestIdAt = 4;
inline constexpr size_t kRequestTreeAt = 12;
inline constexpr size_t kRequestDeadlineAt = 16;

/// InvalidArgument if a field is longer than the protocol carries.
inline Status CheckLimits(const Request& request) {
  const auto too_long = [](std::string_view what, size_t bytes, size_t bytes_max) {
    return Status::InvalidArgument(std::string(what) + " of " + std::to_string(bytes) +
                                   " bytes; at most " + std::to_string(bytes_max) + " can be sent");
  };
  const auto check_key = [&](std::string_view key) {
    return key.size() > kKeyBytesMax ? too_long("a key", key.size(), kKeyBytesMax) : Status::Ok();
  };
  FARLEAF_RETURN_IF_ERROR(check_key(request.key));
  if (request.end) FARLEAF_RETURN_IF_ERROR(check_key(*request.end));
  for (std::string_view value : {request.value, request.expected}) {
    if (value.size() > kValueBytesMax) return too_long("a value", value.size(), kValueBytesMax);
  }
  if (request.name.size() > kTreeNameBytesMax) {
    return too_long("a tree's name", request.name.size(), kTreeNameBytesMax);
  }
  size_t keys_bytes = 0;
  for (std::string_view key : request.keys) {
    FARLEAF_RETURN_IF_ERROR(check_key(key));
    keys_bytes += 4 + key.size();
  }
  if (request.keys.size() > kMultiGetKeysMax || keys_bytes > kValueBytesMax) {
    return Status::InvalidArgument("a multi-get of " + std::to_string(request.keys.size()) +
                                   " keys, " + std::to_string(keys_bytes) + " bytes; at most " +
                                   std::to_string(kMultiGetKeysMax) + " keys and " +
                                   std::to_string(kValueBytesMax) + " bytes can be sent");
  }
  return Status::Ok();
}

/// Appends the request as it stands in a batch. REQUIRES: CheckLimits(request).ok().
inline void AppendRequest(const Request& request, std::string* out) {
  internal::FrameWriter frame(out);
  frame.Write(request.id);
  frame.Write(request.tree);
  frame.Write(request.deadline_ms);
  internal::WriteOpcode(frame, request);
  internal::WriteRequestFields(frame, request);
}

/// Corruption if the body is no request; `request->id` is then set if the body was long enough to
/// have one.
inline Status ParseRequest(std::span<const std::byte> body, Request* request) {
  internal::FrameReader in(body);
  request->id = in.Read<uint64_t>();
  request->tree = in.Read<uint32_t>();
  request->deadline_ms = in.Read<uint32_t>();
  const auto raw = in.Read<uint8_t>();
  if (!in.ok()) return Status::Corruption("a request shorter than its header");
  if (!internal::IsRawOpcode(raw)) {
    return Status::Corruption("a request of unknown opcode " + std::to_string(raw));
  }
  request->opcode = internal::OpcodeOf(raw);
  if (internal::HasTerms(raw)) internal::ReadTerms(in, request);
  internal::ReadRequestFields(in, request);
  if (!in.finished()) {
    return Status::Corruption("a malformed " + std::string(OpcodeName(request->opcode)) +
                              " request of " + std::to_string(body.size()) + " bytes");
  }
  return Status::Ok();
}

// ---- Batches ----
//
// Header, after the length field: number u32 · view u32 · count u32; then the requests.

inline constexpr size_t kBatchHeaderBytes = 16;  ///< the length field included
inline constexpr size_t kBatchCountAt = 12;      ///< from the frame's first byte

/// Appends a batch's header, its length and count still open. Returns where it begins in `out`.
inline size_t BeginBatch(uint32_t number, uint32_t view, std::string* out) {
  const size_t begin = out->size();
  ByteWriter writer(out);
  writer.Write<uint32_t>(0);
  writer.Write(number);
  writer.Write(view);
  writer.Write<uint32_t>(0);
  return begin;
}
/// The `count` requests of the batch that begins at `begin` are appended.
inline void EndBatch(size_t begin, uint32_t count, std::string* out) {
  const size_t length = out->size() - begin - 4;
  FARLEAF_CHECK(length <= kFrameBytesMax && count <= kBatchRequestsMax, length, count);
  StoreLittle(out->data() + begin, static_cast<uint32_t>(length));
  StoreLittle(out->data() + begin + kBatchCountAt, count);
}
/// A batch of one request.
inline void AppendBatch(uint32_t number, uint32_t view, const Request& request, std::string* out) {
  const size_t begin = BeginBatch(number, view, out);
  AppendRequest(request, out);
  EndBatch(begin, 1, out);
}

/// The header of a batch's frame; `requests` is what stands behind it, to be taken with NextRequest.
inline Result<Batch> ParseBatch(std::span<const std::byte> body,
                                std::span<const std::byte>* requests) {
  internal::FrameReader in(body);
  Batch batch;
  batch.number = in.Read<uint32_t>();
  batch.view = in.Read<uint32_t>();
  batch.count = in.ReadCount(kBatchRequestsMax);
  if (!in.good()) return Status::Corruption("a batch with a malformed header");
  *requests = in.ReadBytes(in.remaining());
  return batch;
}
/// Takes the next request of a batch, whose views are into it, off the front of `requests`.
inline Status NextRequest(std::span<const std::byte>* requests, Request* request) {
  const FrameLookup found = FindFrame(*requests, kFrameBytesMax);
  if (found.state != FrameLookup::State::kComplete) {
    return Status::Corruption("a batch with a request that is cut short");
  }
  *requests = requests->subspan(found.frame_bytes);
  return ParseRequest(found.body, request);
}

// ---- Responses ----
//
// Header, after the length field: id u64 · opcode u8 · status code u8.

inline void AppendResponse(const Response& response, std::string* out) {
  // The header in one piece: each append looks at the string's room.
  std::array<char, 14> head{};
  StoreLittle(&head[4], response.id);
  const bool stale = response.staleness_ms.has_value() && response.code == StatusCode::kOk;
  StoreLittle(&head[12], internal::RawOpcode(response.opcode, stale));
  StoreLittle(&head[13], static_cast<uint8_t>(response.code));
  if (response.wrong_view) {
    StoreLittle(&head[12], internal::kNoOpcode);
    StoreLittle(&head[13], internal::kCodeWrongView);
  } else if (response.goodbye) {
    StoreLittle(&head[12], internal::kNoOpcode);
    StoreLittle(&head[13], internal::kCodeGoodbye);
  }
  internal::FrameWriter frame(out, head);
  if (response.goodbye) return;
  if (response.wrong_view) {
    frame.Write(response.refused_from);
    frame.Write(response.view);
    return;
  }
  if (response.code == StatusCode::kOk) {
    if (stale) frame.Write(*response.staleness_ms);
    internal::WritePayload(frame, response);
  } else {
    frame.WriteField(response.message.substr(0, kMessageBytesMax));
  }
}

inline Status ParseResponse(std::span<const std::byte> body, Response* response) {
  internal::FrameReader in(body);
  response->id = in.Read<uint64_t>();
  const auto opcode = in.Read<uint8_t>();
  const auto code = in.Read<uint8_t>();
  response->wrong_view = code == internal::kCodeWrongView && opcode == internal::kNoOpcode;
  if (response->wrong_view) {
    response->refused_from = in.Read<uint32_t>();
    response->view = in.Read<uint32_t>();
    return in.finished() ? Status::Ok() : Status::Corruption("a malformed refusal of a batch");
  }
  response->goodbye = code == internal::kCodeGoodbye && opcode == internal::kNoOpcode;
  if (response->goodbye) {
    return in.finished() && response->id == 0 ? Status::Ok()
                                              : Status::Corruption("a malformed goodbye");
  }
  const bool failed = code != static_cast<uint8_t>(StatusCode::kOk);
  if (!in.ok() || !internal::IsRawOpcode(opcode) || code > kStatusCodeMax ||
      (internal::HasTerms(opcode) && (failed || !IsRead(internal::OpcodeOf(opcode))))) {
    return Status::Corruption("a response with a malformed header");
  }
  response->opcode = internal::OpcodeOf(opcode);
  response->code = static_cast<StatusCode>(code);
  if (response->code == StatusCode::kOk) {
    if (internal::HasTerms(opcode)) response->staleness_ms = in.Read<uint32_t>();
    internal::ReadPayload(in, response);
  } else {
    response->message = in.ReadField(kMessageBytesMax);
  }
  if (!in.finished()) {
    return Status::Corruption("a malformed response to " +
                              std::string(OpcodeName(response->opcode)));
  }
  return Status::Ok();
}

// ---- Hello ----
//
// The first fields, magic and version, stay where they are in every version. A peer that reads
// another version than its own looks at nothing behind it.

inline constexpr uint16_t kHelloWithPassword = 1;  ///< of a client hello's flags

inline void AppendClientHello(const ClientHello& hello, std::string* out) {
  internal::FrameWriter frame(out);
  frame.WriteBytes(kMagic);
  frame.Write(hello.version);
  frame.Write<uint16_t>(hello.password.empty() ? 0 : kHelloWithPassword);
  frame.Write(hello.view);
  if (!hello.password.empty()) frame.WriteField(hello.password);
}

inline Result<ClientHello> ParseClientHello(std::span<const std::byte> body) {
  internal::FrameReader in(body);
  if (AsChars(in.ReadBytes(kMagic.size())) != kMagic) {
    return Status::Corruption("the peer does not speak Farleaf's native protocol");
  }
  ClientHello hello;
  hello.version = in.Read<uint16_t>();
  if (in.ok() && hello.version != kVersion) return hello;
  const auto flags = in.Read<uint16_t>();
  in.ExpectZero(flags & ~kHelloWithPassword);
  hello.view = in.Read<uint32_t>();
  if (flags & kHelloWithPassword) hello.password = in.ReadField(kPasswordBytesMax);
  if (!in.finished()) return Status::Corruption("a malformed client hello");
  return hello;
}

inline void AppendServerHello(const ServerHello& hello, std::string* out) {
  internal::FrameWriter frame(out);
  frame.WriteBytes(kMagic);
  frame.Write(hello.version);
  frame.Write(static_cast<uint8_t>(hello.code));
  frame.WriteField(std::string_view(hello.message).substr(0, kMessageBytesMax));
  frame.Write(hello.view);
  frame.Write(hello.key_bytes_max);
  frame.Write(hello.value_bytes_max);
  frame.Write(hello.in_flight_max);
  frame.Write(hello.instance);
}

/// With another version than ours only `version`, and `code` and `message` where they can be read.
inline Result<ServerHello> ParseServerHello(std::span<const std::byte> body) {
  internal::FrameReader in(body);
  if (AsChars(in.ReadBytes(kMagic.size())) != kMagic) {
    return Status::Corruption("the peer does not speak Farleaf's native protocol");
  }
  ServerHello hello;
  hello.version = in.Read<uint16_t>();
  if (!in.ok()) return Status::Corruption("a malformed server hello");
  hello.code = static_cast<StatusCode>(in.ReadEnum(kStatusCodeMax));
  hello.message = in.ReadField(kMessageBytesMax);
  if (hello.version != kVersion) {
    if (!in.good()) {
      hello.code = StatusCode::kOk;
      hello.message.clear();
    }
    return hello;
  }
  hello.view = in.Read<uint32_t>();
  hello.key_bytes_max = in.Read<uint32_t>();
  hello.value_bytes_max = in.Read<uint32_t>();
  hello.in_flight_max = in.Read<uint32_t>();
  hello.instance = in.Read<uint64_t>();
  if (!in.finished()) return Status::Corruption("a malformed server hello");
  return hello;
}

}  // namespace farleaf::client::protocol
