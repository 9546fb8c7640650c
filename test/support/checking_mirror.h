// CheckingMirror: a Mirror in memory that keeps the bytes of the logs, and checks what a store promises to a mirror (mirror.h, 1 to 5).
//
// Thread rule: thread-safe; `set_epoch` before anything is appended.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "index/lsm/commit_record.h"
#include "index/lsm/log_record.h"
#include "index/lsm/mirror.h"

namespace farleaf::test {

class CheckingMirror final : public index::lsm::Mirror {
 public:
  using LogKind = index::lsm::LogKind;
  using MirrorPiece = index::lsm::MirrorPiece;
  using SegmentId = index::storage::SegmentId;
  using SyncReach = index::lsm::SyncReach;

  struct Segment {
    LogKind log = LogKind::kRecovery;
    std::string bytes;                          ///< sent
    uint64_t landed = 0;                        ///< [0, landed) is there
    std::map<uint32_t, uint32_t> landed_ahead;  ///< from, to
    uint64_t synced = 0;
    bool sealed = false;
  };
  struct Counts {
    uint64_t appends = 0, seals = 0, syncs = 0, commits = 0, table_bytes = 0;
  };

  /// Of whose disk dropped segments must not go before Commit has ended.
  explicit CheckingMirror(index::storage::Storage* storage) : storage_(storage) {}
  void set_epoch(uint64_t epoch) { epoch_ = epoch; }

