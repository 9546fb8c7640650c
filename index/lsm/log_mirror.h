// LogMirror: brings what is appended to both logs to a Mirror (mirror.h), and makes those wait who need it there.
//
// Group commit (mirror_rounds.h): who leads takes everything that was appended so far, in one Mirror::Append, and those who waited meanwhile go on at once.
// Others of his worker that can go on do so first, and so come along. While a round is on its way the next one is planned and posted; they end in their order.
// The recovery log is cut first, and the values' pieces come first: so a commit is never mirrored before the values that it names.
//
// Lock order: a LogGroup's turn, then the lead of a round. Which segments there are: a segment whose bytes are not all mirrored keeps its
// buffer (Log::EndRound), and what has a buffer is not forgotten. So no segment that a round brings something of goes away before it has ended.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "index/lsm/log.h"
#include "index/lsm/log_positions.h"
#include "index/lsm/mirror.h"
#include "index/lsm/mirror_rounds.h"

namespace farleaf::index::lsm {

class LogMirror {
 public:
  /// The recovery log first, as everywhere. The mirror and the logs outlive it.
  LogMirror(Mirror* mirror, std::vector<Log*> logs, LogCuts* cuts);

  /// Until everything in front of these positions is mirrored, and with a commit all that was committed before it. A failure is for good: the logs take
  /// nothing more.
  dsm::Task<Status> UpTo(dsm::Worker& worker, LogPositions positions);
  /// UpTo in two steps, for one who spares a coroutine: Take unless it is Reached, then Lead if the waiter leads.
  bool Reached(const LogPositions& positions) const;
  MirrorRounds::Taking Take(MirrorRounds::Waiter* waiter) { return rounds_.Take(waiter); }
  dsm::Task<Status> Lead(dsm::Worker& worker, LogPositions positions);
  bool has_copies() const { return mirror_->has_copies(); }
  /// What is mirrored so far is on the disks of all copies when it is Ok.
  dsm::Task<Status> Sync(dsm::Worker& worker, SyncReach reach) {
    return mirror_->Sync(worker, reach);
  }
  /// Gives the sink all that the logs have in memory, and ends with `install`, with nothing mirrored in between: what is appended later
  /// is mirrored behind it. REQUIRES: the LogGroup's turn is the caller's.
  using Install = std::function<dsm::Task<Status>()>;
  dsm::Task<Status> FillFromMemory(dsm::Worker& worker, CopySink& sink, const Install& install);
  /// The process is gone.
  void Abandon() { rounds_.Abandon(); }

  struct Counts {
    uint64_t rounds = 0;
    uint64_t bytes = 0;
  };
  Counts counts() const { return {rounds_ended_.load(), bytes_.load()}; }

 private:
  struct Plan {
    LogCuts::Cuts cuts{};
    std::vector<MirrorPiece> pieces;
  };
  dsm::Task<Status> Round(dsm::Worker& worker);
  dsm::Task<Status> PlanRound(dsm::Worker& worker, Plan* plan);
  /// `appended`: what became of it. REQUIRES: all rounds before it were finished.
  dsm::Task<Status> FinishRound(dsm::Worker& worker, const Plan& plan, Status appended);
  dsm::Task<Status> RoundAlone(dsm::Worker& worker);
  dsm::Task<Status> Fill(dsm::Worker& worker, CopySink& sink, const Install& install);
  Status failure() const;
  Status Fail(const Status& why);

  Mirror* const mirror_;
  const std::vector<Log*> logs_;
  LogCuts* const cuts_;
  MirrorRounds rounds_;
  const MirrorRounds::Reached reached_ = [this](const LogPositions& want) { return Reached(want); };
  std::atomic<uint64_t> rounds_ended_{0}, bytes_{0};
};

}  // namespace farleaf::index::lsm
