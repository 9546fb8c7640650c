// How results are printed: YCSB's lines, and JSON.
//
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <span>
#include <string>

#include "benchmark/ycsb/measurement.h"
#include "benchmark/ycsb/target.h"
#include "benchmark/ycsb/trace.h"
#include "benchmark/ycsb/workload.h"

namespace farleaf::ycsb {

struct RunConfiguration {
  WorkloadOptions workload;
  std::optional<TraceSummary> trace;  ///< what the run phase replays
  std::string target;
  ClientAccess access;
  uint64_t threads = 1;
  uint64_t in_flight = 1;
  uint64_t seed = 1;
  double rate = 0;  ///< operations per second, open loop; 0: closed loop
  bool open_loop() const { return rate > 0 || (trace && trace->timed); }
  uint64_t warmup = 0;
  uint64_t series_interval_ns = 0;  ///< of the time series; 0: none
  double settle_s =
      0;  ///< a store's background work is waited for so long at most, after each phase
  bool sorted_leaves = false;  ///< of a tree that the load phase creates
  bool hashed_leaves = false;  ///< parted ones are not ordered
  uint32_t leaf_bytes = 0;     ///< of a tree that the load phase creates; 0: its layout's default
  uint32_t node_bytes = 0;
  bool cache = true;
  bool share_reads = true, combine_writes = true, hand_over = true, in_place = true,
       small_write_backs = true, back_off = true, learn_splits = true;
  uint64_t cache_bytes = 0;  ///< the most that the cache may take; 0: no bound
  uint64_t value_hint_bytes = index::TreeOptions().value_hint_bytes;
  uint64_t value_list_bytes = index::TreeOptions().value_list_bytes;
  uint32_t scan_leaves_max = index::TreeOptions().scan_leaves_max;
  // Of targets in virtual time:
  std::string program;            ///< empty: the tree
  double confidence_percent = 0;  ///< run phase: until the throughput is known so well; 0: no rule
  uint64_t operations_max = 0;    ///< run phase, with the stop rule: at most so many
  bool free_load = false;         ///< the load phase takes no time
};

/// `[READ], 99thPercentileLatency(us), 1.234` and so on, after a comment line naming the phase.
void PrintText(const RunConfiguration& configuration, const PhaseResult& result, std::ostream& out);

/// {configuration, phases: {load, run}, overall, operations}: the last two are the last phase's.
nlohmann::ordered_json ToJson(const RunConfiguration& configuration,
                              std::span<const PhaseResult> phases);
nlohmann::ordered_json ToJson(const RunConfiguration& configuration);
nlohmann::ordered_json ToJson(const PhaseResult& phase);
/// The same with a configuration that is JSON already.
nlohmann::ordered_json ToJson(nlohmann::ordered_json configuration, uint64_t seed,
                              std::span<const PhaseResult> phases);

}  // namespace farleaf::ycsb
