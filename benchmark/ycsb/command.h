// The ycsb command: its flags, and what it does with them. main() supplies the world.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "benchmark/ycsb/report.h"
#include "benchmark/ycsb/target.h"
#include "benchmark/ycsb/verdict.h"
#include "dsm/base/clock.h"
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
  std::string json_path;
  bool cpu_clock = false;
  double status_interval_s = 2;
  std::vector<std::string> unknown_properties;
};

/// `arguments` are without the program's name. InvalidArgument names the flag or the property;
/// NotFound a workload file or a trace that is not there. `interrupt_fd`, readable, ends the check
/// of a long trace: Unavailable.
Result<CommandLine> ParseCommandLine(std::span<const std::string> arguments,
                                     int interrupt_fd = -1);

struct CommandDeps {
  std::function<Result<std::unique_ptr<Target>>(const std::string& url, const TargetOptions&,
                                                const Clock*)>
      open_target;
  const Clock* clock = nullptr;
  std::ostream* out = nullptr;    ///< results
  std::ostream* error = nullptr;  ///< messages and progress
  int interrupt_fd = -1;          ///< readable: end early
};

/// Returns the exit code.
int RunCommand(std::span<const std::string> arguments, const CommandDeps& deps);

}  // namespace farleaf::ycsb
