// Worker: one thread's event loop. It owns the thread's Transport, resumes coroutines whose round
// trips have completed, and is what every operation on pooled memory runs on.
//
// A round trip is one `co_await worker.RoundTrip(...)`: whoever reads index code counts them. On shm
// a verb completes at once and nothing suspends; elsewhere many operations run at once on one
// worker, so that the round trip of one hides behind the others.
//
// Invariants:
//   - every coroutine started on a worker is resumed only by that worker's thread;
//   - between two resumptions the worker passes a quiescent point (dsm/epoch.h): a coroutine holds
//     no pointer into an epoch-protected structure across a co_await;
//   - at destruction nothing is running (checked).
// Thread rule: one thread, except ResumeSoon.
#pragma once

#include <algorithm>
#include <atomic>
#include <coroutine>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/random.h"
#include "dsm/base/status.h"
#include "dsm/completion_source.h"
#include "dsm/epoch.h"
#include "dsm/fabric_counts.h"
#include "dsm/frame_pool.h"
#include "dsm/shared_reads.h"
#include "dsm/task.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

class Worker {
 public:
  struct Deps {
    std::unique_ptr<Transport> transport;
    EpochDomain* epochs = nullptr;  ///< outlives the worker
    const Clock* clock = nullptr;   ///< outlives the worker
    uint64_t seed = 1;              ///< of backoff jitter and the like
    uint64_t number = 0;            ///< Worker::number
  };
  explicit Worker(Deps deps);
  ~Worker();
  Worker(const Worker&) = delete;

  const Clock& clock() const { return *clock_; }
  Random& random() { return random_; }
  EpochDomain& epochs() { return *epochs_; }
  Transport& transport() { return *transport_; }
  /// Of the coroutines that run here.
  SharedReads& shared_reads() { return shared_reads_; }
  FramePool* frame_pool() const { return &frames_; }
  /// Names it among the workers that its pool has ever opened, from 1; 0: no pool opened it.
  uint64_t number() const { return number_; }
  /// Whether something of a batch that was posted here may land yet: it ended as Unknown, and none to its
  /// memory server has succeeded here since, as happens only on a new connection.
  bool in_doubt() const { return !in_doubt_.empty(); }

  /// Posts one batch and waits for it: one round trip, added with its verbs to `counts`. The Status
  /// is the batch's.
  class [[nodiscard]] OneBatch {
   public:
    bool await_ready() const noexcept { return state_.done(); }
    void await_suspend(std::coroutine_handle<> h) { state_.SetWaiter(h, &worker_->ready_); }
    Status await_resume() {
      const Status& status = batch_->status();
      if (!status.ok() || worker_->in_doubt()) [[unlikely]] {
        worker_->NoteOutcome(*batch_, Proves::kLanded);
      }
      return status;
    }

   private:
    friend class Worker;
    OneBatch(Worker* worker, Batch* batch) : worker_(worker), batch_(batch) {
      state_.AddBatch();
      batch->set_round_trip(&state_);
      worker->transport_->Post(*batch);
    }
    OneBatch(const OneBatch&) = delete;
    Worker* worker_;
    Batch* batch_;
    RoundTripState state_;
  };
  OneBatch RoundTrip(Batch& batch, FabricCounts& counts) {
    ++counts.round_trips;
    batch.AddTo(&counts);
    return OneBatch(this, &batch);
  }

  /// Posts several batches together, to any number of servers: still one round trip. Empty batches
  /// are left out; the Status is the first failure. Each batch holds its own status.
  class [[nodiscard]] ManyBatches {
   public:
    bool await_ready() const noexcept { return state_.done(); }
    void await_suspend(std::coroutine_handle<> h) { state_.SetWaiter(h, &worker_->ready_); }
    Status await_resume() {
      for (const Batch& batch : batches_) {
        if (!batch.status().ok()) return Failure();
      }
      return Status::Ok();
    }

