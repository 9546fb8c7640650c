// Range deletes: every version of a key in [start, end) that is older than `sequence` is gone.
//
// A run keeps those that were merged into it for as long as there is something below it. In a run, sequence 0 stands for
// "older than all of this run, newer than all below": merging has applied it to the run itself.
//
// Thread rule: value types.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "index/lsm/types.h"

namespace farleaf::index::lsm {

struct RangeDelete {
  std::string start, end;  ///< start < end
  Sequence sequence = 0;
  bool Covers(std::string_view key) const { return start <= key && key < end; }
  bool operator==(const RangeDelete&) const = default;
};

/// The newest that covers the key and that a reader at `snapshot` sees, if any. There are few: it looks at all.
inline const RangeDelete* NewestCovering(const std::vector<RangeDelete>& deletes,
                                         std::string_view key, Sequence snapshot) {
  const RangeDelete* newest = nullptr;
  for (const RangeDelete& candidate : deletes) {
    if (candidate.sequence > snapshot || !candidate.Covers(key)) continue;
    if (!newest || candidate.sequence > newest->sequence) newest = &candidate;
  }
  return newest;
}

/// The parts of `deletes` that lie in [from, to); nullopt-like empty `to`: to the end.
inline std::vector<RangeDelete> Clip(const std::vector<RangeDelete>& deletes, std::string_view from,
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
