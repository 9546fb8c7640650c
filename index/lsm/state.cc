#include "index/lsm/state.h"

#include <algorithm>
#include <iterator>

#include "dsm/base/bytes.h"

namespace farleaf::index::lsm {

namespace {

class EditWriter {
 public:
  explicit EditWriter(std::string* out) : writer_(out) {}
  void Number(uint64_t number) { writer_.Write<uint64_t>(number); }
  void Bytes(std::string_view bytes) {
    writer_.Write<uint32_t>(static_cast<uint32_t>(bytes.size()));
    writer_.WriteBytes(bytes);
  }
  void Place(RunPlace place) {
    writer_.Write<uint8_t>(place.level);
    writer_.Write<uint8_t>(static_cast<uint8_t>(place.kind));
    if (place.kind == RunKind::kFresh) Number(place.through);
  }
  void Ids(const std::vector<SegmentId>& ids) {
    Count(ids.size());
    for (const SegmentId id : ids) Number(storage::Number(id));
  }
  void Count(size_t count) { writer_.Write<uint32_t>(static_cast<uint32_t>(count)); }

 private:
  ByteWriter writer_;
};

// Whatever it reads is of some form; ok() tells at the end whether all of it was there.
class EditReader {
 public:
  explicit EditReader(std::span<const std::byte> bytes) : reader_(bytes) {}
  bool ok() const { return reader_.ok() && !bad_; }
  bool at_end() const { return reader_.remaining() == 0; }
  uint64_t Number() { return reader_.Read<uint64_t>(); }
  std::string Bytes() {
    const auto length = reader_.Read<uint32_t>();
    return std::string(AsChars(reader_.ReadBytes(length)));
  }
  RunPlace Place() {
    const auto level = reader_.Read<uint8_t>();
    const auto kind = static_cast<RunKind>(reader_.Read<uint8_t>());
    if (kind == RunKind::kFresh) {
      const RunPlace place = FreshPlace(Number());
      bad_ |= level != 0 || place.through == 0 || place.through > kSequenceMax;
      return place;
    }
    bad_ |= level >= kLevelsMax || kind > RunKind::kFresh;
    return bad_ ? RunPlace{} : RunPlace{level, kind};
  }
  /// No more than there can be in what is left.
  size_t Count(size_t bytes_each) {
    const auto count = reader_.Read<uint32_t>();
    bad_ |= count > reader_.remaining() / bytes_each;
    return bad_ ? 0 : count;
  }
  std::vector<SegmentId> Ids() {
    std::vector<SegmentId> ids(Count(8));
    for (SegmentId& id : ids) id = SegmentId{Number()};
    return ids;
  }
  void Refuse() { bad_ = true; }

