#include "benchmark/ycsb/merge.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <set>

#include "benchmark/ycsb/command.h"
#include "benchmark/ycsb/read_result.h"
#include "benchmark/ycsb/report.h"
#include "benchmark/ycsb/result_files.h"

namespace farleaf::ycsb {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kProblemsKept = 5;
// What processes of one workload share; everything else in their configurations must be the same.
constexpr std::array kSums = {"threads", "rate_ops_per_second", "operation_count", "warmup"};
constexpr const char* kTarget = "target";  // each may have its own server

bool IsSum(const std::string& name) {
  return std::find(kSums.begin(), kSums.end(), name) != kSums.end();
}

uint64_t EndNs(const PhaseResult& phase) { return phase.start_unix_ns + phase.elapsed_ns; }

Status CompareConfigurations(const NamedResult& first, const NamedResult& other) {
  Json names = first.json["configuration"];
  names.update(other.json["configuration"]);
  for (const auto& [name, unused] : names.items()) {
    const auto value_in = [&name = name](const NamedResult& result) {
      const Json& configuration = result.json["configuration"];
      return configuration.contains(name) ? configuration[name] : Json();
    };
    const Json expected = value_in(first), found = value_in(other);
    if (IsSum(name) && expected.is_number() && found.is_number()) continue;
    if (name == kTarget || expected == found) continue;
    return Status::InvalidArgument(other.name + ": configuration." + name + " is " + found.dump() +
                                   ", but " + expected.dump() + " in " + first.name +
                                   ": only results of one workload can be merged");
  }
  return Status::Ok();
}

Json MergeConfigurations(std::span<const NamedResult> results) {
  Json merged = results.front().json["configuration"];
  for (const char* name : kSums) {
    if (!merged.contains(name) || !merged[name].is_number()) continue;
    for (const NamedResult& result : results.subspan(1)) {
      const Json& value = result.json["configuration"][name];
      if (value.is_number_float() || merged[name].is_number_float()) {
        merged[name] = merged[name].get<double>() + value.get<double>();
      } else {
        merged[name] = merged[name].get<uint64_t>() + value.get<uint64_t>();
      }
    }
  }
  std::set<std::string> targets;
  for (const NamedResult& result : results) {
    const Json target = result.json["configuration"].value(kTarget, Json());
    if (target.is_string()) targets.insert(target.get<std::string>());
  }
  if (targets.size() > 1) merged["targets"] = targets;
  return merged;
}

/// Of one that was merged before: its processes'.
std::vector<uint64_t> SeedsOf(const Json& result) {
  std::vector<uint64_t> seeds;
  Json told = result.value("seeds", Json::array());
  if (told.empty() && result.contains("seed")) told.push_back(result["seed"]);
  for (const Json& seed : told) {
    if (seed.is_number_unsigned()) seeds.push_back(seed.get<uint64_t>());
  }
  return seeds;
}

// --- phases ---

/// The processes' intervals lie where the nearest of the first one's would.
Result<TimeSeries> MergeSeries(std::span<const PhaseResult* const> phases) {
  const uint64_t interval_ns = phases.front()->series->interval_ns;
  uint64_t start_ns = UINT64_MAX;
  for (const PhaseResult* phase : phases) start_ns = std::min(start_ns, phase->start_unix_ns);
  TimeSeries merged{.interval_ns = interval_ns, .elapsed_ns = 0, .intervals = {}};
  std::vector<uint64_t> shifts;
  size_t intervals = 0;
  for (const PhaseResult* phase : phases) {
    if (!phase->series || phase->series->interval_ns != interval_ns) {
      return Status::InvalidArgument("not all were measured with the same --interval");
    }
    const uint64_t shift = (phase->start_unix_ns - start_ns + interval_ns / 2) / interval_ns;
    if (shift > kIntervalsMax) {
      return Status::InvalidArgument("the processes began more than " +
                                     std::to_string(kIntervalsMax) + " intervals apart");
    }
    shifts.push_back(shift);
    merged.elapsed_ns = std::max(merged.elapsed_ns, shift * interval_ns + phase->elapsed_ns);
    intervals = std::max(intervals, shift + phase->series->intervals.size());
  }
  merged.intervals.resize(intervals);
  Histogram together;
  for (size_t interval = 0; interval < intervals; ++interval) {
    for (size_t i = 0; i < kOpKinds; ++i) {
      IntervalStats& sum = merged.intervals[interval][i];
      for (size_t p = 0; p < phases.size(); ++p) {
        const auto& own = phases[p]->series->intervals;
        if (interval < shifts[p] || interval - shifts[p] >= own.size()) continue;
        const IntervalStats& part = own[interval - shifts[p]][i];
        sum.failures += part.failures;
        together.Merge(part.latency_ns);
      }
      sum.latency_ns = together.Sparse();
      together.Clear();
    }
  }
  return merged;
}

PhaseResult Together(std::span<const PhaseResult* const> phases) {
  PhaseResult merged;
  merged.phase = phases.front()->phase;
  merged.start_unix_ns = UINT64_MAX;
  uint64_t end_ns = 0;
  for (const PhaseResult* phase : phases) {
    merged.start_unix_ns = std::min(merged.start_unix_ns, phase->start_unix_ns);
    end_ns = std::max(end_ns, EndNs(*phase));
    for (size_t i = 0; i < kOpKinds; ++i) merged.kinds[i].Merge(phase->kinds[i]);
    merged.cpu_ns += phase->cpu_ns;
    merged.warmup_operations += phase->warmup_operations;
    merged.peak_resident_bytes += phase->peak_resident_bytes;
    merged.interrupted |= phase->interrupted;
    merged.failed |= phase->failed;
    merged.counts_fabric &= phase->counts_fabric;
    // Of the one pool that they share: each saw the others' part, too.
    merged.pool_bytes_used = std::max(merged.pool_bytes_used, phase->pool_bytes_used);
    merged.pool_bytes_grown = std::max(merged.pool_bytes_grown, phase->pool_bytes_grown);
    for (const std::string& problem : phase->problems) {
      if (merged.problems.size() < kProblemsKept) merged.problems.push_back(problem);
    }
  }
  merged.elapsed_ns = end_ns - merged.start_unix_ns;
  return merged;
}

double OverlapOf(std::span<const PhaseResult* const> phases, const PhaseResult& merged) {
  uint64_t last_start_ns = 0, first_end_ns = UINT64_MAX;
  for (const PhaseResult* phase : phases) {
    last_start_ns = std::max(last_start_ns, phase->start_unix_ns);
    first_end_ns = std::min(first_end_ns, EndNs(*phase));
  }
  if (first_end_ns <= last_start_ns || merged.elapsed_ns == 0) return 0;
  return static_cast<double>(first_end_ns - last_start_ns) / static_cast<double>(merged.elapsed_ns);
}

Status MergePhase(std::span<const PhaseResult* const> phases, MergedResults* merged) {
  PhaseResult together = Together(phases);
  const bool any_series = std::any_of(phases.begin(), phases.end(),
                                      [](const PhaseResult* phase) { return phase->series; });
  if (any_series && !phases.front()->series) {
    return Status::InvalidArgument("not all were measured with the same --interval");
  }
  if (any_series) {
    auto series = MergeSeries(phases);
    if (!series.ok()) return series.status();
    together.series = std::move(*series);
  }
  merged->overlaps.push_back(OverlapOf(phases, together));
  merged->phases.push_back(std::move(together));
  return Status::Ok();
}

Result<std::vector<PhaseResult>> ReadOne(const NamedResult& result) {
  auto phases = ReadPhases(result.json);
  if (!phases.ok()) return phases.status().WithContext(result.name);
  for (const PhaseResult& phase : *phases) {
    if (phase.start_unix_ns != 0) continue;
    return Status::InvalidArgument(
        result.name + ": phases." + std::string(PhaseName(phase.phase)) +
        ".overall has no start_unix_ms: results of virtual or CPU time cannot be merged");
  }
  if (!result.json.contains("configuration") || !result.json["configuration"].is_object()) {
    return Status::InvalidArgument(result.name + ": it has no configuration");
  }
  return phases;
}

}  // namespace

