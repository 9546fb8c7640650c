// Appending to logs, writing, syncing and failing.
#include "test/support/lsm_log_test.h"
#include "index/lsm/open_values.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Task;
using dsm::Worker;
using Positions = LogGroup::Positions;
using Strings = std::vector<std::string>;

TEST_F(LsmLogTest, ASyncedCommitIsOneWriteOfABlockAndOneSync) {
  ASSERT_TRUE(Append("a", "1").ok());
  const auto before = storage.counts();
  ASSERT_TRUE(Sync().ok());
  const auto after = storage.counts();
  EXPECT_EQ(after.writes - before.writes, 1u);
  EXPECT_EQ(after.bytes_written - before.bytes_written, 4096u);
  EXPECT_EQ(after.syncs - before.syncs, 1u);
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(storage.counts().syncs, after.syncs) << "there is nothing new";
}

TEST_F(LsmLogTest, ACommitWithAValueIsOneWriteAndOneSyncOfEachLog) {
  ASSERT_TRUE(AppendValue("k", std::string(5000, 'v')).ok());
  ASSERT_TRUE(AppendPointer("k").ok());
  const auto before = storage.counts();
  ASSERT_TRUE(Sync().ok());
  const auto after = storage.counts();
  EXPECT_EQ(after.writes - before.writes, 2u);
  EXPECT_EQ(after.bytes_written - before.bytes_written, 4096u + 8192u);
  EXPECT_EQ(after.syncs - before.syncs, 2u);
  EXPECT_EQ(logs->group.counts().rounds, 1u);
}

TEST_F(LsmLogTest, TheLastBlockIsWrittenAgainWithMoreInIt) {
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Append("key" + std::to_string(i), std::string(100, 'v')).ok());
    ASSERT_TRUE(Sync().ok());
  }
  ASSERT_TRUE(ReplayAll().ok());
  EXPECT_EQ(replayed.size(), 200u);
}

TEST_F(LsmLogTest, AValueIsFoundInMemoryAndOnDisk) {
  ASSERT_TRUE(AppendValue("key", "value").ok());
  {
    worker->GoOnline();
    const auto found = logs->values.Find(pointer);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->key, "key");
    EXPECT_EQ(found->value, "value");
    worker->GoOffline();
  }
  ASSERT_TRUE(Flush().ok());
  EXPECT_EQ(ReadBack("key"), "value");
  EXPECT_EQ(ReadBack("kex"), "corruption: segment 1: no record of the key's at 25");
  storage.bytes(pointer.segment)[pointer.offset + 12] ^= std::byte{1};
  EXPECT_EQ(ReadBack("key"), "corruption: segment 1: no record of the key's at 25");
}

TEST_F(LsmLogTest, SegmentsFollowOneAnother) {
  const std::string value(100'000, 'v');
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Append(std::to_string(i), value).ok());
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(source.granted(LogKind::kRecovery).size(), 5u + 1u)
      << "20 fit in one, and one is ready";
  auto report = ReplayAll();
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(replayed.size(), 100u);
  EXPECT_EQ(replayed[99], "100:99=" + value + ";");
}

