// TimedTransport: another one, and the processor time that its worker's thread takes in it: to post verbs, to look for
// their completions, and to wait for them.
//
// Looking is measured once in a while, and that time counts for all looks between: each reading of a thread's clock is
// a system call, and whoever waits looks often.
//
// Thread rule: that of Transport; the sum is read by any thread.
#pragma once

#include <atomic>
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
  }
  size_t Poll() override {
    if (++looks_ % kLooksEach != 0) return below_->Poll();
    const uint64_t begun_ns = clock_.NowNs();
    const size_t completed = below_->Poll();
    Add(kLooksEach * (clock_.NowNs() - begun_ns));
    return completed;
  }
  void Wait(int wake_fd, uint64_t timeout_ns) override {
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
  void Add(uint64_t ns) { cpu_ns_.fetch_add(ns, std::memory_order_relaxed); }

  const std::unique_ptr<dsm::Transport> below_;
  std::atomic<uint64_t>& cpu_ns_;
  const ThreadCpuClock clock_;
  uint64_t looks_ = 0;
};

}  // namespace farleaf::ycsb
