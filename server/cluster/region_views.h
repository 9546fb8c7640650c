// RegionViews: the view of a region as its primary changes it (replication::ViewKeeper), in the membership.
//
// Thread rule: thread-safe; the session outlives it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
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
  dsm::Task<Result<std::vector<NodeId>>> Exclude(dsm::Worker& worker, NodeId node) override;
  /// NotFound also: the life of Expect is over. What the entry says then is of the node's next one.
  dsm::Task<Status> Include(dsm::Worker& worker, NodeId node) override;
  /// This life of the node is being filled. By whoever calls Include then.
  void Expect(NodeId node, uint64_t life) { lives_[node] = life; }
  /// What is not known by now is not waited for: Unavailable.
  void Stop() { stopping_.store(true); }

 private:
  /// `change` makes the next view of the one it is given; false: there is nothing to change.
  using Changing = std::function<Result<bool>(RegionEntry* region)>;
  /// `lives`: a node that has to be announced, in the life of Expect; kNoNode: none.
  dsm::Task<Status> Change(dsm::Worker& worker, NodeId lives, const Changing& change);
  dsm::Task<Status> CheckLives(dsm::Worker& worker, NodeId node);

  membership::Membership* const session_;
  membership::RegionStore store_;
  const Clock* const clock_;
  const RegionId region_;
  const NodeId self_;
  std::atomic<bool> stopping_{false};
  std::map<NodeId, uint64_t> lives_;  // of the control worker
};

/// Of an ascending list.
bool Contains(const std::vector<NodeId>& nodes, NodeId node);
void Insert(std::vector<NodeId>* nodes, NodeId node);
void Erase(std::vector<NodeId>* nodes, NodeId node);

}  // namespace farleaf::server::cluster
