// One I/O as an engine sees it, and the group of them that a coroutine waits for.
//
// Thread rule: queued and awaited on one worker's thread; completed by whichever thread the engine uses.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>

#include "dsm/worker.h"

namespace farleaf::index::storage {

/// Counts down I/Os that were queued together. Awaited once, after the last was queued.
class IoGroup {
 public:
  explicit IoGroup(dsm::Worker& worker) : worker_(&worker) {}
  IoGroup(const IoGroup&) = delete;

  void Add() { outstanding_.fetch_add(1, std::memory_order_relaxed); }
  dsm::Worker& worker() const { return *worker_; }
  /// One has ended. Returns whom to resume, if it was the last; if not, the group may be gone.
  std::coroutine_handle<> Done() { return Drop() ? waiter_ : nullptr; }

  // One of the count is the waiter's own, until it has suspended. Whoever drops the last therefore either is the waiter,
  // which goes on, or finds it suspended, with the group in its frame, and nobody else will resume it.
  bool await_ready() const { return outstanding_.load(std::memory_order_acquire) == 1; }
  bool await_suspend(std::coroutine_handle<> handle) {
    waiter_ = handle;
    return !Drop();
  }
  void await_resume() const {}

 private:
  bool Drop() { return outstanding_.fetch_sub(1, std::memory_order_acq_rel) == 1; }

  std::atomic<uint32_t> outstanding_{1};
  std::coroutine_handle<> waiter_;
  dsm::Worker* worker_;
};

/// Stays where it is until it has ended.
struct IoOp {
  enum class Kind : uint8_t { kRead, kWrite, kSyncData, kSyncAll };
  Kind kind = Kind::kRead;
  int fd = -1;
  std::byte* bytes = nullptr;
  uint32_t length = 0;
  uint64_t offset = 0;
  int result = 0;  ///< out: bytes transferred, or -errno
  IoGroup* group = nullptr;
};

}  // namespace farleaf::index::storage
