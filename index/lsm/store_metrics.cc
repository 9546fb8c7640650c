#include "index/lsm/store_metrics.h"

#include "dsm/base/atomic_max.h"

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

WriterWait::~WriterWait() {
  if (begun_ns_ == 0) return;
  const uint64_t took_ns = clock_->NowNs() - begun_ns_;
  StoreCounters::Add(&waits_->count, 1);
  StoreCounters::Add(&waits_->total_ns, took_ns);
  RaiseTo(&waits_->longest_ns, took_ns);
}

}  // namespace farleaf::index::lsm
