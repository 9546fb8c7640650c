// Replay: what of the recovery log there is after a crash: its commits up to the first gap.
//
// Sequences are dense: the commit behind n has n + 1. A segment's head says which sequence is the first in it, so that:
//   - a segment that begins behind what is expected shows that something between is lost: the log ends there. (Segments
//     are written in any order unless they are synced; what stands behind a gap was never acknowledged as durable.)
//   - a segment that begins in front of it shows that an earlier recovery gave up what stands from there on, and that the log
//     went on anew: commits of earlier segments from that sequence on are passed over.
// A commit that names a value which is not whole in the value log ends the log as well, unless it is known to have been durable: then the
// value is damaged, as one may be that a table names. The commit is replayed, and whoever reads the value is told.
// If the log ends before a commit that some head or the manifest says was durable, that is no crash but damage: Corruption.
//
// What is replayed is synced before Replay returns: it may have been written, but not synced, and what is acknowledged from now
// on must not be behind a gap after the next crash. Appending goes on in a new segment, never behind a torn tail.
// Thread rule: one coroutine.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/commit_record.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

struct ReplayOptions {
  uint64_t epoch = 0;  ///< the store's
  std::vector<SegmentId>
      segments;  ///< of the recovery log, in the manifest's order; those never begun as well
  Sequence flushed = 0;  ///< commits up to here are in tables, and passed over
  /// Whether a segment of values was collected: what names it is shadowed by a later commit of the log, or by one that was flushed,
  /// and nobody will read it. Empty: none was.
  std::function<bool(SegmentId)> collected = {};
  Sequence durable = 0;  ///< commits up to here were durable, whatever the log says
};

struct ReplayReport {
  Sequence last = 0;  ///< of the last commit, or `flushed`: the log goes on with the next
  uint64_t commits = 0, changes = 0, bytes = 0;  ///< replayed
  uint64_t bytes_read = 0;
  uint64_t ns = 0;
  std::vector<SegmentId> kept;  ///< to be trimmed when `last` is flushed
  /// Never begun, or behind a gap. REQUIRES: out of the manifest before anything is appended anew.
  std::vector<SegmentId> unused;
  std::vector<SegmentId> values;  ///< of the value log, that commits name: they were synced, too
  uint64_t values_damaged = 0;    ///< that commits name which were durable
  std::set<SegmentId> values_missing;  ///< segments of such, which are not there
  bool gap = false;                    ///< something stood behind the end
};

/// Each commit in order; a failure of `commit` ends the replay with it. Corruption: names the file and the offset. (From a
/// coroutine, move named variables into it: GCC 12 destroys temporaries of such types twice.)
dsm::Task<Result<ReplayReport>> Replay(dsm::Worker& worker, storage::Storage& storage,
                                       ReplayOptions options,
                                       std::function<Status(CommitReader)> commit);

}  // namespace farleaf::index::lsm
