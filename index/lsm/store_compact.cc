// Compactions: fresh runs are merged into level 0, and sinking ones into the levels below them, a table at a time.
#include <algorithm>
#include <utility>

#include "index/lsm/reserve.h"
#include "index/lsm/run_source.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {

/// Between two tries of what failed.
constexpr uint64_t kCompactionPauseNs = kNsPerSecond / 2;
constexpr uint32_t kPauseDoublingsMax = 9;
/// Tables that cannot be read, of which each keeps another one from being set aside.
constexpr int kUnreadTogether = 16;

std::string Behind(std::string_view key) { return std::string(key) + '\0'; }

// What a run has in [done, from) has been used up; in front of `done` is what this merge wrote.
void UseUp(const Run& run, RunPlace place, const std::string& done, const std::string& from,
           StateEdit* edit) {
  for (const TableRef& ref : run.tables) {
    const TableInfo& info = ref.file->info();
    if (info.largest < done) continue;
    if (info.largest < from) {
      edit->dropped.emplace_back(place, info.id());
    } else if (ref.first() < from) {
      edit->cut.push_back({place, info.id(), from});
    }
  }
}

void Append(std::vector<RangeDelete> more, std::vector<RangeDelete>* to) {
  for (RangeDelete& range : more) to->push_back(std::move(range));
}

/// Of merges into level 0, before any was done: bytes read a second.
constexpr double kMergeSpeed = 64 << 20;
/// For each fresh run; there may be many.
constexpr uint32_t kFreshExtentBytes = uint32_t{64} << 10;

}  // namespace

CompactionPlan LsmStore::Plan() const {
  std::lock_guard lock(compacting_mutex_);
  return {.memtable_bytes = options_.memtable_bytes,
          .flush_bytes = flush_bytes_.load(),
          .growth_factor = options_.growth_factor,
          .eager = eager_,
          .full = room_.closed(),
          .frugal = room_.closed() || merges_short_,
          .merging = compacting_};
}

// The deepest first: what is above it can then go on. One that has failed makes way for the others, for a while. For the sake of room levels sink
// from above, so that each is merged once on the way down; behind each merge of fresh runs, so that none of them waits for ever.
std::optional<uint8_t> LsmStore::ChooseMerge(const CompactionPlan& plan, uint64_t now_ns,
                                             uint8_t end) {
  const Version& version = *View().version;
  const auto may = [&](uint8_t into) {
    return (compacting_ >> into & 1) == 0 && now_ns >= not_before_ns_[into];
  };
  for (uint8_t into = end; into-- > 1;) {
    if (may(into) && plan.IsDue(version, into)) return into;
  }
  const bool due = may(0) && plan.IsDue(version, 0);
  if (due && !(plan.full && sinks_next_)) {
    sinks_next_ = true;
    return 0;
  }
  sinks_next_ = false;
  for (uint8_t level = 0; level < end; ++level) {
    if (may(level) && plan.SinksForRoom(version, level)) return level;
  }
  return due ? std::optional<uint8_t>(0) : std::nullopt;
}

std::optional<uint8_t> LsmStore::TakeMerge(uint64_t now_ns, uint8_t end) {
  const CompactionPlan plan = Plan();
  std::lock_guard lock(compacting_mutex_);
  // The reserve is for one.
  if (plan.frugal && compacting_ != 0) return std::nullopt;
  const std::optional<uint8_t> into = ChooseMerge(plan, now_ns, end);
  if (into) compacting_ |= 1u << *into;
  return into;
}

