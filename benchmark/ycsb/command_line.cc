#include "benchmark/ycsb/command_line.h"

#include <poll.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <optional>

#include "benchmark/ycsb/comparison_flags.h"
#include "benchmark/ycsb/processes.h"
#include "benchmark/ycsb/properties.h"
#include "benchmark/ycsb/target_flags.h"
#include "benchmark/ycsb/time_series.h"

namespace farleaf::ycsb {

namespace {

constexpr double kSimulatedConfidencePercent = 1;
constexpr uint64_t kOperationsMaxDefault = 20'000'000;

struct RawFlags {
  std::vector<std::string> files, assignments;
  std::string phase = "run", clock = "wall";
  double interval_s = 0;
  std::optional<double> confidence_percent;
  std::optional<std::string> against;
};

constexpr const char* kFooter =
    "Targets:\n"
    "  local:[?servers=N&region=SIZE&chunk=SIZE&delay_us=N]  a pool inside this process\n"
    "  pool:BOOTSTRAP-URL      this process joins a pool, e.g. pool:memcached://HOST:PORT/CLUSTER\n"
    "  farleaf://HOST:PORT     a compute server through the client; also farleaf+unix:PATH,\n"
    "                          or farleaf+ring:PATH, through memory shared with it\n"
    "  memcached://HOST:PORT, redis://HOST:PORT   a server of that protocol, Farleaf's or "
    "another;\n"
    "                          also memcached+unix:PATH, redis+unix:PATH. No scans; memcached:\n"
    "                          only with farleaf.keys=bytes\n"
    "  lsm:DIR[?NAME=VALUE&...]                   Farleaf's LSM store in this process\n"
    "  replicated:DIR[?backups=N&mode=none|send|build&...]   the same with backups in this "
    "process:\n"
    "                          they are sent tables, or build their own\n"
    "  rocksdb:DIR[?NAME=VALUE&...], blobdb:DIR   RocksDB in this process: cache_mb, memtable_mb,\n"
    "                          growth, sync, direct, ... (benchmark/adapters/README.md)\n"
    "  sim:MODEL-FILE[?region=SIZE&chunk=SIZE]    memory and compute servers in virtual time\n"
    "Properties of this benchmark, beside YCSB's own:\n"
    "  farleaf.keys=fixed8|bytes             8-byte keys and values, or YCSB's strings\n"
    "  farleaf.kvmix=s|m|l|sd|md|ld          pairs of 33, 123 or 1023 bytes, or mixes of them\n"
    "  farleaf.tree=NAME                     the tree (default: YCSB's table)\n"
    "  farleaf.zipfian=ycsb|records          ranks of YCSB's 10^10 items, or of those there are\n"
    "  farleaf.hotspot_shift_operations=N    requestdistribution=shiftinghotspot: after so many\n"
    "                                        operations the hot spot moves on by its length\n"
    "  farleaf.trace=FILE                    the run phase replays its operations, one a line:\n"
    "                                        [@MICROSECONDS] READ KEY, UPDATE KEY [BYTES],\n"
    "                                        INSERT KEY [BYTES], SCAN KEY ROWS, RMW KEY [BYTES]\n"
    "  farleaf.trace_own_values=true         each value that it reads must be the benchmark's\n"
    "  farleaf.allow_errors=true             failed operations do not end the run\n"
    "  farleaf.operation_timeout_ms=N        deadline of one operation (default 10000)\n"
    "ycsb merge OUT.json IN.json...         results of several processes, as one\n"
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
  app.add_option("--processes", line->processes,
                 "Client processes, each with so many threads; their results are merged")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, uint64_t{256}));
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
  app.add_option("--interval", raw->interval_s,
                 "Time series: throughput and latencies of every so many seconds; 0: none")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 86400.0));
  app.add_option("--hdr-log", line->hdr_log_path,
                 "Write HdrHistogram's log there: a line for each interval (or phase) and kind")
      ->type_name("FILE");
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

