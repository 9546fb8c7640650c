#include "index/lsm/merge.h"

#include <utility>

namespace farleaf::index::lsm {

namespace {
/// Entries between two looks at whether to go on.
constexpr uint32_t kEntriesBetweenLooks = 1024;
/// What an output reads at most, in tables of the largest size: more where little of it is kept, or all is compressed.
constexpr uint64_t kTablesReadMax = 4;

/// Of any entry, beside key and value.
constexpr uint64_t kEntryBytes = 8;
}  // namespace

Merge::Merge(Deps deps, MergeRule rule, const std::vector<MergeSource*>& sources)
    : deps_(std::move(deps)), rule_(std::move(rule)) {
  for (size_t number = 0; number < sources.size(); ++number) {
    if (sources[number]->entry()) ahead_.push_back({sources[number], number});
  }
  for (size_t at = ahead_.size() / 2; at-- > 0;) SiftDown(at);
}

// Of two entries with one key the newer source's comes first, whatever their sequences: those of tables may be 0.
bool Merge::Before(const Ahead& a, const Ahead& b) {
  const int order = a.source->entry()->key.compare(b.source->entry()->key);
  return order < 0 || (order == 0 && a.number < b.number);
}

void Merge::SiftDown(size_t at) {
  for (;;) {
    size_t first = at;
    for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < ahead_.size(); ++child) {
      if (Before(ahead_[child], ahead_[first])) first = child;
    }
    if (first == at) return;
    std::swap(ahead_[at], ahead_[first]);
    at = first;
  }
}

void Merge::Settle() {
  if (!ahead_.front().source->entry()) {
    ahead_.front() = ahead_.back();
    ahead_.pop_back();
  }
  SiftDown(0);
}

dsm::Task<Status> Merge::Fill(dsm::Worker& worker, TableBuilder& builder, Output* output) {
  const uint64_t read_max = kTablesReadMax * deps_.tables.table_bytes_max;
  uint64_t read = 0;
  uint32_t until_look = kEntriesBetweenLooks;
  while (!ended()) {
    const auto [source, number] = ahead_.front();
    const Entry& from = *source->entry();
    Entry entry = from;
    const bool enough = read >= read_max || builder.EndsBefore(entry.key);
    if (enough && entry.key != output->last_key) break;
    output->last_key.assign(entry.key);
    read += entry.key.size() + entry.value.size() + kEntryBytes;
    const bool kept = rule_.Keep(&entry, number);
    if (kept) builder.Add(entry);
    if (from.kind == EntryKind::kPointer && (!kept || entry.kind != EntryKind::kPointer)) {
      output->garbage[from.pointer.segment] += from.pointer.bytes;
    }
    if (!source->Advance()) {
      Status fetched = co_await source->Fetch(worker);
      if (!fetched.ok()) co_return fetched;
    }
    Settle();
    if (builder.NeedsWrite()) {
      Status written = co_await builder.Write(worker);
      if (!written.ok()) co_return written;
    }
    if (--until_look > 0) continue;
    until_look = kEntriesBetweenLooks;
    if (deps_.stopped && deps_.stopped())
      co_return Status::Unavailable("the store is being closed");
    co_await worker.Sleep(0);  // a flush shares its thread with the logs
  }
  co_return Status::Ok();
}

dsm::Task<void> Merge::Deps::Drop(dsm::Worker& worker, std::vector<SegmentId> segments) const {
  remover->Remove(segments);
  if (tables.mirror == nullptr || segments.empty()) co_return;
  // Whoever is no primary any more hears of it by what he does next.
  Status ignored = co_await tables.mirror->DropTables(worker, segments);
  (void)ignored;
}

dsm::Task<Result<std::optional<Merge::Output>>> Merge::NextTable(dsm::Worker& worker) {
  if (ended()) co_return std::optional<Output>();
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
  co_await deps_.Drop(worker, builder.segments());
  co_return filled;
}

}  // namespace farleaf::index::lsm
