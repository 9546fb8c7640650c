#include "dsm/bootstrap/open_fabric.h"

#include <chrono>
#include <thread>

#include "dsm/shm/shm_fabric.h"
#include "dsm/tcp/tcp_fabric.h"

namespace farleaf::dsm {

namespace {

Status CheckComplete(const std::vector<ServerEndpoint>& servers, uint32_t servers_min,
                     const std::string& cluster) {
  for (size_t i = 0; i < servers.size(); ++i) {
    if (servers[i].server != i) {
      return Status::Unavailable("memory server " + std::to_string(i) + " of cluster '" + cluster +
                                 "' is missing (memory server " +
                                 std::to_string(servers[i].server) + " is there)");
    }
  }
  if (servers.size() >= servers_min) return Status::Ok();
  return Status::Unavailable("cluster '" + cluster + "' has " + std::to_string(servers.size()) +
                             " memory servers, " + std::to_string(servers_min) + " are needed");
}

std::string FabricOf(const ServerEndpoint& endpoint) {
  return endpoint.endpoint.substr(0, endpoint.endpoint.find(':'));
}

Result<std::unique_ptr<Fabric>> TryOpen(Directory& directory, const OpenFabricOptions& options,
                                        const Clock* clock) {
  auto servers = directory.List();
  if (!servers.ok()) return servers.status();
  FARLEAF_RETURN_IF_ERROR(CheckComplete(*servers, options.servers_min, directory.cluster()));
  const std::string fabric = FabricOf(servers->front());
  for (const ServerEndpoint& server : *servers) {
    if (FabricOf(server) != fabric) {
      return Status::InvalidArgument("memory server 0 is on fabric " + fabric + ", memory server " +
                                     std::to_string(server.server) + " on " + FabricOf(server) +
                                     ": a pool uses one fabric");
    }
  }
  if (fabric == "tcp") {
    auto opened = TcpFabric::Connect(*servers, directory.cluster(), options.tcp, clock);
    if (!opened.ok()) return opened.status();
    return std::unique_ptr<Fabric>(std::move(*opened));
  }
  if (fabric == "shm") {
    auto opened = ShmFabric::Connect(*servers, directory.cluster(), options.shm, clock);
    if (!opened.ok()) return opened.status();
    return std::unique_ptr<Fabric>(std::move(*opened));
  }
  return Status::InvalidArgument("memory server 0 is on fabric '" + fabric +
                                 "', this program knows shm and tcp");
}

}  // namespace

Result<std::unique_ptr<Fabric>> OpenFabric(Directory& directory, const OpenFabricOptions& options,
                                           const Clock* clock) {
  FARLEAF_CHECK(options.servers_min > 0);
  const uint64_t deadline_ns = clock->NowNs() + options.wait_ms * kNsPerMs;
  while (true) {
    auto fabric = TryOpen(directory, options, clock);
    if (fabric.ok()) return fabric;
    // Only what time can mend is waited for.
    const StatusCode code = fabric.status().code();
    const bool may_mend =
        code == StatusCode::kUnavailable || code == StatusCode::kResourceExhausted;
    if (!may_mend) return fabric.status();
    if (clock->NowNs() >= deadline_ns) {
      return fabric.status().WithContext("gave up after " + std::to_string(options.wait_ms) +
                                         " ms");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(options.poll_interval_ms));
  }
}

}  // namespace farleaf::dsm
