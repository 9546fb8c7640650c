// CompletionSource: work that ends outside of a worker's thread and is taken in by the worker's own loop, such as a
// ring of disk I/Os. A Worker owns its sources; whoever offers the work finds its source there again.
//
// A turn of the loop reaps first, then submits what was queued, all of it at once. A worker that has nothing else
// to do and waits for one source only lets the source submit and wait in one (SubmitAndWait); one that also
// waits for something else blocks on the worker's wake_fd, through which the source wakes it (WakeThrough).
//
// Thread rule: the worker's thread.
#pragma once

#include <coroutine>
#include <cstdint>
#include <vector>

namespace farleaf::dsm {

class CompletionSource {
 public:
  virtual ~CompletionSource() = default;
  /// Appends the coroutines whose work has ended to `ready`.
  virtual void Reap(std::vector<std::coroutine_handle<>>* ready) = 0;
  /// Begins what was queued.
  virtual void Submit() = 0;
  /// Whether anything was queued or begun that was not reaped.
  virtual bool busy() const = 0;
  /// Begins what was queued, and blocks until something can be reaped, `wake_fd` is written to, or the time is over.
  virtual void SubmitAndWait(int wake_fd, uint64_t timeout_ns) = 0;
  /// Begins what was queued. Whatever ends from now on, until StopWaking, writes to `wake_fd`. False: something
  /// can be reaped at once.
  virtual bool WakeThrough(int wake_fd) = 0;
  virtual void StopWaking() {}
  /// When something can be reaped, where that is known ahead, as in a simulation.
  virtual uint64_t NextDueNs() const { return UINT64_MAX; }
};

}  // namespace farleaf::dsm
