#include "dsm/lease_renewer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/base/log.h"

namespace farleaf::dsm {

namespace {
constexpr uint64_t kRenewalsPerLease = 4;
/// Also how late a long lease's holder learns that somebody has cut it off.
constexpr uint64_t kIntervalNsMax = kNsPerSecond;
}  // namespace

LeaseRenewer::LeaseRenewer(const MemberIdentity& self, std::span<const RegionLayout> layouts)
    : self_(self) {
  FARLEAF_CHECK(self.incarnation <= LeaseWord::kIncarnationMax, self.incarnation);
  interval_ns_ = kIntervalNsMax;
  for (const RegionLayout& layout : layouts) {
    if (layout.lease_ms == 0) continue;
    leases_.push_back({.server = layout.server, .lease_ms = layout.lease_ms});
    interval_ns_ = std::min(interval_ns_, layout.lease_ms * kNsPerMs / kRenewalsPerLease);
  }
}

Task<Status> LeaseRenewer::WriteAll(OpContext& op, bool watched) {
  std::vector<uint64_t> words;
  for (Lease& lease : leases_) {
    words.push_back(watched ? LeaseWord{self_.incarnation, ++lease.count}.Encode() : 0);
  }
  std::vector<Batch> batches;
  for (size_t i = 0; i < leases_.size(); ++i) {
    batches.emplace_back(leases_[i].server);
    batches.back().WriteWord(LeaseWordOffset(self_.id), &words[i]);
  }
  Status status = co_await op.worker.RoundTrip(batches, op.counts);
  co_return status;
}

Task<Status> LeaseRenewer::Begin(OpContext& op) {
  Status status = co_await WriteAll(op, true);
  co_return status;
}

Task<Status> LeaseRenewer::End(OpContext& op) {
  FARLEAF_CHECK(!under_way(), self_.ToString());
  Status status = co_await WriteAll(op, false);
  co_return status;
}

bool LeaseRenewer::under_way() const {
  return std::any_of(leases_.begin(), leases_.end(),
                     [](const Lease& lease) { return lease.under_way; });
}

void LeaseRenewer::Renew(Worker& worker) {
  for (Lease& lease : leases_) {
    if (!lease.under_way) worker.Spawn(RenewOne(lease, worker));
  }
}

Task<void> LeaseRenewer::RenewOne(Lease& lease, Worker& worker) {
  lease.under_way = true;
  const uint64_t word = LeaseWord{self_.incarnation, ++lease.count}.Encode();
  FabricCounts counts;  // of no operation
  Batch batch(lease.server);
  batch.WriteWord(LeaseWordOffset(self_.id), &word);
  const Status outcome = co_await worker.RoundTrip(batch, counts);
  Note(lease, outcome);
  lease.under_way = false;
}

void LeaseRenewer::Note(Lease& lease, const Status& outcome) {
  if (outcome.code() == StatusCode::kFenced) {
    std::lock_guard lock(mutex_);
    if (is_fenced_.exchange(true)) return;
    fenced_ = outcome;
    FARLEAF_LOG(warn, "{}", outcome.ToString());
    return;
  }
  if (!outcome.ok() && !lease.failing) {
    FARLEAF_LOG(warn, "{} cannot renew its lease of {} ms, and goes on trying: {}",
                self_.ToString(), lease.lease_ms, outcome.ToString());
  } else if (outcome.ok() && lease.failing) {
    FARLEAF_LOG(info, "{} renews its lease at memory server {} again", self_.ToString(),
                lease.server);
  }
  lease.failing = !outcome.ok();
}

Task<void> LeaseRenewer::RenewUntilStopped(Worker& worker) {
  constexpr uint64_t kLookNs = kNsPerMs;
  while (!stop_.load() && !is_fenced_.load()) {
    Renew(worker);
    co_await worker.Sleep(interval_ns_);
  }
  while (under_way()) co_await worker.Sleep(kLookNs);
}

Status LeaseRenewer::fenced() const {
  if (!is_fenced_.load()) return Status::Ok();
  std::lock_guard lock(mutex_);
  return fenced_;
}

RenewalThread::RenewalThread(LeaseRenewer* renewer, std::unique_ptr<Worker> worker)
    : renewer_(renewer), worker_(std::move(worker)) {
  thread_ = std::thread([this] { Run(); });
}

RenewalThread::~RenewalThread() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void RenewalThread::Run() {
  const Clock& clock = worker_->clock();
  const auto is_over = [this] { return stop_ || !renewer_->fenced().ok(); };
  uint64_t due_ns = clock.NowNs() + renewer_->interval_ns();  // Begin came just before
  std::unique_lock lock(mutex_);
  while (!is_over()) {
    const uint64_t now_ns = clock.NowNs();
    if (now_ns >= due_ns) {
      renewer_->Renew(*worker_);
      due_ns = now_ns + renewer_->interval_ns();
    }
    if (worker_->spawned() == 0) {
      const uint64_t wait_ns = std::min(due_ns - now_ns, renewer_->interval_ns());
      changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns), is_over);
      continue;
    }
    lock.unlock();
    worker_->GoOnline();
    worker_->RunOnce(Worker::Idle::kBlock);
    worker_->GoOffline();
    lock.lock();
  }
  lock.unlock();
  worker_->RunUntilIdle();
}

}  // namespace farleaf::dsm
