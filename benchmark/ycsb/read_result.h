// Reads back what a run has written with --json, histograms included.
//
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmark/ycsb/measurement.h"
#include "dsm/base/result.h"

namespace farleaf::ycsb {

/// The phases of a result (report.h: ToJson) with what several processes' results have in common:
/// counts, latencies, returns, fabric counts, times and the time series. What belongs to one process
/// (its cache, store and stalls) is left out. InvalidArgument names what is missing or wrong.
Result<std::vector<PhaseResult>> ReadPhases(const nlohmann::ordered_json& result);

}  // namespace farleaf::ycsb
