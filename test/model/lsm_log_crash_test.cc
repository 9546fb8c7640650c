// Both logs on a disk that crashes at any I/O: what was synced is there, as a prefix, and no byte of it is wrong.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "dsm/base/random.h"
#include "index/lsm/log_reader.h"
#include "index/storage/sim_storage.h"
#include "test/support/log_fixture.h"
#include "test/support/test_scale.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Task;
using dsm::Worker;
using Positions = LogGroup::Positions;

struct Commit {
  std::vector<Change> changes;  // views of `bytes`, but for pointers' values
  std::vector<std::string> bytes;
  std::vector<std::string> values;  // of the changes that are pointers, else empty
};

/// A store's life with its disk, from crash to crash. What a manifest would hold, `source`, `flushed` and `kept`, is never lost.
class LogLives {
 public:
  explicit LogLives(uint64_t seed) : random_(seed) {}

  void Run(int lives) {
    for (int life = 0; life < lives && !::testing::Test::HasFailure(); ++life) Live(life);
  }
  uint64_t acknowledged() const { return acknowledgements_; }
  uint64_t replayed() const { return replayed_; }

 private:
  void Live(int life) {
    SCOPED_TRACE("life " + std::to_string(life));
    storage_ = std::make_unique<storage::SimStorage>(
        storage::SimStorageOptions{.seed = random_.Next(), .clock = &clock_}, std::move(image_));
    auto worker = workers_.New(&clock_);
    worker->Spawn(Recover(*worker));
    RunUntilStopped(*worker);
    if (::testing::Test::HasFailure()) return;
    if (!recovered_) {
      image_ = storage_->Crash();
      return;
    }
    const LogsOptions options{
        .buffers_max = 2,
        .next_sequence = last_ + 1,
        .durability = random_.OneIn(2) ? Durability::kSynced : Durability::kLocal};
    logs_.emplace(storage_.get(), &source_, &workers_.epochs, options);
    storage_->StopAfter(1 + random_.Below(random_.OneIn(3) ? 10 : 150));
    if (random_.OneIn(3)) storage_->FailIo(1 + random_.Below(40));
    big_ = random_.OneIn(3);
    for (uint64_t n = 1 + random_.Below(6); n > 0; --n) worker->Spawn(Write(*worker));
    worker->Spawn(Tend(*worker));
    RunUntilStopped(*worker);
    image_ = storage_->Crash();
    worker->Abandon();
    logs_->group.Abandon();
    logs_.reset();
  }

  /// Until nothing more is to be done, or the disk has stopped.
  void RunUntilStopped(Worker& worker) {
    worker.GoOnline();
    while (worker.spawned() > 0 && !storage_->stopped()) {
      if (worker.RunOnce(Worker::Idle::kReturn)) continue;
      const uint64_t due_ns = worker.NextDueNs();
      ASSERT_NE(due_ns, UINT64_MAX) << "nothing goes on";
      if (due_ns > clock_.NowNs()) clock_.AdvanceNs(due_ns - clock_.NowNs());
    }
    worker.GoOffline();
  }

  Task<void> Recover(Worker& worker) {
    replaying_ = flushed_;
    ReplayOptions options{7, source_.granted(LogKind::kRecovery), flushed_};
    std::function<Status(CommitReader)> check = [this](CommitReader commit) {
      return Check(commit);
    };
    Result<ReplayReport> report =
        co_await Replay(worker, *storage_, std::move(options), std::move(check));
    EXPECT_TRUE(report.ok()) << report.status();
    if (!report.ok()) co_return;
    last_ = report->last;
    EXPECT_EQ(last_, replaying_);
    EXPECT_GE(last_, acknowledged_) << "what was acknowledged is lost";
    EXPECT_LE(last_, history_.empty() ? 0 : history_.rbegin()->first);
    history_.erase(history_.upper_bound(last_), history_.end());
    acknowledged_ = last_;  // it was synced
    kept_ = report->kept;
    replayed_ += report->commits;
    // Or it crashes before the edit of the manifest, and so before anything is appended.
    recovered_ = !random_.OneIn(6);
    if (recovered_) source_.Drop(LogKind::kRecovery, report->unused);
    for (auto& [sequence, commit] : history_) {
      for (size_t i = 0; i < commit.changes.size(); ++i) {
        const Change& change = commit.changes[i];
        if (change.kind != ChangeKind::kPutPointer || !random_.OneIn(4)) continue;
        Result<std::string> value =
            co_await ReadValue(worker, *storage_, 7, change.pointer, change.key);
        EXPECT_TRUE(value.ok()) << value.status() << " of commit " << sequence;
        EXPECT_TRUE(!value.ok() || *value == commit.values[i]) << sequence;
      }
    }
  }

  Status Check(CommitReader commit) {
    EXPECT_EQ(commit.first(), replaying_ + 1);
    const auto found = history_.find(commit.last());
    EXPECT_TRUE(found != history_.end()) << commit.first() << " was never written";
    if (found == history_.end()) return Status::Corruption("never written");
    EXPECT_EQ(found->second.changes.size(), commit.changes());
    Change change;
    for (size_t i = 0; commit.Next(&change); ++i) {
      const Change& written = found->second.changes[i];
      EXPECT_TRUE(change.kind == written.kind && change.key == written.key &&
                  change.end == written.end && change.value == written.value &&
                  change.pointer == written.pointer && change.expires_ms == written.expires_ms)
          << "commit " << commit.first() << " change " << i;
    }
    replaying_ = commit.last();
    return Status::Ok();
  }