Result<MergedResults> MergeResults(std::span<const NamedResult> results) {
  MergedResults merged;
  std::vector<std::vector<PhaseResult>> read;
  for (const NamedResult& result : results) {
    auto phases = ReadOne(result);
    if (!phases.ok()) return phases.status();
    FARLEAF_RETURN_IF_ERROR(CompareConfigurations(results.front(), result));
    read.push_back(std::move(*phases));
    if (!std::equal(read.front().begin(), read.front().end(), read.back().begin(),
                    read.back().end(), [](const PhaseResult& a, const PhaseResult& b) {
                      return a.phase == b.phase;
                    })) {
      return Status::InvalidArgument(result.name + ": it has not the phases of " +
                                     results.front().name);
    }
    for (const uint64_t seed : SeedsOf(result.json)) merged.seeds.push_back(seed);
  }
  merged.configuration = MergeConfigurations(results);
  for (size_t i = 0; i < read.front().size(); ++i) {
    std::vector<const PhaseResult*> phases;
    for (const auto& one : read) phases.push_back(&one[i]);
    const Status status = MergePhase(phases, &merged);
    if (!status.ok()) {
      return status.WithContext("phases." + std::string(PhaseName(read.front()[i].phase)));
    }
  }
  return merged;
}

Json MergedResults::ToJson() const {
  Json json = ycsb::ToJson(configuration, seeds.empty() ? 0 : seeds.front(), phases);
  json["processes"] = seeds.size();
  json["seeds"] = seeds;
  for (size_t i = 0; i < phases.size(); ++i) {
    Json& phase = json["phases"][std::string(PhaseName(phases[i].phase))];
    phase["overall"]["overlap_percent"] = overlaps[i] * 100;
    json["overall"] = phase["overall"];
  }
  return json;
}

