// MergeRule: which versions of a key a merge keeps.
//
// The snapshots that are open divide all sequences into strata: two versions of a key are in one stratum if no snapshot
// sees the older one and not the newer. Of each stratum the newest version is kept; whatever is older is garbage.
// Snapshots that are taken later see the newest version of all that is being merged, which is always kept.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "index/lsm/range_deletes.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

class MergeRule {
 public:
  struct Setting {
    std::vector<Sequence> snapshots;  ///< open ones, ascending
    bool bottom = false;              ///< nothing lies below the merge's result
    uint64_t now_ms = 0;              ///< since 1970: what has expired by then is deleted
    std::vector<std::vector<RangeDelete>> range_deletes =
        {};  ///< of each source, the newest source first
    /// When each of the snapshots was taken: to them, what expired later has not. Empty: at `now_ms`.
    std::vector<uint64_t> snapshots_ms = {};
  };
  explicit MergeRule(Setting setting) : setting_(std::move(setting)) {
    for (auto& deletes : setting_.range_deletes) {
      deletes = Fragments(deletes, setting_.snapshots);
      any_range_deletes_ |= !deletes.empty();
    }
    expired_by_ms_.assign(setting_.snapshots.size() + 1, setting_.now_ms);
    for (size_t i = setting_.snapshots_ms.size(); i-- > 0;) {
      expired_by_ms_[i] = std::min(setting_.snapshots_ms[i], expired_by_ms_[i + 1]);
    }
  }

  /// Of versions and of range deletes (range_deletes.h).
  size_t StratumOf(Sequence sequence) const { return lsm::StratumOf(setting_.snapshots, sequence); }

  /// The next version, in the order of the merge: key by key, the newest first, by place and by sequence.
  /// Returns whether it is kept. It is then changed to what is to be written: sequence 0 where no snapshot can tell,
  /// kDeleted where it has expired.
  bool Keep(Entry* entry, size_t source) {
    const size_t stratum = StratumOf(entry->sequence);
    const bool same_key = any_ && entry->key == key_;
    const bool shadowed = same_key && stratum == stratum_;
    key_.assign(entry->key);
    any_ = true;
    stratum_ = stratum;
    if (shadowed) return false;
    if (any_range_deletes_ && InRangeDelete(*entry, stratum, source)) return false;
    if (entry->expires_ms != 0 && entry->expires_ms <= expired_by_ms_[stratum]) {
      *entry = {.key = entry->key, .sequence = entry->sequence};
    }
    if (stratum != 0) return true;
    // Every snapshot, open or to come, sees it: it is the oldest version that is left of its key.
    if (entry->kind == EntryKind::kDeleted && setting_.bottom) return false;
    entry->sequence = 0;
    return true;
  }

  /// Those of the sources that are to be kept in the result, as fragments: sequence 0 where the merge has applied them. Of those in front of
  /// `first_source` the result takes none.
  std::vector<RangeDelete> RangeDeletesOfResult(size_t first_source = 0) const {
    std::vector<RangeDelete> kept;
    for (size_t source = first_source; source < setting_.range_deletes.size(); ++source) {
      for (RangeDelete range : setting_.range_deletes[source]) {
        if (StratumOf(range.sequence) == 0) {
          if (setting_.bottom) continue;
          range.sequence = 0;
        }
        kept.push_back(std::move(range));
      }
    }
    return Fragments(kept, setting_.snapshots);
  }

 private:
  /// Whether one of the same stratum covers the version that is newer: of a newer source, or by its sequence.
  bool InRangeDelete(const Entry& entry, size_t stratum, size_t source) const {
    const auto& snapshots = setting_.snapshots;
    const Sequence last_of_stratum = stratum < snapshots.size() ? snapshots[stratum] : kSequenceMax;
    for (size_t i = 0; i <= source; ++i) {
      const RangeDelete* const covering =
          NewestCovering(setting_.range_deletes[i], entry.key, last_of_stratum);
      if (covering && StratumOf(covering->sequence) == stratum &&
          (i < source || covering->sequence > entry.sequence)) {
        return true;
      }
    }
    return false;
  }

  Setting setting_;
  bool any_range_deletes_ = false;
  /// Of each stratum: what had expired by then, has for whoever sees the stratum.
  std::vector<uint64_t> expired_by_ms_;
  bool any_ = false;  ///< a version was seen; the last one:
  std::string key_;
  size_t stratum_ = 0;
};

}  // namespace farleaf::index::lsm
