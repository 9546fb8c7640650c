#include "index/lsm/store_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "dsm/base/log.h"
#include "index/lsm/log_replay.h"

namespace farleaf::index::lsm {

using storage::kSegmentBytes;
using storage::Number;

namespace {

/// In messages.
constexpr size_t kNamesMax = 8;

std::set<SegmentId> SetOf(const std::vector<SegmentId>& segments) {
  return {segments.begin(), segments.end()};
}

template <typename Look>
void ForEachTable(const StoreState& state, const Look& look) {
  for (const auto& [place, run] : state.runs()) {
    for (const TableState& each : run->tables) look(each.table);
  }
}

std::set<SegmentId> TableSegments(const StoreState& state) {
  std::set<SegmentId> segments;
  ForEachTable(state, [&](const TableInfo& table) {
    segments.insert(table.segments.begin(), table.segments.end());
  });
  return segments;
}

/// Of those that exist, the ones that are whole by the word of a durable state (store_copy.h).
std::set<SegmentId> ClaimedBy(const StoreState& state, const std::set<SegmentId>& existing) {
  std::set<SegmentId> claimed = TableSegments(state);
  SegmentId last = SegmentId::kNone;
  ForEachTable(state, [&](const TableInfo& table) {
    for (const TableInfo::LogSegment& log : table.dictionary) {
      last = std::max<SegmentId>(last, log.segment);
    }
  });
  for (const auto& [id, garbage] : state.value_log) {
    if (id < last) claimed.insert(id);
  }
  std::erase_if(claimed, [&](SegmentId id) { return !existing.contains(id); });
  return claimed;
}

bool IsOfLog(const StoreState& state, LogKind log, SegmentId segment) {
  if (log == LogKind::kValues) return state.value_log.contains(segment);
  return std::ranges::find(state.recovery_log, segment) != state.recovery_log.end();
}

std::set<SegmentId> LogSegments(const StoreState& state) {
  std::set<SegmentId> segments(state.recovery_log.begin(), state.recovery_log.end());
  for (const auto& [id, garbage] : state.value_log) segments.insert(id);
  return segments;
}

}  // namespace

dsm::Task<Result<std::unique_ptr<StoreCopy>>> StoreCopy::Open(dsm::Worker& worker,
                                                              storage::Storage* storage) {
  auto existing = storage->List();
  if (!existing.ok()) co_return existing.status();
  auto opened = co_await Manifest::OpenCopy(worker, storage);
  if (opened.status().code() == StatusCode::kNotFound) {
    if (!existing->empty()) {
      co_return Status::Corruption(
          "there are segments, but no CURRENT: this is no copy; empty the directory, and it is "
          "filled anew");
    }
    co_return std::unique_ptr<StoreCopy>(new StoreCopy(storage, Manifest::Create(storage, 0)));
  }
  if (!opened.ok()) {
    co_return opened.status().WithContext(
        "the copy cannot be read (empty the directory, and it is filled anew)");
  }
  std::unique_ptr<StoreCopy> copy(new StoreCopy(storage, std::move(opened->manifest)));
  // What was read of it may be in memory only: nothing is claimed on its word before it is durable.
  Status durable = co_await copy->manifest_->SyncOpened(worker);
  if (!durable.ok()) co_return durable;
  const std::set<SegmentId> here = SetOf(*existing);
  copy->whole_ = copy->claimed_ = ClaimedBy(copy->state(), here);
  std::ranges::set_intersection(opened->filled, here,
                                std::inserter(copy->noted_, copy->noted_.end()));
  copy->whole_.insert(copy->noted_.begin(), copy->noted_.end());
  if (opened->whole) copy->phase_ = Phase::kLeft;
  co_return copy;
}

CopyMetrics StoreCopy::metrics() const {
  const CopiedTables::Counts& tables = tables_.counts();
  const size_t pending = tables_.pending();
  return {.filled_bytes = filled_bytes_,
          .log_bytes = logs_.bytes_received(),
          .table_bytes = tables.bytes_received,
          .tables_verified = tables.verified,
          .verified_bytes = tables.verified_bytes,
          .read_back_bytes = tables.read_back_bytes,
          .verifying_ns = tables.verifying_ns,
          .edits = edits_,
          .segments = whole_.size() + logs_.open().size() + pending,
          .segments_pending = pending,
          .segments_kept = reads_->kept()};
}

Status StoreCopy::CheckPhase(std::initializer_list<Phase> any_of, std::string_view what) const {
  if (std::ranges::find(any_of, phase_) == any_of.end()) {
    return Status::InvalidArgument(std::string(what) +
                                   " of a copy that is not there for it: it is to be filled first");
  }
  return logs_.failure();
}

void StoreCopy::Remove(SegmentId segment) {
  Forget(segment);
  RemoveFile(segment);
}

void StoreCopy::Forget(SegmentId segment) {
  whole_.erase(segment);
  unsynced_.erase(segment);
  noted_.erase(segment);
  claimed_.erase(segment);
  filled_.Forget(segment);
  tables_.Forget(segment);
  logs_.Forget(segment);
}

void StoreCopy::RemoveFiles(const std::vector<SegmentId>& segments) {
  for (const SegmentId segment : segments) RemoveFile(segment);
}

bool StoreCopy::MakeRoom(const Status& failure) {
  if (failure.code() != StatusCode::kResourceExhausted) return false;
  const std::vector<SegmentId> kept = reads_->LetGo();
  RemoveFiles(kept);
  return !kept.empty();
}

void StoreCopy::RemoveFile(SegmentId segment) {
  const Status removed = storage_->Remove(segment);
  if (removed.ok() || removed.code() == StatusCode::kNotFound) return;
  FARLEAF_LOG(warn, "a segment of the copy stays until it is filled or opened: {}",
              removed.message());
}

Status StoreCopy::NamesOf(std::vector<SegmentId> missing) const {
  std::string names;
  for (size_t i = 0; i < std::min(missing.size(), kNamesMax); ++i) {
    names += (i == 0 ? "" : ", ") + storage_->NameOf(missing[i]);
  }
  if (missing.size() > kNamesMax) names += fmt::format(" and {} more", missing.size() - kNamesMax);
  return Status::NotFound(names + " did not come whole: send what is missing, and ask again");
}

// ---- Filling

dsm::Task<Status> StoreCopy::BeginFill(dsm::Worker& worker) {
  phase_ = Phase::kNone;
  reads_->Hide();
  // Of these nobody knows whether they will be on the device.
  for (const auto& [segment, log] : logs_.unsynced()) whole_.erase(segment);
  logs_.ForgetAll();
  tables_.ForgetAll();
  filled_.ForgetAll();
  Status begun = co_await manifest_->BeginFill(worker, noted_);
  if (!begun.ok()) co_return begun;
  auto existing = storage_->List();
  if (!existing.ok()) co_return existing.status();
  // One that the manifest claims may be open here still, as nobody has said that it is full. It goes no more, since it may come back from
  // a removal with any bytes.
  claimed_ = ClaimedBy(state(), SetOf(*existing));
  whole_.insert(claimed_.begin(), claimed_.end());
  for (const SegmentId id : *existing) {
    if (!whole_.contains(id)) Remove(id);
  }
  phase_ = Phase::kFilling;
  co_return Status::Ok();
}

dsm::Task<Status> StoreCopy::Empty(dsm::Worker& worker) {
  phase_ = Phase::kNone;
  reads_->Hide();
  logs_.ForgetAll();
  tables_.ForgetAll();
  filled_.ForgetAll();
  Status emptied = co_await manifest_->BeginFill(worker, {});
  if (!emptied.ok()) co_return emptied;
  emptied = co_await manifest_->Install(worker, StoreState{});
  if (!emptied.ok()) co_return emptied;
  auto existing = storage_->List();
  if (!existing.ok()) co_return existing.status();
  for (const SegmentId id : *existing) Remove(id);
  whole_.clear();
  claimed_.clear();
  unsynced_.clear();
  noted_.clear();
  co_return Status::Ok();
}

dsm::Task<Status> StoreCopy::WriteSegment(dsm::Worker& worker, SegmentChunk chunk, More more) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPhase({Phase::kFilling}, "a segment"));
  if (claimed_.contains(chunk.segment) || logs_.is_open(chunk.segment)) {
    co_return Status::InvalidArgument(storage_->NameOf(chunk.segment) +
                                      " is here: what Inventory names is not sent");
  }
  whole_.erase(chunk.segment);
  unsynced_.erase(chunk.segment);
  Status written;
  if (noted_.contains(chunk.segment)) written = co_await TakeFromNoted(worker, chunk.segment);
  if (written.ok()) written = co_await filled_.Write(worker, chunk);
  if (!written.ok()) co_return written;
  filled_bytes_ += chunk.bytes.size();
  if (more == More::kComes) co_return written;
  written = co_await filled_.FillUp(worker, chunk.segment);
  if (!written.ok()) co_return written;
  filled_.Forget(chunk.segment);
  whole_.insert(chunk.segment);
  unsynced_.insert(chunk.segment);
  if (unsynced_.size() >= std::max(noted_at_once_, noted_.size() / 4)) {
    written = co_await NoteFilled(worker);
  }
  co_return written;
}

