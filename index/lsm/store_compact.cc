// Compactions: sinking runs are merged into the levels below them, a table at a time.
#include <algorithm>
#include <utility>

#include "index/lsm/run_source.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {

/// Between two tries of what failed.
constexpr uint64_t kPauseNs = kNsPerSecond / 2;

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

}  // namespace

// The deepest first: what is above it can then go on. One that has failed makes way for the others, for a while.
std::optional<uint8_t> LsmStore::TakeLevelToCompact(uint64_t now_ns, uint8_t end) {
  std::lock_guard lock(compacting_mutex_);
  const Version& version = *View().version;
  for (int level = end - 1; level >= 0; --level) {
    const auto at = static_cast<uint8_t>(level);
    if ((compacting_ >> at & 1) != 0 || version.run({at, RunKind::kSinking}).empty()) continue;
    if (now_ns < not_before_ns_[at]) continue;
    compacting_ |= 1u << at;
    return at;
  }
  return std::nullopt;
}

// Each output goes into the manifest with what it replaces. Range deletes go along in parts: above the last merged key they
// belong to the sinking run, whose entries they are older or newer than; below it, to the run that it was merged into.
//
// The last output's edit takes what is left of them, too: when the sinking run has no table any more, it is gone as a whole, and
// the growing run may take its place from then on.
//
// Between two outputs a level above has its turn: its merges are shorter by the growth factor for each level between them, and
// would pile up behind one that takes hours.
Task<Status> LsmStore::MergeLevels(dsm::Worker& worker, Merge& merge, const RunDeletes& before,
                                   uint8_t level) {
  const RunPlace from{level, RunKind::kSinking};
  const RunPlace to{static_cast<uint8_t>(level + 1), RunKind::kGrowing};
  const std::vector<RangeDelete> of_result = merge.rule().RangeDeletesOfResult();
  std::string done;  // the merge's outputs so far lie in front of it
  for (;;) {
    auto output = co_await merge.NextTable(worker);
    if (!output.ok()) co_return output.status();
    const bool ended = merge.ended();
    StateEdit edit;
    if (*output) {
      const std::shared_ptr<const Version> version = PinView()->version;
      const std::string behind = Behind((*output)->last_key);
      UseUp(version->run(from), from, done, behind, &edit);
      UseUp(version->run(to), to, done, behind, &edit);
      done = behind;
      edit.garbage = std::move((*output)->garbage);
      if ((*output)->table) edit.added.push_back({to, std::move(*(*output)->table), {}});
    }
    if (ended) {
      edit.range_deletes.emplace_back(from, std::vector<RangeDelete>());
      edit.range_deletes.emplace_back(to, of_result);
    } else {
      std::vector<RangeDelete> below = Clip(of_result, {}, done);
      Append(Clip(before.older, done, {}), &below);
      edit.range_deletes.emplace_back(from, Clip(before.newer, done, {}));
      edit.range_deletes.emplace_back(to, std::move(below));
    }
    Status committed =
        co_await CommitState(worker, std::move(edit), Flushed::kNo, kCompaction + level);
    if (!committed.ok() || ended) co_return committed;
    const auto above = TakeLevelToCompact(worker.clock().NowNs(), level);
    if (above) co_await CompactTaken(worker, *above);
  }
}

Task<Status> LsmStore::Compact(dsm::Worker& worker, uint8_t level) {
  const auto below = static_cast<uint8_t>(level + 1);
  if (SinksFirst(*PinView()->version, below)) {
    StateEdit edit;
    edit.sunk.push_back(below);
    Status sunk = co_await CommitState(worker, std::move(edit), Flushed::kNo, kCompaction + level);
    if (!sunk.ok()) co_return sunk;
    levels_changed_.Notify();
  }
  std::shared_ptr<const Version> version = PinView()->version;
  Run newer_run = version->run({level, RunKind::kSinking});
  Run older_run = version->run({below, RunKind::kGrowing});
  const RunDeletes before{newer_run.range_deletes, older_run.range_deletes};
  MergeRule rule = RuleOf(*version, below, before.newer, before.older);
  // From here on nothing is held but what is still to be read: what is used up, and what is collected meanwhile, is freed.
  RunSource newer(std::move(newer_run), &cache_), older(std::move(older_run), &cache_);
  version = nullptr;
  Status status = co_await newer.Fetch(worker);
  if (status.ok()) status = co_await older.Fetch(worker);
  if (status.ok()) {
    Merge merge(MergeDeps(), std::move(rule), &newer, &older);
    status = co_await MergeLevels(worker, merge, before, level);
  }
  co_await newer.Close(worker);
  co_await older.Close(worker);
  co_return status;
}

Task<void> LsmStore::CompactTaken(dsm::Worker& worker, uint8_t level) {
  Status compacted = co_await Compact(worker, level);
  SetBackgroundStatus(kCompaction + level, compacted);
  {
    std::lock_guard lock(compacting_mutex_);
    compacting_ &= ~(1u << level);
    not_before_ns_[level] = compacted.ok() ? 0 : worker.clock().NowNs() + kPauseNs;
  }
  levels_changed_.Notify();
}

Task<void> LsmStore::RunCompactions(dsm::Worker& worker) {
  for (;;) {
    const uint64_t seen = levels_changed_.count();
    if (stopping_) co_return;
    const uint64_t now_ns = worker.clock().NowNs();
    const auto level = TakeLevelToCompact(now_ns, kLevelsMax - 1);
    if (level) {
      co_await CompactTaken(worker, *level);
    } else if (AnyPauses(now_ns)) {
      co_await worker.Sleep(kPauseNs / 50);
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
