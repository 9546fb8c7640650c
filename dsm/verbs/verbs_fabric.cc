#include "dsm/verbs/verbs_fabric.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

namespace farleaf::dsm {

namespace {
constexpr std::string_view kVerbsPrefix = "verbs:";
}  // namespace

VerbsFabric::VerbsFabric(std::string cluster, const VerbsOptions& options, const Clock* clock)
    : cluster_(std::move(cluster)),
      options_(options),
      clock_(clock),
      sources_(options.device),
      lane_owners_(std::make_shared<const bool>(true)),
      shared_(std::max(options.queue_pairs_max / 4, 1u)) {}

Result<SocketAddress> VerbsFabric::AddressOf(const ServerEndpoint& endpoint) const {
  const std::string name = "memory server " + std::to_string(endpoint.server);
  if (!endpoint.endpoint.starts_with(kVerbsPrefix)) {
    return Status::InvalidArgument(name + ": endpoint '" + endpoint.endpoint +
                                   "' is not of the verbs fabric");
  }
  auto address = ResolveTcp(std::string_view(endpoint.endpoint).substr(kVerbsPrefix.size()));
  if (!address.ok()) return address.status().WithContext(name);
  FARLEAF_RETURN_IF_ERROR(sources_.Check(*address));
  return address;
}

Result<std::unique_ptr<VerbsFabric>> VerbsFabric::Connect(
    const std::vector<ServerEndpoint>& endpoints, const std::string& cluster,
    const VerbsOptions& options, const Clock* clock) {
  FARLEAF_RETURN_IF_ERROR(CheckClusterName(cluster));
  std::unique_ptr<VerbsFabric> fabric(new VerbsFabric(cluster, options, clock));
  for (ServerEndpoint endpoint : endpoints) {
    auto address = fabric->AddressOf(endpoint);
    if (!address.ok()) return address.status();
    endpoint.incarnation = 0;  // whoever answers; a directory may be behind
    FARLEAF_RETURN_IF_ERROR(
        fabric->known_->Add(endpoint, std::move(*address), KnownServer::Connects::kAtOpening));
  }
  auto lane = fabric->OpenLane();
  if (!lane.ok()) return lane.status();
  for (const ServerEndpoint& endpoint : endpoints) {
    const VerbsLink& link = *(*lane)->Find(endpoint.server);
    if (!link.up()) return link.failure();
    fabric->regions_.push_back(link.region());
  }
  return fabric;
}

Result<Hello> VerbsFabric::NewHello() const {
  Hello hello;
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
  auto hello = NewHello();
  if (!hello.ok()) return hello.status();
  auto lane = VerbsLane::Open(known_, sources_, std::move(*hello), devices_, options_, clock_);
  if (lane.ok()) (*lane)->AwaitFirst();
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
  const KnownServers::Server known = known_->Find(server);
  if (!known) return known_->WhyUnknown(server);
  auto hello = NewHello();
  if (!hello.ok()) return hello.status();
  hello->kind = HelloKind::kCutOff;
  hello->target = member;
  const auto only = std::make_shared<KnownServers>();
  FARLEAF_RETURN_IF_ERROR(only->Add({server, known->endpoint(), 0, known->incarnation()},
                                    known->address(), KnownServer::Connects::kAtOpening));
  auto lane = VerbsLane::Open(only, sources_, std::move(*hello), devices_, options_, clock_);
  if (!lane.ok()) return lane.status();
  (*lane)->AwaitFirst();
  const VerbsLink& link = *(*lane)->Find(server);
  if (link.up()) {
    return Status::Corruption("memory server " + std::to_string(server) +
                              " takes a request to cut off for a connection");
  }
  return link.failure();
}

Status VerbsFabric::Add(const ServerEndpoint& endpoint) {
  auto address = AddressOf(endpoint);
  if (!address.ok()) return address.status();
  return known_->Add(endpoint, std::move(*address), KnownServer::Connects::kAtFirstPost);
}

}  // namespace farleaf::dsm
