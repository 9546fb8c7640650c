// Runs two targets in turns.
//
// Thread rule: one thread, which starts and joins those of the phases.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "benchmark/ycsb/report.h"
#include "benchmark/ycsb/target.h"
#include "dsm/base/clock.h"

namespace farleaf::ycsb {

struct ComparedTarget {
  std::string name;  ///< in messages: "--target local:"
  RunConfiguration configuration;
  Target* target = nullptr;
};

struct ComparisonRunOptions {
  bool load = false;     ///< load both before the rounds, once
  size_t rounds = 0;     ///< of the run phase
  std::string against_args;
  double status_interval_s = 2;  ///< 0: no progress, of phases and of rounds
  int interrupt_fd = -1;         ///< readable: the round under way is dropped, and no other begins
  const Clock* clock = nullptr;
  std::ostream* out = nullptr;
  std::ostream* error = nullptr;
};

struct ComparisonOutcome {
  int code = 0;  ///< the exit code (benchmark/ycsb/verdict.h)
  nlohmann::ordered_json json;
};

/// Both get the same operations in a round, by its seed: the configuration's and the round's
/// number. Prints what was loaded, and the table of all rounds that were complete when something
/// ended the run.
ComparisonOutcome RunComparison(const ComparedTarget& target, const ComparedTarget& against,
                                const ComparisonRunOptions& options);

}  // namespace farleaf::ycsb
