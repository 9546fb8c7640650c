// Turns: of those who want something done, one at a time, the leader, does it for all of them: group commit.
//
// Who comes while somebody leads waits. When the leader is done (End), all who have what they want by then go on, each on its own worker, and the
// first of the others leads. So nobody's end waits for another one's to be passed on from thread to thread, as it would be with a mutex: of n that a
// round was for, the threads are woken once each.
//
// Thread rule: thread-safe.
#pragma once

#include <algorithm>
#include <coroutine>
#include <mutex>
#include <utility>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/status.h"
#include "dsm/worker.h"
#include "index/lsm/resuming.h"

namespace farleaf::index::lsm {

template <typename Want>
class Turns {
 public:
  struct Waiter {
    Want want;
    dsm::Worker* worker;
    Status status =
        {};  ///< who does not lead, and has not what it wants: of the round that has seen it
    bool leads = false;  ///< it has to call End
    bool seen =
        false;  ///< whoever leads sets it: the round is for this one as well (ForEachWaiting)
    std::coroutine_handle<> handle = nullptr;
    Waiter* next = nullptr;
  };

  Turns() = default;
  ~Turns() { FARLEAF_CHECK(first_ == nullptr && !busy_, "it ends while somebody has a turn"); }
  Turns(const Turns&) = delete;

  struct [[nodiscard]] Taking {
    Turns* turns;
    Waiter* waiter;
    bool await_ready() const {
      std::lock_guard lock(turns->mutex_);
      if (turns->busy_) return false;
      return waiter->leads = turns->busy_ = true;
    }
    bool await_suspend(std::coroutine_handle<> handle) {
      std::lock_guard lock(turns->mutex_);
      if (!turns->busy_) {  // it ended in between
        waiter->leads = turns->busy_ = true;
        return false;
      }
      waiter->handle = handle;
      *turns->last_ = waiter;
      turns->last_ = &waiter->next;
      return true;
    }
    void await_resume() const noexcept {}
  };
  /// Until it leads, or End says that there is no need to. The waiter stays until then.
  Taking Take(Waiter* waiter) { return {this, waiter}; }

  /// `look` at each who waits. REQUIRES: the caller leads.
  template <typename Look>
  void ForEachWaiting(const Look& look) {
    std::lock_guard lock(mutex_);
    for (Waiter* at = first_; at != nullptr; at = at->next) look(*at);
  }

  /// The round is over: those go on whose want is `reached`, and, if it has failed, all that it has seen. REQUIRES: the caller leads.
  template <typename Reached>
  void End(const Reached& reached, const Status& round) {
    Resuming resuming;  // who leads now is the last
    {
      std::lock_guard lock(mutex_);
      TakeEnded(reached, round, &resuming);
      if (first_ != nullptr) {
        Waiter* const next = first_;
        first_ = next->next;
        if (first_ == nullptr) last_ = &first_;
        next->leads = true;
        resuming.emplace_back(next->worker, next->handle);
      } else {
        busy_ = false;
      }
    }
    ResumeAll(std::move(resuming));
  }

  /// The process is gone, and its workers were abandoned: who waits is not looked at any more.
  void Abandon() {
    std::lock_guard lock(mutex_);
    first_ = nullptr;
    last_ = &first_;
    busy_ = false;
  }

 private:
  template <typename Reached>
  void TakeEnded(const Reached& reached, const Status& round, Resuming* ended) {
    Waiter** at = &first_;
    while (*at != nullptr) {
      Waiter* const waiter = *at;
      const bool has = reached(waiter->want);
      if (!has && (!waiter->seen || round.ok())) {
        at = &waiter->next;
        continue;
      }
      if (!has) waiter->status = round;
      *at = waiter->next;
      ended->emplace_back(waiter->worker, waiter->handle);
    }
    last_ = at;
  }

  std::mutex mutex_;   // guards all below
  bool busy_ = false;  // somebody leads
  Waiter* first_ = nullptr;
  Waiter** last_ = &first_;
};

}  // namespace farleaf::index::lsm
