#include "benchmark/ycsb/command.h"

#include <CLI/CLI.hpp>
#include <fstream>
#include <optional>

#include "benchmark/ycsb/comparison_flags.h"
#include "benchmark/ycsb/comparison_run.h"
#include "benchmark/ycsb/cpu_clock.h"
#include "benchmark/ycsb/properties.h"
#include "benchmark/ycsb/runner.h"
#include "benchmark/ycsb/target_flags.h"

namespace farleaf::ycsb {

namespace {

constexpr double kSimulatedConfidencePercent = 1;
constexpr uint64_t kOperationsMaxDefault = 20'000'000;

struct RawFlags {
  std::vector<std::string> files, assignments;
  std::string phase = "run", clock = "wall";
  std::optional<double> confidence_percent;
  std::optional<std::string> against;
};

constexpr const char* kFooter =
    "Targets:\n"
    "  local:[?servers=N&region=SIZE&chunk=SIZE&delay_us=N]  a pool inside this process\n"
    "  pool:BOOTSTRAP-URL      this process joins a pool, e.g. pool:memcached://HOST:PORT/CLUSTER\n"
    "  farleaf://HOST:PORT     a compute server through the client; also farleaf+unix:PATH,\n"
    "                          or farleaf+ring:PATH, through memory shared with it\n"
    "  sim:MODEL-FILE[?region=SIZE&chunk=SIZE]    memory and compute servers in virtual time\n"
    "  rocksdb:DIR[?NAME=VALUE&...], blobdb:DIR   RocksDB in this process: cache_mb, memtable_mb,\n"
    "                          growth, sync, direct, ... (benchmark/adapters/README.md)\n"
    "Properties of this benchmark, beside YCSB's own:\n"
    "  farleaf.keys=fixed8|bytes             8-byte keys and values, or YCSB's strings\n"
    "  farleaf.kvmix=s|m|l|sd|md|ld          pairs of 33, 123 or 1023 bytes, or mixes of them\n"
    "  farleaf.tree=NAME                     the tree (default: YCSB's table)\n"
    "  farleaf.zipfian=ycsb|records          ranks of YCSB's 10^10 items, or of those there are\n"
    "  farleaf.allow_errors=true             failed operations do not end the run\n"
    "  farleaf.operation_timeout_ms=N        deadline of one operation (default 10000)\n"
    "Exit code: 0, 1 if an operation failed or a value was wrong, 2 for bad arguments, 130 if\n"
    "interrupted (the results so far are printed).\n";

void Declare(CLI::App& app, RawFlags* raw, CommandLine* line) {
  RunConfiguration& run = line->configuration;
  app.add_option("-P", raw->files, "Property file; may be repeated, later ones win")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option("-p", raw->assignments, "One property; wins over the files")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("--phase", raw->phase, "load, run or load,run")->capture_default_str();
  app.add_option("--target", run.target, "Where to send the operations")->type_name("TARGET");
  CLI::Option* const against =
      app.add_option("--against", raw->against,
                     "Another target, which runs in turns with --target: ratios and how well they "
                     "are known")
          ->type_name("TARGET");
  app.add_option("--against-args", line->against_args,
                 "What is different for it: flags of access, tree and cache, -p farleaf.tree=NAME")
      ->type_name("'--FLAG ...'")
      ->needs(against);
  app.add_option("--rounds", line->rounds, "Run phases of each of the two")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{3}, uint64_t{1000}))
      ->needs(against);
  DeclareAccessFlags(app, &run.access);
  app.add_option("--threads", run.threads, "Threads")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, uint64_t{1000}));
  app.add_option("--in-flight", run.in_flight, "Operations in flight in each thread")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, uint64_t{65536}));
  app.add_option("--seed", run.seed, "Seed of all that is random")->capture_default_str();
  app.add_option("--rate", run.rate, "Open loop: operations per second of all threads; 0: closed")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--warmup", run.warmup, "Reads before the run phase, not measured")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{0}, UINT64_MAX >> 8));
  app.add_option(
         "--settle", run.settle_s,
         "Stores with a directory: after each phase, wait so many seconds at most until their "
         "background work has gone quiet, and report what it took; 0: do not wait")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  DeclareTreeFlags(app, &run);
  app.add_option("--confidence", raw->confidence_percent,
                 "sim: the run phase goes on beyond operationcount until the 95 % confidence "
                 "interval of its throughput is within +-PERCENT; 0: operationcount is all "
                 "(1; 0 with --against)")
      ->type_name("PERCENT")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--operations-max", run.operations_max, "sim: but not beyond so many operations")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40));
  app.add_option("--clock", raw->clock,
                 "cpu: times are of this process's CPU time, for one thread on a busy machine")
      ->capture_default_str()
      ->check(CLI::IsMember({"wall", "cpu"}));
  app.add_option("--json", line->json_path, "Write the results there as well")->type_name("FILE");
  app.add_option("--status-interval", line->status_interval_s,
                 "Seconds between progress lines; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  app.set_version_flag("--version", "ycsb (farleaf) " FARLEAF_VERSION);
  app.footer(kFooter);
}

