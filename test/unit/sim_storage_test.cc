// The simulated disk: what a crash leaves, faults, and that a seed repeats.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "test/support/interleaved_workers.h"
#include "test/support/storage_under_test.h"

namespace farleaf::index::storage {
namespace {

using dsm::Task;
using test::InterleavedWorkers;
using RunEnd = InterleavedWorkers::RunEnd;

struct SimStorageTest : ::testing::Test {
  ManualClock clock;
  std::unique_ptr<SimStorage> disk;
  std::unique_ptr<Desk> desk;
  SimStorageTest() { Open(1, {}); }
  void Open(uint64_t seed, SimImage image) {
    desk.reset();
    disk = std::make_unique<SimStorage>(SimStorageOptions{.seed = seed, .clock = &clock},
                                        std::move(image));
    desk = std::make_unique<Desk>(disk.get(), &clock);
  }
  void CrashAndReopen(uint64_t seed) { Open(seed, disk->Crash()); }
};

TEST_F(SimStorageTest, OfABlockThatWasNotSyncedACrashLeavesTheOldTheNewOrAMixOfSectors) {
  std::set<std::string> seen;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Open(seed, {});
    ASSERT_TRUE(desk->Create(1).ok() && desk->Write(1, 5, 'a').ok() && desk->Sync(1).ok());
    ASSERT_TRUE(desk->Write(1, 5, 'b').ok());
    CrashAndReopen(seed);
    Blocks left(1);
    Io io{IoKind::kRead, SegmentId{1}, 5 * kBlockBytes, left.span()};
    ASSERT_TRUE(desk->Run({&io, 1}).ok());
    for (const std::byte byte : left.span())
      ASSERT_TRUE(byte == std::byte{'a'} || byte == std::byte{'b'});
    const int whole = left.Uniform(0);
    seen.insert(whole == -1 ? "torn" : std::string(1, static_cast<char>(whole)));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"a", "b", "torn"}));
}

TEST_F(SimStorageTest, WhatTheSyncDidNotCoverMayBeLost) {
  // The write ends behind the submission of the Sync: Ok says nothing about it.
  std::set<int> seen;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Open(seed, {});
    ASSERT_TRUE(desk->Create(1).ok() && desk->Write(1, 0, 'a').ok() && desk->Sync(1).ok());
    Blocks bytes(1, 'b');
    Io ios[] = {{IoKind::kWrite, SegmentId{1}, 0, bytes.span()}, {IoKind::kSync, SegmentId{1}}};
    ASSERT_TRUE(desk->Run(ios).ok());
    CrashAndReopen(seed);
    seen.insert(desk->Read(1, 0));
  }
  EXPECT_TRUE(seen.contains('a') && seen.contains('b'));
}

/// Writes one block over and over while Syncs are under way.
Task<void> Overwrite(dsm::Worker& worker, Storage& storage, int* written) {
  Blocks bytes(1);
  for (int i = 1; i <= 40; ++i) {
    std::memset(bytes.span().data(), i, kBlockBytes);
    Io write{IoKind::kWrite, SegmentId{1}, 0, bytes.span()};
    const Status status = co_await storage.Run(worker, {&write, 1});
    EXPECT_TRUE(status.ok()) << status;
    *written = i;
  }
}
Task<void> SyncNow(dsm::Worker& worker, Storage& storage, const int* written, int* safe) {
  for (int i = 0; i < 6; ++i) {
    const int before = *written;
    Io sync{IoKind::kSync, SegmentId{1}};
    const Status status = co_await storage.Run(worker, {&sync, 1});
    EXPECT_TRUE(status.ok()) << status;
    *safe = std::max(*safe, before);
  }
}

TEST_F(SimStorageTest, ASyncThatTakesLongCoversWhatWasWrittenBeforeIt) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    InterleavedWorkers workers({.seed = seed, .workers = 2});
    SimStorage storage({.seed = seed, .clock = &workers.clock()});
    ASSERT_TRUE(workers[0].Run(storage.Create(workers[0], SegmentId{1}, Making{})).ok());
    int written = 0, safe = 0;
    workers[0].Spawn(Overwrite(workers[0], storage, &written));
    for (int i = 0; i < 3; ++i) workers[1].Spawn(SyncNow(workers[1], storage, &written, &safe));
    const uint64_t stop = 1 + workers.random().Below(50);
    storage.StopAfter(stop);
    EXPECT_EQ(workers.RunWhile([&] { return !storage.stopped(); }), RunEnd::kDone);
    const int bound = safe;
    SimImage left = storage.Crash();
    workers.Abandon();
    if (bound == 0) continue;
    Open(seed, std::move(left));
    Blocks block(1);
    Io io{IoKind::kRead, SegmentId{1}, 0, block.span()};
    ASSERT_TRUE(desk->Run({&io, 1}).ok());
    for (const std::byte byte : block.span()) {
      ASSERT_GE(static_cast<int>(byte), bound) << "seed " << seed << ", stopped at " << stop;
    }
  }
}

