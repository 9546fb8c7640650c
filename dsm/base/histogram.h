// A log-linear histogram of 64-bit values in the manner of HdrHistogram: every value is kept to
// within 1/128 (two significant digits and better), from 0 to 2^64-1, in 59 x 128 counters.
//
// Bucket layout: values below 128 have a bucket each; above, each power of two is cut into 128
// equal buckets: a value v with highest bit h >= 7 falls into row h-6, column (v >> (h-7)) - 128.
//
// Thread rule: one owner; merge copies from other owners.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace farleaf {

class Histogram {
 public:
  static constexpr int kColumnBits = 7;
  static constexpr uint64_t kColumns = uint64_t{1} << kColumnBits;
  static constexpr size_t kRows = 64 - kColumnBits + 1;

  Histogram() : counts_(kRows * kColumns) {}

  void Record(uint64_t value) { RecordMany(value, 1); }
  void RecordMany(uint64_t value, uint64_t times) {
    counts_[BucketOf(value)] += times;
    count_ += times;
    sum_ += value * times;
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
  }
  void Merge(const Histogram& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    count_ += other.count_;
    sum_ += other.sum_;
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
  }

  uint64_t count() const { return count_; }
  uint64_t min() const { return count_ ? min_ : 0; }
  uint64_t max() const { return max_; }
  uint64_t sum() const { return sum_; }
  /// How many values are below `bound`, a power of two.
  uint64_t CountBelow(uint64_t bound) const {
    uint64_t below = 0;
    const size_t end = BucketOf(bound);
    for (size_t i = 0; i < end; ++i) below += counts_[i];
    return below;
  }
  double mean() const { return count_ ? static_cast<double>(sum_) / static_cast<double>(count_) : 0; }

  /// The largest value of the bucket in which the `quantile` (0..1) falls, at most max().
  uint64_t Quantile(double quantile) const {
    if (count_ == 0) return 0;
    const auto rank = static_cast<uint64_t>(quantile * static_cast<double>(count_));
    const uint64_t wanted = std::clamp<uint64_t>(rank, 1, count_);
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (seen >= wanted) return std::min(BucketMax(i), max_);
    }
    return max_;
  }

 private:
  static size_t BucketOf(uint64_t value) {
    if (value < kColumns) return value;
    const int high = std::bit_width(value) - 1;
    const uint64_t row = static_cast<uint64_t>(high - kColumnBits + 1);
    return row * kColumns + ((value >> (high - kColumnBits)) - kColumns);
  }
  static uint64_t BucketMax(size_t bucket) {
    const uint64_t row = bucket / kColumns, column = bucket % kColumns;
    if (row == 0) return column;
    return ((kColumns + column + 1) << (row - 1)) - 1;
  }

  std::vector<uint64_t> counts_;
  uint64_t count_ = 0, sum_ = 0, min_ = UINT64_MAX, max_ = 0;
};

}  // namespace farleaf
