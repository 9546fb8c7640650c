// How much two things that were measured in turns differ: the ratio of each round's two values,
// their geometric mean, and how well that is known.
//
// A round's two values follow one another at once, so that what slows the machine down for longer
// slows both and cancels. The interval is Student's t on the logarithms of the rounds' ratios (a
// ratio and its inverse are equally far from 1 there), with one degree of freedom less than there
// are rounds: W. S. Gosset, "The probable error of a mean", Biometrika 6 (1908). It holds for any
// number of rounds from three on; the distribution-free interval of the median says nothing at 95 %
// below six.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace farleaf::ycsb {

struct PairedValues {
  double target = 0, against = 0;
};

struct Interval {
  double low = 0, high = 0;
  bool Holds(double value) const { return low <= value && value <= high; }
};

struct PairedRatio {
  size_t rounds = 0;  ///< that count
  double target_median = 0, against_median = 0;
  double ratio = 1;  ///< target / against, geometric mean
  /// 95 % confidence interval of `ratio`; nullopt: too few rounds to tell one.
  std::optional<Interval> interval;

  /// The interval leaves 1 out.
  bool difference_shown() const { return interval && !interval->Holds(1); }
};

/// An interval is told from so many rounds on.
inline constexpr size_t kIntervalRoundsMin = 3;

/// A round in which either value is not above 0 has no ratio, and does not count. nullopt: none
/// counts.
std::optional<PairedRatio> CompareRounds(std::span<const PairedValues> rounds);

/// Student's t: so many standard errors to either side hold 95 %. Above 30 degrees of freedom it is
/// that of the largest number in the table that is not above `degrees`, which makes an interval
/// wider by 2 % at most. REQUIRES: degrees > 0.
double StudentT95(size_t degrees);

}  // namespace farleaf::ycsb
