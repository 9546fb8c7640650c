#include "benchmark/ycsb/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <optional>

#include "benchmark/ycsb/cpu_clock.h"
#include "benchmark/ycsb/properties.h"
#include "benchmark/ycsb/runner.h"
#include "index/blink/geometry.h"

namespace farleaf::ycsb {

namespace {

constexpr double kSimulatedConfidencePercent = 1;
constexpr uint64_t kOperationsMaxDefault = 20'000'000;

struct RawFlags {
  std::vector<std::string> files, assignments;
  std::string phase = "run", cache = "on", share_reads = "on", combine_writes = "on",
              hand_over = "on", in_place = "on", small_write_backs = "on", back_off = "on",
              clock = "wall";
  std::optional<double> confidence_percent;
};

constexpr const char* kFooter =
    "Targets:\n"
    "  local:[?servers=N&region=SIZE&chunk=SIZE&delay_us=N]  a pool inside this process\n"
    "  pool:BOOTSTRAP-URL      this process joins a pool, e.g. pool:memcached://HOST:PORT/CLUSTER\n"
    "  farleaf://HOST:PORT     a compute server through the client; also farleaf+unix:PATH,\n"
    "                          or farleaf+ring:PATH, through memory shared with it\n"
    "  memcached://HOST:PORT, redis://HOST:PORT   a server of that protocol, Farleaf's or another;\n"
    "                          also memcached+unix:PATH, redis+unix:PATH. No scans; memcached:\n"
    "                          only with farleaf.keys=bytes\n"
    "  lsm:DIR[?NAME=VALUE&...]                   Farleaf's LSM store in this process\n"
    "  rocksdb:DIR[?NAME=VALUE&...], blobdb:DIR   RocksDB in this process: cache_mb, memtable_mb,\n"
    "                          growth, sync, direct, ... (benchmark/adapters/README.md)\n"
    "  sim:MODEL-FILE[?region=SIZE&chunk=SIZE]    memory and compute servers in virtual time\n"
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
  app.add_option("--password-file", run.access.password_file,
                 "farleaf:, redis:, memcached: its first line is the server's password")
      ->type_name("FILE");
  CLI::Option* const tls =
      app.add_flag("--tls", run.access.tls, "farleaf: speak TLS with the compute server");
  // Whoever names a certificate does not mean the password to go in clear.
  app.add_option("--tls-ca", run.access.tls_ca_file,
                 "Who has to have signed its certificate; if not given, the machine's authorities")
      ->type_name("FILE")
      ->needs(tls);
  app.add_option("--tls-certificate", run.access.tls_certificate_file, "Of this client")
      ->type_name("FILE")
      ->needs(tls);
  app.add_option("--tls-key", run.access.tls_key_file, "Of this client's certificate")
      ->type_name("FILE")
      ->needs(tls);
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
  app.add_flag(
      "--sorted-leaves", run.sorted_leaves,
      "A tree of fixed8 that is created has sorted leaves, which are read whole, not parted "
      "ones");
  app.add_flag("--hashed-leaves", run.hashed_leaves,
               "The entries of parted leaves that this process writes are placed by a hash, not in "
               "the order of keys; not with client: targets");
  app.add_option("--leaf-bytes", run.leaf_bytes,
                 "Page of a leaf in a tree that is created; 0: the default of its layout")
      ->capture_default_str()
      ->check(CLI::Range(uint32_t{0}, index::kPageBytesMax));
  app.add_option("--node-bytes", run.node_bytes, "The same of an internal node")
      ->capture_default_str()
      ->check(CLI::Range(uint32_t{0}, index::kPageBytesMax));
  app.add_option("--cache", raw->cache, "Search-layer cache of the tree")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--cache-bytes", run.cache_bytes,
                 "The most memory that it is to take; 0: no bound")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{0}, uint64_t{1} << 50));
  app.add_option("--value-hint-bytes", run.value_hint_bytes,
                 "The most memory for where values out of line are, 26 bytes a value met; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{0}, index::kRememberedBytesMax));
  app.add_option("--value-list-bytes", run.value_list_bytes,
                 "The same for scans, some 12 bytes a value of the leaves scanned; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{0}, index::kRememberedBytesMax));
  app.add_option("--scan-leaves-max", run.scan_leaves_max,
                 "Leaves that a scan reads ahead in one round trip")
      ->capture_default_str()
      ->check(CLI::Range(uint32_t{1}, uint32_t{256}));
  app.add_option("--share-reads", raw->share_reads,
                 "Gets of a thread that want the same part of a leaf at a time share a READ")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--combine-writes", raw->combine_writes,
                 "Writes of a leaf that wait for its lock are written back together")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--hand-over", raw->hand_over,
                 "A leaf's lock goes on to another write of this process without the network")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option(
         "--in-place", raw->in_place,
         "Over shared memory, gets look at leaves where they are (values of byte strings are also "
         "replaced there)")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--small-write-backs", raw->small_write_backs,
                 "Of a page that is written to, what changed is written back, not all of it")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--back-off", raw->back_off,
                 "Who finds a page locked by another compute server waits longer each time")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--program", run.program,
                 "sim: the verb program of another design, its name or file")
      ->type_name("PROGRAM");
  app.add_option("--confidence", raw->confidence_percent,
                 "sim: the run phase goes on beyond operationcount until the 95 % confidence "
                 "interval of its throughput is within +-PERCENT; 0: operationcount is all (1)")
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

