// CheckMemory: buffers of a segment each, for what the copies at one node hold of tables that were written and are not checked yet (copied_tables.h), and counts of
// what was checked there.
//
// Buffers that came back are kept for others: no more memory is ever taken than for as many as there may be.
//
// Thread rule: thread-safe. It outlives who has buffers of it.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "index/lsm/background_io.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

/// For a node: 64 MiB.
inline constexpr size_t kNodeCheckBuffers = 32;

class CheckMemory {
 public:
  explicit CheckMemory(size_t buffers) : left_(buffers) {}
  CheckMemory(const CheckMemory&) = delete;

  /// Of kSegmentBytes, with anything in it; of none: all are in use.
  IoBuffer Take() {
    std::lock_guard lock(mutex_);
    if (left_ == 0) return {};
    --left_;
    if (free_.empty()) return IoBuffer(storage::kSegmentBytes);
    IoBuffer buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }
  void Give(IoBuffer buffer) {
    std::lock_guard lock(mutex_);
    ++left_;
    free_.push_back(std::move(buffer));
  }
  size_t left() const {
    std::lock_guard lock(mutex_);
    return left_;
  }

  struct Counts {
    uint64_t checked_bytes = 0;
    uint64_t read_back_bytes = 0;  ///< of them, from storages
    uint64_t checking_ns = 0;      ///< without the reads
  };
  void Checked(const Counts& more) {
    std::lock_guard lock(mutex_);
    counts_.checked_bytes += more.checked_bytes;
    counts_.read_back_bytes += more.read_back_bytes;
    counts_.checking_ns += more.checking_ns;
  }
  Counts counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  mutable std::mutex mutex_;  // guards all below
  size_t left_;
  std::vector<IoBuffer> free_;
  Counts counts_;
};

}  // namespace farleaf::index::lsm
