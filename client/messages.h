// The messages of the native protocol: opcodes, limits, requests, responses, hellos.
//
// A message that was parsed holds views into its frame.
// Thread rule: value types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/durability.h"
#include "dsm/base/status.h"

namespace farleaf::client::protocol {

inline constexpr std::string_view kMagic{"FARLEAF\n", 8};
inline constexpr uint16_t kVersion = 2;

inline constexpr uint32_t kKeyBytesMax = 64 << 10;
inline constexpr uint32_t kValueBytesMax = 16 << 20;
inline constexpr uint32_t kTreeNameBytesMax = 255;
inline constexpr uint32_t kMessageBytesMax = 4096;
inline constexpr uint32_t kMultiGetKeysMax = 1024;
inline constexpr uint32_t kListedTreesMax = 65536;
inline constexpr uint32_t kRangesMax = 65536;
inline constexpr uint32_t kUrlBytesMax = 1024;
inline constexpr uint32_t kBatchRequestsMax = 4096;
/// Of a value that `add` counts in: two's complement, big-endian, so that fixed8 trees take it and
/// numbers that are not negative sort.
inline constexpr size_t kCounterBytes = 8;
/// Of a frame, without its length field: room for a compare-and-set of two largest values.
constexpr uint32_t FrameBytesMax(uint32_t value_bytes_max) {
  return 2 * value_bytes_max + (1 << 20);
}
inline constexpr uint32_t kFrameBytesMax = FrameBytesMax(kValueBytesMax);
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
  kRangeMap = 6,
  kSlowLog = 7,
  kOpenRing = 8,
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
  kAdd = 39,
};

constexpr bool IsIdempotent(Opcode opcode) { return static_cast<uint8_t>(opcode) < 32; }
constexpr bool NamesNoKey(Opcode opcode) {
  return static_cast<uint8_t>(opcode) < 16 || opcode == Opcode::kCreateTree;
}
/// Whether it may be stale: get, multi_get, scan.
constexpr bool IsRead(Opcode opcode) {
  return static_cast<uint8_t>(opcode) >= 16 && static_cast<uint8_t>(opcode) < 32;
}
/// Whether it may ask for durability: a change of keys.
constexpr bool IsWrite(Opcode opcode) {
  return static_cast<uint8_t>(opcode) >= 32 && opcode != Opcode::kCreateTree;
}
/// Whether any server does it, so that it may come in a batch that was routed by no view.
constexpr bool IsUnrouted(Opcode opcode, uint32_t max_staleness_ms) {
  return NamesNoKey(opcode) || max_staleness_ms > 0;
}

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
    case Opcode::kRangeMap:
      return "range_map";
    case Opcode::kSlowLog:
      return "slow_log";
    case Opcode::kOpenRing:
      return "open_ring";
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
    case Opcode::kAdd:
      return "add";
  }
  return "";
}
constexpr bool IsOpcode(uint8_t raw) { return !OpcodeName(static_cast<Opcode>(raw)).empty(); }

enum class TreeLayout : uint8_t { kFixed8 = 1, kBytes = 2 };

/// How a leaf's entries stand in its page (index/blink/geometry.h).
enum class LeafLayout : uint8_t { kDefault = 0, kSorted = 1, kParted = 2 };

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
  LeafLayout leaf_layout = LeafLayout::kDefault;  ///< kDefault, 0, 0: not a tree of such pages
  uint32_t leaf_bytes = 0;
  uint32_t node_bytes = 0;
  std::string name;
  bool operator==(const TreeInfo&) const = default;
};

/// What fixes a tree's pages, chosen when it is created. 0: the server's default for the layout.
struct TreeGeometry {
  uint32_t leaf_bytes = 0;
  uint32_t node_bytes = 0;  ///< of an internal node
  LeafLayout leaf_layout = LeafLayout::kDefault;
  uint32_t key_bytes_max = 0;
  uint32_t inline_value_bytes_max = 0;  ///< longer values lie outside of the leaf
  bool operator==(const TreeGeometry&) const = default;
};

