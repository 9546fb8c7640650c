#include "dsm/verbs/verbs_transport.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

namespace farleaf::dsm {

namespace {

/// Waits for one of the descriptors, until the timeout or the lane is due.
void WaitFor(std::vector<pollfd>& waited, uint64_t timeout_ns, uint64_t due_ns,
             const Clock& clock) {
  if (due_ns != UINT64_MAX) {
    const uint64_t now_ns = clock.NowNs();
    timeout_ns = std::min(timeout_ns, due_ns > now_ns ? due_ns - now_ns : 0);
  }
  const timespec timeout{static_cast<time_t>(timeout_ns / kNsPerSecond),
                         static_cast<long>(timeout_ns % kNsPerSecond)};
  ::ppoll(waited.data(), waited.size(), &timeout, nullptr);
}

}  // namespace

// ---- One thread's own lane

void VerbsTransport::Wait(int wake_fd, uint64_t timeout_ns) {
  if (lane_->stale()) return;
  lane_->Arm();
  const uint64_t armed = lane_->queues_made();
  if (lane_->Poll() > 0 || lane_->queues_made() != armed) return;
  waited_.assign(1, {wake_fd, POLLIN, 0});
  lane_->AddDescriptors(&waited_);
  WaitFor(waited_, timeout_ns, lane_->due_ns(), *clock_);
  lane_->TakeCompletionEvents();
}

// ---- A shared lane

Result<std::unique_ptr<Transport>> SharedVerbsTransport::Create(std::shared_ptr<SharedLane> shared,
                                                                const Clock* clock) {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return OsError("cannot share an RDMA queue pair");
  return std::unique_ptr<Transport>(
      new SharedVerbsTransport(std::move(shared), std::move(wake), clock));
}

SharedVerbsTransport::~SharedVerbsTransport() {
  FARLEAF_CHECK(relays_.empty(), "destroyed with batches in flight", relays_.size());
}

void SharedVerbsTransport::WakeSleepers() {
  for (const int sleeper : shared_->sleepers) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(sleeper, &one, sizeof one);
  }
}

void SharedVerbsTransport::Post(Batch& batch) {
  Relay& relay = relays_.emplace_back();
  relay.waiter = batch.round_trip();
  relay.state.AddBatch();
  batch.set_round_trip(&relay.state);
  std::lock_guard lock(shared_->mutex);
  const bool settled = !shared_->lane->unsettled();
  shared_->lane->Post(batch);
  if (settled && shared_->lane->unsettled()) WakeSleepers();
}

size_t SharedVerbsTransport::Poll() {
  std::lock_guard lock(shared_->mutex);
  return PollLane();
}

size_t SharedVerbsTransport::PollLane() {
  const bool settled = !shared_->lane->unsettled();
  const uint64_t queues = shared_->lane->queues_made();
  const bool completed_any = shared_->lane->Poll() > 0;
  // Whoever sleeps has not got the descriptor of a queue that was made since.
  const bool made_any = shared_->lane->queues_made() != queues;
  if (completed_any || made_any || (settled && shared_->lane->unsettled())) WakeSleepers();
  size_t completed = 0;
  for (auto relay = relays_.begin(); relay != relays_.end();) {
    if (!relay->state.done()) {
      ++relay;
      continue;
    }
    ++completed;
    relay->waiter->BatchDone();
    relay = relays_.erase(relay);
  }
  return completed;
}

void SharedVerbsTransport::Wait(int wake_fd, uint64_t timeout_ns) {
  uint64_t due_ns = UINT64_MAX;
  {
    std::lock_guard lock(shared_->mutex);
    if (shared_->lane->stale()) return;
    shared_->lane->Arm();
    const uint64_t armed = shared_->lane->queues_made();
    if (PollLane() > 0 || shared_->lane->queues_made() != armed) return;
    shared_->sleepers.push_back(wake_.get());
    waited_.assign(1, {wake_fd, POLLIN, 0});
    waited_.push_back({wake_.get(), POLLIN, 0});
    shared_->lane->AddDescriptors(&waited_);
    due_ns = shared_->lane->due_ns();
  }
  WaitFor(waited_, timeout_ns, due_ns, *clock_);
  std::lock_guard lock(shared_->mutex);
  std::erase(shared_->sleepers, wake_.get());
  uint64_t count;
  [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &count, sizeof count);
  if (shared_->lane->TakeCompletionEvents()) WakeSleepers();  // they arm it again
}

}  // namespace farleaf::dsm
