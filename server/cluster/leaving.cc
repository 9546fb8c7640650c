#include "server/cluster/leaving.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "server/membership/counters.h"
#include "server/membership/path.h"

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

}  // namespace farleaf::server::cluster