/// The areas of a ring (client/ring/format.h).
struct RingBytes {
  uint32_t request = 0;
  uint32_t reply = 0;
  bool operator==(const RingBytes&) const = default;
};

/// Who serves the keys from `start` up to the next range's.
struct ServedRange {
  std::string start;  ///< empty: from the smallest key
  std::string url;    ///< empty: the server that was asked; among several: nobody known now
  bool operator==(const ServedRange&) const = default;
};

/// What stands in front of a batch's requests.
struct Batch {
  uint32_t number = 0;  ///< the client's, one more with each batch on a connection
  uint32_t view = 0;    ///< by which all of them were routed; 0: none of them needs to be
  uint32_t count = 0;
};

struct Request {
  uint64_t id = 0;
  Opcode opcode = Opcode::kPing;
  uint32_t tree = 0;
  uint32_t deadline_ms = 0;  ///< from arrival at the server; 0: the server's default
  /// Of a read: it may be answered by a copy that is no older than this; 0: it sees all that was acknowledged.
  uint32_t max_staleness_ms = 0;
  WriteDurability durability = WriteDurability::kOfStore;  ///< of a write, at least
  std::string_view key;  ///< scan: the start, empty for the smallest key
  std::string_view value;
  std::string_view expected;
  std::optional<std::string_view> end;     ///< scan: exclusive
  uint64_t limit = 0;                      ///< scan
  bool reverse = false;                    ///< scan
  bool keys_only = false;                  ///< scan
  int64_t delta = 0;                       ///< add
  std::optional<int64_t> initial;          ///< add: an absent key counts from here
  std::vector<std::string_view> keys;      ///< multi_get
  std::string_view name;                   ///< open_tree, create_tree
  TreeLayout layout = TreeLayout::kBytes;  ///< create_tree
  TreeGeometry geometry;                   ///< create_tree
  RingBytes ring;                          ///< open_ring: wanted
};

struct Row {
  std::string_view key;
  std::string_view value;
  bool operator==(const Row&) const = default;
};

struct Response {
  uint64_t id = 0;
  Opcode opcode = Opcode::kPing;
  /// Of the batch with number `id` all requests from `refused_from` on (counted from 0) are refused,
  /// unexecuted: route by the server's `view`, and send them again. Nothing else is set then.
  bool wrong_view = false;
  uint32_t refused_from = 0;
  /// The server stops: nothing that it has not answered was begun. Nothing else is set then.
  bool goodbye = false;
  uint32_t view = 0;  ///< range_map, and if wrong_view: the server's
  StatusCode code = StatusCode::kOk;
  std::string_view message;  ///< unless kOk
  /// Of a read that may be stale: how old what was read may be, rounded up.
  std::optional<uint32_t> staleness_ms;

  std::optional<std::string_view> value;  ///< get
  std::vector<std::optional<std::string_view>>
      values;            ///< multi_get: of the first keys, at least one
  bool changed = false;  ///< insert, update: stored; put: new; delete: was there
  ConditionOutcome outcome = ConditionOutcome::kDone;  ///< delete_if, compare_and_set
  std::string_view current;       ///< compare_and_set, if kDifferent: the value that is there
  int64_t number = 0;             ///< add: the value after it
  std::vector<Row> rows;          ///< scan
  bool keys_only = false;         ///< scan: the rows have no values
  bool more = false;              ///< scan: ended at a piece's end, before the range's
  std::string_view continuation;  ///< scan, if more: the rest's start (reverse: its end, exclusive)
  std::vector<TreeInfo> trees;    ///< list_trees; open_tree and create_tree: exactly one
  std::string_view text;          ///< server_stats: lines `name value`
  std::vector<ServedRange> ranges;  ///< range_map: at least one, ascending
  RingBytes ring;  ///< open_ring: granted; the memory's descriptor comes with the response
};

struct ClientHello {
  uint16_t version = kVersion;
  uint32_t view = 0;          ///< last known; 0: none
  std::string_view password;  ///< empty: none is given
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

}  // namespace farleaf::client::protocol
