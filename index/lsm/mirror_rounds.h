// MirrorRounds: whose round brings what was appended to the copies, and in which order rounds end: group commit as in turns.h, but that a round may begin
// while others are on their way, so that nobody's processor waits for a round trip.
//
// One at a time *leads*: it plans a round, and begins it (Begun). Then another may lead, while the round is on its way, if
//   - it is of the same worker as all rounds on their way: what one transport WRITES to one server lands in the order of its posting
//     (dsm/transport.h, 2), and the word in which a round begins is the one in which the round before has ended;
//   - it wants more than what these rounds bring, which they would not be for;
//   - they are fewer than kOnTheirWayMax: what comes meanwhile gathers, for the next round to take at once;
//   - nobody waits to be alone.
// If there is none, whoever waits longest leads when all of them have ended. Nobody starves: each round takes all that was appended before it, whoever waits for it.
//
// Rounds end in the order in which they were begun (Arrive): so what is mirrored has no gap, whichever of two servers answers first, and what a round
// that has failed was to bring is behind no round that has ended well.
//
// Thread rule: thread-safe.
#pragma once

#include <coroutine>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "dsm/worker.h"
#include "index/lsm/log_positions.h"
#include "index/lsm/resuming.h"

namespace farleaf::index::lsm {

class MirrorRounds {
 public:
  static constexpr size_t kOnTheirWayMax = 2;

  struct Waiter {
    std::optional<LogPositions> want;  ///< none: to lead alone, with no round on its way
    dsm::Worker* worker;
    bool leads = false;  ///< it has to begin a round, or to call EndLead
    std::coroutine_handle<> handle = nullptr;
    Waiter* next = nullptr;
  };
  /// One that is on its way; in the frame of who led it.
  struct Round {
    dsm::Worker* worker;
    std::coroutine_handle<> waiter =
        nullptr;  ///< it has arrived, others that began earlier have not ended
  };

  MirrorRounds() = default;
  ~MirrorRounds();
  MirrorRounds(const MirrorRounds&) = delete;

  struct [[nodiscard]] Taking {
    MirrorRounds* rounds;
    Waiter* waiter;
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> handle) { return rounds->Enqueue(waiter, handle); }
    void await_resume() const noexcept {}
  };
  /// Until it leads, or has what it wants. The waiter stays until then.
  Taking Take(Waiter* waiter) { return {this, waiter}; }

  /// What the leader planned, up to `planned`, is posted before the leader next waits: it leads no more. The round stays until it has ended.
  void Begun(Round* round, const LogPositions& planned);

  struct [[nodiscard]] Arriving {
    MirrorRounds* rounds;
    Round* round;
    bool await_ready() const { return rounds->IsFirst(round); }
    bool await_suspend(std::coroutine_handle<> handle) {
      return rounds->WaitForFirst(round, handle);
    }
    void await_resume() const noexcept {}
  };
  /// Until all rounds that were begun before it have ended.
  Arriving Arrive(Round* round) { return {this, round}; }

  /// The round is over: those go on whose want is reached. REQUIRES: it has arrived.
  using Reached = std::function<bool(const LogPositions& want)>;
  void EndRound(Round* round, const Reached& reached);
  /// The same of who leads and has begun none.
  void EndLead(const Reached& reached);

  /// The process is gone, and its workers were abandoned: who waits is not looked at any more.
  void Abandon();

 private:
  bool Enqueue(Waiter* waiter, std::coroutine_handle<> handle);
  bool IsFirst(const Round* round) const;
  bool WaitForFirst(Round* round, std::coroutine_handle<> handle);
  // REQUIRES: mutex_ is held.
  bool MayLead(const Waiter& waiter) const;
  void TakeReached(const Reached& reached, Resuming* resuming);
  void ChooseLeader(Resuming* resuming);
  void Unlink(Waiter** at);

  mutable std::mutex mutex_;   // guards all below
  bool led_ = false;           // somebody leads
  std::deque<Round*> rounds_;  // on their way, in the order of their beginning
  LogPositions planned_{};     // what they bring ends here
  size_t want_alone_ = 0;      // of those who wait
  Waiter* first_ = nullptr;
  Waiter** last_ = &first_;
};

}  // namespace farleaf::index::lsm
