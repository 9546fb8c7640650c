#include "dsm/worker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "dsm/base/check.h"

namespace farleaf::dsm {

namespace {
constexpr uint64_t kBlockNsMax = 100 * kNsPerMs;
}  // namespace

Worker::Worker(Deps deps)
    : transport_(std::move(deps.transport)),
      epochs_(deps.epochs),
      clock_(deps.clock),
      random_(deps.seed),
      number_(deps.number),
      participant_(deps.epochs) {
  FARLEAF_CHECK(transport_ && clock_);
  wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  FARLEAF_CHECK(wake_fd_ >= 0, errno);
}

Worker::~Worker() {
  FARLEAF_CHECK(shared_reads_.empty() && BusySources() == 0);
  FARLEAF_CHECK(spawned_.empty() && ready_.empty() && timers_.empty() && online_depth_ == 0,
                spawned_.size(), ready_.size(), timers_.size(), online_depth_);
  ::close(wake_fd_);
}

void Worker::NoteOutcome(const Batch& batch, Proves success) {
  const auto at = std::find(in_doubt_.begin(), in_doubt_.end(), batch.server());
  if (batch.status().code() == StatusCode::kUnknown) {
    if (at == in_doubt_.end()) in_doubt_.push_back(batch.server());
  } else if (batch.status().ok() && success == Proves::kLanded && at != in_doubt_.end()) {
    in_doubt_.erase(at);
  }
}

void Worker::Spawn(Task<void> task) {
  const auto self = spawned_.emplace(spawned_.end());
  self->emplace(RunSpawned(std::move(task), self));
  GoOnline();
  (*self)->Start();
  GoOffline();
  EraseEnded();
}

Task<void> Worker::RunSpawned(Task<void> task, SpawnedList::iterator self) {
  co_await task;
  ended_.push_back(self);
}

void Worker::Abandon() {
  FARLEAF_CHECK(online_depth_ == 0 && BusySources() == 0, online_depth_);
  // Handles first: they name frames, and frames that end may not find themselves in a list.
  ready_.clear();
  timers_.clear();
  shared_reads_.Abandon();
  {
    std::lock_guard lock(cross_thread_mutex_);
    cross_thread_.clear();
    cross_thread_pending_.store(false);
  }
  ended_.clear();
  // Each list element owns a root frame, which owns the frame that it awaits, and so on down: all of
  // them are suspended, so all may be destroyed.
  spawned_.clear();
}

void Worker::EraseEnded() {
  for (const SpawnedList::iterator task : ended_) spawned_.erase(task);
  ended_.clear();
}

void Worker::RunUntilIdle() {
  GoOnline();
  while (!spawned_.empty()) RunOnce(Idle::kBlock);
  GoOffline();
}

bool Worker::RunOnce(Idle idle) {
  FARLEAF_DCHECK(online_depth_ > 0);
  participant_.Quiesce();
  transport_->Poll();
  for (const NamedSource& source : sources_) source.second->Reap(&ready_);
  if (!timers_.empty()) TakeDueTimers();
  if (has_cross_thread_work()) TakeCrossThreadWork();
  const bool waits_in_source = ready_.empty() && idle == Idle::kBlock && waits_for_sources();
  // What the last turn queued is begun before others are resumed; if there are none, by the wait.
  if (!waits_in_source) {
    for (const NamedSource& source : sources_) source.second->Submit();
  }
  if (ResumeReady()) {
    idle_turns_ = 0;
    return true;
  }
  if (idle == Idle::kBlock) {
    if (!waits_in_source && ++idle_turns_ < transport_->idle_turns_before_wait()) {
      __builtin_ia32_pause();
    } else {
      BlockUntilWork();
    }
  }
  return false;
}

bool Worker::ResumeReady() {
  if (ready_.empty()) return false;
  resuming_.swap(ready_);
  resuming_left_ = resuming_.size();
  for (std::coroutine_handle<> handle : resuming_) {
    --resuming_left_;
    handle.resume();
  }
  resuming_.clear();
  EraseEnded();
  return true;
}

void Worker::AddTimer(uint64_t due_ns, std::coroutine_handle<> handle) {
  timers_.push_back({due_ns, handle});
  std::push_heap(timers_.begin(), timers_.end());
}

void Worker::TakeDueTimers() {
  const uint64_t now_ns = clock_->NowNs();
  while (!timers_.empty() && timers_.front().due_ns <= now_ns) {
    ready_.push_back(timers_.front().handle);
    std::pop_heap(timers_.begin(), timers_.end());
    timers_.pop_back();
  }
}

void Worker::ResumeSoon(std::span<const std::coroutine_handle<>> handles) {
  // The lock is held to the end: without it the worker could resume the last handle, end and be
  // destroyed while we still look at it.
  std::lock_guard lock(cross_thread_mutex_);
  cross_thread_.insert(cross_thread_.end(), handles.begin(), handles.end());
  // Who found nothing pending has woken it, if it was asleep, and nobody took anything since.
  if (cross_thread_pending_.exchange(true)) return;
  // Sequentially consistent with set_sleeping: either the sleeper sees the work, or we see it
  // asleep.
  if (sleeping_.load()) {
    const uint64_t one = 1;
    // A full counter means that the wake-up is already on its way.
    [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof one);
  }
}

void Worker::TakeCrossThreadWork() {
  std::lock_guard lock(cross_thread_mutex_);
  ready_.insert(ready_.end(), cross_thread_.begin(), cross_thread_.end());
  cross_thread_.clear();
  cross_thread_pending_.store(false);
}

void Worker::set_sleeping(bool sleeping) {
  sleeping_.store(sleeping);
  source_has_ended_ = false;
  for (const NamedSource& source : sources_) {
    if (!sleeping) {
      source.second->StopWaking();
    } else if (source.second->busy() && !source.second->WakeThrough(wake_fd_)) {
      source_has_ended_ = true;
    }
  }
}

size_t Worker::BusySources() const {
  size_t busy = 0;
  for (const NamedSource& source : sources_) busy += source.second->busy();
  return busy;
}

void Worker::BlockUntilWork() {
  uint64_t timeout_ns = kBlockNsMax;
  if (!timers_.empty()) {
    const uint64_t now_ns = clock_->NowNs();
    const uint64_t due_ns = timers_.front().due_ns;
    timeout_ns = due_ns > now_ns ? std::min(timeout_ns, due_ns - now_ns) : 0;
  }
  participant_.GoOffline();
  if (transport_->completes_at_once() && BusySources() == 1) {
    WaitInSource(timeout_ns);
  } else {
    set_sleeping(true);
    if (may_block()) transport_->Wait(wake_fd_, timeout_ns);
    set_sleeping(false);
    uint64_t count;
    [[maybe_unused]] const ssize_t drained = ::read(wake_fd_, &count, sizeof count);
  }
  participant_.GoOnline();
}

void Worker::WaitInSource(uint64_t timeout_ns) {
  for (const NamedSource& source : sources_) {
    if (!source.second->busy()) continue;
    sleeping_.store(true);
    source.second->SubmitAndWait(wake_fd_, has_cross_thread_work() ? 0 : timeout_ns);
    sleeping_.store(false);
    return;
  }
}

}  // namespace farleaf::dsm