TEST_F(LsmLogTest, FullSegmentsLeaveMemoryWhenTheyAreWritten) {
  std::vector<ValuePointer> pointers;
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(AppendValue(std::to_string(i), std::string(100'000, 'v')).ok());
    pointers.push_back(pointer);
  }
  ASSERT_TRUE(worker->Run(logs->group.WriteFull(*worker)).ok());
  worker->GoOnline();
  EXPECT_FALSE(logs->values.Find(pointers[0]));
  EXPECT_TRUE(logs->values.Find(pointers[59]));
  worker->GoOffline();
  pointer = pointers[0];
  EXPECT_EQ(ReadBack("0"), std::string(100'000, 'v'));
}

TEST_F(LsmLogTest, ASyncMayEndBehindFullSegmentsThatLeftMemoryEarlier) {
  Open({.durability = Durability::kLocal});
  Positions sealed{};
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(AppendValue(std::to_string(i), std::string(100'000, 'v')).ok());
    if (pointer.segment == source.granted(LogKind::kValues)[0]) sealed = positions;
  }
  ASSERT_TRUE(worker->Run(logs->group.WriteFull(*worker)).ok());
  EXPECT_TRUE(worker->Run(logs->group.Sync(*worker, sealed)).ok());
  EXPECT_TRUE(worker->Run(logs->group.Sync(*worker, sealed)).ok());
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(storage.counts().syncs, 3u) << "of each segment once";
}

// Flushes ask for values: what is in the recovery log by then is soon gone.
TEST_F(LsmLogTest, ASyncOfValuesLeavesCommitsAlone) {
  for (const Durability durability : {Durability::kLocal, Durability::kSynced}) {
    Open({.durability = durability});
    const uint64_t before = storage.counts().syncs;
    ASSERT_TRUE(AppendValue("k", std::string(1000, 'v')).ok());
    ASSERT_TRUE(AppendPointer("k").ok());
    Positions values = positions;
    values[0] = 0;
    ASSERT_TRUE(worker->Run(logs->group.Sync(*worker, values)).ok());
    EXPECT_EQ(storage.counts().syncs - before, 1u);
    EXPECT_EQ(logs->recovery.durable_sequence(), 0u);
    ASSERT_TRUE(worker->Run(logs->group.Sync(*worker, positions)).ok());
    EXPECT_EQ(storage.counts().syncs - before, 2u);
    EXPECT_EQ(logs->recovery.durable_sequence(), 1u);
  }
}

// What a flush needs of the logs are values: the recovery log's full segments, which nobody may need any longer by then,
// are left to those who wait for commits.
TEST_F(LsmLogTest, ASyncOfValuesLeavesFullSegmentsOfCommitsAlone) {
  Open({.durability = Durability::kLocal});
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(Append(std::to_string(i), std::string(100'000, 'v')).ok());
  }
  ASSERT_TRUE(AppendValue("k", std::string(1000, 'v')).ok());
  ASSERT_TRUE(worker->Run(logs->group.WriteFull(*worker)).ok());
  ASSERT_EQ(storage.counts().syncs, 0u);
  Positions values = positions;
  values[0] = 0;
  ASSERT_TRUE(worker->Run(logs->group.Sync(*worker, values)).ok());
  EXPECT_EQ(storage.counts().syncs, 1u) << "of the value log's tail";
  EXPECT_EQ(logs->recovery.durable_sequence(), 0u);
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(storage.counts().syncs, 4u) << "and two full segments and the tail";
  EXPECT_EQ(logs->recovery.durable_sequence(), 50u);
}

// Each takes a file descriptor while it goes on.
TEST_F(LsmLogTest, FullSegmentsAreSyncedSoManyAtOnce) {
  Open({.durability = Durability::kLocal});
  for (int i = 0; i < 150; ++i) {
    ASSERT_TRUE(AppendValue(std::to_string(i), std::string(1'900'000, 'v')).ok());
    ASSERT_TRUE(worker->Run(logs->group.WriteFull(*worker)).ok());
  }
  ASSERT_EQ(storage.counts().syncs, 0u);
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(storage.counts().syncs, 150u);
  EXPECT_EQ(storage.syncs_of_a_run_max(), 64u);
}

// Its commits are in tables, which no manifest names yet: a recovery needs it to get to what is behind it.
TEST_F(LsmLogTest, AFlushedSegmentIsSyncedAsLongAsItIsNotTrimmed) {
  Open({.durability = Durability::kLocal});
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(Append(std::to_string(i), std::string(100'000, 'v')).ok());
  }
  ASSERT_TRUE(worker->Run(logs->group.WriteFull(*worker)).ok());
  const auto flushed = worker->Run(logs->group.FlushedSegments(*worker, 20));
  ASSERT_EQ(flushed.size(), 1u);
  EXPECT_EQ(logs->recovery.durable_sequence(), 0u);
  ASSERT_TRUE(Sync().ok());
  EXPECT_EQ(storage.counts().syncs, 2u) << "its own, and that of the tail";
  EXPECT_EQ(logs->recovery.durable_sequence(), 30u);
  worker->Run(logs->group.Trim(*worker, flushed));
  EXPECT_TRUE(worker->Run(logs->group.FlushedSegments(*worker, 20)).empty());
}

Task<void> NoteEnd(Task<Status> task, std::optional<Status>* end) {
  Status status = co_await std::move(task);
  *end = std::move(status);
}

TEST_F(LsmLogTest, WhileMuchIsSyncedOthersWrite) {
  Open({.durability = Durability::kLocal});
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(AppendValue("k", std::string(900'000, 'v')).ok());
    ASSERT_TRUE(Flush().ok());
  }
  ASSERT_TRUE(Append("a", "1").ok());
  storage.delay_ns = kNsPerMs;
  std::optional<Status> synced, flushed;
  worker->Spawn(NoteEnd(logs->group.Sync(*worker, positions), &synced));
  worker->Spawn(NoteEnd(logs->group.Flush(*worker), &flushed));
  worker->GoOnline();
  while (!flushed) worker->RunOnce(dsm::Worker::Idle::kReturn);
  EXPECT_TRUE(flushed->ok()) << *flushed;
  EXPECT_FALSE(synced) << "its round comes behind its Syncs of what is full";
  while (!synced) worker->RunOnce(dsm::Worker::Idle::kReturn);
  EXPECT_TRUE(synced->ok()) << *synced;
  worker->GoOffline();
  EXPECT_EQ(logs->values.synced_end(), positions[1]);
}

TEST_F(LsmLogTest, AppendSaysWhenThereIsNoRoom) {
  Open({.buffers_max = 2});
  CommitWriter commit;
  commit.Add({.kind = ChangeKind::kPut, .key = "k", .value = std::string(1'000'000, 'v')});
  Log::Appended appended;
  const auto append = [&] {
    return logs->recovery.AppendCommit(commit.payload(), 1, &appended, [](Sequence) {});
  };
  EXPECT_EQ(append(), Log::Outcome::kNoRoom) << "no segment was taken yet";
  ASSERT_TRUE(worker->Run(logs->recovery.Prepare(*worker, {})).ok());
  int appends = 0;
  while (append() == Log::Outcome::kAppended) {
    ++appends;
    ASSERT_TRUE(worker->Run(logs->recovery.Prepare(*worker, {})).ok());
  }
  EXPECT_EQ(appends, 3 * 2) << "two full segments wait, and one is the tail";
  ASSERT_TRUE(worker->Run(logs->group.Room(*worker, logs->recovery, {})).ok());
  EXPECT_EQ(append(), Log::Outcome::kAppended);
  ASSERT_TRUE(Sync().ok());
}

TEST_F(LsmLogTest, AWriteThatFailsAcknowledgesNothingAndIsDoneAgain) {
  ASSERT_TRUE(Append("a", "1").ok());
  bool full = true;
  storage.fail = [&](const storage::Io& io) {
    return full && io.kind == storage::IoKind::kWrite
               ? Status::ResourceExhausted("segment 1: no space left on device")
               : Status::Ok();
  };
  EXPECT_EQ(Sync().ToString(), "resource exhausted: segment 1: no space left on device");
  ASSERT_TRUE(Append("b", "2").ok());
  EXPECT_FALSE(Sync().ok());
  full = false;
  EXPECT_TRUE(Sync().ok());
  ASSERT_TRUE(ReplayAll().ok());
  EXPECT_EQ(replayed, (Strings{"1:a=1;", "2:b=2;"}));
}

// The full segment was durable already: it leaves memory in the round that fails, and nothing of it is left to be written.
TEST_F(LsmLogTest, AFullSegmentIsForgottenInARoundThatFails) {
  Open({.durability = Durability::kLocal});
  const std::string value(1 << 20, 'v');
  ASSERT_TRUE(AppendValue("a", value).ok());
  ASSERT_TRUE(Sync().ok());
  const SegmentId full = pointer.segment;
  ASSERT_TRUE(AppendValue("b", value).ok());
  ASSERT_NE(pointer.segment, full);
  bool fails = true;
  storage.fail = [&](const storage::Io& io) {
    return fails && io.kind == storage::IoKind::kWrite ? Status::IoError("a write") : Status::Ok();
  };
  EXPECT_FALSE(Sync().ok());
  const Status written = worker->Run(logs->group.WriteFull(*worker));
  EXPECT_TRUE(written.ok()) << written;
  fails = false;
  EXPECT_TRUE(Sync().ok());
  EXPECT_EQ(ReadBack("b"), value);
}

TEST_F(LsmLogTest, AFullDeviceStopsWritersUntilThereIsSpace) {
  Open({.buffers_max = 2});
  ASSERT_TRUE(Append("a", "1").ok());
  bool full = true;
  storage.fail = [&](const storage::Io& io) {
    return full && io.kind == storage::IoKind::kWrite ? Status::ResourceExhausted("full")
                                                      : Status::Ok();
  };
  const std::string value(1'000'000, 'v');
  int appended = 0;
  while (Append("k", value).ok()) ASSERT_LT(++appended, 10);
  EXPECT_EQ(appended, 6);
  full = false;
  ASSERT_TRUE(Append("k", value).ok());
  ASSERT_TRUE(Sync().ok());
  auto report = ReplayAll();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->last, 8u);
}

TEST_F(LsmLogTest, WhatASyncFailedForIsWrittenAgain) {
  ASSERT_TRUE(Append("a", "1").ok());
  bool fails = true;
  storage.fail = [&](const storage::Io& io) {
    if (!fails || io.kind != storage::IoKind::kSync) return Status::Ok();
    storage.bytes(io.segment).assign(storage::kSegmentBytes, std::byte{0});  // dropped
    return Status::IoError("segment 1: fdatasync");
  };
  EXPECT_FALSE(Sync().ok());
  fails = false;
  EXPECT_TRUE(Sync().ok());
  ASSERT_TRUE(ReplayAll().ok());
  EXPECT_EQ(replayed, (Strings{"1:a=1;"}));
}

TEST_F(LsmLogTest, ALogThatCannotWriteAgainHasFailedForGood) {
  Open({.durability = Durability::kLocal});
  const std::string value(1'000'000, 'v');
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Append("k", value).ok());
  ASSERT_TRUE(worker->Run(logs->group.WriteFull(*worker)).ok());
  bool fails = true;
  storage.fail = [&](const storage::Io& io) {
    return fails && io.kind == storage::IoKind::kSync ? Status::IoError("segment 1: fdatasync")
                                                      : Status::Ok();
  };
  EXPECT_FALSE(Sync().ok());
  fails = false;
  const std::string why =
      "i/o error: log failed for good: what was written to segment 1 may be lost: segment 1: "
      "fdatasync";
  EXPECT_EQ(Sync().ToString(), why);
  EXPECT_EQ(Append("k", "v").ToString(), why);
}

TEST_F(LsmLogTest, SyncedLogsKeepWhatWasWrittenUntilItIsSynced) {
  Open({.durability = Durability::kSynced});
  const std::string value(1'000'000, 'v');
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Append("k", value).ok());
  ASSERT_TRUE(Flush().ok());
  bool fails = true;
  storage.fail = [&](const storage::Io& io) {
    return fails && io.kind == storage::IoKind::kSync ? Status::IoError("fdatasync") : Status::Ok();
  };
  EXPECT_FALSE(Sync().ok());
  fails = false;
  const Status synced = Sync();
  EXPECT_TRUE(synced.ok()) << synced;
  const auto report = ReplayAll();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->commits, 5u);
}

TEST_F(LsmLogTest, ValuesAreOpenUntilTheirCommitsAreInAMemtable) {
  OpenValues open{SegmentId{1}};
  const Log& values = logs->values;
  EXPECT_EQ(open.ClosedBelow(values), SegmentId{1}) << "nothing was appended yet";
  const std::string value(1'000'000, 'v');
  ASSERT_TRUE(AppendValue("k", value).ok());
  const SegmentId first_tail = pointer.segment;
  OpenValues::Use early, late;
  early.Begin(&open, values, 1);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(AppendValue("k", value).ok());
  const SegmentId second_tail = pointer.segment;
  ASSERT_NE(first_tail, second_tail);
  late.Begin(&open, values, 2);
  EXPECT_EQ(open.ClosedBelow(values), first_tail);
  early.End();
  EXPECT_EQ(open.ClosedBelow(values), second_tail);
  late.End();
  EXPECT_EQ(open.ClosedBelow(values), second_tail) << "the tail is never closed";
}

Task<void> AppendAndSync(test::LogsUnderTest& logs, Worker& worker, int* done) {
  CommitWriter commit;
  commit.Add({.kind = ChangeKind::kPut, .key = "k", .value = "v"});
  Sequence first = 0;
  Positions positions{};
  Status status = co_await logs.AppendCommit(worker, commit, &first, &positions);
  EXPECT_TRUE(status.ok()) << status;
  co_await worker.Sleep(kNsPerMs);
  status = co_await logs.group.Sync(worker, positions);
  EXPECT_TRUE(status.ok()) << status;
  ++*done;
}

TEST_F(LsmLogTest, ThoseWhoCameMeanwhileShareASync) {
  int done = 0;
  for (int i = 0; i < 64; ++i) worker->Spawn(AppendAndSync(*logs, *worker, &done));
  worker->RunUntilIdle();
  EXPECT_EQ(done, 64);
  EXPECT_EQ(logs->group.counts().synced_rounds, 1u) << "all had appended before the first cut";
  ASSERT_TRUE(ReplayAll().ok());
  EXPECT_EQ(replayed.size(), 64u);
}

}  // namespace
}  // namespace farleaf::index::lsm
