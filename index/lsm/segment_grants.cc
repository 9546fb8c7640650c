#include "index/lsm/segment_grants.h"

namespace farleaf::index::lsm {

dsm::Task<Result<SegmentId>> SegmentGrants::Take(dsm::Worker& worker, LogKind log) {
  std::deque<SegmentId>& granted = GrantedTo(log);
  if (granted.empty()) {
    StateEdit edit;
    auto& ids = log == LogKind::kValues ? edit.values_granted : edit.recovery_granted;
    for (size_t i = 0; i < kGrant; ++i) ids.push_back(New());
    edit.segments_end = end();
    Status committed = co_await manifest_->Commit(worker, edit);
    // Their numbers stay unused: the edit may be in the manifest after a crash.
    if (!committed.ok()) co_return committed;
    granted.assign(ids.begin(), ids.end());
  }
  const SegmentId id = granted.front();
  granted.pop_front();
  co_return id;
}

}  // namespace farleaf::index::lsm