  std::string Bytes(uint64_t bytes_max) {
    const std::string piece = std::to_string(random_.Next());
    std::string bytes;
    for (uint64_t n = random_.Below(bytes_max); bytes.size() < n;) bytes += piece;
    return bytes;
  }

  Task<void> Write(Worker& worker) {
    for (;;) {
      Commit commit;
      Positions positions{};
      for (uint64_t n = 1 + random_.Below(3); n > 0; --n) {
        commit.bytes.push_back("key" + std::to_string(random_.Below(1000)));
        commit.bytes.push_back(Bytes(big_ ? 200'000 : 300));
      }
      Status status;
      for (size_t i = 0; i < commit.bytes.size() && status.ok(); i += 2) {
        Change change{.kind = static_cast<ChangeKind>(random_.Below(4)), .key = commit.bytes[i]};
        if (change.kind == ChangeKind::kPut) change.value = commit.bytes[i + 1];
        if (change.kind == ChangeKind::kDeleteRange) {
          change.end = commit.bytes[i + 1] = commit.bytes[i] + "x";
        }
        commit.values.emplace_back();
        if (change.kind == ChangeKind::kPutPointer) {
          commit.values.back() = commit.bytes[i + 1];
          change.expires_ms = random_.Below(3);
          status = co_await logs_->AppendValue(worker, commit.bytes[i], commit.bytes[i + 1],
                                               &change.pointer, &positions);
        }
        commit.changes.push_back(change);
      }
      CommitWriter writer;
      Sequence first = 0;
      if (status.ok()) {
        for (const Change& change : commit.changes) writer.Add(change);
      }
      if (status.ok()) status = co_await logs_->AppendCommit(worker, writer, &first, &positions);
      if (!status.ok()) {
        if (!logs_->recovery.failure().ok() || !logs_->values.failure().ok()) co_return;
        co_await worker.Sleep(kNsPerMs);
        continue;
      }
      const Sequence last = first + commit.changes.size() - 1;
      history_[last] = std::move(commit);
      if (random_.OneIn(10)) co_await worker.Sleep(random_.Below(kNsPerMs));
      if (random_.OneIn(2)) continue;
      status = co_await logs_->group.Sync(worker, positions);
      if (status.ok()) {
        acknowledged_ = std::max(acknowledged_, last);
        ++acknowledgements_;
      }
    }
  }

  /// Now and then what a store does in the background: full segments are written, what is flushed is trimmed.
  Task<void> Tend(Worker& worker) {
    for (;;) {
      co_await worker.Sleep(1 + random_.Below(2 * kNsPerMs));
      Status status;
      if (random_.OneIn(2)) {
        status = co_await logs_->group.Tend(worker);
        continue;
      }
      if (random_.OneIn(2)) {
        status = co_await logs_->group.Flush(worker);
        continue;
      }
      Sequence last = 0;
      logs_->recovery.WithLastSequence([&](Sequence sequence) { last = sequence; });
      Positions positions = logs_->group.ends();
      positions[0] = 0;  // a table has the commits, it needs their values
      status = co_await logs_->group.Sync(worker, positions);
      if (!status.ok()) continue;
      acknowledged_ = std::max(acknowledged_, last);
      flushed_ = last;
      source_.Drop(LogKind::kRecovery, kept_);
      for (const SegmentId id : kept_) EXPECT_TRUE(storage_->Remove(id).ok());
      kept_.clear();
      std::vector<SegmentId> trimmed = co_await logs_->group.FlushedSegments(worker, flushed_);
      source_.Drop(LogKind::kRecovery, trimmed);
      co_await logs_->group.Trim(worker, trimmed);
      for (const SegmentId id : trimmed) EXPECT_TRUE(storage_->Remove(id).ok());
    }
  }

  using LogsOptions = test::LogsOptions;
  Random random_;
  ManualClock clock_;
  test::BareWorkers workers_;
  test::CountingSource source_;
  storage::SimImage image_;
  std::unique_ptr<storage::SimStorage> storage_;
  std::optional<test::LogsUnderTest> logs_;
  std::map<Sequence, Commit> history_;  // by the last sequence of each
  std::vector<SegmentId> kept_;         // of earlier lives
  Sequence flushed_ = 0, last_ = 0, acknowledged_ = 0, replaying_ = 0;
  uint64_t acknowledgements_ = 0, replayed_ = 0;
  bool big_ = false, recovered_ = false;
};

TEST(LsmLogCrashTest, WhatWasSyncedIsThereAsAPrefix) {
  const uint64_t seeds = test::Amount{20, 300, 3000};
  uint64_t acknowledged = 0, replayed = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    LogLives lives(seed);
    lives.Run(6);
    acknowledged += lives.acknowledged();
    replayed += lives.replayed();
    if (HasFailure()) break;
  }
  std::printf("%lu seeds: %lu acknowledged, %lu replayed\n", seeds, acknowledged, replayed);
  EXPECT_GT(acknowledged, seeds * 10);
  EXPECT_GT(replayed, seeds * 10);
}

}  // namespace
}  // namespace farleaf::index::lsm
