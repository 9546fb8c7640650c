// What to do with a table that cannot be read, so that merges get on: ranges of keys are set aside (README.md, Damage).
#include <algorithm>
#include <utility>

#include "dsm/base/log.h"
#include "index/lsm/store.h"
#include "index/lsm/table_builder.h"
#include "index/lsm/wary_cursor.h"

namespace farleaf::index::lsm {

namespace {

constexpr uint32_t kEntriesTogether = 256;

std::string JustBehind(std::string_view key) { return std::string(key) + '\0'; }

bool Holds(const std::vector<KeyRange>& ranges, std::string_view key) {
  return std::ranges::any_of(
      ranges, [key](const KeyRange& range) { return range.start <= key && key < range.end; });
}

/// Whether one range has all from `first` to `last`.
bool HoldsAll(const std::vector<KeyRange>& ranges, std::string_view first, std::string_view last) {
  return std::ranges::any_of(
      ranges, [&](const KeyRange& range) { return range.start <= first && last < range.end; });
}

/// Whether one has a key of [first, last].
bool Touches(const std::vector<KeyRange>& ranges, std::string_view first, std::string_view last) {
  return std::ranges::any_of(
      ranges, [&](const KeyRange& range) { return range.start <= last && first < range.end; });
}

bool Touches(const std::vector<KeyRange>& ranges, const TableRef& ref) {
  return Touches(ranges, ref.first(), ref.file->info().largest);
}

struct SplitDeletes {
  std::vector<RangeDelete> inside, outside;
};

/// `ranges`: ascending, disjoint. `deletes`: fragments, and so is what comes of them.
SplitDeletes Split(const std::vector<RangeDelete>& deletes, const std::vector<KeyRange>& ranges) {
  const auto append = [](std::vector<RangeDelete> more, std::vector<RangeDelete>* to) {
    std::ranges::move(more, std::back_inserter(*to));
  };
  SplitDeletes split;
  std::string done;
  for (const KeyRange& range : ranges) {
    append(Clip(deletes, done, range.start), &split.outside);
    append(Clip(deletes, range.start, range.end), &split.inside);
    done = range.end;
  }
  append(Clip(deletes, done, {}), &split.outside);
  return split;
}

/// Ascending and disjoint.
std::vector<KeyRange> InOrder(std::vector<KeyRange> ranges) {
  std::ranges::sort(ranges, {}, &KeyRange::start);
  std::vector<KeyRange> joined;
  for (KeyRange& range : ranges) {
    if (!joined.empty() && range.start <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, range.end);
    } else {
      joined.push_back(std::move(range));
    }
  }
  return joined;
}

}  // namespace

/// What is written of a table that is set aside: all that is outside of the ranges.
struct LsmStore::Rest {
  RunPlace place;
  const std::vector<KeyRange>* ranges;
  StateEdit* edit;
  std::unique_ptr<TableBuilder> builder = nullptr;
};

// From the last key that was read in front of what cannot be to the first one behind it, both included: in between there may be other
// versions of these as well.
Task<Result<std::vector<KeyRange>>> LsmStore::UnreadableRanges(dsm::Worker& worker,
                                                               const TableRef& ref) {
  std::vector<KeyRange> ranges;
  std::string last(ref.first());
  WaryCursor cursor(ref, &cache_);
  for (uint32_t entries = 1;; ++entries) {
    Status next = co_await cursor.Next(worker);
    if (!next.ok()) co_return next;
    const std::string_view key =
        cursor.ended() ? std::string_view(ref.file->info().largest) : cursor.entry().key;
    if (!cursor.lost().ok()) {
      FARLEAF_LOG(error, "keys that cannot be read are set aside: {}", cursor.lost().ToString());
      ranges.push_back({last, JustBehind(key)});
    }
    if (cursor.ended()) co_return InOrder(std::move(ranges));
    last.assign(key);
    if (stopping_) co_return Status::Unavailable("the store is being closed");
    if (entries % kEntriesTogether == 0) co_await worker.Sleep(0);
  }
}

Task<Status> LsmStore::EndTable(dsm::Worker& worker, Rest& rest) {
  if (!rest.builder) co_return Status::Ok();
  auto finished = co_await rest.builder->Finish(worker);
  if (!finished.ok()) co_return finished.status();
  rest.builder = nullptr;
  rest.edit->added.push_back({rest.place, std::move(*finished), {}});
  co_return Status::Ok();
}

// No table has keys on both sides of a range.
Task<Status> LsmStore::AddToRest(dsm::Worker& worker, Rest& rest, const Entry& entry,
                                 std::string_view last) {
  const bool inside = Holds(*rest.ranges, entry.key);
  if (rest.builder &&
      (inside || rest.builder->EndsBefore(entry.key) || Touches(*rest.ranges, last, entry.key))) {
    Status ended = co_await EndTable(worker, rest);
    if (!ended.ok()) co_return ended;
  }
  if (inside) co_return Status::Ok();
  if (!rest.builder) {
    const Merge::Deps deps = MergeDeps(storage::Reserve::kMerges);
    rest.builder = std::make_unique<TableBuilder>(deps.tables, deps.storage, deps.new_segment);
  }
  rest.builder->Add(entry);
  Status written;
  if (rest.builder->NeedsWrite()) written = co_await rest.builder->Write(worker);
  co_return written;
}

