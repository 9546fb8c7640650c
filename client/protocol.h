// The native protocol: frames between a client and a compute server (client/format.md has the
// grammar, a picture and a worked example).
//
// A connection opens with one hello frame in each direction; then the client sends request frames,
// as many as it likes in one write, and the server answers each with one response frame of the same
// request id, in any order. Every request carries the view by which it was routed; a server of
// another view refuses it, unexecuted, and names its own.
//
// Invariants:
//   - parsing is total: any bytes give a message or a Status::Corruption, never more memory than
//   the
//     frame's own size times a constant, never a read beyond the frame;
//   - every count and length is bounded by a constant below, checked before it is used;
//   - a parsed message holds views into the frame and is valid as long as the frame's bytes.
// Thread rule: pure functions and value types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/result.h"
#include "dsm/base/status.h"

namespace farleaf::client::protocol {

inline constexpr std::string_view kMagic{"FARLEAF\n", 8};
inline constexpr uint16_t kVersion = 1;

inline constexpr uint32_t kKeyBytesMax = 64 << 10;
inline constexpr uint32_t kValueBytesMax = 16 << 20;
inline constexpr uint32_t kTreeNameBytesMax = 255;
inline constexpr uint32_t kMessageBytesMax = 4096;
inline constexpr uint32_t kMultiGetKeysMax = 1024;
inline constexpr uint32_t kListedTreesMax = 65536;
/// Of a frame, without its length field: room for a compare-and-set of two largest values.
inline constexpr uint32_t kFrameBytesMax = 2 * kValueBytesMax + (1 << 20);
/// A server ends a piece of a scan when it has passed this, of a multi-get when the next value
/// would pass 16 times this; one row or value always fits.
inline constexpr uint32_t kPieceBytes = 1 << 20;
inline constexpr uint32_t kHelloBytesMax = 8192;

enum class Opcode : uint8_t {
  // Idempotent: a client may send these again when it cannot know whether they ran.
  kPing = 2,
  kListTrees = 3,
  kOpenTree = 4,
  kServerStats = 5,
  kGet = 16,
  kMultiGet = 17,
  kScan = 18,
  // Not idempotent in a linearizable store: sent again after someone else's write, even a put would
  // undo that write.
  kInsert = 32,
  kPut = 33,
  kUpdate = 34,
  kDelete = 35,
  kDeleteIf = 36,
  kCompareAndSet = 37,
  kCreateTree = 38,
};

constexpr bool IsIdempotent(Opcode opcode) { return static_cast<uint8_t>(opcode) < 32; }

constexpr std::string_view OpcodeName(Opcode opcode) {
  switch (opcode) {
    case Opcode::kPing:
      return "ping";
    case Opcode::kListTrees:
      return "list_trees";
    case Opcode::kOpenTree:
      return "open_tree";
    case Opcode::kServerStats:
      return "server_stats";
    case Opcode::kGet:
      return "get";
    case Opcode::kMultiGet:
      return "multi_get";
    case Opcode::kScan:
      return "scan";
    case Opcode::kInsert:
      return "insert";
    case Opcode::kPut:
      return "put";
    case Opcode::kUpdate:
      return "update";
    case Opcode::kDelete:
      return "delete";
    case Opcode::kDeleteIf:
      return "delete_if";
    case Opcode::kCompareAndSet:
      return "compare_and_set";
    case Opcode::kCreateTree:
      return "create_tree";
  }
  return "";
}
constexpr bool IsOpcode(uint8_t raw) { return !OpcodeName(static_cast<Opcode>(raw)).empty(); }

enum class TreeLayout : uint8_t { kFixed8 = 1, kBytes = 2 };

constexpr std::string_view TreeLayoutName(TreeLayout layout) {
  return layout == TreeLayout::kFixed8 ? "fixed8" : "bytes";
}

/// What a conditional write found. On the wire as it stands.
enum class ConditionOutcome : uint8_t { kDone = 0, kAbsent = 1, kDifferent = 2 };

struct TreeInfo {
  uint32_t id = 0;  ///< of this server's life; a client asks again after a reconnect
  TreeLayout layout = TreeLayout::kBytes;
  uint32_t key_bytes_max = 0;
  uint32_t value_bytes_max = 0;
  std::string name;
  bool operator==(const TreeInfo&) const = default;
};

/// What fixes a tree's pages, chosen when it is created. 0: the server's default for the layout.
struct TreeGeometry {
  uint32_t page_bytes = 0;
  uint32_t key_bytes_max = 0;
  uint32_t inline_value_bytes_max = 0;  ///< longer values lie outside of the leaf
  bool operator==(const TreeGeometry&) const = default;
};

struct Request {
  uint64_t id = 0;
  Opcode opcode = Opcode::kPing;
  uint32_t view = 0;
  uint32_t tree = 0;
  uint32_t deadline_ms = 0;  ///< from arrival at the server; 0: the server's default
  std::string_view key;      ///< scan: the start, empty for the smallest key
  std::string_view value;
  std::string_view expected;
  std::optional<std::string_view> end;     ///< scan: exclusive
  uint64_t limit = 0;                      ///< scan
  bool reverse = false;                    ///< scan
  std::vector<std::string_view> keys;      ///< multi_get
  std::string_view name;                   ///< open_tree, create_tree
  TreeLayout layout = TreeLayout::kBytes;  ///< create_tree
  TreeGeometry geometry;                   ///< create_tree
};

struct Row {
  std::string_view key;
  std::string_view value;
  bool operator==(const Row&) const = default;
};

struct Response {
  uint64_t id = 0;
  Opcode opcode = Opcode::kPing;
  uint32_t view = 0;        ///< the server's
  bool wrong_view = false;  ///< refused, unexecuted: route by `view` and send again
  StatusCode code = StatusCode::kOk;
  std::string_view message;  ///< unless kOk

