// LogGroup: writes, syncs and trims the logs of a store, and makes those wait who need it done.
//
// Group commit: one of those who wait, the leader, cuts all logs, writes what is in front of the cuts, and syncs it: one Run for the
// writes of all logs, one for the Syncs. Who comes meanwhile waits; when the leader is done, those in front of whose
// positions everything is durable go on, each on its own worker, and the first of the others leads the next round, for all of them.
// The recovery log is cut first: a commit in front of its cut has its values in front of the value log's cut. A round that
// syncs takes the whole value log, whoever asked for how much: a commit without values may stand behind one that has some, and
// is lost with it if they are not there. So the recovery log counts as durable only as far as both are. The recovery log it syncs only if
// that is asked for: flushes ask for values alone, and most of what is in the log is flushed and removed before anybody asks for more.
//
// Without kSynced there may be very much to sync, of which most is full and has left memory. That is synced in front of the round, by
// nobody's turn, so that others write meanwhile; and by one at a time, with its round, so that no Sync that succeeds hides one that
// has failed.
//
// What was acknowledged is durable, whatever fails:
//   - a write fails (the device is full, or broken): who waits gets the failure. The bytes are in memory still, and the next round
//     writes them again. As long as it fails, full segments pile up, until Append says kNoRoom and Room the failure.
//   - a Sync fails: what was written since the last Sync of that segment counts as not written, because a later Sync
//     that succeeds does not speak for it (an operating system may drop what it could not write, and report that once). If
//     it is in memory still, the next round writes and syncs it again. If not (its segment was full, was written by a round
//     that did not sync, and its buffer was let go), the log has failed for good: it takes nothing more, and
//     recovery of what is on the device is the way on.
//   - a copy cannot be written to, and the mirror does not settle that: the logs have failed for good;
//   - what a failed commit wrote may become durable with a later round: its outcome is unknown, as it is after a crash.
//
// Where the store has copies (mirror.h), a round first mirrors what it is about, and one that syncs ends when the copies have synced, too: what counts as durable
// here is so everywhere.
//
// Thread rule: thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "index/lsm/event.h"
#include "index/lsm/log.h"
#include "index/lsm/log_mirror.h"
#include "index/lsm/log_positions.h"
#include "index/lsm/options.h"
#include "index/lsm/turns.h"

namespace farleaf::index::lsm {

class LogGroup {
 public:
  using Positions = LogPositions;

  struct Counts {
    uint64_t rounds = 0;  ///< that wrote or synced
    uint64_t synced_rounds = 0;
  };

  /// The recovery log first. The logs outlive the group. With kSynced, full segments stay in memory until they are synced, whoever
  /// has written them, so that no Sync that fails makes a log fail for good.
  /// `mirror`: null, or of where the logs' copies go, of whose it was made with the same logs. It outlives the group.
  LogGroup(storage::Storage* storage, std::vector<Log*> logs, Durability durability,
           Mirror* mirror = nullptr);
  LogGroup(const LogGroup&) = delete;

  /// Until everything in front of these positions is durable, and with a commit all that was committed before it.
  dsm::Task<Status> Sync(dsm::Worker& worker, Positions positions);
  /// Until everything in front of these positions, and with a commit all that was committed before it, is in the memory of every copy; where no copy
  /// counts, on this disk: so that the end of this process alone takes nothing of it. A failure of the mirror is for good. REQUIRES: there is a mirror.
  dsm::Task<Status> Replicate(dsm::Worker& worker, Positions positions);
  /// When there are no copies any more: Sync of all, if Replicate has counted on them since it last ended with Ok.
  dsm::Task<Status> SyncReplicated(dsm::Worker& worker);
  /// At one moment: what is in front of its log's tail and not in memory is on disk as a whole.
  struct Memory {
    std::array<SegmentId, kLogsMax> tails{};  ///< kNone: there is none yet
    std::set<SegmentId> segments;             ///< of both logs: full ones, and the tails
  };
  dsm::Task<Memory> InMemory(dsm::Worker& worker);
  /// First `on_disk`, with that; then LogMirror::FillFromMemory. Meanwhile nothing is written. REQUIRES: there is a mirror.
  using OnDisk = std::function<dsm::Task<Status>(const Memory& memory)>;
  dsm::Task<Status> FillCopy(dsm::Worker& worker, CopySink& sink, const OnDisk& on_disk,
                             const LogMirror::Install& install);
  /// Until everything that was appended up to now survives the process.
  dsm::Task<Status> Flush(dsm::Worker& worker);
  /// Until all that are full segments now are written.
  dsm::Task<Status> WriteFull(dsm::Worker& worker);
  /// When Append has said kNoRoom: until it is worth another try.
  /// `from`: as Log::Prepare.
  dsm::Task<Status> Room(dsm::Worker& worker, Log& log, std::optional<storage::Reserve> from);
  /// WriteFull, and segments ready ahead of need: for whoever is told of a sealed segment, or works in the background.
  dsm::Task<Status> Tend(dsm::Worker& worker);

  /// Those segments of the recovery log all of whose commits are `flushed` or older, and were written: the caller takes them out of the
  /// manifest, then out of the log (Trim), and removes them.
  dsm::Task<std::vector<SegmentId>> FlushedSegments(dsm::Worker& worker, Sequence flushed);
  /// Takes segments out of the recovery log: Syncs do not look at them any more. REQUIRES: of FlushedSegments, and no recovery will look at
  /// them; what is behind them counts as durable without them.
  dsm::Task<void> Trim(dsm::Worker& worker, std::vector<SegmentId> segments);
  /// The same for one segment of the value log that is not the tail.
  dsm::Task<void> Drop(dsm::Worker& worker, SegmentId id);

  Positions ends() const;
  Counts counts() const { return {rounds_.load(), synced_rounds_.load()}; }
  LogMirror::Counts mirror_counts() const {
    return mirror_ ? mirror_->counts() : LogMirror::Counts{};
  }
  /// The process is gone, and its workers were abandoned: who waits is not looked at any more.
  void Abandon();

 private:
  enum class Reach : uint8_t {
    kWritten,
    kSynced,
    kRoom,  ///< there is room for one more full segment
    kTurn,  ///< to lead, without a round
  };
  struct Want {
    Reach reach = Reach::kWritten;
    Positions positions{};
  };
  using Waiter = Turns<Want>::Waiter;

  /// What a round is to do, for all who want something.
  struct RoundPlan {
    Positions written{};         ///< up to here
    bool syncs = false;          ///< values, all of them
    bool syncs_commits = false;  ///< and commits
  };
  dsm::Task<Status> Until(dsm::Worker& worker, Want want);
  dsm::Task<Status> SyncFull(dsm::Worker& worker, Positions positions);
  dsm::Task<Status> Round(dsm::Worker& worker, Want want);
  Positions SealedEnds() const;
  Memory LookAtMemory() const;
  void AddWant(const Want& want, RoundPlan* plan) const;
  RoundPlan TakeWants(const Want& own);
  void EndTurn(const Status& round) {
    turns_.End([this](const Want& want) { return Reached(want); }, round);
  }
  bool Reached(const Want& want) const;

  storage::Storage* const storage_;
  const std::vector<Log*> logs_;
  const Durability durability_;
  std::atomic<bool> counts_on_copies_{false};
  LogCuts cuts_;
  const std::unique_ptr<LogMirror> mirror_;  // null: there are no copies
  CoroutineMutex syncing_;                   // without kSynced: of who syncs
  Turns<Want> turns_;
  std::atomic<uint64_t> rounds_{0}, synced_rounds_{0};
};

}  // namespace farleaf::index::lsm
