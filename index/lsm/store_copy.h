// StoreCopy: a copy of a store, on a storage of its own: what a backup does with what a Mirror and a CopySink (mirror.h) send it. It knows
// nothing of a network.
//
// At any moment a crash leaves on the storage either a directory that is no store (INCOMPLETE is in force, or there is no CURRENT), or one
// that LsmStore::Open recovers, with all that was acknowledged as synced. By cases:
//   - *filling*: BeginFill makes INCOMPLETE durable before it removes or changes any segment; Install takes it out of force by CURRENT's
//     replacement alone (Manifest, 4), behind the Sync of all that the state names;
//   - *following*: a log's segment is in the manifest before it is made. A table is checked and durable before the edit that adds it, and nothing goes
//     that an edit drops before the edit is durable;
//   - what the state says of durability is true of this device. `durable_through` of a state or an edit, and of the heads of the recovery log:
//     the primary raises it only behind a Mirror::Sync that every copy has answered, this one by Sync(kBoth) of as many bytes as had been
//     appended. The copy that was not one yet when it was raised has synced the same bytes in Install: its segments, and `open` of its buffers,
//     which hold at least what the primary had synced when the state was taken. That tables' values are durable is true likewise (mirror.h, 5).
//
// Which segments are whole (Inventory). Of this life: those that were sent to their last byte, and sealed ones. Of an earlier one, by the
// state of the manifest alone:
//   - tables' segments: they were checked and synced before the edit;
//   - the value log's below the last one that a table names: values are appended to one segment after another, so that they were full when
//     it was begun, and the edit that names it came behind a Sync of all (`PerhapsTorn` is the same argument).
// Of the recovery log nothing: its bytes may be there in part. What the manifest claims is never written again: WriteSegment and OpenLog refuse it.
// Of a filling that was cut off, by INCOMPLETE: segments are *noted* there when they were sent to their last byte and synced, kNotedAtOnce and more at a
// time (Manifest::NoteFilled). What is noted is as it was sent, after any crash, as long as INCOMPLETE is in force: it is removed behind Install
// alone, and written again only when INCOMPLETE does not name it any more. So a filling goes on behind a crash where it was, but for what came since.
//
// Segments of values that an edit drops stay as files for a while, if the copy is read (readable_copy.h).
//
// A new file of a segment may be one that it had before, with records that are whole (storage.h, 7): so WriteSegment fills a segment up with zeros, and
// FinishTails does. Where a primary goes on with a segment it is the same primary, and the same bytes.
//
// Failures name the segment or the file. ResourceExhausted: nothing was done, or may be done again when there is room. A Sync of a sealed log
// segment that fails ends the copy (CopiedLogs): each call says so until BeginFill.
//
// Thread rule: one worker. Calls come one at a time, but in the phase kFollowing the logs' (OpenLog, Seal, Sync) are one line, and
// WriteTable, DropTables and Commit another one, beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/copied_logs.h"
#include "index/lsm/copied_tables.h"
#include "index/lsm/manifest.h"
#include "index/lsm/mirror.h"
#include "index/lsm/readable_copy.h"

namespace farleaf::index::lsm {

/// Since Open.
struct CopyMetrics {
  uint64_t filled_bytes = 0;  ///< by WriteSegment
  uint64_t log_bytes = 0;     ///< that were written from buffers
  uint64_t table_bytes = 0;   ///< by WriteTable
  uint64_t tables_verified = 0, verified_bytes = 0;
  uint64_t read_back_bytes = 0;  ///< of them, from the storage
  uint64_t verifying_ns = 0;     ///< without the reads
  uint64_t edits = 0;
  uint64_t segments = 0;          ///< whole, open, or of tables that no edit has named yet
  uint64_t segments_pending = 0;  ///< of them, of such tables
  uint64_t segments_kept = 0;     ///< beside them: of values, for readers
};

/// What there is of a store: all commits up to `sequence`. Of copies of one store, whose epoch is drawn when it is made, the larger holds all that the
/// smaller one does. Epoch 0: nothing.
struct HeldThrough {
  uint64_t epoch = 0;
  Sequence sequence = 0;
  auto operator<=>(const HeldThrough&) const = default;
};

class StoreCopy {
 public:
  /// Segments, 64 MiB; more where more are noted already, a quarter of those, so that INCOMPLETE is not written anew too often.
  static constexpr size_t kNotedAtOnce = 32;
  enum class Phase : uint8_t {
    kNone,       ///< no store is here, or one that was being filled
    kLeft,       ///< whole, as a crash or an end has left it: to be promoted, or filled
    kFilling,    ///< from BeginFill on
    kFollowing,  ///< from Install on
  };

