// Await: until something holds that other threads or processes bring about.
//
// Thread rule: any thread; `condition` is asked on it.
#pragma once

#include <chrono>
#include <thread>

#include "dsm/base/clock.h"

namespace farleaf::test {

/// Whether `condition` held at the last look, within `limit_ms`. It is not asked again behind that: what holds may pass.
template <typename Condition>
bool Await(const Condition& condition, uint64_t limit_ms, uint64_t pause_ms = 1) {
  const MonotonicClock clock;
  const uint64_t end_ns = clock.NowNs() + limit_ms * kNsPerMs;
  for (;;) {
    if (condition()) return true;
    if (clock.NowNs() >= end_ns) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
  }
}

}  // namespace farleaf::test
