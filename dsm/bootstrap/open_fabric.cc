#include "dsm/bootstrap/open_fabric.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <thread>
#include <type_traits>

#include "dsm/bootstrap/open_directory.h"
#include "dsm/shm/shm_fabric.h"
#include "dsm/tcp/tcp_fabric.h"
#include "dsm/verbs/verbs_fabric.h"

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
  if (fabric == "verbs") {
    auto opened = VerbsFabric::Connect(*servers, directory.cluster(), options.verbs, clock);
    if (!opened.ok()) return opened.status();
    return std::unique_ptr<Fabric>(std::move(*opened));
  }
  return Status::InvalidArgument("memory server 0 is on fabric '" + fabric +
                                 "', this program knows shm, tcp and verbs");
}

Status ReadNumber(std::string_view name, std::string_view text, uint64_t min, uint64_t max,
                  auto* value) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < min || number > max) {
    return Status::InvalidArgument(std::string(name) + "=" + std::string(text) +
                                   " in the bootstrap URL is no number from " +
                                   std::to_string(min) + " to " + std::to_string(max));
  }
  *value = static_cast<std::remove_pointer_t<decltype(value)>>(number);
  return Status::Ok();
}

Status ReadOption(std::string_view option, OpenFabricOptions* options) {
  const size_t equals = option.find('=');
  const std::string_view name = option.substr(0, equals);
  const std::string_view text =
      equals == std::string_view::npos ? std::string_view() : option.substr(equals + 1);
  constexpr uint64_t kQueuePairsMax = 65'536, kAckTimeoutMsMax = 60'000, kRetriesMax = 7;
  if (name == "rdma_device") {
    auto device = ParseDeviceChoice(text);
    if (!device.ok()) return device.status().WithContext("rdma_device in the bootstrap URL");
    options->verbs.device = std::move(*device);
    return Status::Ok();
  }
  if (name == "rdma_queue_pairs") {
    return ReadNumber(name, text, 1, kQueuePairsMax, &options->verbs.queue_pairs_max);
  }
  if (name == "rdma_ack_timeout_ms") {
    return ReadNumber(name, text, 1, kAckTimeoutMsMax, &options->verbs.ack_timeout_ms);
  }
  if (name == "rdma_retries") {
    return ReadNumber(name, text, 0, kRetriesMax, &options->verbs.retries);
  }
  return Status::InvalidArgument("the bootstrap URL knows no option '" + std::string(name) +
                                 "'; there are rdma_device, rdma_queue_pairs, "
                                 "rdma_ack_timeout_ms and rdma_retries");
}

}  // namespace

Result<std::unique_ptr<Fabric>> OpenFabric(std::string_view bootstrap_url,
                                           const OpenFabricOptions& options, const Clock* clock) {
  OpenFabricOptions with_url = options;
  const size_t question = bootstrap_url.find('?');
  std::string_view rest =
      question == std::string_view::npos ? "" : bootstrap_url.substr(question + 1);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    FARLEAF_RETURN_IF_ERROR(ReadOption(rest.substr(0, end), &with_url));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  auto directory = OpenDirectory(bootstrap_url.substr(0, question));
  if (!directory.ok()) return directory.status();
  return OpenFabric(**directory, with_url, clock);
}

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