// Each output goes into the manifest with what it replaces. Range deletes go along in parts: above the last merged key they
// belong to the runs that are merged, whose entries they are older or newer than; below it, to the one that they are merged into.
//
// The last output's edit takes what is left of them, too: these runs are gone as wholes then, and where one of them was the
// sinking run, the growing run may take its place from then on. Runs that were flushed meanwhile are not touched.
//
// Between two outputs a level above has its turn: its merges are shorter by the growth factor for each level between them, and
// would pile up behind one that takes hours.
Task<Status> LsmStore::MergeRuns(dsm::Worker& worker, Merge& merge,
                                 const std::vector<Merged>& merged, uint8_t into) {
  const RunPlace to = merged.back().place;
  const std::vector<RangeDelete> of_result = merge.rule().RangeDeletesOfResult();
  std::vector<std::vector<RangeDelete>> in_manifest;  // of each of the merged runs
  for (const Merged& each : merged) in_manifest.push_back(each.range_deletes);
  std::string done;  // the merge's outputs so far lie in front of it
  for (;;) {
    auto output = co_await merge.NextTable(worker);
    if (!output.ok()) co_return output.status();
    const bool ended = merge.ended();
    StateEdit edit;
    if (*output) {
      const std::shared_ptr<const Version> version = PinView()->version;
      const std::string behind = Behind((*output)->last_key);
      for (const Merged& each : merged) {
        UseUp(version->run(each.place), each.place, done, behind, &edit);
      }
      done = behind;
      edit.garbage = std::move((*output)->garbage);
      if ((*output)->table) {
        const uint64_t bytes = (*output)->table->bytes + (*output)->table->footer_bytes;
        StoreCounters::Add(&counters_.merged_bytes_written, bytes);
        edit.added.push_back({to, std::move(*(*output)->table), {}});
      }
    }
    for (size_t i = 0; i < merged.size(); ++i) {
      const RunPlace place = merged[i].place;
      std::vector<RangeDelete> next;
      if (place == to) next = ended ? of_result : Clip(of_result, {}, done);
      if (!ended) Append(Clip(merged[i].range_deletes, done, {}), &next);
      if (next == in_manifest[i]) continue;
      edit.range_deletes.emplace_back(place, next);
      in_manifest[i] = std::move(next);
    }
    Status committed =
        co_await CommitState(worker, std::move(edit), Flushed::kNo, kCompaction + into);
    if (!committed.ok() || ended) co_return committed;
    const auto above = TakeMerge(worker.clock().NowNs(), into);
    if (above) co_await CompactTaken(worker, *above);
  }
}

Task<Status> LsmStore::Compact(dsm::Worker& worker, uint8_t into, Unread* unread) {
  // In this order: a merge of the sinking run that ends in between leaves none, and none begins without one.
  std::shared_ptr<const Version> version = PinView()->version;
  const CompactionPlan plan = Plan();
  const bool merges = plan.IsDue(*version, into);  // else it was chosen to sink
  if (plan.Sinks(*version, into) || (!merges && plan.SinksForRoom(*version, into))) {
    StateEdit edit;
    edit.sunk.push_back(into);
    Status sunk = co_await CommitState(worker, std::move(edit), Flushed::kNo, kCompaction + into);
    if (!sunk.ok()) co_return sunk;
    levels_changed_.Notify();
  }
  version = nullptr;
  if (!merges) co_return Status::Ok();
  Status passed = co_await PassKept(worker, into, unread);
  if (!passed.ok()) co_return passed;
  Status status = co_await MergeInto(worker, into, unread);
  co_return status;
}

Task<Status> LsmStore::MergeInto(dsm::Worker& worker, uint8_t into, Unread* unread) {
  std::shared_ptr<const Version> version = PinView()->version;
  std::vector<Merged> merged;
  std::vector<std::vector<RangeDelete>> range_deletes;
  std::vector<std::unique_ptr<RunSource>> sources;
  uint64_t bytes = 0;
  const bool frugal = Plan().frugal;
  std::vector<RunPlace> places = SourcesOf(*version, into);
  if (frugal && into == 0) KeepOldest(*version, &places);
  for (const RunPlace place : places) {
    const Run& run = version->run(place);
    const bool fresh = place.kind == RunKind::kFresh;
    bytes += run.bytes;
    merged.push_back({place, run.range_deletes});
    range_deletes.push_back(run.range_deletes);
    sources.push_back(std::make_unique<RunSource>(
        run, &cache_, fresh ? kFreshExtentBytes : TableStream::kExtentBytes));
  }
  const Bottom bottom = version->NothingBelow(into) ? Bottom::kYes : Bottom::kNo;
  // From here on nothing is held but what is still to be read: what is used up, and what is collected meanwhile, is freed.
  version = nullptr;
  const uint64_t begun_ns = worker.clock().NowNs();
  std::vector<MergeSource*> merge_sources;
  Status status;
  for (const auto& source : sources) {
    if (status.ok()) status = co_await source->Fetch(worker);
    merge_sources.push_back(source.get());
  }
  if (status.ok()) {
    const From from = frugal ? From(storage::Reserve::kMerges) : std::nullopt;
    Merge merge(MergeDeps(from), RuleOf(std::move(range_deletes), bottom), merge_sources);
    status = co_await MergeRuns(worker, merge, merged, into);
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i]->failed()) *unread = {merged[i].place, *sources[i]->failed()};
    co_await sources[i]->Close(worker);
  }
  if (status.ok()) StoreCounters::Add(&counters_.merged_bytes_read, bytes);
  if (status.ok() && into == 0) NoteMerged(bytes, worker.clock().NowNs() - begun_ns);
  co_return status;
}

