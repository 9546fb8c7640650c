#include "dsm/verbs/verbs_lane.h"

#include <fcntl.h>

#include <algorithm>
#include <array>

namespace farleaf::dsm {

namespace {
constexpr uint32_t kPollsBetweenEventChecks = 1024;
constexpr int kCompletionsPerPoll = 16;
}  // namespace

Result<std::unique_ptr<VerbsLane>> VerbsLane::Open(std::vector<Server> servers,
                                                   std::shared_ptr<VerbsDevices> devices,
                                                   const VerbsOptions& options,
                                                   const Clock* clock) {
  auto events = OpenEventChannel();
  if (!events.ok()) return events.status();
  std::unique_ptr<VerbsLane> lane(
      new VerbsLane(std::move(*events), std::move(devices), options, clock));
  for (Server& server : servers) {
    const auto index = static_cast<uint16_t>(lane->links_.size());
    const ServerId id = server.hello.server;
    lane->links_.push_back(std::make_unique<VerbsLink>(
        lane.get(), index, std::move(server.target), std::move(server.hello),
        server.expected_incarnation, options, clock));
    if (lane->by_server_.size() <= id) lane->by_server_.resize(id + size_t{1});
    lane->by_server_[id] = lane->links_.back().get();
  }
  // After all are known: the completion queue is made for so many.
  for (const auto& link : lane->links_) link->Connect();
  return lane;
}

VerbsLane::~VerbsLane() {
  links_.clear();
  DropQueues();
}

/// REQUIRES: no link has a queue pair.
void VerbsLane::DropQueues() {
  for (const Queue& queue : queues_) {
    ibv_destroy_cq(queue.queue);
    ibv_destroy_comp_channel(queue.channel);
  }
  queues_.clear();
}

Result<VerbsLinkHost::Completions> VerbsLane::CompletionsOf(
    const std::shared_ptr<VerbsDevice>& device) {
  for (const Queue& queue : queues_) {
    if (queue.device == device) return Completions{queue.queue, queue.queue_depth};
  }
  // Every request may end in a completion when a queue pair breaks, and those of the broken one are
  // still there when its successor is at work.
  constexpr uint32_t kQueueDepthMin = 16;
  const auto shares = static_cast<uint32_t>(links_.size()) * 2;
  const auto entries_max = static_cast<uint32_t>(std::max(device->limits().max_cqe, 1));
  Queue made;
  made.device = device;
  made.queue_depth = std::min({std::max(options_.queue_depth, kQueueDepthMin),
                               static_cast<uint32_t>(std::max(device->limits().max_qp_wr, 1)),
                               std::max(entries_max / shares, 1u)});
  made.channel = ibv_create_comp_channel(device->context());
  if (made.channel == nullptr) {
    return VerbsError("no completion channel on RDMA device " + device->name());
  }
  const int flags = ::fcntl(made.channel->fd, F_GETFL);
  const int entries = static_cast<int>(std::min(made.queue_depth * shares, entries_max));
  if (flags >= 0 && ::fcntl(made.channel->fd, F_SETFL, flags | O_NONBLOCK) == 0) {
    made.queue = ibv_create_cq(device->context(), entries, nullptr, made.channel, 0);
  }
  if (made.queue == nullptr) {
    Status failed = VerbsError("no completion queue of " + std::to_string(entries) +
                               " entries on RDMA device " + device->name());
    ibv_destroy_comp_channel(made.channel);
    return failed;
  }
  queues_.push_back(made);
  return Completions{made.queue, made.queue_depth};
}

void VerbsLane::AwaitLinks() {
  auto any_connecting = [this] {
    return std::any_of(links_.begin(), links_.end(),
                       [](const auto& link) { return link->connecting(); });
  };
  while (true) {
    Poll();
    if (!any_connecting()) return;
    constexpr int kTurnMs = 20;  // bounds how late a deadline is noticed
    pollfd waited{events_->fd, POLLIN, 0};
    ::poll(&waited, 1, kTurnMs);
  }
}

void VerbsLane::Post(Batch& batch) {
  VerbsLink* link = batch.server() < by_server_.size() ? by_server_[batch.server()] : nullptr;
  if (link == nullptr) [[unlikely]] {
    batch.CompleteWith(Status::Unavailable("memory server " + std::to_string(batch.server()) +
                                           " is not in this pool"));
    return;
  }
  link->Post(batch);
  unsettled_ |= !link->up();
}

size_t VerbsLane::Poll() {
  size_t completed = 0;
  bool failed = false;
  for (const Queue& queue : queues_) completed += PollQueue(queue, &failed);
  if (failed) [[unlikely]] {
    for (const auto& link : links_) link->HandleQueueFailure();
    DropQueues();
    unsettled_ = true;
  }
  if (!unsettled_ && ++polls_ % kPollsBetweenEventChecks != 0) [[likely]]
    return completed;
  HandleEvents();
  unsettled_ = false;
  for (const auto& link : links_) {
    completed += link->Tick();
    unsettled_ |= !link->up() && (link->connecting() || link->busy());
  }
  return completed;
}

/// Goes on while there is more but no batch is complete: what is left of a connection that broke has to
/// go, and whoever waits must not be told that there was nothing.
size_t VerbsLane::PollQueue(const Queue& queue, bool* failed) {
  std::array<ibv_wc, kCompletionsPerPoll> completions;
  size_t completed = 0;
  int count = 0;
  do {
    count = ibv_poll_cq(queue.queue, kCompletionsPerPoll, completions.data());
    *failed |= count < 0;
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<size_t>(i)];
      VerbsLink& link = *links_[VerbsLink::IndexOf(completion.wr_id)];
      completed += link.HandleCompletion(completion);
      unsettled_ |= !link.up();
    }
  } while (completed == 0 && count == kCompletionsPerPoll);
  return completed;
}

void VerbsLane::HandleEvents() {
  while (auto event = TakeEvent(events_.get())) {
    for (const auto& link : links_) {
      if (!link->owns(event->id)) continue;
      link->HandleEvent(*event);
      break;
    }
  }
}

void VerbsLane::Arm() {
  for (Queue& queue : queues_) {
    if (queue.armed) continue;
    queue.armed = ibv_req_notify_cq(queue.queue, 0) == 0;
  }
}

void VerbsLane::AddDescriptors(std::vector<pollfd>* waited) const {
  waited->push_back({events_->fd, POLLIN, 0});
  for (const Queue& queue : queues_) waited->push_back({queue.channel->fd, POLLIN, 0});
}

uint64_t VerbsLane::due_ns() const {
  uint64_t due_ns = UINT64_MAX;
  for (const auto& link : links_) due_ns = std::min(due_ns, link->due_ns());
  return due_ns;
}

bool VerbsLane::TakeCompletionEvents() {
  bool signalled_any = false;
  unsettled_ = true;  // Poll looks for events of the connections too
  for (Queue& queue : queues_) {
    ibv_cq* signalled = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(queue.channel, &signalled, &context) == 0) {
      ibv_ack_cq_events(signalled, 1);
      queue.armed = false;
      signalled_any = true;
    }
  }
  return signalled_any;
}

}  // namespace farleaf::dsm
