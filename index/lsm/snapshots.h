// OpenSnapshots: the sequences at which somebody still reads, and since when. Merges keep what they see (merge_rule.h).
//
// Thread rule: thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "index/lsm/types.h"

namespace farleaf::index::lsm {

/// What a reader sees: changes up to a sequence, less what had expired at a time.
struct SnapshotAt {
  Sequence sequence = 0;
  uint64_t taken_ms = 0;  ///< since 1970
  bool operator==(const SnapshotAt&) const = default;
};

class OpenSnapshots {
 public:
  /// Good until it is removed.
  using Handle = std::multimap<Sequence, uint64_t>::iterator;

  Handle Add(SnapshotAt at) {
    std::lock_guard lock(mutex_);
    return open_.emplace(at.sequence, at.taken_ms);
  }
  void Remove(Handle handle) {
    std::lock_guard lock(mutex_);
    open_.erase(handle);
  }
  /// Ascending, each sequence once, with the earliest time.
  std::vector<SnapshotAt> List() const {
    std::lock_guard lock(mutex_);
    std::vector<SnapshotAt> list;
    for (const auto& [sequence, taken_ms] : open_) {
      if (list.empty() || list.back().sequence != sequence) {
        list.push_back({sequence, taken_ms});
      } else {
        list.back().taken_ms = std::min(list.back().taken_ms, taken_ms);
      }
    }
    return list;
  }
  size_t count() const {
    std::lock_guard lock(mutex_);
    return open_.size();
  }

 private:
  mutable std::mutex mutex_;  // guards open_
  std::multimap<Sequence, uint64_t> open_;
};

}  // namespace farleaf::index::lsm
