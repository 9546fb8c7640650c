#include "benchmark/ycsb/report.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include "benchmark/ycsb/hdr_codec.h"

namespace farleaf::ycsb {

namespace {

using Json = nlohmann::ordered_json;

struct Percentile {
  const char* text;  ///< YCSB's name of it
  const char* json;
  double quantile;
};
constexpr Percentile kPercentiles[] = {{"50thPercentileLatency(us)", "p50", 0.5},
                                       {"95thPercentileLatency(us)", "p95", 0.95},
                                       {"99thPercentileLatency(us)", "p99", 0.99},
                                       {"99.9PercentileLatency(us)", "p999", 0.999},
                                       {"99.99PercentileLatency(us)", "p9999", 0.9999}};

double Us(uint64_t ns) { return static_cast<double>(ns) * 1e-3; }

double PerOperation(uint64_t total, uint64_t operations) {
  return operations ? static_cast<double>(total) / static_cast<double>(operations) : 0;
}

void PrintKind(OpKind kind, const KindStats& stats, bool counts_fabric, std::ostream& out) {
  const uint64_t operations = stats.operations();
  if (operations == 0) return;
  const std::string_view name = OpKindName(kind);
  auto line = [&](std::string_view what, double value, int digits) {
    fmt::print(out, "[{}], {}, {:.{}f}\n", name, what, value, digits);
  };
  fmt::print(out, "[{}], Operations, {}\n", name, operations);
  line("AverageLatency(us)", stats.latency_ns.mean() * 1e-3, 3);
  line("MinLatency(us)", Us(stats.latency_ns.min()), 3);
  line("MaxLatency(us)", Us(stats.latency_ns.max()), 3);
  for (const Percentile& percentile : kPercentiles) {
    line(percentile.text, Us(stats.latency_ns.Quantile(percentile.quantile)), 3);
  }
  for (size_t i = 0; i < kReturns; ++i) {
    if (stats.returns[i] == 0) continue;
    fmt::print(out, "[{}], Return={}, {}\n", name, ReturnName(static_cast<Return>(i)),
               stats.returns[i]);
  }
  if (kind == OpKind::kScan) line("Rows/op", PerOperation(stats.rows, operations), 3);
  if (!counts_fabric) return;
  line("RoundTrips/op", PerOperation(stats.fabric.round_trips, operations), 4);
  line("Verbs/op", PerOperation(stats.fabric.verbs(), operations), 4);
  line("BytesRead/op", PerOperation(stats.fabric.bytes_read, operations), 1);
  line("BytesWritten/op", PerOperation(stats.fabric.bytes_written, operations), 1);
}

void PrintSimulation(const Json& simulation, std::ostream& out) {
  fmt::print(out, "[SIMULATION], Program, {}\n", simulation["program"].get<std::string>());
  fmt::print(out, "[SIMULATION], Events, {}\n", simulation["events"].get<uint64_t>());
  for (const auto& [name, share] : simulation["utilisation"].items()) {
    fmt::print(out, "[SIMULATION], Utilisation({}), {:.3f}\n", name, share.get<double>());
  }
}

/// What a store did, in names and numbers; `user_bytes` were read and written in the phase.
Json StoreToJson(const StoreUse& use, uint64_t user_bytes, uint64_t live_bytes) {
  Json json = Json::object();
  if (use.device) {
    json["DeviceBytesRead"] = use.device->bytes_read;
    json["DeviceBytesWritten"] = use.device->bytes_written();
    json["DeviceBytesCancelled"] = use.device->bytes_cancelled;
    json["DeviceBytesRead/UserByte"] = PerOperation(use.device->bytes_read, user_bytes);
    json["DeviceBytesWritten/UserByte"] = PerOperation(use.device->bytes_written(), user_bytes);
  }
  if (use.figures.contains("NetworkBytes")) {
    const auto network_bytes = use.figures["NetworkBytes"].get<uint64_t>();
    json["NetworkAmplification"] = PerOperation(user_bytes + network_bytes, user_bytes);
  }
  json["DirectoryBytes"] = use.directory_bytes;
  json["SpaceAmplification"] = PerOperation(use.directory_bytes, live_bytes);
  for (const auto& [name, value] : use.figures.items()) json[name] = value;
  return json;
}

Json StoreToJson(const PhaseResult& result) {
  const uint64_t read = result.user_bytes_read(), written = result.user_bytes_written();
  Json json;
  json["UserBytesRead"] = read;
  json["UserBytesWritten"] = written;
  json["LiveUserBytes"] = result.live_user_bytes;
  json.update(StoreToJson(*result.store, read + written, result.live_user_bytes));
  return json;
}

Json SettlingToJson(const PhaseResult& result) {
  const Settling& settling = *result.settling;
  Json json;
  json["Time(ms)"] = static_cast<double>(settling.elapsed_ns) * 1e-6;
  json["Quiet"] = settling.quiet ? 1 : 0;
  json["CpuTime(ms)"] = static_cast<double>(settling.cpu_ns) * 1e-6;
  const uint64_t user_bytes = result.user_bytes_read() + result.user_bytes_written();
  json.update(StoreToJson(settling.store, user_bytes, result.live_user_bytes));
  return json;
}

/// Numbers as they are, and ratios to three digits.
void PrintFigures(std::string_view section, const Json& json, std::ostream& out) {
  for (const auto& [name, value] : json.items()) {
    if (value.is_number_float()) {
      fmt::print(out, "[{}], {}, {:.3f}\n", section, name, value.get<double>());
    } else {
      fmt::print(out, "[{}], {}, {}\n", section, name, value.dump());
    }
  }
}

Json KindToJson(OpKind kind, const KindStats& stats, const PhaseResult& result) {
  const uint64_t operations = stats.operations();
  Json latency;
  latency["mean"] = stats.latency_ns.mean() * 1e-3;
  latency["min"] = Us(stats.latency_ns.min());
  for (const Percentile& percentile : kPercentiles) {
    latency[percentile.json] = Us(stats.latency_ns.Quantile(percentile.quantile));
  }
  latency["max"] = Us(stats.latency_ns.max());
  Json returns = Json::object();
  for (size_t i = 0; i < kReturns; ++i) {
    if (stats.returns[i] != 0) returns[ReturnName(static_cast<Return>(i))] = stats.returns[i];
  }
  Json json;
  json["count"] = operations;
  json["ops_per_second"] =
      result.elapsed_ns ? static_cast<double>(operations) / result.seconds() : 0;
  json["latency_us"] = std::move(latency);
  json["histogram"] = EncodeHistogram(stats.latency_ns.Sparse());
  json["returns"] = std::move(returns);
  if (kind == OpKind::kScan) json["rows_per_op"] = PerOperation(stats.rows, operations);
  if (!result.counts_fabric) return json;
  json["round_trips_per_op"] = PerOperation(stats.fabric.round_trips, operations);
  json["verbs_per_op"] = PerOperation(stats.fabric.verbs(), operations);
  json["atomics_per_op"] = PerOperation(stats.fabric.atomics, operations);
  json["bytes_read_per_op"] = PerOperation(stats.fabric.bytes_read, operations);
  json["bytes_written_per_op"] = PerOperation(stats.fabric.bytes_written, operations);
  return json;
}

Json PhaseToJson(const PhaseResult& result) {
  Json overall;
  overall["count"] = result.operations();
  overall["ops_per_second"] = result.ops_per_second();
  if (result.start_unix_ns > 0) {
    overall["start_unix_ms"] = static_cast<double>(result.start_unix_ns) * 1e-6;
  }
  overall["run_time_ms"] = static_cast<double>(result.elapsed_ns) * 1e-6;
  overall["cpu_ns_per_op"] = PerOperation(result.cpu_ns, result.operations());
  if (result.confidence_percent > 0) {
    overall["throughput_ci95_percent"] = result.confidence_percent;
  }
  overall["max_latency_us"] = Us(result.longest_latency_ns());
  if (result.longest_stall_ns > 0) overall["longest_stall_us"] = Us(result.longest_stall_ns);
  if (result.peak_resident_bytes > 0) overall["max_rss_bytes"] = result.peak_resident_bytes;
  overall["errors"] = result.errors();
  if (result.unverified_values > 0) overall["unverified_values"] = result.unverified_values;
  overall["warmup_operations"] = result.warmup_operations;
  overall["interrupted"] = result.interrupted;
  overall["failed"] = result.failed;
  overall["problems"] = result.problems;
  if (result.pool_bytes_used > 0) {
    overall["pool_bytes_used"] = result.pool_bytes_used;
    overall["pool_bytes_grown"] = result.pool_bytes_grown;
  }
  Json operations = Json::object();
  for (size_t i = 0; i < kOpKinds; ++i) {
    if (result.kinds[i].operations() == 0) continue;
    const auto kind = static_cast<OpKind>(i);
    operations[std::string(OpKindName(kind))] = KindToJson(kind, result.kinds[i], result);
  }
  Json json = {{"overall", std::move(overall)}, {"operations", std::move(operations)}};
  if (result.series) json["series"] = SeriesToJson(*result.series);
  if (!result.cache.is_null()) json["cache"] = result.cache;
  if (result.store) json["store"] = StoreToJson(result);
  if (result.settling) json["settle"] = SettlingToJson(result);
  if (!result.simulation.is_null()) json["simulation"] = result.simulation;
  return json;
}

void DistributionToJson(const WorkloadOptions& workload, Json* json) {
  const bool shifts = workload.request_distribution == RequestDistribution::kShiftingHotSpot;
  if (shifts || workload.request_distribution == RequestDistribution::kHotSpot) {
    (*json)["hot_data_fraction"] = workload.hot_data_fraction;
    (*json)["hot_operation_fraction"] = workload.hot_operation_fraction;
  }
  if (shifts) (*json)["hot_shift_operations"] = workload.hot_shift_operations;
  if (workload.request_distribution == RequestDistribution::kExponential) {
    (*json)["exponential_percentile"] = workload.exponential_percentile;
    (*json)["exponential_fraction"] = workload.exponential_fraction;
  }
}

Json ConfigurationToJson(const RunConfiguration& configuration) {
  const WorkloadOptions& workload = configuration.workload;
  Json mix;
  for (size_t i = 0; i < kOpKinds; ++i) {
    mix[std::string(OpKindName(static_cast<OpKind>(i)))] = workload.proportions[i];
  }
  Json json;
  json["target"] = configuration.target;
  if (!configuration.program.empty()) json["program"] = configuration.program;
  json["threads"] = configuration.threads;
  json["in_flight"] = configuration.in_flight;
  json["loop"] = configuration.open_loop() ? "open" : "closed";
  json["rate_ops_per_second"] = configuration.rate;
  json["warmup"] = configuration.warmup;
  if (configuration.settle_s > 0) json["settle_s"] = configuration.settle_s;
  json["cache"] = configuration.cache;
  json["share_reads"] = configuration.share_reads;
  json["combine_writes"] = configuration.combine_writes;
  json["hand_over"] = configuration.hand_over;
  json["in_place"] = configuration.in_place;
  json["small_write_backs"] = configuration.small_write_backs;
  json["back_off"] = configuration.back_off;
  json["learn_splits"] = configuration.learn_splits;
  if (configuration.cache_bytes != 0) json["cache_bytes"] = configuration.cache_bytes;
  const index::TreeOptions usual;
  const auto unless_usual = [&json](const char* name, uint64_t value, uint64_t usual_value) {
    if (value != usual_value) json[name] = value;
  };
  unless_usual("value_hint_bytes", configuration.value_hint_bytes, usual.value_hint_bytes);
  unless_usual("value_list_bytes", configuration.value_list_bytes, usual.value_list_bytes);
  unless_usual("scan_leaves_max", configuration.scan_leaves_max, usual.scan_leaves_max);
  if (configuration.sorted_leaves) json["leaf_layout"] = "sorted";
  if (configuration.hashed_leaves) json["leaf_placement"] = "hashed";
  if (configuration.leaf_bytes != 0) json["leaf_bytes"] = configuration.leaf_bytes;
  if (configuration.node_bytes != 0) json["node_bytes"] = configuration.node_bytes;
  if (configuration.confidence_percent > 0) {
    json["confidence_percent"] = configuration.confidence_percent;
    json["operations_max"] = configuration.operations_max;
  }
  json["tree"] = workload.tree;
  json["keys"] = workload.key_layout_name();
  if (workload.kv_mix == KvMix::kNone) {
    json["value_bytes"] = workload.value_bytes();
  } else {
    json["kv_mix"] = KvMixName(workload.kv_mix);
    json["pair_bytes_mean"] = MeanPairBytes(workload.kv_mix);
  }
  json["record_count"] = workload.record_count;
  json["operation_count"] = workload.operation_count;
  json["request_distribution"] = workload.request_distribution_name();
  if (workload.zipfian_ranks == ZipfianRanks::kRecords) json["zipfian_ranks"] = "records";
  if (configuration.trace) {
    json["trace"] = {{"file", configuration.trace->file},
                     {"timed", configuration.trace->timed},
                     {"last_at_us", configuration.trace->last_at_us}};
  } else {
    DistributionToJson(workload, &json);
  }
  json["insert_order"] = workload.insert_order == InsertOrder::kHashed ? "hashed" : "ordered";
  json["scan_length"] = {workload.scan_length_min, workload.scan_length_max};
  json["proportions"] = std::move(mix);
  return json;
}

}  // namespace

void PrintText(const RunConfiguration& configuration, const PhaseResult& result,
               std::ostream& out) {
  fmt::print(out, "# phase {}: target {}, {} threads x {} in flight, {} loop, seed {}{}\n",
             PhaseName(result.phase), configuration.target, configuration.threads,
             configuration.in_flight, configuration.open_loop() ? "open" : "closed",
             configuration.seed, result.interrupted ? ", interrupted" : "");
  fmt::print(out, "[OVERALL], RunTime(ms), {}\n", result.elapsed_ns / 1'000'000);
  fmt::print(out, "[OVERALL], Throughput(ops/sec), {:.1f}\n", result.ops_per_second());
  fmt::print(out, "[OVERALL], CpuTime(ns/op), {:.1f}\n",
             PerOperation(result.cpu_ns, result.operations()));
  fmt::print(out, "[OVERALL], MaxLatency(us), {:.3f}\n", Us(result.longest_latency_ns()));
  if (result.longest_stall_ns > 0) {
    fmt::print(out, "[OVERALL], LongestStall(us), {:.3f}\n", Us(result.longest_stall_ns));
  }
  if (result.peak_resident_bytes > 0) {
    fmt::print(out, "[OVERALL], MaxRss(bytes), {}\n", result.peak_resident_bytes);
  }
  fmt::print(out, "[OVERALL], Errors, {}\n", result.errors());
  if (result.unverified_values > 0) {
    fmt::print(out, "[OVERALL], UnverifiedValues, {}\n", result.unverified_values);
  }
  if (result.confidence_percent > 0) {
    fmt::print(out, "[OVERALL], ThroughputCI95(+-%), {:.3f}\n", result.confidence_percent);
  }
  if (result.interrupted) fmt::print(out, "[OVERALL], Interrupted, 1\n");
  if (result.pool_bytes_used > 0) {
    fmt::print(out, "[POOL], BytesUsed, {}\n", result.pool_bytes_used);
    const uint64_t inserts = result.kinds[static_cast<size_t>(OpKind::kInsert)].operations();
    if (result.phase == Phase::kLoad && inserts > 0) {
      fmt::print(out, "[POOL], BytesUsed/key, {:.2f}\n",
                 PerOperation(result.pool_bytes_grown, inserts));
    }
  }
  for (const auto& [name, value] : result.cache.items()) {
    fmt::print(out, "[CACHE], {}, {}\n", name, value.dump());
  }
  if (result.store) PrintFigures("STORE", StoreToJson(result), out);
  if (result.settling) PrintFigures("SETTLE", SettlingToJson(result), out);
  if (!result.simulation.is_null()) PrintSimulation(result.simulation, out);
  for (size_t i = 0; i < kOpKinds; ++i) {
    PrintKind(static_cast<OpKind>(i), result.kinds[i], result.counts_fabric, out);
  }
}

nlohmann::ordered_json ToJson(const RunConfiguration& configuration,
                              std::span<const PhaseResult> phases) {
  return ToJson(ConfigurationToJson(configuration), configuration.seed, phases);
}

nlohmann::ordered_json ToJson(nlohmann::ordered_json configuration, uint64_t seed,
                              std::span<const PhaseResult> phases) {
  Json json;
  json["configuration"] = std::move(configuration);
  json["seed"] = seed;
  json["phases"] = Json::object();
  for (const PhaseResult& phase : phases) {
    Json one = PhaseToJson(phase);
    json["overall"] = one["overall"];
    json["operations"] = one["operations"];
    json["phases"][std::string(PhaseName(phase.phase))] = std::move(one);
  }
  return json;
}

nlohmann::ordered_json ToJson(const RunConfiguration& configuration) {
  return ConfigurationToJson(configuration);
}

nlohmann::ordered_json ToJson(const PhaseResult& phase) { return PhaseToJson(phase); }

}  // namespace farleaf::ycsb