TEST_F(SimStorageTest, CreationsAndRemovalsThatWereNotSyncedAreThereOrNot) {
  std::set<size_t> created, removed;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Open(seed, {});
    for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(desk->Create(id).ok());
    CrashAndReopen(seed);
    created.insert(disk->List()->size());
    Open(seed, {});
    for (uint64_t id = 1; id <= 3; ++id) {
      ASSERT_TRUE(desk->Create(id).ok() && desk->Sync(id).ok());
      ASSERT_TRUE(disk->Remove(SegmentId{id}).ok());
    }
    CrashAndReopen(seed);
    removed.insert(disk->List()->size());
  }
  EXPECT_EQ(created, (std::set<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(removed, (std::set<size_t>{0, 1, 2, 3}));
}

Task<void> ChangeFiles(dsm::Worker& worker, Storage& storage, std::string old, std::string fresh,
                       std::string more) {
  Status status = co_await storage.ReplaceFile(worker, "REPLACED", old);
  status = co_await storage.ReplaceFile(worker, "APPENDED", old);
  status = co_await storage.ReplaceFile(worker, "REPLACED", fresh);
  status = co_await storage.AppendFile(worker, "APPENDED", more);
}

TEST_F(SimStorageTest, AFileIsReplacedWhollyOrNotAndAppendedToInPart) {
  std::set<std::string> replaced, appended;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    for (const uint64_t stop : {3, 4}) {
      InterleavedWorkers workers({.seed = seed, .workers = 1});
      SimStorage storage({.seed = seed, .clock = &workers.clock()});
      storage.StopAfter(stop);
      workers[0].Spawn(ChangeFiles(workers[0], storage, "old", "new", "0123456789"));
      EXPECT_EQ(workers.RunWhile([&] { return !storage.stopped(); }), RunEnd::kDone);
      const SimImage left = storage.Crash();
      workers.Abandon();
      (stop == 3 ? replaced : appended).insert(left.files.at(stop == 3 ? "REPLACED" : "APPENDED"));
    }
  }
  EXPECT_EQ(replaced, (std::set<std::string>{"old", "new"}));
  EXPECT_GT(appended.size(), 5u);
  for (const std::string& file : appended) {
    EXPECT_TRUE(std::string("old0123456789").starts_with(file) && file.size() >= 3) << file;
  }
}

/// Appends numbered blocks, syncs every third, and says what must survive.
Task<void> Log(dsm::Worker& worker, Storage& storage, uint64_t id, int* safe) {
  Blocks bytes(1);
  Status status = co_await storage.Create(worker, SegmentId{id}, Making{});
  for (int i = 1; status.ok() && i <= 12; ++i) {
    std::memset(bytes.span().data(), i, kBlockBytes);
    Io write{IoKind::kWrite, SegmentId{id}, static_cast<uint32_t>(i) * kBlockBytes, bytes.span()};
    Io sync{IoKind::kSync, SegmentId{id}};
    status = co_await storage.Run(worker, {&write, 1});
    if (!status.ok() || i % 3 != 0) continue;
    status = co_await storage.Run(worker, {&sync, 1});
    if (status.ok()) *safe = i;
  }
}

TEST_F(SimStorageTest, WhateverTheIoACrashComesAtWhatWasSyncedIsThere) {
  constexpr size_t kWorkers = 3;
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    uint64_t crash_at = 1;
    for (bool crashed = true; crashed; ++crash_at) {
      InterleavedWorkers workers({.seed = seed, .workers = kWorkers});
      SimStorage storage({.seed = seed + crash_at, .clock = &workers.clock()});
      storage.StopAfter(crash_at);
      int safe[kWorkers] = {};
      for (size_t i = 0; i < kWorkers; ++i) {
        workers[i].Spawn(Log(workers[i], storage, i + 1, &safe[i]));
      }
      const auto busy = [&] {
        return !storage.stopped() &&
               (workers[0].spawned() > 0 || workers[1].spawned() > 0 || workers[2].spawned() > 0);
      };
      ASSERT_EQ(workers.RunWhile(busy), RunEnd::kDone);
      crashed = storage.stopped();
      SimImage left = storage.Crash();
      workers.Abandon();
      Open(seed, std::move(left));
      for (size_t i = 0; i < kWorkers; ++i) {
        for (int block = 1; block <= safe[i]; ++block) {
          ASSERT_EQ(desk->Read(i + 1, static_cast<uint32_t>(block)), block)
              << "crash at " << crash_at;
        }
      }
    }
    EXPECT_GT(crash_at, kWorkers * 15) << "every I/O was crashed at";
  }
}

