// Scans.
#include <algorithm>

#include "index/lsm/store.h"
#include "index/lsm/store_iterator.h"

namespace farleaf::index::lsm {

namespace {

/// Leaves that a scan reads ahead at a time, once it has come that far.
constexpr size_t kLeavesAheadMax = 16;
/// Rows whose values are fetched together.
constexpr size_t kRowsTogether = 128;
/// Steps that are in memory, before others have their turn.
constexpr uint32_t kStepsTogether = 256;

Status CheckDeadline(const OpContext& op) {
  return op.expired() ? Status::DeadlineExceeded("reading from disk") : Status::Ok();
}

}  // namespace

LsmStore::ReadPoint LsmStore::TakeReadPoint() {
  ReadPoint point;
  {
    // No rotation, and no flush, comes between view and sequence.
    std::lock_guard lock(view_mutex_);
    point.view = newest_view_;
    recovery_log_->WithLastSequence([&](Sequence last) { point.sequence = last; });
  }
  order_.AwaitUpTo(point.sequence);
  return point;
}

Task<Status> LsmStore::FetchValues(dsm::Worker& worker, std::span<const ValuePointer> pointers,
                                   std::span<std::string* const> values) {
  const LookupPlaces places = Places();
  std::vector<RecordUnpacker> unpackers;
  std::vector<BlockRequest> requests;
  std::vector<size_t> missing;
  unpackers.reserve(pointers.size());
  for (size_t i = 0; i < pointers.size(); ++i) {
    Entry entry{.key = {}, .kind = EntryKind::kPointer, .value = {}, .pointer = pointers[i]};
    BlockCache::Handle pin;
    if (ResolvePointer(places, &entry, &pin)) {
      values[i]->assign(entry.value);
      continue;
    }
    unpackers.emplace_back(places.epoch, pointers[i], deps_.storage);
    requests.push_back(RecordRequest(pointers[i], &unpackers.back(), BlockUse::kOnce));
    missing.push_back(i);
  }
  if (requests.empty()) co_return Status::Ok();
  std::vector<BlockCache::Handle> pins;
  Status fetched = co_await FetchBlocks(worker, *deps_.storage, cache_, requests, pins);
  if (!fetched.ok()) co_return fetched;
  for (size_t i = 0; i < missing.size(); ++i) {
    const auto record = pins[i].bytes();
    values[missing[i]]->assign(AsChars(record.last(pointers[missing[i]].value_bytes)));
  }
  co_return Status::Ok();
}

Task<Status> LsmStore::FillRows(dsm::Worker& worker, const std::vector<Wanting>& wanting,
                                std::vector<KeyValue>* rows) {
  std::vector<ValuePointer> pointers;
  std::vector<std::string*> values;
  for (const auto& [pointer, row] : wanting) {
    pointers.push_back(pointer);
    values.push_back(&(*rows)[row].value);
  }
  Status fetched = co_await FetchValues(worker, pointers, values);
  co_return fetched;
}

Task<Status> LsmStore::FillReadableRows(dsm::Worker& worker, const std::vector<Wanting>& wanting,
                                        std::vector<KeyValue>* rows) {
  for (size_t i = wanting.size(); i-- > 0;) {
    const std::vector<Wanting> one = {wanting[i]};
    Status fetched = co_await FillRows(worker, one, rows);
    if (fetched.ok()) continue;
    if (!IsUnreadable(fetched)) co_return fetched;
    rows->erase(rows->begin() + static_cast<ptrdiff_t>(wanting[i].row));
  }
  co_return Status::Ok();
}

Task<Status> LsmStore::Scan(OpContext& op, ScanRange range, std::vector<KeyValue>* rows) {
  ReadPoint point = TakeReadPoint();
  const LookupPlaces places = Places();
  Status scanned = co_await ScanFrom(op, std::move(point), places, range, rows);
  if (scanned.ok() && deps_.mirror != nullptr) scanned = co_await AwaitAnswerable(op);
  co_return scanned;
}

Task<Status> LsmStore::ScanFrom(OpContext& op, ReadPoint point, LookupPlaces places,
                                ScanRange range, std::vector<KeyValue>* rows) {
  rows->clear();
  const bool forward = range.direction == ScanDirection::kForward;
  const bool passes_over = range.damage == ScanDamage::kPassOver;
  if (range.limit == 0 || (range.end && *range.end <= range.start)) co_return Status::Ok();
  StoreIterator iterator(point.view, places, point.sequence);
  if (forward) {
    iterator.SeekTo(range.start);
  } else {
    iterator.SeekBefore(range.end);
  }
  size_t ahead = 1, whole = 0;  // rows in front of `whole` have their values
  uint64_t bytes = 0;
  bool ended = false;
  Status status;
  std::vector<Wanting> wanting;
  uint32_t steps = 0;
  while (!ended && status.ok()) {
    if (++steps % kStepsTogether == 0) {
      co_await op.worker.Sleep(0);
      status = CheckDeadline(op);
      if (!status.ok()) break;
    }
    const CursorStep step = iterator.Next();
    if (step == CursorStep::kMissing) {
      status = co_await iterator.Fetch(op.worker, std::min<uint64_t>(ahead, range.limit));
      if (passes_over && IsUnreadable(status)) status = co_await iterator.PassOver(op.worker);
      if (status.ok()) status = CheckDeadline(op);
      ahead = std::min(ahead * 2, kLeavesAheadMax);
      continue;
    }
    ended = step == CursorStep::kEnd;
    if (!ended) {
      const Entry& entry = iterator.entry();
      ended = forward ? range.end && entry.key >= *range.end : entry.key < range.start;
      if (!ended) {
        rows->push_back({std::string(entry.key), std::string(entry.value)});
        bytes += entry.key.size() + entry.value.size();
        if (entry.kind == EntryKind::kPointer && range.content == ScanContent::kRows) {
          bytes += entry.pointer.value_bytes;
          wanting.push_back({entry.pointer, rows->size() - 1});
        }
        ended = rows->size() >= range.limit || bytes >= range.bytes_max;
      }
    }
    if (!ended && wanting.size() < kRowsTogether) continue;
    status = co_await FillRows(op.worker, wanting, rows);
    if (passes_over && IsUnreadable(status)) {
      status = co_await FillReadableRows(op.worker, wanting, rows);
    }
    if (!status.ok()) break;
    wanting.clear();
    whole = rows->size();
  }
  // Rows of a scan that fails are whole.
  if (!status.ok())
    rows->resize(wanting.empty() ? rows->size() : std::max(whole, wanting.front().row));
  co_return status;
}

}  // namespace farleaf::index::lsm
