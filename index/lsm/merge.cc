#include "index/lsm/merge.h"

#include <utility>

namespace farleaf::index::lsm {

namespace {
/// Entries between two looks at whether to go on.
constexpr uint32_t kEntriesBetweenLooks = 1024;
}  // namespace

Merge::Merge(Deps deps, MergeRule rule, MergeSource* newer, MergeSource* older)
    : deps_(std::move(deps)), rule_(std::move(rule)), sources_{newer, older} {}

// Of two entries with one key the newer source's comes first, whatever their sequences: those of tables may be 0.
MergeSource* Merge::Next(size_t* number) {
  const Entry* const newer = sources_[0] ? sources_[0]->entry() : nullptr;
  const Entry* const older = sources_[1] ? sources_[1]->entry() : nullptr;
  if (!newer && !older) return nullptr;
  *number = !newer || (older && older->key < newer->key) ? 1 : 0;
  return sources_[*number];
}

dsm::Task<Status> Merge::Fill(dsm::Worker& worker, TableBuilder& builder, Output* output) {
  size_t number = 0;
  uint32_t until_look = kEntriesBetweenLooks;
  while (MergeSource* const source = Next(&number)) {
    const Entry& from = *source->entry();
    Entry entry = from;
    if (builder.EndsBefore(entry.key) && entry.key != output->last_key) break;
    output->last_key.assign(entry.key);
    const bool kept = rule_.Keep(&entry, number);
    if (kept) builder.Add(entry);
    if (from.kind == EntryKind::kPointer && (!kept || entry.kind != EntryKind::kPointer)) {
      output->garbage[from.pointer.segment] += from.pointer.bytes;
    }
    if (!source->Advance()) {
      Status fetched = co_await source->Fetch(worker);
      if (!fetched.ok()) co_return fetched;
    }
    if (builder.NeedsWrite()) {
      Status written = co_await builder.Write(worker);
      if (!written.ok()) co_return written;
    }
    if (--until_look > 0) continue;
    until_look = kEntriesBetweenLooks;
    if (deps_.stopped && deps_.stopped())
      co_return Status::Unavailable("the store is being closed");
    if (deps_.progress) {
      deps_.progress((sources_[0] ? sources_[0]->consumed() : 0) +
                     (sources_[1] ? sources_[1]->consumed() : 0));
    }
  }
  co_return Status::Ok();
}

dsm::Task<Result<std::optional<Merge::Output>>> Merge::NextTable(dsm::Worker& worker) {
  size_t number;
  if (!Next(&number)) co_return std::optional<Output>();
  Output output;
  TableBuilder builder(deps_.tables, deps_.storage, deps_.new_segment);
  Status filled = co_await Fill(worker, builder, &output);
  if (filled.ok() && builder.empty()) {
    co_await builder.Abandon(worker);
    co_return std::optional(std::move(output));
  }
  if (filled.ok()) {
    auto finished = co_await builder.Finish(worker);
    if (finished.ok()) {
      output.table = std::move(*finished);
      co_return std::optional(std::move(output));
    }
    filled = finished.status();
  }
  co_await builder.Abandon(worker);
  deps_.remover->Remove(builder.segments());
  co_return filled;
}

}  // namespace farleaf::index::lsm
