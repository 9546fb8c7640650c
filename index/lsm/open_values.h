// OpenValues: values that were appended to the value log, and whose commits are not in a memtable yet.
//
// A change with a large value appends the value first, and may then wait for long until its commit finds room. Meanwhile no
// view leads to the value, and still it is no garbage. So a change says beforehand where the tail is that it appends
// behind, and takes that back when it is in the memtable, or has failed.
//
// Why ClosedBelow is right: it reads the tail, and then looks at who is open. Segments become the tail in the order of their ids. Whoever it
// does not see in a shard has been in the memtable by then, or comes to that shard later; then he reads the tail later,
// and appends to that segment or to one behind it.
//
// Thread rule: thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <mutex>

#include "index/lsm/log.h"
#include "dsm/base/spin_lock.h"

namespace farleaf::index::lsm {

class OpenValues {
  struct alignas(64) Shard {
    mutable SpinLock lock;                 // guards counts
    std::map<SegmentId, uint32_t> counts;  // who is open, by the tail that he saw
  };

 public:
  /// `opened`: each segment of the value log that was there when the store was opened has a lower id.
  explicit OpenValues(SegmentId opened) : opened_(opened) {}
  OpenValues(const OpenValues&) = delete;

  /// A change that is open. It outlives none of the rest.
  class Use {
   public:
    Use() = default;
    Use(const Use&) = delete;
    ~Use() { End(); }
    /// Before the first value is appended; later ones are covered as well.
    void Begin(OpenValues* values, const Log& log, uint64_t hint) {
      if (shard_) return;
      shard_ = &values->shards_[hint % kShards];
      std::lock_guard lock(shard_->lock);
      tail_ = values->Tail(log);
      ++shard_->counts[tail_];
    }
    void End() {
      if (!shard_) return;
      std::lock_guard lock(shard_->lock);
      const auto at = shard_->counts.find(tail_);
      if (--at->second == 0) shard_->counts.erase(at);
      shard_ = nullptr;
    }

   private:
    Shard* shard_ = nullptr;
    SegmentId tail_ = SegmentId::kNone;
  };

  SegmentId ClosedBelow(const Log& log) const {
    SegmentId closed = Tail(log);
    for (const Shard& shard : shards_) {
      std::lock_guard lock(shard.lock);
      if (!shard.counts.empty()) closed = std::min(closed, shard.counts.begin()->first);
    }
    return closed;
  }

 private:
  static constexpr size_t kShards = 16;
  SegmentId Tail(const Log& log) const {
    const SegmentId tail = log.tail_segment();
    return tail == SegmentId::kNone ? opened_ : tail;
  }
  const SegmentId opened_;
  std::array<Shard, kShards> shards_;
};

}  // namespace farleaf::index::lsm
