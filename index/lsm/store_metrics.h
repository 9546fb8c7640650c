// StoreMetrics: what a store has done since it was opened, and for how long its writers waited.
//
// Thread rule: StoreMetrics is a plain value; StoreCounters and WriterWait are thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "dsm/base/clock.h"

namespace farleaf::index::lsm {

/// What a writer waits for before its change is made: that garbage of the value log is collected, that fresh runs are merged, that a
/// memtable is flushed, that full segments of a log are written; or before it is acknowledged: that enough copies have it.
enum class WaitsFor : uint8_t { kCollection, kMerges, kFlush, kLogs, kCopies };
inline constexpr size_t kWaitsFor = 5;

struct StoreMetrics {
  struct Waits {
    uint64_t count = 0;  ///< changes, or batches of them
    uint64_t total_ns = 0, longest_ns = 0;
  };
  std::array<Waits, kWaitsFor> waits;  ///< by WaitsFor
  uint64_t user_bytes = 0;             ///< keys and values of the changes that were made
  uint64_t recovery_log_bytes = 0, value_log_bytes = 0;  ///< that were appended to them
  uint64_t flushed_bytes = 0;                            ///< of tables that flushes wrote
  uint64_t merged_bytes_read = 0, merged_bytes_written = 0;
  uint64_t moved_bytes = 0;  ///< of values that collection appended again
  /// Tables that went, or were written anew, because much had expired or was deleted by a range; bytes that were read for it.
  uint64_t reclaimed_tables = 0, reclaimed_bytes_read = 0;
  uint64_t recovered_changes = 0, recovery_ns = 0;  ///< of the opening
  uint64_t writes_refused = 0;                      ///< as the device was full
};

struct StoreCounters {
  struct Waits {
    std::atomic<uint64_t> count{0}, total_ns{0}, longest_ns{0};
  };
  std::array<Waits, kWaitsFor> waits;
  std::atomic<uint64_t> user_bytes{0};
  std::atomic<uint64_t> flushed_bytes{0}, merged_bytes_read{0}, merged_bytes_written{0};
  std::atomic<uint64_t> reclaimed_tables{0}, reclaimed_bytes_read{0};
  std::atomic<uint64_t> moved_bytes{0}, recovered_changes{0}, recovery_ns{0};

  static void Add(std::atomic<uint64_t>* count, uint64_t amount) {
    count->fetch_add(amount, std::memory_order_relaxed);
  }
  StoreMetrics Read() const;
};

/// Counts the time from Begin to its own end, if it began.
class WriterWait {
 public:
  WriterWait(StoreCounters* counters, WaitsFor what, const Clock& clock)
      : waits_(&counters->waits[static_cast<size_t>(what)]), clock_(&clock) {}
  WriterWait(const WriterWait&) = delete;
  ~WriterWait();
  void Begin() {
    if (begun_ns_ == 0) begun_ns_ = clock_->NowNs();
  }

 private:
  StoreCounters::Waits* const waits_;
  const Clock* const clock_;
  uint64_t begun_ns_ = 0;  // 0: it did not
};

}  // namespace farleaf::index::lsm
