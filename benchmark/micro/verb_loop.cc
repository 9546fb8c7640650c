#include "benchmark/micro/verb_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <utility>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/clock.h"
#include "dsm/base/random.h"
#include "dsm/worker.h"

namespace farleaf::micro {

namespace {

using dsm::Batch;
using dsm::FabricCounts;
using dsm::RoundTripState;
using dsm::Task;
using dsm::Transport;
using dsm::VerbKind;
using dsm::Worker;

/// One place for an operation in flight: a batch, and the local memory of its verbs.
struct Slot {
  Slot(uint32_t index, const VerbPlan& plan)
      : batch(plan.address.server()),
        words(plan.batch * plan.bytes / 8),
        first_place(uint64_t{index} * plan.batch) {}
  Batch batch;
  RoundTripState state;
  std::vector<uint64_t> words;  ///< read into, written from, or the old values
  uint64_t first_place;         ///< of its verbs, if places are fixed
  uint64_t posted_ticks = 0;
};

/// Makes the operations.
class Filler {
 public:
  explicit Filler(const VerbPlan& plan)
      : plan_(plan), places_(plan.span_bytes / plan.bytes), random_(plan.seed) {
    FARLEAF_CHECK(places_ > 0, plan.span_bytes, plan.bytes);
  }
  void Fill(Slot& slot) {
    slot.batch.Clear();
    for (uint32_t i = 0; i < plan_.batch; ++i) {
      const uint64_t place =
          plan_.place == Place::kRandom ? random_.Below(places_) : (slot.first_place + i) % places_;
      AddVerb(slot, i, plan_.address.offset() + place * plan_.bytes);
    }
  }

 private:
  void AddVerb(Slot& slot, uint32_t index, uint64_t offset) {
    const uint64_t words = plan_.bytes / 8;
    const auto local = std::span(slot.words).subspan(index * words, words);
    switch (plan_.verb) {
      case VerbKind::kRead:
        slot.batch.Read(offset, std::as_writable_bytes(local));
        break;
      case VerbKind::kWrite:
        slot.batch.Write(offset, std::as_bytes(local));
        break;
      case VerbKind::kCompareAndSwap:  // the target is zero: each one succeeds, and leaves it so
        slot.batch.CompareAndSwap(offset, 0, 0, local.data());
        break;
      case VerbKind::kFetchAdd:
        slot.batch.FetchAdd(offset, 1, local.data());
        break;
    }
  }

  const VerbPlan plan_;
  const uint64_t places_;
  Random random_;
};

/// What may still be posted, and what became of the rest.
class Tally {
 public:
  Tally(uint64_t operations, const std::atomic<bool>& stop, Histogram* ticks)
      : left_(operations), stop_(stop), ticks_(ticks) {}
  /// Takes one operation from those that are left.
  bool TakeOne() {
    if (left_ == 0 || stop_.load(std::memory_order_relaxed)) return false;
    --left_;
    return true;
  }
  void Ended(const Status& status, uint64_t ticks) {
    if (status.ok()) [[likely]] {
      ticks_->Record(ticks);
      return;
    }
    left_ = 0;
    if (failure_.ok()) failure_ = status;
  }
  const Status& failure() const { return failure_; }

 private:
  uint64_t left_;
  const std::atomic<bool>& stop_;
  Histogram* const ticks_;
  Status failure_;
};

// ---- Post and Poll -------------------------------------------------------------------------------

class TransportLoop final : public VerbLoop {
 public:
  TransportLoop(std::unique_ptr<Transport> transport, const VerbPlan& plan)
      : transport_(std::move(transport)), filler_(plan), ring_(plan.in_flight) {
    for (uint32_t i = 0; i < plan.in_flight; ++i) slots_.emplace_back(i, plan);
    turns_before_wait_ =
        plan.idle == Idle::kSpin ? UINT64_MAX : transport_->idle_turns_before_wait();
    never_readable_ = ::eventfd(0, EFD_CLOEXEC);
    FARLEAF_CHECK(never_readable_ >= 0, errno);
  }
  ~TransportLoop() override { ::close(never_readable_); }
  TransportLoop(const TransportLoop&) = delete;

