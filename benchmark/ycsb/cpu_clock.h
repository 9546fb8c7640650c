// The CPU time of this process as a clock: on a busy machine, the time that one thread which never sleeps
// would see if it had its core for itself. It stands still while nobody runs.
//
// Thread rule: thread-safe; all threads' time is added up.
#pragma once

#include <time.h>

#include "dsm/base/clock.h"

namespace farleaf::ycsb {

class ProcessCpuClock final : public Clock {
 public:
  uint64_t NowNs() const override {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
  }
};

}  // namespace farleaf::ycsb
