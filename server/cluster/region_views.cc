#include "server/cluster/region_views.h"

#include <algorithm>

namespace farleaf::server::cluster {

using membership::StoredRegion;

namespace {
/// Between two tries, while the membership does not answer or others change the entry.
constexpr uint64_t kChangeRetryNs = 20 * kNsPerMs;
}  // namespace

bool Contains(const std::vector<NodeId>& nodes, NodeId node) {
  return std::ranges::binary_search(nodes, node);
}
void Insert(std::vector<NodeId>* nodes, NodeId node) {
  if (!Contains(*nodes, node)) nodes->insert(std::ranges::lower_bound(*nodes, node), node);
}
void Erase(std::vector<NodeId>* nodes, NodeId node) { std::erase(*nodes, node); }

dsm::Task<Status> RegionViews::CheckLives(dsm::Worker& worker, NodeId node) {
  if (node == membership::kNoNode) co_return Status::Ok();
  const auto life = lives_.find(node);
  if (life == lives_.end()) co_return Status::Ok();
  auto nodes = co_await store_.Nodes(worker, membership::Watch::kNothing);
  if (!nodes.ok()) co_return nodes.status();
  const bool there = std::ranges::any_of(*nodes, [&](const membership::NodeEntry& each) {
    return each.id == node && each.incarnation == life->second;
  });
  if (there) co_return Status::Ok();
  co_return Status::NotFound("node " + std::to_string(node) + ": the life that was filled is over");
}

// Who lives behind the look at the entry has not left it by then; if he leaves it before the commit, the version is another.
dsm::Task<Status> RegionViews::Change(dsm::Worker& worker, NodeId lives, const Changing& change) {
  for (;;) {
    Result<StoredRegion> seen = co_await store_.Get(worker, region_, membership::Watch::kNothing);
    Status status = seen.ok() ? Status::Ok() : seen.status();
    if (seen.ok()) {
      if (seen->region.primary != self_) {
        co_return Status::Fenced("region " + std::to_string(static_cast<uint32_t>(region_)) +
                                 ": node " + std::to_string(seen->region.primary) +
                                 " is the primary, and not this one");
      }
      RegionEntry changed = seen->region;
      const Result<bool> wanted = change(&changed);
      if (!wanted.ok()) co_return wanted.status();
      if (!*wanted) co_return Status::Ok();
      status = co_await CheckLives(worker, lives);
      if (status.ok()) {
        auto committed = co_await store_.ChangeView(worker, *seen, changed);
        status = committed.status();
      }
    }
    if (status.ok() || status.code() == StatusCode::kFenced) co_return status;
    const bool again = status.code() == StatusCode::kUnavailable ||
                       status.code() == StatusCode::kUnknown ||
                       status.code() == StatusCode::kVersionMismatch;
    // Behind the lease somebody else may be the primary; if not, the next try shows it.
    if (!again || stopping_ || session_->state() == membership::SessionState::kExpired) {
      co_return status;
    }
    co_await worker.Sleep(kChangeRetryNs);
  }
}

dsm::Task<Result<std::vector<NodeId>>> RegionViews::Exclude(dsm::Worker& worker, NodeId node) {
  std::vector<NodeId> members;
  const Changing take_out = [node, &members](RegionEntry* region) -> Result<bool> {
    const bool there = Contains(region->in_sync, node) || Contains(region->filling, node);
    Erase(&region->in_sync, node);
    Erase(&region->filling, node);
    members = region->in_sync;
    return there;
  };
  Status changed = co_await Change(worker, membership::kNoNode, take_out);
  if (!changed.ok()) co_return changed;
  co_return members;
}

dsm::Task<Status> RegionViews::Include(dsm::Worker& worker, NodeId node) {
  const Changing move = [node](RegionEntry* region) -> Result<bool> {
    if (Contains(region->in_sync, node)) return false;
    if (!Contains(region->filling, node)) {
      return Status::NotFound("node " + std::to_string(node) +
                              " is not wanted as a backup any more");
    }
    Erase(&region->filling, node);
    Insert(&region->in_sync, node);
    return true;
  };
  Status changed = co_await Change(worker, node, move);
  co_return changed;
}

}  // namespace farleaf::server::cluster
