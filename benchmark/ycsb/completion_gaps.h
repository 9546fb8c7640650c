// How long nobody got anything done: the longest time in which no operation of any thread ended.
//
// Each thread keeps the times between its own completions, as long as they are not short; no thread looks at what others
// write. A gap of all is the intersection of gaps of each, so that those kept tell every common gap that is not
// short, exactly.
//
// Thread rule: one owner each; LongestCommonGap when the threads have ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace farleaf::ycsb {

struct TimeSpan {
  uint64_t begin_ns = 0, end_ns = 0;
  uint64_t length_ns() const { return end_ns - begin_ns; }
};

class CompletionGaps {
 public:
  static constexpr size_t kKeptMax = 8192;
  static constexpr uint64_t kFloorNs = 50'000;

  void Complete(uint64_t now_ns) {
    if (last_ns_ == 0) {
      first_ns_ = now_ns;
    } else if (now_ns >= last_ns_ + floor_ns_) {
      Keep({last_ns_, now_ns});
    }
    last_ns_ = now_ns;
  }
  /// In order, with what is before the first completion and behind the last one.
  std::vector<TimeSpan> Within(TimeSpan phase) const;
  /// Gaps shorter than this are not kept: it doubles whenever there are too many.
  uint64_t floor_ns() const { return floor_ns_; }

 private:
  void Keep(TimeSpan gap);

  uint64_t floor_ns_ = kFloorNs;
  uint64_t first_ns_ = 0, last_ns_ = 0;  ///< 0: none yet
  std::vector<TimeSpan> kept_;
};

/// Of threads that ran in `phase`. Exact down to the largest floor of theirs, which is what shorter ones are told as.
uint64_t LongestCommonGap(std::span<const CompletionGaps* const> threads, TimeSpan phase);

}  // namespace farleaf::ycsb
