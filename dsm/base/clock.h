// Time, injected so that tests and the simulator own it.
//
// Thread rule: NowNs may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace farleaf {

inline constexpr uint64_t kNsPerUs = 1'000;
inline constexpr uint64_t kNsPerMs = 1'000'000;
inline constexpr uint64_t kNsPerSecond = 1'000'000'000;

class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since some fixed point in the past; never goes back.
  virtual uint64_t NowNs() const = 0;
};

class MonotonicClock final : public Clock {
 public:
  uint64_t NowNs() const override {
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                     std::chrono::steady_clock::now().time_since_epoch())
                                     .count());
  }
};

/// A clock that moves only when told to.
class ManualClock final : public Clock {
 public:
  uint64_t NowNs() const override { return now_ns_.load(std::memory_order_relaxed); }
  void AdvanceNs(uint64_t ns) { now_ns_.fetch_add(ns, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> now_ns_{1};
};

}  // namespace farleaf