   private:
    friend class Worker;
    ManyBatches(Worker* worker, std::span<Batch> batches) : worker_(worker), batches_(batches) {
      for (Batch& batch : batches) {
        if (batch.empty()) continue;
        state_.AddBatch();
        batch.set_round_trip(&state_);
      }
      for (Batch& batch : batches) {
        if (!batch.empty()) worker->transport_->Post(batch);
      }
    }
    ManyBatches(const ManyBatches&) = delete;
    Status Failure() {
      Status first;
      for (const Batch& batch : batches_) {
        if (first.ok()) first = batch.status();
        worker_->NoteOutcome(batch, Proves::kNothing);
      }
      return first;
    }
    Worker* worker_;
    std::span<Batch> batches_;
    RoundTripState state_;
  };
  ManyBatches RoundTrip(std::span<Batch> batches, FabricCounts& counts) {
    bool any = false;
    for (const Batch& batch : batches) {
      batch.AddTo(&counts);
      any |= !batch.empty();
    }
    counts.round_trips += any;
    return ManyBatches(this, batches);
  }

  /// Suspends for at least `ns`.
  struct [[nodiscard]] Sleeping {
    Worker* worker;
    uint64_t due_ns;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) { worker->AddTimer(due_ns, h); }
    void await_resume() const noexcept {}
  };
  Sleeping Sleep(uint64_t ns) { return {this, clock_->NowNs() + ns}; }
  /// Behind all that can go on now.
  struct [[nodiscard]] Yielding {
    Worker* worker;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) {
      if (worker->has_cross_thread_work()) {
        worker->ResumeSoon(h);
      } else {
        worker->ready_.push_back(h);
      }
    }
    void await_resume() const noexcept {}
  };
  Yielding Yield() { return {this}; }
  /// Others can go on now.
  bool others_are_ready() const {
    return resuming_left_ > 0 || !ready_.empty() || has_cross_thread_work();
  }

  /// Resumes `handle` on this worker's thread. May be called from any thread; REQUIRES that the
  /// worker lives until then.
  void ResumeSoon(std::coroutine_handle<> handle) { ResumeSoon({&handle, 1}); }
  /// All of them, and the thread is woken once.
  void ResumeSoon(std::span<const std::coroutine_handle<>> handles);

  /// Runs `task` to its end, and whatever else is on this worker in the meantime.
  template <typename T>
  T Run(Task<T> task) {
    GoOnline();
    task.Start();
    while (!task.done()) RunOnce(Idle::kBlock);
    GoOffline();
    return task.TakeResult();
  }
  /// Starts `task` and lets it run beside others; its frame is destroyed when it ends.
  void Spawn(Task<void> task);
  size_t spawned() const { return spawned_.size(); }
  /// Runs until every spawned task has ended.
  void RunUntilIdle();
  /// The process that this worker stands for has crashed: every spawned task ends where it stands, and
  /// its frame is destroyed. Nothing is resumed, and nothing posted. What a frame had in flight lies in
  /// its memory: REQUIRES that the transport touches no batch any more, that no Run or RunOnce is on the
  /// stack, and that the Pool was abandoned before, so that locks held by the frames may stay.
  void Abandon();

  enum class Idle { kReturn, kBlock };
  /// One turn of the loop: completions, timers, wake-ups. With kBlock, and nothing to do for a
  /// while, blocks until there is. Returns whether anything was resumed. REQUIRES: online.
  bool RunOnce(Idle idle);
  /// When RunOnce will have something to resume by itself, without a completion: 0 is now,
  /// UINT64_MAX never.
  uint64_t NextDueNs() const {
    if (!ready_.empty() || has_cross_thread_work()) return 0;
    uint64_t due_ns = timers_.empty() ? UINT64_MAX : timers_.front().due_ns;
    for (const NamedSource& source : sources_)
      due_ns = std::min(due_ns, source.second->NextDueNs());
    return due_ns;
  }

  /// Work that ends elsewhere and is taken in by this loop. `name` is the address of something that only the
  /// owner of the source knows. Null: none was added under it.
  CompletionSource* FindSource(const void* name) const {
    for (const NamedSource& source : sources_) {
      if (source.first == name) return source.second.get();
    }
    return nullptr;
  }
  void AddSource(const void* name, std::unique_ptr<CompletionSource> source) {
    sources_.emplace_back(name, std::move(source));
  }

  /// A process that runs its own loop around RunOnce brackets its busy periods with these. Nested
  /// calls count.
  void GoOnline() {
    if (online_depth_++ == 0) participant_.GoOnline();
  }
  void GoOffline() {
    if (--online_depth_ == 0) participant_.GoOffline();
  }
  /// Written to when another thread has called ResumeSoon while this worker was asleep, or a source has something to
  /// reap. Whoever blocks in a loop of its own, after announcing it with set_sleeping and if then may_block(), waits
  /// for its edge, and need not read it: a system call less.
  int wake_fd() const { return wake_fd_; }
  void set_sleeping(bool sleeping);
  bool may_block() const {
    return ready_.empty() && !has_cross_thread_work() && !source_has_ended_;
  }
  /// Whether whatever this worker waits for is announced through wake_fd, so that turning the loop gains nothing.
  bool waits_for_sources() const { return transport_->completes_at_once() && BusySources() > 0; }
  bool has_cross_thread_work() const { return cross_thread_pending_.load(); }

 private:
  friend struct Sleeping;
  struct Timer {
    uint64_t due_ns;
    std::coroutine_handle<> handle;
    bool operator<(const Timer& other) const { return due_ns > other.due_ns; }  // min-heap
  };

  /// What a success proves about batches that ended as Unknown before: nothing, if it may be older than
  /// they are, since others of its round trip were waited for.
  enum class Proves : uint8_t { kNothing, kLanded };
  void NoteOutcome(const Batch& batch, Proves success);
  void AddTimer(uint64_t due_ns, std::coroutine_handle<> handle);
  void TakeDueTimers();
  void TakeCrossThreadWork();
  bool ResumeReady();
  Task<void> RunSpawned(Task<void> task, std::list<std::optional<Task<void>>>::iterator self);
  void EraseEnded();
  void BlockUntilWork();
  /// REQUIRES: one source is busy.
  void WaitInSource(uint64_t timeout_ns);
  size_t BusySources() const;
  using NamedSource = std::pair<const void*, std::unique_ptr<CompletionSource>>;

  mutable FramePool frames_;  // outlives the frames that the members below own
  std::unique_ptr<Transport> transport_;
  EpochDomain* epochs_;
  const Clock* clock_;
  Random random_;
  const uint64_t number_;
  std::vector<ServerId> in_doubt_;  // memory servers; in_doubt()
  EpochDomain::Participant participant_;
  int online_depth_ = 0;
  std::vector<std::coroutine_handle<>> ready_;     // filled by completions
  std::vector<std::coroutine_handle<>> resuming_;  // being resumed by ResumeReady
  size_t resuming_left_ = 0;                       // of them, not begun with
  std::vector<Timer> timers_;                      // heap
  SharedReads shared_reads_{&ready_};
  std::vector<NamedSource> sources_;  // few: one a storage engine
  bool source_has_ended_ = false;     // while asleep: something can be reaped
  using SpawnedList = std::list<std::optional<Task<void>>>;
  SpawnedList spawned_;
  std::vector<SpawnedList::iterator> ended_;  // of spawned_, to be erased
  uint32_t idle_turns_ = 0;

  std::mutex cross_thread_mutex_;  // guards cross_thread_
  std::vector<std::coroutine_handle<>> cross_thread_;
  std::atomic<bool> cross_thread_pending_{false};
  std::atomic<bool> sleeping_{false};
  int wake_fd_ = -1;
};

}  // namespace farleaf::dsm