void MergedResults::PrintText(std::ostream& out) const {
  RunConfiguration shown;
  const auto number = [this](const char* name) {
    return configuration.contains(name) && configuration[name].is_number()
               ? configuration[name].get<double>()
               : 0;
  };
  if (configuration.contains(kTarget) && configuration[kTarget].is_string()) {
    shown.target = configuration[kTarget].get<std::string>();
  }
  shown.threads = static_cast<uint64_t>(number("threads"));
  shown.in_flight = static_cast<uint64_t>(number("in_flight"));
  shown.rate = number("rate_ops_per_second");
  shown.seed = seeds.empty() ? 0 : seeds.front();
  for (size_t i = 0; i < phases.size(); ++i) {
    ycsb::PrintText(shown, phases[i], out);
    out << "[PROCESSES], Count, " << seeds.size() << "\n[PROCESSES], Overlap(%), "
        << std::llround(overlaps[i] * 100) << "\n";
  }
}

namespace {

Status ReadFiles(std::span<const std::string> paths, std::vector<NamedResult>* results) {
  for (const std::string& path : paths) {
    std::ifstream file(path);
    if (!file) return Status::InvalidArgument(path + ": cannot be opened for reading");
    Json json = Json::parse(file, nullptr, false);
    if (json.is_discarded()) return Status::InvalidArgument(path + ": it is not JSON");
    results->push_back({path, std::move(json)});
  }
  return Status::Ok();
}

}  // namespace

int RunMerge(std::span<const std::string> arguments, std::ostream& out, std::ostream& error) {
  std::string out_path, hdr_log_path;
  std::vector<std::string> in_paths;
  CLI::App app("Several processes' results of one workload, as one result.", "ycsb merge");
  app.add_option("OUT.json", out_path, "The merged result")->required();
  app.add_option("IN.json", in_paths, "Results of ycsb --json, of a process or merged before")
      ->required();
  app.add_option("--hdr-log", hdr_log_path, "Write HdrHistogram's log there")->type_name("FILE");
  const auto refuse = [&error](const std::string& message) {
    error << "ycsb merge: " << message << "\nTry ycsb merge --help.\n";
    return kExitUsage;
  };
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    out << app.help();
    return kExitOk;
  } catch (const CLI::ParseError& failure) {
    return refuse(failure.what());
  }
  // Forgetting OUT.json would else cost the first result.
  if (std::ifstream(out_path)) return refuse(out_path + " is there already: remove it first");
  std::vector<NamedResult> results;
  const Status read = ReadFiles(in_paths, &results);
  if (!read.ok()) return refuse(std::string(read.message()));
  const auto merged = MergeResults(results);
  if (!merged.ok()) return refuse(std::string(merged.status().message()));
  if (std::set(merged->seeds.begin(), merged->seeds.end()).size() < merged->seeds.size()) {
    error << "ycsb merge: warning: two processes had the same seed, and drew the same operations: "
             "give each its own --seed\n";
  }
  if (std::find(merged->overlaps.begin(), merged->overlaps.end(), 0) != merged->overlaps.end()) {
    error << "ycsb merge: warning: the processes were never all measuring at a time, and their "
             "throughput is no one system's\n";
  }
  ResultFiles files;
  Status written = files.Open(out_path, hdr_log_path);
  if (!written.ok()) return refuse(std::string(written.message()));
  written = files.Write(merged->ToJson(), merged->phases);
  if (!written.ok()) {
    error << "ycsb merge: " << written.message() << "\n";
    return kExitFailed;
  }
  merged->PrintText(out);
  return kExitOk;
}

}  // namespace farleaf::ycsb
