// The ycsb command: its flags, and what it does with them. main() supplies the world.
//
// Thread rule: one thread.
#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>

#include "benchmark/ycsb/command_line.h"
#include "benchmark/ycsb/target.h"
#include "benchmark/ycsb/verdict.h"
#include "dsm/base/clock.h"
#include "dsm/base/result.h"

namespace farleaf::ycsb {

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
