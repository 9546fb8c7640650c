// What becomes of a phase's result: the messages it leaves, and the exit code.
//
// Thread rule: pure functions.
#pragma once

#include <ostream>
#include <string_view>

#include "benchmark/ycsb/measurement.h"
#include "benchmark/ycsb/workload.h"

namespace farleaf::ycsb {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  ///< wrong values, failed operations, target out of reach
inline constexpr int kExitUsage = 2;   ///< bad flags or properties
inline constexpr int kExitInterrupted = 130;  ///< results are of the part that ran

/// Prints what the phase left to be said, and returns the exit code so far. `where` stands before
/// each problem.
int Judge(const PhaseResult& result, const WorkloadOptions& workload, std::string_view where,
          std::ostream& error);

}  // namespace farleaf::ycsb