  /// Removes nothing. Corruption: there is something that is no copy, or a damaged one: names the file, and what to do. `storage` outlives it.
  static dsm::Task<Result<std::unique_ptr<StoreCopy>>> Open(dsm::Worker& worker,
                                                            storage::Storage* storage);
  StoreCopy(const StoreCopy&) = delete;

  /// Its tables are shown to the reader from here on, while they may be (readable_copy.h). Once, before BeginFill.
  void ServeReads(ReadableCopy::Options options) { reads_.emplace(options); }
  /// What comes of tables is checked from there, as far as there is room (copied_tables.h), and read back else. Once, before BeginFill.
  void HoldTablesIn(CheckMemory* memory) { tables_.HoldIn(memory); }
  /// Instead of kNotedAtOnce.
  void NoteFilledEvery(size_t segments) { noted_at_once_ = segments; }
  Phase phase() const { return phase_; }
  /// Whole segments. While it is filled also of a state that is not installed yet.
  const std::set<SegmentId>& Inventory() const { return whole_; }
  /// A log's segment that has a buffer.
  bool is_open(SegmentId segment) const { return logs_.is_open(segment); }
  /// kNone: of no meaning. REQUIRES: no Commit or Install is under way.
  const StoreState& state() const { return manifest_->state(); }
  CopyMetrics metrics() const;
  /// As LsmStore::Open would find it; reads the recovery log. REQUIRES: kLeft.
  dsm::Task<Result<HeldThrough>> Held(dsm::Worker& worker);

  // ---- Filling, in any phase anew
  /// It is no copy from here on; buffers are let go. All segments go but those of Inventory.
  dsm::Task<Status> BeginFill(dsm::Worker& worker);
  enum class More : uint8_t { kComes, kNone };
  /// Chunks in order, from 0, where they begin the segment anew. InvalidArgument: the segment is one that the manifest claims.
  dsm::Task<Status> WriteSegment(dsm::Worker& worker, SegmentChunk chunk, More more);
  /// `open`: how much is in the buffers, of segments that were opened since BeginFill: at least what was appended before the state was taken.
  /// NotFound: names segments of the state that are not here: send them, and ask again. After any other failure begin anew; Inventory
  /// is kept. REQUIRES: of the state's logs all segments that the primary has were sent or opened.
  dsm::Task<Status> Install(dsm::Worker& worker, StoreState state, OpenBytes open);

  // ---- The logs, while it is filled or follows
  /// Makes the segment; see CopiedLogs::Open for the buffer. Again after a failure. InvalidArgument: the state does not name it as
  /// of this log, or it is whole or open already.
  dsm::Task<Status> OpenLog(dsm::Worker& worker, LogKind log, SegmentId segment,
                            std::span<std::byte> buffer);
  /// [0, used) is in the buffer, and nothing will follow. Ok: the buffer is free. Of a segment that was sealed or dropped there is nothing to do.
  dsm::Task<Status> Seal(dsm::Worker& worker, SegmentId segment, uint32_t used);
  /// Until everything sealed, and of each open segment as much as `bytes` says, is durable.
  dsm::Task<Status> Sync(dsm::Worker& worker, SyncReach reach, OpenBytes bytes);

  // ---- Tables and edits, while it follows
  /// NotFound: what is in front of the chunk did not come; that is no harm, Missing says so later.
  dsm::Task<Status> WriteTable(dsm::Worker& worker, SegmentChunk chunk);
  /// What there is of them goes, but what an edit has named.
  void DropTables(std::span<const SegmentId> segments);
  /// Segments of tables that the edit adds which are not here whole.
  std::vector<SegmentId> Missing(const StateEdit& edit) const;
  /// Durable, and what it drops is gone. NotFound: names what Missing says. Corruption: a table is not what the edit says; what is
  /// damaged is missing from then on. Or the edit does not fit the state. After another failure: the same edit again, and no other one.
  dsm::Task<Status> Commit(dsm::Worker& worker, const StateEdit& edit);

