// AcknowledgedCounter: numbers for inserts, and the largest number below which all are
// acknowledged, so that reads only choose keys that are there (YCSB's
// AcknowledgedCounterGenerator).
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <queue>
#include <vector>

namespace farleaf::ycsb {

class AcknowledgedCounter {
 public:
  /// Numbers below `first` count as acknowledged.
  explicit AcknowledgedCounter(uint64_t first) : next_(first), end_(first) {}

  uint64_t Take() { return next_.fetch_add(1, std::memory_order_relaxed); }
  /// Once for each number taken.
  void Acknowledge(uint64_t number) {
    std::lock_guard lock(mutex_);
    waiting_.push(number);
    uint64_t end = end_.load(std::memory_order_relaxed);
    while (!waiting_.empty() && waiting_.top() == end) {
      waiting_.pop();
      ++end;
    }
    end_.store(end, std::memory_order_release);
  }
  /// Every number below it is acknowledged.
  uint64_t end() const { return end_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> next_;
  std::atomic<uint64_t> end_;
  std::mutex mutex_;  // guards waiting_
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> waiting_;
};

}  // namespace farleaf::ycsb
