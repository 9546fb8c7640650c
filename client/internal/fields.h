// The codec of each opcode's fields, and the frames around them.
//
// Thread rule: pure functions and value types.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "client/messages.h"
#include "dsm/base/bytes.h"
#include "dsm/base/check.h"

namespace farleaf::client::protocol::internal {

/// Appends a frame: reserves the length field, and fills it in at the end.
class FrameWriter : public ByteWriter {
 public:
  explicit FrameWriter(std::string* out) : ByteWriter(out), out_(out), begin_(out->size()) {
    Write<uint32_t>(0);
  }
  /// `head`: what the frame begins with, its first four bytes the length field's.
  FrameWriter(std::string* out, std::span<const char> head)
      : ByteWriter(out), out_(out), begin_(out->size()) {
    out->append(head.data(), head.size());
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
  uint32_t ReadPositive() {
    const auto number = Read<uint32_t>();
    valid_ &= number > 0;
    return number;
  }
  void ExpectZero(uint64_t raw) { valid_ &= raw == 0; }
  bool good() const { return ok() && valid_; }
  bool finished() const { return good() && remaining() == 0; }

 private:
  bool valid_ = true;
};

/// The byte of an opcode has this bit as well if the request's terms follow, how stale a read may be, or how durable a write is to be; of a response, how
/// stale the read was.
inline constexpr uint8_t kTermsBit = 0x80;
inline uint8_t RawOpcode(Opcode opcode, bool terms) {
  return static_cast<uint8_t>(static_cast<uint8_t>(opcode) | (terms ? kTermsBit : 0));
}
inline bool HasTerms(uint8_t raw) { return (raw & kTermsBit) != 0; }
inline Opcode OpcodeOf(uint8_t raw) { return static_cast<Opcode>(raw & ~kTermsBit); }
inline bool IsRawOpcode(uint8_t raw) {
  const Opcode opcode = OpcodeOf(raw);
  return IsOpcode(static_cast<uint8_t>(opcode)) &&
         (!HasTerms(raw) || IsRead(opcode) || IsWrite(opcode));
}

inline void WriteOpcode(FrameWriter& out, const Request& request) {
  const bool stale = request.max_staleness_ms > 0;
  const bool durable = request.durability != WriteDurability::kOfStore;
  FARLEAF_CHECK(!stale || IsRead(request.opcode), OpcodeName(request.opcode));
  FARLEAF_CHECK(!durable || IsWrite(request.opcode), OpcodeName(request.opcode));
  out.Write(RawOpcode(request.opcode, stale || durable));
  if (stale) out.Write(request.max_staleness_ms);
  if (durable) out.Write(static_cast<uint8_t>(request.durability));
}
inline void ReadTerms(FrameReader& in, Request* request) {
  if (IsRead(request->opcode)) {
    request->max_staleness_ms = in.ReadPositive();
  } else {
    request->durability = static_cast<WriteDurability>(in.ReadEnum(kWriteDurabilityMax, 1));
  }
}

inline void WriteTree(FrameWriter& out, const TreeInfo& tree) {
  out.Write(tree.id);
  out.Write(static_cast<uint8_t>(tree.layout));
  out.Write(tree.key_bytes_max);
  out.Write(tree.value_bytes_max);
  out.Write(static_cast<uint8_t>(tree.leaf_layout));
  out.Write(tree.leaf_bytes);
  out.Write(tree.node_bytes);
  out.WriteField(tree.name);
}

inline TreeInfo ReadTree(FrameReader& in) {
  TreeInfo tree;
  tree.id = in.Read<uint32_t>();
  tree.layout = static_cast<TreeLayout>(in.ReadEnum(2, 1));
  tree.key_bytes_max = in.Read<uint32_t>();
  tree.value_bytes_max = in.Read<uint32_t>();
  tree.leaf_layout = static_cast<LeafLayout>(in.ReadEnum(2));
  tree.leaf_bytes = in.Read<uint32_t>();
  tree.node_bytes = in.Read<uint32_t>();
  tree.name = in.ReadField(kTreeNameBytesMax);
  return tree;
}

inline void ReadScanRequest(FrameReader& in, Request* request) {
  const uint8_t flags = in.ReadEnum(7);
  request->reverse = (flags & 1) != 0;
  request->keys_only = (flags & 4) != 0;
  request->limit = in.Read<uint64_t>();
  request->key = in.ReadField(kKeyBytesMax);
  if (flags & 2) request->end = in.ReadField(kKeyBytesMax);
}

inline void ReadRequestFields(FrameReader& in, Request* request) {
  switch (request->opcode) {
    case Opcode::kPing:
    case Opcode::kListTrees:
    case Opcode::kServerStats:
    case Opcode::kSlowLog:
    case Opcode::kRangeMap:
      break;
    case Opcode::kOpenTree:
      request->name = in.ReadField(kTreeNameBytesMax);
      break;
    case Opcode::kCreateTree:
      request->layout = static_cast<TreeLayout>(in.ReadEnum(2, 1));
      request->geometry.leaf_layout = static_cast<LeafLayout>(in.ReadEnum(2));
      request->geometry.leaf_bytes = in.Read<uint32_t>();
      request->geometry.node_bytes = in.Read<uint32_t>();
      request->geometry.key_bytes_max = in.Read<uint32_t>();
      request->geometry.inline_value_bytes_max = in.Read<uint32_t>();
      request->name = in.ReadField(kTreeNameBytesMax);
      break;
    case Opcode::kOpenRing:
      request->ring = {in.Read<uint32_t>(), in.Read<uint32_t>()};
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
    case Opcode::kAdd:
      request->key = in.ReadField(kKeyBytesMax);
      request->delta = static_cast<int64_t>(in.Read<uint64_t>());
      if (in.ReadFlag()) request->initial = static_cast<int64_t>(in.Read<uint64_t>());
      break;
  }
}

inline void WriteRequestFields(FrameWriter& out, const Request& request) {
  switch (request.opcode) {
    case Opcode::kPing:
    case Opcode::kListTrees:
    case Opcode::kServerStats:
    case Opcode::kSlowLog:
    case Opcode::kRangeMap:
      break;
    case Opcode::kOpenTree:
      out.WriteField(request.name);
      break;
    case Opcode::kCreateTree:
      out.Write(static_cast<uint8_t>(request.layout));
      out.Write(static_cast<uint8_t>(request.geometry.leaf_layout));
      out.Write(request.geometry.leaf_bytes);
      out.Write(request.geometry.node_bytes);
      out.Write(request.geometry.key_bytes_max);
      out.Write(request.geometry.inline_value_bytes_max);
      out.WriteField(request.name);
      break;
    case Opcode::kOpenRing:
      out.Write(request.ring.request);
      out.Write(request.ring.reply);
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
      out.Write(static_cast<uint8_t>((request.reverse ? 1 : 0) | (request.end ? 2 : 0) |
                                     (request.keys_only ? 4 : 0)));
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
    case Opcode::kAdd:
      out.WriteField(request.key);
      out.Write(static_cast<uint64_t>(request.delta));
      out.WriteFlag(request.initial.has_value());
      if (request.initial) out.Write(static_cast<uint64_t>(*request.initial));
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
    case Opcode::kSlowLog:
      response->text = in.ReadField(kFrameBytesMax);
      break;
    case Opcode::kRangeMap:
      response->view = in.Read<uint32_t>();
      for (uint32_t left = in.ReadCount(kRangesMax); left > 0 && in.good(); --left) {
        auto& range = response->ranges.emplace_back();
        range.start = in.ReadField(kKeyBytesMax);
        range.url = in.ReadField(kUrlBytesMax);
      }
      break;
    case Opcode::kOpenRing:
      response->ring = {in.Read<uint32_t>(), in.Read<uint32_t>()};
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
      response->keys_only = in.ReadFlag();
      for (uint32_t left = in.ReadCount(kFrameBytesMax / 4); left > 0 && in.good(); --left) {
        auto& row = response->rows.emplace_back();
        row.key = in.ReadField(kKeyBytesMax);
        if (!response->keys_only) row.value = in.ReadField(kValueBytesMax);
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
      response->outcome = static_cast<ConditionOutcome>(in.ReadEnum(2));
      break;
    case Opcode::kCompareAndSet:
      response->outcome = static_cast<ConditionOutcome>(in.ReadEnum(2));
      if (response->outcome == ConditionOutcome::kDifferent) {
        response->current = in.ReadField(kValueBytesMax);
      }
      break;
    case Opcode::kAdd:
      response->number = static_cast<int64_t>(in.Read<uint64_t>());
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
    case Opcode::kSlowLog:
      out.WriteField(response.text);
      break;
    case Opcode::kRangeMap:
      out.Write(response.view);
      out.Write(static_cast<uint32_t>(response.ranges.size()));
      for (const ServedRange& range : response.ranges) {
        out.WriteField(range.start);
        out.WriteField(range.url);
      }
      break;
    case Opcode::kOpenRing:
      out.Write(response.ring.request);
      out.Write(response.ring.reply);
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
      out.WriteFlag(response.keys_only);
      out.Write(static_cast<uint32_t>(response.rows.size()));
      for (const Row& row : response.rows) {
        out.WriteField(row.key);
        if (!response.keys_only) out.WriteField(row.value);
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
      out.Write(static_cast<uint8_t>(response.outcome));
      break;
    case Opcode::kCompareAndSet:
      out.Write(static_cast<uint8_t>(response.outcome));
      if (response.outcome == ConditionOutcome::kDifferent) out.WriteField(response.current);
      break;
    case Opcode::kAdd:
      out.Write(static_cast<uint64_t>(response.number));
      break;
  }
}

inline constexpr uint8_t kCodeWrongView = 255;  ///< on the wire, in the place of a StatusCode
inline constexpr uint8_t kCodeGoodbye = 254;    ///< likewise
inline constexpr uint8_t kNoOpcode = 0;         ///< of a refused batch's response

}  // namespace farleaf::client::protocol::internal
