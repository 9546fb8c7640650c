// Stamps: which times of a backup's clock are proved: when it showed them, all that was acknowledged by then is in the backup's tables now (README.md,
// Staleness). Of one backup, from its filling on.
//
// A stamp comes with the store's last sequence at a moment behind it, and is proved by an edit at the backup that has flushed up to there. Between
// two flushes there may be any number of stamps: kMax of them are remembered, evenly, so that what is proved is older by
// 2 / kMax of the time between two flushes, at most.
//
// Thread rule: a value type.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "index/lsm/types.h"

namespace farleaf::server::replication {

class Stamps {
 public:
  using Sequence = index::lsm::Sequence;
  static constexpr size_t kMax = 64;

  /// `last`: the store's last sequence, looked at when the stamp was here. In the order of both.
  void Add(uint64_t stamp_ns, Sequence last) {
    if (last <= flushed_through_) {
      proved_ns_ = std::max(proved_ns_, stamp_ns);
      return;
    }
    // Of those with one sequence the last is worth more.
    if (!waiting_.empty() && waiting_.back().last == last) waiting_.pop_back();
    waiting_.push_back({stamp_ns, last});
    if (waiting_.size() > kMax) Thin();
  }
  /// The backup has committed this.
  void Flushed(Sequence through) {
    flushed_through_ = std::max(flushed_through_, through);
    const auto proved = std::ranges::find_if(
        waiting_, [this](const Waiting& each) { return each.last > flushed_through_; });
    if (proved == waiting_.begin()) return;
    proved_ns_ = std::max(proved_ns_, (proved - 1)->stamp_ns);
    waiting_.erase(waiting_.begin(), proved);
  }
  /// 0: none.
  uint64_t proved_ns() const { return proved_ns_; }
  size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    uint64_t stamp_ns = 0;
    Sequence last = 0;
  };
  /// Every second one goes; the newest stays.
  void Thin() {
    size_t kept = 0;
    for (size_t i = (waiting_.size() + 1) % 2; i < waiting_.size(); i += 2) {
      waiting_[kept++] = waiting_[i];
    }
    waiting_.resize(kept);
  }
  std::vector<Waiting> waiting_;  // ascending in both, none proved
  Sequence flushed_through_ = 0;
  uint64_t proved_ns_ = 0;
};

}  // namespace farleaf::server::replication
