#include "server/cluster/node_loads.h"

#include <algorithm>

#include "server/cluster/region_views.h"

namespace farleaf::server::cluster {

NodeLoads::NodeLoads(const std::vector<NodeEntry>& nodes, const std::vector<NodeId>& leaving,
                     const std::vector<RegionEntry>& regions)
    : leaving_(leaving) {
  for (const NodeEntry& node : nodes) {
    const bool takes = !node.fabric_endpoint.empty() && !IsLeaving(node.id);
    nodes_[node.id].takes = takes;
  }
  for (const auto& [id, node] : nodes_) {
    if (node.takes) takers_.push_back(id);
  }
  for (const RegionEntry& region : regions) Add(region);
}

bool NodeLoads::IsLeaving(NodeId node) const { return Contains(leaving_, node); }

bool NodeLoads::Takes(NodeId node) const {
  const auto at = nodes_.find(node);
  return at != nodes_.end() && at->second.takes;
}

int64_t NodeLoads::primaries(NodeId node) const {
  const auto at = nodes_.find(node);
  return at == nodes_.end() ? 0 : at->second.primaries;
}

int64_t NodeLoads::replicas(NodeId node) const {
  const auto at = nodes_.find(node);
  return at == nodes_.end() ? 0 : at->second.replicas;
}

void NodeLoads::Count(const RegionEntry& region, int64_t by) {
  for (const std::vector<NodeId>* members : {&region.in_sync, &region.filling}) {
    for (const NodeId id : *members) {
      const auto at = nodes_.find(id);
      if (at != nodes_.end()) at->second.replicas += by;
    }
  }
  // Whoever takes a region over counts as its primary as soon as that is decided, so that the next decision is not given to him as well. A primary that is
  // gone hands nothing over.
  const auto primary = nodes_.find(region.primary);
  if (primary == nodes_.end()) return;
  const auto heir = nodes_.find(region.successor);
  (heir == nodes_.end() ? primary : heir)->second.primaries += by;
}

}  // namespace farleaf::server::cluster
