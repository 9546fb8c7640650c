// Flushes: a memtable becomes a fresh run; and what keeps the logs going.
#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "dsm/base/atomic_max.h"
#include "dsm/base/log.h"
#include "index/lsm/merge_source.h"
#include "index/lsm/reserve.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {
/// Between two tries of what failed: the device was full, or did not answer.
constexpr uint64_t kFlushPauseNs = kNsPerSecond / 2;
/// Stop is waited for no longer.
constexpr uint64_t kSliceNs = 100 * kNsPerMs;

uint64_t BytesOf(std::span<const StateEdit::TableAt> tables) {
  uint64_t bytes = 0;
  for (const auto& each : tables) bytes += each.table.bytes + each.table.footer_bytes;
  return bytes;
}
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
  const std::string name = work < kCompaction
                               ? std::string(kNames[work])
                               : "merges into level " + std::to_string(work - kCompaction + 1);
  if (status.ok()) {
    FARLEAF_LOG(info, "writing to disk gets on again: {}", name);
  } else {
    FARLEAF_LOG(warn, "writing to disk does not get on: {}: {}", name, status.ToString());
  }
}

Task<bool> LsmStore::PauseBehind(dsm::Worker& worker, size_t work, Status failure) {
  SetBackgroundStatus(work, std::move(failure));
  for (uint64_t slept_ns = 0; slept_ns < kFlushPauseNs && !stopping_;
       slept_ns += kFlushPauseNs / 50) {
    co_await worker.Sleep(kFlushPauseNs / 50);
  }
  co_return !stopping_.load();
}

Task<Status> LsmStore::CommitState(dsm::Worker& worker, StateEdit edit, Flushed flushed,
                                   size_t work) {
  const uint64_t table_bytes = BytesOf(edit.added);
  (flushed == Flushed::kYes ? edit.written.flushed : edit.written.merged) = table_bytes;
  edit.segments_end = grants_.end();
  edit.durable_through = recovery_log_->durable_sequence();
  garbage_.TellUnnamed(&edit);
  std::shared_ptr<ReadView> before;
  const Manifest::Applied applied = [&](const StoreState& state) {
    garbage_.Look(state, ValuesClosedBelow());
    // Only edits change the version, and they come one after another: it is made without the lock.
    std::shared_ptr<const Version> version;
    {
      std::lock_guard lock(view_mutex_);
      version = newest_view_->version;
    }
    if (edit.changes_tables()) {
      version = Version::Of(state, version.get(), deps_.storage, remover_);
      SetReserve(*version);
    }
    MakeRoomFor(state, *version);
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
      const bool much = garbage_.share() > kGarbageSlow * options_.garbage_limit();
      if (!edit.garbage.empty() || much) garbage_changed_.Notify();
      co_return committed;
    }
    // Perhaps it is in the manifest: the same again, and nothing that it names is removed.
    const bool goes_on = co_await PauseBehind(worker, work, committed);
    if (!goes_on) co_return committed;
  }
}

void LsmStore::SetReserve(const Version& version) {
  // Not what there is now: with each flush the reserve would shrink, and grow again.
  // On a full device the next flush needs no more than that, and what is kept for more is what writers wait for.
  const uint64_t there = recovery_log_->segments() + replayed_count_;
  if (room_.closed()) {
    recovery_segments_max_ = there;
  } else {
    RaiseTo(&recovery_segments_max_, there);
  }
  deps_.storage->SetReserve(ReserveOf(version, recovery_segments_max_, options_));
}

Merge::Deps LsmStore::MergeDeps(From from) {
  TableBuilderOptions tables = TableBuilderOptions::Of(options_, manifest_->epoch());
  tables.from = from;
  tables.mirror = deps_.mirror;
  return {.storage = deps_.storage,
          .remover = remover_.get(),
          .new_segment = [this] { return grants_.New(); },
          .tables = tables,
          .stopped = [this] { return stopping_.load(); }};
}

MergeRule LsmStore::RuleOf(std::vector<std::vector<RangeDelete>> range_deletes, Bottom bottom) {
  MergeRule::Setting setting{.snapshots = {},
                             .bottom = bottom == Bottom::kYes,
                             .now_ms = 0,
                             .range_deletes = std::move(range_deletes)};
  // As PlanReclaim.
  std::lock_guard lock(view_mutex_);
  setting.now_ms = deps_.wall->NowNs() / kNsPerMs;
  for (const SnapshotAt& each : snapshots_->List()) {
    setting.snapshots.push_back(each.sequence);
    setting.snapshots_ms.push_back(each.taken_ms);
  }
  return MergeRule(std::move(setting));
}

