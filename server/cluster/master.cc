#include "server/cluster/master.h"

#include <algorithm>
#include <utility>

#include "dsm/base/log.h"
#include "server/cluster/region_views.h"

namespace farleaf::server::cluster {

using membership::RegionState;
using membership::Watch;

namespace {

constexpr const char* kElectionPath = "/master";
constexpr uint64_t kMasterLookNs = kNsPerSecond;
constexpr uint64_t kMasterRetryNs = 100 * kNsPerMs;

bool IsThere(const std::vector<NodeEntry>& nodes, NodeId id) {
  return std::ranges::any_of(nodes, [id](const NodeEntry& node) { return node.id == id; });
}

void TakeOutGone(const std::vector<NodeEntry>& nodes, std::vector<NodeId>* members) {
  std::erase_if(*members, [&](NodeId id) { return !IsThere(nodes, id); });
}

/// One of those in sync is named, the others of them are filled from it.
void Name(RegionEntry* region, NodeId primary) {
  for (const NodeId id : region->in_sync) {
    if (id != primary) Insert(&region->filling, id);
  }
  Erase(&region->filling, primary);
  region->primary = primary;
  region->in_sync = {primary};
  region->state = RegionState::kServing;
}

}  // namespace

std::optional<RegionEntry> NextView(const RegionEntry& region, const std::vector<NodeEntry>& nodes,
                                    uint32_t replicas, bool waited) {
  RegionEntry next = region;
  const bool headless = region.state == RegionState::kHeadless;
  if (headless || !IsThere(nodes, region.primary)) {
    std::vector<NodeId> there = region.in_sync;
    TakeOutGone(nodes, &there);
    TakeOutGone(nodes, &next.filling);
    // A backup that is still there has all, in memory too: who was gone has left in_sync before he came back. Where a region is headless, all may
    // have been gone.
    const bool all = there.size() == region.in_sync.size();
    if (!there.empty() && (!headless || all || waited)) {
      Name(&next, there.front());
      TakeOutGone(nodes, &next.filling);
    } else if (!headless) {
      next.primary = membership::kNoNode;
      next.state = RegionState::kHeadless;
    }
  } else {
    TakeOutGone(nodes, &next.in_sync);
    TakeOutGone(nodes, &next.filling);
    for (const NodeEntry& node : nodes) {
      if (next.in_sync.size() + next.filling.size() >= replicas) break;
      if (Contains(next.in_sync, node.id) || node.fabric_endpoint.empty()) continue;
      Insert(&next.filling, node.id);
    }
  }
  if (next == region) return std::nullopt;
  return next;
}

Master::Master(Deps deps, MasterOptions options)
    : deps_(std::move(deps)),
      options_(options),
      regions_(deps_.session),
      election_(deps_.session, deps_.clock, kElectionPath, deps_.name) {}

dsm::Task<void> Master::Run(dsm::Worker& worker) {
  while (!stopping_) {
    if (!election_.IsMaster()) {
      headless_since_ns_.reset();
      Status elected = co_await election_.BecomeMaster(worker, kMasterLookNs);
      if (elected.code() == StatusCode::kFenced) co_return;
      if (elected.ok()) {
        FARLEAF_LOG(info, "node {} is the master", deps_.self);
      } else if (elected.code() != StatusCode::kDeadlineExceeded) {
        co_await worker.Sleep(kMasterRetryNs);
      }
      continue;
    }
    const uint64_t seen = deps_.session->ChangeCount("/");
    Status looked = co_await Look(worker);
    if (looked.code() == StatusCode::kFenced) co_return;
    if (looked.ok()) {
      (void)co_await deps_.session->AwaitChange(worker, "/", seen, kMasterLookNs);
    } else {
      FARLEAF_LOG(warn, "master: {}", looked.ToString());
      co_await worker.Sleep(kMasterRetryNs);
    }
  }
  (void)co_await election_.Resign(worker);
}

dsm::Task<Status> Master::FoundMap(dsm::Worker& worker) {
  Status made = co_await deps_.make_store(worker);
  if (!made.ok()) co_return made;
  RegionEntry all;
  all.primary = deps_.self;
  all.in_sync = {deps_.self};
  std::vector<RegionEntry> regions{all};
  auto founded = co_await regions_.Found(worker, std::move(regions));
  if (founded.ok()) FARLEAF_LOG(info, "founded: a region of all keys, on node {}", deps_.self);
  co_return founded.status();
}

dsm::Task<Status> Master::Look(dsm::Worker& worker) {
  auto nodes = co_await regions_.Nodes(worker, Watch::kChanges);
  if (!nodes.ok()) co_return nodes.status();
  auto version = co_await regions_.MapVersion(worker, Watch::kChanges);
  if (version.status().code() == StatusCode::kNotFound) {
    Status founded = co_await FoundMap(worker);
    co_return founded;
  }
  if (!version.ok()) co_return version.status();
  auto map = co_await regions_.Read(worker);
  if (!map.ok()) co_return map.status();
  for (const RegionEntry& region : map->regions()) {
    Status looked = co_await LookAt(worker, region.id, *nodes);
    if (!looked.ok()) co_return looked;
  }
  co_return Status::Ok();
}

dsm::Task<Status> Master::LookAt(dsm::Worker& worker, RegionId id,
                                 const std::vector<NodeEntry>& nodes) {
  auto seen = co_await regions_.Get(worker, id, Watch::kChanges);
  if (!seen.ok()) co_return seen.status();
  const uint64_t now_ns = deps_.clock->NowNs();
  if (seen->region.state != RegionState::kHeadless) {
    headless_since_ns_.reset();
  } else if (!headless_since_ns_) {
    headless_since_ns_ = now_ns;
  }
  const bool waited =
      headless_since_ns_ && now_ns >= *headless_since_ns_ + options_.headless_wait_ms * kNsPerMs;
  const auto next = NextView(seen->region, nodes, options_.replicas, waited);
  if (!next) co_return Status::Ok();
  auto changed = co_await regions_.ChangeView(worker, *seen, *next);
  // Somebody else has changed it: the next look sees what.
  if (changed.status().code() == StatusCode::kVersionMismatch) co_return Status::Ok();
  if (changed.ok() && next->primary != seen->region.primary) {
    FARLEAF_LOG(info, "region {}: node {} is to be the primary, in place of node {}",
                static_cast<uint32_t>(id), next->primary, seen->region.primary);
  }
  co_return changed.status();
}

}  // namespace farleaf::server::cluster
