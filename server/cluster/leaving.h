// A node that is about to end, as planned, and to come back: an ephemeral entry /leaving/ID, without bytes, of its session. The master gives it nothing more,
// and its primaries successors out of those in sync; its replicas stay where they are (placement.h).
//
// The entry goes with the node's own (/nodes/ID), as both are of one session: so who is there in a new life is not leaving any more.
//
// Thread rule: that of Membership.
#pragma once

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

}  // namespace farleaf::server::cluster
