// Snapshots: how they are taken, and read.
#include <algorithm>
#include <utility>

#include "index/lsm/snapshot.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {
/// That an iterator reads at a time.
constexpr uint64_t kRowsMax = 256;
constexpr uint64_t kBytesTogether = 1 << 20;
}  // namespace

// It is among the open ones before the lock of views is let go: whoever merges a memtable that it sees was rotated later, or has
// only what it sees anyway.
Snapshot LsmStore::TakeSnapshot() {
  std::shared_ptr<Snapshot::State> state;
  Sequence last = 0;
  {
    std::lock_guard lock(view_mutex_);
    recovery_log_->WithLastSequence([&](Sequence sequence) { last = sequence; });
    state = std::make_shared<Snapshot::State>(snapshots_, last, deps_.wall->NowNs());
    state->token = newest_view_->token;
  }
  order_.AwaitUpTo(last);
  return Snapshot(std::move(state));
}

LookupPlaces LsmStore::PlacesAt(const Snapshot& snapshot) {
  LookupPlaces places = Places();
  places.wall = &snapshot.state_->clock;
  return places;
}

Task<Result<bool>> LsmStore::GetAt(OpContext& op, const Snapshot& snapshot, std::string_view key,
                                   std::string* value) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  const LookupPlaces places = PlacesAt(snapshot);
  Found found;
  auto there = co_await Find(op, places, key, snapshot.sequence(), Wanted::kValue, &found);
  if (there.ok() && *there) value->assign(found.entry.value);
  if (there.ok() && deps_.mirror != nullptr) {
    Status answerable = co_await AwaitAnswerable(op, key);
    if (!answerable.ok()) co_return answerable;
  }
  co_return there;
}

Task<Result<std::optional<uint64_t>>> LsmStore::ExpiryAt(OpContext& op, const Snapshot& snapshot,
                                                         std::string_view key) {
  return FindExpiry(op, PlacesAt(snapshot), key, snapshot.sequence());
}

Task<Status> LsmStore::ScanAt(OpContext& op, const Snapshot& snapshot, ScanRange range,
                              std::vector<KeyValue>* rows) {
  ReadPoint point{PinView(), snapshot.sequence()};
  const LookupPlaces places = PlacesAt(snapshot);
  Status scanned = co_await ScanView(op, places, std::move(point), range, rows);
  if (scanned.ok() && deps_.mirror != nullptr) scanned = co_await AwaitAnswerable(op);
  co_return scanned;
}

LsmStore::SnapshotMetrics LsmStore::snapshot_metrics() const {
  SnapshotMetrics metrics{.open = snapshots_->count(), .segments_held = remover_->held()};
  const uint64_t now_ms = deps_.wall->NowNs() / kNsPerMs;
  for (const SnapshotAt& each : snapshots_->List()) {
    if (metrics.oldest == 0) metrics.oldest = each.sequence;
    const uint64_t age_ms = now_ms - std::min(now_ms, each.taken_ms);
    metrics.oldest_age_ms = std::max(metrics.oldest_age_ms, age_ms);
  }
  return metrics;
}

void SnapshotIterator::Seek(ScanDirection direction) {
  direction_ = direction;
  start_.clear();
  end_ = std::nullopt;
  rows_.clear();
  next_ = 0;
  together_ = kRowsFirst;
  ended_ = false;
}

void SnapshotIterator::SeekTo(std::string_view start) {
  std::string from(start);  // it may be of our own row
  Seek(ScanDirection::kForward);
  start_ = std::move(from);
}

void SnapshotIterator::SeekBefore(std::optional<std::string_view> end) {
  std::optional<std::string> before(end);
  Seek(ScanDirection::kReverse);
  end_ = std::move(before);
}

// Of a scan that fails there are its first rows: so whoever tries again gets on, however little time he grants.
Task<Status> SnapshotIterator::Fill(OpContext& op) {
  ScanRange range{.start = start_, .limit = together_, .bytes_max = kBytesTogether};
  range.end = end_;
  range.direction = direction_;
  std::vector<KeyValue> rows;
  Status scanned = co_await store_->ScanAt(op, snapshot_, range, &rows);
  if (!scanned.ok() && rows.empty()) co_return scanned;
  together_ = scanned.ok() ? std::min(together_ * 2, kRowsMax) : kRowsFirst;
  rows_ = std::move(rows);
  next_ = 0;
  ended_ = rows_.empty();
  if (ended_) co_return Status::Ok();
  if (direction_ == ScanDirection::kForward) {
    start_ = rows_.back().key + '\0';
  } else {
    end_ = rows_.back().key;
  }
  co_return Status::Ok();
}

Task<Result<bool>> SnapshotIterator::Next(OpContext& op) {
  if (next_ == rows_.size() && !ended_) {
    Status filled = co_await Fill(op);
    if (!filled.ok()) co_return filled;
  }
  if (next_ == rows_.size()) co_return false;
  ++next_;
  co_return true;
}

}  // namespace farleaf::index::lsm
