// Waiting for what another worker does: an event to wait for, and a mutex that a coroutine may hold across I/O.
//
// Thread rule: thread-safe. A waiter is resumed on its own worker's thread.
#pragma once

#include <coroutine>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/worker.h"

namespace farleaf::index::lsm {

/// Something that others wait for has changed. Whoever waits takes the count, looks, and waits for the count to move:
///
///   const uint64_t seen = event.count();
///   if (!WhatIWant()) co_await event.After(worker, seen);
///
/// so that nothing that happens between looking and waiting is lost.
class Event {
 public:
  Event() = default;
  ~Event() { FARLEAF_CHECK(waiting_.empty(), waiting_.size()); }
  Event(const Event&) = delete;

  uint64_t count() const {
    std::lock_guard lock(mutex_);
    return count_;
  }
  void Notify() {
    std::vector<Waiter> waiting;
    {
      std::lock_guard lock(mutex_);
      ++count_;
      waiting.swap(waiting_);
    }
    for (const Waiter& waiter : waiting) waiter.worker->ResumeSoon(waiter.handle);
  }

  /// Who waits is gone, with his worker.
  void Abandon() {
    std::lock_guard lock(mutex_);
    waiting_.clear();
  }

  struct [[nodiscard]] Waiting {
    Event* event;
    dsm::Worker* worker;
    uint64_t seen;
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) {
      std::lock_guard lock(event->mutex_);
      if (event->count_ != seen) return false;
      event->waiting_.push_back({worker, handle});
      return true;
    }
    void await_resume() const noexcept {}
  };
  /// Suspends until the count is another than `seen`.
  Waiting After(dsm::Worker& worker, uint64_t seen) { return {this, &worker, seen}; }

 private:
  struct Waiter {
    dsm::Worker* worker;
    std::coroutine_handle<> handle;
  };
  mutable std::mutex mutex_;  // guards all below
  uint64_t count_ = 0;
  std::vector<Waiter> waiting_;
};

/// Held by one coroutine at a time, first come, first served.
class CoroutineMutex {
 public:
  CoroutineMutex() = default;
  ~CoroutineMutex() { FARLEAF_CHECK(!held_); }
  CoroutineMutex(const CoroutineMutex&) = delete;

  class [[nodiscard]] Held {
   public:
    explicit Held(CoroutineMutex* mutex) : mutex_(mutex) {}
    Held(Held&& other) noexcept : mutex_(std::exchange(other.mutex_, nullptr)) {}
    Held& operator=(Held&&) = delete;
    ~Held() {
      if (mutex_) mutex_->Unlock();
    }

   private:
    CoroutineMutex* mutex_;
  };

  /// Who held it, or waits for it, is gone, with his worker.
  void Abandon() {
    std::lock_guard lock(mutex_);
    held_ = false;
    waiting_.clear();
  }

  struct [[nodiscard]] Locking {
    CoroutineMutex* mutex;
    dsm::Worker* worker;
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) {
      std::lock_guard lock(mutex->mutex_);
      if (!std::exchange(mutex->held_, true)) return false;
      mutex->waiting_.emplace_back(worker, handle);
      return true;
    }
    Held await_resume() const noexcept { return Held(mutex); }
  };
  Locking Lock(dsm::Worker& worker) { return {this, &worker}; }

 private:
  void Unlock() {
    std::pair<dsm::Worker*, std::coroutine_handle<>> next;
    {
      std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        held_ = false;
        return;
      }
      next = waiting_.front();
      waiting_.pop_front();
    }
    next.first->ResumeSoon(next.second);
  }

  std::mutex mutex_;  // guards all below
  bool held_ = false;
  std::deque<std::pair<dsm::Worker*, std::coroutine_handle<>>> waiting_;
};

}  // namespace farleaf::index::lsm