 private:
  ByteReader reader_;
  bool bad_ = false;
};

void WriteRangeDeletes(const std::vector<RangeDelete>& deletes, EditWriter* out) {
  out->Count(deletes.size());
  for (const RangeDelete& range : deletes) {
    out->Bytes(range.start);
    out->Bytes(range.end);
    out->Number(range.sequence);
  }
}

std::vector<RangeDelete> ReadRangeDeletes(EditReader* in) {
  std::vector<RangeDelete> deletes(in->Count(16));
  for (RangeDelete& range : deletes) {
    range.start = in->Bytes();
    range.end = in->Bytes();
    range.sequence = in->Number();
  }
  if (!AreFragments(deletes)) in->Refuse();
  return deletes;
}

void WriteKept(const StateEdit& edit, EditWriter* out) {
  out->Count(edit.kept_moved.size());
  for (const auto& [from, to] : edit.kept_moved) {
    out->Place(from);
    out->Place(to);
  }
  out->Count(edit.kept.size());
  for (const auto& [place, kept] : edit.kept) {
    out->Place(place);
    out->Count(kept.tables.size());
    for (const auto& [table, from] : kept.tables) {
      out->Bytes(table.Encode());
      out->Bytes(from);
    }
    WriteRangeDeletes(kept.range_deletes, out);
    out->Count(kept.ranges.size());
    for (const KeyRange& range : kept.ranges) {
      out->Bytes(range.start);
      out->Bytes(range.end);
    }
  }
}

Status ReadKept(EditReader* in, StateEdit* edit) {
  for (size_t i = in->Count(4); i > 0; --i) {
    const RunPlace from = in->Place();
    edit->kept_moved.emplace_back(from, in->Place());
  }
  for (size_t i = in->Count(14); i > 0 && in->ok(); --i) {
    auto& [place, kept] = edit->kept.emplace_back();
    place = in->Place();
    for (size_t tables = in->Count(8); tables > 0 && in->ok(); --tables) {
      const std::string encoded = in->Bytes();
      auto table = TableInfo::Decode(AsBytes(encoded));
      if (!table.ok()) return table.status().WithContext("manifest");
      kept.tables.push_back({std::move(*table), in->Bytes()});
    }
    kept.range_deletes = ReadRangeDeletes(in);
    kept.ranges.resize(in->Count(8));
    for (KeyRange& range : kept.ranges) {
      range.start = in->Bytes();
      range.end = in->Bytes();
    }
  }
  return Status::Ok();
}

}  // namespace

std::string StateEdit::Encode() const {
  std::string bytes;
  EditWriter out(&bytes);
  out.Count(sunk.size());
  for (const uint8_t level : sunk) out.Place({level, RunKind::kGrowing});
  out.Count(dropped.size());
  for (const auto& [place, table] : dropped) {
    out.Place(place);
    out.Number(storage::Number(table));
  }
  out.Count(cut.size());
  for (const TableCut& each : cut) {
    out.Place(each.place);
    out.Number(storage::Number(each.table));
    out.Bytes(each.from);
  }
  out.Count(added.size());
  for (const TableAt& each : added) {
    out.Place(each.place);
    out.Bytes(each.table.Encode());
    out.Bytes(each.from);
  }
  out.Count(range_deletes.size());
  for (const auto& [place, deletes] : range_deletes) {
    out.Place(place);
    WriteRangeDeletes(deletes, &out);
  }
  for (const auto* ids :
       {&recovery_granted, &recovery_dropped, &values_granted, &values_dropped, &values_torn}) {
    out.Ids(*ids);
  }
  out.Count(garbage.size());
  for (const auto& [segment, added_bytes] : garbage) {
    out.Number(storage::Number(segment));
    out.Number(added_bytes);
  }
  out.Number(flushed_through);
  out.Number(flush_bytes);
  out.Number(segments_end);
  out.Number(durable_through);
  for (const uint64_t bytes_of :
       {written.user, written.values, written.recovery, written.flushed, written.merged}) {
    out.Number(bytes_of);
  }
  // A store without damage is written as before there was a word for it.
  if (!kept_moved.empty() || !kept.empty()) WriteKept(*this, &out);
  return bytes;
}

Result<StateEdit> StateEdit::Decode(std::span<const std::byte> bytes) {
  EditReader in(bytes);
  StateEdit edit;
  for (size_t i = in.Count(2); i > 0; --i) {
    const RunPlace place = in.Place();
    if (place.kind != RunKind::kGrowing) in.Refuse();
    edit.sunk.push_back(place.level);
  }
  for (size_t i = in.Count(10); i > 0; --i) {
    const RunPlace place = in.Place();
    edit.dropped.emplace_back(place, TableId{in.Number()});
  }
  for (size_t i = in.Count(14); i > 0; --i) {
    const RunPlace place = in.Place();
    const TableId table{in.Number()};
    edit.cut.push_back({place, table, in.Bytes()});
  }
  for (size_t i = in.Count(10); i > 0 && in.ok(); --i) {
    const RunPlace place = in.Place();
    const std::string encoded = in.Bytes();
    auto table = TableInfo::Decode(AsBytes(encoded));
    if (!table.ok()) return table.status().WithContext("manifest");
    edit.added.push_back({place, std::move(*table), in.Bytes()});
  }
  for (size_t i = in.Count(6); i > 0; --i) {
    const RunPlace place = in.Place();
    edit.range_deletes.emplace_back(place, ReadRangeDeletes(&in));
  }
  for (auto* ids : {&edit.recovery_granted, &edit.recovery_dropped, &edit.values_granted,
                    &edit.values_dropped, &edit.values_torn}) {
    *ids = in.Ids();
  }
  for (size_t i = in.Count(16); i > 0; --i) {
    const SegmentId segment{in.Number()};
    edit.garbage[segment] = in.Number();
  }
  edit.flushed_through = in.Number();
  edit.flush_bytes = in.Number();
  edit.segments_end = in.Number();
  edit.durable_through = in.Number();
  for (auto* bytes_of : {&edit.written.user, &edit.written.values, &edit.written.recovery,
                         &edit.written.flushed, &edit.written.merged}) {
    *bytes_of = in.Number();
  }
  if (in.ok() && !in.at_end()) FARLEAF_RETURN_IF_ERROR(ReadKept(&in, &edit));
  if (!in.ok() || !in.at_end()) return Misfit("an edit is not of its form");
  return edit;
}

namespace {

using Tables = std::vector<StoreState::TableState>;

Tables::iterator FindTable(Tables& tables, TableId id) {
  return std::find_if(tables.begin(), tables.end(),
                      [id](const auto& each) { return each.table.id() == id; });
}

bool MayKeep(RunPlace place) { return place.kind != RunKind::kFresh; }

Status ApplyToTables(const StateEdit& edit, StoreState* state) {
  for (const uint8_t level : edit.sunk) {
    auto& sinking = state->run({level, RunKind::kSinking});
    if (!sinking.empty()) return Misfit("a level has a sinking run already");
    sinking = std::move(state->run({level, RunKind::kGrowing}));
    state->run({level, RunKind::kGrowing}) = {};
  }
  for (const auto& [place, id] : edit.dropped) {
    Tables& tables = state->run(place).tables;
    const auto at = FindTable(tables, id);
    if (at == tables.end()) return Misfit("an edit drops a table that is not there");
    tables.erase(at);
  }
  for (const auto& [place, id, from] : edit.cut) {
    Tables& tables = state->run(place).tables;
    const auto at = FindTable(tables, id);
    if (at == tables.end()) return Misfit("an edit cuts a table that is not there");
    if (from <= std::max(at->table.smallest, at->from) || from > at->table.largest) {
      return Misfit("an edit cuts nothing of a table, or all of it");
    }
    at->from = from;
  }
  for (const auto& [place, table, from] : edit.added) {
    if (from > table.largest) return Misfit("an edit adds a table without entries");
    if (!state->MayAdd(place, edit)) return Misfit("an edit adds to a fresh run of the past");
    Tables& tables = state->run(place).tables;
    const auto at = std::lower_bound(
        tables.begin(), tables.end(), std::max(table.smallest, from),
        [](const auto& each, const std::string& key) { return each.table.largest < key; });
    const std::string& next_first =
        at == tables.end() ? table.largest : std::max(at->table.smallest, at->from);
    if (at != tables.end() && next_first <= table.largest) {
      return Misfit("an edit adds a table that overlaps another of its run");
    }
    tables.insert(at, {table, from});
  }
  for (const auto& [place, deletes] : edit.range_deletes) {
    if (!deletes.empty() && !state->MayAdd(place, edit)) {
      return Misfit("an edit adds to a fresh run of the past");
    }
    state->run(place).range_deletes = deletes;
  }
  for (const auto& [from, to] : edit.kept_moved) {
    if (!MayKeep(from) || !MayKeep(to) || from == to) return Misfit("an edit keeps a fresh run");
    auto& behind = state->run(to).kept;
    auto moved = std::exchange(state->run(from).kept, {});
    behind.insert(behind.begin(), std::make_move_iterator(moved.begin()),
                  std::make_move_iterator(moved.end()));
  }
  for (size_t i = edit.kept.size(); i-- > 0;) {
    const auto& [place, kept] = edit.kept[i];
    if (!MayKeep(place)) return Misfit("an edit keeps a fresh run");
    auto& behind = state->run(place).kept;
    behind.insert(behind.begin(), kept);
  }
  std::erase_if(state->fresh, [](const auto& each) { return each.second.empty(); });
  return Status::Ok();
}

Status ApplyToLogs(const StateEdit& edit, StoreState* state) {
  for (const SegmentId id : edit.recovery_granted) state->recovery_log.push_back(id);
  for (const SegmentId id : edit.recovery_dropped) {
    if (std::erase(state->recovery_log, id) == 0) {
      return Misfit("an edit drops a segment of the recovery log that is not there");
    }
  }
  for (const SegmentId id : edit.values_granted) state->value_log[id];
  for (const auto& [id, bytes] : edit.garbage) {
    // A segment that was collected may still be named by tables below: what they named is no garbage any more.
    if (const auto at = state->value_log.find(id); at != state->value_log.end())
      at->second += bytes;
  }
  state->torn.insert(edit.values_torn.begin(), edit.values_torn.end());
  for (const SegmentId id : edit.values_dropped) {
    state->torn.erase(id);
    if (state->value_log.erase(id) == 0) {
      return Misfit("an edit drops a segment of the value log that is not there");
    }
  }
  return Status::Ok();
}

}  // namespace

void WrittenBytes::Add(const WrittenBytes& more) {
  user += more.user;
  values += more.values;
  recovery += more.recovery;
  flushed += more.flushed;
  merged += more.merged;
}

std::string_view NameOf(RunKind kind) {
  constexpr std::string_view kNames[] = {"growing", "sinking", "fresh"};
  return kNames[static_cast<size_t>(kind)];
}

StoreState::RunState& StoreState::run(RunPlace place) {
  if (place.kind == RunKind::kFresh) return fresh[place.through];
  return levels[place.level][static_cast<size_t>(place.kind)];
}

const StoreState::RunState& StoreState::run(RunPlace place) const {
  static const RunState kNone;
  if (place.kind != RunKind::kFresh) {
    return levels[place.level][static_cast<size_t>(place.kind)];
  }
  const auto at = fresh.find(place.through);
  return at == fresh.end() ? kNone : at->second;
}

bool StoreState::MayAdd(RunPlace place, const StateEdit& edit) const {
  return place.kind != RunKind::kFresh || fresh.contains(place.through) ||
         (place.through > flushed_through && place.through <= edit.flushed_through);
}

std::vector<std::pair<RunPlace, const RunTables*>> StoreState::runs() const {
  std::vector<std::pair<RunPlace, const RunTables*>> there;
  for (const auto& [through, run] : fresh) there.emplace_back(FreshPlace(through), &run);
  for (uint8_t level = 0; level < kLevelsMax; ++level) {
    for (const RunKind kind : {RunKind::kGrowing, RunKind::kSinking}) {
      const RunPlace place{level, kind};
      if (!run(place).empty()) there.emplace_back(place, &run(place));
      for (const KeptTables& kept : run(place).kept) there.emplace_back(place, &kept);
    }
  }
  return there;
}

Status StoreState::Apply(const StateEdit& edit) {
  FARLEAF_RETURN_IF_ERROR(ApplyToTables(edit, this));
  FARLEAF_RETURN_IF_ERROR(ApplyToLogs(edit, this));
  flushed_through = std::max(flushed_through, edit.flushed_through);
  if (edit.flush_bytes != 0) flush_bytes = edit.flush_bytes;
  segments_end = std::max(segments_end, edit.segments_end);
  durable_through = std::max(durable_through, edit.durable_through);
  written.Add(edit.written);
  return Status::Ok();
}

StateEdit StoreState::AsEdit() const {
  StateEdit edit;
  const auto add = [&edit](RunPlace place, const RunState& run) {
    for (const auto& [table, from] : run.tables) edit.added.push_back({place, table, from});
    if (!run.range_deletes.empty()) edit.range_deletes.emplace_back(place, run.range_deletes);
    for (const KeptTables& kept : run.kept) edit.kept.emplace_back(place, kept);
  };
  for (const auto& [through, run] : fresh) add(FreshPlace(through), run);
  for (uint8_t level = 0; level < kLevelsMax; ++level) {
    for (const RunKind kind : {RunKind::kGrowing, RunKind::kSinking}) {
      add({level, kind}, run({level, kind}));
    }
  }
  edit.recovery_granted = recovery_log;
  for (const auto& [id, bytes] : value_log) {
    edit.values_granted.push_back(id);
    if (bytes != 0) edit.garbage[id] = bytes;
  }
  edit.values_torn.assign(torn.begin(), torn.end());
  edit.flushed_through = flushed_through;
  edit.flush_bytes = flush_bytes;
  edit.segments_end = segments_end;
  edit.durable_through = durable_through;
  edit.written = written;
  return edit;
}

}  // namespace farleaf::index::lsm
