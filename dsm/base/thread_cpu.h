// Processor time of threads, by the kernel's account: for whoever shows where it goes.
//
// Thread rule: thread-safe.
#pragma once

#include <pthread.h>
#include <time.h>

#include <cstdint>
#include <thread>

#include "dsm/base/clock.h"

namespace farleaf {

inline uint64_t CpuNsOf(clockid_t id) {
  timespec now{};
  if (::clock_gettime(id, &now) != 0) return 0;
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

/// What a thread has taken since it began. REQUIRES: it has not been joined.
inline uint64_t ThreadCpuNs(std::thread& thread) {
  clockid_t id{};
  return ::pthread_getcpuclockid(thread.native_handle(), &id) == 0 ? CpuNsOf(id) : 0;
}

/// What the calling thread has taken. It stands still while the thread waits.
class ThreadCpuClock final : public Clock {
 public:
  uint64_t NowNs() const override { return CpuNsOf(CLOCK_THREAD_CPUTIME_ID); }
};

}  // namespace farleaf
