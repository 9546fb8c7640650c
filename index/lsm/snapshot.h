// Snapshot: what a store held at one moment, to be read for as long as a copy of it, or an iterator on it, is held.
//
// It sees the commits up to its moment and none behind it, and entries that expired later as if they had not. It is kept in three
// places: merges keep the versions that it sees (merge_rule.h), value collection keeps the files of segments that it empties
// meanwhile (ReadView::Token), and what expires is dropped only when it had at every open snapshot's moment. So what it costs is
// space on the device, and none of memory. It ends with the process.
//
// Thread rule: Snapshot is a value, and may be let go on any thread, also after the store is gone. SnapshotIterator: one owner.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dsm/base/clock.h"
#include "index/lsm/snapshots.h"
#include "index/lsm/version.h"
#include "index/range_index.h"

namespace farleaf::index::lsm {

class LsmStore;

/// Stands still.
class FixedClock final : public Clock {
 public:
  explicit FixedClock(uint64_t now_ns) : now_ns_(now_ns) {}
  uint64_t NowNs() const override { return now_ns_; }

 private:
  const uint64_t now_ns_;
};

class Snapshot {
 public:
  /// Of nothing, until one is assigned.
  Snapshot() = default;

  bool holds() const { return state_ != nullptr; }
  // REQUIRES, all below: holds().
  /// Of the last change that it sees.
  Sequence sequence() const { return state_->sequence; }
  uint64_t taken_ms() const { return state_->clock.NowNs() / kNsPerMs; }  ///< since 1970

 private:
  friend class LsmStore;
  friend class SnapshotIterator;
  struct State {
    State(std::shared_ptr<OpenSnapshots> snapshots, Sequence at, uint64_t now_ns)
        : open(std::move(snapshots)),
          sequence(at),
          clock(now_ns),
          handle(open->Add({at, now_ns / kNsPerMs})) {}
    State(const State&) = delete;
    ~State() { open->Remove(handle); }

    const std::shared_ptr<OpenSnapshots> open;
    const Sequence sequence;
    const FixedClock clock;
    const OpenSnapshots::Handle handle;
    /// Of the view at its moment: segments of values that are collected later hang on it.
    std::shared_ptr<ReadView::Token> token;
  };
  explicit Snapshot(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

/// Goes over the keys that a snapshot sees, in order or against it. It reads some rows ahead, and holds nothing but these and the
/// snapshot: it may be kept as long as one likes.
class SnapshotIterator {
 public:
  /// REQUIRES: the snapshot holds, and is one of the store's. The store outlives the iterator. It stands as after SeekTo("").
  SnapshotIterator(LsmStore* store, Snapshot snapshot)
      : store_(store), snapshot_(std::move(snapshot)) {}

  /// Before the first key that is not less than `start`. Next goes forward from there.
  void SeekTo(std::string_view start);
  /// Behind the last key that is less than `end`, or the last of all. Next goes backward from there.
  void SeekBefore(std::optional<std::string_view> end);

  /// Whether there is another key; row() is it then, and stays so until the next call of any function. A failure (also of the deadline)
  /// loses nothing: the next call tries again.
  Task<Result<bool>> Next(OpContext& op);
  const KeyValue& row() const { return rows_[next_ - 1]; }

 private:
  /// It may not be asked for more.
  static constexpr uint64_t kRowsFirst = 8;
  Task<Status> Fill(OpContext& op);
  void Seek(ScanDirection direction);

  LsmStore* const store_;
  const Snapshot snapshot_;
  ScanDirection direction_ = ScanDirection::kForward;
  std::string start_;               // forward: of what was not read yet
  std::optional<std::string> end_;  // backward: likewise
  std::vector<KeyValue> rows_;
  size_t next_ = 0;                 // rows in front of it were shown
  uint64_t together_ = kRowsFirst;  // rows that are read at a time
  bool ended_ = false;              // nothing is behind rows_
};

}  // namespace farleaf::index::lsm
