// What is kept of nodes and regions: the values of entries (format.md), and the map that all regions together are.
//
// Invariants: a parsed entry keeps the rules at its fields; a RegionMap's regions cover all keys, each once.
// Thread rule: value types and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/region_layout.h"

namespace farleaf::server::membership {

using NodeId = dsm::MemberId;
inline constexpr NodeId kNoNode = 0;
enum class RegionId : uint32_t { kNone = 0 };

inline constexpr size_t kEndpointsMax = 8;
inline constexpr size_t kEndpointBytesMax = 255;
inline constexpr size_t kRegionKeyBytesMax = 4096;
inline constexpr size_t kMembersMax = 16;  ///< in sync and being filled, each

/// A node that is there: an ephemeral entry of its session.
struct NodeEntry {
  NodeId id = kNoNode;       ///< not kNoNode
  uint64_t incarnation = 0;  ///< from 1
  std::vector<std::string>
      native_endpoints;         ///< where clients find it; 0 to kEndpointsMax, none empty
  std::string fabric_endpoint;  ///< where its memory is; empty: nowhere

  bool operator==(const NodeEntry&) const = default;
};

enum class RegionState : uint8_t {
  kServing = 1,   ///< by its primary
  kHeadless = 2,  ///< no primary: one of those in sync is to become it
};

/// A region, as of one view: a persistent entry.
struct RegionEntry {
  RegionId id = RegionId::kNone;  ///< not kNone
  uint32_t view = 0;              ///< from 1; grows with each change of the entry
  uint32_t moves = 1;             ///< from 1; grows with each change of its primary or its keys
  RegionState state = RegionState::kServing;
  NodeId primary =
      kNoNode;  ///< one of those in sync; kNoNode if and only if the region is headless
  std::vector<NodeId> in_sync;  ///< the committed members: ascending, not empty
  std::vector<NodeId> filling;  ///< ascending, none of those in sync
  std::string start;            ///< its first key
  std::string end;  ///< behind its last key, larger than start; empty: there is no last key
  // What is wished for, by whom it is not known (an operator, the master):
  NodeId successor = kNoNode;    ///< to whom its primary is to hand it over, once he is in sync
  std::vector<NodeId> assigned;  ///< ascending: where it is to be; empty: where the master sees fit
  std::string split_at;  ///< where its primary is to split it, a key behind its first; empty: nowhere

  bool operator==(const RegionEntry&) const = default;
  bool Covers(std::string_view key) const { return key >= start && (end.empty() || key < end); }
};

/// InvalidArgument, with the rule that is broken.
Status CheckNodeEntry(const NodeEntry& entry);
Status CheckRegionEntry(const RegionEntry& entry);

/// REQUIRES: the entry keeps its rules.
std::string EncodeNodeEntry(const NodeEntry& entry);
std::string EncodeRegionEntry(const RegionEntry& entry);
/// Corruption, with `name` and what is wrong. What is parsed encodes to the same bytes again.
Result<NodeEntry> ParseNodeEntry(std::string_view name, std::span<const std::byte> bytes);
Result<RegionEntry> ParseRegionEntry(std::string_view name, std::span<const std::byte> bytes);

class RegionMap {
 public:
  /// InvalidArgument, with the regions concerned: keys that none or several cover, an id or entry that breaks its rules.
  static Result<RegionMap> Make(uint64_t version, std::vector<RegionEntry> regions);

  /// Grows with each change of any region.
  uint64_t version() const { return version_; }
  /// By which requests are routed: grows with each change of who serves which keys, and with nothing else.
  uint32_t view() const;
  /// In the order of their keys.
  const std::vector<RegionEntry>& regions() const { return regions_; }
  const RegionEntry& Find(std::string_view key) const;
  /// The one behind `region`; null: it is the last.
  const RegionEntry* Next(const RegionEntry& region) const;
  const RegionEntry* FindId(RegionId id) const;

 private:
  RegionMap(uint64_t version, std::vector<RegionEntry> regions)
      : version_(version), regions_(std::move(regions)) {}

  uint64_t version_;
  std::vector<RegionEntry> regions_;
};

}  // namespace farleaf::server::membership
