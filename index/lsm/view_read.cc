#include "index/lsm/view_read.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "index/lsm/store_iterator.h"
#include "index/lsm/wary_cursor.h"

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

/// A row of a scan, and where its value is.
struct Wanting {
  ValuePointer pointer;
  size_t row = 0;
};

/// Those that are not in memory with one Run. Fills no others.
Task<Status> FetchValues(dsm::Worker& worker, LookupPlaces places,
                         std::span<const ValuePointer> pointers,
                         std::span<std::string* const> values) {
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
    unpackers.emplace_back(places.epoch, pointers[i], places.storage);
    requests.push_back(RecordRequest(pointers[i], &unpackers.back(), BlockUse::kOnce));
    missing.push_back(i);
  }
  if (requests.empty()) co_return Status::Ok();
  std::vector<BlockCache::Handle> pins;
  Status fetched = co_await FetchBlocks(worker, *places.storage, *places.cache, requests, pins);
  if (!fetched.ok()) co_return fetched;
  for (size_t i = 0; i < missing.size(); ++i) {
    const auto record = pins[i].bytes();
    values[missing[i]]->assign(AsChars(record.last(pointers[missing[i]].value_bytes)));
  }
  co_return Status::Ok();
}

Task<Status> FillRows(dsm::Worker& worker, LookupPlaces places, const std::vector<Wanting>& wanting,
                      std::vector<KeyValue>* rows) {
  std::vector<ValuePointer> pointers;
  std::vector<std::string*> values;
  for (const auto& [pointer, row] : wanting) {
    pointers.push_back(pointer);
    values.push_back(&(*rows)[row].value);
  }
  Status fetched = co_await FetchValues(worker, places, pointers, values);
  co_return fetched;
}

/// One by one: rows whose values cannot be read are taken out.
Task<Status> FillReadableRows(dsm::Worker& worker, LookupPlaces places,
                              const std::vector<Wanting>& wanting, std::vector<KeyValue>* rows) {
  for (size_t i = wanting.size(); i-- > 0;) {
    const std::vector<Wanting> one = {wanting[i]};
    Status fetched = co_await FillRows(worker, places, one, rows);
    if (fetched.ok()) continue;
    if (!IsUnreadable(fetched)) co_return fetched;
    rows->erase(rows->begin() + static_cast<ptrdiff_t>(wanting[i].row));
  }
  co_return Status::Ok();
}

}  // namespace

Status CheckLookupKey(std::string_view key) {
  if (!key.empty() && key.size() <= kKeyBytesMax) return Status::Ok();
  return Status::InvalidArgument(
      fmt::format("a key of {} bytes: 1 to {} can be", key.size(), kKeyBytesMax));
}

Task<Status> ScanView(OpContext& op, LookupPlaces places, ReadPoint point, ScanRange range,
                      std::vector<KeyValue>* rows) {
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
    status = co_await FillRows(op.worker, places, wanting, rows);
    if (passes_over && IsUnreadable(status)) {
      status = co_await FillReadableRows(op.worker, places, wanting, rows);
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
