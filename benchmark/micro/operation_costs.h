// What an operation of a tree costs one thread that runs nothing beside it: CPU time, allocations,
// round trips and bytes, next to copies from random places of memory of the pool's kind, which are the least that
// an operation on memory that no cache holds can do.
//
// Batches of all of them, and of all trees, take turns, so that a busy machine disturbs all alike: a ratio is the median
// of the ratios of the rounds. Keys and places are drawn before a batch's time begins.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "benchmark/micro/tree_under_test.h"

namespace farleaf::micro {

struct OperationCostOptions {
  uint64_t rounds = 60;
  uint64_t operations = 2000;  ///< in a batch; of scans a twentieth
  uint64_t warmup = 0;         ///< of each operation ahead of all rounds, save scans: a twentieth
  uint64_t copy_bytes = uint64_t{4} << 30;  ///< of the region that is copied from
  std::string only;  ///< measure this one alone, beside the copies; empty: all
  /// A round begins when standard input has a line, which may name the one operation that is wanted, and ends with a line of
  /// standard output: CPU ns of everything that was measured. So two processes, of two builds, take turns
  /// (scripts/compare_micro.py). It ends with the input.
  bool paced = false;
};

/// Medians over the rounds, of one operation.
struct OperationCost {
  std::string name;
  double cpu_ns = 0, wall_ns = 0;
  double cpu_ns_min = 0;    ///< of the best round
  double copies = 0;        ///< CPU time, in copies of 1 KiB of the same round
  double copies_bound = 0;  ///< what that is to be at most; 0: nothing is asked of it
  double allocations = 0;   ///< mean
  double round_trips = 0;   ///< mean
  double bytes = 0;         ///< mean, of both directions; an atomic has 16
};

/// What each of the trees costs, in their order: the copies, then the operations.
/// REQUIRES: nothing else runs on the trees' workers.
std::vector<std::vector<OperationCost>> MeasureOperations(std::span<TreeUnderTest* const> trees,
                                                          const OperationCostOptions& options);

}  // namespace farleaf::micro
