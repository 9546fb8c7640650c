#include "dsm/verbs/verbs_fabric.h"

#include <sys/random.h>

#include <algorithm>

namespace farleaf::dsm {

namespace {
constexpr std::string_view kVerbsPrefix = "verbs:";
}  // namespace

VerbsFabric::VerbsFabric(std::string cluster, const VerbsOptions& options, const Clock* clock)
    : cluster_(std::move(cluster)),
      options_(options),
      clock_(clock),
      lane_owners_(std::make_shared<const bool>(true)),
      shared_(std::max(options.queue_pairs_max / 4, 1u)) {}

Result<std::unique_ptr<VerbsFabric>> VerbsFabric::Connect(
    const std::vector<ServerEndpoint>& endpoints, const std::string& cluster,
    const VerbsOptions& options, const Clock* clock) {
  FARLEAF_RETURN_IF_ERROR(CheckClusterName(cluster));
  std::unique_ptr<VerbsFabric> fabric(new VerbsFabric(cluster, options, clock));
  for (const ServerEndpoint& endpoint : endpoints) {
    const std::string name = "memory server " + std::to_string(endpoint.server);
    if (!endpoint.endpoint.starts_with(kVerbsPrefix)) {
      return Status::InvalidArgument(name + ": endpoint '" + endpoint.endpoint +
                                     "' is not of the verbs fabric");
    }
    auto address = ResolveTcp(std::string_view(endpoint.endpoint).substr(kVerbsPrefix.size()));
    if (!address.ok()) return address.status().WithContext(name);
    auto source = SourceAddress(options.device, address->storage.ss_family);
    if (!source.ok()) return source.status();
    fabric->servers_.push_back({endpoint.server, {std::move(*address), std::move(*source)}});
  }
  auto lane = fabric->OpenLane();
  if (!lane.ok()) return lane.status();
  for (const auto& link : (*lane)->links()) {
    if (!link->up()) return link->failure();
    fabric->regions_.push_back(link->region());
  }
  return fabric;
}

Result<Hello> VerbsFabric::NewHello(ServerId server) const {
  Hello hello;
  hello.server = server;
  hello.cluster = cluster_;
  {
    std::lock_guard lock(self_mutex_);
    hello.member = self_;
  }
  // From the system, not from a seed: two processes with one nonce would cut each other off.
  if (::getrandom(&hello.nonce, sizeof hello.nonce, 0) != sizeof hello.nonce) {
    return OsError("no random numbers");
  }
  return hello;
}

Result<std::unique_ptr<VerbsLane>> VerbsFabric::OpenLane() {
  std::vector<VerbsLane::Server> servers;
  for (size_t i = 0; i < servers_.size(); ++i) {
    auto hello = NewHello(servers_[i].id);
    if (!hello.ok()) return hello.status();
    const uint64_t expected_incarnation = i < regions_.size() ? regions_[i].incarnation : 0;
    servers.push_back({servers_[i].target, std::move(*hello), expected_incarnation});
  }
  auto lane = VerbsLane::Open(std::move(servers), devices_, options_, clock_);
  if (lane.ok()) (*lane)->AwaitLinks();
  return lane;
}

Result<std::unique_ptr<Transport>> VerbsFabric::OpenTransport() {
  std::shared_ptr<const bool> owner;
  {
    std::lock_guard lock(lanes_mutex_);
    const auto owned = static_cast<uint64_t>(lane_owners_.use_count() - 1);
    if (owned + shared_.size() < options_.queue_pairs_max) owner = lane_owners_;
  }
  if (!owner) {
    auto shared = NextSharedLane();
    if (!shared.ok()) return shared.status();
    return SharedVerbsTransport::Create(std::move(*shared), clock_);
  }
  auto lane = OpenLane();
  if (!lane.ok()) return lane.status();
  return std::unique_ptr<Transport>(
      std::make_unique<VerbsTransport>(std::move(*lane), std::move(owner), clock_));
}

Result<std::shared_ptr<SharedLane>> VerbsFabric::NextSharedLane() {
  std::lock_guard lock(lanes_mutex_);
  std::weak_ptr<SharedLane>& place = shared_[next_shared_++ % shared_.size()];
  if (auto shared = place.lock()) return shared;
  auto lane = OpenLane();
  if (!lane.ok()) return lane.status();
  auto shared = std::make_shared<SharedLane>();
  shared->lane = std::move(*lane);
  place = shared;
  return shared;
}

Status VerbsFabric::Identify(const MemberIdentity& self) {
  {
    std::lock_guard lock(self_mutex_);
    FARLEAF_CHECK(self.id != 0 && self_.id == 0, self.id, self_.id);
    self_ = self;
  }
  // Whoever opens a transport from now on shares no connection that was made without a name.
  std::lock_guard lock(lanes_mutex_);
  shared_.assign(shared_.size(), {});
  return Status::Ok();
}

Status VerbsFabric::CutOff(ServerId server, const MemberIdentity& member) {
  const auto found = std::find_if(servers_.begin(), servers_.end(),
                                  [server](const Server& one) { return one.id == server; });
  if (found == servers_.end()) {
    return Status::Unavailable("memory server " + std::to_string(server) + " is not in this pool");
  }
  auto hello = NewHello(server);
  if (!hello.ok()) return hello.status();
  hello->kind = HelloKind::kCutOff;
  hello->target = member;
  auto lane = VerbsLane::Open({{found->target, std::move(*hello), 0}}, devices_, options_, clock_);
  if (!lane.ok()) return lane.status();
  (*lane)->AwaitLinks();
  const VerbsLink& link = *(*lane)->links().front();
  if (link.up()) {
    return Status::Corruption("memory server " + std::to_string(server) +
                              " takes a request to cut off for a connection");
  }
  return link.failure();
}

}  // namespace farleaf::dsm
