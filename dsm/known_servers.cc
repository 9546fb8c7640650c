#include "dsm/known_servers.h"

#include <utility>

namespace farleaf::dsm {

namespace {

std::string NameOfServer(ServerId server) { return "memory server " + std::to_string(server); }

}  // namespace

bool KnownServer::Settle(uint64_t incarnation) {
  uint64_t settled = 0;
  return incarnation_.compare_exchange_strong(settled, incarnation, std::memory_order_relaxed) ||
         settled == incarnation;
}

Status KnownServers::Add(const ServerEndpoint& endpoint, SocketAddress address,
                         KnownServer::Connects connects) {
  std::lock_guard lock(mutex_);
  Server& known = servers_[endpoint.server];
  if (known) {
    if (known->endpoint() != endpoint.endpoint) {
      return Status::AlreadyExists(NameOfServer(endpoint.server) + " is known at " + known->endpoint() +
                                   ", not at " + endpoint.endpoint +
                                   ": it has to be removed first");
    }
    if (endpoint.incarnation == 0 || known->Settle(endpoint.incarnation)) return Status::Ok();
  }
  known = std::make_shared<KnownServer>(endpoint, std::move(address), connects);
  removed_.erase(endpoint.server);
  generation_.fetch_add(1, std::memory_order_relaxed);
  return Status::Ok();
}

void KnownServers::Remove(ServerId server) {
  std::lock_guard lock(mutex_);
  if (servers_.erase(server) == 0) return;
  removed_.insert(server);
  generation_.fetch_add(1, std::memory_order_relaxed);
}

KnownServers::Server KnownServers::Find(ServerId server) const {
  std::lock_guard lock(mutex_);
  const auto found = servers_.find(server);
  return found == servers_.end() ? nullptr : found->second;
}

Status KnownServers::WhyUnknown(ServerId server) const {
  std::lock_guard lock(mutex_);
  if (removed_.contains(server)) return Removed(server);
  return Status::Unavailable(NameOfServer(server) + " is not in this pool");
}

Status KnownServers::Removed(ServerId server) {
  return Status::Unavailable(NameOfServer(server) + " was removed");
}

std::vector<KnownServers::Server> KnownServers::All() const {
  std::lock_guard lock(mutex_);
  std::vector<Server> all;
  for (const auto& [server, known] : servers_) all.push_back(known);
  return all;
}

}  // namespace farleaf::dsm