// Of small merges the time is that of their edits and syncs.
void LsmStore::NoteMerged(uint64_t bytes, uint64_t took_ns) {
  if (bytes < options_.memtable_bytes / 8) return;
  const double speed = static_cast<double>(bytes) * kNsPerSecond /
                       static_cast<double>(std::max<uint64_t>(took_ns, 1));
  const double before = merge_speed_.load();
  merge_speed_.store(before == 0 ? speed : (before + speed) / 2);
}

// As fast as the merge that takes all that is there, were it begun now.
void LsmStore::SetPace(const Version& version) {
  uint64_t bytes = version.run({0, RunKind::kGrowing}).bytes;
  for (size_t i = 0; i < version.fresh; ++i) bytes += version.runs[i].bytes;
  if (bytes == 0) return;
  const double speed = merge_speed_.load() == 0 ? kMergeSpeed : merge_speed_.load();
  pace_.SetRate(static_cast<double>(version.fresh) * changes_of_memtable_.load() * speed /
                static_cast<double>(bytes));
}

// What was overwritten in a memtable is not in its run: so the guess is rather too low.
void LsmStore::GuessPace(const Version& version) {
  if (version.fresh == 0) return;
  uint64_t changes = 0;
  for (size_t i = 0; i < version.fresh; ++i) {
    changes += version.runs[i].range_deletes.size();
    for (const TableRef& ref : version.runs[i].tables) changes += ref.file->info().entries;
  }
  changes_of_memtable_.store(static_cast<double>(changes) / static_cast<double>(version.fresh));
  SetPace(version);
}

// What could not be read is set aside, and the merge is taken again; where that does not help either, by and by more seldom. Whatever else
// it failed with may be over soon.
uint64_t LsmStore::PauseNs(uint8_t into, const Status& compacted) {
  if (!IsUnreadable(compacted)) {
    unread_[into] = 0;
    return kCompactionPauseNs;
  }
  return kCompactionPauseNs << std::min(unread_[into]++, kPauseDoublingsMax);
}

Task<void> LsmStore::CompactTaken(dsm::Worker& worker, uint8_t into) {
  Unread unread;
  Status compacted = co_await Compact(worker, into, &unread);
  for (int more = kUnreadTogether; more > 0 && unread.table.file && !stopping_; --more) {
    const Unread what = std::exchange(unread, {});
    compacted = co_await SetAsideDamage(worker, into, what, &unread);
  }
  SetBackgroundStatus(kCompaction + into, compacted);
  merges_short_ = compacted.code() == StatusCode::kResourceExhausted;
  {
    std::lock_guard lock(compacting_mutex_);
    compacting_ &= ~(1u << into);
    if (compacted.ok()) {
      not_before_ns_[into] = unread_[into] = 0;
    } else {
      not_before_ns_[into] = worker.clock().NowNs() + PauseNs(into, compacted);
    }
  }
  levels_changed_.Notify();
}

Task<void> LsmStore::RunCompactions(dsm::Worker& worker) {
  for (;;) {
    const uint64_t seen = levels_changed_.count();
    if (stopping_) co_return;
    const uint64_t now_ns = worker.clock().NowNs();
    const auto into = TakeMerge(now_ns, kLevelsMax);
    if (into) {
      co_await CompactTaken(worker, *into);
    } else if (const auto dead = TakeDead()) {
      co_await ReclaimTaken(worker, *dead);
    } else if (AnyPauses(now_ns)) {
      co_await worker.Sleep(kCompactionPauseNs / 50);
    } else {
      co_await levels_changed_.After(worker, seen);
    }
  }
}

bool LsmStore::AnyPauses(uint64_t now_ns) {
  std::lock_guard lock(compacting_mutex_);
  return std::any_of(not_before_ns_.begin(), not_before_ns_.end(),
                     [now_ns](uint64_t until_ns) { return now_ns < until_ns; });
}

void LsmStore::Stop() {
  stopping_ = true;
  for (Event* event : {&log_work_, &flush_work_, &levels_changed_, &garbage_changed_}) {
    event->Notify();
  }
}

}  // namespace farleaf::index::lsm
