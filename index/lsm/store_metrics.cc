#include "index/lsm/store_metrics.h"

#include <algorithm>

#include "dsm/base/atomic_max.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

StoreMetrics StoreCounters::Read() const {
  const auto read = [](const std::atomic<uint64_t>& count) {
    return count.load(std::memory_order_relaxed);
  };
  StoreMetrics metrics{.waits = {},
                       .user_bytes = read(user_bytes),
                       .flushed_bytes = read(flushed_bytes),
                       .merged_bytes_read = read(merged_bytes_read),
                       .merged_bytes_written = read(merged_bytes_written),
                       .moved_bytes = read(moved_bytes),
                       .reclaimed_tables = read(reclaimed_tables),
                       .reclaimed_bytes_read = read(reclaimed_bytes_read),
                       .recovered_changes = read(recovered_changes),
                       .recovery_ns = read(recovery_ns)};
  for (size_t i = 0; i < kWaitsFor; ++i) {
    metrics.waits[i] = {read(waits[i].count), read(waits[i].total_ns), read(waits[i].longest_ns)};
  }
  return metrics;
}

StoreMetrics LsmStore::metrics() const {
  StoreMetrics metrics = counters_.Read();
  metrics.writes_refused = room_.refused();
  // A log's first segment is number 1, so that 0 is in front of it.
  const auto appended = [](LogPosition end) {
    return end - std::min<LogPosition>(end, storage::kSegmentBytes);
  };
  const LogPositions ends = logs_->ends();
  metrics.recovery_log_bytes = appended(ends[0]);
  metrics.value_log_bytes = appended(ends[1]);
  return metrics;
}

WriterWait::~WriterWait() {
  if (begun_ns_ == 0) return;
  const uint64_t took_ns = clock_->NowNs() - begun_ns_;
  StoreCounters::Add(&waits_->count, 1);
  StoreCounters::Add(&waits_->total_ns, took_ns);
  RaiseTo(&waits_->longest_ns, took_ns);
}

}  // namespace farleaf::index::lsm
