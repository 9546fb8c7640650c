#include "dsm/sim/sim_fabric.h"

#include <algorithm>
#include <string>
#include <utility>

#include "dsm/sim/sim_world.h"

namespace farleaf::dsm {

namespace {
constexpr const char* kCrashedText = "the process that asks has crashed";
}  // namespace

SimTransport::~SimTransport() {
  DropArrivals();
  links_.ForEach([](SimLink& link) { link.Detach(); });
}

void SimTransport::DropArrivals() {
  for (const SimEvent& event : std::exchange(arrived_, {})) world_->Discard(event);
}

void SimTransport::Crash() {
  crashed_ = true;
  DropArrivals();
  links_.ForEach([](SimLink& link) { link.Detach(); });
}

SimLink* SimTransport::NewLink(std::shared_ptr<KnownServer> server, Hello hello) {
  hello.server = server->server();
  hello.cluster = world_->cluster();
  hello.member = owner_.self;
  hello.nonce = world_->random().Next();
  return world_->NewLink({owner_.process, this, std::move(server)}, std::move(hello),
                         owner_.options);
}

SimLink* SimTransport::AddLink(std::shared_ptr<KnownServer> server, const Hello& order) {
  SimLink* link = NewLink(std::move(server), order);
  links_.Insert(link);
  link->Connect();
  return link;
}

void SimTransport::Learn() {
  links_.Learn([this](KnownServers::Server server) {
    const bool connects = server->connects() == KnownServer::Connects::kAtOpening;
    SimLink* link = NewLink(std::move(server), {});
    if (connects) link->Connect();
    return link;
  });
}

bool SimTransport::is_connecting() const {
  bool connecting = false;
  links_.ForEach([&](const SimLink& link) { connecting |= link.connecting(); });
  return connecting;
}

void SimTransport::Post(Batch& batch) {
  if (crashed_) return;  // the process that would have posted it is gone
  world_->NotePost(batch);
  if (links_.stale()) Learn();
  SimLink* link = links_.Find(batch.server());
  if (link == nullptr) {
    batch.CompleteWith(links_.known().WhyUnknown(batch.server()));
    return;
  }
  link->Post(batch);
}

size_t SimTransport::Poll() {
  arriving_.swap(arrived_);
  for (const SimEvent& event : arriving_) world_->Deliver(event);
  arriving_.clear();
  if (crashed_) return 0;
  if (links_.stale()) Learn();
  return links_.Poll();
}

bool SimTransport::has_arrivals() const {
  if (!arrived_.empty() || links_.stale()) return true;
  bool completed = false;
  links_.ForEach([&](const SimLink& link) { completed |= link.has_completions(); });
  return completed;
}

uint64_t SimTransport::due_ns() const {
  uint64_t due_ns = UINT64_MAX;
  links_.ForEach([&](const SimLink& link) { due_ns = std::min(due_ns, link.due_ns()); });
  return due_ns;
}

void SimTransport::Wait(int wake_fd, uint64_t timeout_ns) {
  world_->Block(*this, wake_fd, timeout_ns);
}

SimFabric::SimFabric(SimWorld* world, uint32_t process, std::vector<RegionInfo> regions,
                     const SimLinkOptions& options)
    : world_(world), process_(process), regions_(std::move(regions)), options_(options) {
  for (const RegionInfo& region : regions_) {
    Status status = known_->Add(
        {region.server, EndpointText(region.server), region.region_bytes, region.incarnation}, {},
        KnownServer::Connects::kAtOpening);
    FARLEAF_CHECK(status.ok(), status);
  }
}

std::string SimFabric::EndpointText(ServerId server) { return "sim:" + std::to_string(server); }

std::unique_ptr<SimTransport> SimFabric::NewTransport(
    std::shared_ptr<const KnownServers> known) const {
  return std::make_unique<SimTransport>(world_, SimTransport::Owner{process_, self_, options_},
                                        std::move(known));
}

Result<std::unique_ptr<Transport>> SimFabric::OpenTransport() {
  if (world_->has_crashed(process_)) return Status::Unavailable(kCrashedText);
  auto transport = NewTransport(known_);
  transport->Learn();
  world_->AwaitLinks(*transport);
  return std::unique_ptr<Transport>(std::move(transport));
}

Status SimFabric::Identify(const MemberIdentity& self) {
  FARLEAF_CHECK(self_.id == 0 && self.id != 0, self_.id, self.id);
  self_ = self;  // each transport's Hello tells the memory servers
  return Status::Ok();
}

Status SimFabric::CutOff(ServerId server, const MemberIdentity& member) {
  auto known = known_->Find(server);
  if (!known) return known_->WhyUnknown(server);
  if (world_->has_crashed(process_)) return Status::Unavailable(kCrashedText);
  Hello order;
  order.kind = HelloKind::kCutOff;
  order.target = member;
  const auto asking = NewTransport(std::make_shared<KnownServers>());
  SimLink* link = asking->AddLink(std::move(known), order);
  world_->AwaitLinks(*asking);
  return link->up() ? Status::Ok() : link->failure();
}

Status SimFabric::Add(const ServerEndpoint& endpoint) {
  if (endpoint.server >= world_->servers() || endpoint.endpoint != EndpointText(endpoint.server)) {
    return Status::InvalidArgument("memory server " + std::to_string(endpoint.server) +
                                   ": endpoint '" + endpoint.endpoint +
                                   "' is none of this simulated world");
  }
  FARLEAF_RETURN_IF_ERROR(known_->Add(endpoint, {}, KnownServer::Connects::kAtFirstPost));
  world_->WakeThreadsOf(process_);  // it may end another life
  return Status::Ok();
}

void SimFabric::Remove(ServerId server) {
  known_->Remove(server);
  world_->WakeThreadsOf(process_);
}

}  // namespace farleaf::dsm
