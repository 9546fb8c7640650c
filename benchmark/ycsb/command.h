// The ycsb command: its flags, and what it does with them. main() supplies the world.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "benchmark/ycsb/report.h"
#include "benchmark/ycsb/target.h"
#include "dsm/base/clock.h"
#include "dsm/base/result.h"

namespace farleaf::ycsb {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  ///< wrong values, failed operations, target out of reach
inline constexpr int kExitUsage = 2;   ///< bad flags or properties
inline constexpr int kExitInterrupted = 130;  ///< results are of the part that ran

struct CommandLine {
  bool help = false;      ///< only print help_text
  std::string help_text;  ///< the help, or with --version the version
  RunConfiguration configuration;
  std::vector<Phase> phases;
  std::string json_path, hdr_log_path;
  uint64_t processes = 1;
  bool cpu_clock = false;
  double status_interval_s = 2;
  std::vector<std::string> unknown_properties;
};

/// `arguments` are without the program's name. InvalidArgument names the flag or the property;
/// NotFound a workload file that is not there.
Result<CommandLine> ParseCommandLine(std::span<const std::string> arguments);

struct CommandDeps {
  std::function<Result<std::unique_ptr<Target>>(const std::string& url, const TargetOptions&,
                                                const Clock*)>
      open_target;
  const Clock* clock = nullptr;
  const Clock* unix_clock = nullptr;  ///< time of day; null: results do not tell it
  std::ostream* out = nullptr;    ///< results
  std::ostream* error = nullptr;  ///< messages and progress
  int interrupt_fd = -1;          ///< readable: end early
};

/// Returns the exit code.
int RunCommand(std::span<const std::string> arguments, const CommandDeps& deps);

}  // namespace farleaf::ycsb
