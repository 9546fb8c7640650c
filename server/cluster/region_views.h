// RegionViews: the view of a region as its primary changes it (replication::ViewKeeper), in the membership.
//
// Thread rule: thread-safe; the session outlives it.
#pragma once

#include "dsm/base/clock.h"
#include "server/membership/region_store.h"
#include "server/replication/replica_set.h"

namespace farleaf::server::cluster {

using membership::NodeId;
using membership::RegionEntry;
using membership::RegionId;

class RegionViews final : public replication::ViewKeeper {
 public:
  /// `self` is the primary. `clock` is the session's.
  RegionViews(membership::Membership* session, const Clock* clock, RegionId region, NodeId self)
      : session_(session), store_(session), clock_(clock), region_(region), self_(self) {}

  /// Tried while the session's lease runs, and a moment longer; then Unavailable.
  dsm::Task<Status> Exclude(dsm::Worker& worker, NodeId node) override;
  dsm::Task<Status> Include(dsm::Worker& worker, NodeId node) override;
  /// The node is filled no more: the master decides whether it is to be, anew.
  dsm::Task<Status> GiveUp(dsm::Worker& worker, NodeId node);

 private:
  /// `change` makes the next view of the one it is given; false: there is nothing to change.
  using Changing = std::function<Result<bool>(RegionEntry* region)>;
  dsm::Task<Status> Change(dsm::Worker& worker, const Changing& change);

  membership::Membership* const session_;
  membership::RegionStore store_;
  const Clock* const clock_;
  const RegionId region_;
  const NodeId self_;
};

/// Of an ascending list.
bool Contains(const std::vector<NodeId>& nodes, NodeId node);
void Insert(std::vector<NodeId>* nodes, NodeId node);
void Erase(std::vector<NodeId>* nodes, NodeId node);

}  // namespace farleaf::server::cluster
