#include "benchmark/ycsb/read_result.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "benchmark/ycsb/hdr_codec.h"

namespace farleaf::ycsb {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kWholeMax = 9e18;  // what a uint64_t holds in any case

Status Refuse(const std::string& where, std::string_view what) {
  return Status::InvalidArgument(where + ": " + std::string(what));
}

/// A whole number that was divided by `unit`.
Result<uint64_t> Whole(const Json& json, const char* name, double unit, const std::string& where) {
  const bool is_number = json.contains(name) && json[name].is_number();
  const double value = is_number ? json[name].get<double>() : -1;
  if (value >= 0 && value * unit < kWholeMax) {
    return static_cast<uint64_t>(std::llround(value * unit));
  }
  return Refuse(where, std::string("expected a number of 0 or more as ") + name);
}

Result<SparseHistogram> ReadHistogram(const Json& json, const std::string& where) {
  if (!json.contains("histogram") || !json["histogram"].is_string()) {
    return Refuse(where, "has no histogram: measure again with this version of ycsb");
  }
  auto histogram = DecodeHistogram(json["histogram"].get_ref<const std::string&>());
  if (!histogram.ok()) return histogram.status().WithContext(where + ".histogram");
  return histogram;
}

/// The largest value, which the buckets know to within their width only.
Status ReadMax(const Json& json, const char* name, const std::string& where,
               SparseHistogram* histogram) {
  auto max = Whole(json, name, 1e3, where);
  if (!max.ok()) return max.status();
  if (Histogram::BucketOf(*max) != histogram->buckets.back().index) {
    return Refuse(where, std::string(name) + " is not in the histogram's last bucket");
  }
  histogram->max = *max;
  return Status::Ok();
}

Status ReadLatencies(const Json& json, const std::string& where, Histogram* latency_ns) {
  auto histogram = ReadHistogram(json, where);
  if (!histogram.ok()) return histogram.status();
  if (histogram->buckets.empty()) return Status::Ok();
  if (!json.contains("latency_us") || !json["latency_us"].is_object()) {
    return Refuse(where, "has no latency_us");
  }
  const Json& latency = json["latency_us"];
  FARLEAF_RETURN_IF_ERROR(ReadMax(latency, "max", where + ".latency_us", &*histogram));
  auto min = Whole(latency, "min", 1e3, where + ".latency_us");
  if (!min.ok()) return min.status();
  const double operations = static_cast<double>(histogram->count());
  auto sum = Whole(latency, "mean", 1e3 * operations, where + ".latency_us");
  if (!sum.ok()) return sum.status();
  if (Histogram::BucketOf(*min) != histogram->buckets.front().index) {
    return Refuse(where, "latency_us.min is not in the histogram's first bucket");
  }
  histogram->min = *min;
  histogram->sum = *sum;
  latency_ns->Merge(*histogram);
  return Status::Ok();
}

Status ReadReturns(const Json& json, const std::string& where, KindStats* stats) {
  if (!json.contains("returns") || !json["returns"].is_object()) {
    return Refuse(where, "has no returns");
  }
  for (const auto& [name, times] : json["returns"].items()) {
    size_t i = 0;
    while (i < kReturns && ReturnName(static_cast<Return>(i)) != name) ++i;
    if (i == kReturns) return Refuse(where, "unknown return " + name);
    auto count = Whole(json["returns"], name.c_str(), 1, where + ".returns");
    if (!count.ok()) return count.status();
    stats->returns[i] = *count;
  }
  return Status::Ok();
}

Status ReadFabric(const Json& json, const std::string& where, KindStats* stats) {
  const auto operations = static_cast<double>(stats->operations());
  dsm::FabricCounts& fabric = stats->fabric;
  struct {
    const char* name;
    uint64_t* count;
  } const fields[] = {{"round_trips_per_op", &fabric.round_trips},
                      {"verbs_per_op", &fabric.reads},  // READs and WRITEs are told together
                      {"atomics_per_op", &fabric.atomics},
                      {"bytes_read_per_op", &fabric.bytes_read},
                      {"bytes_written_per_op", &fabric.bytes_written}};
  for (const auto& field : fields) {
    auto count = Whole(json, field.name, operations, where);
    if (!count.ok()) return count.status();
    *field.count = *count;
  }
  fabric.reads -= std::min(fabric.reads, fabric.atomics);
  return Status::Ok();
}

Status ReadKind(const Json& json, const std::string& where, PhaseResult* phase, KindStats* stats) {
  FARLEAF_RETURN_IF_ERROR(ReadReturns(json, where, stats));
  FARLEAF_RETURN_IF_ERROR(ReadLatencies(json, where, &stats->latency_ns));
  if (stats->latency_ns.count() + stats->errors() != stats->operations()) {
    return Refuse(where, "its histogram is not of as many operations as its returns");
  }
  const auto operations = static_cast<double>(stats->operations());
  if (json.contains("rows_per_op")) {
    auto rows = Whole(json, "rows_per_op", operations, where);
    if (!rows.ok()) return rows.status();
    stats->rows = *rows;
  }
  phase->counts_fabric = json.contains("round_trips_per_op");
  return phase->counts_fabric ? ReadFabric(json, where, stats) : Status::Ok();
}

Status ReadInterval(const Json& row, const std::string& where, IntervalStats* stats) {
  auto operations = Whole(row, "operations", 1, where);
  auto failures = Whole(row, "failures", 1, where);
  if (!operations.ok()) return operations.status();
  if (!failures.ok()) return failures.status();
  stats->failures = *failures;
  if (*operations > *failures) {
    auto histogram = ReadHistogram(row, where);
    if (!histogram.ok()) return histogram.status();
    stats->latency_ns = std::move(*histogram);
    if (!stats->latency_ns.buckets.empty()) {
      FARLEAF_RETURN_IF_ERROR(ReadMax(row, "max_us", where, &stats->latency_ns));
    }
  }
  if (stats->operations() == *operations) return Status::Ok();
  return Refuse(where, "its histogram is not of as many operations as it tells");
}

Result<TimeSeries> ReadSeries(const Json& json, uint64_t elapsed_ns, const std::string& where) {
  TimeSeries series{.interval_ns = 0, .elapsed_ns = elapsed_ns, .intervals = {}};
  auto interval_ns = Whole(json, "interval_s", 1e9, where);
  if (!interval_ns.ok()) return interval_ns.status();
  if (*interval_ns < kIntervalNsMin) return Refuse(where, "interval_s is too short");
  series.interval_ns = *interval_ns;
  if (elapsed_ns > 0) {
    series.intervals.resize(std::min((elapsed_ns - 1) / *interval_ns + 1, kIntervalsMax));
  }
  for (const auto& [name, rows] : json.items()) {
    const auto kind = OpKindNamed(name);
    if (!kind) continue;
    const std::string of_kind = where + "." + name;
    if (!rows.is_array() || rows.size() != series.intervals.size()) {
      return Refuse(of_kind, "has not as many intervals as the phase's run time");
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      FARLEAF_RETURN_IF_ERROR(ReadInterval(rows[i], of_kind + "[" + std::to_string(i) + "]",
                                           &series.intervals[i][static_cast<size_t>(*kind)]));
    }
  }
  return series;
}

Status ReadOverall(const Json& overall, const std::string& where, PhaseResult* phase) {
  const auto flag = [&overall](const char* name) {
    return overall.contains(name) && overall[name].is_boolean() && overall[name].get<bool>();
  };
  phase->interrupted = flag("interrupted");
  phase->failed = flag("failed");
  if (overall.contains("problems") && overall["problems"].is_array()) {
    for (const Json& problem : overall["problems"]) {
      if (problem.is_string()) phase->problems.push_back(problem.get<std::string>());
    }
  }
  struct {
    const char* name;
    uint64_t* value;
    double unit;
    bool must_be;
  } const fields[] = {
      {"start_unix_ms", &phase->start_unix_ns, 1e6, false},
      {"run_time_ms", &phase->elapsed_ns, 1e6, true},
      {"cpu_ns_per_op", &phase->cpu_ns, static_cast<double>(phase->operations()), true},
      {"warmup_operations", &phase->warmup_operations, 1, true},
      {"max_rss_bytes", &phase->peak_resident_bytes, 1, false},
      {"pool_bytes_used", &phase->pool_bytes_used, 1, false},
      {"pool_bytes_grown", &phase->pool_bytes_grown, 1, false}};
  for (const auto& field : fields) {
    if (!field.must_be && !overall.contains(field.name)) continue;
    auto value = Whole(overall, field.name, field.unit, where);
    if (!value.ok()) return value.status();
    *field.value = *value;
  }
  return Status::Ok();
}

Result<PhaseResult> ReadPhase(const std::string& name, const Json& json) {
  const std::string where = "phases." + name;
  PhaseResult phase;
  if (name != PhaseName(Phase::kLoad) && name != PhaseName(Phase::kRun)) {
    return Refuse(where, "there is no such phase");
  }
  phase.phase = name == PhaseName(Phase::kLoad) ? Phase::kLoad : Phase::kRun;
  if (!json.contains("overall") || !json.contains("operations")) {
    return Refuse(where, "expected overall and operations");
  }
  for (const auto& [kind_name, stats] : json["operations"].items()) {
    const auto kind = OpKindNamed(kind_name);
    const std::string of_kind = where + ".operations." + kind_name;
    if (!kind) return Refuse(of_kind, "there is no such operation");
    FARLEAF_RETURN_IF_ERROR(
        ReadKind(stats, of_kind, &phase, &phase.kinds[static_cast<size_t>(*kind)]));
  }
  FARLEAF_RETURN_IF_ERROR(ReadOverall(json["overall"], where + ".overall", &phase));
  if (!json.contains("series")) return phase;
  auto series = ReadSeries(json["series"], phase.elapsed_ns, where + ".series");
  if (!series.ok()) return series.status();
  phase.series = std::move(*series);
  return phase;
}

}  // namespace

Result<std::vector<PhaseResult>> ReadPhases(const Json& result) {
  if (!result.is_object() || !result.contains("phases") || !result["phases"].is_object() ||
      result["phases"].empty()) {
    return Status::InvalidArgument("no result of ycsb: it has no phases");
  }
  std::vector<PhaseResult> phases;
  for (const auto& [name, json] : result["phases"].items()) {
    auto phase = ReadPhase(name, json);
    if (!phase.ok()) return phase.status();
    phases.push_back(std::move(*phase));
  }
  return phases;
}

}  // namespace farleaf::ycsb
