// The logs and the memtable as a store uses them, by several threads at once; and the logs on a disk that crashes.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "dsm/base/random.h"
#include "index/lsm/commit_order.h"
#include "index/lsm/log_reader.h"
#include "index/lsm/memtable.h"
#include "test/support/log_fixture.h"
#include "test/support/memory_storage.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Task;
using dsm::Worker;
using test::LogsUnderTest;

/// Memtable and logs: the write path of a store, without all that is behind it.
struct Writers {
  test::MemoryStorage storage;
  test::CountingSource source;
  test::BareWorkers workers;
  LogsUnderTest logs{&storage, &source, &workers.epochs, {.buffers_max = 2}};
  CommitOrder order;
  Memtable memtable;
  std::atomic<uint64_t> commits{0}, synced{0};
};

std::string ValueOf(Sequence number, size_t bytes) {
  return std::string(bytes, static_cast<char>('a' + number % 26));
}

Task<void> Write(Writers& on, Worker& worker, uint64_t seed, int count) {
  Random random(seed);
  CommitWriter commit;
  for (int i = 0; i < count; ++i) {
    const std::string key = "key" + std::to_string(Mix64(seed * 1'000'000 + i));
    LogGroup::Positions positions{};
    Change change{.kind = ChangeKind::kPut, .key = key, .value = key};
    std::string value;
    if (random.OneIn(4)) {
      value = ValueOf(seed, 1 + random.Below(20'000));
      Status status = co_await on.logs.AppendValue(worker, key, value, &change.pointer, &positions);
      EXPECT_TRUE(status.ok()) << status;
      change.kind = ChangeKind::kPutPointer;
      change.value = {};
    }
    commit.Clear();
    commit.Add(change);
    for (;;) {
      auto outcome = Log::Outcome::kNoRoom;
      Log::Appended appended;
      {
        CommitOrder::Slot slot(&on.order, worker.random().Next());
        outcome = on.logs.recovery.AppendCommit(commit.payload(), 1, &appended,
                                                [&](Sequence first) { slot.Announce(first); });
        if (outcome == Log::Outcome::kAppended) {
          on.memtable.Insert({.key = key,
                              .sequence = appended.first,
                              .kind = value.empty() ? EntryKind::kValue : EntryKind::kPointer,
                              .value = change.value,
                              .pointer = change.pointer});
        }
      }
      positions[0] = appended.end;
      if (outcome == Log::Outcome::kAppended) break;
      Status status = co_await on.logs.group.Room(worker, on.logs.recovery, {});
      EXPECT_TRUE(status.ok()) << status;
    }
    on.commits.fetch_add(1);
    if (random.OneIn(8)) {
      Status status = co_await on.logs.group.Sync(worker, positions);
      EXPECT_TRUE(status.ok()) << status;
      on.synced.fetch_add(1);
    }
    if (!value.empty() && random.OneIn(2)) {
      const auto found = on.logs.values.Find(change.pointer);
      if (found) {
        EXPECT_EQ(found->key, key);
        EXPECT_EQ(found->value, value);
      } else {
        Result<std::string> read = co_await ReadValue(worker, on.storage, 7, change.pointer, key);
        EXPECT_TRUE(read.ok() && *read == value) << read.status();
      }
    }
  }
}

TEST(LsmLogStressTest, ThreadsAppendSyncAndReadBack) {
  constexpr int kThreads = 4, kCoroutines = 8, kEach = 150;
  Writers on;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto worker = on.workers.New();
      for (int c = 0; c < kCoroutines; ++c) {
        worker->Spawn(Write(on, *worker, static_cast<uint64_t>(t * kCoroutines + c + 1), kEach));
      }
      worker->RunUntilIdle();
    });
  }
  constexpr uint64_t kAll = uint64_t{kThreads} * kCoroutines * kEach;
  while (on.commits.load() < kAll) {  // snapshots hold each commit up to theirs
    Sequence last = 0;
    on.logs.recovery.WithLastSequence([&](Sequence sequence) { last = sequence; });
    on.order.AwaitUpTo(last);
    Memtable::Cursor cursor(&on.memtable);
    uint64_t seen = 0;
    for (cursor.SeekFirst(); cursor.valid(); cursor.Next()) seen += cursor.entry().sequence <= last;
    ASSERT_EQ(seen, last);
  }
  for (auto& thread : threads) thread.join();
  auto worker = on.workers.New();
  ASSERT_TRUE(worker->Run(on.logs.group.Flush(*worker)).ok());
  uint64_t replayed = 0;
  const auto report = worker->Run(Replay(
      *worker, on.storage, {7, on.source.granted(LogKind::kRecovery), 0}, [&](CommitReader commit) {
        Change change;
        while (commit.Next(&change)) {
          const auto found = on.memtable.Find(change.key, kSequenceMax);
          EXPECT_TRUE(found) << change.key;
          EXPECT_EQ(found->sequence, commit.first());
          EXPECT_EQ(found->pointer, change.pointer);
          ++replayed;
        }
        return Status::Ok();
      }));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(replayed, kAll);
  EXPECT_EQ(report->last, kAll);
  EXPECT_LE(on.logs.group.counts().synced_rounds, on.synced.load() + 40);
}

}  // namespace
}  // namespace farleaf::index::lsm
