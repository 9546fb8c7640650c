// Operation: one request of the application on its way to its callback.
//
// Thread rule: a value type; its callback is called once, on the thread that polls the session.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/protocol.h"

namespace farleaf::client {

using protocol::ConditionOutcome;
using protocol::LeafLayout;
using protocol::TreeGeometry;
using protocol::TreeInfo;
using protocol::TreeLayout;

struct KeyValue {
  std::string key;
  std::string value;
  bool operator==(const KeyValue&) const = default;
};

/// Keys in [start, end), at most `limit`, ascending; reverse: the same keys, descending from the
/// largest.
struct ScanRange {
  std::string start{};               ///< empty: from the smallest key
  std::optional<std::string> end{};  ///< exclusive; nullopt: to the largest key
  uint64_t limit = UINT64_MAX;
  bool reverse = false;
};

struct TreeSpec {
  std::string name;
  TreeLayout layout = TreeLayout::kBytes;
  TreeGeometry geometry{};
};

/// A tree as a session knows it: the handle stays valid across reconnects.
struct OpenedTree {
  TreeInfo info;
  uint32_t handle = 0;
};

// The outcomes of operations, and their callbacks.
using Value = std::optional<std::string>;
using Values = std::vector<Value>;
using Rows = std::vector<KeyValue>;
template <typename T>
using Callback = std::function<void(Result<T>)>;

struct Operation {
  static constexpr uint32_t kNoTree = UINT32_MAX;

  /// What a read that takes several requests has gathered.
  struct Pieces {
    ScanRange range;  ///< what is left of it
    std::vector<std::string>
        keys;  ///< of the whole multi-get; the first values.size() are answered
    Values values;
    Rows rows;
  };

  protocol::Opcode opcode = protocol::Opcode::kPing;
  uint32_t tree = kNoTree;   ///< handle
  uint64_t deadline_ns = 0;  ///< on the session's clock
  std::string frame;         ///< encoded; id, view, tree and deadline are filled in when it is sent
  std::unique_ptr<Pieces> pieces;  ///< scan, multi_get
  std::variant<Callback<Value>, Callback<Values>, Callback<Rows>, Callback<bool>,
               Callback<ConditionOutcome>, Callback<OpenedTree>, Callback<std::vector<TreeInfo>>,
               Callback<std::string>>
      callback;

  bool idempotent() const { return protocol::IsIdempotent(opcode); }
  void Fail(const Status& status) {
    std::visit([&](auto& call) { call(status); }, callback);
  }
  template <typename T>
  void Succeed(T value) {
    std::get<Callback<T>>(callback)(Result<T>(std::move(value)));
  }
};

namespace internal {

/// The next request of a scan or multi-get that is not yet complete.
inline void EncodeNextPiece(Operation* operation) {
  const Operation::Pieces& pieces = *operation->pieces;
  protocol::Request request;
  request.opcode = operation->opcode;
  if (operation->opcode == protocol::Opcode::kScan) {
    request.key = pieces.range.start;
    request.end = pieces.range.end;
    request.limit = pieces.range.limit;
    request.reverse = pieces.range.reverse;
  } else {
    size_t bytes = 0;
    for (size_t i = pieces.values.size(); i < pieces.keys.size(); ++i) {
      bytes += 4 + pieces.keys[i].size();
      if (request.keys.size() == protocol::kMultiGetKeysMax || bytes > protocol::kValueBytesMax) {
        break;
      }
      request.keys.push_back(pieces.keys[i]);
    }
  }
  operation->frame.clear();
  AppendRequest(request, &operation->frame);
}

/// Takes over one response's rows or values. Returns whether the operation is complete; Corruption
/// if the response does not go with the request.
inline Result<bool> TakePiece(const protocol::Response& response, Operation::Pieces* pieces) {
  if (response.opcode == protocol::Opcode::kMultiGet) {
    if (response.values.empty() != pieces->keys.empty() ||
        response.values.size() > pieces->keys.size() - pieces->values.size()) {
      return Status::Corruption("a multi-get answered with another number of values");
    }
    for (const auto& value : response.values) pieces->values.emplace_back(value);
    return pieces->values.size() == pieces->keys.size();
  }
  if (response.rows.size() > pieces->range.limit) {
    return Status::Corruption("a scan answered with more rows than asked for");
  }
  for (const protocol::Row& row : response.rows) {
    pieces->rows.push_back({std::string(row.key), std::string(row.value)});
  }
  pieces->range.limit -= response.rows.size();
  if (!response.more || pieces->range.limit == 0) return true;
  if (response.rows.empty()) return Status::Corruption("a scan answered with an empty piece");
  if (pieces->range.reverse) {
    pieces->range.end = response.continuation;
  } else {
    pieces->range.start = response.continuation;
  }
  return false;
}

}  // namespace internal
}  // namespace farleaf::client
