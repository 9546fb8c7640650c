#include "benchmark/ycsb/command.h"

#include "benchmark/ycsb/comparison_flags.h"
#include "benchmark/ycsb/comparison_run.h"
#include "benchmark/ycsb/cpu_clock.h"
#include "benchmark/ycsb/merge.h"
#include "benchmark/ycsb/processes.h"
#include "benchmark/ycsb/result_files.h"
#include "benchmark/ycsb/runner.h"

namespace farleaf::ycsb {

namespace {

/// Whether the run phase has scans.
bool Scans(const CommandLine& line, const RunConfiguration& run) {
  constexpr auto kScan = static_cast<size_t>(OpKind::kScan);
  if (line.phases.back() != Phase::kRun) return false;
  return run.trace ? run.trace->of_kind[kScan] > 0 : run.workload.proportions[kScan] > 0;
}

TargetOptions TargetOptionsOf(const CommandLine& line, const RunConfiguration& run) {
  return {
      .tree = run.workload.tree,
      .key_layout = run.workload.key_layout,
      .create_tree = line.phases.front() == Phase::kLoad,
      .sorted_leaves = run.sorted_leaves,
      .hashed_leaves = run.hashed_leaves,
      .leaf_bytes = run.leaf_bytes,
      .node_bytes = run.node_bytes,
      .cache = run.cache,
      .cache_bytes = run.cache_bytes,
      .share_reads = run.share_reads,
      .combine_writes = run.combine_writes,
      .hand_over = run.hand_over,
      .value_hint_bytes = run.value_hint_bytes,
      .value_list_bytes = run.value_list_bytes,
      .scan_leaves_max = run.scan_leaves_max,
      .in_place = run.in_place,
      .small_write_backs = run.small_write_backs,
      .back_off = run.back_off,
      .learn_splits = run.learn_splits,
      .warm = run.warmup > 0,
      .seed = run.seed,
      .operation_timeout_ms = run.workload.operation_timeout_ms,
      .in_flight = run.in_flight,
      .scans = Scans(line, run),
      .access = run.access,
      .program = run.program,
      .records = run.workload.record_count,
      .skewed = !run.trace && (run.workload.request_distribution == RequestDistribution::kZipfian ||
                               run.workload.request_distribution == RequestDistribution::kLatest)};
}

int RunPhases(const CommandLine& line, const CommandDeps& deps, const Clock* clock, Target* target,
              const MeasureHooks& hooks) {
  Runner runner({.configuration = line.configuration,
                 .status_interval_s = line.status_interval_s,
                 .interrupt_fd = deps.interrupt_fd,
                 .progress = deps.error,
                 .unix_clock = clock == deps.clock ? deps.unix_clock : nullptr},
                target, clock);
  std::vector<PhaseResult> results;
  int code = kExitOk;
  for (Phase phase : line.phases) {
    auto result = runner.Run(phase);
    if (!result.ok()) {
      *deps.error << "ycsb: " << PhaseName(phase) << ": " << result.status() << "\n";
      code = kExitFailed;
      break;
    }
    PrintText(line.configuration, *result, *deps.out);
    deps.out->flush();
    results.push_back(std::move(*result));
    code = Judge(results.back(), line.configuration.workload, PhaseName(phase), *deps.error);
    if (code != kExitOk) break;
  }
  const Status written = hooks.deliver(results);
  if (!written.ok()) {
    *deps.error << "ycsb: " << written.message() << "\n";
    code = code == kExitOk ? kExitFailed : code;
  }
  return code;
}

/// A target and what it is called in messages.
struct OpenedTarget {
  std::string name;
  std::unique_ptr<Target> target;
};

/// Opens `opened->target`, or says why not and returns the exit code.
int Open(const CommandLine& line, const CommandDeps& deps, const Clock* clock,
         const RunConfiguration& run, OpenedTarget* opened) {
  auto target = deps.open_target(run.target, TargetOptionsOf(line, run), clock);
  if (!target.ok()) {
    *deps.error << "ycsb: " << opened->name << ": " << target.status() << "\n";
    return target.status().code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
  }
  opened->target = std::move(*target);
  return kExitOk;
}

/// Returns the exit code, `code` so far.
int Close(const CommandDeps& deps, const OpenedTarget& opened, int code) {
  const Status closed = opened.target->Close();
  if (closed.ok()) return code;
  *deps.error << "ycsb: closing " << opened.name << ": " << closed << "\n";
  return code == kExitOk ? kExitFailed : code;
}

int Measure(const CommandLine& line, const CommandDeps& deps, const MeasureHooks& hooks) {
  const ProcessCpuClock cpu_clock;
  const Clock* clock = line.cpu_clock ? &cpu_clock : deps.clock;
  OpenedTarget target{.name = "--target " + line.configuration.target, .target = nullptr};
  const int opened = Open(line, deps, clock, line.configuration, &target);
  if (opened != kExitOk) return opened;
  if (hooks.opened) hooks.opened();
  return Close(deps, target, RunPhases(line, deps, clock, target.target.get(), hooks));
}

/// RunComparison of two targets that are open.
int CompareOpened(const CommandLine& line, const CommandDeps& deps, const Clock* clock,
                  const OpenedTarget& target, const OpenedTarget& against, ResultFiles* files) {
  const ComparisonOutcome outcome =
      RunComparison({target.name, line.configuration, target.target.get()},
                    {against.name, *line.against, against.target.get()},
                    {.load = line.phases.size() > 1,
                     .rounds = line.rounds,
                     .against_args = line.against_args,
                     .status_interval_s = line.status_interval_s,
                     .interrupt_fd = deps.interrupt_fd,
                     .clock = clock,
                     .out = deps.out,
                     .error = deps.error});
  const Status written = files->Write(outcome.json, {});
  if (written.ok()) return outcome.code;
  *deps.error << "ycsb: " << written.message() << "\n";
  return outcome.code == kExitOk ? kExitFailed : outcome.code;
}

int Compare(const CommandLine& line, const CommandDeps& deps, ResultFiles* files) {
  const ProcessCpuClock cpu_clock;
  const Clock* clock = line.cpu_clock ? &cpu_clock : deps.clock;
  OpenedTarget target{.name = "--target " + line.configuration.target, .target = nullptr};
  OpenedTarget against{.name = "--against " + line.against->target, .target = nullptr};
  int code = Open(line, deps, clock, line.configuration, &target);
  if (code != kExitOk) return code;
  const std::string directory = target.target->DataDirectory();
  if (!directory.empty() && SamePlace(line.configuration.target, line.against->target)) {
    *deps.error << "ycsb: " << against.name << ": data directory " << directory
                << " is --target's: give it its own\n";
    return Close(deps, target, kExitUsage);
  }
  code = Open(line, deps, clock, *line.against, &against);
  if (code != kExitOk) return Close(deps, target, code);
  code = CompareOpened(line, deps, clock, target, against, files);
  return Close(deps, target, Close(deps, against, code));
}

}  // namespace

int RunCommand(std::span<const std::string> arguments, const CommandDeps& deps) {
  if (!arguments.empty() && arguments.front() == "merge") {
    return RunMerge(arguments.subspan(1), *deps.out, *deps.error);
  }
  auto line = ParseCommandLine(arguments, deps.interrupt_fd);
  if (!line.ok() && line.status().code() == StatusCode::kUnavailable) {
    *deps.error << "ycsb: " << line.status().message() << "\n";
    return kExitInterrupted;
  }
  if (!line.ok()) {
    *deps.error << "ycsb: " << line.status().message() << "\nTry ycsb --help.\n";
    return kExitUsage;
  }
  if (line->help) {
    *deps.out << line->help_text;
    return kExitOk;
  }
  for (const std::string& name : line->unknown_properties) {
    *deps.error << "ycsb: warning: property " << name << " is unknown and has no effect\n";
  }
  if (line->processes > 1) return RunProcesses(*line, deps, Measure);
  ResultFiles files;
  const Status opened = files.Open(line->json_path, line->hdr_log_path);
  if (!opened.ok()) {
    *deps.error << "ycsb: " << opened.message() << "\n";
    return kExitUsage;
  }
  if (line->against) return Compare(*line, deps, &files);
  const auto deliver = [&line, &files](std::span<const PhaseResult> phases) {
    return files.Write(ToJson(line->configuration, phases), phases);
  };
  return Measure(*line, deps, {.opened = nullptr, .deliver = deliver});
}

}  // namespace farleaf::ycsb