dsm::Task<Status> StoreCopy::SyncFilled(dsm::Worker& worker) {
  std::vector<SegmentId> unsynced(unsynced_.begin(), unsynced_.end());
  std::vector<SegmentId> lost;
  Status synced = co_await SyncSegments(worker, *storage_, std::move(unsynced), &lost);
  for (const SegmentId id : lost) whole_.erase(id);
  if (!synced.ok()) phase_ = Phase::kNone;
  co_return synced;
}

dsm::Task<Status> StoreCopy::NoteFilled(dsm::Worker& worker) {
  Status noted = co_await SyncFilled(worker);
  if (!noted.ok()) co_return noted;
  noted_.merge(std::exchange(unsynced_, {}));
  noted = co_await manifest_->NoteFilled(worker, noted_);
  co_return noted;
}

dsm::Task<Status> StoreCopy::TakeFromNoted(dsm::Worker& worker, SegmentId segment) {
  std::set<SegmentId> others = noted_;
  others.erase(segment);
  Status taken = co_await manifest_->NoteFilled(worker, others);
  if (taken.ok()) noted_ = std::move(others);
  co_return taken;
}

Status StoreCopy::CheckAllHere(const StoreState& state, const std::set<SegmentId>& existing) const {
  std::set<SegmentId> needed = TableSegments(state);
  ForEachTable(state, [&](const TableInfo& table) {
    for (const TableInfo::LogSegment& log : table.dictionary) {
      if (state.value_log.contains(log.segment)) needed.insert(log.segment);
    }
  });
  // Granted ones may never have been made; but what is here is whole, or open.
  for (const SegmentId id : LogSegments(state)) {
    if (existing.contains(id)) needed.insert(id);
  }
  std::erase_if(needed, [this](SegmentId id) { return Holds(id); });
  if (needed.empty()) return Status::Ok();
  return NamesOf({needed.begin(), needed.end()});
}

