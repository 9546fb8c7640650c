// What verb_bench measured, as a table and as JSON.
//
// Thread rule: pure functions and value types.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "benchmark/micro/verb_options.h"
#include "dsm/base/histogram.h"

namespace farleaf::micro {

struct VerbResult {
  std::string fabric;
  Histogram ticks;  ///< latency of the operations that succeeded
  double ns_per_tick = 0;
  uint64_t elapsed_ns = 0;  ///< from before the first was posted until the last was complete
  bool interrupted = false;
};

/// A table of one line: the names of its columns, and its figures.
void PrintHead(std::ostream& out);
void PrintLine(const VerbOptions& options, const VerbResult& result, std::ostream& out);
nlohmann::ordered_json ToJson(const VerbOptions& options, const VerbResult& result);

}  // namespace farleaf::micro
