// One run of the real tree in a simulated world, under one seed: clients of several compute servers do
// random operations on few keys; what they saw must be linearizable and every scan explained by it, and
// at the end every page of the pool be accounted for.
//
// The seed draws the shape of the run too: page layout, keys, compute servers, workers, cache, the network,
// which faults come and when.
//
// Thread rule: one thread; runs do not share anything.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dsm/base/result.h"
#include "dsm/sim/trace.h"

namespace farleaf::simulation {

/// Which faults come during a run.
enum class FaultMix : uint8_t {
  kNone,
  kDrops,        ///< connections break, and are restored
  kStalls,       ///< servers and compute servers stand still, for less than any timeout
  kPartitions,   ///< a compute server and a memory server are parted, some for longer than timeouts
  kLostServers,  ///< a memory server crashes; another starts in its place, or none
  kCrashes,      ///< compute servers crash, one or several, but not all
};
inline constexpr std::string_view kFaultMixNames[] = {"none",       "drops",        "stalls",
                                                      "partitions", "lost_servers", "crashes"};
Result<FaultMix> ParseFaultMix(std::string_view name);

struct TreeRunOptions {
  uint64_t seed = 1;
  FaultMix faults = FaultMix::kNone;
  dsm::SimTrace::Sink trace;
};

struct TreeRunResult {
  std::string failure;  ///< empty: all checks passed
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  uint64_t operations = 0;
  uint64_t failed_operations = 0;
  uint64_t virtual_ns = 0;
  uint64_t expired_operations = 0;  ///< failed, by their deadline
  uint64_t crashes = 0;             ///< of compute servers
  uint64_t longest_ns = 0;          ///< operation
  uint64_t left_behind = 0;         ///< findings at the end that failed operations explain
  // Of the trees of all compute servers (TreeStats).
  uint64_t splits = 0, merges = 0, roots_grown = 0, roots_shrunk = 0, hops = 0, torn_reads = 0,
           lock_conflicts = 0, handovers = 0, separators_completed = 0;

  void Add(const TreeRunResult& other);
};

TreeRunResult RunTree(const TreeRunOptions& options);

}  // namespace farleaf::simulation
