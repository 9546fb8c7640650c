#include "server/cluster/balance.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "server/cluster/region_views.h"

namespace farleaf::server::cluster {

namespace {

/// From this difference on, moving one from the fuller to the emptier node makes them more even.
constexpr int64_t kUneven = 2;

/// Whether the region's primary may become that backup.
bool MayHandOverTo(const RegionEntry& region, NodeId node, const NodeLoads& loads) {
  return node != region.primary && Contains(region.in_sync, node) && loads.Takes(node) &&
         (region.assigned.empty() || Contains(region.assigned, node));
}

bool MayGetCopy(const RegionEntry& region, NodeId node) {
  return region.assigned.empty() && HasRoom(region) && !IsMember(region, node);
}

RegionEntry WithSuccessor(const RegionEntry& region, NodeId node) {
  RegionEntry changed = region;
  changed.successor = node;
  if (!IsMember(region, node)) Insert(&changed.filling, node);
  return changed;
}

/// Who can hand over to whom, and one region of it, the first.
using HandOvers = std::map<NodeId, std::map<NodeId, const RegionEntry*>>;

HandOvers AllHandOvers(const std::vector<RegionEntry>& regions, const NodeLoads& loads) {
  HandOvers all;
  for (const RegionEntry& region : regions) {
    for (const NodeId node : region.in_sync) {
      if (MayHandOverTo(region, node, loads)) all[region.primary].try_emplace(node, &region);
    }
  }
  return all;
}

/// From one node by handing over to another, from there to the next: a region each. Its last step is made first: then each of its nodes has been given one
/// before it hands one over.
struct Chain {
  int64_t steps = 0;
  int64_t difference = 0;  ///< of the primaries of its two ends
  NodeId from = membership::kNoNode, to = membership::kNoNode;
  const RegionEntry* last = nullptr;

  bool IsBetterThan(const Chain& other) const {
    return other.last == nullptr ||
           std::tuple(steps, -difference, from, to) <
               std::tuple(other.steps, -other.difference, other.from, other.to);
  }
};

/// The shortest chain from `from` to somebody with fewer primaries; its `last` is null: there is none.
Chain ChainFrom(NodeId from, const HandOvers& all, const NodeLoads& loads) {
  std::map<NodeId, int64_t> steps = {{from, 0}};
  std::deque<NodeId> next = {from};
  Chain best;
  for (; !next.empty(); next.pop_front()) {
    const NodeId at = next.front();
    const auto hand_overs = all.find(at);
    if (hand_overs == all.end()) continue;
    for (const auto& [to, region] : hand_overs->second) {
      if (!steps.try_emplace(to, steps[at] + 1).second) continue;
      next.push_back(to);
      const Chain chain{steps[to], loads.primaries(from) - loads.primaries(to), from, to, region};
      if (chain.difference >= kUneven && chain.IsBetterThan(best)) best = chain;
    }
  }
  return best;
}

std::optional<RegionEntry> HandOver(const std::vector<RegionEntry>& regions,
                                    const NodeLoads& loads) {
  const HandOvers all = AllHandOvers(regions, loads);
  Chain best;
  for (const auto& [from, to] : all) {
    const Chain chain = ChainFrom(from, all, loads);
    if (chain.last != nullptr && chain.IsBetterThan(best)) best = chain;
  }
  if (best.last == nullptr) return std::nullopt;
  return WithSuccessor(*best.last, best.to);
}

/// The best of several changes: the one with the greatest gain, ties by the first.
class Best {
 public:
  void Offer(std::pair<int64_t, int64_t> gain, const RegionEntry& region, NodeId node) {
    if (region_ != nullptr && gain <= gain_) return;
    gain_ = gain;
    region_ = &region;
    node_ = node;
  }
  const RegionEntry* region() const { return region_; }
  NodeId node() const { return node_; }

