#include "dsm/verbs/verbs_lane.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "dsm/base/check.h"

namespace farleaf::dsm {

namespace {
constexpr uint32_t kPollsBetweenEventChecks = 1024;
constexpr int kCompletionsPerPoll = 16;
}  // namespace

Result<std::unique_ptr<VerbsLane>> VerbsLane::Open(std::shared_ptr<const KnownServers> known,
                                                   VerbsSources sources, Hello hello,
                                                   std::shared_ptr<VerbsDevices> devices,
                                                   const VerbsOptions& options,
                                                   const Clock* clock) {
  auto events = OpenEventChannel();
  if (!events.ok()) return events.status();
  std::unique_ptr<VerbsLane> lane(new VerbsLane(std::move(*events), std::move(known),
                                                std::move(sources), std::move(hello),
                                                std::move(devices), options, clock));
  lane->Learn();
  return lane;
}

// ---- Coming and going
// ------------------------------------------------------------------------------

void VerbsLane::Learn() {
  links_.Learn([this](KnownServers::Server server) { return NewLink(std::move(server)); });
  unsettled_ = true;  // what was removed may have something to end
}

std::unique_ptr<VerbsLink> VerbsLane::NewLink(KnownServers::Server server) {
  Hello hello = HelloTo(server->server(), hello_);
  std::optional<SocketAddress> source = sources_.For(server->address());
  const uint16_t index = FreeIndex();
  auto link = std::make_unique<VerbsLink>(this, index, std::move(server), std::move(source),
                                          std::move(hello), options_, clock_);
  by_index_[index] = link.get();
  return link;
}

uint16_t VerbsLane::FreeIndex() {
  const auto free = std::find(by_index_.begin(), by_index_.end(), nullptr);
  const auto index = static_cast<size_t>(free - by_index_.begin());
  FARLEAF_CHECK(index <= UINT16_MAX, index);  // there are fewer ids of servers
  if (free == by_index_.end()) by_index_.push_back(nullptr);
  return static_cast<uint16_t>(index);
}

void VerbsLane::AwaitFirst() {
  std::vector<VerbsLink*> first;
  links_.ForEach([&](VerbsLink& link) {
    if (link.server().connects() == KnownServer::Connects::kAtOpening) first.push_back(&link);
  });
  // After all are known: the completion queue is made for so many.
  for (VerbsLink* link : first) link->Connect();
  while (true) {
    HandleEvents();
    for (VerbsLink* link : first) link->Poll();
    if (std::none_of(first.begin(), first.end(),
                     [](const VerbsLink* link) { return link->connecting(); })) {
      return;
    }
    constexpr int kTurnMs = 20;  // bounds how late a deadline is noticed
    pollfd waited{events_->fd, POLLIN, 0};
    ::poll(&waited, 1, kTurnMs);
  }
}

// ---- Completion queues
// -----------------------------------------------------------------------------

/// Every request may end in a completion when a queue pair breaks, and those of the broken one are still there when
/// its successor is at work.
uint64_t VerbsLane::SharesNeeded() const {
  uint64_t links = 0;
  links_.ForEach([&links](const VerbsLink& link) { links += link.up() || link.connecting(); });
  return 2 * links;
}

Result<VerbsLane::Queue> VerbsLane::MakeQueue(const std::shared_ptr<VerbsDevice>& device) const {
  constexpr uint32_t kQueueDepthMin = 16;
  const auto entries_max = static_cast<uint32_t>(std::max(device->limits().max_cqe, 1));
  Queue made;
  made.device = device;
  made.shares = SharesNeeded();
  const auto share = static_cast<uint32_t>(entries_max / made.shares);
  made.queue_depth = std::min({std::max(options_.queue_depth, kQueueDepthMin),
                               static_cast<uint32_t>(std::max(device->limits().max_qp_wr, 1)),
                               std::max(share, 1u)});
  made.channel.reset(ibv_create_comp_channel(device->context()));
  if (!made.channel) return VerbsError("no completion channel on RDMA device " + device->name());
  const int flags = ::fcntl(made.channel->fd, F_GETFL);
  const auto entries =
      static_cast<int>(std::min<uint64_t>(made.queue_depth * made.shares, entries_max));
  if (flags >= 0 && ::fcntl(made.channel->fd, F_SETFL, flags | O_NONBLOCK) == 0) {
    made.queue.reset(ibv_create_cq(device->context(), entries, nullptr, made.channel.get(), 0));
  }
  if (!made.queue) {
    return VerbsError("no completion queue of " + std::to_string(entries) +
                      " entries on RDMA device " + device->name());
  }
  return made;
}

/// Servers have come since it was made.
Status VerbsLane::MakeRoom(Queue* queue) const {
  const uint64_t needed = SharesNeeded();
  if (needed <= queue->shares) return Status::Ok();
  const uint64_t shares = std::max(needed, 2 * queue->shares);  // they come one by one
  const auto entries_max = static_cast<uint64_t>(std::max(queue->device->limits().max_cqe, 1));
  const uint64_t entries = std::min(shares * queue->queue_depth, entries_max);
  if (needed * queue->queue_depth > entries_max) {
    return Status::ResourceExhausted("RDMA device " + queue->device->name() +
                                     " has completion queues of " + std::to_string(entries_max) +
                                     " entries at most: too few for " + std::to_string(needed / 2) +
                                     " servers at once");
  }
  if (const int error = ibv_resize_cq(queue->queue.get(), static_cast<int>(entries)); error != 0) {
    errno = error;  // the call says it in its result alone
    return VerbsError("no completion queue of " + std::to_string(entries) +
                      " entries on RDMA device " + queue->device->name());
  }
  queue->shares = entries / queue->queue_depth;
  return Status::Ok();
}

Result<VerbsLinkHost::Completions> VerbsLane::CompletionsOf(
    const std::shared_ptr<VerbsDevice>& device) {
  for (Queue& queue : queues_) {
    if (queue.device != device) continue;
    FARLEAF_RETURN_IF_ERROR(MakeRoom(&queue));
    return Completions{queue.queue.get(), queue.queue_depth};
  }
  auto made = MakeQueue(device);
  if (!made.ok()) return made.status();
  queues_.push_back(std::move(*made));
  ++queues_made_;
  return Completions{queues_.back().queue.get(), queues_.back().queue_depth};
}

// ---- Batches
// ---------------------------------------------------------------------------------------

void VerbsLane::Post(Batch& batch) {
  if (stale()) [[unlikely]]
    Learn();
  VerbsLink* const link = links_.Find(batch.server());
  if (link == nullptr) [[unlikely]] {
    batch.CompleteWith(links_.known().WhyUnknown(batch.server()));
    return;
  }
  link->Post(batch);
  unsettled_ |= !link->up();
}

size_t VerbsLane::Poll() {
  if (stale()) [[unlikely]]
    Learn();
  size_t completed = 0;
  bool failed = false;
  for (const Queue& queue : queues_) completed += PollQueue(queue, &failed);
  if (failed) [[unlikely]] {
    links_.ForEach([](VerbsLink& link) { link.HandleQueueFailure(); });
    queues_.clear();  // no link has a queue pair any more
    unsettled_ = true;
  }
  if (!unsettled_ && ++polls_ % kPollsBetweenEventChecks != 0) [[likely]]
    return completed;
  HandleEvents();
  completed += links_.Poll();
  unsettled_ = false;
  links_.ForEach([this](const VerbsLink& link) { unsettled_ |= link.unsettled(); });
  return completed;
}

/// Goes on while there is more but no batch is complete: what is left of a connection that broke has to
/// go, and whoever waits must not be told that there was nothing.
size_t VerbsLane::PollQueue(const Queue& queue, bool* failed) {
  std::array<ibv_wc, kCompletionsPerPoll> completions;
  size_t completed = 0;
  int count = 0;
  do {
    count = ibv_poll_cq(queue.queue.get(), kCompletionsPerPoll, completions.data());
    *failed |= count < 0;
    for (int i = 0; i < count; ++i) {
      const ibv_wc& completion = completions[static_cast<size_t>(i)];
      VerbsLink* const link = by_index_[VerbsLink::IndexOf(completion.wr_id)];
      if (link == nullptr) continue;  // of one that was removed
      completed += link->HandleCompletion(completion);
      unsettled_ |= !link->up();
    }
  } while (completed == 0 && count == kCompletionsPerPoll);
  return completed;
}

void VerbsLane::HandleEvents() {
  while (auto event = TakeEvent(events_.get())) {
    links_.ForEach([&event](VerbsLink& link) {
      if (link.owns(event->id)) link.HandleEvent(*event);
    });
  }
}

void VerbsLane::Arm() {
  for (Queue& queue : queues_) {
    if (queue.armed) continue;
    queue.armed = ibv_req_notify_cq(queue.queue.get(), 0) == 0;
  }
}

void VerbsLane::AddDescriptors(std::vector<pollfd>* waited) const {
  waited->push_back({events_->fd, POLLIN, 0});
  for (const Queue& queue : queues_) waited->push_back({queue.channel->fd, POLLIN, 0});
}

uint64_t VerbsLane::due_ns() const {
  uint64_t due_ns = UINT64_MAX;
  links_.ForEach([&due_ns](const VerbsLink& link) { due_ns = std::min(due_ns, link.due_ns()); });
  return due_ns;
}

bool VerbsLane::TakeCompletionEvents() {
  bool signalled_any = false;
  unsettled_ = true;  // Poll looks for events of the connections too
  for (Queue& queue : queues_) {
    ibv_cq* signalled = nullptr;
    void* context = nullptr;
    while (ibv_get_cq_event(queue.channel.get(), &signalled, &context) == 0) {
      ibv_ack_cq_events(signalled, 1);
      queue.armed = false;
      signalled_any = true;
    }
  }
  return signalled_any;
}

}  // namespace farleaf::dsm
