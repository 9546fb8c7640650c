// Several processes' results as one: what they would have measured together. Percentiles are those
// of the union, from the histograms; throughput is all operations by the time from the earliest
// start to the latest end, by the hosts' clocks.
//
// Thread rule: pure functions; RunMerge on one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "benchmark/ycsb/measurement.h"
#include "dsm/base/result.h"

namespace farleaf::ycsb {

struct NamedResult {
  std::string name;  ///< for messages: its file, or which process it is of
  nlohmann::ordered_json json;
};

struct MergedResults {
  nlohmann::ordered_json configuration;  ///< threads, rate and operation_count are sums
  std::vector<uint64_t> seeds;
  std::vector<PhaseResult> phases;
  /// Of each phase: the share of its time in which all processes measured.
  std::vector<double> overlaps;

  /// As report.h's, with overlap_percent of each phase, processes and seeds.
  nlohmann::ordered_json ToJson() const;
  void PrintText(std::ostream& out) const;
};

/// InvalidArgument names the result and what is wrong with it: no time of day (virtual time), no
/// histograms, another workload or other phases than the first has.
Result<MergedResults> MergeResults(std::span<const NamedResult> results);

/// `merge OUT.json IN.json… [--hdr-log FILE]`, without "merge". Returns the exit code.
int RunMerge(std::span<const std::string> arguments, std::ostream& out, std::ostream& error);

}  // namespace farleaf::ycsb
