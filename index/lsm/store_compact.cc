// Compactions: sinking runs are merged into the levels below them, a table at a time.
#include <utility>

#include "index/lsm/run_source.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {

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

// The deepest first: what is above it can then go on.
std::optional<uint8_t> LsmStore::TakeLevelToCompact() {
  std::lock_guard lock(compacting_mutex_);
  const Version& version = *View().version;
  for (int level = kLevelsMax - 2; level >= 0; --level) {
    const auto at = static_cast<uint8_t>(level);
    if ((compacting_ >> at & 1) != 0 || version.run({at, RunKind::kSinking}).empty()) continue;
    compacting_ |= 1u << at;
    return at;
  }
  return std::nullopt;
}

// Each output goes into the manifest with what it replaces. Range deletes go along in parts: above the last merged key they
// belong to the sinking run, whose entries they are older or newer than; below it, to the run that it was merged into.
Task<Status> LsmStore::MergeLevels(dsm::Worker& worker, Merge& merge, uint8_t level) {
  const RunPlace from{level, RunKind::kSinking};
  const RunPlace to{static_cast<uint8_t>(level + 1), RunKind::kGrowing};
  const std::vector<RangeDelete> of_result = merge.rule().RangeDeletesOfResult();
  const std::shared_ptr<const ReadView> at_start = PinView();
  const std::vector<RangeDelete> newer = at_start->version->run(from).range_deletes;
  const std::vector<RangeDelete> older = at_start->version->run(to).range_deletes;
  std::string done;  // the merge's outputs so far lie in front of it
  for (;;) {
    auto output = co_await merge.NextTable(worker);
    if (!output.ok()) co_return output.status();
    StateEdit edit;
    const std::shared_ptr<const ReadView> view = PinView();
    if (!*output) {
      edit.range_deletes.emplace_back(from, std::vector<RangeDelete>());
      edit.range_deletes.emplace_back(to, of_result);
      Status committed = co_await CommitState(worker, std::move(edit), Flushed::kNo);
      co_return committed;
    }
    const std::string behind = Behind((*output)->last_key);
    UseUp(view->version->run(from), from, done, behind, &edit);
    UseUp(view->version->run(to), to, done, behind, &edit);
    done = behind;
    edit.garbage = std::move((*output)->garbage);
    std::vector<RangeDelete> below = Clip(of_result, {}, behind);
    Append(Clip(older, behind, {}), &below);
    edit.range_deletes.emplace_back(from, Clip(newer, behind, {}));
    edit.range_deletes.emplace_back(to, std::move(below));
    if ((*output)->table) edit.added.push_back({to, std::move(*(*output)->table), {}});
    Status committed = co_await CommitState(worker, std::move(edit), Flushed::kNo);
    if (!committed.ok()) co_return committed;
  }
}

Task<Status> LsmStore::Compact(dsm::Worker& worker, uint8_t level) {
  const auto below = static_cast<uint8_t>(level + 1);
  if (SinksFirst(*PinView()->version, below)) {
    StateEdit edit;
    edit.sunk.push_back(below);
    Status sunk = co_await CommitState(worker, std::move(edit), Flushed::kNo);
    if (!sunk.ok()) co_return sunk;
    levels_changed_.Notify();
  }
  const std::shared_ptr<const ReadView> view = PinView();
  const Version& version = *view->version;
  const Run& newer_run = version.run({level, RunKind::kSinking});
  const Run& older_run = version.run({below, RunKind::kGrowing});
  RunSource newer(&newer_run, &cache_), older(&older_run, &cache_);
  Status status = co_await newer.Fetch(worker);
  if (status.ok()) status = co_await older.Fetch(worker);
  if (status.ok()) {
    Merge merge(MergeDeps(),
                RuleOf(version, below, newer_run.range_deletes, older_run.range_deletes), &newer,
                &older);
    status = co_await MergeLevels(worker, merge, level);
  }
  co_await newer.Close(worker);
  co_await older.Close(worker);
  co_return status;
}

Task<void> LsmStore::RunCompactions(dsm::Worker& worker) {
  while (!stopping_) {
    const uint64_t seen = levels_changed_.count();
    const std::optional<uint8_t> level = TakeLevelToCompact();
    if (!level) {
      co_await levels_changed_.After(worker, seen);
      continue;
    }
    Status compacted = co_await Compact(worker, *level);
    {
      std::lock_guard lock(compacting_mutex_);
      compacting_ &= ~(1u << *level);
    }
    levels_changed_.Notify();
    if (compacted.ok() || stopping_) continue;
    const bool goes_on = co_await PauseBehind(worker, std::move(compacted));
    if (!goes_on) co_return;
  }
}

void LsmStore::Stop() {
  stopping_ = true;
  for (Event* event : {&log_work_, &flush_work_, &levels_changed_, &room_}) event->Notify();
}

}  // namespace farleaf::index::lsm
