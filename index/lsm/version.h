// Version: the tables of all levels at one moment; and what a reader looks at.
//
// A table file goes when no version names it any more and the manifest does not either: whoever holds a version reads on
// from tables that a merge has replaced.
//
// Thread rule: immutable once shared.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "index/lsm/memtable.h"
#include "index/lsm/range_deletes.h"
#include "index/lsm/state.h"
#include "index/lsm/table.h"

namespace farleaf::index::lsm {

/// Removes segments for whoever may outlive the storage.
class SegmentRemover {
 public:
  explicit SegmentRemover(storage::Storage* storage) : storage_(storage) {}
  /// What fails is removed when the store is opened the next time: no manifest names it.
  void Remove(std::span<const SegmentId> segments);
  /// Segments that wait in SegmentsHeld.
  uint64_t held() const { return held_.load(std::memory_order_relaxed); }
  /// From now on nothing is removed any more.
  void Close() {
    std::lock_guard lock(mutex_);
    storage_ = nullptr;
  }

 private:
  friend class SegmentsHeld;
  std::atomic<uint64_t> held_{0};
  std::mutex mutex_;  // guards storage_
  storage::Storage* storage_;
};

/// Removes segments when nobody holds it any more.
class SegmentsHeld {
 public:
  SegmentsHeld(std::shared_ptr<SegmentRemover> remover, std::vector<SegmentId> segments)
      : remover_(std::move(remover)), segments_(std::move(segments)) {
    remover_->held_.fetch_add(segments_.size(), std::memory_order_relaxed);
  }
  ~SegmentsHeld() {
    remover_->Remove(segments_);
    remover_->held_.fetch_sub(segments_.size(), std::memory_order_relaxed);
  }
  SegmentsHeld(const SegmentsHeld&) = delete;

 private:
  const std::shared_ptr<SegmentRemover> remover_;
  const std::vector<SegmentId> segments_;
};

/// A table, and its segments' life.
class TableFile {
 public:
  TableFile(storage::Storage* storage, std::shared_ptr<SegmentRemover> remover, TableInfo info)
      : remover_(std::move(remover)), table_(storage, std::move(info)) {
    for (const TableInfo::LogSegment& log : this->info().dictionary) named_bytes_ += log.live_bytes;
  }
  ~TableFile() {
    if (obsolete_.load()) remover_->Remove(info().segments);
  }
  TableFile(const TableFile&) = delete;
  const Table& table() const { return table_; }
  const TableInfo& info() const { return table_.info(); }
  /// Of the value log.
  uint64_t named_bytes() const { return named_bytes_; }
  /// No manifest names it any more: its segments are removed with the last version that does.
  void SetObsolete() const { obsolete_.store(true); }

 private:
  const std::shared_ptr<SegmentRemover> remover_;
  Table table_;
  uint64_t named_bytes_ = 0;
  mutable std::atomic<bool> obsolete_{false};
};

struct TableRef {
  std::shared_ptr<const TableFile> file;
  std::string from;  ///< what is in front of this key does not count; empty: all counts

  /// In front of all that counts, and not behind any of it.
  std::string_view first() const { return std::max<std::string_view>(from, file->info().smallest); }
};

struct Run {
  RunPlace place = {};
  std::vector<TableRef> tables = {};            ///< ascending, not overlapping
  std::vector<RangeDelete> range_deletes = {};  ///< fragments
  uint64_t bytes = 0;        ///< that are used of the tables' segments, cut or not
  uint64_t value_bytes = 0;  ///< of the value log that a fresh run's tables name; of others 0

  bool kept = false;      ///< it was set aside of a run, or of a newer one, and stands behind it
  bool has_kept = false;  ///< something is kept behind it

  bool empty() const { return tables.empty() && range_deletes.empty() && !has_kept; }
  /// The only table that can have the key; null: none.
  const TableRef* TableOf(std::string_view key) const;
};

struct Version {
  std::vector<Run> runs;  ///< not empty, in the order in which versions of a key shadow one another
  size_t fresh = 0;       ///< so many of them are fresh: they come first
  /// Of the process's memory: what is known of these runs, here and in the manifest's state.
  uint64_t memory_bytes = 0;

  /// Not what is kept behind it. Empty: or it is not there.
  const Run& run(RunPlace place) const;
  /// Whether nothing is behind the growing run of this level, in the order in which versions of a key shadow one another.
  bool NothingBelow(uint8_t level) const;
  /// That of the state. Files of `before` are taken over, and those that it does not need any more become obsolete.
  static std::shared_ptr<const Version> Of(const StoreState& state, const Version* before,
                                           storage::Storage* storage,
                                           const std::shared_ptr<SegmentRemover>& remover);
};

/// What a reader looks at: all that was written and not deleted.
struct ReadView : std::enable_shared_from_this<ReadView> {
  /// Lives as long as any view that is as old as its own, or older: what nobody may free before hangs on it.
  struct Token {
    ~Token();
    std::shared_ptr<Token> next;
    std::vector<std::shared_ptr<void>> held;
  };
  std::shared_ptr<Memtable> active;
  std::shared_ptr<Memtable> flushing;  ///< null: none
  /// Of the active memtable. What has an earlier sequence, and is not in tables yet, is in the flushing one.
  Sequence active_first = 1;
  std::shared_ptr<const Version> version;
  uint64_t flushes = 0;  ///< how many memtables have become tables
  std::shared_ptr<Token> token = std::make_shared<Token>();
};

}  // namespace farleaf::index::lsm