  dsm::Task<Status> Open(dsm::Worker& worker, LogKind log, SegmentId segment) override {
    co_await worker.Sleep(0);
    std::lock_guard lock(mutex_);
    EXPECT_TRUE(segments_.emplace(segment, Segment{.log = log}).second) << "opened again";
    co_return Status::Ok();
  }
  dsm::Task<Status> PrepareAppend(dsm::Worker& worker, std::span<const MirrorPiece>) override {
    EXPECT_FALSE(preparing_.exchange(true)) << "two at once";
    co_await worker.Sleep(0);
    preparing_ = false;
    co_return Status::Ok();
  }
  dsm::Task<Status> Append(dsm::Worker& worker, std::span<const MirrorPiece> pieces) override {
    const dsm::Worker* none = nullptr;
    const bool first = sending_.compare_exchange_strong(none, &worker);
    EXPECT_TRUE(first || none == &worker) << "Appends of two workers at once";
    ++on_their_way_;
    for (const MirrorPiece& piece : pieces) Take(piece);
    const bool fails = ++counts_.appends == failing_append_;
    // So that one may overtake another.
    co_await worker.Sleep(fails ? 20 * kNsPerMs : worker.random().Below(2'000));
    if (!fails) Land(pieces);
    if (--on_their_way_ == 0) sending_ = nullptr;
    co_return fails ? Status::Fenced("another one serves") : Status::Ok();
  }
  /// The so manyth Append fails, long after it was sent.
  void set_failing_append(uint64_t number) { failing_append_ = number; }
  dsm::Task<Status> Seal(dsm::Worker& worker, LogKind log, SegmentId id, uint32_t used) override {
    co_await worker.Sleep(0);
    std::lock_guard lock(mutex_);
    Segment& segment = segments_.at(id);
    EXPECT_EQ(segment.log, log);
    EXPECT_EQ(segment.bytes.size(), used);
    EXPECT_EQ(segment.landed, used) << "sealed before it was all there";
    EXPECT_FALSE(segment.sealed) << "sealed twice";
    segment.sealed = true;
    ++counts_.seals;
    co_return Status::Ok();
  }
  dsm::Task<Status> Sync(dsm::Worker& worker, SyncReach reach) override {
    {
      std::lock_guard lock(mutex_);
      for (auto& [id, segment] : segments_) {
        const bool reached = reach == SyncReach::kBoth || segment.log == LogKind::kValues;
        if (reached) segment.synced = segment.landed;
      }
      ++counts_.syncs;
    }
    co_await worker.Sleep(0);
    co_return Status::Ok();
  }
  dsm::Task<Status> WriteTable(dsm::Worker&, SegmentId segment, uint32_t,
                               std::span<const std::byte> bytes) override {
    std::lock_guard lock(mutex_);
    counts_.table_bytes += bytes.size();
    EXPECT_FALSE(dropped_.contains(segment)) << "written behind its drop";
    tables_.insert(segment);
    co_return Status::Ok();
  }
  dsm::Task<Status> DropTables(dsm::Worker& worker, std::span<const SegmentId> segments) override {
    co_await worker.Sleep(0);
    std::lock_guard lock(mutex_);
    for (const SegmentId segment : segments) {
      tables_.erase(segment);
      dropped_.insert(segment);
    }
    co_return Status::Ok();
  }
  bool has_copies() const override { return has_copies_; }
  /// Whether it counts as somebody who survives this process.
  void set_has_copies(bool has_copies) { has_copies_ = has_copies; }
  Status EnoughCopies() const override { return Status::Ok(); }
  Status MayAnswer() const override {
    if (looks_left_ == 0) return Status::Unavailable("another one may serve");
    if (looks_left_ > 0) --looks_left_;
    return Status::Ok();
  }
  /// It may answer so many times more; below 0: always.
  void set_looks_left(int looks) { looks_left_ = looks; }
  dsm::Task<Status> Commit(dsm::Worker& worker, const index::lsm::StateEdit& edit) override {
    EXPECT_FALSE(committing_.exchange(true)) << "two Commits at once";
    const auto before = *storage_->List();
    co_await worker.Sleep(0);
    const auto after = *storage_->List();
    for (const auto* dropped : {&edit.recovery_dropped, &edit.values_dropped}) {
      for (const SegmentId id : *dropped) {
        EXPECT_EQ(std::ranges::count(before, id), std::ranges::count(after, id))
            << "removed before its drop has ended";
      }
    }
    std::lock_guard lock(mutex_);
    for (const auto& each : edit.added) {
      for (const SegmentId id : each.table.segments) {
        EXPECT_FALSE(dropped_.contains(id)) << "named behind its drop";
        tables_.erase(id);
      }
      for (const auto& log : each.table.dictionary) {
        EXPECT_GT(segments_.at(log.segment).synced, 0u) << "a table names what was not synced";
      }
    }
    ++counts_.commits;
    committing_ = false;
    co_return Status::Ok();
  }

  std::map<SegmentId, Segment> segments() const {
    std::lock_guard lock(mutex_);
    return segments_;
  }
  /// Of tables that were written, and neither named nor dropped.
  size_t tables_in_the_making() const {
    std::lock_guard lock(mutex_);
    return tables_.size();
  }
  bool is_in_the_making(SegmentId segment) const {
    std::lock_guard lock(mutex_);
    return tables_.contains(segment);
  }
  size_t dropped() const {
    std::lock_guard lock(mutex_);
    return dropped_.size();
  }
  Counts counts() const {
    std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  void Take(const MirrorPiece& piece) {
    std::lock_guard lock(mutex_);
    const auto found = segments_.find(piece.segment);
    ASSERT_NE(found, segments_.end()) << "appended to before Open has ended";
    Segment& segment = found->second;
    EXPECT_EQ(segment.log, piece.log);
    EXPECT_FALSE(segment.sealed) << "appended to behind its Seal";
    ASSERT_EQ(segment.bytes.size(), piece.from) << "a gap, or twice the same";
    ASSERT_GT(piece.to, piece.from);
    SegmentId& last = last_[piece.log == LogKind::kValues];
    EXPECT_LE(last, piece.segment) << "back in a segment that another one follows";
    last = piece.segment;
    segment.bytes.append(AsChars({piece.segment_bytes + piece.from, piece.to - piece.from}));
    if (piece.log == LogKind::kRecovery) CheckCommits(segment, piece);
  }
  void Land(std::span<const MirrorPiece> pieces) {
    std::lock_guard lock(mutex_);
    for (const MirrorPiece& piece : pieces) {
      Segment& segment = segments_.at(piece.segment);
      segment.landed_ahead[piece.from] = piece.to;
      for (auto at = segment.landed_ahead.begin();
           at != segment.landed_ahead.end() && at->first == segment.landed;
           at = segment.landed_ahead.begin()) {
        segment.landed = at->second;
        segment.landed_ahead.erase(at);
      }
    }
  }
  /// Pieces end with whole records, and commits name values that are here.
  void CheckCommits(const Segment& segment, const MirrorPiece& piece) {
    const uint32_t seed = index::lsm::SegmentSeed(epoch_, piece.segment);
    for (uint32_t at = piece.from; at < piece.to;) {
      const auto record = index::lsm::ParseLogRecord(seed, at, AsBytes(segment.bytes).subspan(at));
      ASSERT_TRUE(record) << "at " << at;
      at += record->bytes();
      if (record->kind != index::lsm::LogRecordKind::kCommit) continue;
      auto commit = index::lsm::CommitReader::Parse(record->payload);
      ASSERT_TRUE(commit);
      index::lsm::Change change;
      while (commit->Next(&change)) {
        if (change.kind != index::lsm::ChangeKind::kPutPointer) continue;
        const auto values = segments_.find(change.pointer.segment);
        ASSERT_NE(values, segments_.end());
        EXPECT_LE(change.pointer.offset + change.pointer.bytes, values->second.bytes.size())
            << "a commit before its value";
      }
    }
  }

  index::storage::Storage* const storage_;
  uint64_t epoch_ = 0;
  std::atomic<bool> preparing_{false}, committing_{false}, has_copies_{true};
  std::atomic<const dsm::Worker*> sending_{nullptr};  // of the Appends that are on their way
  std::atomic<int> on_their_way_{0};
  std::atomic<uint64_t> failing_append_{0};
  mutable std::atomic<int> looks_left_{-1};  // of MayAnswer, whose answer is Ok
  mutable std::mutex mutex_;                 // guards all below
  std::map<SegmentId, Segment> segments_;
  SegmentId last_[2] = {SegmentId::kNone, SegmentId::kNone};
  std::set<SegmentId> tables_, dropped_;
  Counts counts_;
};

}  // namespace farleaf::test
