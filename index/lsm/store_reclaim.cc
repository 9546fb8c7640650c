// Reclaiming: what has expired, or was deleted by a range, goes though nobody writes. Tables are written anew where they stand, without it, or
// dropped; README.md has the argument by cases.
#include <algorithm>
#include <string>
#include <utility>

#include "dsm/base/log.h"
#include "index/lsm/run_source.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {

constexpr uint64_t kLookNs = kNsPerSecond;
/// Stop is waited for no longer.
constexpr uint64_t kStopSliceNs = 100 * kNsPerMs;
/// Looks between which nobody has written: then nobody is about to.
constexpr uint32_t kIdleLooks = 10;
/// Between two tries of a table that could not be written anew, the first time; then twice as long each time.
constexpr uint64_t kAgainNs = kNsPerSecond, kAgainNsMax = 3600 * kNsPerSecond;

/// Of a newer run, of which nothing but the range deletes matters.
class NothingSource final : public MergeSource {
 public:
  const Entry* entry() const override { return nullptr; }
  bool Advance() override { return true; }
  dsm::Task<Status> Fetch(dsm::Worker&) override { co_return Status::Ok(); }
};

const TableRef* TableIn(const Run& run, TableId id) {
  const auto at =
      std::ranges::find(run.tables, id, [](const TableRef& ref) { return ref.file->info().id(); });
  return at == run.tables.end() ? nullptr : &*at;
}

}  // namespace

ReclaimPlan LsmStore::PlanReclaim() const {
  ReclaimPlan plan{.now_ms = 0, .oldest = std::nullopt, .memtable_bytes = options_.memtable_bytes};
  // With the lock no snapshot has looked at the clock that is not in the list yet.
  std::lock_guard lock(view_mutex_);
  plan.now_ms = deps_.wall->NowNs() / kNsPerMs;
  for (const SnapshotAt& each : snapshots_->List()) {
    if (!plan.oldest) plan.oldest = each.sequence;
    plan.now_ms = std::min(plan.now_ms, each.taken_ms);
  }
  return plan;
}

// What was found at the last look, and is not done, is found again. A level that something is being merged into comes later; one of which merges
// fail, too: what is told of them would be overwritten.
void LsmStore::LookForDead(uint64_t now_ns, bool idle) {
  const ReadView& view = View();
  ReclaimPlan plan = PlanReclaim();
  const CompactionPlan merges = Plan();
  {
    std::lock_guard lock(compacting_mutex_);
    plan.levels_passed = compacting_;
    for (uint8_t level = 0; level < kLevelsMax; ++level) {
      // That it has failed is forgotten when a merge is done, and none may be due any more.
      if (not_before_ns_[level] != 0 && merges.IsDue(*view.version, level)) {
        plan.levels_passed |= 1u << level;
      }
    }
    std::erase_if(reclaim_retries_,
                  [&](const auto& each) { return each.second.until_ns + kAgainNsMax < now_ns; });
    for (const auto& [table, retry] : reclaim_retries_) {
      if (retry.until_ns > now_ns) plan.tables_passed.insert(table);
    }
  }
  std::vector<DeadTable> dead = plan.DeadTables(*view.version);
  const bool any = !dead.empty();
  {
    std::lock_guard lock(compacting_mutex_);
    dead_.assign(dead.rbegin(), dead.rend());  // they are taken from the end
  }
  if (any) {
    levels_changed_.Notify();
  } else if (!view.flushing && plan.FlushPays(*view.active, *view.version, idle)) {
    FlushSoon();
  }
}

// Collection moves to the tail of the log, and waits for the first commit of a process (store_collect.cc). Where nobody writes, or may, this is it:
// the deletion of a range in which no key can be.
Task<Status> LsmStore::CommitNothing(dsm::Worker& worker) {
  dsm::FabricCounts counts;
  OpContext op{worker, counts, worker.clock().NowNs() + kLookNs};
  const Change nothing{
      .kind = ChangeKind::kDeleteRange, .key = {}, .end = std::string_view("\0", 1)};
  Status written = co_await Write(op, {&nothing, 1});
  if (written.ok()) garbage_changed_.Notify();
  co_return written;
}

