// BatchMeans: how well a throughput is known, from one run (batch means; Law and Kelton, "Simulation
// Modeling and Analysis"): the run is cut into batches of about the same number of operations, long
// enough that their rates are nearly independent, and the rates' spread gives a confidence interval.
//
// Thread rule: one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace farleaf::ycsb {

class BatchMeans {
 public:
  /// `batch_operations`: of a batch, at the least; it grows with the run.
  explicit BatchMeans(uint64_t batch_operations) : batch_operations_(batch_operations) {}

  /// `operations` were done by `now_ns`; both never go back. The first call is the beginning.
  void Sample(uint64_t now_ns, uint64_t operations);
  /// Half the width of the 95 % confidence interval of the rate, in percent of the rate; 100 while
  /// there are too few batches, or batches that follow one another are too much alike.
  double ConfidencePercent() const;

 private:
  struct Batch {
    uint64_t ns, operations;
    double rate() const { return static_cast<double>(operations) / static_cast<double>(ns); }
  };
  static constexpr size_t kBatchesMin = 32;

  uint64_t batch_operations_;
  bool begun_ = false;
  uint64_t begin_ns_ = 0, begin_operations_ = 0;  // of the batch that is under way
  bool first_dropped_ = false;  // the first batch holds the start of all threads at once
  std::vector<Batch> batches_;
};

}  // namespace farleaf::ycsb
