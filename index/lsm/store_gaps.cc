// What names bytes of the value log that are no record: looked for in all tables that name their segment, and in the memtables.
//
// It is asked for segments that commits under way do not name any more (OpenValues): all that leads there is in the view that is
// looked through, or is a version that this view shadows. That is much to read, and seldom: a crash of the machine, or damage, has left a gap.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "index/lsm/merge_source.h"
#include "index/lsm/run_source.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {

constexpr uint32_t kEntriesALook = 1024;

bool Names(const Run& run, SegmentId id) {
  return std::ranges::any_of(run.tables, [id](const TableRef& ref) {
    return std::ranges::any_of(ref.file->info().dictionary,
                               [id](const auto& log) { return log.segment == id; });
  });
}

/// Those tables alone that name the segment.
Run NamingPart(const Run& run, SegmentId id) {
  Run part{.place = run.place};
  for (const TableRef& ref : run.tables) {
    const auto& dictionary = ref.file->info().dictionary;
    if (std::ranges::any_of(dictionary, [id](const auto& log) { return log.segment == id; })) {
      part.tables.push_back(ref);
    }
  }
  return part;
}

bool LeadsInto(const Entry& entry, SegmentId id, const auto& gaps) {
  if (entry.kind != EntryKind::kPointer || entry.pointer.segment != id) return false;
  const uint32_t begin = entry.pointer.offset, end = begin + entry.pointer.bytes;
  return std::ranges::any_of(gaps,
                             [&](const auto& gap) { return begin < gap.end && end > gap.begin; });
}

}  // namespace

Status LsmStore::DamagedValue(SegmentId id, uint32_t offset) const {
  return Status::Corruption(fmt::format("{} at offset {}: the value's record is damaged",
                                        deps_.storage->NameOf(id), offset));
}

// The key is somebody else's, and is gone with the next suspension.
Task<Status> LsmStore::ExpectShadowed(dsm::Worker& worker, const Entry& entry,
                                      const std::vector<ValueGap>& gaps) {
  const std::string key(entry.key);
  const SegmentId id = entry.pointer.segment;
  LookupPlaces places = Places();
  places.wall = &time_zero_;
  dsm::FabricCounts counts;
  OpContext op{worker, counts};
  Found found;
  auto there = co_await Find(op, places, key, kSequenceMax, Wanted::kPresence, &found);
  if (!there.ok()) co_return there.status();
  if (*there && LeadsInto(found.entry, id, gaps)) {
    co_return DamagedValue(id, found.entry.pointer.offset);
  }
  co_return Status::Ok();
}

Task<Status> LsmStore::ExpectUnnamed(dsm::Worker& worker, SegmentId id,
                                     const std::vector<ValueGap>& gaps) {
  const std::shared_ptr<const ReadView> view = PinView();
  std::vector<std::unique_ptr<MergeSource>> sources;
  std::vector<RunSource*> of_runs;
  for (const Memtable* memtable : {view->active.get(), view->flushing.get()}) {
    if (memtable) sources.push_back(std::make_unique<MemtableSource>(memtable));
  }
  for (const Run& run : view->version->runs) {
    if (!Names(run, id)) continue;
    auto source = std::make_unique<RunSource>(NamingPart(run, id), &cache_);
    of_runs.push_back(source.get());
    sources.push_back(std::move(source));
  }
  Status status;
  uint32_t entries = 0;
  for (const auto& source : sources) {
    status = co_await source->Fetch(worker);
    while (status.ok() && source->entry() && !stopping_) {
      if (LeadsInto(*source->entry(), id, gaps)) {
        status = co_await ExpectShadowed(worker, *source->entry(), gaps);
        if (!status.ok()) break;
      }
      if (++entries % kEntriesALook == 0) co_await worker.Sleep(0);
      if (!source->Advance()) status = co_await source->Fetch(worker);
    }
    if (!status.ok()) break;
  }
  for (RunSource* const source : of_runs) co_await source->Close(worker);
  if (status.ok() && stopping_) co_return Status::Unavailable("the store is being closed");
  co_return status;
}

}  // namespace farleaf::index::lsm