Status ParsePhases(const std::string& text, std::vector<Phase>* phases) {
  if (text == "load") {
    *phases = {Phase::kLoad};
  } else if (text == "run") {
    *phases = {Phase::kRun};
  } else if (text == "load,run") {
    *phases = {Phase::kLoad, Phase::kRun};
  } else {
    return Status::InvalidArgument("--phase " + text + ": expected load, run or load,run");
  }
  return Status::Ok();
}

Status ParseProperties(const RawFlags& raw, CommandLine* line) {
  Properties properties;
  for (const std::string& file : raw.files) FARLEAF_RETURN_IF_ERROR(properties.LoadFile(file));
  for (const std::string& assignment : raw.assignments) {
    FARLEAF_RETURN_IF_ERROR(properties.Assign(assignment));
  }
  const bool runs = line->phases.back() == Phase::kRun;
  auto workload = ParseWorkload(properties, runs, &line->unknown_properties);
  if (!workload.ok()) return workload.status();
  line->configuration.workload = std::move(*workload);
  return Status::Ok();
}

/// Fills in `line->against`.
Status ParseAgainst(const std::string& against, CommandLine* line) {
  if (line->phases.back() != Phase::kRun) {
    return Status::InvalidArgument(
        "--against: it is the run phase that runs in turns: --phase run or load,run");
  }
  auto configuration = ConfigureAgainst(line->configuration, against, line->against_args,
                                        line->phases.size() > 1);
  if (!configuration.ok()) return configuration.status();
  line->against = std::move(*configuration);
  return Status::Ok();
}

TargetOptions TargetOptionsOf(const CommandLine& line, const RunConfiguration& run) {
  return {.tree = run.workload.tree,
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
          .warm = run.warmup > 0,
          .seed = run.seed,
          .operation_timeout_ms = run.workload.operation_timeout_ms,
          .in_flight = run.in_flight,
          .access = run.access,
          .program = run.program,
          .records = run.workload.record_count,
          .skewed = run.workload.request_distribution == RequestDistribution::kZipfian ||
                    run.workload.request_distribution == RequestDistribution::kLatest};
}

int WriteJson(const nlohmann::ordered_json& document, const CommandLine& line,
              const CommandDeps& deps, std::ofstream* json) {
  if (!json->is_open()) return kExitOk;
  *json << document.dump(2) << "\n";
  json->flush();
  if (*json) return kExitOk;
  *deps.error << "ycsb: --json " << line.json_path << ": cannot be written\n";
  return kExitFailed;
}

