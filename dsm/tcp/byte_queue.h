// ByteQueue: bytes between a socket and whoever produces or consumes them; contiguous at all times.
//
// Invariant: head <= tail <= capacity; capacity grows by doubling to capacity_max, never above.
// Thread rule: one owner.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>

#include "dsm/base/check.h"

namespace farleaf::dsm {

class ByteQueue {
 public:
  explicit ByteQueue(size_t capacity_max) : capacity_max_(capacity_max) {}

  std::span<const std::byte> readable() const { return {bytes_.get() + head_, tail_ - head_}; }
  size_t size() const { return tail_ - head_; }
  bool empty() const { return head_ == tail_; }
  /// How much more may be put in, growing included.
  size_t room() const { return capacity_max_ - size(); }
  void Clear() { head_ = tail_ = 0; }

  void Consume(size_t bytes) {
    FARLEAF_DCHECK(bytes <= size(), bytes, size());
    head_ += bytes;
    if (head_ == tail_) Clear();
  }
  /// At least `bytes` of space, to be filled and then committed. REQUIRES: bytes <= room().
  std::span<std::byte> Prepare(size_t bytes) {
    if (capacity_ - tail_ < bytes) MakeRoom(bytes);
    return {bytes_.get() + tail_, capacity_ - tail_};
  }
  void Commit(size_t bytes) {
    FARLEAF_DCHECK(bytes <= capacity_ - tail_, bytes);
    tail_ += bytes;
  }
  void Append(std::span<const std::byte> bytes) {
    if (bytes.empty()) return;
    std::memcpy(Prepare(bytes.size()).data(), bytes.data(), bytes.size());
    Commit(bytes.size());
  }

 private:
  void MakeRoom(size_t bytes) {
    const size_t held = size();
    FARLEAF_CHECK(held + bytes <= capacity_max_, held, bytes, capacity_max_);
    size_t wanted = std::max<size_t>(capacity_, 4096);
    while (wanted < held + bytes) wanted *= 2;
    wanted = std::min(wanted, capacity_max_);
    if (wanted > capacity_) {
      std::unique_ptr<std::byte[]> grown(new std::byte[wanted]);
      if (held > 0) std::memcpy(grown.get(), bytes_.get() + head_, held);
      bytes_ = std::move(grown);
      capacity_ = wanted;
    } else {
      std::memmove(bytes_.get(), bytes_.get() + head_, held);
    }
    head_ = 0;
    tail_ = held;
  }

  size_t capacity_max_;
  size_t capacity_ = 0;
  std::unique_ptr<std::byte[]> bytes_;
  size_t head_ = 0;
  size_t tail_ = 0;
};

}  // namespace farleaf::dsm
