// A node that is about to end, as planned, and to come back: an ephemeral entry /leaving/ID, without bytes, of its session. The master gives it nothing more,
// and its primaries successors out of those in sync; its replicas stay where they are, and it is filled with nothing (placement.h).
//
// A write that has begun with enough nodes in sync, of which this one ends, waits for another one (LsmStore::AwaitCopies), and is in doubt if that takes long. So
// who leaves stays for a moment where it would be *missed*: while others are on their way to be in sync, and fewer than enough would be without it.
//
// The entry goes with the node's own (/nodes/ID), as both are of one session: so who is there in a new life is not leaving any more.
//
// Thread rule: that of Membership.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/membership/membership.h"
#include "server/membership/region_map.h"

namespace farleaf::server::cluster {

using membership::NodeId;

inline constexpr const char* kLeavingPath = "/leaving";

/// `self` is leaving, until the session ends. Again does no harm. REQUIRES: the session has announced that node.
dsm::Task<Status> AnnounceLeaving(dsm::Worker& worker, membership::Membership& session,
                                  NodeId self);
/// Those that are leaving, ascending. What is watched is who they are. Corruption: an entry's name is no node's.
dsm::Task<Result<std::vector<NodeId>>> ReadLeaving(dsm::Worker& worker,
                                                   membership::Membership& session,
                                                   membership::Watch watch);

/// Of a region that is served by another node than `self`, which is leaving. Also while it is being filled: it might come to be in sync, and be counted on, as it
/// ends; the master takes it out of that. `leaving`, ascending: on those nobody counts, nor waits for them. `min_in_sync`: but one other is not enough in any
/// case, since the region would wait for that one if it were lost.
bool IsMissed(const membership::RegionEntry& region, NodeId self,
              const std::vector<NodeId>& leaving, uint32_t min_in_sync);
/// Of how many regions.
dsm::Task<Result<size_t>> CountMissing(dsm::Worker& worker, membership::Membership& session,
                                       NodeId self, uint32_t min_in_sync);

}  // namespace farleaf::server::cluster