Task<Status> LsmStore::WriteFreshRun(dsm::Worker& worker, const Memtable& memtable, Bottom bottom,
                                     StateEdit* edit) {
  const RunPlace place = FreshPlace(edit->flushed_through);
  MergeRule rule = RuleOf({memtable.Ranges()}, bottom);
  auto range_deletes = rule.RangeDeletesOfResult();
  if (!range_deletes.empty()) edit->range_deletes.emplace_back(place, std::move(range_deletes));
  MemtableSource source(&memtable);
  const Merge::Deps deps = MergeDeps(storage::Reserve::kFlushes);
  Merge merge(deps, std::move(rule), {&source});
  Status status;
  std::vector<SegmentId> made;
  while (status.ok() && !merge.ended()) {
    auto output = co_await merge.NextTable(worker);
    if (!output.ok()) {
      status = output.status();
    } else if (*output) {
      for (const auto& [segment, bytes] : (*output)->garbage) edit->garbage[segment] += bytes;
      if (!(*output)->table) continue;
      made.insert(made.end(), (*output)->table->segments.begin(), (*output)->table->segments.end());
      edit->added.push_back({place, std::move(*(*output)->table), {}});
    }
  }
  if (!status.ok()) co_await deps.Drop(worker, std::move(made));
  edit->written.user = source.content_bytes();
  edit->written.values = memtable.value_bytes();
  co_return status;
}

// Of memtables that were flushed before they were full little is known, and of those that are full of range deletes only how many
// changes they take: what they write says nothing of others.
void LsmStore::NoteFlushed(const Memtable& memtable, StateEdit* edit) {
  const auto mean = [](double before, uint64_t now, double fullness) {
    const double when_full = static_cast<double>(now) / std::min(fullness, 1.0);
    return before == 0 ? when_full : (3 * before + when_full) / 4;
  };
  // Some of them may be in the next memtable: what is not taken off of this one is taken off of that.
  const uint64_t moved = std::min(edit->written.user, counters_.moved_bytes.load() - moved_told_);
  edit->written.user -= moved;
  moved_told_ += moved;
  const uint64_t bytes = BytesOf(edit->added);
  StoreCounters::Add(&counters_.flushed_bytes, bytes);
  const double fullness = memtable.Fullness(options_.memtable_bytes);
  if (fullness < 0.5) return;
  changes_of_memtable_.store(mean(changes_of_memtable_.load(), memtable.changes(), fullness));
  const double of_entries = memtable.EntriesFullness(options_.memtable_bytes);
  if (of_entries < 0.5 || bytes == 0) return;
  edit->flush_bytes =
      static_cast<uint64_t>(mean(static_cast<double>(flush_bytes_.load()), bytes, of_entries));
  flush_bytes_.store(edit->flush_bytes);
}

Task<void> LsmStore::DropTables(dsm::Worker& worker,
                                const std::vector<StateEdit::TableAt>& tables) {
  std::vector<SegmentId> segments;
  for (const StateEdit::TableAt& each : tables) {
    segments.insert(segments.end(), each.table.segments.begin(), each.table.segments.end());
  }
  const Merge::Deps deps = MergeDeps(storage::Reserve::kFlushes);
  co_await deps.Drop(worker, std::move(segments));
}

Task<Status> LsmStore::Flush(dsm::Worker& worker) {
  // Not the view: what hangs on it would stay as long.
  const ReadView& view = View();
  const std::shared_ptr<Memtable> memtable = view.flushing;
  // Where there is nothing at all, no merge is under way either.
  const Bottom bottom = view.version->runs.empty() ? Bottom::kYes : Bottom::kNo;
  const Sequence last = view.active_first - 1;
  order_.AwaitUpTo(last);
  // Tables name only values that are durable. The commits themselves are not needed in the recovery log any more: it may end in front of
  // what was flushed, and a replay goes on from there.
  LogGroup::Positions values_end = logs_->ends();
  values_end[0] = 0;
  Status status = co_await logs_->Sync(worker, values_end);
  if (!status.ok()) co_return status;
  // Whoever reads a copy's tables (copy_reader.h) must not see what may be lost with this process.
  if (deps_.mirror != nullptr && options_.durability != Durability::kLocal) {
    status = co_await logs_->Replicate(worker, logs_->ends());
    if (!status.ok()) co_return status;
  }
  StateEdit edit;
  edit.flushed_through = last;
  status = co_await WriteFreshRun(worker, *memtable, bottom, &edit);
  if (!status.ok()) co_return status;
  // A full segment that is not written yet would stay, and there may be no other flush that gives it back.
  if (room_.closed()) {
    status = co_await logs_->WriteFull(worker);
    if (!status.ok()) {
      co_await DropTables(worker, edit.added);
      co_return status;
    }
  }
  NoteFlushed(*memtable, &edit);
  std::vector<SegmentId> flushed = co_await logs_->FlushedSegments(worker, last);
  edit.recovery_dropped = flushed;
  for (const SegmentId id : grants_.TakeGivenUp(LogKind::kRecovery)) {
    edit.recovery_dropped.push_back(id);
  }
  edit.values_dropped = grants_.TakeGivenUp(LogKind::kValues);
  edit.written.recovery = (flushed.size() + replayed_.size()) * storage::kSegmentBytes;
  // What was replayed came before all that was flushed.
  edit.recovery_dropped.insert(edit.recovery_dropped.end(), replayed_.begin(), replayed_.end());
  std::vector<SegmentId> gone = edit.recovery_dropped;
  // Whoever fills them removes them (follower.h).
  const std::vector<SegmentId> followed = followed_.UpTo(last);
  edit.written.recovery += followed.size() * storage::kSegmentBytes;
  edit.recovery_dropped.insert(edit.recovery_dropped.end(), followed.begin(), followed.end());
  // It fails only where the store is being closed, and then the log is not written any more.
  status = co_await CommitState(worker, std::move(edit), Flushed::kYes, kFlush);
  if (!status.ok()) co_return status;
  followed_.Dropped(followed);
  SetPace(*View().version);
  levels_changed_.Notify();
  garbage_changed_.Notify();  // also if it is not: more of the value log may be closed now
  // Not before: up to here a recovery needs them, and what is behind them is durable only if they are.
  co_await logs_->Trim(worker, std::move(flushed));
  replayed_.clear();
  replayed_count_ = 0;
  SetReserve(*View().version);
  remover_->Remove(gone);
  co_return status;
}