  Status Run(uint64_t operations, const std::atomic<bool>& stop, Histogram* ticks) override {
    Tally tally(operations, stop, ticks);
    for (Slot& slot : slots_) PostUntilPending(slot, NowTicks(), tally);
    // One transport completes batches for one server in the order of their posting; were it not so,
    // an operation would be timed up to the end of those before it, and none be missed.
    while (pending_ > 0) {
      Slot& slot = *ring_[first_];
      AwaitCompletion(slot);
      if (++first_ == ring_.size()) first_ = 0;
      --pending_;
      PostUntilPending(slot, TakeResult(slot, tally), tally);
    }
    return tally.failure();
  }

 private:
  static constexpr uint64_t kWaitNsMax = 100 * kNsPerMs;

  /// Posts one operation after the other, as long as they are complete when Post returns.
  void PostUntilPending(Slot& slot, uint64_t now_ticks, Tally& tally) {
    while (tally.TakeOne()) {
      slot.posted_ticks = now_ticks;
      filler_.Fill(slot);
      slot.state.AddBatch();
      slot.batch.set_round_trip(&slot.state);
      transport_->Post(slot.batch);
      if (!slot.state.done()) {
        const size_t end = first_ + pending_++;
        ring_[end < ring_.size() ? end : end - ring_.size()] = &slot;
        return;
      }
      now_ticks = TakeResult(slot, tally);
    }
  }
  static uint64_t TakeResult(Slot& slot, Tally& tally) {
    const uint64_t now_ticks = NowTicks();
    tally.Ended(slot.batch.status(), now_ticks - slot.posted_ticks);
    return now_ticks;
  }
  void AwaitCompletion(const Slot& slot) {
    for (uint64_t turns = 0; !slot.state.done();) {
      if (transport_->Poll() > 0) {
        turns = 0;
      } else if (++turns >= turns_before_wait_) {
        transport_->Wait(never_readable_, kWaitNsMax);
        turns = 0;
      }
    }
  }

  std::unique_ptr<Transport> transport_;
  Filler filler_;
  std::deque<Slot> slots_;   // a Slot does not move: the transport holds its batch
  std::vector<Slot*> ring_;  // the slots in flight, in the order of their posting
  size_t first_ = 0, pending_ = 0;
  uint64_t turns_before_wait_ = 0;
  int never_readable_ = -1;
};

// ---- coroutines ----------------------------------------------------------------------------------

class WorkerLoop final : public VerbLoop {
 public:
  WorkerLoop(std::unique_ptr<Worker> worker, const VerbPlan& plan)
      : worker_(std::move(worker)), filler_(plan), idle_(plan.idle) {
    for (uint32_t i = 0; i < plan.in_flight; ++i) slots_.emplace_back(i, plan);
  }

  Status Run(uint64_t operations, const std::atomic<bool>& stop, Histogram* ticks) override {
    Tally tally(operations, stop, ticks);
    for (Slot& slot : slots_) worker_->Spawn(Operations(slot, tally));
    if (idle_ == Idle::kWait) {
      worker_->RunUntilIdle();
    } else {
      worker_->GoOnline();
      while (worker_->spawned() > 0) worker_->RunOnce(Worker::Idle::kReturn);
      worker_->GoOffline();
    }
    return tally.failure();
  }

 private:
  Task<void> Operations(Slot& slot, Tally& tally) {
    uint64_t posted_ticks = NowTicks();
    while (tally.TakeOne()) {
      filler_.Fill(slot);
      const Status status = co_await worker_->RoundTrip(slot.batch, counts_);
      const uint64_t now_ticks = NowTicks();
      tally.Ended(status, now_ticks - posted_ticks);
      posted_ticks = now_ticks;
    }
  }

  std::unique_ptr<Worker> worker_;
  Filler filler_;
  const Idle idle_;
  std::deque<Slot> slots_;
  FabricCounts counts_;
};

}  // namespace

Result<std::unique_ptr<VerbLoop>> OpenTransportLoop(dsm::Fabric& fabric, const VerbPlan& plan) {
  auto transport = fabric.OpenTransport();
  if (!transport.ok()) return transport.status();
  return std::unique_ptr<VerbLoop>(new TransportLoop(std::move(*transport), plan));
}

Result<std::unique_ptr<VerbLoop>> OpenWorkerLoop(dsm::Pool& pool, const VerbPlan& plan) {
  auto worker = pool.OpenWorker();
  if (!worker.ok()) return worker.status();
  return std::unique_ptr<VerbLoop>(new WorkerLoop(std::move(*worker), plan));
}

}  // namespace farleaf::micro
