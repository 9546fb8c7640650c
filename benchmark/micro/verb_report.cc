#include "benchmark/micro/verb_report.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

namespace farleaf::micro {

namespace {

/// The figures, in the units of the report.
struct Figures {
  double min_us, p50_us, p99_us, p999_us, max_us, mean_us;
  uint64_t operations, verbs;
  double operations_per_second, verbs_per_second, mib_per_second;
};

Figures FiguresOf(const VerbOptions& options, const VerbResult& result) {
  const auto us = [&](auto ticks) {
    return static_cast<double>(ticks) * result.ns_per_tick * 1e-3;
  };
  const auto quantile_us = [&](double quantile) { return us(result.ticks.Quantile(quantile)); };
  const uint64_t operations = result.ticks.count(), verbs = operations * options.batch;
  const double seconds = static_cast<double>(result.elapsed_ns) * 1e-9;
  const auto rate = [&](uint64_t count) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  };
  return {.min_us = us(result.ticks.min()),
          .p50_us = quantile_us(0.5),
          .p99_us = quantile_us(0.99),
          .p999_us = quantile_us(0.999),
          .max_us = us(result.ticks.max()),
          .mean_us = us(result.ticks.mean()),
          .operations = operations,
          .verbs = verbs,
          .operations_per_second = rate(operations),
          .verbs_per_second = rate(verbs),
          .mib_per_second = rate(verbs * options.bytes) / (1 << 20)};
}

}  // namespace

void PrintHead(std::ostream& out) {
  fmt::print(out,
             "{:<6} {:<9} {:>8} {:>6} {:>9} {:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9} "
             "{:>10}\n",
             "fabric", "verb", "bytes", "batch", "in flight", "loop", "min us", "p50 us", "p99 us",
             "p99.9 us", "mean us", "ops/s", "MiB/s", "verbs");
}

void PrintLine(const VerbOptions& options, const VerbResult& result, std::ostream& out) {
  const Figures figures = FiguresOf(options, result);
  fmt::print(out,
             "{:<6} {:<9} {:>8} {:>6} {:>9} {:<9} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} "
             "{:>11.0f} {:>9.1f} {:>10}\n",
             result.fabric, NameOf(options.verb), options.bytes, options.batch, options.in_flight,
             NameOf(options.loop), figures.min_us, figures.p50_us, figures.p99_us, figures.p999_us,
             figures.mean_us, figures.operations_per_second, figures.mib_per_second, figures.verbs);
}

nlohmann::ordered_json ToJson(const VerbOptions& options, const VerbResult& result) {
  using Json = nlohmann::ordered_json;
  const Figures figures = FiguresOf(options, result);
  const Json configuration = {{"fabric", result.fabric},
                              {"server", options.server},
                              {"verb", NameOf(options.verb)},
                              {"bytes", options.bytes},
                              {"batch", options.batch},
                              {"in_flight", options.in_flight},
                              {"threads", 1},
                              {"operations", options.operations},
                              {"seconds", options.seconds},
                              {"warmup", options.warmup},
                              {"span_bytes", options.span_bytes},
                              {"place", NameOf(options.place)},
                              {"driver", NameOf(options.loop)},
                              {"idle", NameOf(options.idle)},
                              {"loop", "closed"},
                              {"seed", options.seed}};
  const Json latency = {{"min", figures.min_us},   {"mean", figures.mean_us},
                        {"p50", figures.p50_us},   {"p99", figures.p99_us},
                        {"p999", figures.p999_us}, {"max", figures.max_us}};
  return {{"configuration", configuration},
          {"interrupted", result.interrupted},
          {"operations", figures.operations},
          {"verbs", figures.verbs},
          {"run_time_ms", static_cast<double>(result.elapsed_ns) * 1e-6},
          {"operations_per_second", figures.operations_per_second},
          {"verbs_per_second", figures.verbs_per_second},
          {"mib_per_second", figures.mib_per_second},
          {"latency_us", latency}};
}

}  // namespace farleaf::micro
