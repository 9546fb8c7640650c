// What a phase measured, by operation kind.
//
// Thread rule: one owner each; merge copies when the threads have ended.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "benchmark/ycsb/process_usage.h"
#include "benchmark/ycsb/time_series.h"
#include "benchmark/ycsb/workload.h"
#include "dsm/base/histogram.h"
#include "dsm/base/status.h"
#include "dsm/fabric_counts.h"

namespace farleaf::ycsb {

/// How an operation ended, as in YCSB's Return= lines: OK, NOT_FOUND, EXISTS (an insert found its
/// key there), or a failure's code.
enum class Return : uint8_t { kOk, kNotFound, kExists, kFirstError };
inline constexpr size_t kReturns = static_cast<size_t>(Return::kFirstError) + kStatusCodeMax + 1;
inline Return ReturnOf(StatusCode code) {
  return static_cast<Return>(static_cast<size_t>(Return::kFirstError) + static_cast<size_t>(code));
}
inline bool IsError(Return value) { return value >= Return::kFirstError; }
/// "OK", "NOT_FOUND", "UNAVAILABLE", …
std::string ReturnName(Return value);

struct KindStats {
  Histogram latency_ns;  ///< of operations that did not fail
  dsm::FabricCounts fabric;
  std::array<uint64_t, kReturns> returns{};
  uint64_t rows = 0;  ///< SCAN: rows returned
  // Keys and values of operations that did not fail:
  uint64_t user_bytes_read = 0, user_bytes_written = 0;

  uint64_t operations() const;  ///< failures included
  uint64_t errors() const;
  void Merge(const KindStats& other);
};

using StatsByKind = std::array<KindStats, kOpKinds>;

/// What a store with a directory has done in some time.
struct StoreUse {
  std::optional<DeviceTraffic> device;
  uint64_t directory_bytes = 0;    ///< at the end
  nlohmann::ordered_json figures;  ///< Target::DescribeStore, at the end
};

/// What went on behind the operations when they had ended.
struct Settling {
  uint64_t elapsed_ns = 0;
  uint64_t cpu_ns = 0;
  bool quiet = false;  ///< false: it still did when the time was up
  StoreUse store;
};

struct PhaseResult {
  Phase phase = Phase::kRun;
  StatsByKind kinds;
  uint64_t start_unix_ns = 0;  ///< time of day at the phase's start; 0: it has none
  uint64_t elapsed_ns = 0;
  uint64_t cpu_ns = 0;  ///< of the whole process, user and system
  uint64_t warmup_operations = 0;
  bool interrupted = false;
  bool counts_fabric = true;          ///< false: the target cannot tell
  std::vector<std::string> problems;  ///< wrong values, missing keys, first failures
  bool failed = false;
  uint64_t unverified_values = 0;  ///< of a trace: read, and nobody can tell who wrote them
  uint64_t pool_bytes_used = 0;   ///< 0: the target cannot tell
  uint64_t pool_bytes_grown = 0;  ///< in this phase
  nlohmann::ordered_json cache;   ///< Target::DescribeCache
  std::optional<TimeSeries> series;  ///< where one was asked for
  uint64_t longest_stall_ns = 0;  ///< in which no operation ended; 0: not measured
  uint64_t peak_resident_bytes = 0;
  // Of targets with a directory:
  std::optional<StoreUse> store;
  std::optional<Settling> settling;
  uint64_t live_user_bytes = 0;  ///< keys and values that the store holds at the end
  // In virtual time:
  double confidence_percent = 0;  ///< half width of the throughput's 95 % interval; 0: not known
  nlohmann::ordered_json simulation;  ///< Simulation::Describe

  uint64_t operations() const;
  uint64_t errors() const;
  uint64_t user_bytes_read() const;
  uint64_t user_bytes_written() const;
  uint64_t longest_latency_ns() const;
  double seconds() const { return static_cast<double>(elapsed_ns) * 1e-9; }
  double ops_per_second() const {
    return elapsed_ns ? static_cast<double>(operations()) / seconds() : 0;
  }
};

}  // namespace farleaf::ycsb
