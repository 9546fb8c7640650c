// WritePace: slows writers down, a little each, while flushes make fresh runs faster than these are merged.
//
// Merges say how fast they can take changes. In the middle between kFreshSlow and kFreshMax writers together may be as fast; at
// kFreshSlow twice as fast, and near kFreshMax hardly go on. So while merges get on writers are never stopped; and where
// merges turn out to be slower than they said, as others have the device or the threads, there are more fresh runs for a while.
//
// Whoever makes changes waits for as long as these take at the rate, and up to 50 ms for those who came before: so whatever others
// have done is over when a writer has waited so long. Many who write at once may be faster than the rate for it.
//
// Thread rule: thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "dsm/base/clock.h"
#include "index/lsm/compaction_plan.h"

namespace farleaf::index::lsm {

class WritePace {
 public:
  /// Changes that merges can take in a second.
  void SetRate(double changes) { rate_.store(changes, std::memory_order_relaxed); }

  /// How far the fresh runs, and what will be some (a memtable in part), are on the way to being too many: 0 to 1.
  static double Pressure(double runs) {
    return std::clamp((runs - kFreshSlow) / (kFreshMax - kFreshSlow), 0.0, 1.0);
  }

  /// For how long whoever makes these changes should wait in front of them: 1.05 s at most.
  uint64_t DelayNs(uint64_t now_ns, double pressure, size_t changes) {
    const double rate = rate_.load(std::memory_order_relaxed);
    if (pressure <= 0 || rate <= 0) return 0;
    const double allowed = rate * std::max(2 * (1 - pressure), kSlowest);
    const auto takes_ns = static_cast<uint64_t>(
        std::min(static_cast<double>(changes) / allowed, kLongestSeconds) * kNsPerSecond);
    uint64_t next = next_ns_.load(std::memory_order_relaxed), end = 0;
    do {
      end = std::clamp(next, now_ns, now_ns + kOthersNsMax) + takes_ns;
    } while (!next_ns_.compare_exchange_weak(next, end, std::memory_order_relaxed));
    const uint64_t delay_ns = end - now_ns;
    return delay_ns < kShortestNs ? 0 : delay_ns;
  }

 private:
  static constexpr double kSlowest = 0.05;
  /// Less is made up for by those who come later.
  static constexpr uint64_t kShortestNs = kNsPerMs / 4;
  static constexpr uint64_t kOthersNsMax = 50 * kNsPerMs;
  static constexpr double kLongestSeconds = 1;

  std::atomic<double> rate_{0};       // 0: not known
  std::atomic<uint64_t> next_ns_{0};  // until when what was allowed takes
};

}  // namespace farleaf::index::lsm
