// A follower's store: its logs are another process's (follower.h).
#include <utility>

#include "dsm/base/log.h"
#include "index/lsm/entry_of.h"
#include "index/lsm/log_replay.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {

/// The upper half of the numbers that nobody has used: the primary does not come so far.
Result<uint64_t> FirstOwnNumber(const StoreState& state, storage::Storage& storage) {
  auto existing = storage.List();
  if (!existing.ok()) return existing.status();
  uint64_t end = state.segments_end;
  if (!existing->empty()) end = std::max(end, Number(existing->back()) + 1);
  constexpr uint64_t kNumbers = TableInfo::LogSegment::kSegmentMax + 1;
  if (end >= kNumbers) return Status::ResourceExhausted("the store has no numbers for segments");
  return end + (kNumbers - end) / 2;
}

void NoteNamed(const ValuePointer& pointer, OpenBytes* named) {
  uint32_t& end = (*named)[pointer.segment];
  end = std::max(end, pointer.offset + pointer.bytes);
}

}  // namespace

Task<Result<std::unique_ptr<LsmStore>>> LsmStore::OpenFollower(dsm::Worker& worker, Deps deps,
                                                               LsmOptions options,
                                                               std::unique_ptr<Manifest> manifest,
                                                               std::set<SegmentId> open) {
  FARLEAF_CO_RETURN_IF_ERROR(options.Validate());
  FARLEAF_CHECK(deps.mirror == nullptr);
  const Result<uint64_t> first = FirstOwnNumber(manifest->state(), *deps.storage);
  if (!first.ok()) co_return first.status();
  std::unique_ptr<LsmStore> store(new LsmStore(deps, options, std::move(manifest), *first));
  store->follows_ = true;
  Status recovered = co_await store->RecoverFollower(worker, open);
  if (!recovered.ok()) co_return recovered;
  co_return store;
}

// Nothing is taken out of the manifest: the other process goes on with what was not begun.
Task<Status> LsmStore::RecoverFollower(dsm::Worker& worker, const std::set<SegmentId>& open) {
  const StoreState& state = manifest_->state();
  const auto memtable = std::make_shared<Memtable>();
  ReplayOptions replay{
      .epoch = state.epoch, .segments = state.recovery_log, .flushed = state.flushed_through};
  replay.durable = state.durable_through;
  replay.collected = [&state](SegmentId id) { return !state.value_log.contains(id); };
  const std::function<Status(CommitReader)> insert = [&](CommitReader commit) {
    OpenBytes named;  // durable, all of it
    InsertFollowed(commit, memtable.get(), &named);
    return Status::Ok();
  };
  auto report = co_await Replay(worker, *deps_.storage, std::move(replay), insert);
  if (!report.ok()) co_return report.status();
  for (const SegmentId id : report->kept) {
    if (!open.contains(id)) followed_.Add(id, report->last);
  }
  StateEdit edit;
  edit.segments_end = grants_.end();
  Status committed = co_await manifest_->Commit(worker, edit);
  if (!committed.ok()) co_return committed;
  StartLogs(report->last, memtable);
  co_return Status::Ok();
}

void LsmStore::InsertFollowed(CommitReader commit, Memtable* memtable, OpenBytes* named) {
  Sequence sequence = commit.first();
  Change change;
  for (; commit.Next(&change); ++sequence) {
    if (change.kind == ChangeKind::kDeleteRange) {
      memtable->InsertRange(change.key, change.end, sequence);
      continue;
    }
    memtable->Insert(EntryOf(change, sequence));
    if (change.kind == ChangeKind::kPutPointer) NoteNamed(change.pointer, named);
  }
}

// Only RotateFollowed changes which memtable is active, and that is the caller's.
LsmStore::Followed LsmStore::TryFollow(const CommitReader& commit, OpenBytes* named) {
  Memtable& active = *View().active;
  if (IsFull(active)) return Followed::kFull;
  recovery_log_->GiveUpTo(commit.last());
  InsertFollowed(commit, &active, named);
  return Followed::kDone;
}

Task<Status> LsmStore::AwaitFlushed(dsm::Worker& worker) {
  constexpr uint64_t kSliceNs = kNsPerMs;
  WriterWait wait(&counters_, WaitsFor::kFlush, worker.clock());
  while (View().flushing) {
    const bool awaits_merge = View().version->fresh >= kFreshMax;
    Status awaited = awaits_merge ? MergeFailure() : BackgroundStatus(kFlush);
    if (!awaited.ok()) co_return awaited;
    if (stopping_) co_return Status::Unavailable("the store is being closed");
    wait.Begin();
    co_await worker.Sleep(kSliceNs);
  }
  co_return Status::Ok();
}

void LsmStore::RotateFollowed() {
  if (RotateMemtable(Rotate::kAlways)) flush_work_.Notify();
}

Task<Status> LsmStore::CommitOfLogs(dsm::Worker& worker, StateEdit edit) {
  edit.segments_end = grants_.end();
  Status committed = co_await manifest_->Commit(worker, edit);
  co_return committed;
}

}  // namespace farleaf::index::lsm