  std::optional<std::string_view> value;  ///< get
  std::vector<std::optional<std::string_view>>
      values;            ///< multi_get: of the first keys, at least one
  bool changed = false;  ///< insert, update: stored; put: new; delete: was there
  ConditionOutcome outcome = ConditionOutcome::kDone;  ///< delete_if, compare_and_set
  std::vector<Row> rows;                               ///< scan
  bool more = false;              ///< scan: ended at a piece's end, before the range's
  std::string_view continuation;  ///< scan, if more: the rest's start (reverse: its end, exclusive)
  std::vector<TreeInfo> trees;    ///< list_trees; open_tree and create_tree: exactly one
  std::string_view text;          ///< server_stats: lines `name value`
};

struct ClientHello {
  uint16_t version = kVersion;
  uint32_t view = 0;  ///< last known; 0: none
};

struct ServerHello {
  uint16_t version = kVersion;
  StatusCode code = StatusCode::kOk;  ///< else the connection is refused
  uint32_t view = 0;
  uint32_t key_bytes_max = kKeyBytesMax;
  uint32_t value_bytes_max = kValueBytesMax;
  uint32_t in_flight_max = 0;  ///< requests a connection may have at the server; more wait unread
  uint64_t instance = 0;       ///< drawn when the server started
  std::string message;
};

// ---- Frames
// --------------------------------------------------------------------------------------

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

namespace internal {

/// Appends a frame: reserves the length field, and fills it in at the end.
class FrameWriter : public ByteWriter {
 public:
  explicit FrameWriter(std::string* out) : ByteWriter(out), out_(out), begin_(out->size()) {
    Write<uint32_t>(0);
  }
  ~FrameWriter() {
    const size_t length = out_->size() - begin_ - 4;
    FARLEAF_CHECK(length <= kFrameBytesMax, length);
    StoreLittle(out_->data() + begin_, static_cast<uint32_t>(length));
  }
  FrameWriter(const FrameWriter&) = delete;

  void WriteField(std::string_view bytes) {
    Write(static_cast<uint32_t>(bytes.size()));
    WriteBytes(bytes);
  }
  void WriteFlag(bool flag) { Write(static_cast<uint8_t>(flag)); }

 private:
  std::string* out_;
  size_t begin_;
};

class FrameReader : public ByteReader {
 public:
  using ByteReader::ByteReader;

  /// A length and as many bytes, at most `bytes_max`.
  std::string_view ReadField(size_t bytes_max) {
    const auto length = Read<uint32_t>();
    if (length > bytes_max) {
      valid_ = false;
      return {};
    }
    return AsChars(ReadBytes(length));
  }
  bool ReadFlag() { return ReadEnum(1) != 0; }
  uint8_t ReadEnum(uint8_t largest, uint8_t smallest = 0) {
    const auto raw = Read<uint8_t>();
    if (raw > largest || raw < smallest) valid_ = false;
    return raw;
  }
  uint32_t ReadCount(uint32_t largest) {
    const auto count = Read<uint32_t>();
    if (count > largest) valid_ = false;
    return valid_ && ok() ? count : 0;
  }
  void ExpectZero(uint64_t raw) { valid_ &= raw == 0; }
  bool good() const { return ok() && valid_; }
  bool finished() const { return good() && remaining() == 0; }

