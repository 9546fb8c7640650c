// LogMirror: brings what is appended to both logs to a Mirror (mirror.h), and makes those wait who need it there.
//
// Group commit: who holds the turn takes everything that was appended so far, in one Mirror::Append; those who waited meanwhile find
// theirs done. The recovery log is cut first, and the values' pieces come first: so a commit is never mirrored before the values that it names.
//
// Lock order: a LogGroup's turn, then the LogMirror's. Which segments there are: a segment whose bytes are not all mirrored keeps its
// buffer (Log::EndRound), and what has a buffer is not forgotten. So no segment that a turn looks at goes away in it.
//
// Thread rule: thread-safe.
#pragma once

#include <span>
#include <vector>

#include "index/lsm/event.h"
#include "index/lsm/log.h"
#include "index/lsm/log_positions.h"
#include "index/lsm/mirror.h"

namespace farleaf::index::lsm {

class LogMirror {
 public:
  /// The recovery log first, as everywhere. The mirror and the logs outlive it.
  LogMirror(Mirror* mirror, std::vector<Log*> logs, LogCuts* cuts);

  /// Until everything in front of these positions is mirrored, and with a commit all that was committed before it. A failure is for good: the logs take
  /// nothing more.
  dsm::Task<Status> UpTo(dsm::Worker& worker, LogPositions positions);
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
  void Abandon() { turn_.Abandon(); }

  struct Counts {
    uint64_t rounds = 0;
    uint64_t bytes = 0;
  };
  Counts counts() const { return {rounds_.load(), bytes_.load()}; }

 private:
  bool Reached(const LogPositions& positions) const;
  dsm::Task<Status> Round(dsm::Worker& worker);
  dsm::Task<Status> MirrorCuts(dsm::Worker& worker, const LogCuts::Cuts& cuts);

  Mirror* const mirror_;
  const std::vector<Log*> logs_;
  LogCuts* const cuts_;
  CoroutineMutex turn_;
  std::atomic<uint64_t> rounds_{0}, bytes_{0};
};

}  // namespace farleaf::index::lsm
