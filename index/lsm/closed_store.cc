#include "index/lsm/closed_store.h"

#include <algorithm>
#include <utility>

#include "index/lsm/entry_of.h"
#include "index/lsm/log_reader.h"
#include "index/lsm/named_segments.h"
#include "index/lsm/table_stream.h"

namespace farleaf::index::lsm {

namespace {

constexpr uint64_t kCacheBytes = uint64_t{64} << 20;
/// Leaves that are fetched together.
constexpr size_t kLeavesAhead = 4;

StoreStats::RunStats StatsOf(RunPlace place, const RunTables& run) {
  StoreStats::RunStats stats{.place = place, .range_deletes = run.range_deletes.size()};
  for (const auto& [table, from] : run.tables) {
    ++stats.tables;
    stats.segments += table.segments.size();
    stats.entries += table.entries;
    stats.deletes += table.deletes;
    stats.expiring += table.expiring;
    stats.cut_tables += !from.empty();
    stats.content_bytes += table.content_bytes;
  }
  return stats;
}

/// Of values that tables name.
NamedBytes NamedByTables(const StoreState& state) {
  NamedBytes named;
  for (const auto& [place, run] : state.runs()) {
    for (const auto& each : run->tables) {
      for (const auto& log : each.table.dictionary) named[log.segment] += log.live_bytes;
    }
  }
  return named;
}

}  // namespace

uint64_t StoreStats::value_other_bytes() const {
  return value_bytes() - std::min(value_bytes(), value_live_bytes + value_garbage_bytes);
}

uint64_t StoreStats::data_bytes() const {
  uint64_t bytes = value_live_bytes + (recovery.ok() ? recovery->bytes : 0);
  for (const RunStats& run : runs) bytes += run.content_bytes;
  return bytes;
}

ClosedStore::ClosedStore(std::unique_ptr<storage::ReadOnlyFiles> files, const Clock* wall)
    : wall_(wall),
      files_(std::move(files)),
      remover_(std::make_shared<SegmentRemover>(files_.get())),
      cache_(kCacheBytes) {
  remover_->Close();
}

dsm::Task<Result<std::unique_ptr<ClosedStore>>> ClosedStore::Open(dsm::Worker& worker,
                                                                  std::string directory,
                                                                  const Clock* wall) {
  auto files = storage::ReadOnlyFiles::Open(std::move(directory));
  if (!files.ok()) co_return files.status();
  std::unique_ptr<ClosedStore> store(new ClosedStore(std::move(*files), wall));
  auto manifest = co_await Manifest::Open(worker, store->files_.get());
  if (manifest.status().code() == StatusCode::kNotFound) {
    const std::string& path = store->files().directory().path();
    if (store->files().segments().empty()) {
      co_return Status::InvalidArgument("there is no store in " + std::string(path) +
                                        ": it has no CURRENT");
    }
    co_return Status::Corruption(path + "/CURRENT or the manifest that it names is missing (" +
                                 std::string(manifest.status().message()) +
                                 "); restore the directory from a copy");
  }
  if (!manifest.ok()) co_return manifest.status();
  store->manifest_ = std::move(*manifest);
  co_return store;
}

dsm::Task<Result<ReplayReport>> ClosedStore::Recover(dsm::Worker& worker, LookAtChange look) {
  memtable_ = std::make_shared<Memtable>();
  ReplayOptions replay{
      .epoch = state().epoch, .segments = state().recovery_log, .flushed = state().flushed_through};
  replay.collected = [this](SegmentId id) { return IsCollected(id); };
  replay.durable = state().durable_through;
  const std::function<Status(CommitReader)> insert = [&](CommitReader commit) {
    Sequence sequence = commit.first();
    Change change;
    for (; commit.Next(&change); ++sequence) {
      if (look) look(change);
      if (change.kind == ChangeKind::kDeleteRange) {
        memtable_->InsertRange(change.key, change.end, sequence);
      } else {
        memtable_->Insert(EntryOf(change, sequence));
      }
    }
    return Status::Ok();
  };
  auto report = co_await Replay(worker, *files_, std::move(replay), insert);
  if (!report.ok()) memtable_ = nullptr;
  co_return report;
}

dsm::Task<Result<StoreStats>> ClosedStore::Stats(dsm::Worker& worker) {
  StoreStats stats;
  for (const auto& [place, run] : state().runs()) stats.runs.push_back(StatsOf(place, *run));
  NamedBytes named = NamedByTables(state());
  const LookAtChange look = [&named](const Change& change) {
    if (change.kind == ChangeKind::kPutPointer)
      named[change.pointer.segment] += change.pointer.bytes;
  };
  auto recovered = co_await Recover(worker, look);
  stats.recovery = std::move(recovered);
  for (const auto& [id, garbage] : state().value_log) {
    if (!files_->Has(id)) continue;
    ++stats.value_segments;
    stats.value_live_bytes += named[id];
    stats.value_garbage_bytes += garbage;
  }
  stats.value_segments_torn = state().torn.size();
  for (const SegmentId id : state().recovery_log) stats.recovery_segments += files_->Has(id);
  stats.flushed_through = state().flushed_through;
  stats.segments = files_->segments().size();
  stats.free_files = files_->free_files();
  const auto unnamed = FindUnnamed(state(), files_.get(), files_->segments());
  if (!unnamed.ok()) co_return unnamed.status();
  stats.unnamed_segments = unnamed->size();
  stats.manifest = manifest_->opened_file();
  stats.named_file_bytes = stats.manifest.bytes;
  stats.epoch = state().epoch;
  stats.segments_end = state().segments_end;
  stats.written = state().written;
  co_return stats;
}

dsm::Task<Result<ClosedStore::GoOn>> ClosedStore::ScanTable(dsm::Worker& worker, RunPlace place,
                                                            const StoreState::TableState& table,
                                                            const std::string& start,
                                                            const LookAtRow& look) {
  const Table opened(files_.get(), table.table);
  TableStream stream(&opened, start);
  GoOn goes_on = GoOn::kWithRow;
  while (goes_on == GoOn::kWithRow) {
    const CursorStep step = stream.Next();
    if (step == CursorStep::kEnd) break;
    if (step == CursorStep::kMissing) {
      Status read = co_await stream.Read(worker, cache_);
      if (!read.ok()) co_return read;
      continue;
    }
    const Entry& entry = stream.entry();
    goes_on = look({place, table.table, entry, entry.key < table.from});
  }
  co_await stream.Close(worker);
  co_return goes_on;
}

dsm::Task<void> ClosedStore::ScanTables(dsm::Worker& worker, std::string start, LookAtRow look,
                                        std::function<void(const Status&)> failed) {
  const auto runs = state().runs();
  for (const auto& each : runs) {
    for (const auto& table : each.second->tables) {
      if (table.table.largest < start) continue;
      auto scanned = co_await ScanTable(worker, each.first, table, start, look);
      if (!scanned.ok()) failed(scanned.status());
      if (scanned.ok() && *scanned == GoOn::kNot) co_return;
    }
  }
}

std::unique_ptr<StoreIterator> ClosedStore::Iterate(std::string_view start) {
  FARLEAF_CHECK(memtable_ != nullptr);
  auto view = std::make_shared<ReadView>();
  view->active = memtable_;
  view->version = Version::Of(state(), nullptr, files_.get(), remover_);
  const LookupPlaces places{
      .cache = &cache_, .value_log = nullptr, .wall = wall_, .epoch = state().epoch};
  auto iterator = std::make_unique<StoreIterator>(std::move(view), places, kSequenceMax);
  iterator->SeekTo(start);
  return iterator;
}

dsm::Task<Status> ClosedStore::Scan(dsm::Worker& worker, std::string start, Row row) {
  const std::unique_ptr<StoreIterator> iterator = Iterate(start);
  for (;;) {
    const CursorStep step = iterator->Next();
    if (step == CursorStep::kEnd) co_return Status::Ok();
    if (step == CursorStep::kMissing) {
      Status fetched = co_await iterator->Fetch(worker, kLeavesAhead);
      if (!fetched.ok()) co_return fetched;
      continue;
    }
    const Entry& entry = iterator->entry();
    if (entry.kind == EntryKind::kPointer) {
      auto value = co_await ReadValue(worker, *files_, state().epoch, entry.pointer, entry.key);
      if (!value.ok()) co_return value.status();
      if (!row(entry.key, *value)) co_return Status::Ok();
    } else if (!row(entry.key, entry.value)) {
      co_return Status::Ok();
    }
  }
}

}  // namespace farleaf::index::lsm
