// OpenSnapshots: the sequences at which somebody still reads. Merges keep what they see (merge_rule.h).
//
// Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

#include "index/lsm/types.h"

namespace farleaf::index::lsm {

class OpenSnapshots {
 public:
  void Add(Sequence sequence) {
    std::lock_guard lock(mutex_);
    open_.insert(sequence);
  }
  void Remove(Sequence sequence) {
    std::lock_guard lock(mutex_);
    open_.erase(open_.find(sequence));
  }
  /// Ascending, each once.
  std::vector<Sequence> List() const {
    std::lock_guard lock(mutex_);
    std::vector<Sequence> list;
    for (const Sequence sequence : open_) {
      if (list.empty() || list.back() != sequence) list.push_back(sequence);
    }
    return list;
  }
  /// kSequenceMax: none is open.
  Sequence Oldest() const {
    std::lock_guard lock(mutex_);
    return open_.empty() ? kSequenceMax : *open_.begin();
  }

 private:
  mutable std::mutex mutex_;  // guards open_
  std::multiset<Sequence> open_;
};

}  // namespace farleaf::index::lsm