Task<void> LsmStore::RunFlushes(dsm::Worker& worker) {
  for (;;) {
    const uint64_t seen = flush_work_.count(), levels_seen = levels_changed_.count();
    if (stopping_) co_return;
    if (!View().flushing && !follows_) {
      if (flush_soon_.exchange(false)) {
        RotateMemtable(Rotate::kAlways);
      } else {
        RotateIfFull();
      }
    }
    if (!View().flushing) {
      co_await flush_work_.After(worker, seen);
      continue;
    }
    if (View().version->fresh >= kFreshMax) {
      co_await levels_changed_.After(worker, levels_seen);
      continue;
    }
    Status flushed = co_await Flush(worker);
    if (flushed.ok()) continue;
    const bool goes_on = co_await PauseBehind(worker, kFlush, std::move(flushed));
    if (!goes_on) co_return;
  }
}

// Ok: writers may go on.
Task<Status> LsmStore::TendLogs(dsm::Worker& worker) {
  Status tended = co_await logs_->Tend(worker);
  SetReserve(*View().version);
  if (tended.ok() && room_.closed()) tended = co_await deps_.storage->FillReserve(worker);
  co_return tended;
}

Task<void> LsmStore::RunLogs(dsm::Worker& worker) {
  for (;;) {
    // In front of the look at stopping_: a Stop in between moves it.
    const uint64_t seen = log_work_.count();
    if (stopping_) co_return;
    Status tended = co_await TendLogs(worker);
    if (tended.ok()) {
      room_.Open();
      SetBackgroundStatus(kLogs, Status::Ok());
      co_await log_work_.After(worker, seen);
      continue;
    }
    if (tended.code() == StatusCode::kResourceExhausted) {
      CloseRoom(tended);
      // A memtable that is not full gives its segments of the recovery log back, and collection its garbage. Not while there are fresh runs
      // that are not merged: each takes a segment, however little is in it.
      if (View().version->fresh == 0) FlushSoon();
    }
    const bool goes_on = co_await PauseBehind(worker, kLogs, std::move(tended));
    if (!goes_on) co_return;
  }
}

void LsmStore::FlushIfOld(MemtableAge* age, uint64_t before_ns, uint64_t now_ns) {
  const ReadView& view = View();
  if (view.active->empty()) {
    *age = {};
    return;
  }
  // Begun behind the last look, or there was another one then.
  if (age->first != view.active_first) *age = {view.active_first, before_ns};
  if (now_ns - age->since_ns < options_.flush_memtable_ms * kNsPerMs) return;
  FlushSoon();
}

// What `local` promises of time, and `flush_memtable_ms`.
Task<void> LsmStore::RunLogFlushes(dsm::Worker& worker) {
  const uint64_t flush_old_ms = options_.flush_memtable_ms;
  uint64_t slice_ns = std::min<uint64_t>(options_.flush_ms * kNsPerMs / 2, kSliceNs);
  if (flush_old_ms != 0) slice_ns = std::min(slice_ns, flush_old_ms * kNsPerMs / 2);
  uint64_t flushed_ns = worker.clock().NowNs(), looked_ns = flushed_ns;
  MemtableAge age;
  while (!stopping_) {
    co_await worker.Sleep(slice_ns);
    const uint64_t now_ns = worker.clock().NowNs();
    if (flush_old_ms != 0) FlushIfOld(&age, std::exchange(looked_ns, now_ns), now_ns);
    if (now_ns - flushed_ns < options_.flush_ms * kNsPerMs - slice_ns) continue;
    flushed_ns = now_ns;
    Status flushed = co_await logs_->Flush(worker);
    SetBackgroundStatus(kLogFlush, std::move(flushed));
  }
}

}  // namespace farleaf::index::lsm
