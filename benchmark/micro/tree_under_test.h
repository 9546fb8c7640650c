// TreeUnderTest: a tree with the benchmark's keys, of 8 bytes or of 24, in a pool of two servers inside the process,
// or in one that a bootstrap leads to.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "dsm/base/clock.h"
#include "dsm/pool.h"
#include "index/blink/tree.h"

namespace farleaf::micro {

/// Keys of byte strings.
inline constexpr size_t kByteKeyBytes = 24;

struct TreeUnderTestOptions {
  uint64_t keys = 0;
  index::Layout layout = index::Layout::kFixed8;
  index::LeafLayout leaf_layout = index::LeafLayout::kParted;  ///< of fixed8
  uint64_t leaf_parts = 0;                                     ///< of a parted leaf; 0: the default
  size_t value_bytes = 8;                                      ///< of byte strings; at least 8
  index::InPlace in_place = index::InPlace::kOn;
  std::string bootstrap;  ///< empty: memory servers of its own, inside the process
};

class TreeUnderTest {
 public:
  /// Loads the keys of numbers [0, keys) into a tree "micro_parted", "micro_sorted" or "micro_bytes" that must not
  /// exist yet. Byte strings are then scanned once, from the first to the last, so that this process has met all
  /// that it may remember of their values. Failures are checks: nothing here may fail.
  explicit TreeUnderTest(const TreeUnderTestOptions& options);

  uint64_t keys() const { return options_.keys; }
  size_t key_bytes() const { return fixed8() ? 8 : kByteKeyBytes; }
  size_t value_bytes() const { return fixed8() ? 8 : options_.value_bytes; }
  /// The key of a number: KeyOf, and of byte strings 16 bytes more that hang on it.
  void FillKey(uint64_t number, std::span<char> key) const;
  dsm::Worker& worker() { return *worker_; }
  index::BlinkTree& tree() { return *tree_; }
  /// CPU time of the load, an insert.
  double load_ns_per_key() const { return load_ns_per_key_; }
  const std::string& fabric() const { return fabric_; }
  const std::string& leaf_layout() const {
    return leaf_layout_;
  }  ///< "parted", "sorted" or "bytes"

 private:
  bool fixed8() const { return options_.layout == index::Layout::kFixed8; }
  dsm::Task<Status> Load(dsm::OpContext& op);
  dsm::Task<Status> ScanAll(dsm::OpContext& op);

  const MonotonicClock clock_;
  const TreeUnderTestOptions options_;
  double load_ns_per_key_ = 0;
  std::string fabric_, leaf_layout_;
  // In this order: each stands on those before it.
  std::unique_ptr<dsm::Pool> pool_;
  std::unique_ptr<dsm::Worker> worker_;
  std::optional<index::BlinkTree> tree_;
};

}  // namespace farleaf::micro
