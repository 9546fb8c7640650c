// --processes: one command measures with several client processes on this machine, and their
// results are merged.
//
// Each phase forks its processes one after another; each opens the target and waits until all have,
// then they measure at once. They share operations, rate and the load phase's keys; each has the
// threads and the warm-up that were asked for, and a seed of its own.
//
// Thread rule: one thread, and no other may be running (fork).
#pragma once

#include <functional>
#include <span>

#include "benchmark/ycsb/command.h"
#include "dsm/base/status.h"

namespace farleaf::ycsb {

struct MeasureHooks {
  std::function<void()> opened;  ///< the target is open; what comes next is measured
  std::function<Status(std::span<const PhaseResult>)> deliver;
};
/// One process's run of the command, which returns its exit code.
using MeasureFunction =
    std::function<int(const CommandLine&, const CommandDeps&, const MeasureHooks&)>;

/// InvalidArgument names what cannot be done by several processes, and the remedy.
Status CheckProcesses(const CommandLine& line);

/// What process `index` of `line.processes` is to do in `phase`.
CommandLine ShareOfProcess(const CommandLine& line, Phase phase, uint64_t index);

/// Returns the exit code. REQUIRES: CheckProcesses; deps.unix_clock.
int RunProcesses(const CommandLine& line, const CommandDeps& deps, const MeasureFunction& measure);

}  // namespace farleaf::ycsb
