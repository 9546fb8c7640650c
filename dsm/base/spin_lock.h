// SpinLock: for critical sections of some ten instructions, in which nobody suspends, calls out, or allocates but
// to let a short vector grow.
//
// Who waits for long gives up the core: where there are more threads than cores, the holder may be one that was preempted.
//
// Thread rule: thread-safe; BasicLockable.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace farleaf {

/// Once a turn of a loop that waits for another thread; gives up the core now and then.
inline void SpinPause(uint32_t* turns) {
  if (++*turns % 256 == 0) {
    ::sched_yield();
  } else {
    __builtin_ia32_pause();
  }
}

class SpinLock {
 public:
  void lock() {
    uint32_t turns = 0;
    while (locked_.exchange(true, std::memory_order_acquire)) {
      while (locked_.load(std::memory_order_relaxed)) SpinPause(&turns);
    }
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace farleaf
