// Whether an edit fits a state, without a copy of it: states may be large.
#include <algorithm>
#include <map>
#include <set>

#include "index/lsm/state.h"

namespace farleaf::index::lsm {

namespace {

std::string_view FirstOf(const TableInfo& table, std::string_view from) {
  return std::max<std::string_view>(table.smallest, from);
}

/// A run while an edit is gone through.
struct Changing {
  const std::vector<TableState>* before = nullptr;
  std::set<TableId> dropped;
  std::map<TableId, std::string_view> cut;
  std::map<std::string_view, const StateEdit::TableAt*> added;  // by the largest key

  /// null: it is not there, or is dropped.
  const TableState* Find(TableId id) const {
    const auto at = std::find_if(before->begin(), before->end(),
                                 [id](const TableState& each) { return each.table.id() == id; });
    return at == before->end() || dropped.contains(id) ? nullptr : &*at;
  }
  std::string_view FromOf(const TableState& table) const {
    const auto recut = cut.find(table.table.id());
    return recut == cut.end() ? std::string_view(table.from) : recut->second;
  }
  bool Overlaps(const StateEdit::TableAt& table) const {
    const std::string_view first = FirstOf(table.table, table.from);
    auto at = std::partition_point(before->begin(), before->end(), [first](const TableState& each) {
      return each.table.largest < first;
    });
    while (at != before->end() && dropped.contains(at->table.id())) ++at;
    if (at != before->end()) {
      if (FirstOf(at->table, FromOf(*at)) <= table.table.largest) return true;
    }
    const auto beside = added.lower_bound(first);
    return beside != added.end() &&
           FirstOf(beside->second->table, beside->second->from) <= table.table.largest;
  }
};

Status CheckTables(const StoreState& state, const StateEdit& edit) {
  static const std::vector<TableState> kNoTables;
  std::map<RunPlace, Changing> runs;
  std::set<uint8_t> sunk;
  for (const uint8_t level : edit.sunk) {
    if (!sunk.insert(level).second || !state.run({level, RunKind::kSinking}).empty()) {
      return Misfit("a level has a sinking run already");
    }
    runs[{level, RunKind::kGrowing}].before = &kNoTables;
    runs[{level, RunKind::kSinking}].before = &state.run({level, RunKind::kGrowing}).tables;
  }
  const auto run = [&](RunPlace place) -> Changing& {
    Changing& changing = runs[place];
    if (!changing.before) changing.before = &state.run(place).tables;
    return changing;
  };
  for (const auto& [place, id] : edit.dropped) {
    if (!run(place).Find(id)) return Misfit("an edit drops a table that is not there");
    run(place).dropped.insert(id);
  }
  for (const auto& [place, id, from] : edit.cut) {
    Changing& changing = run(place);
    const TableState* const table = changing.Find(id);
    if (!table) return Misfit("an edit cuts a table that is not there");
    if (from <= FirstOf(table->table, changing.FromOf(*table)) || from > table->table.largest) {
      return Misfit("an edit cuts nothing of a table, or all of it");
    }
    changing.cut[id] = from;
  }
  for (const StateEdit::TableAt& each : edit.added) {
    Changing& changing = run(each.place);
    if (FirstOf(each.table, each.from) > each.table.largest) {
      return Misfit("an edit adds a table without entries");
    }
    if (!state.MayAdd(each.place, edit)) return Misfit("an edit adds to a fresh run of the past");
    if (changing.Overlaps(each)) {
      return Misfit("an edit adds a table that overlaps another of its run");
    }
    changing.added[each.table.largest] = &each;
  }
  for (const auto& [from, to] : edit.kept_moved) {
    if (from.kind == RunKind::kFresh || to.kind == RunKind::kFresh || from == to) {
      return Misfit("an edit keeps a fresh run");
    }
  }
  for (const auto& [place, kept] : edit.kept) {
    if (place.kind == RunKind::kFresh) return Misfit("an edit keeps a fresh run");
  }
  for (const auto& [place, deletes] : edit.range_deletes) {
    if (!deletes.empty() && !state.MayAdd(place, edit)) {
      return Misfit("an edit adds to a fresh run of the past");
    }
  }
  return Status::Ok();
}

Status CheckLogs(const StoreState& state, const StateEdit& edit) {
  const auto contains = [](const std::vector<SegmentId>& ids, SegmentId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  std::set<SegmentId> gone;
  for (const SegmentId id : edit.recovery_dropped) {
    if (!gone.insert(id).second ||
        !(contains(state.recovery_log, id) || contains(edit.recovery_granted, id))) {
      return Misfit("an edit drops a segment of the recovery log that is not there");
    }
  }
  for (const SegmentId id : edit.values_dropped) {
    if (!gone.insert(id).second ||
        !(state.value_log.contains(id) || contains(edit.values_granted, id))) {
      return Misfit("an edit drops a segment of the value log that is not there");
    }
  }
  return Status::Ok();
}

}  // namespace

Status StoreState::Check(const StateEdit& edit) const {
  FARLEAF_RETURN_IF_ERROR(CheckTables(*this, edit));
  return CheckLogs(*this, edit);
}

}  // namespace farleaf::index::lsm
