// ValueGarbage: how much of the value log is garbage, as far as anybody knows, and what is yet to be told to the manifest.
//
// The share is that of all segments that may be collected: full ones that no commit under way names, but for those that damage keeps.
// So while it is over any limit, one of these segments is over that limit, too (the largest of them is no less than their mean): there is always
// something to collect, and of what is collected no garbage is left.
//
// Thread rule: thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>

#include "index/lsm/state.h"

namespace farleaf::index::lsm {

/// From this share of the limit on writers are delayed, and the worst segment is collected even if it has less than enough.
inline constexpr double kGarbageSlow = 0.9;

class ValueGarbage {
 public:
  /// Records that nothing will ever name, or what was not filled of a full segment.
  void AddUnnamed(SegmentId segment, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    unnamed_[segment] += bytes;
  }
  /// What was added since the last time, to the edit's.
  void TellUnnamed(StateEdit* edit) {
    std::lock_guard lock(mutex_);
    for (const auto& [segment, bytes] : unnamed_) edit->garbage[segment] += bytes;
    unnamed_.clear();
  }

  /// Nobody is to wait for the garbage of this segment.
  void Keep(SegmentId segment) {
    std::lock_guard lock(mutex_);
    kept_.insert(segment);
  }
  void LetGo(SegmentId segment) {
    std::lock_guard lock(mutex_);
    kept_.erase(segment);
  }
  uint64_t kept() const {
    std::lock_guard lock(mutex_);
    return kept_.size();
  }

  /// As the state has it. `below`: LsmStore::ValuesClosedBelow.
  void Look(const StoreState& state, SegmentId below) {
    uint64_t garbage_bytes = 0, segments = 0;
    {
      std::lock_guard lock(mutex_);
      for (const auto& [segment, bytes] : state.value_log) {
        if (segment >= below) break;
        if (kept_.contains(segment)) continue;
        ++segments;
        garbage_bytes += std::min<uint64_t>(bytes, storage::kSegmentBytes);
      }
    }
    segments_.store(segments, std::memory_order_relaxed);
    garbage_bytes_.store(garbage_bytes, std::memory_order_relaxed);
    const double all = static_cast<double>(segments) * storage::kSegmentBytes;
    share_.store(segments < kSegmentsFew ? 0 : static_cast<double>(garbage_bytes) / all,
                 std::memory_order_relaxed);
  }
  // As they were at the last look:
  uint64_t segments() const { return segments_.load(std::memory_order_relaxed); }
  uint64_t garbage_bytes() const { return garbage_bytes_.load(std::memory_order_relaxed); }
  /// Of few segments it is nothing: one of them is a large share.
  double share() const { return share_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kSegmentsFew = 16;

  mutable std::mutex mutex_;               // guards, down to here:
  std::map<SegmentId, uint64_t> unnamed_;  // garbage that no edit tells of yet
  std::set<SegmentId> kept_;
  std::atomic<uint64_t> segments_{0}, garbage_bytes_{0};
  std::atomic<double> share_{0};
};

}  // namespace farleaf::index::lsm
