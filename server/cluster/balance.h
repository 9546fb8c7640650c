// Balance: the next step towards nodes that are primaries of as many regions each, and hold as many copies. A pure function; README.md says why
// one step after another comes to an end.
//
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "server/cluster/node_loads.h"

namespace farleaf::server::cluster {

/// The region to change, as it is to become: with a successor that is in sync, or one to be filled first, or with one more node to be filled; whoever is too
/// many then is taken out by Place. nullopt: it is as even as it gets.
/// REQUIRES: all regions are served, nobody is filled, nobody is to hand over and nobody is leaving. `loads` counts them all.
std::optional<RegionEntry> BalanceStep(const std::vector<RegionEntry>& regions,
                                       const NodeLoads& loads);

/// Of these, the one with the most replicas, ties by the largest id; kNoNode: there is none.
NodeId Fullest(const std::vector<NodeId>& nodes, const NodeLoads& loads);

bool IsMember(const RegionEntry& region, NodeId node);
/// Whether one more may be put into filling.
bool HasRoom(const RegionEntry& region);

}  // namespace farleaf::server::cluster
