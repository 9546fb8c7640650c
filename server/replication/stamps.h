// Stamps: which times of a backup's clock are proved: when it showed them, all that was acknowledged by then is in the backup's tables now (README.md,
// Staleness). Of one backup, from its filling on.
//
// A stamp comes with the store's last sequence at a moment behind it, and is proved by an edit at the backup that has flushed up to there. Until then
// there may be any number of stamps: kMax of them are remembered, the older the sparser, so that a gap is in proportion to its age. Of stamps each 100 ms of an hour
// neighbours' ages differ by a fifth or so (36000 is 1.18 to the power of 64). What a flush proves is as old as its memtable's rotation, and a gap of that age.
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
  /// The one goes that leaves the smallest gap for its age; the oldest and the newest stay.
  void Thin() {
    size_t thinned = 1;
    for (size_t i = 2; i + 1 < waiting_.size(); ++i) {
      if (GapWithout(i) < GapWithout(thinned)) thinned = i;
    }
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(thinned));
  }
  double GapWithout(size_t i) const {
    const uint64_t gap_ns = waiting_[i + 1].stamp_ns - waiting_[i - 1].stamp_ns;
    const uint64_t age_ns = waiting_.back().stamp_ns - waiting_[i].stamp_ns;
    return static_cast<double>(gap_ns) / static_cast<double>(age_ns + 1);
  }
  std::vector<Waiting> waiting_;  // ascending in both, none proved
  Sequence flushed_through_ = 0;
  uint64_t proved_ns_ = 0;
};

}  // namespace farleaf::server::replication
