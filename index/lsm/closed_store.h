// ClosedStore: what a store in a directory holds that no process serves, be it closed or crashed. Nothing is recovered, committed or
// removed: what a crash left is looked at as the next opening would find it.
//
// Thread rule: one worker.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/result.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/block_cache.h"
#include "index/lsm/commit_record.h"
#include "index/lsm/log_replay.h"
#include "index/lsm/manifest.h"
#include "index/lsm/store_iterator.h"
#include "index/lsm/version.h"
#include "index/storage/read_only_files.h"

namespace farleaf::index::lsm {

/// What there is of a store, and how much room it takes.
struct StoreStats {
  struct RunStats {
    RunPlace place;
    uint64_t tables = 0, segments = 0, entries = 0, deletes = 0, expiring = 0;
    uint64_t range_deletes = 0;
    uint64_t cut_tables = 0;     ///< of which some entries do not count any more
    uint64_t content_bytes = 0;  ///< of keys and inline values
    uint64_t bytes() const { return segments * storage::kSegmentBytes; }
  };
  std::vector<RunStats> runs;  ///< not empty, the newest first

  uint64_t value_segments = 0;       ///< that exist
  uint64_t value_segments_torn = 0;  ///< that were being filled at a crash
  uint64_t value_live_bytes = 0;     ///< of records that tables or the recovery log name
  uint64_t value_garbage_bytes = 0;  ///< of records that merges have dropped
  uint64_t value_bytes() const { return value_segments * storage::kSegmentBytes; }
  /// Never filled, or records that nothing names or has told of.
  uint64_t value_other_bytes() const;

  uint64_t recovery_segments = 0;  ///< that exist
  Result<ReplayReport> recovery = Status::Unavailable("not looked at");
  Sequence flushed_through = 0;

  uint64_t segments = 0, free_files = 0;
  uint64_t unnamed_segments = 0;  ///< that the next opening removes
  uint64_t named_file_bytes = 0;  ///< of the manifest and CURRENT
  uint64_t disk_bytes() const {
    return (segments + free_files) * storage::kSegmentBytes + named_file_bytes;
  }
  /// Keys, values and records that have not been merged away yet.
  uint64_t data_bytes() const;

  WrittenBytes written;  ///< since the store was made
  Manifest::OpenedFile manifest;
  uint64_t epoch = 0, segments_end = 0;
};

class ClosedStore {
 public:
  /// InvalidArgument: there is no such directory, or no store in it. AlreadyExists: a process has it open. Corruption: the manifest is
  /// damaged; names the file and the offset. `wall` (since 1970) outlives it.
  static dsm::Task<Result<std::unique_ptr<ClosedStore>>> Open(dsm::Worker& worker,
                                                              std::string directory,
                                                              const Clock* wall);

  storage::ReadOnlyFiles& files() { return *files_; }
  const Manifest& manifest() const { return *manifest_; }
  const StoreState& state() const { return manifest_->state(); }
  bool IsCollected(SegmentId values) const { return !state().value_log.contains(values); }

  /// Replays the recovery log, once. `look` is shown each change. Corruption: it is damaged.
  using LookAtChange = std::function<void(const Change&)>;
  dsm::Task<Result<ReplayReport>> Recover(dsm::Worker& worker, LookAtChange look = {});

  dsm::Task<Result<StoreStats>> Stats(dsm::Worker& worker);

  /// All keys, with their newest version, as far as they are neither deleted nor expired: in order, from the first that is not below
  /// `start`. REQUIRES: Recover was Ok.
  std::unique_ptr<StoreIterator> Iterate(std::string_view start);
  /// Shown each key with its value, until it returns false. Otherwise as above.
  using Row = std::function<bool(std::string_view key, std::string_view value)>;
  dsm::Task<Status> Scan(dsm::Worker& worker, std::string start, Row row);

  /// An entry as a table has it.
  struct TableRow {
    RunPlace place;
    const TableInfo& table;
    const Entry& entry;
    bool cut;  ///< it does not count any more
  };
  enum class GoOn : uint8_t { kWithRow, kWithTable, kNot };
  using LookAtRow = std::function<GoOn(const TableRow&)>;
  /// All entries from `start` on of one table after another, level by level; `look` says whether with the next entry or the next table.
  /// `failed` is told of each table that cannot be read to its end; the next one is gone on with.
  dsm::Task<void> ScanTables(dsm::Worker& worker, std::string start, LookAtRow look,
                             std::function<void(const Status&)> failed);

 private:
  dsm::Task<Result<GoOn>> ScanTable(dsm::Worker& worker, RunPlace place,
                                    const StoreState::TableState& table, const std::string& start,
                                    const LookAtRow& look);
  explicit ClosedStore(std::unique_ptr<storage::ReadOnlyFiles> files, const Clock* wall);

  const Clock* const wall_;
  const std::unique_ptr<storage::ReadOnlyFiles> files_;
  std::unique_ptr<Manifest> manifest_;
  std::shared_ptr<SegmentRemover> remover_;
  BlockCache cache_;
  std::shared_ptr<Memtable> memtable_;  // what the recovery log holds; null: not replayed
};

}  // namespace farleaf::index::lsm
