// LogBuffers: where segments of both logs are in memory until they are written.
//
// A buffer is used again when it was written, and nobody can look at it any more (dsm/epoch.h). How many full ones wait to be
// written is bounded, for both logs together; whoever would exceed it is told that there is no room.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include "index/lsm/types.h"

namespace farleaf::index::lsm {

/// Memory for I/O: aligned to a block.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t bytes)
      : bytes_(bytes),
        memory_(static_cast<std::byte*>(
            ::operator new(bytes, std::align_val_t{storage::kBlockBytes}))) {}
  std::byte* data() const { return memory_.get(); }
  size_t size() const { return bytes_; }
  std::span<std::byte> span() const { return {memory_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const {
      ::operator delete(memory, std::align_val_t{storage::kBlockBytes});
    }
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
};

struct LogBuffer {
  SegmentId segment = SegmentId::kNone;
  uint32_t seed = 0;  ///< SegmentSeed
  AlignedBytes bytes{storage::kSegmentBytes};
};

class LogBuffers {
 public:
  using Buffer = std::shared_ptr<LogBuffer>;
  /// That are kept for later.
  static constexpr size_t kFreeMax = 8;

  explicit LogBuffers(uint32_t full_max) : full_max_(full_max), free_(std::make_shared<Free>()) {}

  Buffer Take() {
    std::lock_guard lock(free_->mutex);
    if (free_->buffers.empty()) return std::make_shared<LogBuffer>();
    Buffer buffer = std::move(free_->buffers.back());
    free_->buffers.pop_back();
    return buffer;
  }
  /// For EpochDomain::Retire: gives the buffer back when it runs, even if the LogBuffers are gone by then.
  std::function<void()> Return(Buffer buffer) {
    return [free = free_, buffer = std::move(buffer)] {
      std::lock_guard lock(free->mutex);
      if (free->buffers.size() < kFreeMax) free->buffers.push_back(buffer);
    };
  }

  /// A tail is full: whether there is room for one more that is.
  bool TryAddFull() {
    if (full_.fetch_add(1, std::memory_order_relaxed) < full_max_) return true;
    full_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  void RemoveFull() { full_.fetch_sub(1, std::memory_order_relaxed); }
  bool has_room() const { return full_.load(std::memory_order_relaxed) < full_max_; }

 private:
  struct Free {
    std::mutex mutex;
    std::vector<Buffer> buffers;
  };
  const uint32_t full_max_;
  std::atomic<uint32_t> full_{0};
  std::shared_ptr<Free> free_;
};

}  // namespace farleaf::index::lsm
