// Flushes: a memtable becomes part of level 1; and what keeps the logs going.
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "dsm/base/log.h"
#include "index/lsm/run_source.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {
/// Between two tries of what failed: the device was full, or did not answer.
constexpr uint64_t kPauseNs = kNsPerSecond / 2;
/// Stop is waited for no longer.
constexpr uint64_t kSliceNs = 100 * kNsPerMs;
}  // namespace

void LsmStore::SetBackgroundStatus(size_t work, Status status) {
  StatusCode before;
  {
    std::lock_guard lock(status_mutex_);
    before = std::exchange(background_status_[work], status).code();
  }
  if (status.code() == before || stopping_) return;
  constexpr std::array<std::string_view, kCompaction> kNames = {
      "full segments of the logs", "the flush of a memtable", "value collection", "the logs"};
  const std::string name =
      work < kCompaction ? std::string(kNames[work])
                         : "the compaction of level " + std::to_string(work - kCompaction + 1);
  if (status.ok()) {
    FARLEAF_LOG(info, "writing to disk gets on again: {}", name);
  } else {
    FARLEAF_LOG(warn, "writing to disk does not get on: {}: {}", name, status.ToString());
  }
}

Task<bool> LsmStore::PauseBehind(dsm::Worker& worker, size_t work, Status failure) {
  SetBackgroundStatus(work, std::move(failure));
  for (uint64_t slept_ns = 0; slept_ns < kPauseNs && !stopping_; slept_ns += kPauseNs / 50) {
    co_await worker.Sleep(kPauseNs / 50);
  }
  co_return !stopping_.load();
}

Task<Status> LsmStore::CommitState(dsm::Worker& worker, StateEdit edit, Flushed flushed,
                                   size_t work) {
  edit.segments_end = grants_.end();
  edit.durable_through = recovery_log_->durable_sequence();
  AddUnnamed(&edit);
  std::shared_ptr<ReadView> before;
  const Manifest::Applied applied = [&](const StoreState& state) {
    // Only edits change the version, and they come one after another: it is made without the lock.
    std::shared_ptr<const Version> version;
    {
      std::lock_guard lock(view_mutex_);
      version = newest_view_->version;
    }
    if (edit.changes_tables()) {
      version = Version::Of(state, version.get(), deps_.storage, remover_);
    }
    std::lock_guard lock(view_mutex_);
    if (!edit.values_dropped.empty()) {  // read on by whoever began before
      newest_view_->token->held.push_back(
          std::make_shared<SegmentsHeld>(remover_, edit.values_dropped));
    }
    auto next = NextView();
    next->version = std::move(version);
    if (flushed == Flushed::kYes) {
      next->flushing = nullptr;
      ++next->flushes;
    }
    before = Install(std::move(next));
  };
  for (;;) {
    Status committed = co_await manifest_->Commit(worker, edit, applied);
    if (committed.ok()) {
      RetireView(std::move(before));
      SetBackgroundStatus(work, Status::Ok());
      if (!edit.garbage.empty()) garbage_changed_.Notify();
      co_return committed;
    }
    // Perhaps it is in the manifest: the same again, and nothing that it names is removed.
    const bool goes_on = co_await PauseBehind(worker, work, committed);
    if (!goes_on) co_return committed;
  }
}

Merge::Deps LsmStore::MergeDeps() {
  return {.storage = deps_.storage,
          .remover = remover_.get(),
          .new_segment = [this] { return grants_.New(); },
          .tables = TableBuilderOptions::Of(options_, manifest_->epoch()),
          .progress = {},
          .stopped = [this] { return stopping_.load(); }};
}

MergeRule LsmStore::RuleOf(const Version& version, uint8_t level, std::vector<RangeDelete> newer,
                           std::vector<RangeDelete> older) {
  MergeRule::Setting setting{.snapshots = {},
                             .bottom = version.NothingBelow(level),
                             .now_ms = deps_.wall->NowNs() / kNsPerMs,
                             .range_deletes = {std::move(newer), std::move(older)}};
  for (const SnapshotAt& each : snapshots_->List()) {
    setting.snapshots.push_back(each.sequence);
    setting.snapshots_ms.push_back(each.taken_ms);
  }
  return MergeRule(std::move(setting));
}

uint64_t LsmStore::TargetBytes(uint8_t level) const {
  uint64_t bytes = options_.memtable_bytes;
  for (int i = 0; i <= level; ++i) bytes *= options_.growth_factor;
  return bytes;
}

// A growing run that is full is left alone, to become the sinking one, as soon as there is none. While a merge of the sinking run
// goes on there is one, also when all of it is used up already: what the merge's edits say of a sinking run is said of that one.
bool LsmStore::SinksFirst(const Version& version, uint8_t level) {
  const Run& growing = version.run({level, RunKind::kGrowing});
  if (level + 1u == kLevelsMax || !version.run({level, RunKind::kSinking}).empty()) return false;
  {
    std::lock_guard lock(compacting_mutex_);
    if ((compacting_ >> level & 1) != 0) return false;
  }
  return growing.bytes >= TargetBytes(level) || (eager_ && !growing.empty());
}

