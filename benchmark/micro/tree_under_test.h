// TreeUnderTest: a fixed8 tree with the benchmark's keys, in a pool of two servers inside the process.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "dsm/base/clock.h"
#include "dsm/pool.h"
#include "index/blink/tree.h"

namespace farleaf::micro {

class TreeUnderTest {
 public:
  /// Loads KeyOf(0) .. KeyOf(keys - 1). Failures are checks: nothing here may fail.
  explicit TreeUnderTest(uint64_t keys);

  uint64_t keys() const { return keys_; }
  dsm::Worker& worker() { return *worker_; }
  index::BlinkTree& tree() { return *tree_; }

 private:
  const MonotonicClock clock_;
  uint64_t keys_;
  // In this order: each stands on those before it.
  std::unique_ptr<dsm::Pool> pool_;
  std::unique_ptr<dsm::Worker> worker_;
  std::optional<index::BlinkTree> tree_;
};

}  // namespace farleaf::micro
