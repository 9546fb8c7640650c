// ScanPlan: which parts of which leaves a scan reads in one round trip.
//
// Of an ordered leaf (leaf_homes.h) those from the scan's start on, up to where its limit is expected to be
// met, or exactly up to its end key; of all others every part. What is remembered of leaves (how many
// entries, which parts entries went past) may be out of date, and where the limit is met is a guess: what
// was read says how far it suffices (scan_parts.cc), and the rest is read in the next round trip.
//
// Thread rule: one owner.
#pragma once

#include <cmath>
#include <cstdint>

#include "index/blink/part_window.h"
#include "index/range_index.h"

namespace farleaf::index {

/// What a scan wants of one leaf: first <= key < end, both inside of the leaf's fences. first < end.
struct WantedKeys {
  uint64_t first = 0, end = 0;
};

class ScanPlan {
 public:
  /// `rows` are wanted of leaves of `parts`; `usual`: the entries of one of which nothing is remembered.
  ScanPlan(double rows, double usual, size_t parts, ScanDirection direction)
      : missing_(rows),
        usual_(usual),
        parts_(parts),
        forward_(direction == ScanDirection::kForward) {}

  /// Whether what is planned suffices, as far as one can know.
  bool enough() const { return missing_ + Slack(variance_) <= 0; }
  /// The parts to read of the next leaf, which has these fences.
  PartMask Next(LeafRange range, PartHints hints, WantedKeys wanted) {
    const LeafHomes homes(parts_, hints.placement(), range);
    const double entries = Entries(hints);
    const double span = static_cast<double>(range.high - range.low);
    const double share = static_cast<double>(wanted.end - wanted.first) / span;
    const PartMask window = homes.ordered()
                                ? Window(homes, hints, wanted, Needed(hints) / entries * span)
                                : AllParts(parts_);
    Count(hints, share);
    return window;
  }
  /// The next leaf is read whole, and it is not known which share of it is wanted.
  void NextWhole(PartHints hints, double share) { Count(hints, share); }

 private:
  /// A second round trip for one scan in twenty, about, when much is remembered of the leaves.
  static double Slack(double variance) { return 1.7 * std::sqrt(variance); }
  double Entries(PartHints hints) const {
    return std::max(hints.count(parts_).value_or(usual_), 1.0);
  }
  double VarianceOfEntries(PartHints hints) const {
    return hints.count(parts_) ? 0 : usual_ * usual_ / 25;
  }
  /// Rows that the next leaf is to bring, so that it probably is the last one.
  double Needed(PartHints hints) const {
    const double share = std::clamp(missing_ / Entries(hints), 0.0, 1.0);
    return missing_ + Slack(variance_ + VarianceOfShare(hints, share));
  }
  double VarianceOfShare(PartHints hints, double share) const {
    return Entries(hints) * share * (1 - share) + VarianceOfEntries(hints) * share * share;
  }
  void Count(PartHints hints, double share) {
    missing_ -= Entries(hints) * share;
    variance_ += VarianceOfShare(hints, share);
  }
  /// `keys`: so many are to be read, as far as there are.
  PartMask Window(const LeafHomes& homes, PartHints hints, WantedKeys wanted, double keys) const {
    const uint64_t room = wanted.end - 1 - wanted.first;
    const uint64_t step = keys < static_cast<double>(room) ? static_cast<uint64_t>(keys) : room;
    const size_t first = homes.Of(forward_ ? wanted.first : wanted.end - 1 - step);
    size_t last = homes.Of(forward_ ? wanted.first + step : wanted.end - 1);
    PartMask window = 0;
    for (size_t at = first; at <= last; ++at) window |= PartMask{1} << at;
    for (size_t i = 0; i < homes.parts() && hints.passed(last); ++i) {
      last = homes.Next(last);
      window |= PartMask{1} << last;
    }
    return window;
  }

  double missing_;
  double variance_ = 0;  ///< of the rows that what is planned brings
  const double usual_;
  const size_t parts_;
  const bool forward_;
};

}  // namespace farleaf::index
