// The ycsb command's flags, taken apart and checked.
//
// Thread rule: value types and pure functions, but that files are read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "benchmark/ycsb/report.h"
#include "benchmark/ycsb/workload.h"
#include "dsm/base/result.h"

namespace farleaf::ycsb {

struct CommandLine {
  bool help = false;      ///< only print help_text
  std::string help_text;  ///< the help, or with --version the version
  RunConfiguration configuration;
  std::vector<Phase> phases;
  std::optional<RunConfiguration> against;  ///< of the target to compare with
  std::string against_args;
  uint64_t rounds = 10;  ///< as often as the target goes first, the other one does
  std::string json_path, hdr_log_path;
  uint64_t processes = 1;
  bool cpu_clock = false;
  double status_interval_s = 2;
  std::vector<std::string> unknown_properties;
};

/// `arguments` are without the program's name. InvalidArgument names the flag or the property;
/// NotFound a workload file or a trace that is not there. `interrupt_fd`, readable, ends the check
/// of a long trace: Unavailable.
Result<CommandLine> ParseCommandLine(std::span<const std::string> arguments, int interrupt_fd = -1);

}  // namespace farleaf::ycsb
