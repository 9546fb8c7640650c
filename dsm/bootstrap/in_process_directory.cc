#include "dsm/bootstrap/in_process_directory.h"

namespace farleaf::dsm {

Result<std::vector<ServerEndpoint>> InProcessDirectory::List() {
  std::lock_guard lock(mutex_);
  std::vector<ServerEndpoint> servers;
  for (const auto& [id, endpoint] : servers_) servers.push_back(endpoint);
  return servers;
}

Status InProcessDirectory::Publish(const ServerEndpoint& endpoint) {
  std::lock_guard lock(mutex_);
  const auto [at, inserted] = servers_.try_emplace(endpoint.server, endpoint);
  if (!inserted && at->second.incarnation != endpoint.incarnation) {
    return Status::AlreadyExists("memory server id " + std::to_string(endpoint.server) +
                                 " is taken by " + at->second.endpoint);
  }
  at->second = endpoint;
  return Status::Ok();
}

Status InProcessDirectory::Withdraw(const ServerEndpoint& endpoint) {
  std::lock_guard lock(mutex_);
  const auto at = servers_.find(endpoint.server);
  if (at != servers_.end() && at->second.incarnation == endpoint.incarnation) servers_.erase(at);
  return Status::Ok();
}

}  // namespace farleaf::dsm
