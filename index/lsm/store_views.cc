// Views: what readers look at, and how it changes.
#include <utility>

#include "dsm/base/log.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

std::shared_ptr<ReadView> LsmStore::NextView() const {
  auto next = std::make_shared<ReadView>();
  next->active = newest_view_->active;
  next->flushing = newest_view_->flushing;
  next->active_first = newest_view_->active_first;
  next->version = newest_view_->version;
  next->flushes = newest_view_->flushes;
  return next;
}

std::shared_ptr<ReadView> LsmStore::Install(std::shared_ptr<ReadView> next) {
  view_.store(next.get(), std::memory_order_release);
  auto before = std::exchange(newest_view_, std::move(next));
  if (before) before->token->next = newest_view_->token;
  return before;
}

// A reader that has loaded the old view's address holds it until its worker's next quiescent point, or pins it before. What goes
// with a view takes its time: memtables are freed, and segments removed.
void LsmStore::RetireView(std::shared_ptr<ReadView> before) {
  if (before) deps_.epochs->Retire([before = std::move(before)] {});
}

void LsmStore::MakeRoomFor(const StoreState& state, const Version& version) {
  constexpr uint64_t kValueSegmentBytes = 64;  // a node of StoreState::value_log
  cache_.Reserve(version.memory_bytes + kValueSegmentBytes * state.value_log.size());
  const uint64_t over = cache_.over_reserved();
  if (room_warned_.exchange(over > 0) || over == 0) return;
  FARLEAF_LOG(warn,
              "what is known of tables takes {} bytes of memory: {} of them are beyond the budget, "
              "of which a "
              "quarter is left for blocks; give the store more than {} bytes of cache",
              cache_.reserved(), over, cache_.bytes_max());
}

bool LsmStore::RotateMemtable(Rotate when) {
  std::shared_ptr<ReadView> before;
  {
    std::lock_guard lock(view_mutex_);
    const ReadView& view = *newest_view_;
    if (view.flushing || view.active->empty()) return false;
    if (when == Rotate::kIfFull && !IsFull(*view.active)) return false;
    auto next = NextView();
    next->flushing = std::exchange(next->active, std::make_shared<Memtable>());
    // Whoever gets a later sequence finds the new view; whoever has an earlier one finds either, and its memtable in both.
    recovery_log_->WithLastSequence([&](Sequence last) {
      next->active_first = last + 1;
      before = Install(next);
    });
  }
  RetireView(std::move(before));
  return true;
}

bool LsmStore::RotateIfFull() {
  const ReadView& view = View();
  if (view.flushing || !IsFull(*view.active)) return false;
  if (!RotateMemtable(Rotate::kIfFull)) return false;
  flush_work_.Notify();
  return true;
}

bool LsmStore::Quiet() const {
  const CompactionPlan plan = Plan();
  std::lock_guard lock(compacting_mutex_);
  const ReadView& view = View();
  if (view.flushing || flush_soon_ || compacting_ != 0) return false;
  for (uint8_t into = 0; into < kLevelsMax; ++into) {
    if (plan.IsDue(*view.version, into) || plan.SinksForRoom(*view.version, into)) return false;
  }
  return true;
}

// In this order: whoever ends the flush that is in the way looks at the wish behind that, or is notified.
void LsmStore::FlushSoon() {
  if (!RotateMemtable(Rotate::kAlways) && !View().active->empty()) flush_soon_ = true;
  flush_work_.Notify();
}

}  // namespace farleaf::index::lsm
