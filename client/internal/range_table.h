// RangeTable: a map of ranges as a router uses it, and the parts of scans that lie in one range each.
//
// Invariant: the ranges cover all keys, each once; neighbours have different servers.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/operation.h"
#include "dsm/base/check.h"

namespace farleaf::client::internal {

struct Link;

struct Range {
  std::string start;     ///< up to the next one's
  std::string url;       ///< of its server
  Link* link = nullptr;  ///< to it; null: none yet
  /// Servers that may not yet have begun, or refused, operations on keys of this range that were sent under an older view.
  std::vector<Link*> behind;
};

/// Whether a map covers all keys, each once.
inline bool IsWhole(const RangeMap& map) {
  if (map.ranges.empty() || !map.ranges.front().start.empty()) return false;
  return std::is_sorted(map.ranges.begin(), map.ranges.end(),
                        [](const auto& a, const auto& b) { return a.start <= b.start; });
}

/// The smallest key that the tree takes at or above `bound`; nullopt: there is none. A server refuses bounds that are no
/// keys of the tree.
inline std::optional<std::string> SmallestKeyFrom(std::string bound, const TreeInfo& tree) {
  if (bound.size() > tree.key_bytes_max) {
    // The longest keys that it begins with are below it.
    bound.resize(tree.key_bytes_max);
    while (!bound.empty() && bound.back() == '\xff') bound.pop_back();
    if (bound.empty()) return std::nullopt;
    bound.back() = static_cast<char>(bound.back() + 1);
  }
  if (tree.layout == TreeLayout::kFixed8) bound.resize(tree.key_bytes_max, '\0');
  return bound;
}

class RangeTable {
 public:
  RangeTable() = default;
  /// REQUIRES: they cover all keys.
  explicit RangeTable(std::vector<Range> ranges) : ranges_(std::move(ranges)) {
    FARLEAF_CHECK(!ranges_.empty() && ranges_.front().start.empty(), ranges_.size());
    const auto same = [](const Range& a, const Range& b) {
      return a.url == b.url && a.link == b.link;
    };
    ranges_.erase(std::unique(ranges_.begin(), ranges_.end(), same), ranges_.end());
  }

  size_t size() const { return ranges_.size(); }
  Range& at(size_t i) { return ranges_[i]; }
  auto begin() { return ranges_.begin(); }
  auto end() { return ranges_.end(); }

  size_t Find(std::string_view key) const {
    const auto behind =
        std::upper_bound(ranges_.begin(), ranges_.end(), key,
                         [](std::string_view k, const Range& range) { return k < range.start; });
    return static_cast<size_t>(behind - ranges_.begin()) - 1;
  }

  /// Calls visit(Range&) with each that has keys in [start, end); nullopt: to the largest key.
  template <typename Visit>
  void VisitOverlapping(std::string_view start, const std::optional<std::string>& end,
                        Visit visit) {
    if (ranges_.empty()) return;
    for (size_t i = Find(start); i < ranges_.size(); ++i) {
      if (end && ranges_[i].start >= *end) break;
      visit(ranges_[i]);
    }
  }

  /// Of the range in which a scan goes on.
  size_t FindForScan(const ScanRange& scan, const TreeInfo& tree) const {
    if (!scan.reverse) return Find(scan.start);
    if (!scan.end) return ranges_.size() - 1;
    // The last one with keys below the end.
    size_t i = Find(*scan.end);
    while (i > 0) {
      const auto first = SmallestKeyFrom(ranges_[i].start, tree);
      if (first && *first < *scan.end) break;
      --i;
    }
    return i;
  }

  /// Cuts what is left of a scan to its part in range i, FindForScan's. Returns whether that is not all of it.
  bool CutScan(size_t i, const TreeInfo& tree, Operation::Pieces* pieces) const {
    ScanRange& scan = pieces->range;
    if (scan.reverse) {
      const auto first = SmallestKeyFrom(ranges_[i].start, tree);
      if (i == 0 || !first || *first <= scan.start) return false;
      pieces->beyond = {std::exchange(scan.start, *first)};
      return true;
    }
    if (i + 1 == ranges_.size()) return false;
    auto behind = SmallestKeyFrom(ranges_[i + 1].start, tree);
    if (!behind || (scan.end && *scan.end <= *behind)) return false;
    pieces->beyond = {std::exchange(scan.end, std::move(behind))};
    return true;
  }

 private:
  std::vector<Range> ranges_;
};

/// The other way: what is left of the whole scan, when its part is done or has come back.
inline void JoinScan(Operation::Pieces* pieces) {
  ScanRange& scan = pieces->range;
  std::optional<std::string> bound = std::move(pieces->beyond->bound);
  pieces->beyond.reset();
  const bool done = std::exchange(pieces->part_done, false);
  if (scan.reverse) {
    if (done) scan.end = std::move(scan.start);
    scan.start = std::move(bound).value_or("");
  } else {
    if (done) scan.start = std::move(*scan.end);
    scan.end = std::move(bound);
  }
}

}  // namespace farleaf::client::internal
