#include "benchmark/ycsb/batch_means.h"

#include <cmath>

namespace farleaf::ycsb {

namespace {
// Student's t, two-sided 95 %, for 31 degrees of freedom and more: the largest of them.
constexpr double kStudentMany = 2.04;
// Batches whose rates are correlated more than this are too short to be counted as independent.
constexpr double kCorrelationMax = 0.4;
}  // namespace

void BatchMeans::Sample(uint64_t now_ns, uint64_t operations) {
  if (!begun_) {
    begun_ = true;
    begin_ns_ = now_ns;
    begin_operations_ = operations;
    return;
  }
  if (operations - begin_operations_ < batch_operations_ || now_ns == begin_ns_) return;
  const Batch batch{now_ns - begin_ns_, operations - begin_operations_};
  begin_ns_ = now_ns;
  begin_operations_ = operations;
  if (!first_dropped_) {
    first_dropped_ = true;
    return;
  }
  batches_.push_back(batch);
  if (batches_.size() < 2 * kBatchesMin) return;
  for (size_t i = 0; i < kBatchesMin; ++i) {
    const Batch &a = batches_[2 * i], &b = batches_[2 * i + 1];
    batches_[i] = {a.ns + b.ns, a.operations + b.operations};
  }
  batches_.resize(kBatchesMin);
  batch_operations_ *= 2;
}

double BatchMeans::ConfidencePercent() const {
  if (batches_.size() < kBatchesMin) return 100;
  const auto count = static_cast<double>(batches_.size());
  double sum = 0;
  for (const Batch& batch : batches_) sum += batch.rate();
  const double mean = sum / count;
  double squares = 0, neighbours = 0;
  for (size_t i = 0; i < batches_.size(); ++i) {
    const double deviation = batches_[i].rate() - mean;
    squares += deviation * deviation;
    if (i > 0) neighbours += deviation * (batches_[i - 1].rate() - mean);
  }
  if (squares == 0) return 0;
  const double half_width = kStudentMany * std::sqrt(squares / (count - 1) / count);
  const double percent = 100 * half_width / mean;
  // Where the rate hardly varies at all, its correlation says nothing.
  if (percent > 0.1 && neighbours / squares > kCorrelationMax) return 100;
  return percent;
}

}  // namespace farleaf::ycsb
