// StopWatcher: raises a flag when a descriptor becomes readable or a time is over, so that a loop
// that counts nanoseconds needs no more than a load to know that it should end.
//
// Thread rule: stop() and interrupted() from any thread; it runs a thread of its own, which sleeps.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <thread>

#include "dsm/base/check.h"

namespace farleaf::micro {

class StopWatcher {
 public:
  /// `interrupt_fd` outlives the watcher, and may be -1. limit_ms: -1 for none.
  StopWatcher(int interrupt_fd, int limit_ms) : end_fd_(::eventfd(0, EFD_CLOEXEC)) {
    FARLEAF_CHECK(end_fd_ >= 0, errno);
    thread_ = std::thread([this, interrupt_fd, limit_ms] {
      pollfd waited[] = {{interrupt_fd, POLLIN, 0}, {end_fd_, POLLIN, 0}};
      // No signal handler of this process returns, so that poll is not interrupted.
      ::poll(waited, 2, limit_ms);
      interrupted_.store(waited[0].revents != 0, std::memory_order_relaxed);
      stop_.store(true, std::memory_order_release);
    });
  }
  ~StopWatcher() {
    const uint64_t one = 1;
    // An eventfd that was never written has room.
    [[maybe_unused]] const ssize_t written = ::write(end_fd_, &one, sizeof one);
    thread_.join();
    ::close(end_fd_);
  }
  StopWatcher(const StopWatcher&) = delete;

  const std::atomic<bool>& stop() const { return stop_; }
  /// Whether it was the descriptor. REQUIRES: stop().
  bool interrupted() const { return interrupted_.load(std::memory_order_relaxed); }

 private:
  int end_fd_;
  std::atomic<bool> stop_{false}, interrupted_{false};
  std::thread thread_;
};

}  // namespace farleaf::micro
