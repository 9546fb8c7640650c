// Logging for processes: one macro over spdlog, format strings as in {fmt}.
//
//   FARLEAF_LOG(info, "memory server {} listens on {}", id, endpoint);
//
// Libraries log only what an operator can act on, and never both log and return a failure.
// Thread rule: any thread.
#pragma once

#include <spdlog/spdlog.h>

#define FARLEAF_LOG(level, ...) ::spdlog::level(__VA_ARGS__)

namespace farleaf::internal {
// spdlog's registry is made before any thread. Made by the first message, it would be guarded by a lock inside
// the shared library, where the thread sanitizer does not see it and reports the next thread's use as a race.
inline const bool log_registry_made = spdlog::default_logger_raw() != nullptr;
}  // namespace farleaf::internal
