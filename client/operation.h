// Operation: one request of the application on its way to its callback.
//
// Thread rule: a value type; its callback is called once, on the thread that polls the session.
#pragma once

#include <algorithm>
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

/// Keys in [start, end) that begin with `prefix`, at most `limit`, ascending; reverse: the same keys,
/// descending from the largest.
struct ScanRange {
  std::string start{};               ///< empty: from the smallest key
  std::optional<std::string> end{};  ///< exclusive; nullopt: to the largest key
  uint64_t limit = UINT64_MAX;
  bool reverse = false;
  std::string prefix{};
  bool keys_only = false;  ///< the rows come without values
};

/// What a compare-and-set found; it has stored if kDone.
struct CompareAndSetResult {
  ConditionOutcome outcome = ConditionOutcome::kDone;
  std::optional<std::string> current;  ///< the value that is there, if kDifferent

  bool operator==(const CompareAndSetResult&) const = default;
  bool operator==(ConditionOutcome other) const { return outcome == other; }
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

/// Who serves which keys, as one server has told.
struct RangeMap {
  uint32_t view = 0;
  std::vector<protocol::ServedRange> ranges;
};

// The outcomes of operations, and their callbacks.
using Value = std::optional<std::string>;
using Values = std::vector<Value>;
using Rows = std::vector<KeyValue>;
template <typename T>
using Callback = std::function<void(Result<T>)>;
/// Takes one piece of a scan's rows; false: no more are wanted.
using PieceCallback = std::function<bool(Rows rows)>;

struct Operation {
  static constexpr uint32_t kNoTree = UINT32_MAX;

  /// What a read that takes several requests has gathered.
  struct Pieces {
    /// Where a scan goes on behind `range`, which is a server's part of it: up to `bound` (reverse: down to it).
    struct Beyond {
      std::optional<std::string> bound;
    };

    ScanRange range;  ///< what is left of it
    std::optional<Beyond> beyond;
    bool part_done = false;  ///< nothing is left of `range`, and there is more beyond
    std::vector<std::string>
        keys;  ///< of the whole multi-get; the first values.size() are answered
    Values values;
    Rows rows;
    PieceCallback on_piece;    ///< takes the rows as they come; `rows` stays empty then
    uint64_t rows_passed = 0;  ///< to it
  };

  protocol::Opcode opcode = protocol::Opcode::kPing;
  uint32_t tree = kNoTree;           ///< handle
  uint64_t deadline_ns = 0;          ///< on the session's clock
  uint32_t max_staleness_ms = 0;     ///< CallOptions
  uint32_t* staleness_ms = nullptr;  ///< likewise
  uint64_t order = 0;                ///< of a client's, that of their start
  std::string frame;  ///< encoded; id, view, tree and deadline are filled in when it is sent
  std::unique_ptr<Pieces> pieces;  ///< scan, multi_get
  std::variant<Callback<Value>, Callback<Values>, Callback<Rows>, Callback<bool>,
               Callback<ConditionOutcome>, Callback<CompareAndSetResult>, Callback<int64_t>,
               Callback<uint64_t>, Callback<OpenedTree>, Callback<std::vector<TreeInfo>>,
               Callback<RangeMap>, Callback<std::string>>
      callback;

  bool idempotent() const { return protocol::IsIdempotent(opcode); }
  bool unrouted() const { return protocol::IsUnrouted(opcode, max_staleness_ms); }
  /// Of one response, of several that it may have.
  void NoteStaleness(const protocol::Response& response) {
    if (staleness_ms == nullptr) return;
    *staleness_ms = std::max(*staleness_ms, response.staleness_ms.value_or(0));
  }
  void Fail(const Status& status) {
    std::visit([&](auto& call) { call(status); }, callback);
  }
  template <typename T>
  void Succeed(T value) {
    std::get<Callback<T>>(callback)(Result<T>(std::move(value)));
  }
};

namespace internal {

/// The smallest byte string above all that begin with `prefix`; nullopt: there is none.
inline std::optional<std::string> EndOfPrefix(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (prefix.empty()) return std::nullopt;
  prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix;
}

/// The same keys without a prefix: those from it up to its end are all that begin with it. Bounds of a
/// fixed8 tree have its keys' length. Returns whether any key can be in the range.
inline bool ResolvePrefix(const TreeInfo& tree, ScanRange* range) {
  if (range->prefix.empty()) return true;
  std::string first = std::exchange(range->prefix, {});
  std::optional<std::string> behind = EndOfPrefix(first);
  if (tree.layout == TreeLayout::kFixed8) {
    if (first.size() > tree.key_bytes_max) return false;
    first.resize(tree.key_bytes_max, '\0');
    if (behind) behind->resize(tree.key_bytes_max, '\0');
  }
  if (first.size() > tree.key_bytes_max) return false;
  if (range->start < first) range->start = std::move(first);
  if (behind && (!range->end || *behind < *range->end)) range->end = std::move(behind);
  return !range->end || range->start < *range->end;
}

/// The next request of a scan or multi-get that is not yet complete.
inline void EncodeNextPiece(Operation* operation) {
  const Operation::Pieces& pieces = *operation->pieces;
  protocol::Request request;
  request.opcode = operation->opcode;
  request.max_staleness_ms = operation->max_staleness_ms;
  if (operation->opcode == protocol::Opcode::kScan) {
    request.key = pieces.range.start;
    request.end = pieces.range.end;
    request.limit = pieces.range.limit;
    request.reverse = pieces.range.reverse;
    request.keys_only = pieces.range.keys_only;
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
  if (response.keys_only != pieces->range.keys_only) {
    return Status::Corruption("a scan answered with other than it asked for");
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

/// Hands the rows to whoever takes them as they come; false: no more are wanted.
inline bool PassPiece(Operation::Pieces* pieces) {
  if (pieces->rows.empty()) return true;
  Rows rows = std::exchange(pieces->rows, {});
  pieces->rows_passed += rows.size();
  return pieces->on_piece(std::move(rows));
}

}  // namespace internal
}  // namespace farleaf::client
