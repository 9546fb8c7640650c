// Merge: sources become tables, one after the other.
//
// Thread rule: one worker. Outlived by the sources, which stand at their first entries.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "index/lsm/merge_rule.h"
#include "index/lsm/merge_source.h"
#include "index/lsm/table_builder.h"
#include "index/lsm/version.h"

namespace farleaf::index::lsm {

class Merge {
 public:
  struct Deps {
    storage::Storage* storage = nullptr;
    SegmentRemover* remover = nullptr;
    TableBuilder::NewSegment new_segment;
    TableBuilderOptions tables;
    /// Asked now and then: whether to give up.
    std::function<bool()> stopped = {};

    /// Of tables that no edit will name: here, and at whoever was shipped them.
    dsm::Task<void> Drop(dsm::Worker& worker, std::vector<SegmentId> segments) const;
  };
  /// `sources`: the newest first, as in the rule.
  Merge(Deps deps, MergeRule rule, const std::vector<MergeSource*>& sources);

  struct Output {
    std::optional<TableInfo> table;  ///< none: nothing of what was read for it was kept
    std::string
        last_key;  ///< all entries up to this key, and none behind it, are in this table or an earlier one
    std::map<SegmentId, uint64_t>
        garbage;  ///< bytes of the value log that entries named which were not kept
  };
  /// The next table, of no more than is read in a bounded time; nullopt: there was nothing left. Unavailable: stopped. After a failure
  /// no segment of the table is left, and what was shipped of it is given up (Mirror::DropTables).
  dsm::Task<Result<std::optional<Output>>> NextTable(dsm::Worker& worker);

  /// Whether NextTable would find nothing.
  bool ended() const { return ahead_.empty(); }
  const MergeRule& rule() const { return rule_; }

 private:
  struct Ahead {
    MergeSource* source;
    size_t number;  ///< of the source in the rule
  };
  static bool Before(const Ahead& a, const Ahead& b);
  void SiftDown(size_t at);
  /// The first one has gone on.
  void Settle();
  dsm::Task<Status> Fill(dsm::Worker& worker, TableBuilder& builder, Output* output);

  const Deps deps_;
  MergeRule rule_;
  std::vector<Ahead> ahead_;  // those that have not ended, as a heap: what comes next in front
};

}  // namespace farleaf::index::lsm
