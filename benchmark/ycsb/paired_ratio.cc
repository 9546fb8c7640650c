#include "benchmark/ycsb/paired_ratio.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "dsm/base/check.h"

namespace farleaf::ycsb {

namespace {

// 97.5 % quantiles for 1 to 30 degrees of freedom: NIST/SEMATECH e-Handbook of Statistical Methods,
// 1.3.6.7.2.
constexpr double kStudent[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306,
                               2.262,  2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
                               2.110,  2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064,
                               2.060,  2.056, 2.052, 2.048, 2.045, 2.042};
struct Quantile {
  size_t degrees;
  double t;
};
constexpr Quantile kStudentAbove[] = {{100, 1.984}, {60, 2.000}, {40, 2.021}};

/// Sorts them. REQUIRES: not empty.
double Median(std::vector<double>* values) {
  std::sort(values->begin(), values->end());
  const size_t half = values->size() / 2;
  if (values->size() % 2 == 1) return (*values)[half];
  return ((*values)[half - 1] + (*values)[half]) / 2;
}

}  // namespace

double StudentT95(size_t degrees) {
  FARLEAF_CHECK(degrees > 0);
  for (const Quantile& quantile : kStudentAbove) {
    if (degrees >= quantile.degrees) return quantile.t;
  }
  return kStudent[std::min(degrees, std::size(kStudent)) - 1];
}

std::optional<PairedRatio> CompareRounds(std::span<const PairedValues> rounds) {
  std::vector<double> target, against, logarithms;
  for (const PairedValues& round : rounds) {
    if (!(round.target > 0) || !(round.against > 0)) continue;
    target.push_back(round.target);
    against.push_back(round.against);
    logarithms.push_back(std::log(round.target / round.against));
  }
  if (logarithms.empty()) return std::nullopt;
  const auto count = static_cast<double>(logarithms.size());
  double sum = 0, squares = 0;
  for (double logarithm : logarithms) sum += logarithm;
  const double mean = sum / count;
  for (double logarithm : logarithms) squares += (logarithm - mean) * (logarithm - mean);

  PairedRatio result;
  result.rounds = logarithms.size();
  result.target_median = Median(&target);
  result.against_median = Median(&against);
  result.ratio = std::exp(mean);
  if (logarithms.size() < kIntervalRoundsMin) return result;
  const double half_width =
      StudentT95(logarithms.size() - 1) * std::sqrt(squares / (count - 1) / count);
  result.interval = Interval{std::exp(mean - half_width), std::exp(mean + half_width)};
  return result;
}

}  // namespace farleaf::ycsb
