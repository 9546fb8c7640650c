// Placement: what the master is to change: who serves which region, and where its copies are. A pure function of what is kept of
// regions and nodes.
//
// For each region by itself, whatever else goes on (Place, in this order; a decision sees what those before it have decided):
//   1. A primary that is gone is replaced by one of those in sync that are there, who stay in sync until he has begun; if there is none the region is headless,
//      until those who were in sync are back, and have told what they hold (held.h): who holds most becomes the primary, and nobody else is in sync. Who is
//      gone leaves in_sync and filling, and who is leaving leaves filling.
//   2. A `successor` that is gone, leaving or outside of `assigned` is no longer wished; one that is no member yet is put into filling.
//   3. Nodes are put into filling until there are as many members as are wanted; of an assigned region those of `assigned`, one after the other.
//   4. Who is too many leaves: nobody as long as one is missing, never the primary, nor the successor.
//   5. The primary's node is leaving, or outside of `assigned`: it gets a successor.
// If that has changed nothing, and nothing is under way at all, one step of balance (README.md: why it comes to an end):
//   6. Primaries: who has two more than another hands one over.  7. Replicas: the same, of those that are not primaries.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "server/cluster/held.h"
#include "server/membership/region_map.h"

namespace farleaf::server::cluster {

using membership::NodeEntry;
using membership::NodeId;
using membership::RegionEntry;
using membership::RegionId;

/// What the master sees.
struct Placement {
  std::vector<RegionEntry> regions;  ///< all of them
  std::vector<NodeEntry> nodes;      ///< that are there
  std::vector<NodeId> leaving;       ///< ascending: about to end, and to come back (leaving.h)
  std::vector<RegionId> waited;      ///< ascending: headless for long enough (MasterOptions)
  std::vector<Held> held;            ///< of headless regions, by nodes that are there
  uint32_t replicas = 1;             ///< wanted of each region, its primary included
};

/// What the regions should become that should become something else, in the order in which they are given. Each has the keys and id, view and moves of
/// the one in its place.
std::vector<RegionEntry> Place(const Placement& seen);

}  // namespace farleaf::server::cluster
