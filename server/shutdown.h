// ShutdownSignal: SIGTERM and SIGINT as a descriptor that becomes readable, so that a process ends
// its work in its own order. SIGPIPE is ignored: a closed connection is an error return, not a
// signal.
//
// Invariant: the signals are blocked from Install on, in every thread that is started later.
// Thread rule: Install before the first thread is started; the rest from any thread.
#pragma once

#include <csignal>
#include <cstdint>
#include <memory>

#include "dsm/base/result.h"

namespace farleaf::server {

/// SIGHUP, which asks a process to read its files again.
///
/// Thread rule: Install before the first thread is started; Take by one thread.
class ReloadSignal {
 public:
  static Result<std::unique_ptr<ReloadSignal>> Install();
  ~ReloadSignal();
  ReloadSignal(const ReloadSignal&) = delete;

  /// Whether it has come since the last call.
  bool Take();

 private:
  ReloadSignal() = default;
  int signal_fd_ = -1;
};

class ShutdownSignal {
 public:
  static Result<std::unique_ptr<ShutdownSignal>> Install();
  /// Restores the signal mask of the calling thread.
  ~ShutdownSignal();
  ShutdownSignal(const ShutdownSignal&) = delete;

  /// Readable, for ever, once shutdown was asked for. Not to be read, only polled.
  int fd() const { return epoll_fd_; }
  bool requested() const { return WaitForMs(0); }
  /// Waits until shutdown is asked for or the time is over; returns whether it was.
  bool WaitForMs(uint32_t timeout_ms) const;
  /// As if a signal had come.
  void Request();
  /// Behind the first signal: another() is about those that come from now on.
  void AwaitAnother();
  bool another() const;

 private:
  ShutdownSignal() = default;
  void TakeSignals();
  sigset_t previous_mask_{};
  int signal_fd_ = -1;
  int event_fd_ = -1;
  int epoll_fd_ = -1;  ///< readable when either of the two is
};

}  // namespace farleaf::server
