// CommandStats: what a thread counts for each command of a protocol: how many, how they ended, what they cost in
// the pool and how long they took.
//
// Thread rule: written by one thread, in words of its own, without atomic read-modify-writes; read by any, who
// sees each word whole but no common instant.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/fabric_counts.h"
#include "server/metrics/metrics_text.h"

namespace farleaf::server {

/// Latencies fall into buckets below 1, 2, 4, … microseconds, up to 16.8 s, and one above.
inline constexpr size_t kLatencyBounds = 25;
inline constexpr uint64_t LatencyBoundUs(size_t bucket) { return uint64_t{1} << bucket; }
inline constexpr size_t LatencyBucketOf(uint64_t ns) {
  const size_t bucket = std::bit_width(ns / 1'000);
  return bucket < kLatencyBounds ? bucket : kLatencyBounds;
}

/// What was counted of one kind of operation, as a value.
struct CommandCounts {
  uint64_t count = 0;
  uint64_t failed = 0;
  dsm::FabricCounts spent;
  uint64_t latency_ns = 0;  ///< of all together
  std::array<uint64_t, kLatencyBounds + 1> latencies{};

  CommandCounts& operator+=(const CommandCounts& other);
  /// Adds the families farleaf_operations_total and the like.
  void AppendMetrics(std::string_view protocol, std::string_view operation, MetricsText* out) const;
  /// Lines `PREFIX.count 5`.
  void AppendTo(std::string_view prefix, std::string* text) const;
};

class CommandStats {
 public:
  enum class Outcome : uint8_t { kOk, kFailed };

  explicit CommandStats(size_t commands) : cells_(commands) {}

  /// `times`: as many of them ended together, each after `latency_ns`, and spent `spent` together.
  void Record(size_t command, Outcome outcome, uint64_t latency_ns, const dsm::FabricCounts& spent,
              uint64_t times = 1) {
    Cell& cell = cells_[command];
    Add(cell.count, times);
    if (outcome == Outcome::kFailed) Add(cell.failed, times);
    Add(cell.round_trips, spent.round_trips);
    Add(cell.reads, spent.reads);
    Add(cell.writes, spent.writes);
    Add(cell.atomics, spent.atomics);
    Add(cell.bytes_read, spent.bytes_read);
    Add(cell.bytes_written, spent.bytes_written);
    Add(cell.latency_ns, latency_ns * times);
    Add(cell.latencies[LatencyBucketOf(latency_ns)], times);
  }
  size_t commands() const { return cells_.size(); }
  CommandCounts Counts(size_t command) const;

 private:
  using Word = std::atomic<uint64_t>;
  struct alignas(64) Cell {
    Word count{0}, failed{0}, round_trips{0}, reads{0}, writes{0}, atomics{0}, bytes_read{0},
        bytes_written{0}, latency_ns{0};
    std::array<Word, kLatencyBounds + 1> latencies{};
  };
  static void Add(Word& word, uint64_t n) {
    word.store(word.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }

  std::vector<Cell> cells_;
};

/// What every protocol on records counts, for each thread; likewise.
struct RecordCounters {
  using Count = std::atomic<uint64_t>;

  explicit RecordCounters(size_t commands) : stats(commands) {}
  static void Add(Count& count, uint64_t n = 1) {
    count.store(count.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }

  Count round_trips{0};  ///< in the pool
  Count failed{0};       ///< commands that the pool has failed
  CommandStats stats;    ///< by a command's number
};

}  // namespace farleaf::server
