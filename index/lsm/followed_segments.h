// FollowedSegments: segments of a recovery log that another process has written, as a follower's store (follower.h) has taken them in: until all of
// their commits are in tables, and until they are removed.
//
// Thread rule: thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "index/lsm/types.h"

namespace farleaf::index::lsm {

class FollowedSegments {
 public:
  /// All of its commits are in memtables; `last` is the last one.
  void Add(SegmentId segment, Sequence last) {
    std::lock_guard lock(mutex_);
    pending_[segment] = last;
  }
  bool Contains(SegmentId segment) const {
    std::lock_guard lock(mutex_);
    return pending_.contains(segment);
  }
  /// Those with nothing behind `flushed`.
  std::vector<SegmentId> UpTo(Sequence flushed) const {
    std::vector<SegmentId> segments;
    std::lock_guard lock(mutex_);
    for (const auto& [segment, last] : pending_) {
      if (last <= flushed) segments.push_back(segment);
    }
    return segments;
  }
  /// They are not in the manifest any more.
  void Dropped(const std::vector<SegmentId>& segments) {
    std::lock_guard lock(mutex_);
    for (const SegmentId segment : segments) pending_.erase(segment);
    dropped_.insert(dropped_.end(), segments.begin(), segments.end());
  }
  /// For whoever removes them.
  std::vector<SegmentId> TakeDropped() {
    std::lock_guard lock(mutex_);
    return std::exchange(dropped_, {});
  }

 private:
  mutable std::mutex mutex_;  // guards all below
  std::map<SegmentId, Sequence> pending_;
  std::vector<SegmentId> dropped_;
};

}  // namespace farleaf::index::lsm
