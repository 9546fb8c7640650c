#include "server/cluster/placement.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "server/cluster/balance.h"
#include "server/cluster/node_loads.h"
#include "server/cluster/region_views.h"

namespace farleaf::server::cluster {

using membership::kMembersMax;
using membership::kNoNode;
using membership::RegionState;

namespace {

/// Of `nodes`, the one of the least `cost`, the first of several; kNoNode: there is none.
template <typename Cost>
NodeId Cheapest(const std::vector<NodeId>& nodes, const Cost& cost) {
  const auto at = std::ranges::min_element(nodes, {}, cost);
  return at == nodes.end() ? kNoNode : *at;
}

bool IsAssignedTo(const RegionEntry& region, NodeId node) {
  return region.assigned.empty() || Contains(region.assigned, node);
}

bool HasAllAssigned(const RegionEntry& region) {
  return std::ranges::includes(region.in_sync, region.assigned);
}

/// He serves it as soon as he has begun; what is said of others stays (RegionPrimary::TakeAlone).
void Name(NodeId primary, RegionEntry* region) {
  region->primary = primary;
  region->state = RegionState::kServing;
  if (region->successor == primary) region->successor = kNoNode;
}

/// Of those who are back the one that holds most, if all have told; nobody else is in sync then. `there`: of those in sync, not empty.
void NameWhoHoldsMost(const std::vector<Held>& held, std::vector<NodeId> there,
                      RegionEntry* region) {
  const auto of_node = [&](NodeId id) {
    return std::ranges::find_if(
        held, [&](const Held& each) { return each.region == region->id && each.node == id; });
  };
  const bool alone = region->in_sync.size() == 1;
  if (!alone && !std::ranges::all_of(there, [&](NodeId id) { return of_node(id) != held.end(); })) {
    return;
  }
  const NodeId most =
      alone ? there.front()
            : *std::ranges::max_element(there, {}, [&](NodeId id) { return of_node(id)->through; });
  // Of a store that was made the epoch is not 0. Nobody has a copy that can be read: whoever is still away may.
  if (!alone && of_node(most)->through.epoch == 0) return;
  for (const NodeId id : there) {
    if (id != most && region->filling.size() < kMembersMax) Insert(&region->filling, id);
  }
  region->in_sync = {most};
  Name(most, region);
}

void Heal(const NodeLoads& loads, const Placement& seen, RegionEntry* region) {
  const auto is_gone = [&](NodeId id) { return !loads.IsThere(id); };
  // Nobody is to count on one who was filled when it was about to end.
  std::erase_if(region->filling, [&](NodeId id) { return is_gone(id) || loads.IsLeaving(id); });
  std::vector<NodeId> there = region->in_sync;
  std::erase_if(there, is_gone);
  if (region->state == RegionState::kHeadless) {
    const bool waited = std::ranges::binary_search(seen.waited, region->id);
    if (there.empty() || (there.size() < region->in_sync.size() && !waited)) return;
    NameWhoHoldsMost(seen.held, std::move(there), region);
  } else if (there.empty()) {
    region->primary = kNoNode;
    region->state = RegionState::kHeadless;
  } else {
    // A backup that is still there has all, in memory too: who was gone has left in_sync before he came back.
    if (is_gone(region->primary)) {
      Name(Cheapest(there,
                    [&](NodeId id) {
                      return std::tuple(loads.IsLeaving(id), id != region->successor,
                                        !IsAssignedTo(*region, id), loads.primaries(id));
                    }),
           region);
    }
    region->in_sync = std::move(there);
  }
}

void KeepWish(const NodeLoads& loads, RegionEntry* region) {
  const NodeId wished = region->successor;
  if (wished == kNoNode) return;
  // Whose node leaves hands over to whom it can.
  const bool leaves = loads.IsLeaving(region->primary) && Contains(region->in_sync, wished);
  if (wished == region->primary || !loads.Takes(wished) ||
      (!IsAssignedTo(*region, wished) && !leaves)) {
    region->successor = kNoNode;
  } else if (!IsMember(*region, wished) && HasRoom(*region)) {
    Insert(&region->filling, wished);
  }
}

void FillAssigned(const NodeLoads& loads, RegionEntry* region) {
  std::erase_if(region->filling, [&](NodeId id) { return !Contains(region->assigned, id); });
  if (!region->filling.empty() || !HasRoom(*region)) return;
  std::vector<NodeId> spares = region->assigned;
  std::erase_if(spares, [&](NodeId id) { return IsMember(*region, id) || !loads.Takes(id); });
  const NodeId spare = Cheapest(spares, [&](NodeId id) { return loads.replicas(id); });
  if (spare != kNoNode) Insert(&region->filling, spare);
}

void FillAnywhere(const NodeLoads& loads, size_t replicas, RegionEntry* region) {
  while (region->in_sync.size() + region->filling.size() < replicas && HasRoom(*region)) {
    std::vector<NodeId> spares = loads.takers();
    std::erase_if(spares, [&](NodeId id) { return IsMember(*region, id); });
    const NodeId spare = Cheapest(spares, [&](NodeId id) { return loads.replicas(id); });
    if (spare == kNoNode) return;
    Insert(&region->filling, spare);
  }
}

void TakeOutAssigned(RegionEntry* region) {
  if (!HasAllAssigned(*region)) return;
  std::erase_if(region->in_sync, [&](NodeId id) {
    return !Contains(region->assigned, id) && id != region->primary && id != region->successor;
  });
}

void TakeOutSurplus(const NodeLoads& loads, size_t replicas, RegionEntry* region) {
  std::vector<NodeId> fills = region->filling;
  Erase(&fills, region->successor);
  // Beside those that are missing one may be filled: a replica that moves.
  const size_t missing = replicas - std::min(replicas, region->in_sync.size());
  const size_t extra = fills.size() == region->filling.size() ? 1 : 0;
  while (fills.size() > (missing > 0 ? missing : extra)) {
    const NodeId fullest = Fullest(fills, loads);
    Erase(&fills, fullest);
    Erase(&region->filling, fullest);
  }
  if (!region->filling.empty() || region->successor != kNoNode) return;
  while (region->in_sync.size() > replicas) {
    std::vector<NodeId> backups = region->in_sync;
    Erase(&backups, region->primary);
    Erase(&region->in_sync, Fullest(backups, loads));
  }
}

void WishSuccessor(const NodeLoads& loads, RegionEntry* region) {
  const bool leaves = loads.IsLeaving(region->primary);
  const bool misplaced = !IsAssignedTo(*region, region->primary) && HasAllAssigned(*region);
  if (!leaves && !misplaced) return;
  // Who leaves does not wait for a copy to be made.
  const bool waits = leaves && !Contains(region->in_sync, region->successor);
  if (region->successor != kNoNode && !waits) return;
  std::vector<NodeId> heirs = region->in_sync;
  std::erase_if(heirs, [&](NodeId id) {
    return id == region->primary || !loads.Takes(id) || (misplaced && !IsAssignedTo(*region, id));
  });
  const NodeId heir = Cheapest(heirs, [&](NodeId id) {
    return std::tuple(!IsAssignedTo(*region, id), loads.primaries(id));
  });
  if (heir != kNoNode) region->successor = heir;
}

/// Steps 2 to 5 of a region that is served.
void Tend(const NodeLoads& loads, size_t replicas, RegionEntry* region) {
  KeepWish(loads, region);
  if (region->assigned.empty()) {
    FillAnywhere(loads, replicas, region);
    TakeOutSurplus(loads, replicas, region);
  } else {
    FillAssigned(loads, region);
    TakeOutAssigned(region);
  }
  WishSuccessor(loads, region);
}

bool IsQuiet(const RegionEntry& region) {
  return region.state == RegionState::kServing && region.filling.empty() &&
         region.successor == kNoNode;
}

}  // namespace

std::vector<RegionEntry> Place(const Placement& seen) {
  std::vector<RegionEntry> regions = seen.regions;
  NodeLoads loads(seen.nodes, seen.leaving, regions);
  const auto decide = [&](const auto& change) {
    for (RegionEntry& region : regions) {
      loads.Remove(region);  // what it has is what is decided
      change(&region);
      loads.Add(region);
    }
  };
  // All are served first: what the survivors have of the dead counts in all that comes behind it.
  decide([&](RegionEntry* region) { Heal(loads, seen, region); });
  const size_t replicas = std::clamp<size_t>(seen.replicas, 1, kMembersMax);
  decide([&](RegionEntry* region) {
    if (region->state == RegionState::kServing) Tend(loads, replicas, region);
  });
  std::vector<RegionEntry> changed;
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i] != seen.regions[i]) changed.push_back(regions[i]);
  }
  if (changed.empty() && seen.leaving.empty() && std::ranges::all_of(regions, IsQuiet)) {
    std::optional<RegionEntry> step = BalanceStep(regions, loads);
    if (step) changed.push_back(std::move(*step));
  }
  return changed;
}

}  // namespace farleaf::server::cluster
