// Logging for processes: one macro over spdlog, format strings as in {fmt}.
//
//   FARLEAF_LOG(info, "memory server {} listens on {}", id, endpoint);
//
// Libraries log only what an operator can act on, and never both log and return a failure.
// Thread rule: any thread.
#pragma once

#include <spdlog/spdlog.h>

#define FARLEAF_LOG(level, ...) ::spdlog::level(__VA_ARGS__)
