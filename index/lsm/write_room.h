// WriteRoom: whether the device has room for what writers make, beside the reserve (README.md, A full device).
//
// Closed by whoever finds that it has not, opened by who keeps the logs going.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>

#include "dsm/base/status.h"

namespace farleaf::index::lsm {

class WriteRoom {
 public:
  /// All that writers pay for it as long as there is room.
  bool closed() const { return closed_.load(std::memory_order_relaxed); }
  /// `why`: what found it. Returns whether it was open.
  bool Close(Status why) {
    std::lock_guard lock(mutex_);
    why_ = std::move(why);
    return !closed_.exchange(true, std::memory_order_relaxed);
  }
  void Open() { closed_.store(false, std::memory_order_relaxed); }
  /// What a writer is told.
  Status Refuse() {
    refused_.fetch_add(1, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    return why_.WithContext("the device is full: nothing but deletes is taken until there is room");
  }
  /// Writes so far.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> refused_{0};
  std::mutex mutex_;  // guards why_
  Status why_;
};

}  // namespace farleaf::index::lsm