int RunPhases(const CommandLine& line, const CommandDeps& deps, const Clock* clock, Target* target,
              std::ofstream* json) {
  Runner runner({.configuration = line.configuration,
                 .status_interval_s = line.status_interval_s,
                 .interrupt_fd = deps.interrupt_fd,
                 .progress = deps.error},
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
  const int written = WriteJson(ToJson(line.configuration, results), line, deps, json);
  return code == kExitOk ? written : code;
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

int RunAgainst(const CommandLine& line, const CommandDeps& deps, const Clock* clock,
               const OpenedTarget& target, std::ofstream* json) {
  OpenedTarget against{.name = "--against " + line.against->target, .target = nullptr};
  const std::string directory = target.target->DataDirectory();
  if (!directory.empty() && SamePlace(line.configuration.target, line.against->target)) {
    *deps.error << "ycsb: " << against.name << ": data directory " << directory
                << " is --target's: give it its own\n";
    return kExitUsage;
  }
  const int opened = Open(line, deps, clock, *line.against, &against);
  if (opened != kExitOk) return opened;
  const ComparisonOutcome outcome = RunComparison(
      {target.name, line.configuration, target.target.get()},
      {against.name, *line.against, against.target.get()},
      {.load = line.phases.size() > 1,
       .rounds = line.rounds,
       .against_args = line.against_args,
       .status_interval_s = line.status_interval_s,
       .interrupt_fd = deps.interrupt_fd,
       .clock = clock,
       .out = deps.out,
       .error = deps.error});
  const int written = WriteJson(outcome.json, line, deps, json);
  return Close(deps, against, outcome.code == kExitOk ? written : outcome.code);
}

}  // namespace

Result<CommandLine> ParseCommandLine(std::span<const std::string> arguments) {
  CommandLine line;
  line.configuration.operations_max = kOperationsMaxDefault;
  RawFlags raw;
  CLI::App app("YCSB's core workloads against a Farleaf tree.", "ycsb");
  Declare(app, &raw, &line);
  line.help_text = app.help();
  try {
    // CLI11 takes them in reverse order.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    line.help = true;
    return line;
  } catch (const CLI::CallForVersion& version) {
    line.help = true;
    line.help_text = std::string(version.what()) + "\n";
    return line;
  } catch (const CLI::ParseError& failure) {
    return Status::InvalidArgument(failure.what());
  }
  FARLEAF_RETURN_IF_ERROR(ParsePhases(raw.phase, &line.phases));
  line.cpu_clock = raw.clock == "cpu";
  if (line.cpu_clock && line.configuration.threads > 1) {
    return Status::InvalidArgument(
        "--clock cpu: CPU time is added up over threads: use --threads 1");
  }
  const bool simulated = InVirtualTime(line.configuration.target);
  if (raw.confidence_percent && !simulated) {
    return Status::InvalidArgument("--confidence: only targets in virtual time (sim:) stop by it");
  }
  if (simulated) {
    line.configuration.confidence_percent =
        raw.confidence_percent.value_or(raw.against ? 0 : kSimulatedConfidencePercent);
    line.configuration.free_load = line.phases.size() > 1;
  }
  if (line.configuration.target.empty()) {
    return Status::InvalidArgument(
        "--target is missing: local:, pool:BOOTSTRAP-URL, farleaf://HOST:PORT, "
        "sim:MODEL-FILE, lsm:DIR, rocksdb:DIR or blobdb:DIR");
  }
  FARLEAF_RETURN_IF_ERROR(ParseProperties(raw, &line));
  if (raw.against) FARLEAF_RETURN_IF_ERROR(ParseAgainst(*raw.against, &line));
  return line;
}

int RunCommand(std::span<const std::string> arguments, const CommandDeps& deps) {
  auto line = ParseCommandLine(arguments);
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
  std::ofstream json;
  if (!line->json_path.empty()) {
    json.open(line->json_path);
    if (!json) {
      *deps.error << "ycsb: --json " << line->json_path << ": cannot be opened for writing\n";
      return kExitUsage;
    }
  }
  const ProcessCpuClock cpu_clock;
  const Clock* clock = line->cpu_clock ? &cpu_clock : deps.clock;
  OpenedTarget target{.name = "--target " + line->configuration.target, .target = nullptr};
  const int opened = Open(*line, deps, clock, line->configuration, &target);
  if (opened != kExitOk) return opened;
  const int code = line->against ? RunAgainst(*line, deps, clock, target, &json)
                                 : RunPhases(*line, deps, clock, target.target.get(), &json);
  return Close(deps, target, code);
}

}  // namespace farleaf::ycsb
