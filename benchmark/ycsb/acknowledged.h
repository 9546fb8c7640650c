// AcknowledgedCounter: numbers for inserts, and the largest number below which all are
// acknowledged, so that reads only choose keys that are there (YCSB's
// AcknowledgedCounterGenerator).
//
// Thread rule: thread-safe.
#pragma once

#include <algorithm>
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

  uint64_t Take() {
    if (dropped_left_.load(std::memory_order_relaxed) > 0) {
      std::lock_guard lock(mutex_);
      if (!dropped_.empty()) {
        const uint64_t number = dropped_.back();
        dropped_.pop_back();
        dropped_left_.store(dropped_.size(), std::memory_order_relaxed);
        return number;
      }
    }
    return next_.fetch_add(1, std::memory_order_relaxed);
  }
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
  /// Numbers whose inserts a stopped phase has dropped are taken again, before all others: without
  /// them end() would stand still for good. REQUIRES: no insert is under way.
  void ReclaimDropped() {
    std::lock_guard lock(mutex_);
    auto acknowledged = waiting_;
    dropped_.clear();
    for (uint64_t number = end_.load(); number < next_.load(); ++number) {
      if (!acknowledged.empty() && acknowledged.top() == number) {
        acknowledged.pop();
      } else {
        dropped_.push_back(number);
      }
    }
    std::reverse(dropped_.begin(), dropped_.end());
    dropped_left_.store(dropped_.size());
  }
  /// Every number below it is acknowledged.
  uint64_t end() const { return end_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> next_;
  std::atomic<uint64_t> end_;
  std::atomic<size_t> dropped_left_{0};
  std::mutex mutex_;  // guards what follows
  std::vector<uint64_t> dropped_;  ///< to be taken again, the smallest last
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> waiting_;
};

}  // namespace farleaf::ycsb
