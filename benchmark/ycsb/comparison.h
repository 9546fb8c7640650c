// Comparison: what two targets measured in turns, figure by figure.
//
// Thread rule: one owner.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "benchmark/ycsb/measurement.h"
#include "benchmark/ycsb/paired_ratio.h"
#include "benchmark/ycsb/report.h"

namespace farleaf::ycsb {

/// One number of a run phase.
struct Figure {
  std::string name;   ///< where it stands in a phase's JSON: "ops_per_second", "READ.latency_us.p99"
  std::string title;  ///< with its unit: "READ p99 (us)"
  double value = 0;
};
/// Throughput, CPU time, and for each kind of operation the median, p99 and p99.9 of its latency. A
/// percentile is left out where fewer operations succeeded than it takes for one to be beyond it
/// (p99.9: 1000).
std::vector<Figure> FiguresOf(const PhaseResult& result);

enum class Side : uint8_t { kTarget, kAgainst };
/// Even rounds (from 0) begin with the target, odd ones with the other: A B, B A, A B, …
inline Side FirstOf(size_t round) { return round % 2 == 0 ? Side::kTarget : Side::kAgainst; }

struct ComparisonOptions {
  RunConfiguration target, against;
  std::string against_args;  ///< as they were given
  size_t rounds = 0;         ///< wanted
  bool virtual_time = false;
};

class Comparison {
 public:
  explicit Comparison(ComparisonOptions options) : options_(std::move(options)) {}

  void AddLoad(Side side, const PhaseResult& result);
  /// The round of both results has `seed`; rounds are added in order.
  void AddRound(uint64_t seed, const PhaseResult& target, const PhaseResult& against);
  /// Something went wrong, or somebody interrupted: what has been added is all there will be.
  void SetFailed(std::vector<std::string> problems);
  void SetInterrupted() { interrupted_ = true; }

  size_t rounds() const { return rounds_.size(); }
  /// target / against of a figure that both have in the last round.
  std::optional<double> LastRatio(const std::string& figure) const;
  /// nullopt: no round has it on both sides.
  std::optional<PairedRatio> Compare(const std::string& figure) const;

  /// A table, a line a figure.
  void Print(std::ostream& out) const;
  /// {configuration, seed, comparison: {against, rounds: […], figures: {NAME: {target_median,
  /// against_median, ratio, ci95, difference_shown}}, …}}
  nlohmann::ordered_json ToJson() const;

 private:
  struct Round {
    uint64_t seed;
    std::vector<Figure> target, against;
    nlohmann::ordered_json target_json, against_json;
  };
  struct ComparedFigure {
    Figure figure;
    PairedRatio compared;
  };
  std::vector<ComparedFigure> ComparedFigures() const;

  ComparisonOptions options_;
  std::vector<Round> rounds_;
  nlohmann::ordered_json load_;  ///< null: none
  uint64_t target_errors_ = 0, against_errors_ = 0;
  bool interrupted_ = false, failed_ = false;
  std::vector<std::string> problems_;
};

}  // namespace farleaf::ycsb