dsm::Task<Status> StoreCopy::Install(dsm::Worker& worker, StoreState state, OpenBytes open) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPhase({Phase::kFilling}, "the state"));
  auto existing = storage_->List();
  if (!existing.ok()) co_return existing.status();
  FARLEAF_CO_RETURN_IF_ERROR(CheckAllHere(state, SetOf(*existing)));
  Status synced = co_await SyncFilled(worker);
  if (synced.ok()) synced = co_await logs_.Sync(worker, SyncReach::kBoth, std::move(open));
  if (!synced.ok()) {
    phase_ = Phase::kNone;
    co_return synced;
  }
  unsynced_.clear();
  std::set<SegmentId> named = TableSegments(state);
  named.merge(LogSegments(state));
  // Whether it fails or not, the state may be on the device then, and what it names is not touched before BeginFill has settled that.
  phase_ = Phase::kNone;
  Status installed = co_await manifest_->Install(worker, std::move(state));
  if (!installed.ok()) co_return installed;
  phase_ = Phase::kFollowing;
  noted_.clear();
  reads_->Begin();
  for (const SegmentId id : *existing) {
    if (!named.contains(id)) Remove(id);
  }
  co_return Status::Ok();
}

// ---- Logs

Status StoreCopy::CheckOpen(LogKind log, SegmentId segment) const {
  if (Holds(segment)) {
    return Status::InvalidArgument(storage_->NameOf(segment) + " is here, and cannot be opened");
  }
  if (phase_ == Phase::kFilling) return Status::Ok();
  if (IsOfLog(state(), log, segment)) return Status::Ok();
  return Status::InvalidArgument(storage_->NameOf(segment) +
                                 " is opened before an edit has granted it to its log");
}

dsm::Task<Status> StoreCopy::OpenLog(dsm::Worker& worker, LogKind log, SegmentId segment,
                                     std::span<std::byte> buffer) {
  FARLEAF_CO_RETURN_IF_ERROR(
      CheckPhase({Phase::kFilling, Phase::kFollowing}, "a segment of a log"));
  FARLEAF_CO_RETURN_IF_ERROR(CheckOpen(log, segment));
  filled_.Forget(segment);
  Status opened = co_await logs_.Open(worker, log, segment, buffer);
  if (MakeRoom(opened)) opened = co_await logs_.Open(worker, log, segment, buffer);
  co_return opened;
}

