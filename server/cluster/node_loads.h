// NodeLoads: how much each node has, as decisions are made: of how many regions it is the primary, or is to become it, and of how many it holds a copy, or is
// to.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "server/membership/region_map.h"

namespace farleaf::server::cluster {

using membership::NodeEntry;
using membership::NodeId;
using membership::RegionEntry;

class NodeLoads {
 public:
  NodeLoads(const std::vector<NodeEntry>& nodes, const std::vector<NodeId>& leaving,
            const std::vector<RegionEntry>& regions);

  void Add(const RegionEntry& region) { Count(region, 1); }
  void Remove(const RegionEntry& region) { Count(region, -1); }

  bool IsThere(NodeId node) const { return nodes_.contains(node); }
  bool IsLeaving(NodeId node) const;
  /// Whether it may be given something: it is there, has memory, and stays.
  bool Takes(NodeId node) const;
  /// 0 of who is not there.
  int64_t primaries(NodeId node) const;
  int64_t replicas(NodeId node) const;
  /// Who may be given something, ascending.
  const std::vector<NodeId>& takers() const { return takers_; }

 private:
  struct Node {
    int64_t primaries = 0, replicas = 0;
    bool takes = false;
  };
  void Count(const RegionEntry& region, int64_t by);

  const std::vector<NodeId> leaving_;
  std::map<NodeId, Node> nodes_;
  std::vector<NodeId> takers_;
};

}  // namespace farleaf::server::cluster
