// Opening and closing.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dsm/base/log.h"
#include "index/lsm/entry_of.h"
#include "index/lsm/log_replay.h"
#include "index/lsm/named_segments.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {

void ReplayInto(CommitReader commit, Memtable* memtable, NamedBytes* named) {
  Sequence sequence = commit.first();
  Change change;
  while (commit.Next(&change)) {
    if (change.kind == ChangeKind::kDeleteRange) {
      memtable->InsertRange(change.key, change.end, sequence);
    } else {
      memtable->Insert(EntryOf(change, sequence));
      if (change.kind == ChangeKind::kPutPointer) {
        (*named)[change.pointer.segment] += change.pointer.bytes;
      }
    }
    ++sequence;
  }
}

}  // namespace

LsmStore::LsmStore(Deps deps, LsmOptions options, std::unique_ptr<Manifest> manifest,
                   uint64_t next_segment)
    : deps_(deps),
      options_(options),
      remover_(std::make_shared<SegmentRemover>(deps.storage)),
      cache_(options.cache_bytes),
      manifest_(std::move(manifest)),
      grants_(manifest_.get(), next_segment),
      first_segment_(SegmentId{next_segment}),
      log_buffers_(options.log_buffers_max),
      open_values_(SegmentId{next_segment}) {}

LsmStore::~LsmStore() {
  remover_->Close();
  view_.store(nullptr);
}

Task<Result<std::unique_ptr<Manifest>>> LsmStore::OpenManifest(dsm::Worker& worker, Deps deps,
                                                               IfMissing if_missing) {
  auto manifest = co_await Manifest::Open(worker, deps.storage);
  if (manifest.ok() || manifest.status().code() != StatusCode::kNotFound) co_return manifest;
  if (if_missing == IfMissing::kFail) co_return manifest;
  auto existing = deps.storage->List();
  if (!existing.ok()) co_return existing.status();
  if (!existing->empty()) {
    co_return Status::Corruption(
        "there are segments, but no CURRENT; restore the directory from a copy, or empty it");
  }
  auto created = Manifest::Create(deps.storage, Random(deps.seed).Next());
  const StateEdit nothing;
  Status committed = co_await created->Commit(worker, nothing);
  if (!committed.ok()) co_return committed;
  co_return created;
}

Task<Status> LsmStore::Recover(dsm::Worker& worker) {
  const StoreState& state = manifest_->state();
  const auto memtable = std::make_shared<Memtable>();
  ReplayOptions replay{
      .epoch = state.epoch, .segments = state.recovery_log, .flushed = state.flushed_through};
  replay.durable = state.durable_through;
  // It was granted before anything named it. What is lost of the value log stays in the manifest until then, too (store_collect.cc).
  replay.collected = [&state](SegmentId id) { return !state.value_log.contains(id); };
  NamedBytes named;
  const std::function<Status(CommitReader)> insert = [&](CommitReader commit) {
    ReplayInto(commit, memtable.get(), &named);
    return Status::Ok();
  };
  auto report = co_await Replay(worker, *deps_.storage, std::move(replay), insert);
  if (!report.ok()) co_return report.status();
  if (!report->values_missing.empty()) {
    co_return Status::Corruption(deps_.storage->NameOf(*report->values_missing.begin()) +
                                 " is missing; restore the directory from a copy");
  }
  if (report->values_damaged > 0) {
    FARLEAF_LOG(error, "{} values that the recovery log names are damaged: reading them will fail",
                report->values_damaged);
  }
  replayed_ = report->kept;
  replayed_count_ = replayed_.size();
  if (report->gap) {
    FARLEAF_LOG(warn,
                "the recovery log ends behind commit {}: what stood behind that was not durable",
                report->last);
  }

  StateEdit edit;
  edit.recovery_dropped = report->unused;
  edit.values_torn = PerhapsTorn(state);
  edit.garbage = GarbageUntold(state, std::move(named));
  edit.segments_end = grants_.end();
  edit.durable_through = report->last;
  Status committed = co_await manifest_->Commit(worker, edit);
  if (!committed.ok()) co_return committed;
  remover_->Remove(report->unused);
  StoreCounters::Add(&counters_.recovered_changes, memtable->changes());
  StartLogs(report->last, memtable);
  co_return Status::Ok();
}