Task<Status> LsmStore::WriteRest(dsm::Worker& worker, const TableRef& ref, Rest& rest) {
  std::string last(ref.first());
  WaryCursor cursor(ref, &cache_);
  Status status;
  for (uint32_t entries = 1; status.ok(); ++entries) {
    status = co_await cursor.Next(worker);
    if (!status.ok()) break;
    const std::string_view key =
        cursor.ended() ? std::string_view(ref.file->info().largest) : cursor.entry().key;
    // It could be read when the ranges were made; or this is another table, which has damage of its own.
    if (!cursor.lost().ok() && !HoldsAll(*rest.ranges, last, key)) status = cursor.lost();
    if (stopping_) status = Status::Unavailable("the store is being closed");
    if (!status.ok() || cursor.ended()) break;
    status = co_await AddToRest(worker, rest, cursor.entry(), last);
    last.assign(cursor.entry().key);
    if (entries % kEntriesTogether == 0) co_await worker.Sleep(0);
  }
  if (status.ok()) status = co_await EndTable(worker, rest);
  if (rest.builder) {
    co_await rest.builder->Abandon(worker);
    const Merge::Deps deps = MergeDeps(storage::Reserve::kMerges);
    co_await deps.Drop(worker, rest.builder->segments());
    rest.builder = nullptr;
  }
  co_return status;
}

// All that the run holds of the ranges. Where there are none, `rewritten` alone is made anew: then all of it could be read after all.
Task<Status> LsmStore::SetAside(dsm::Worker& worker, const Aside& aside, RunPlace from,
                                Unread* unread) {
  const Run run = PinView()->version->run(from);
  StateEdit edit;
  KeptTables kept;
  kept.ranges = aside.ranges;
  Rest rest{.place = from, .ranges = &aside.ranges, .edit = &edit};
  Status status;
  for (const TableRef& ref : run.tables) {
    const TableInfo& info = ref.file->info();
    if (info.id() != aside.rewritten && !Touches(aside.ranges, ref)) continue;
    status = co_await WriteRest(worker, ref, rest);
    if (!status.ok()) {
      if (IsUnreadable(status)) *unread = {from, ref};
      break;
    }
    edit.dropped.emplace_back(from, info.id());
    if (Touches(aside.ranges, ref)) kept.tables.push_back({info, ref.from});
  }
  if (!status.ok()) {
    co_await DropTables(worker, edit.added);
    co_return status;
  }
  SplitDeletes deletes = Split(run.range_deletes, aside.ranges);
  if (!deletes.inside.empty()) edit.range_deletes.emplace_back(from, std::move(deletes.outside));
  kept.range_deletes = std::move(deletes.inside);
  if (!kept.tables.empty() || !kept.range_deletes.empty()) {
    edit.kept.emplace_back(RunPlace{aside.into, RunKind::kGrowing}, std::move(kept));
  }
  if (!edit.changes_tables()) co_return Status::Ok();
  status = co_await CommitState(worker, std::move(edit), Flushed::kNo, kCompaction + aside.into);
  co_return status;
}

// The oldest first: what is set aside of a run passes by those that are older, which hold nothing of the ranges any more.
Task<Status> LsmStore::SetAsideDamage(dsm::Worker& worker, uint8_t into, const Unread& what,
                                      Unread* unread) {
  auto ranges = co_await UnreadableRanges(worker, what.table);
  if (!ranges.ok()) co_return ranges.status();
  const Aside aside{
      .into = into, .ranges = std::move(*ranges), .rewritten = what.table.file->info().id()};
  std::vector<RunPlace> sources = SourcesOf(*PinView()->version, into);
  while (!sources.empty()) {
    const RunPlace from = sources.back();
    sources.pop_back();
    Status status = co_await SetAside(worker, aside, from, unread);
    if (!status.ok() || from == what.place) co_return status;
  }
  co_return Status::Ok();
}

// What is kept behind the sinking run is to come behind the growing one below: that may hold nothing of its ranges.
Task<Status> LsmStore::PassKept(dsm::Worker& worker, uint8_t into, Unread* unread) {
  if (into == 0) co_return Status::Ok();
  const RunPlace sinking{static_cast<uint8_t>(into - 1), RunKind::kSinking};
  const RunPlace growing{into, RunKind::kGrowing};
  if (!PinView()->version->run(sinking).has_kept) co_return Status::Ok();
  std::vector<KeyRange> ranges;
  const std::function<void(const StoreState&)> look = [&](const StoreState& state) {
    for (const KeptTables& kept : state.run(sinking).kept) {
      ranges.insert(ranges.end(), kept.ranges.begin(), kept.ranges.end());
    }
  };
  co_await manifest_->Look(worker, look);
  const Aside aside{.into = into, .ranges = InOrder(std::move(ranges))};
  Status status = co_await SetAside(worker, aside, growing, unread);
  if (!status.ok()) co_return status;
  StateEdit edit;
  edit.kept_moved.emplace_back(sinking, growing);
  status = co_await CommitState(worker, std::move(edit), Flushed::kNo, kCompaction + into);
  co_return status;
}

}  // namespace farleaf::index::lsm