  // ---- Reads (readable_copy.h)
  /// REQUIRES: as Commit. InvalidArgument: it does not follow.
  Result<uint64_t> TakeStamp();
  /// What the primary says: of the state as it is, so it comes behind the Commit. 0: nothing is proved yet. REQUIRES: as Commit.
  Status Prove(uint64_t stamp_ns);
  /// By any thread.
  std::optional<uint64_t> proved_ns() const { return reads_->proved_ns(); }

  // ---- For whoever goes on with it in another way (follower.h)
  struct Parts {
    std::unique_ptr<Manifest> manifest;
    CopiedLogs logs;
  };
  /// Nothing else is called afterwards. REQUIRES: it follows.
  Parts Release() {
    reads_->Hide();
    return {std::move(manifest_), std::move(logs_)};
  }
  /// It becomes a store without anything, in any phase; buffers are let go. For a copy that has tables of its own: their numbers mean others where it is
  /// filled from. It is to be filled then, and to be a member of nothing until it is.
  dsm::Task<Status> Empty(dsm::Worker& worker);

  // ---- Promotion
  /// What is in the buffers is on the device. Afterwards the storage is to be opened as a store, or filled anew. REQUIRES: nobody writes into them any
  /// more.
  dsm::Task<Status> FinishTails(dsm::Worker& worker);
  /// So many numbers of segments are never used: more than a deposed primary can have given unseen. ResourceExhausted: there are not as many left below 2^40.
  dsm::Task<Status> ReserveNumbers(dsm::Worker& worker, uint64_t count);

 private:
  StoreCopy(storage::Storage* storage, std::unique_ptr<Manifest> manifest)
      : storage_(storage),
        manifest_(std::move(manifest)),
        filled_(storage),
        logs_(storage),
        tables_(storage) {
    reads_.emplace();
  }

  Status CheckPhase(std::initializer_list<Phase> any_of, std::string_view what) const;
  Status CheckOpen(LogKind log, SegmentId segment) const;
  bool Holds(SegmentId segment) const { return whole_.contains(segment) || logs_.is_open(segment); }
  std::vector<const TableInfo*> NewTables(const StateEdit& edit) const;
  Status CheckValuesHere(const TableInfo& table, const StateEdit& edit) const;
  Status CheckAllHere(const StoreState& state, const std::set<SegmentId>& existing) const;
  dsm::Task<Status> TakeTables(dsm::Worker& worker, std::vector<const TableInfo*> tables);
  /// Segments of the tables that the edit drops.
  std::vector<TableState> DroppedTables(const StateEdit& edit) const;
  Status NamesOf(std::vector<SegmentId> missing) const;
  /// What was written by WriteSegment is durable. Else it is no copy, and what may be lost is not whole.
  dsm::Task<Status> SyncFilled(dsm::Worker& worker);
  dsm::Task<Status> NoteFilled(dsm::Worker& worker);
  dsm::Task<Status> TakeFromNoted(dsm::Worker& worker, SegmentId segment);
  void Remove(SegmentId segment);
  /// It is nothing of the copy's any more; its file is there.
  void Forget(SegmentId segment);
  void RemoveFile(SegmentId segment);
  void RemoveFiles(const std::vector<SegmentId>& segments);
  /// What is kept for readers goes, if the device has no room. Returns whether there is more of it then.
  bool MakeRoom(const Status& failure);

  storage::Storage* const storage_;
  std::unique_ptr<Manifest> manifest_;  // null: released
  Phase phase_ = Phase::kNone;
  std::set<SegmentId> whole_;
  std::set<SegmentId> claimed_;   // of them, those that the manifest on the device claims
  std::set<SegmentId> unsynced_;  // of them, written by WriteSegment
  std::set<SegmentId> noted_;     // of them, those that INCOMPLETE names, or may
  size_t noted_at_once_ = kNotedAtOnce;
  CopiedSegments filled_;  // that WriteSegment is at
  CopiedLogs logs_;
  CopiedTables tables_;
  std::optional<ReadableCopy> reads_;  // always there
  uint64_t filled_bytes_ = 0, edits_ = 0;
};

}  // namespace farleaf::index::lsm
