#include "benchmark/ycsb/completion_gaps.h"

#include <algorithm>

namespace farleaf::ycsb {

namespace {

std::vector<TimeSpan> Intersect(const std::vector<TimeSpan>& a, const std::vector<TimeSpan>& b) {
  std::vector<TimeSpan> both;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const TimeSpan common{std::max(a[i].begin_ns, b[j].begin_ns),
                          std::min(a[i].end_ns, b[j].end_ns)};
    if (common.begin_ns < common.end_ns) both.push_back(common);
    a[i].end_ns < b[j].end_ns ? ++i : ++j;
  }
  return both;
}

}  // namespace

void CompletionGaps::Keep(TimeSpan gap) {
  kept_.push_back(gap);
  if (kept_.size() < kKeptMax) return;
  do {
    floor_ns_ *= 2;
    std::erase_if(kept_, [this](const TimeSpan& one) { return one.length_ns() < floor_ns_; });
  } while (kept_.size() > kKeptMax / 2);
}

std::vector<TimeSpan> CompletionGaps::Within(TimeSpan phase) const {
  if (last_ns_ == 0) return {phase};
  std::vector<TimeSpan> all;
  if (first_ns_ > phase.begin_ns) all.push_back({phase.begin_ns, first_ns_});
  all.insert(all.end(), kept_.begin(), kept_.end());
  if (last_ns_ < phase.end_ns) all.push_back({last_ns_, phase.end_ns});
  return all;
}

uint64_t LongestCommonGap(std::span<const CompletionGaps* const> threads, TimeSpan phase) {
  std::vector<TimeSpan> common = {phase};
  uint64_t longest_ns = 0;
  for (const CompletionGaps* thread : threads) {
    longest_ns = std::max(longest_ns, thread->floor_ns());
    common = Intersect(common, thread->Within(phase));
  }
  for (const TimeSpan& gap : common) longest_ns = std::max(longest_ns, gap.length_ns());
  return std::min(longest_ns, phase.length_ns());
}

}  // namespace farleaf::ycsb