dsm::Task<Status> StoreCopy::Seal(dsm::Worker& worker, SegmentId segment, uint32_t used) {
  FARLEAF_CO_RETURN_IF_ERROR(
      CheckPhase({Phase::kFilling, Phase::kFollowing}, "a full segment of a log"));
  if (used > kSegmentBytes) {
    co_return Status::InvalidArgument(
        fmt::format("{} bytes of {}", used, storage_->NameOf(segment)));
  }
  if (!logs_.is_open(segment)) co_return Status::Ok();
  Status sealed = co_await logs_.Seal(worker, segment, used);
  // An edit may have dropped it meanwhile.
  if (sealed.ok() && (phase_ == Phase::kFilling || IsOfLog(state(), LogKind::kValues, segment) ||
                      IsOfLog(state(), LogKind::kRecovery, segment))) {
    whole_.insert(segment);
  }
  co_return sealed;
}

dsm::Task<Status> StoreCopy::Sync(dsm::Worker& worker, SyncReach reach, OpenBytes bytes) {
  FARLEAF_CO_RETURN_IF_ERROR(
      CheckPhase({Phase::kFilling, Phase::kFollowing}, "a sync of the logs"));
  Status synced = co_await logs_.Sync(worker, reach, std::move(bytes));
  co_return synced;
}

// ---- Tables and edits

dsm::Task<Status> StoreCopy::WriteTable(dsm::Worker& worker, SegmentChunk chunk) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPhase({Phase::kFollowing}, "bytes of a table"));
  if (Holds(chunk.segment)) {
    co_return Status::InvalidArgument(storage_->NameOf(chunk.segment) +
                                      " is here, and is not written again");
  }
  Status written = co_await tables_.Write(worker, chunk);
  if (MakeRoom(written)) written = co_await tables_.Write(worker, chunk);
  co_return written;
}

void StoreCopy::DropTables(std::span<const SegmentId> segments) {
  for (const SegmentId segment : segments) {
    if (tables_.is_pending(segment)) Remove(segment);
  }
}

std::vector<const TableInfo*> StoreCopy::NewTables(const StateEdit& edit) const {
  std::vector<const TableInfo*> tables;
  const auto add = [&](const TableInfo& table) {
    const bool here =
        std::ranges::all_of(table.segments, [this](SegmentId id) { return whole_.contains(id); });
    if (!here) tables.push_back(&table);
  };
  for (const StateEdit::TableAt& each : edit.added) add(each.table);
  for (const auto& [place, kept] : edit.kept) {
    for (const TableState& each : kept.tables) add(each.table);
  }
  return tables;
}

std::vector<SegmentId> StoreCopy::Missing(const StateEdit& edit) const {
  std::vector<SegmentId> missing;
  for (const TableInfo* table : NewTables(edit)) {
    const auto of_table = tables_.Missing(*table);
    missing.insert(missing.end(), of_table.begin(), of_table.end());
  }
  return missing;
}

Status StoreCopy::CheckValuesHere(const TableInfo& table, const StateEdit& edit) const {
  for (const TableInfo::LogSegment& log : table.dictionary) {
    const SegmentId id = log.segment;
    const bool stays = (state().value_log.contains(id) ||
                        std::ranges::find(edit.values_granted, id) != edit.values_granted.end()) &&
                       std::ranges::find(edit.values_dropped, id) == edit.values_dropped.end();
    if (stays && !Holds(id)) {
      return Status::Corruption(storage_->NameOf(id) +
                                ", which a table names, is not here: fill the copy anew");
    }
  }
  return Status::Ok();
}

dsm::Task<Status> StoreCopy::TakeTables(dsm::Worker& worker, std::vector<const TableInfo*> tables) {
  std::vector<SegmentId> segments;
  for (const TableInfo* table : tables) {
    Status verified = co_await tables_.Verify(worker, *table);
    if (!verified.ok()) co_return verified;
    segments.insert(segments.end(), table->segments.begin(), table->segments.end());
  }
  std::vector<SegmentId> lost;
  Status synced = co_await SyncSegments(worker, *storage_, std::move(segments), &lost);
  for (const SegmentId id : lost) tables_.Forget(id);
  co_return synced;
}

std::vector<TableState> StoreCopy::DroppedTables(const StateEdit& edit) const {
  std::vector<TableState> tables;
  if (edit.dropped.empty()) return tables;
  std::set<TableId> dropped;
  for (const auto& [place, id] : edit.dropped) dropped.insert(id);
  for (const auto& [place, run] : state().runs()) {
    for (const TableState& each : run->tables) {
      if (dropped.erase(each.table.id()) != 0) tables.push_back(each);
    }
  }
  return tables;
}

