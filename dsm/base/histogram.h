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

/// The buckets of a Histogram that are not empty: what is kept of many.
struct SparseHistogram {
  struct Bucket {
    uint64_t index : 16, count : 48;
    bool operator==(const Bucket&) const = default;
  };
  std::vector<Bucket> buckets;  ///< by index
  uint64_t sum = 0, min = 0, max = 0;

  uint64_t count() const {
    uint64_t all = 0;
    for (const Bucket& bucket : buckets) all += bucket.count;
    return all;
  }
};

class Histogram {
 public:
  static constexpr int kColumnBits = 7;
  static constexpr uint64_t kColumns = uint64_t{1} << kColumnBits;
  static constexpr size_t kRows = 64 - kColumnBits + 1;
  static constexpr size_t kBuckets = kRows * kColumns;
  static_assert(kBuckets <= size_t{1} << 16, "SparseHistogram's indexes");

  Histogram() : counts_(kBuckets) {}

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

  void Merge(const SparseHistogram& other) {
    if (other.buckets.empty()) return;
    for (const SparseHistogram::Bucket& bucket : other.buckets) {
      counts_[bucket.index] += bucket.count;
      count_ += bucket.count;
    }
    sum_ += other.sum;
    min_ = std::min(min_, other.min);
    max_ = std::max(max_, other.max);
  }
  SparseHistogram Sparse() const {
    SparseHistogram sparse{.buckets = {}, .sum = sum_, .min = min(), .max = max_};
    if (count_ == 0) return sparse;
    for (size_t i = BucketOf(min_); i <= BucketOf(max_); ++i) {
      if (counts_[i] != 0) sparse.buckets.push_back({i, counts_[i]});
    }
    return sparse;
  }
  void Clear() {
    if (count_ == 0) return;
    std::fill(counts_.begin() + static_cast<ptrdiff_t>(BucketOf(min_)),
              counts_.begin() + static_cast<ptrdiff_t>(BucketOf(max_)) + 1, 0);
    count_ = sum_ = max_ = 0;
    min_ = UINT64_MAX;
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

  static size_t BucketOf(uint64_t value) {
    if (value < kColumns) return value;
    const int high = std::bit_width(value) - 1;
    const uint64_t row = static_cast<uint64_t>(high - kColumnBits + 1);
    return row * kColumns + ((value >> (high - kColumnBits)) - kColumns);
  }
  /// The least and the largest value of a bucket.
  static uint64_t BucketMin(size_t bucket) {
    const uint64_t row = bucket / kColumns, column = bucket % kColumns;
    return row == 0 ? column : (kColumns + column) << (row - 1);
  }
  static uint64_t BucketMax(size_t bucket) {
    const uint64_t row = bucket / kColumns, column = bucket % kColumns;
    if (row == 0) return column;
    return ((kColumns + column + 1) << (row - 1)) - 1;
  }

 private:
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0, sum_ = 0, min_ = UINT64_MAX, max_ = 0;
};

}  // namespace farleaf
