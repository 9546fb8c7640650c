// Scans.
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

ReadPoint LsmStore::TakeReadPoint() {
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

Sequence LsmStore::last_sequence() {
  Sequence sequence = 0;
  recovery_log_->WithLastSequence([&](Sequence last) { sequence = last; });
  return sequence;
}

Task<Status> LsmStore::Scan(OpContext& op, ScanRange range, std::vector<KeyValue>* rows) {
  ReadPoint point = TakeReadPoint();
  const LookupPlaces places = Places();
  Status scanned = co_await ScanView(op, places, std::move(point), range, rows);
  if (scanned.ok() && deps_.mirror != nullptr) scanned = co_await AwaitAnswerable(op);
  co_return scanned;
}

}  // namespace farleaf::index::lsm
