// Range deletes: every version of a key in [start, end) that is older than `sequence` is gone.
//
// A run keeps those that were merged into it for as long as there is something below it. In a run, sequence 0 stands for
// "older than all of this run, newer than all below": merging has applied it to the run itself.
//
// There may be any number of them. So they are looked up as *fragments*: in the order of their starts, where two of them either
// have the same bounds, and the newer one comes first, or do not overlap.
//
// Thread rule: value types and pure functions.
#pragma once

#include <span>
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

/// How many open snapshots (ascending) are older than the sequence: versions with the same number are in one stratum, that is,
/// no snapshot tells them apart.
size_t StratumOf(std::span<const Sequence> snapshots, Sequence sequence);

/// What these delete, as fragments, of which there are up to twice as many: the newest of each stratum, in O(n log n). Neighbours that
/// delete the same are one fragment.
std::vector<RangeDelete> Fragments(const std::vector<RangeDelete>& deletes,
                                   std::span<const Sequence> snapshots);
/// Whether they are such as Fragments returns, for some snapshots.
bool AreFragments(const std::vector<RangeDelete>& deletes);

/// The newest that covers the key and that a reader at `snapshot` sees, if any, in O(log n). REQUIRES: fragments.
const RangeDelete* NewestCovering(const std::vector<RangeDelete>& fragments, std::string_view key,
                                  Sequence snapshot);

/// The parts that lie in [from, to); empty `to`: to the end. Of fragments they are fragments.
std::vector<RangeDelete> Clip(const std::vector<RangeDelete>& deletes, std::string_view from,
                              std::string_view to);

}  // namespace farleaf::index::lsm
