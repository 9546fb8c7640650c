// What every server tells of its process.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/metrics/metrics_text.h"

namespace farleaf::server {

/// Adds farleaf_build_info, farleaf_uptime_seconds, and the process's memory, CPU time and descriptors under the
/// names that Prometheus has for them.
void AppendProcessMetrics(std::string_view program, uint64_t uptime_ns, MetricsText* out);

}  // namespace farleaf::server
