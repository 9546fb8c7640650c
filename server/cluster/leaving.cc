#include "server/cluster/leaving.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "server/cluster/region_views.h"
#include "server/membership/counters.h"
#include "server/membership/path.h"
#include "server/membership/region_store.h"

namespace farleaf::server::cluster {

dsm::Task<Status> AnnounceLeaving(dsm::Worker& worker, membership::Membership& session,
                                  NodeId self) {
  Status status = co_await membership::CreatePath(worker, session, kLeavingPath);
  if (!status.ok()) co_return status;
  const std::string path = membership::ChildPath(kLeavingPath, std::to_string(self));
  auto created =
      co_await session.Create(worker, path, "", {.lifetime = membership::Lifetime::kEphemeral});
  status = created.status();
  // By this session: the last life's entry was gone before this one could be announced.
  if (status.code() == StatusCode::kAlreadyExists) co_return Status::Ok();
  co_return status;
}

dsm::Task<Result<std::vector<NodeId>>> ReadLeaving(dsm::Worker& worker,
                                                   membership::Membership& session,
                                                   membership::Watch watch) {
  auto names = co_await session.Children(worker, kLeavingPath, watch);
  std::vector<NodeId> leaving;
  if (names.status().code() == StatusCode::kNotFound) co_return leaving;
  if (!names.ok()) co_return names.status();
  for (const std::string& name : *names) {
    NodeId node = membership::kNoNode;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), node);
    if (error != std::errc() || end != name.data() + name.size() || node == membership::kNoNode) {
      co_return Status::Corruption("entry " + membership::ChildPath(kLeavingPath, name) +
                                   " is named after no node");
    }
    leaving.push_back(node);
  }
  std::ranges::sort(leaving);
  co_return leaving;
}

bool IsMissed(const membership::RegionEntry& region, NodeId self,
              const std::vector<NodeId>& leaving, uint32_t min_in_sync) {
  if (region.primary == self || region.state != membership::RegionState::kServing) return false;
  if (Contains(region.filling, self)) return true;
  if (!Contains(region.in_sync, self)) return false;
  const auto stays = [&](NodeId node) { return node != self && !Contains(leaving, node); };
  const auto staying = static_cast<size_t>(std::ranges::count_if(region.in_sync, stays));
  return std::ranges::any_of(region.filling, stays) && staying < std::max<size_t>(min_in_sync, 2);
}

dsm::Task<Result<size_t>> CountMissing(dsm::Worker& worker, membership::Membership& session,
                                       NodeId self, uint32_t min_in_sync) {
  auto leaving = co_await ReadLeaving(worker, session, membership::Watch::kNothing);
  if (!leaving.ok()) co_return leaving.status();
  membership::RegionStore regions(&session);
  auto all = co_await regions.All(worker, membership::Watch::kNothing);
  if (!all.ok()) co_return all.status();
  co_return static_cast<size_t>(
      std::ranges::count_if(*all, [&](const membership::StoredRegion& stored) {
        return IsMissed(stored.region, self, *leaving, min_in_sync);
      }));
}

}  // namespace farleaf::server::cluster
