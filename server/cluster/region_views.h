// RegionViews: the view of a region as its primary changes it (replication::ViewKeeper), in the membership.
//
// Thread rule: thread-safe; the session outlives it.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

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

  /// Tried until it is known, or the session is over, or Stop.
  dsm::Task<Status> Exclude(dsm::Worker& worker, NodeId node) override;
  dsm::Task<Status> Include(dsm::Worker& worker, NodeId node) override;
  /// What is not known by now is not waited for: Unavailable.
  void Stop() { stopping_.store(true); }

 private:
  /// `change` makes the next view of the one it is given; false: there is nothing to change.
  using Changing = std::function<Result<bool>(RegionEntry* region)>;
  dsm::Task<Status> Change(dsm::Worker& worker, const Changing& change);

  membership::Membership* const session_;
  membership::RegionStore store_;
  const Clock* const clock_;
  const RegionId region_;
  const NodeId self_;
  std::atomic<bool> stopping_{false};
};

/// Of an ascending list.
bool Contains(const std::vector<NodeId>& nodes, NodeId node);
void Insert(std::vector<NodeId>* nodes, NodeId node);
void Erase(std::vector<NodeId>* nodes, NodeId node);

}  // namespace farleaf::server::cluster
