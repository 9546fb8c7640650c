// rivals: servers that hold the same keys side by side, by the same client: what a request costs them in processor
// time, how many they answer and how soon. scripts/rivals.sh starts Farleaf, Redis and memcached for it.
//
//   rivals --server 'NAME=PROTOCOL,ADDRESS,PID[,RIVAL[,DEPTH]]'... [--depths 1,16,64] [--rounds N] [--json FILE]
//
// Exit code 1: a server did not answer, or wrongly; 2: wrong arguments.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmark/rivals/contest.h"

namespace farleaf::rivals {
namespace {

/// NAME=PROTOCOL,ADDRESS,PID[,RIVAL[,DEPTH]]
Result<Contestant> ParseContestant(const std::string& text) {
  Contestant contestant;
  const size_t equals = text.find('=');
  std::vector<std::string> words = CLI::detail::split(text.substr(equals + 1), ',');
  const auto wrong =
      Status::InvalidArgument("\"" + text + "\" is not NAME=PROTOCOL,ADDRESS,PID[,RIVAL[,DEPTH]]");
  if (equals == std::string::npos || words.size() < 3 || words.size() > 5) return wrong;
  words.resize(5);
  contestant.name = text.substr(0, equals);
  bool known = false;
  for (const Protocol protocol : {Protocol::kRedis, Protocol::kMemcached, Protocol::kNative}) {
    if (words[0] != NameOf(protocol)) continue;
    contestant.protocol = protocol;
    known = true;
  }
  contestant.address = words[1];
  contestant.rival = words[3];
  if (!known || !CLI::detail::lexical_cast(words[2], contestant.process) ||
      (!words[4].empty() && !CLI::detail::lexical_cast(words[4], contestant.depth))) {
    return wrong;
  }
  return contestant;
}

struct Figures {
  double cpu_us, user_us, kernel_us, requests, p50_us, p99_us, p999_us;
};

Figures FiguresOf(const Measured& measured) {
  const double cpu_us = Median(measured.cpu_us);
  const auto us = [&](double quantile) {
    return static_cast<double>(measured.latency_ns.Quantile(quantile)) / 1e3;
  };
  const double kernel_us = cpu_us * measured.kernel_share();
  return {cpu_us,  cpu_us - kernel_us, kernel_us, Median(measured.requests),
          us(0.5), us(0.99),           us(0.999)};
}

void Print(const std::vector<Comparison>& comparisons) {
  fmt::print(
      "{:<4} {:>5}  {:<18} {:>7} {:>7} {:>7} {:>10} {:>9} {:>9} {:>9}  {:<10} {:>6} {:>10}\n",
      "what", "depth", "server", "CPU us", "user", "kernel", "requests/s", "p50 us", "p99 us",
      "p99.9 us", "beside", "CPU", "requests/s");
  for (const Comparison& comparison : comparisons) {
    for (const Measured& measured : comparison.measured) {
      const Figures figures = FiguresOf(measured);
      fmt::print(
          "{:<4} {:>5}  {:<18} {:>7.3f} {:>7.3f} {:>7.3f} {:>10.0f} {:>9.1f} {:>9.1f} {:>9.1f}",
          NameOf(comparison.kind), comparison.depth, measured.contestant->name, figures.cpu_us,
          figures.user_us, figures.kernel_us, figures.requests, figures.p50_us, figures.p99_us,
          figures.p999_us);
      const Measured* const rival = comparison.Find(measured.contestant->rival);
      if (rival != nullptr) {
        fmt::print("  {:<10} {:>6.3f} {:>10.3f}", rival->contestant->name,
                   MedianRatio(measured.cpu_us, rival->cpu_us),
                   MedianRatio(measured.requests, rival->requests));
      }
      fmt::print("\n");
    }
  }
}

nlohmann::ordered_json ToJson(const ContestOptions& options,
                              const std::vector<Comparison>& comparisons) {
  nlohmann::ordered_json json;
  json["configuration"] = {{"keys", options.keys},         {"key_bytes", kKeyBytes},
                           {"value_bytes", kValueBytes},   {"rounds", options.rounds},
                           {"round_ms", options.round_ms}, {"seed", options.seed},
                           {"distribution", "uniform"},    {"loop", "closed"},
                           {"connections_per_server", 1}};
  for (const Comparison& comparison : comparisons) {
    for (const Measured& measured : comparison.measured) {
      const Figures figures = FiguresOf(measured);
      nlohmann::ordered_json line = {{"request", NameOf(comparison.kind)},
                                     {"depth", comparison.depth},
                                     {"server", measured.contestant->name},
                                     {"protocol", NameOf(measured.contestant->protocol)},
                                     {"requests_per_round", comparison.requests},
                                     {"cpu_us", figures.cpu_us},
                                     {"user_us", figures.user_us},
                                     {"kernel_us", figures.kernel_us},
                                     {"requests_per_second", figures.requests},
                                     {"p50_us", figures.p50_us},
                                     {"p99_us", figures.p99_us},
                                     {"p99.9_us", figures.p999_us},
                                     {"cpu_us_of_rounds", measured.cpu_us},
                                     {"requests_per_second_of_rounds", measured.requests}};
      const Measured* const rival = comparison.Find(measured.contestant->rival);
      if (rival != nullptr) {
        line["rival"] = rival->contestant->name;
        line["cpu_ratio"] = MedianRatio(measured.cpu_us, rival->cpu_us);
        line["requests_per_second_ratio"] = MedianRatio(measured.requests, rival->requests);
      }
      json["results"].push_back(std::move(line));
    }
  }
  return json;
}

Status Run(const ContestOptions& options, const std::string& json_path) {
  const auto comparisons = RunContest(options);
  if (!comparisons.ok()) return comparisons.status();
  Print(*comparisons);
  if (json_path.empty()) return Status::Ok();
  std::ofstream file(json_path);
  file << ToJson(options, *comparisons).dump(2) << '\n';
  return file.flush() ? Status::Ok() : Status::IoError("cannot write " + json_path);
}

}  // namespace
}  // namespace farleaf::rivals

int main(int argc, char** argv) {
  farleaf::rivals::ContestOptions options;
  std::vector<std::string> servers;
  std::string json_path;
  CLI::App app("Servers that hold the same keys, side by side.", "rivals");
  app.add_option("--server", servers, "NAME=PROTOCOL,ADDRESS,PID[,RIVAL[,DEPTH]]")
      ->required()
      ->take_all()
      ->delimiter('\0');
  app.add_option("--depths", options.depths, "requests in flight")
      ->delimiter(',')
      ->check(CLI::Range(1, 1'024));
  app.add_option("--keys", options.keys)->check(CLI::Range(1'000, 100'000'000));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1'000));
  app.add_option("--round-ms", options.round_ms, "of each server, about")
      ->check(CLI::Range(1, 60'000));
  app.add_option("--seed", options.seed);
  app.add_option("--json", json_path, "configuration and results");
  CLI11_PARSE(app, argc, argv);
  for (const std::string& text : servers) {
    auto contestant = farleaf::rivals::ParseContestant(text);
    if (!contestant.ok()) {
      fmt::print(stderr, "rivals: {}\n", contestant.status().ToString());
      return 2;
    }
    options.contestants.push_back(std::move(*contestant));
  }
  const farleaf::Status status = farleaf::rivals::Run(options, json_path);
  if (status.ok()) return 0;
  fmt::print(stderr, "rivals: {}\n", status.ToString());
  return 1;
}
