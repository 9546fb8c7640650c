#include "index/lsm/mirror_rounds.h"

#include <algorithm>
#include <utility>

#include "dsm/base/check.h"

namespace farleaf::index::lsm {

MirrorRounds::~MirrorRounds() {
  FARLEAF_CHECK(first_ == nullptr && !led_ && rounds_.empty(), "it ends while rounds run");
}

bool MirrorRounds::MayLead(const Waiter& waiter) const {
  if (led_) return false;
  if (rounds_.empty()) return true;
  if (!waiter.want || want_alone_ > 0 || rounds_.size() >= kOnTheirWayMax) return false;
  if (rounds_.front()->worker != waiter.worker) return false;
  for (size_t i = 0; i < kLogsMax; ++i) {
    if ((*waiter.want)[i] > planned_[i]) return true;
  }
  return false;
}

/// False: it goes on, and leads.
bool MirrorRounds::Enqueue(Waiter* waiter, std::coroutine_handle<> handle) {
  std::lock_guard lock(mutex_);
  if (MayLead(*waiter)) {
    waiter->leads = led_ = true;
    return false;
  }
  waiter->handle = handle;
  want_alone_ += !waiter->want;
  *last_ = waiter;
  last_ = &waiter->next;
  return true;
}

void MirrorRounds::Begun(Round* round, const LogPositions& planned) {
  Resuming resuming;
  {
    std::lock_guard lock(mutex_);
    FARLEAF_CHECK(led_ && (rounds_.empty() || rounds_.front()->worker == round->worker));
    led_ = false;
    rounds_.push_back(round);
    planned_ = planned;
    ChooseLeader(&resuming);
  }
  ResumeAll(std::move(resuming));
}

bool MirrorRounds::IsFirst(const Round* round) const {
  std::lock_guard lock(mutex_);
  return rounds_.front() == round;
}

/// False: it need not wait.
bool MirrorRounds::WaitForFirst(Round* round, std::coroutine_handle<> handle) {
  std::lock_guard lock(mutex_);
  if (rounds_.front() == round) return false;
  round->waiter = handle;
  return true;
}

void MirrorRounds::EndRound(Round* round, const Reached& reached) {
  Resuming resuming;
  {
    std::lock_guard lock(mutex_);
    FARLEAF_CHECK(rounds_.front() == round, "rounds end in the order in which they were begun");
    rounds_.pop_front();
    TakeReached(reached, &resuming);
    ChooseLeader(&resuming);
    if (!rounds_.empty() && rounds_.front()->waiter) {
      Round* const next = rounds_.front();
      resuming.emplace_back(next->worker, std::exchange(next->waiter, nullptr));
    }
  }
  ResumeAll(std::move(resuming));
}

void MirrorRounds::EndLead(const Reached& reached) {
  Resuming resuming;
  {
    std::lock_guard lock(mutex_);
    FARLEAF_CHECK(led_);
    led_ = false;
    TakeReached(reached, &resuming);
    ChooseLeader(&resuming);
  }
  ResumeAll(std::move(resuming));
}

void MirrorRounds::Unlink(Waiter** at) {
  Waiter* const waiter = *at;
  *at = waiter->next;
  if (*at == nullptr) last_ = at;
  want_alone_ -= !waiter->want;
}

void MirrorRounds::TakeReached(const Reached& reached, Resuming* resuming) {
  for (Waiter** at = &first_; *at != nullptr;) {
    Waiter* const waiter = *at;
    if (waiter->want && reached(*waiter->want)) {
      Unlink(at);
      resuming->emplace_back(waiter->worker, waiter->handle);
    } else {
      at = &waiter->next;
    }
  }
}

void MirrorRounds::ChooseLeader(Resuming* resuming) {
  if (!rounds_.empty() && (want_alone_ > 0 || rounds_.size() >= kOnTheirWayMax)) return;
  for (Waiter** at = &first_; *at != nullptr; at = &(*at)->next) {
    Waiter* const waiter = *at;
    if (!MayLead(*waiter)) continue;
    Unlink(at);
    waiter->leads = led_ = true;
    resuming->emplace_back(waiter->worker, waiter->handle);
    return;
  }
}

void MirrorRounds::Abandon() {
  std::lock_guard lock(mutex_);
  first_ = nullptr;
  last_ = &first_;
  want_alone_ = 0;
  rounds_.clear();
  led_ = false;
}

}  // namespace farleaf::index::lsm
