#include "benchmark/ycsb/comparison.h"

#include <fmt/format.h>
#include <fmt/ostream.h>

namespace farleaf::ycsb {

namespace {

using Json = nlohmann::ordered_json;

struct ComparedPercentile {
  const char* name;
  const char* title;
  double quantile;
  uint64_t operations_min;
};
constexpr ComparedPercentile kComparedPercentiles[] = {
    {"p50", "p50", 0.5, 2}, {"p99", "p99", 0.99, 100}, {"p999", "p99.9", 0.999, 1000}};

Figure Throughput() { return {"ops_per_second", "throughput (ops/s)"}; }
Figure CpuTime() { return {"cpu_ns_per_op", "CPU time (ns/op)"}; }
Figure Latency(OpKind kind, const ComparedPercentile& percentile) {
  const std::string name(OpKindName(kind));
  return {name + ".latency_us." + percentile.name, name + " " + percentile.title + " (us)"};
}

/// In the order of the table; without values.
std::vector<Figure> AllFigures() {
  std::vector<Figure> all = {Throughput(), CpuTime()};
  for (size_t i = 0; i < kOpKinds; ++i) {
    for (const ComparedPercentile& percentile : kComparedPercentiles) {
      all.push_back(Latency(static_cast<OpKind>(i), percentile));
    }
  }
  return all;
}

std::optional<double> ValueOf(const std::vector<Figure>& figures, const std::string& name) {
  for (const Figure& figure : figures) {
    if (figure.name == name) return figure.value;
  }
  return std::nullopt;
}

std::string_view Finding(const PairedRatio& compared) {
  if (!compared.interval) return "";
  if (!compared.difference_shown()) return "no difference shown";
  return compared.ratio > 1 ? "A higher" : "A lower";
}

Json FigureToJson(const PairedRatio& compared) {
  Json json;
  json["rounds"] = compared.rounds;
  json["target_median"] = compared.target_median;
  json["against_median"] = compared.against_median;
  json["ratio"] = compared.ratio;
  json["ci95"] = nullptr;
  json["difference_shown"] = nullptr;
  if (compared.interval) {
    json["ci95"] = {compared.interval->low, compared.interval->high};
    json["difference_shown"] = compared.difference_shown();
  }
  return json;
}

}  // namespace

std::vector<Figure> FiguresOf(const PhaseResult& result) {
  const uint64_t operations = result.operations();
  if (operations == 0) return {};
  std::vector<Figure> figures = {Throughput(), CpuTime()};
  figures[0].value = result.ops_per_second();
  figures[1].value = static_cast<double>(result.cpu_ns) / static_cast<double>(operations);
  for (size_t i = 0; i < kOpKinds; ++i) {
    const Histogram& latency_ns = result.kinds[i].latency_ns;
    for (const ComparedPercentile& percentile : kComparedPercentiles) {
      if (latency_ns.count() < percentile.operations_min) continue;
      figures.push_back(Latency(static_cast<OpKind>(i), percentile));
      figures.back().value =
          static_cast<double>(latency_ns.Quantile(percentile.quantile)) * 1e-3;
    }
  }
  return figures;
}

void Comparison::AddLoad(Side side, const PhaseResult& result) {
  load_[side == Side::kTarget ? "target" : "against"] = ycsb::ToJson(result);
}

void Comparison::AddRound(uint64_t seed, const PhaseResult& target, const PhaseResult& against) {
  target_errors_ += target.errors();
  against_errors_ += against.errors();
  rounds_.push_back({.seed = seed,
                     .target = FiguresOf(target),
                     .against = FiguresOf(against),
                     .target_json = ycsb::ToJson(target),
                     .against_json = ycsb::ToJson(against)});
}

void Comparison::SetFailed(std::vector<std::string> problems) {
  failed_ = true;
  problems_ = std::move(problems);
}

std::optional<double> Comparison::LastRatio(const std::string& figure) const {
  if (rounds_.empty()) return std::nullopt;
  const auto target = ValueOf(rounds_.back().target, figure);
  const auto against = ValueOf(rounds_.back().against, figure);
  if (!target || !against || *against == 0) return std::nullopt;
  return *target / *against;
}

std::vector<Comparison::ComparedFigure> Comparison::ComparedFigures() const {
  std::vector<ComparedFigure> all;
  for (const Figure& figure : AllFigures()) {
    auto compared = Compare(figure.name);
    if (compared) all.push_back({figure, *compared});
  }
  return all;
}

std::optional<PairedRatio> Comparison::Compare(const std::string& figure) const {
  std::vector<PairedValues> values;
  for (const Round& round : rounds_) {
    const auto target = ValueOf(round.target, figure), against = ValueOf(round.against, figure);
    if (target && against) values.push_back({*target, *against});
  }
  return CompareRounds(values);
}

void Comparison::Print(std::ostream& out) const {
  const RunConfiguration& run = options_.target;
  fmt::print(out, "# comparison: A = {}, B = {}{}{}\n", run.target, options_.against.target,
             options_.against_args.empty() ? "" : " ", options_.against_args);
  fmt::print(out, "# {} of {} rounds in turns (A B, B A, ...), {} threads x {} in flight, {} loop",
             rounds_.size(), options_.rounds, run.threads, run.in_flight,
             run.open_loop() ? "open" : "closed");
  if (!rounds_.empty()) {
    fmt::print(out, ", seeds {} to {}", rounds_.front().seed, rounds_.back().seed);
  }
  fmt::print(out, "{}\n", interrupted_ ? ", interrupted" : failed_ ? ", failed" : "");
  fmt::print(out,
             "# A/B: geometric mean of the rounds' ratios; in brackets its 95 % confidence interval "
             "(Student's t on their logarithms)\n"
             "# CPU time is of {}\n",
             options_.virtual_time ? "the simulated threads"
                                   : "this process: it tells nothing of work done in another one");
  if (target_errors_ + against_errors_ > 0) {
    fmt::print(out, "# failed operations, which count in the throughput: {} of A, {} of B\n",
               target_errors_, against_errors_);
  }
  fmt::print(out, "{:<30} {:>14} {:>14} {:>8}  {}\n", "figure", "A (median)", "B (median)",
             "A/B", "95 % interval");
  for (const auto& [figure, compared] : ComparedFigures()) {
    const std::string interval =
        compared.interval
            ? fmt::format("[{:.4f}, {:.4f}]", compared.interval->low, compared.interval->high)
            : "-";
    const std::string line =
        fmt::format("{:<30} {:>14.3f} {:>14.3f} {:>8.4f}  {:<18}  {}", figure.title,
                    compared.target_median, compared.against_median, compared.ratio, interval,
                    Finding(compared));
    out << line.substr(0, line.find_last_not_of(' ') + 1) << "\n";
  }
}

nlohmann::ordered_json Comparison::ToJson() const {
  Json rounds = Json::array(), figures = Json::object();
  for (size_t i = 0; i < rounds_.size(); ++i) {
    const Round& round = rounds_[i];
    rounds.push_back({{"seed", round.seed},
                      {"first", FirstOf(i) == Side::kTarget ? "target" : "against"},
                      {"target", round.target_json},
                      {"against", round.against_json}});
  }
  for (const auto& [figure, compared] : ComparedFigures()) {
    figures[figure.name] = FigureToJson(compared);
  }
  Json comparison;
  comparison["target"] = options_.target.target;
  comparison["against"] = options_.against.target;
  comparison["against_args"] = options_.against_args;
  comparison["against_configuration"] = ycsb::ToJson(options_.against);
  comparison["ratio"] = "target / against, geometric mean of the rounds' ratios";
  comparison["interval"] = "95 %, Student's t on the logarithms of the rounds' ratios";
  comparison["rounds_wanted"] = options_.rounds;
  comparison["interrupted"] = interrupted_;
  comparison["failed"] = failed_;
  comparison["problems"] = problems_;
  comparison["figures"] = std::move(figures);
  if (!load_.is_null()) comparison["load"] = load_;
  comparison["rounds"] = std::move(rounds);
  Json json;
  json["configuration"] = ycsb::ToJson(options_.target);
  json["seed"] = options_.target.seed;
  json["comparison"] = std::move(comparison);
  return json;
}

}  // namespace farleaf::ycsb
