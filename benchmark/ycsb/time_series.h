// Time series: what a phase measured interval by interval.
//
// Intervals are of equal length from the phase's start. An operation counts in the interval in which
// it ended; one that ended on a boundary, in the interval that ends there. All that comes after
// kIntervalsMax intervals counts in the last, which is longer then.
//
// Thread rule: an IntervalRecorder belongs to one thread; MergeIntervals when the threads have ended.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "benchmark/ycsb/workload.h"
#include "dsm/base/histogram.h"

namespace farleaf::ycsb {

inline constexpr uint64_t kIntervalsMax = 100'000;
inline constexpr uint64_t kIntervalNsMin = 1'000;

/// What ended in one interval, of one operation kind.
struct IntervalStats {
  uint64_t failures = 0;
  SparseHistogram latency_ns;  ///< of operations that did not fail

  uint64_t operations() const { return latency_ns.count() + failures; }
};
using IntervalByKind = std::array<IntervalStats, kOpKinds>;

struct TimeSeries {
  uint64_t interval_ns = 0;
  uint64_t elapsed_ns = 0;  ///< of the phase; what the last interval lacks, the phase did not have
  std::vector<IntervalByKind> intervals;

  uint64_t begin_ns(size_t interval) const { return interval * interval_ns; }
  uint64_t length_ns(size_t interval) const {
    return interval + 1 < intervals.size() ? interval_ns : elapsed_ns - begin_ns(interval);
  }
  /// Whether an operation of that kind ended in any interval.
  bool Has(OpKind kind) const;
};

/// One thread's part of a TimeSeries. Memory: 60 KB for each kind that occurs, and 8 bytes for each
/// bucket that is not empty in a past interval.
class IntervalRecorder {
 public:
  explicit IntervalRecorder(uint64_t interval_ns) : interval_ns_(interval_ns) {}

  /// `ended_ns` is from the phase's start and does not go back. No latency: the operation failed.
  void Record(OpKind kind, uint64_t ended_ns, std::optional<uint64_t> latency_ns) {
    if (ended_ns > current_end_ns_) MoveTo(ended_ns);
    if (latency_ns) {
      auto& histogram = current_latency_ns_[static_cast<size_t>(kind)];
      if (!histogram) histogram.emplace();
      histogram->Record(*latency_ns);
    } else {
      ++current_failures_[static_cast<size_t>(kind)];
    }
  }

 private:
  friend TimeSeries MergeIntervals(std::span<IntervalRecorder* const>, uint64_t, uint64_t);
  struct Closed {
    uint64_t interval;
    IntervalByKind kinds;
  };
  void MoveTo(uint64_t ended_ns);
  void CloseCurrent();

  const uint64_t interval_ns_;
  uint64_t current_ = 0, current_end_ns_ = 0;  // 0: none is under way
  std::array<std::optional<Histogram>, kOpKinds> current_latency_ns_;
  std::array<uint64_t, kOpKinds> current_failures_{};
  std::vector<Closed> closed_;
};

/// What the threads' recorders hold together, in a phase that took `elapsed_ns`. They take no more
/// after that.
TimeSeries MergeIntervals(std::span<IntervalRecorder* const> recorders, uint64_t interval_ns,
                          uint64_t elapsed_ns);

/// {interval_s, last_interval_s, READ: [{second, operations, ops_per_s, failures, p50_us, p99_us,
/// p999_us, max_us, histogram}], …}: the kinds that occur, each with every interval. Latencies of an
/// interval without operations are null, and it has no histogram (EncodeHistogram).
nlohmann::ordered_json SeriesToJson(const TimeSeries& series);

}  // namespace farleaf::ycsb
