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
  for (SimLink* link : links_) link->Detach();
}

void SimTransport::DropArrivals() {
  for (const SimEvent& event : std::exchange(arrived_, {})) world_->Discard(event);
}

void SimTransport::Crash() {
  crashed_ = true;
  DropArrivals();
  for (SimLink* link : links_) link->Detach();
}

void SimTransport::Post(Batch& batch) {
  if (crashed_) return;  // the process that would have posted it is gone
  world_->NotePost(batch);
  if (batch.server() >= links_.size()) {
    batch.CompleteWith(Status::Unavailable("memory server " + std::to_string(batch.server()) +
                                           " is not in this pool"));
    return;
  }
  links_[batch.server()]->Post(batch);
}

size_t SimTransport::Poll() {
  arriving_.swap(arrived_);
  for (const SimEvent& event : arriving_) world_->Deliver(event);
  arriving_.clear();
  if (crashed_) return 0;
  size_t completed = 0;
  for (SimLink* link : links_) completed += link->Poll();
  return completed;
}

bool SimTransport::has_arrivals() const {
  return !arrived_.empty() || std::any_of(links_.begin(), links_.end(), [](const SimLink* link) {
    return link->has_completions();
  });
}

uint64_t SimTransport::due_ns() const {
  uint64_t due_ns = UINT64_MAX;
  for (const SimLink* link : links_) due_ns = std::min(due_ns, link->due_ns());
  return due_ns;
}

void SimTransport::Wait(int wake_fd, uint64_t timeout_ns) {
  world_->Block(*this, wake_fd, timeout_ns);
}

Hello SimFabric::NewHello(ServerId server) const {
  Hello hello;
  hello.server = server;
  hello.cluster = world_->cluster();
  hello.member = self_;
  hello.nonce = world_->random().Next();
  return hello;
}

Result<std::unique_ptr<Transport>> SimFabric::OpenTransport() {
  if (world_->has_crashed(process_)) return Status::Unavailable(kCrashedText);
  auto transport = std::make_unique<SimTransport>(world_);
  for (const RegionInfo& region : regions_) {
    SimLink* link = world_->NewLink(process_, transport.get(), NewHello(region.server),
                                    region.incarnation, options_);
    transport->AddLink(link);
    link->Connect();
  }
  world_->AwaitLinks(*transport);
  return std::unique_ptr<Transport>(std::move(transport));
}

Status SimFabric::Identify(const MemberIdentity& self) {
  FARLEAF_CHECK(self_.id == 0 && self.id != 0, self_.id, self.id);
  self_ = self;  // each transport's Hello tells the memory servers
  return Status::Ok();
}

Status SimFabric::CutOff(ServerId server, const MemberIdentity& member) {
  if (server >= regions_.size()) {
    return Status::Unavailable("memory server " + std::to_string(server) + " is not in this pool");
  }
  if (world_->has_crashed(process_)) return Status::Unavailable(kCrashedText);
  Hello hello = NewHello(server);
  hello.kind = HelloKind::kCutOff;
  hello.target = member;
  SimTransport asking(world_);
  SimLink* link =
      world_->NewLink(process_, &asking, std::move(hello), regions_[server].incarnation, options_);
  asking.AddLink(link);
  link->Connect();
  world_->AwaitLinks(asking);
  return link->up() ? Status::Ok() : link->failure();
}

}  // namespace farleaf::dsm