Task<void> LsmStore::RunReclaim(dsm::Worker& worker) {
  uint64_t looked_ns = worker.clock().NowNs();
  uint64_t changes = 0, flushes = 0;
  uint32_t quiet_looks = 0;
  while (!stopping_) {
    co_await worker.Sleep(kStopSliceNs);
    const uint64_t now_ns = worker.clock().NowNs();
    if (now_ns - looked_ns < kLookNs - kStopSliceNs || stopping_) continue;
    looked_ns = now_ns;
    const uint64_t changes_now = View().active->changes(), flushes_now = View().flushes;
    const bool quiet = changes_now == changes && flushes_now == flushes;
    quiet_looks = quiet ? quiet_looks + 1 : 0;
    changes = changes_now;
    flushes = flushes_now;
    LookForDead(now_ns, quiet_looks >= kIdleLooks);
    if (reclaimed_values_ && recovery_log_->tail_segment() == SegmentId::kNone) {
      Status written = co_await CommitNothing(worker);
      if (!written.ok()) {
        FARLEAF_LOG(warn, "what has expired is not collected yet: {}", written.ToString());
      }
    }
  }
}

std::optional<DeadTable> LsmStore::TakeDead() {
  const bool frugal = Plan().frugal;
  std::lock_guard lock(compacting_mutex_);
  if (frugal && compacting_ != 0) return std::nullopt;  // the reserve is for one
  for (size_t i = dead_.size(); i-- > 0;) {
    const DeadTable dead = dead_[i];
    const uint8_t level = dead.place.level;
    if ((compacting_ >> level & 1) != 0) continue;
    dead_.erase(dead_.begin() + static_cast<ptrdiff_t>(i));
    compacting_ |= 1u << level;
    return dead;
  }
  return std::nullopt;
}

Task<void> LsmStore::ReclaimTaken(dsm::Worker& worker, DeadTable dead) {
  Status reclaimed = co_await Reclaim(worker, dead);
  const bool no_room = reclaimed.code() == StatusCode::kResourceExhausted;
  merges_short_ = no_room;  // then it may take of the reserve the next time, which comes soon
  {
    std::lock_guard lock(compacting_mutex_);
    compacting_ &= ~(1u << dead.place.level);
    if (reclaimed.ok()) {
      reclaim_retries_.erase(dead.table);
    } else {
      Retry& retry = reclaim_retries_[dead.table];
      retry.pause_ns = no_room ? kAgainNs : std::clamp(2 * retry.pause_ns, kAgainNs, kAgainNsMax);
      retry.until_ns = worker.clock().NowNs() + retry.pause_ns;
    }
  }
  if (!reclaimed.ok() && !stopping_) {
    FARLEAF_LOG(warn, "a table of which much has expired stays for now: {}", reclaimed.ToString());
  }
  levels_changed_.Notify();
}

Task<Status> LsmStore::Reclaim(dsm::Worker& worker, DeadTable dead) {
  std::shared_ptr<const Version> version = PinView()->version;
  size_t run = 0;
  while (run < version->runs.size() && version->runs[run].place != dead.place) ++run;
  // A merge may have been there first.
  const TableRef* const ref =
      run == version->runs.size() ? nullptr : TableIn(version->runs[run], dead.table);
  if (!ref) co_return Status::Ok();
  // Now that nobody else changes its run: it may have been cut, and something may have been set aside behind it. The snapshots are looked at behind the
  // version: those that come later see no less than all of it.
  const auto now = PlanReclaim().LookAt(*version, run, *ref);
  if (!now) co_return Status::Ok();
  Status done;
  if (now->whole) {
    StateEdit edit;
    edit.dropped.emplace_back(dead.place, dead.table);
    for (const TableInfo::LogSegment& log : ref->file->info().dictionary) {
      edit.garbage[log.segment] += log.live_bytes;
    }
    version = nullptr;
    done = co_await CommitReclaimed(worker, dead.place, std::move(edit));
  } else {
    done = co_await WriteAnew(worker, std::move(version), run, *ref);
  }
  if (done.ok()) StoreCounters::Add(&counters_.reclaimed_tables, 1);
  co_return done;
}