TargetOptions TargetOptionsOf(const CommandLine& line) {
  const RunConfiguration& run = line.configuration;
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
          .scans = line.phases.back() == Phase::kRun &&
                   run.workload.proportions[static_cast<size_t>(OpKind::kScan)] > 0,
          .access = run.access,
          .program = run.program,
          .records = run.workload.record_count,
          .skewed = run.workload.request_distribution == RequestDistribution::kZipfian ||
                    run.workload.request_distribution == RequestDistribution::kLatest};
}

/// Prints what the phase left to be said, and returns the exit code so far.
int Judge(const PhaseResult& result, const WorkloadOptions& workload, std::ostream& error) {
  for (const std::string& problem : result.problems) {
    error << "ycsb: " << PhaseName(result.phase) << ": " << problem << "\n";
  }
  const auto& inserts = result.kinds[static_cast<size_t>(OpKind::kInsert)];
  const uint64_t existing = inserts.returns[static_cast<size_t>(Return::kExists)];
  if (existing > 0 && !result.failed) {
    error << "ycsb: " << existing
          << " inserts found their key there already (Return=EXISTS): tree '" << workload.tree
          << "' holds more than recordcount=" << workload.record_count
          << " records; load a fresh tree for exact INSERT figures\n";
  }
  if (result.failed) return kExitFailed;
  return result.interrupted ? kExitInterrupted : kExitOk;
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
    code = Judge(results.back(), line.configuration.workload, *deps.error);
    if (code != kExitOk) break;
  }
  if (json->is_open()) {
    *json << ToJson(line.configuration, results).dump(2) << "\n";
    json->flush();
    if (!*json) {
      *deps.error << "ycsb: --json " << line.json_path << ": cannot be written\n";
      code = code == kExitOk ? kExitFailed : code;
    }
  }
  return code;
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
  line.configuration.cache = raw.cache == "on";
  line.configuration.share_reads = raw.share_reads == "on";
  line.configuration.combine_writes = raw.combine_writes == "on";
  line.configuration.hand_over = raw.hand_over == "on";
  line.configuration.in_place = raw.in_place == "on";
  line.configuration.small_write_backs = raw.small_write_backs == "on";
  line.configuration.back_off = raw.back_off == "on";
  line.cpu_clock = raw.clock == "cpu";
  if (line.cpu_clock && line.configuration.threads > 1) {
    return Status::InvalidArgument(
        "--clock cpu: CPU time is added up over threads: use --threads 1");
  }
  const bool simulated = line.configuration.target.starts_with("sim:");
  if (raw.confidence_percent && !simulated) {
    return Status::InvalidArgument("--confidence: only targets in virtual time (sim:) stop by it");
  }
  if (simulated) {
    line.configuration.confidence_percent =
        raw.confidence_percent.value_or(kSimulatedConfidencePercent);
    line.configuration.free_load = line.phases.size() > 1;
  }
  if (line.configuration.target.empty()) {
    return Status::InvalidArgument(
        "--target is missing: local:, pool:BOOTSTRAP-URL, farleaf://HOST:PORT, "
        "memcached://HOST:PORT, redis://HOST:PORT, lsm:DIR, rocksdb:DIR, blobdb:DIR or "
        "sim:MODEL-FILE");
  }
  FARLEAF_RETURN_IF_ERROR(ParseProperties(raw, &line));
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
  auto target = deps.open_target(line->configuration.target, TargetOptionsOf(*line), clock);
  if (!target.ok()) {
    *deps.error << "ycsb: --target " << line->configuration.target << ": " << target.status()
                << "\n";
    return target.status().code() == StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
  }
  const int code = RunPhases(*line, deps, clock, target->get(), &json);
  const Status closed = (*target)->Close();
  if (!closed.ok()) *deps.error << "ycsb: closing the target: " << closed << "\n";
  return code == kExitOk && !closed.ok() ? kExitFailed : code;
}

}  // namespace farleaf::ycsb
