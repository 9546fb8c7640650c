#include "index/lsm/readable_copy.h"

#include <algorithm>

namespace farleaf::index::lsm {

// Who has looked at the stamp before finds nothing to read, or what was shown with it.
void ReadableCopy::Lack(uint64_t since_ns) {
  lacks_ns_ = std::max(lacks_ns_, since_ns);
  if (proved_ns_.load(std::memory_order_relaxed) > lacks_ns_) return;
  proved_ns_.store(0, std::memory_order_release);
  if (options_.reader) options_.reader->Hide();
}

void ReadableCopy::Hide() {
  if (!options_.reader) return;
  Lack(UINT64_MAX);
  kept_.clear();
}

void ReadableCopy::Begin() {
  if (!options_.reader) return;
  lacks_ns_ = options_.clock->NowNs();
  last_stamp_ns_ = 0;
}

void ReadableCopy::Change(const StoreState& state) {
  if (proved_ns()) options_.reader->Show(state);
}

std::vector<SegmentId> ReadableCopy::Drop(SegmentId segment) {
  if (!options_.reader) return {segment};
  kept_.push_back({segment, options_.clock->NowNs()});
  if (kept_.size() <= options_.kept_segments_max) return {};
  const Kept oldest = kept_.front();
  kept_.pop_front();
  Lack(oldest.dropped_ns);
  return {oldest.segment};
}

std::vector<SegmentId> ReadableCopy::LetGo() {
  std::vector<SegmentId> gone;
  if (kept_.empty()) return gone;
  Lack(kept_.back().dropped_ns);
  for (const Kept& each : kept_) gone.push_back(each.segment);
  kept_.clear();
  return gone;
}

uint64_t ReadableCopy::TakeStamp() {
  if (!options_.clock) return 0;
  last_stamp_ns_ = options_.clock->NowNs();
  return last_stamp_ns_;
}

Status ReadableCopy::Prove(uint64_t stamp_ns, const StoreState& state,
                           std::vector<SegmentId>* gone) {
  if (stamp_ns > last_stamp_ns_) {
    return Status::InvalidArgument("a stamp is said to be proved that was not taken here");
  }
  if (!options_.reader || stamp_ns <= proved_ns_.load(std::memory_order_relaxed)) {
    return Status::Ok();
  }
  // Taken in the same nanosecond as the drop it may have been before it.
  while (!kept_.empty() && kept_.front().dropped_ns < stamp_ns) {
    gone->push_back(kept_.front().segment);
    kept_.pop_front();
  }
  if (stamp_ns <= lacks_ns_) return Status::Ok();
  if (!proved_ns()) options_.reader->Show(state);
  proved_ns_.store(stamp_ns, std::memory_order_release);
  return Status::Ok();
}

}  // namespace farleaf::index::lsm