Task<Status> LsmStore::CommitReclaimed(dsm::Worker& worker, RunPlace place, StateEdit edit) {
  const bool values = !edit.garbage.empty();
  Status committed =
      co_await CommitState(worker, std::move(edit), Flushed::kNo, kCompaction + place.level);
  if (committed.ok() && values) reclaimed_values_ = true;
  co_return committed;
}

// As a merge of a single table, into the run that it is in. The range deletes of that run, which entries are older or newer than by their
// sequences, are taken on with the entries, as these lose theirs: from the table's first key up to the last output's.
Task<Status> LsmStore::WriteAnew(dsm::Worker& worker, std::shared_ptr<const Version> version,
                                 size_t number, TableRef ref) {
  const Run& run = version->runs[number];
  const RunPlace place = run.place;
  const std::vector<RangeDelete> before = run.range_deletes;
  const bool behind_all = number + 1 == version->runs.size();
  const Bottom bottom = behind_all ? Bottom::kYes : Bottom::kNo;
  std::vector<std::vector<RangeDelete>> range_deletes;
  for (size_t newer = 0; newer < number; ++newer) {
    range_deletes.push_back(version->runs[newer].range_deletes);
  }
  range_deletes.push_back(before);
  Run alone;
  alone.place = place;
  alone.tables = {ref};
  RunSource source(std::move(alone), &cache_);
  version = nullptr;
  NothingSource nothing;
  std::vector<MergeSource*> sources(number, &nothing);
  sources.push_back(&source);
  // At one moment: what loses its sequence does so in both.
  MergeRule rule = RuleOf(std::move(range_deletes), bottom);
  const std::vector<RangeDelete> after = rule.RangeDeletesOfResult(number);
  const std::string first(ref.first()), largest = ref.file->info().largest;
  const TableId id = ref.file->info().id();
  const uint64_t bytes = ref.file->info().bytes;
  ref = {};
  Status status = co_await source.Fetch(worker);
  if (status.ok()) {
    // A full device may have nothing else to merge, so that this is what makes room.
    const From from = Plan().frugal ? From(storage::Reserve::kMerges) : std::nullopt;
    Merge merge(MergeDeps(from), std::move(rule), sources);
    while (status.ok() && !merge.ended()) {
      auto output = co_await merge.NextTable(worker);
      if (!output.ok()) status = output.status();
      if (!output.ok() || !*output) break;
      StateEdit edit;
      const std::string done = (merge.ended() ? largest : (*output)->last_key) + '\0';
      if (merge.ended()) {
        edit.dropped.emplace_back(place, id);
      } else {
        edit.cut.push_back({place, id, done});
      }
      edit.garbage = std::move((*output)->garbage);
      if ((*output)->table) edit.added.push_back({place, std::move(*(*output)->table), {}});
      if (!before.empty()) {
        std::vector<RangeDelete> ranges;
        for (const std::vector<RangeDelete>& part :
             {Clip(before, {}, first), Clip(after, first, done), Clip(before, done, {})}) {
          ranges.insert(ranges.end(), part.begin(), part.end());
        }
        edit.range_deletes.emplace_back(place, std::move(ranges));
      }
      status = co_await CommitReclaimed(worker, place, std::move(edit));
    }
  }
  co_await source.Close(worker);
  StoreCounters::Add(&counters_.reclaimed_bytes_read, bytes);
  co_return status;
}

}  // namespace farleaf::index::lsm
