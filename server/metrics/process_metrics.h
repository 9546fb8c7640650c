// What every server tells of its process.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/metrics/metrics_text.h"

namespace farleaf::server {

/// What the process has in memory. 0 where the system does not tell.
struct ProcessMemory {
  uint64_t own_bytes = 0;  ///< of its own: neither a file's nor shared memory
  uint64_t resident_bytes =
      0;  ///< these, and what it maps of files and shared memory: a pool on this machine, say
  uint64_t machine_bytes = 0;  ///< what the machine has
};
ProcessMemory ReadProcessMemory();

/// Adds farleaf_build_info, farleaf_uptime_seconds, and the process's memory, CPU time and descriptors under the
/// names that Prometheus has for them.
void AppendProcessMetrics(std::string_view program, uint64_t uptime_ns, MetricsText* out);

}  // namespace farleaf::server
