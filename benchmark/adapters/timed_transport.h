// TimedTransport: another one, and the processor time that its worker's thread takes in it for what it has posted: to
// post it, to look for its completion, and to wait for that.
//
// Looking is measured once in a while, and that time counts for all looks between: each reading of a thread's clock is
// a system call, and whoever waits looks often. What a reading takes itself is taken off.
//
// Thread rule: that of Transport; the sum is read by any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "dsm/base/thread_cpu.h"
#include "dsm/transport.h"

namespace farleaf::ycsb {

class TimedTransport final : public dsm::Transport {
 public:
  /// `cpu_ns` outlives it.
  TimedTransport(std::unique_ptr<dsm::Transport> below, std::atomic<uint64_t>* cpu_ns)
      : below_(std::move(below)), cpu_ns_(*cpu_ns) {}

  void Post(dsm::Batch& batch) override {
    const uint64_t begun_ns = clock_.NowNs();
    below_->Post(batch);
    Add(clock_.NowNs() - begun_ns);
    posted_ += batch.in_flight();
  }
  size_t Poll() override {
    const bool measured = posted_ > 0 && ++looks_ % kLooksEach == 0;
    const uint64_t begun_ns = measured ? clock_.NowNs() : 0;
    const size_t completed = below_->Poll();
    if (measured) Add(clock_.NowNs() - begun_ns, kLooksEach);
    posted_ -= std::min<uint64_t>(posted_, completed);
    return completed;
  }
  void Wait(int wake_fd, uint64_t timeout_ns) override {
    if (posted_ == 0) return below_->Wait(wake_fd, timeout_ns);
    const uint64_t begun_ns = clock_.NowNs();
    below_->Wait(wake_fd, timeout_ns);
    Add(clock_.NowNs() - begun_ns);
  }
  void Prefetch(dsm::GlobalAddress from, uint32_t bytes) override { below_->Prefetch(from, bytes); }
  const std::byte* Mapped(dsm::GlobalAddress from, uint32_t bytes) override {
    return below_->Mapped(from, bytes);
  }
  uint32_t idle_turns_before_wait() const override { return below_->idle_turns_before_wait(); }
  bool completes_at_once() const override { return below_->completes_at_once(); }

 private:
  static constexpr uint64_t kLooksEach = 16;
  void Add(uint64_t ns, uint64_t times = 1) {
    cpu_ns_.fetch_add(times * (ns - std::min(ns, reading_ns_)), std::memory_order_relaxed);
  }
  /// What one reading of the clock adds to what is measured.
  static uint64_t ReadingNs() {
    const ThreadCpuClock clock;
    uint64_t least_ns = UINT64_MAX;
    for (int i = 0; i < 100; ++i) {
      const uint64_t begun_ns = clock.NowNs();
      least_ns = std::min(least_ns, clock.NowNs() - begun_ns);
    }
    return least_ns;
  }

  const std::unique_ptr<dsm::Transport> below_;
  std::atomic<uint64_t>& cpu_ns_;
  const ThreadCpuClock clock_;
  const uint64_t reading_ns_ = ReadingNs();
  uint64_t posted_ = 0;  // batches that are not complete
  uint64_t looks_ = 0;
};

}  // namespace farleaf::ycsb