Task<Status> LsmStore::MergeMemtable(dsm::Worker& worker, const Memtable& memtable,
                                     const Version& version, StateEdit* edit) {
  const RunPlace place{0, RunKind::kGrowing};
  const bool sinks = SinksFirst(version, 0);
  const Run none;
  const Run& older_run = sinks ? none : version.run(place);
  if (sinks) edit->sunk.push_back(0);
  MergeRule rule = RuleOf(version, 0, memtable.Ranges(), older_run.range_deletes);
  // What sinks lies below, too.
  if (sinks) rule.set_bottom(false);
  edit->range_deletes.emplace_back(place, rule.RangeDeletesOfResult());

  MemtableSource newer(&memtable);
  RunSource older(older_run, &cache_);
  Merge::Deps deps = MergeDeps();
  const double all_bytes = static_cast<double>(options_.memtable_bytes / 2 + older_run.bytes);
  deps.progress = [this, all_bytes](uint64_t consumed) {
    flush_progress_.store(static_cast<double>(consumed) / all_bytes);
  };
  Status status = co_await older.Fetch(worker);
  Merge merge(std::move(deps), std::move(rule), &newer, &older);
  std::vector<SegmentId> made;
  while (status.ok()) {
    auto output = co_await merge.NextTable(worker);
    if (!output.ok()) {
      status = output.status();
    } else if (!*output) {
      break;
    } else {
      for (const auto& [segment, bytes] : (*output)->garbage) edit->garbage[segment] += bytes;
      if (!(*output)->table) continue;
      made.insert(made.end(), (*output)->table->segments.begin(), (*output)->table->segments.end());
      edit->added.push_back({place, std::move(*(*output)->table), {}});
    }
  }
  co_await older.Close(worker);
  if (!status.ok()) remover_->Remove(made);
  for (const TableRef& ref : older_run.tables)
    edit->dropped.emplace_back(place, ref.file->info().id());
  co_return status;
}

Task<Status> LsmStore::TrimRecoveryLog(dsm::Worker& worker, Sequence flushed) {
  StateEdit edit;
  edit.recovery_dropped = co_await logs_->Trim(worker, flushed);
  // What was replayed came before all that was flushed.
  edit.recovery_dropped.insert(edit.recovery_dropped.end(), replayed_.begin(), replayed_.end());
  replayed_.clear();
  if (edit.recovery_dropped.empty()) co_return Status::Ok();
  Status committed = co_await CommitState(worker, edit, Flushed::kNo, kFlush);
  if (committed.ok()) remover_->Remove(edit.recovery_dropped);
  co_return committed;
}

Task<Status> LsmStore::Flush(dsm::Worker& worker) {
  // Not the view: what hangs on it would stay as long.
  const ReadView& view = View();
  const std::shared_ptr<Memtable> memtable = view.flushing;
  const std::shared_ptr<const Version> version = view.version;
  const Sequence last = view.active_first - 1;
  order_.AwaitUpTo(last);
  // Tables name only values that are durable, and what they contain is not needed in the recovery log.
  Status status = co_await logs_->Sync(worker, logs_->ends());
  if (!status.ok()) co_return status;
  StateEdit edit;
  edit.flushed_through = last;
  status = co_await MergeMemtable(worker, *memtable, *version, &edit);
  if (!status.ok()) co_return status;
  status = co_await CommitState(worker, std::move(edit), Flushed::kYes, kFlush);
  if (!status.ok()) co_return status;
  flush_progress_.store(0);
  levels_changed_.Notify();
  garbage_changed_.Notify();  // also if it is not: more of the value log may be closed now
  status = co_await TrimRecoveryLog(worker, last);
  co_return status;
}

Task<void> LsmStore::RunFlushes(dsm::Worker& worker) {
  for (;;) {
    const uint64_t seen = flush_work_.count();
    if (stopping_) co_return;
    RotateIfFull();
    if (!View().flushing) {
      co_await flush_work_.After(worker, seen);
      continue;
    }
    Status flushed = co_await Flush(worker);
    if (flushed.ok()) continue;
    const bool goes_on = co_await PauseBehind(worker, kFlush, std::move(flushed));
    if (!goes_on) co_return;
  }
}

Task<void> LsmStore::RunLogs(dsm::Worker& worker) {
  for (;;) {
    // In front of the look at stopping_: a Stop in between moves it.
    const uint64_t seen = log_work_.count();
    if (stopping_) co_return;
    Status tended = co_await logs_->Tend(worker);
    if (tended.ok()) {
      SetBackgroundStatus(kLogs, Status::Ok());
      co_await log_work_.After(worker, seen);
      continue;
    }
    // A memtable that is not full gives its segments of the recovery log back, and collection its garbage.
    if (tended.code() == StatusCode::kResourceExhausted) FlushSoon();
    const bool goes_on = co_await PauseBehind(worker, kLogs, std::move(tended));
    if (!goes_on) co_return;
  }
}

// What `local` promises of time.
Task<void> LsmStore::RunLogFlushes(dsm::Worker& worker) {
  const uint64_t slice_ns = std::min<uint64_t>(options_.flush_ms * kNsPerMs / 2, kSliceNs);
  uint64_t flushed_ns = worker.clock().NowNs();
  while (!stopping_) {
    co_await worker.Sleep(slice_ns);
    const uint64_t now_ns = worker.clock().NowNs();
    if (now_ns - flushed_ns < options_.flush_ms * kNsPerMs - slice_ns) continue;
    flushed_ns = now_ns;
    Status flushed = co_await logs_->Flush(worker);
    SetBackgroundStatus(kLogFlush, std::move(flushed));
  }
}

}  // namespace farleaf::index::lsm