 private:
  bool valid_ = true;
};

inline void WriteTree(FrameWriter& out, const TreeInfo& tree) {
  out.Write(tree.id);
  out.Write(static_cast<uint8_t>(tree.layout));
  out.Write(tree.key_bytes_max);
  out.Write(tree.value_bytes_max);
  out.WriteField(tree.name);
}

inline TreeInfo ReadTree(FrameReader& in) {
  TreeInfo tree;
  tree.id = in.Read<uint32_t>();
  tree.layout = static_cast<TreeLayout>(in.ReadEnum(2, 1));
  tree.key_bytes_max = in.Read<uint32_t>();
  tree.value_bytes_max = in.Read<uint32_t>();
  tree.name = in.ReadField(kTreeNameBytesMax);
  return tree;
}

inline void ReadScanRequest(FrameReader& in, Request* request) {
  const uint8_t flags = in.ReadEnum(3);
  request->reverse = (flags & 1) != 0;
  request->limit = in.Read<uint64_t>();
  request->key = in.ReadField(kKeyBytesMax);
  if (flags & 2) request->end = in.ReadField(kKeyBytesMax);
}

inline void ReadRequestFields(FrameReader& in, Request* request) {
  switch (request->opcode) {
    case Opcode::kPing:
    case Opcode::kListTrees:
    case Opcode::kServerStats:
      break;
    case Opcode::kOpenTree:
      request->name = in.ReadField(kTreeNameBytesMax);
      break;
    case Opcode::kCreateTree:
      request->layout = static_cast<TreeLayout>(in.ReadEnum(2, 1));
      request->geometry.page_bytes = in.Read<uint32_t>();
      request->geometry.key_bytes_max = in.Read<uint32_t>();
      request->geometry.inline_value_bytes_max = in.Read<uint32_t>();
      request->name = in.ReadField(kTreeNameBytesMax);
      break;
    case Opcode::kGet:
    case Opcode::kDelete:
      request->key = in.ReadField(kKeyBytesMax);
      break;
    case Opcode::kMultiGet:
      for (uint32_t left = in.ReadCount(kMultiGetKeysMax); left > 0 && in.good(); --left) {
        request->keys.push_back(in.ReadField(kKeyBytesMax));
      }
      break;
    case Opcode::kScan:
      ReadScanRequest(in, request);
      break;
    case Opcode::kInsert:
    case Opcode::kPut:
    case Opcode::kUpdate:
      request->key = in.ReadField(kKeyBytesMax);
      request->value = in.ReadField(kValueBytesMax);
      break;
    case Opcode::kDeleteIf:
      request->key = in.ReadField(kKeyBytesMax);
      request->expected = in.ReadField(kValueBytesMax);
      break;
    case Opcode::kCompareAndSet:
      request->key = in.ReadField(kKeyBytesMax);
      request->expected = in.ReadField(kValueBytesMax);
      request->value = in.ReadField(kValueBytesMax);
      break;
  }
}

inline void WriteRequestFields(FrameWriter& out, const Request& request) {
  switch (request.opcode) {
    case Opcode::kPing:
    case Opcode::kListTrees:
    case Opcode::kServerStats:
      break;
    case Opcode::kOpenTree:
      out.WriteField(request.name);
      break;
    case Opcode::kCreateTree:
      out.Write(static_cast<uint8_t>(request.layout));
      out.Write(request.geometry.page_bytes);
      out.Write(request.geometry.key_bytes_max);
      out.Write(request.geometry.inline_value_bytes_max);
      out.WriteField(request.name);
      break;
    case Opcode::kGet:
    case Opcode::kDelete:
      out.WriteField(request.key);
      break;
    case Opcode::kMultiGet:
      out.Write(static_cast<uint32_t>(request.keys.size()));
      for (std::string_view key : request.keys) out.WriteField(key);
      break;
    case Opcode::kScan:
      out.Write(static_cast<uint8_t>((request.reverse ? 1 : 0) | (request.end ? 2 : 0)));
      out.Write(request.limit);
      out.WriteField(request.key);
      if (request.end) out.WriteField(*request.end);
      break;
    case Opcode::kInsert:
    case Opcode::kPut:
    case Opcode::kUpdate:
      out.WriteField(request.key);
      out.WriteField(request.value);
      break;
    case Opcode::kDeleteIf:
      out.WriteField(request.key);
      out.WriteField(request.expected);
      break;
    case Opcode::kCompareAndSet:
      out.WriteField(request.key);
      out.WriteField(request.expected);
      out.WriteField(request.value);
      break;
  }
}

inline void ReadPayload(FrameReader& in, Response* response) {
  switch (response->opcode) {
    case Opcode::kPing:
      break;
    case Opcode::kListTrees:
      for (uint32_t left = in.ReadCount(kListedTreesMax); left > 0 && in.good(); --left) {
        response->trees.push_back(ReadTree(in));
      }
      break;
    case Opcode::kOpenTree:
    case Opcode::kCreateTree:
      response->trees.push_back(ReadTree(in));
      break;
    case Opcode::kServerStats:
      response->text = in.ReadField(kFrameBytesMax);
      break;
    case Opcode::kGet:
      if (in.ReadFlag()) response->value = in.ReadField(kValueBytesMax);
      break;
    case Opcode::kMultiGet:
      for (uint32_t left = in.ReadCount(kMultiGetKeysMax); left > 0 && in.good(); --left) {
        auto& value = response->values.emplace_back();
        if (in.ReadFlag()) value = in.ReadField(kValueBytesMax);
      }
      break;
    case Opcode::kScan:
      for (uint32_t left = in.ReadCount(kFrameBytesMax / 8); left > 0 && in.good(); --left) {
        auto& row = response->rows.emplace_back();
        row.key = in.ReadField(kKeyBytesMax);
        row.value = in.ReadField(kValueBytesMax);
      }
      response->more = in.ReadFlag();
      if (response->more) response->continuation = in.ReadField(kKeyBytesMax);
      break;
    case Opcode::kInsert:
    case Opcode::kPut:
    case Opcode::kUpdate:
    case Opcode::kDelete:
      response->changed = in.ReadFlag();
      break;
    case Opcode::kDeleteIf:
    case Opcode::kCompareAndSet:
      response->outcome = static_cast<ConditionOutcome>(in.ReadEnum(2));
      break;
  }
}

inline void WritePayload(FrameWriter& out, const Response& response) {
  switch (response.opcode) {
    case Opcode::kPing:
      break;
    case Opcode::kListTrees:
      out.Write(static_cast<uint32_t>(response.trees.size()));
      for (const TreeInfo& tree : response.trees) WriteTree(out, tree);
      break;
    case Opcode::kOpenTree:
    case Opcode::kCreateTree:
      FARLEAF_CHECK(response.trees.size() == 1, response.trees.size());
      WriteTree(out, response.trees.front());
      break;
    case Opcode::kServerStats:
      out.WriteField(response.text);
      break;
    case Opcode::kGet:
      out.WriteFlag(response.value.has_value());
      if (response.value) out.WriteField(*response.value);
      break;
    case Opcode::kMultiGet:
      out.Write(static_cast<uint32_t>(response.values.size()));
      for (const auto& value : response.values) {
        out.WriteFlag(value.has_value());
        if (value) out.WriteField(*value);
      }
      break;
    case Opcode::kScan:
      out.Write(static_cast<uint32_t>(response.rows.size()));
      for (const Row& row : response.rows) {
        out.WriteField(row.key);
        out.WriteField(row.value);
      }
      out.WriteFlag(response.more);
      if (response.more) out.WriteField(response.continuation);
      break;
    case Opcode::kInsert:
    case Opcode::kPut:
    case Opcode::kUpdate:
    case Opcode::kDelete:
      out.WriteFlag(response.changed);
      break;
    case Opcode::kDeleteIf:
    case Opcode::kCompareAndSet:
      out.Write(static_cast<uint8_t>(response.outcome));
      break;
  }
}

inline constexpr uint8_t kCodeWrongView = 255;  ///< on the wire, in the place of a StatusCode

}  // namespace internal

// ---- Requests
// ------------------------------------------------------------------------------------ Header,
// after the length field: id u64 · view u32 · tree u32 · deadline_ms u32 · opcode u8.

/// Where a client that sends an encoded frame again puts what has changed since (from the frame's
/// first byte, the length field).
inline constexpr size_t kRequestIdAt = 4;
inline constexpr size_t kRequestViewAt = 12;
inline constexpr size_t kRequestTreeAt = 16;
inline constexpr size_t kRequestDeadlineAt = 20;

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

/// Appends the request's frame. REQUIRES: CheckLimits(request).ok().
inline void AppendRequest(const Request& request, std::string* out) {
  internal::FrameWriter frame(out);
  frame.Write(request.id);
  frame.Write(request.view);
  frame.Write(request.tree);
  frame.Write(request.deadline_ms);
  frame.Write(static_cast<uint8_t>(request.opcode));
  internal::WriteRequestFields(frame, request);
}

/// Corruption if the body is no request; `request->id` is then set if the body was long enough to
/// have one.
inline Status ParseRequest(std::span<const std::byte> body, Request* request) {
  internal::FrameReader in(body);
  request->id = in.Read<uint64_t>();
  request->view = in.Read<uint32_t>();
  request->tree = in.Read<uint32_t>();
  request->deadline_ms = in.Read<uint32_t>();
  const auto opcode = in.Read<uint8_t>();
  if (!in.ok()) return Status::Corruption("a request shorter than its header");
  if (!IsOpcode(opcode)) {
    return Status::Corruption("a request of unknown opcode " + std::to_string(opcode));
  }
  request->opcode = static_cast<Opcode>(opcode);
  internal::ReadRequestFields(in, request);
  if (!in.finished()) {
    return Status::Corruption("a malformed " + std::string(OpcodeName(request->opcode)) +
                              " request of " + std::to_string(body.size()) + " bytes");
  }
  return Status::Ok();
}

// ---- Responses
// ----------------------------------------------------------------------------------- Header, after
// the length field: id u64 · view u32 · opcode u8 · status code u8.

inline void AppendResponse(const Response& response, std::string* out) {
  internal::FrameWriter frame(out);
  frame.Write(response.id);
  frame.Write(response.view);
  frame.Write(static_cast<uint8_t>(response.opcode));
  frame.Write(response.wrong_view ? internal::kCodeWrongView : static_cast<uint8_t>(response.code));
  if (response.wrong_view) return;
  if (response.code == StatusCode::kOk) {
    internal::WritePayload(frame, response);
  } else {
    frame.WriteField(response.message.substr(0, kMessageBytesMax));
  }
}

inline Status ParseResponse(std::span<const std::byte> body, Response* response) {
  internal::FrameReader in(body);
  response->id = in.Read<uint64_t>();
  response->view = in.Read<uint32_t>();
  const auto opcode = in.Read<uint8_t>();
  const auto code = in.Read<uint8_t>();
  response->wrong_view = code == internal::kCodeWrongView;
  if (!in.ok() || !IsOpcode(opcode) || (code > kStatusCodeMax && !response->wrong_view)) {
    return Status::Corruption("a response with a malformed header");
  }
  response->opcode = static_cast<Opcode>(opcode);
  if (!response->wrong_view) {
    response->code = static_cast<StatusCode>(code);
    if (response->code == StatusCode::kOk) {
      internal::ReadPayload(in, response);
    } else {
      response->message = in.ReadField(kMessageBytesMax);
    }
  }
  if (!in.finished()) {
    return Status::Corruption("a malformed response to " +
                              std::string(OpcodeName(response->opcode)));
  }
  return Status::Ok();
}

// ---- Hello
// --------------------------------------------------------------------------------------- The first
// fields, magic · version, stay where they are in every version. A peer that reads another version
// than its own looks at nothing behind it.

inline void AppendClientHello(const ClientHello& hello, std::string* out) {
  internal::FrameWriter frame(out);
  frame.WriteBytes(kMagic);
  frame.Write(hello.version);
  frame.Write<uint16_t>(0);  // flags, none yet
  frame.Write(hello.view);
}

inline Result<ClientHello> ParseClientHello(std::span<const std::byte> body) {
  internal::FrameReader in(body);
  if (AsChars(in.ReadBytes(kMagic.size())) != kMagic) {
    return Status::Corruption("the peer does not speak Farleaf's native protocol");
  }
  ClientHello hello;
  hello.version = in.Read<uint16_t>();
  if (in.ok() && hello.version != kVersion) return hello;
  in.ExpectZero(in.Read<uint16_t>());
  hello.view = in.Read<uint32_t>();
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
