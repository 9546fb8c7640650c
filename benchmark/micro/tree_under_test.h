// TreeUnderTest: a fixed8 tree with the benchmark's keys, in a pool of two servers inside the process,
// or in one that a bootstrap leads to.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dsm/base/clock.h"
#include "dsm/pool.h"
#include "index/blink/tree.h"

namespace farleaf::micro {

struct TreeUnderTestOptions {
  uint64_t keys = 0;
  index::LeafLayout leaf_layout = index::LeafLayout::kParted;
  std::string bootstrap;  ///< empty: memory servers of its own, inside the process
};

class TreeUnderTest {
 public:
  /// Loads KeyOf(0) .. KeyOf(keys - 1) into a tree "micro_parted" or "micro_sorted", by its leaves, that must not exist yet. Failures are checks:
  /// nothing here may fail.
  explicit TreeUnderTest(const TreeUnderTestOptions& options);

  uint64_t keys() const { return keys_; }
  dsm::Worker& worker() { return *worker_; }
  index::BlinkTree& tree() { return *tree_; }
  /// CPU time of the load, an insert.
  double load_ns_per_key() const { return load_ns_per_key_; }
  const std::string& fabric() const { return fabric_; }
  const std::string& leaf_layout() const { return leaf_layout_; }  ///< "parted" or "sorted"

 private:
  const MonotonicClock clock_;
  uint64_t keys_;
  double load_ns_per_key_ = 0;
  std::string fabric_, leaf_layout_;
  // In this order: each stands on those before it.
  std::unique_ptr<dsm::Pool> pool_;
  std::unique_ptr<dsm::Worker> worker_;
  std::optional<index::BlinkTree> tree_;
};

}  // namespace farleaf::micro