void LsmStore::StartLogs(Sequence last, std::shared_ptr<Memtable> memtable) {
  const Log::Deps logs{deps_.storage, &grants_, &log_buffers_, deps_.epochs, deps_.mirror};
  const uint64_t epoch = manifest_->epoch();
  Log::Options recovery{LogKind::kRecovery, epoch, last + 1};
  // Most of it is removed before anybody wants it on the device: what it holds is flushed by then.
  if (options_.durability != Durability::kSynced) recovery.write_back = storage::WriteBack::kLazily;
  recovery_log_ = std::make_unique<Log>(logs, recovery);
  value_log_ = std::make_unique<Log>(logs, Log::Options{LogKind::kValues, epoch, 1});
  logs_ = std::make_unique<LogGroup>(deps_.storage,
                                     std::vector<Log*>{recovery_log_.get(), value_log_.get()},
                                     options_.durability, deps_.mirror);
  manifest_->set_mirror(deps_.mirror);
  auto view = std::make_shared<ReadView>();
  view->active = std::move(memtable);
  view->version = Version::Of(manifest_->state(), nullptr, deps_.storage, remover_);
  MakeRoomFor(manifest_->state(), *view->version);
  flush_bytes_.store(manifest_->state().flush_bytes);
  GuessPace(*view->version);
  std::lock_guard lock(view_mutex_);
  SetReserve(*view->version);
  const auto none = Install(std::move(view));
  FARLEAF_CHECK(!none);
}

Task<Result<std::unique_ptr<LsmStore>>> LsmStore::Open(dsm::Worker& worker, Deps deps,
                                                       LsmOptions options, IfMissing if_missing) {
  FARLEAF_CO_RETURN_IF_ERROR(options.Validate());
  if (options.durability == Durability::kReplicated && deps.mirror == nullptr) {
    co_return Status::InvalidArgument(
        "durability 'replicated' needs replicas: take 'local' or 'synced' for a store without");
  }
  const uint64_t begun_ns = worker.clock().NowNs();
  auto manifest = co_await OpenManifest(worker, deps, if_missing);
  if (!manifest.ok()) co_return manifest.status();
  auto existing = deps.storage->List();
  if (!existing.ok()) co_return existing.status();
  auto unnamed = FindUnnamed((*manifest)->state(), deps.storage, *existing);
  if (!unnamed.ok()) co_return unnamed.status();
  uint64_t next_segment = (*manifest)->state().segments_end;
  if (!existing->empty()) next_segment = std::max(next_segment, Number(existing->back()) + 1);
  std::unique_ptr<LsmStore> store(new LsmStore(deps, options, std::move(*manifest), next_segment));
  // What was read of it may be in memory only: nothing is removed on its word before it is durable.
  Status durable = co_await store->manifest_->SyncOpened(worker);
  if (!durable.ok()) co_return durable;
  store->remover_->Remove(*unnamed);
  Status recovered = co_await store->Recover(worker);
  if (!recovered.ok()) co_return recovered;
  Status filled = co_await deps.storage->FillReserve(worker);
  if (!filled.ok()) FARLEAF_LOG(warn, "the device is short of room: {}", filled.message());
  StoreCounters::Add(&store->counters_.recovery_ns, worker.clock().NowNs() - begun_ns);
  co_return store;
}

Task<StoreState> LsmStore::State(dsm::Worker& worker) {
  StoreState copy;
  const std::function<void(const StoreState&)> look = [&copy](const StoreState& state) {
    copy = state;
  };
  co_await manifest_->Look(worker, look);
  co_return copy;
}

void LsmStore::Abandon() {
  for (Event* event : {&log_work_, &flush_work_, &levels_changed_, &garbage_changed_}) {
    event->Abandon();
  }
  manifest_->Abandon();
  logs_->Abandon();
}

Task<Status> LsmStore::Close(dsm::Worker& worker) {
  Status synced = co_await logs_->Sync(worker, logs_->ends());
  if (!synced.ok()) co_return synced;
  StateEdit edit;
  edit.recovery_dropped = grants_.GiveBack(LogKind::kRecovery);
  edit.values_dropped = grants_.GiveBack(LogKind::kValues);
  std::vector<SegmentId> made;
  const auto drop = [&made](const Log& log, std::vector<SegmentId>* dropped) {
    for (const SegmentId id : log.Unused()) {
      dropped->push_back(id);
      made.push_back(id);
    }
  };
  drop(*recovery_log_, &edit.recovery_dropped);
  drop(*value_log_, &edit.values_dropped);
  edit.segments_end = grants_.end();
  edit.durable_through = recovery_log_->durable_sequence();
  Status committed = co_await manifest_->Commit(worker, edit);
  if (committed.ok()) remover_->Remove(made);
  co_return committed;
}

}  // namespace farleaf::index::lsm
