#include "dsm/remote_lock.h"

#include <utility>

namespace farleaf::dsm {

namespace {
/// Between two looks at the clock, and at whether the turn is lost.
constexpr uint64_t kLookNs = 1 * kNsPerUs;
}  // namespace

class RedoSlots::Woken {
 public:
  void Add(Waiter* waiter) {
    if (!waiter->handle) return;  // he is awake
    woken_.push_back({waiter->worker, std::exchange(waiter->handle, nullptr)});
  }
  /// REQUIRES: the lock is let go. Their frames may be gone after this.
  void Resume() {
    for (const auto& [worker, handle] : woken_) worker->ResumeSoon(handle);
  }

 private:
  std::vector<std::pair<Worker*, std::coroutine_handle<>>> woken_;
};

Task<std::optional<uint64_t>> RedoSlots::TakeInTurn(Worker& worker, LockClass lock_class,
                                                    uint64_t give_up_ns,
                                                    const std::atomic<bool>& lost) {
  Waiter waiter{
      .worker = &worker, .lock_class = lock_class, .give_up_ns = give_up_ns, .lost = &lost};
  Join(&waiter);
  for (;;) {
    co_await UntilFirst{this, &waiter};
    if (lost.load(std::memory_order_relaxed)) Leave(&waiter);
    if (LosesPatience(&waiter)) break;
    co_await worker.Sleep(kLookNs);
  }
  co_return waiter.word;
}

bool RedoSlots::UntilFirst::await_suspend(std::coroutine_handle<> handle) {
  std::lock_guard lock(slots->lock_);
  if (!waiter->in_line || slots->first_ == waiter) return false;
  waiter->leave_ns = 0;
  waiter->handle = handle;
  return true;
}

void RedoSlots::Join(Waiter* waiter) {
  std::lock_guard lock(lock_);
  waiter->word = TakeUnlessInLine(waiter->lock_class);
  if (waiter->word) {
    waiter->in_line = false;
    return;
  }
  if (last_ != nullptr && last_->lock_class >= waiter->lock_class) {  // as nearly always
    last_->next = waiter;
    last_ = waiter;
    return;
  }
  Waiter** at = &first_;
  while (*at != nullptr && (*at)->lock_class >= waiter->lock_class) at = &(*at)->next;
  waiter->next = *at;
  *at = waiter;
  if (waiter->next == nullptr) last_ = waiter;
}

void RedoSlots::ServeFirst() {
  Woken woken;
  {
    std::lock_guard lock(lock_);
    while (first_ != nullptr && first_->lost->load(std::memory_order_relaxed)) {
      Unlink(first_, nullptr, &woken);
    }
    // At most one: before this one came free there was none for the first.
    Waiter* const first = first_;
    if (first != nullptr) first->word = TakeFree(first->lock_class);
    if (first != nullptr && first->word) Unlink(first, nullptr, &woken);
  }
  woken.Resume();
}

bool RedoSlots::LosesPatience(Waiter* waiter) {
  const uint64_t now_ns = waiter->worker->clock().NowNs();
  bool leaves = false;
  Woken woken;
  {
    std::lock_guard lock(lock_);
    if (!waiter->in_line) return true;
    if (first_ != waiter) return false;
    if (waiter->leave_ns == 0) waiter->leave_ns = now_ns + kPatienceNs;
    leaves = now_ns >= std::min(waiter->leave_ns, waiter->give_up_ns);
    if (!leaves && now_ns < sweep_ns_) return false;
    sweep_ns_ = now_ns + kPatienceNs;
    // And with one who may not see to what keeps the slots, one who may.
    bool one_more = leaves && waiter->lock_class > 0;
    Waiter* before = nullptr;
    for (Waiter *at = first_, *next; at != nullptr; at = next) {
      next = at->next;
      const bool sees_to_it = one_more && at->lock_class == 0;
      if ((leaves && at == waiter) || now_ns >= at->give_up_ns || sees_to_it) {
        one_more = one_more && !sees_to_it;
        Unlink(at, before, &woken);
      } else {
        before = at;
      }
    }
  }
  woken.Resume();
  return leaves;
}

void RedoSlots::Leave(Waiter* waiter) {
  Woken woken;
  {
    std::lock_guard lock(lock_);
    if (!waiter->in_line) return;
    Waiter* before = nullptr;
    for (Waiter* at = first_; at != waiter; at = at->next) before = at;
    Unlink(waiter, before, &woken);
  }
  woken.Resume();
}

void RedoSlots::Unlink(Waiter* waiter, Waiter* before, Woken* woken) {
  (before != nullptr ? before->next : first_) = waiter->next;
  if (last_ == waiter) last_ = before;
  waiter->in_line = false;
  woken->Add(waiter);
  if (before == nullptr && first_ != nullptr) woken->Add(first_);
}

}  // namespace farleaf::dsm