/// Reads all of the trace once, so that a fault in it is told before anything runs.
Status CheckTrace(CommandLine* line, int interrupt_fd) {
  RunConfiguration& run = line->configuration;
  WorkloadOptions& workload = run.workload;
  const bool loads = line->phases.front() == Phase::kLoad;
  if (workload.record_count == 0 && (loads || run.warmup > 0)) {
    return Status::InvalidArgument(std::string("property recordcount is not set: ") +
                                   (loads ? "the load phase" : "--warmup") +
                                   " has to know how many records there are");
  }
  if (line->phases.back() != Phase::kRun) return Status::Ok();
  const TraceFormat format{.key_layout = workload.key_layout,
                           .value_bytes = workload.value_bytes()};
  auto trace = SummarizeTraceFile(workload.trace_file, format, run.threads, [interrupt_fd] {
    pollfd interrupt{interrupt_fd, POLLIN, 0};  // one below 0 is not looked at
    return ::poll(&interrupt, 1, 0) > 0;
  });
  if (!trace.ok()) return trace.status().WithContext("property farleaf.trace");
  if (trace->timed && run.rate > 0) {
    return Status::InvalidArgument("--rate: the operations of " + trace->file +
                                   " have times of their own");
  }
  workload.operation_count = trace->operations;
  for (size_t i = 0; i < kOpKinds; ++i) {
    workload.proportions[i] =
        static_cast<double>(trace->of_kind[i]) / static_cast<double>(trace->operations);
  }
  run.trace = std::move(*trace);
  return Status::Ok();
}

Status ParseProperties(const RawFlags& raw, int interrupt_fd, CommandLine* line) {
  Properties properties;
  for (const std::string& file : raw.files) FARLEAF_RETURN_IF_ERROR(properties.LoadFile(file));
  for (const std::string& assignment : raw.assignments) {
    FARLEAF_RETURN_IF_ERROR(properties.Assign(assignment));
  }
  const bool runs = line->phases.back() == Phase::kRun;
  auto workload = ParseWorkload(properties, runs, &line->unknown_properties);
  if (!workload.ok()) return workload.status();
  line->configuration.workload = std::move(*workload);
  if (line->configuration.workload.trace_file.empty()) return Status::Ok();
  return CheckTrace(line, interrupt_fd);
}

/// Fills in `line->against`.
Status ParseAgainst(const std::string& against, CommandLine* line) {
  if (line->phases.back() != Phase::kRun) {
    return Status::InvalidArgument(
        "--against: it is the run phase that runs in turns: --phase run or load,run");
  }
  if (line->processes > 1) {
    return Status::InvalidArgument(
        "--against: two targets take turns in one process: --processes 1");
  }
  if (!line->hdr_log_path.empty()) {
    return Status::InvalidArgument("--against: --hdr-log is of one target: run it by itself");
  }
  auto configuration =
      ConfigureAgainst(line->configuration, against, line->against_args, line->phases.size() > 1);
  if (!configuration.ok()) return configuration.status();
  line->against = std::move(*configuration);
  return Status::Ok();
}

}  // namespace

Result<CommandLine> ParseCommandLine(std::span<const std::string> arguments, int interrupt_fd) {
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
  line.configuration.series_interval_ns = static_cast<uint64_t>(std::llround(raw.interval_s * 1e9));
  if (raw.interval_s > 0 && line.configuration.series_interval_ns < kIntervalNsMin) {
    return Status::InvalidArgument("--interval: expected 0, or a microsecond (1e-6) and more");
  }
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
        "memcached://HOST:PORT, redis://HOST:PORT, lsm:DIR, replicated:DIR, rocksdb:DIR, "
        "blobdb:DIR or sim:MODEL-FILE");
  }
  FARLEAF_RETURN_IF_ERROR(ParseProperties(raw, interrupt_fd, &line));
  if (raw.against) FARLEAF_RETURN_IF_ERROR(ParseAgainst(*raw.against, &line));
  if (line.processes > 1) FARLEAF_RETURN_IF_ERROR(CheckProcesses(line));
  return line;
}

}  // namespace farleaf::ycsb