TEST_F(SimStorageTest, ASeedRepeatsTheOrderInWhichIosEnd) {
  const auto order = [](uint64_t seed) {
    InterleavedWorkers workers({.seed = seed, .workers = 2});
    SimStorage storage({.seed = seed, .clock = &workers.clock()});
    std::vector<uint64_t> ends;
    struct Call {
      static Task<void> Make(dsm::Worker& worker, Storage& disk, uint64_t id,
                             std::vector<uint64_t>* out) {
        Status status = co_await disk.Create(worker, SegmentId{id}, Making{});
        EXPECT_TRUE(status.ok()) << status;
        out->push_back(id);
      }
    };
    for (uint64_t id = 1; id <= 10; ++id) {
      workers[id % 2].Spawn(Call::Make(workers[id % 2], storage, id, &ends));
    }
    EXPECT_EQ(workers.RunAll(), RunEnd::kDone);
    return ends;
  };
  EXPECT_EQ(order(3), order(3));
  EXPECT_FALSE(std::ranges::is_sorted(order(3)));
  EXPECT_NE(order(3), order(4));
}

TEST_F(SimStorageTest, TheNthIoFailsAndASyncThatFailedMakesLaterOnesWorthless) {
  ASSERT_TRUE(desk->Create(1).ok());
  disk->FailIo(2);
  EXPECT_TRUE(desk->Write(1, 0, 'a').ok());
  const Status failed = desk->Write(1, 8, 'b');
  EXPECT_EQ(failed.code(), StatusCode::kIoError);
  EXPECT_NE(failed.message().find("1.segment at 32768"), std::string::npos) << failed;
  EXPECT_TRUE(desk->Write(1, 8, 'b').ok());
  std::set<int> seen;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Open(seed, {});
    ASSERT_TRUE(desk->Create(1).ok() && desk->Write(1, 0, 'a').ok() && desk->Sync(1).ok());
    ASSERT_TRUE(desk->Write(1, 0, 'b').ok());
    disk->FailIo(1);
    EXPECT_FALSE(desk->Sync(1).ok());
    EXPECT_TRUE(desk->Sync(1).ok());
    CrashAndReopen(seed);
    seen.insert(desk->Read(1, 0));
  }
  EXPECT_TRUE(seen.contains('a'));
}

TEST_F(SimStorageTest, BitsFlipWhereTheTestWants) {
  ASSERT_TRUE(desk->Create(1).ok() && desk->Write(1, 2, 'a', 2).ok());
  disk->FlipBit(SegmentId{1}, 2 * kBlockBytes + 77, 3);
  EXPECT_EQ(desk->Read(1, 2), -1);
  EXPECT_EQ(desk->Read(1, 3), 'a');
  ASSERT_TRUE(desk->Replace("F", "aaa").ok());
  disk->FlipFileBit("F", 1, 0);
  EXPECT_EQ(desk->ReadFile("F"), "a`a");
}

TEST_F(SimStorageTest, AStuckDeviceEndsNothingUntilItIsNot) {
  InterleavedWorkers workers({.workers = 1});
  SimStorage storage({.clock = &workers.clock()});
  int safe = 0;
  storage.SetStuck(true);
  workers[0].Spawn(Log(workers[0], storage, 1, &safe));
  EXPECT_EQ(workers.RunAll(), RunEnd::kStuck);
  storage.SetStuck(false);
  EXPECT_EQ(workers.RunAll(), RunEnd::kDone);
  EXPECT_EQ(safe, 12);
}

TEST_F(SimStorageTest, NamedFilesFindTheDeviceFullAndThenNotAnyMore) {
  ASSERT_TRUE(desk->Replace("F", "a").ok());
  disk->SetFilesFull(true);
  EXPECT_EQ(desk->Append("F", "b").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(desk->ReadFile("F"), "a");
  disk->SetFilesFull(false);
  EXPECT_TRUE(desk->Append("F", "b").ok());
  EXPECT_EQ(desk->ReadFile("F"), "ab");
}

}  // namespace
}  // namespace farleaf::index::storage
