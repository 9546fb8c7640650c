#include "benchmark/ycsb/distributions.h"

#include <algorithm>
#include <cmath>

#include "dsm/base/check.h"

namespace farleaf::ycsb {

namespace {
// YCSB's ScrambledZipfianGenerator: item count and the sum that belongs to it.
constexpr uint64_t kScrambledItems = 10'000'000'000;
constexpr double kScrambledZeta = 26.46902820178302;
constexpr double kAlpha = 1 / (1 - kZipfianConstant);
constexpr double kHalfToTheConstant = 0.5034777750283594;  // 0.5^0.99
}  // namespace

uint64_t YcsbHash(uint64_t value) {
  uint64_t hash = 0xcbf29ce484222325;
  for (int i = 0; i < 8; ++i) {
    hash ^= value & 0xff;
    value >>= 8;
    hash *= 1099511628211;
  }
  return hash >> 63 ? 0 - hash : hash;
}

Zipfian::Zipfian(uint64_t items) { Grow(items); }

Zipfian::Zipfian(uint64_t items, double zeta) : zeta_(zeta) { SetItems(items); }

void Zipfian::Grow(uint64_t items) {
  if (items <= items_) return;
  for (uint64_t i = items_ + 1; i <= items; ++i) {
    zeta_ += std::pow(static_cast<double>(i), -kZipfianConstant);
  }
  SetItems(items);
}

void Zipfian::SetItems(uint64_t items) {
  FARLEAF_CHECK(items > 0);
  items_ = items;
  const double zeta_of_2 = 1 + kHalfToTheConstant;
  eta_ = (1 - std::pow(2 / static_cast<double>(items), 1 - kZipfianConstant)) /
         (1 - zeta_of_2 / zeta_);
}

uint64_t Zipfian::Next(Random& random) const {
  const double u = random.Uniform();
  const double uz = u * zeta_;
  if (uz < 1 || items_ == 1) return 0;
  // Also where eta_ is undefined, which is at two items.
  if (uz < 1 + kHalfToTheConstant || items_ == 2) return 1;
  const double rank = static_cast<double>(items_) * std::pow(eta_ * u - eta_ + 1, kAlpha);
  return std::min(static_cast<uint64_t>(rank), items_ - 1);
}

double ZipfianZeta(uint64_t items) {
  // Euler and Maclaurin: the head summed, the rest an integral. Exact to 1e-12.
  constexpr uint64_t kHead = 1'000;
  double sum = 0;
  for (uint64_t i = 1; i <= std::min(items, kHead); ++i) {
    sum += std::pow(static_cast<double>(i), -kZipfianConstant);
  }
  if (items <= kHead) return sum;
  const auto term = [](double x) { return std::pow(x, -kZipfianConstant); };
  const auto slope = [&](double x) { return -kZipfianConstant * term(x) / x; };
  const auto integral = [&](double x) { return x * term(x) * kAlpha; };
  const double from = kHead, to = static_cast<double>(items);
  return sum + integral(to) - integral(from) + (term(to) - term(from)) / 2 +
         (slope(to) - slope(from)) / 12;
}

ScrambledZipfian::ScrambledZipfian(uint64_t first, uint64_t count, ZipfianRanks ranks)
    : ranks_(ranks == ZipfianRanks::kYcsb ? Zipfian(kScrambledItems, kScrambledZeta)
                                          : Zipfian(count, ZipfianZeta(count))),
      first_(first),
      count_(count) {
  FARLEAF_CHECK(count > 0);
}

HotSpot::HotSpot(const HotSpotOptions& options)
    : options_(options), hot_count_(HotCount(options.count, options.data_fraction)) {
  FARLEAF_CHECK(hot_count_ > 0 || options.operation_fraction == 0, options.count);
  FARLEAF_CHECK(hot_count_ < options.count || options.operation_fraction == 1, options.count);
}

uint64_t HotSpot::Next(Random& random, uint64_t shifts) const {
  const bool hot = random.Uniform() < options_.operation_fraction;
  const uint64_t from_hot_start =
      hot ? random.Below(hot_count_) : hot_count_ + random.Below(options_.count - hot_count_);
  const auto moved = static_cast<unsigned __int128>(shifts) * hot_count_ + from_hot_start;
  return options_.first + static_cast<uint64_t>(moved % options_.count);
}

Exponential::Exponential(double percentile, double range)
    : mean_(-range / std::log(1 - percentile / 100)) {
  FARLEAF_CHECK(percentile > 0 && percentile < 100 && range > 0, percentile, range);
}

uint64_t Exponential::Next(Random& random) const {
  constexpr double kMax = 0x1p62;
  return static_cast<uint64_t>(std::min(-std::log(1 - random.Uniform()) * mean_, kMax));
}

}  // namespace farleaf::ycsb
