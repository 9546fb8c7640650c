// ProcessCpu: the processor time that another process has taken so far, all its threads together.
//
// Thread rule: a pure function of /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "dsm/base/result.h"

namespace farleaf::rivals {

struct ProcessCpu {
  uint64_t total_ns = 0;  ///< exact
  /// In ticks of 1/100 s: only sums over many of them say how the time is parted.
  uint64_t user_ns = 0, kernel_ns = 0;
};

Result<ProcessCpu> ReadProcessCpu(pid_t process);

}  // namespace farleaf::rivals
