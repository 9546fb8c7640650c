// YCSB's number generators: zipfian (Gray et al., "Quickly generating billion-record synthetic
// databases", 1994, with YCSB's constant 0.99), scrambled zipfian and latest, hot spots, and
// exponential.
//
// Thread rule: one owner each; the same seed gives the same sequence.
#pragma once

#include <cstdint>

#include "dsm/base/random.h"

namespace farleaf::ycsb {

inline constexpr double kZipfianConstant = 0.99;

/// FNV-1 of the 8 bytes of `value`, made non-negative as a Java long: YCSB's hash.
uint64_t YcsbHash(uint64_t value);

/// Ranks 0..items-1, rank r with probability proportional to 1 / (r+1)^0.99.
class Zipfian {
 public:
  /// Sums `items` terms: a second for 20 million items; copy it rather than making it again.
  explicit Zipfian(uint64_t items);
  /// With the sum of the terms known.
  Zipfian(uint64_t items, double zeta);

  /// Adds terms for the items beyond those there are. Fewer items than there are: nothing.
  void Grow(uint64_t items);
  uint64_t items() const { return items_; }
  double zeta() const { return zeta_; }
  uint64_t Next(Random& random) const;

 private:
  void SetItems(uint64_t items);
  uint64_t items_ = 0;
  double zeta_ = 0;  ///< sum of 1 / i^0.99 for i = 1..items_
  double eta_ = 0;
};

/// The sum of 1 / i^0.99 for i = 1..items.
double ZipfianZeta(uint64_t items);

enum class ZipfianRanks : uint8_t {
  kYcsb,  ///< of ten thousand million items: the shares of the popular items do not depend on count
  kRecords,  ///< of as many items as there are: popular ones have larger shares
};

/// Zipfian with the popular items scattered over [first, first + count): as YCSB does it, the ranks,
/// hashed, modulo count.
class ScrambledZipfian {
 public:
  ScrambledZipfian(uint64_t first, uint64_t count, ZipfianRanks ranks = ZipfianRanks::kYcsb);
  uint64_t Next(Random& random) const { return first_ + YcsbHash(ranks_.Next(random)) % count_; }

 private:
  Zipfian ranks_;
  uint64_t first_, count_;
};

struct HotSpotOptions {
  uint64_t first = 0, count = 0;  ///< numbers of [first, first + count) are drawn
  double data_fraction = 0;       ///< of them in the hot interval, in [0, 1]
  double operation_fraction = 0;  ///< of draws that fall into it, in [0, 1]
};

/// An interval of neighbouring numbers is drawn from more often than the rest, both uniformly:
/// YCSB's HotspotIntegerGenerator, where the interval stays at the lower end.
class HotSpot {
 public:
  /// Numbers in the hot interval: the fraction of `count`, rounded down.
  static uint64_t HotCount(uint64_t count, double data_fraction) {
    return static_cast<uint64_t>(static_cast<double>(count) * data_fraction);
  }
  /// REQUIRES: a number to draw on each side that operations fall on.
  explicit HotSpot(const HotSpotOptions& options);

  /// With the hot interval moved up by its own length `shifts` times. What of it is past the end is
  /// at the beginning.
  uint64_t Next(Random& random, uint64_t shifts = 0) const;

 private:
  HotSpotOptions options_;
  uint64_t hot_count_ = 0;
};

/// Whole numbers from 0 on, of which `percentile` % are below `range` (YCSB's
/// ExponentialGenerator).
class Exponential {
 public:
  /// REQUIRES: 0 < percentile < 100, range > 0.
  Exponential(double percentile, double range);
  uint64_t Next(Random& random) const;

 private:
  double mean_;
};

}  // namespace farleaf::ycsb
