// Mirror: what a store tells of its bytes, as they come to be, to whoever keeps copies of it (server/replication), and
// CopySink: what a new copy is filled through.
//
// A copy is a store's directory as a crash would leave it: the manifest up to some edit, the segments that it names, and of the logs at
// least what was acknowledged. So a copy is served by opening it (LsmStore::Open), and all that holds of recovery holds of it. Segments
// have the same numbers in every copy: no pointer, no checksum of a block or record changes on the way (DESIGN section 6, the maps of
// segments, are each storage's own: number -> file).
//
// What the store does, and a Mirror may rely on:
//   1. Open of a log's segment has ended before the first Append to it; a number is opened once, but again after it failed;
//   2. Append's calls begin one after another, each behind the end of the PrepareAppend of its pieces; those that are on their way together are of one worker;
//      each log's pieces come in the order of its bytes without gaps; of one call, what stands later names only what stands earlier (values, then the
//      commits that name them). What one brought counts once it and all that began before it have ended with Ok;
//   3. Seal comes behind the Append of all of the segment's bytes, once;
//   4. Sync comes behind the Appends that it is to cover;
//   5. Commit is called by one at a time, in the order of edits, each once, behind its being durable here; all log segments
//      that its tables name were synced (4) before, and no segment that it drops is removed here until it has ended.
// What a Mirror promises: Append has begun to send all its bytes when it first waits. Ok of:
//   Append: the bytes are in the memory of every copy that counts, and survive this process;
//   Sync: they are on the disk of every copy that counts;
//   Commit: the edit, and the tables that it adds, are on the disk of every copy that counts.
// A copy that cannot be written to is the Mirror's own business: it is made not to count (and nothing ends with Ok before that is settled), or
// the call ends with Fenced: this process is no primary any more. The store passes that on, and acknowledges nothing then.
//
// Thread rule: thread-safe, as far as the rules above leave calls beside one another; awaited on the worker that called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>

#include "dsm/base/result.h"
#include "dsm/base/status.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/log_record.h"
#include "index/lsm/state.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

/// [from, to) of a log's segment, which has all of [0, to) in memory. Stays until the call ends.
struct MirrorPiece {
  LogKind log = LogKind::kRecovery;
  SegmentId segment = SegmentId::kNone;
  const std::byte* segment_bytes = nullptr;  ///< of offset 0; aligned to storage::kBlockBytes
  uint32_t from = 0, to = 0;
};

/// Which logs a Sync is to cover.
enum class SyncReach : uint8_t {
  kValues,  ///< the value log alone
  kBoth,
};

class Mirror {
 public:
  virtual ~Mirror() = default;
  virtual dsm::Task<Status> Open(dsm::Worker& worker, LogKind log, SegmentId segment) = 0;
  /// Whatever has to be waited for before these pieces can be sent. By one at a time.
  virtual dsm::Task<Status> PrepareAppend(dsm::Worker& worker,
                                          std::span<const MirrorPiece> pieces) = 0;
  virtual dsm::Task<Status> Append(dsm::Worker& worker, std::span<const MirrorPiece> pieces) = 0;
  virtual dsm::Task<Status> Seal(dsm::Worker& worker, LogKind log, SegmentId segment,
                                 uint32_t used) = 0;
  virtual dsm::Task<Status> Sync(dsm::Worker& worker, SyncReach reach) = 0;
  /// `bytes` (whole blocks) of a table's segment, which were or are being written here too. Nothing depends on it: what a copy lacks
  /// of a table at its Commit is read from this disk.
  virtual dsm::Task<Status> WriteTable(dsm::Worker& worker, SegmentId segment, uint32_t offset,
                                       std::span<const std::byte> bytes) = 0;
  virtual dsm::Task<Status> Commit(dsm::Worker& worker, const StateEdit& edit) = 0;
  /// Tables' segments that no Commit will name, and that nothing more is written of: what copies have of them may go. Nothing depends on it.
  virtual dsm::Task<Status> DropTables(dsm::Worker& worker,
                                       std::span<const SegmentId> segments) = 0;
  /// Someone else than this process has all whose Append has ended, and whoever comes after it will be one who has. If not, what is to be acknowledged goes to
  /// this disk first. Thread-safe, and cheap.
  virtual bool has_copies() const = 0;
  /// Ok: as many others have all whose Append has ended as are to have a write before it is acknowledged. Else Unavailable, which says how many those are: no write
  /// that asks for more than this process's memory begins then. Thread-safe, and cheap.
  virtual Status EnoughCopies() const = 0;
  /// Ok: what was read or written may be answered: nobody else serves these keys yet. No write begins without that. Thread-safe, and cheap.
  virtual Status MayAnswer() const = 0;
};

/// A copy that is being filled (LsmStore::FillCopy). Calls come one after another.
class CopySink {
 public:
  virtual ~CopySink() = default;
  /// Segments that it has whole, of an earlier life as a copy of the same store.
  virtual dsm::Task<Result<std::set<SegmentId>>> Inventory(dsm::Worker& worker) = 0;
  /// [offset, offset + bytes) of a segment, whole blocks, in order from 0. `last`: nothing more comes of it.
  virtual dsm::Task<Status> Write(dsm::Worker& worker, SegmentId segment, uint32_t offset,
                                  std::span<const std::byte> bytes, bool last) = 0;
  /// Of a log's segment that is in memory here: [0, piece.to); from here on it is one of the copy's open ones.
  virtual dsm::Task<Status> WriteOpen(dsm::Worker& worker, const MirrorPiece& piece) = 0;
  /// All that the state names was written: the copy is one from here on, and whatever else it had is gone. The Mirror's next calls are for it as well.
  virtual dsm::Task<Status> Install(dsm::Worker& worker, const StoreState& state) = 0;
};

}  // namespace farleaf::index::lsm
