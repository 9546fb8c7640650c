#include "index/lsm/range_deletes.h"

#include <algorithm>
#include <functional>
#include <set>

namespace farleaf::index::lsm {

size_t StratumOf(std::span<const Sequence> snapshots, Sequence sequence) {
  return static_cast<size_t>(std::lower_bound(snapshots.begin(), snapshots.end(), sequence) -
                             snapshots.begin());
}

namespace {

/// Where a range begins or ends.
struct Bound {
  std::string_view key;
  bool begins;
  Sequence sequence;
};

using Open = std::multiset<Sequence, std::greater<>>;

/// The newest of each stratum, the newest first.
std::vector<Sequence> NewestOfStrata(const Open& open, std::span<const Sequence> snapshots) {
  std::vector<Sequence> newest;
  for (auto at = open.begin(); at != open.end();) {
    newest.push_back(*at);
    const size_t stratum = StratumOf(snapshots, *at);
    if (stratum == 0) break;
    at = open.lower_bound(snapshots[stratum - 1]);
  }
  return newest;
}

}  // namespace

std::vector<RangeDelete> Fragments(const std::vector<RangeDelete>& deletes,
                                   std::span<const Sequence> snapshots) {
  std::vector<Bound> bounds;
  bounds.reserve(2 * deletes.size());
  for (const RangeDelete& range : deletes) {
    bounds.push_back({range.start, true, range.sequence});
    bounds.push_back({range.end, false, range.sequence});
  }
  std::sort(bounds.begin(), bounds.end(),
            [](const Bound& a, const Bound& b) { return a.key < b.key; });
  std::vector<RangeDelete> fragments;
  std::vector<Sequence> last;  // of the last fragments, which are one a sequence
  Open open;
  for (size_t i = 0; i < bounds.size();) {
    const std::string_view start = bounds[i].key;
    for (; i < bounds.size() && bounds[i].key == start; ++i) {
      if (bounds[i].begins) {
        open.insert(bounds[i].sequence);
      } else {
        open.erase(open.find(bounds[i].sequence));
      }
    }
    if (open.empty()) continue;
    const std::string end(bounds[i].key);
    std::vector<Sequence> newest = NewestOfStrata(open, snapshots);
    if (newest == last && fragments.back().end == start) {
      for (size_t k = 1; k <= last.size(); ++k) fragments[fragments.size() - k].end = end;
      continue;
    }
    for (const Sequence sequence : newest) {
      fragments.push_back({std::string(start), end, sequence});
    }
    last = std::move(newest);
  }
  return fragments;
}

bool AreFragments(const std::vector<RangeDelete>& deletes) {
  for (size_t i = 0; i < deletes.size(); ++i) {
    const RangeDelete& range = deletes[i];
    if (range.start >= range.end) return false;
    if (i == 0) continue;
    const RangeDelete& before = deletes[i - 1];
    const bool same = before.start == range.start && before.end == range.end;
    if (same ? before.sequence <= range.sequence : before.end > range.start) return false;
  }
  return true;
}

const RangeDelete* NewestCovering(const std::vector<RangeDelete>& fragments, std::string_view key,
                                  Sequence snapshot) {
  // The first that ends behind the key is of the only bounds that can cover it.
  auto at = std::partition_point(fragments.begin(), fragments.end(),
                                 [key](const RangeDelete& each) { return each.end <= key; });
  for (; at != fragments.end() && at->start <= key; ++at) {
    if (at->sequence <= snapshot) return &*at;
  }
  return nullptr;
}

std::vector<RangeDelete> Clip(const std::vector<RangeDelete>& deletes, std::string_view from,
                              std::string_view to) {
  std::vector<RangeDelete> clipped;
  for (const RangeDelete& whole : deletes) {
    RangeDelete part = whole;
    if (part.start < from) part.start = from;
    if (!to.empty() && part.end > to) part.end = to;
    if (part.start < part.end) clipped.push_back(std::move(part));
  }
  return clipped;
}

}  // namespace farleaf::index::lsm
