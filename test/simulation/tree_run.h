// One run of the real tree in a simulated world, under one seed: clients of several compute servers do
// random operations on few keys; what they saw must be linearizable and every scan explained by it, and
// at the end every page of the pool be accounted for.
//
// The seed draws the shape of the run too, out of what its plan allows, the network, and which faults come
// when.
//
// Thread rule: one thread; runs do not share anything.
#pragma once

#include <cstdint>
#include <string>

#include "dsm/sim/trace.h"
#include "test/simulation/probes.h"
#include "test/simulation/run_plan.h"

namespace farleaf::simulation {

struct TreeRunResult {
  std::string failure;  ///< empty: all checks passed
  uint64_t trace_hash = 0;
  uint64_t events = 0;
  uint64_t operations = 0;
  uint64_t failed_operations = 0;
  uint64_t virtual_ns = 0;
  uint64_t expired_operations = 0;  ///< failed, by their deadline
  uint64_t crashes = 0;             ///< of compute servers
  uint64_t stops = 0;               ///< of them in good order, or meant so
  uint64_t stops_refused = 0;       ///< since locks were unresolved
  uint64_t longest_ns = 0;          ///< operation
  uint64_t left_in_disorder = 0;    ///< compute servers, since connections broke
  ProbeCounts probes;

  void Add(const TreeRunResult& other);
};

/// The faults that this seed takes of the plan.
const FaultPlan& FaultsOf(const RunPlan& plan, uint64_t seed);

TreeRunResult RunTree(const RunPlan& plan, uint64_t seed, const dsm::SimTrace::Sink& trace = {});

}  // namespace farleaf::simulation