dsm::Task<Status> StoreCopy::Commit(dsm::Worker& worker, const StateEdit& edit) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPhase({Phase::kFollowing}, "an edit"));
  const Status fits = state().Check(edit);
  if (!fits.ok()) co_return fits.WithContext("the copy is to be filled anew: its state is another");
  std::vector<SegmentId> missing = Missing(edit);
  if (!missing.empty()) co_return NamesOf(std::move(missing));
  const std::vector<const TableInfo*> tables = NewTables(edit);
  for (const TableInfo* table : tables) FARLEAF_CO_RETURN_IF_ERROR(CheckValuesHere(*table, edit));
  Status taken = co_await TakeTables(worker, tables);
  if (!taken.ok()) co_return taken;
  const std::vector<TableState> dropped = DroppedTables(edit);
  const Manifest::Applied show = [&](const StoreState& now) {
    if (edit.changes_tables()) reads_->Change(now);
  };
  Status committed = co_await manifest_->Commit(worker, edit, show);
  if (!committed.ok()) co_return committed;
  ++edits_;
  for (const TableInfo* table : tables) {
    for (const SegmentId id : table->segments) {
      tables_.Forget(id);
      whole_.insert(id);
    }
  }
  // A table may have gone to another run only.
  const std::set<SegmentId> named =
      dropped.empty() ? std::set<SegmentId>{} : TableSegments(state());
  for (const TableState& each : dropped) {
    for (const SegmentId id : each.table.segments) {
      if (!named.contains(id)) Remove(id);
    }
  }
  for (const SegmentId id : edit.recovery_dropped) Remove(id);
  for (const SegmentId id : edit.values_dropped) {
    Forget(id);
    RemoveFiles(reads_->Drop(id));
  }
  co_return Status::Ok();
}

// ---- Reads

Result<uint64_t> StoreCopy::TakeStamp() {
  FARLEAF_RETURN_IF_ERROR(CheckPhase({Phase::kFollowing}, "a stamp"));
  return reads_->TakeStamp();
}

Status StoreCopy::Prove(uint64_t stamp_ns) {
  FARLEAF_RETURN_IF_ERROR(CheckPhase({Phase::kFollowing}, "a proved stamp"));
  std::vector<SegmentId> gone;
  const Status proved = reads_->Prove(stamp_ns, state(), &gone);
  RemoveFiles(gone);
  return proved;
}

// ---- Promotion

dsm::Task<Result<HeldThrough>> StoreCopy::Held(dsm::Worker& worker) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPhase({Phase::kLeft}, "a look at what is held"));
  ReplayOptions options{
      .epoch = state().epoch, .segments = state().recovery_log, .flushed = state().flushed_through};
  options.collected = [this](SegmentId id) { return !state().value_log.contains(id); };
  options.durable = state().durable_through;
  const std::function<Status(CommitReader)> pass_over = [](const CommitReader&) {
    return Status::Ok();
  };
  auto report = co_await Replay(worker, *storage_, std::move(options), pass_over);
  if (!report.ok()) co_return report.status();
  co_return HeldThrough{state().epoch, report->last};
}

dsm::Task<Status> StoreCopy::FinishTails(dsm::Worker& worker) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPhase({Phase::kLeft, Phase::kFollowing}, "the promotion"));
  reads_->Hide();
  const std::vector<SegmentId> open = logs_.open();
  Status finished = co_await logs_.Finish(worker, state().epoch);
  if (!finished.ok()) co_return finished;
  whole_.insert(open.begin(), open.end());
  phase_ = Phase::kLeft;
  co_return finished;
}

dsm::Task<Status> StoreCopy::ReserveNumbers(dsm::Worker& worker, uint64_t count) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPhase({Phase::kLeft, Phase::kFollowing}, "the promotion"));
  auto existing = storage_->List();
  if (!existing.ok()) co_return existing.status();
  uint64_t end = state().segments_end;
  if (!existing->empty()) end = std::max(end, Number(existing->back()) + 1);
  const uint64_t numbers = TableInfo::LogSegment::kSegmentMax + 1;
  if (end >= numbers || count > numbers - end) {
    co_return Status::ResourceExhausted(
        fmt::format("of the store's numbers for segments all below {} may be in use, and there are "
                    "{}: dump it, and load it into a new one",
                    end, numbers));
  }
  StateEdit edit;
  edit.segments_end = end + count;
  Status committed = co_await manifest_->Commit(worker, edit);
  co_return committed;
}

}  // namespace farleaf::index::lsm