 private:
  std::pair<int64_t, int64_t> gain_;
  const RegionEntry* region_ = nullptr;
  NodeId node_ = membership::kNoNode;
};

/// To a node that gets a copy first. Of the region's others the fullest leaves behind that.
std::optional<RegionEntry> HandOverByCopy(const std::vector<RegionEntry>& regions,
                                          const NodeLoads& loads) {
  Best best;
  for (const RegionEntry& region : regions) {
    const int64_t leaves = loads.replicas(Fullest(region.in_sync, loads));
    for (const NodeId node : loads.takers()) {
      const int64_t difference = loads.primaries(region.primary) - loads.primaries(node);
      if (difference < kUneven || !MayGetCopy(region, node)) continue;
      best.Offer({difference, leaves - loads.replicas(node)}, region, node);
    }
  }
  if (best.region() == nullptr) return std::nullopt;
  return WithSuccessor(*best.region(), best.node());
}

/// A backup's copy; its primaries stay where they are.
std::optional<RegionEntry> MoveReplica(const std::vector<RegionEntry>& regions,
                                       const NodeLoads& loads) {
  Best best;
  for (const RegionEntry& region : regions) {
    std::vector<NodeId> backups = region.in_sync;
    Erase(&backups, region.primary);
    if (backups.empty()) continue;
    const int64_t leaves = loads.replicas(Fullest(backups, loads));
    for (const NodeId node : loads.takers()) {
      const int64_t difference = leaves - loads.replicas(node);
      if (difference >= kUneven && MayGetCopy(region, node)) {
        best.Offer({difference, 0}, region, node);
      }
    }
  }
  if (best.region() == nullptr) return std::nullopt;
  RegionEntry changed = *best.region();
  Insert(&changed.filling, best.node());
  return changed;
}

/// Where the fuller node is the primary of all that it could give away: it gives one away as its primary, and is given another one's primary in exchange, if the
/// numbers of primaries ask for it.
std::optional<RegionEntry> MoveReplicaOfPrimary(const std::vector<RegionEntry>& regions,
                                                const NodeLoads& loads) {
  const HandOvers all = AllHandOvers(regions, loads);
  const auto gives_back = [&](NodeId from, NodeId to) {
    const auto hand_overs = all.find(from);
    return hand_overs != all.end() && hand_overs->second.contains(to);
  };
  Best best;
  for (const RegionEntry& region : regions) {
    const NodeId primary = region.primary;
    for (const NodeId node : loads.takers()) {
      const int64_t difference = loads.replicas(primary) - loads.replicas(node);
      if (difference < kUneven || !MayGetCopy(region, node)) continue;
      if (loads.primaries(primary) == loads.primaries(node) + 1 || gives_back(node, primary)) {
        best.Offer({difference, 0}, region, node);
      }
    }
  }
  if (best.region() == nullptr) return std::nullopt;
  return WithSuccessor(*best.region(), best.node());
}

}  // namespace

NodeId Fullest(const std::vector<NodeId>& nodes, const NodeLoads& loads) {
  NodeId fullest = membership::kNoNode;
  for (const NodeId node : nodes) {
    if (fullest == membership::kNoNode || loads.replicas(node) >= loads.replicas(fullest)) {
      fullest = node;
    }
  }
  return fullest;
}

bool IsMember(const RegionEntry& region, NodeId node) {
  return Contains(region.in_sync, node) || Contains(region.filling, node);
}

bool HasRoom(const RegionEntry& region) {
  return region.in_sync.size() + region.filling.size() < membership::kMembersMax;
}

std::optional<RegionEntry> BalanceStep(const std::vector<RegionEntry>& regions,
                                       const NodeLoads& loads) {
  for (const auto step : {&HandOver, &HandOverByCopy, &MoveReplica, &MoveReplicaOfPrimary}) {
    std::optional<RegionEntry> changed = step(regions, loads);
    if (changed) return changed;
  }
  return std::nullopt;
}

}  // namespace farleaf::server::cluster
