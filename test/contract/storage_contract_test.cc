// What index/storage/storage.h promises, on every implementation.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "dsm/base/random.h"
#include "test/support/storage_under_test.h"

namespace farleaf::index::storage {
namespace {

using dsm::Task;

template <typename Kind>
class StorageContract : public ::testing::Test {
 protected:
  StorageContract() { Reopened(); }
  Storage& storage() { return kind.storage(); }
  void Reopen() {
    desk.reset();
    kind.Crash();
    kind.Open();
    Reopened();
  }
  void Reopened() { desk = std::make_unique<Desk>(&kind.storage(), &kind.clock()); }
  std::vector<uint64_t> Ids() {
    Result<std::vector<SegmentId>> all = storage().List();
    std::vector<uint64_t> ids;
    for (const SegmentId id : *all) ids.push_back(Number(id));
    return ids;
  }
  bool Exists(uint64_t id) {
    const std::vector<uint64_t> ids = Ids();
    return std::ranges::find(ids, id) != ids.end();
  }

  Kind kind;
  std::unique_ptr<Desk> desk;
};

using Kinds = ::testing::Types<FileUnderTest<IoEngine::kIoUring>, FileUnderTest<IoEngine::kThreads>,
                               SimUnderTest>;
struct KindName {
  template <typename Kind>
  static std::string GetName(int i) {
    const char* const names[] = {"IoUring", "Threads", "Sim"};
    return names[i];
  }
};
TYPED_TEST_SUITE(StorageContract, Kinds, KindName);

using Ids = std::vector<uint64_t>;

TYPED_TEST(StorageContract, AReadSeesEveryWriteThatWasCompleteBefore) {
  uint64_t id = 0;
  for (const WriteBack write_back : {WriteBack::kAtOnce, WriteBack::kLazily}) {
    ASSERT_TRUE(this->desk->Create(++id, write_back).ok());
    ASSERT_TRUE(this->desk->Write(id, 0, 'a', 3).ok());
    ASSERT_TRUE(this->desk->Write(id, 1, 'b').ok());
    EXPECT_EQ(this->desk->Read(id, 0), 'a');
    EXPECT_EQ(this->desk->Read(id, 1), 'b');
    EXPECT_EQ(this->desk->Read(id, 2), 'a');
    Desk other(&this->storage(), &this->kind.clock());
    EXPECT_EQ(other.Read(id, 1), 'b') << "on another worker";
  }
}

TYPED_TEST(StorageContract, AWholeSegmentIsWrittenAndReadAtOnce) {
  ASSERT_TRUE(this->desk->Create(1).ok());
  constexpr size_t kBlocks = kSegmentBytes / kBlockBytes;
  Blocks written(kBlocks), read(kBlocks);
  for (size_t i = 0; i < kBlocks; ++i) {
    std::memset(written.block(i).data(), static_cast<int>(i % 251), kBlockBytes);
  }
  Io write{IoKind::kWrite, SegmentId{1}, 0, written.span()};
  ASSERT_TRUE(this->desk->Run({&write, 1}).ok()) << write.status;
  Io back{IoKind::kRead, SegmentId{1}, 0, read.span()};
  ASSERT_TRUE(this->desk->Run({&back, 1}).ok()) << back.status;
  EXPECT_TRUE(std::ranges::equal(written.span(), read.span()));
}

TYPED_TEST(StorageContract, EachOfManyIosHasItsOwnOutcome) {
  ASSERT_TRUE(this->desk->Create(1).ok());
  ASSERT_TRUE(this->desk->Write(1, 0, 'a').ok());
  ASSERT_TRUE(this->desk->Write(1, 7, 'h').ok());
  Blocks bytes(3);
  Io ios[] = {{IoKind::kRead, SegmentId{1}, 0, bytes.block(0)},
              {IoKind::kRead, SegmentId{9}, 0, bytes.block(1)},
              {IoKind::kRead, SegmentId{1}, 7 * kBlockBytes, bytes.block(2)}};
  const Status first = this->desk->Run(ios);
  EXPECT_EQ(first.code(), StatusCode::kNotFound);
  EXPECT_TRUE(ios[0].status.ok() && ios[2].status.ok());
  EXPECT_EQ(ios[1].status.code(), StatusCode::kNotFound);
  EXPECT_EQ(bytes.Uniform(0), 'a');
  EXPECT_EQ(bytes.Uniform(2), 'h');
  EXPECT_TRUE(this->desk->Run({}).ok()) << "none at all";
}

TYPED_TEST(StorageContract, WhatWasSyncedSurvivesACrash) {
  for (uint64_t id = 1; id <= 5; ++id) {
    ASSERT_TRUE(this->desk->Create(id, id % 2 == 0 ? WriteBack::kLazily : WriteBack::kAtOnce).ok());
    ASSERT_TRUE(this->desk->Write(id, 3, static_cast<char>('a' + id), 20).ok());
    ASSERT_TRUE(this->desk->Sync(id).ok());
  }
  this->Reopen();
  EXPECT_EQ(this->Ids(), (Ids{1, 2, 3, 4, 5}));
  for (uint64_t id = 1; id <= 5; ++id) {
    for (uint32_t block = 3; block < 23; ++block) {
      EXPECT_EQ(this->desk->Read(id, block), static_cast<int>('a' + id));
    }
  }
}

TYPED_TEST(StorageContract, ASyncCoversOneSegmentOnly) {
  ASSERT_TRUE(this->desk->Create(1).ok());
  ASSERT_TRUE(this->desk->Create(2).ok());
  ASSERT_TRUE(this->desk->Write(1, 0, 'a').ok());
  ASSERT_TRUE(this->desk->Write(2, 0, 'b').ok());
  ASSERT_TRUE(this->desk->Sync(2).ok());
  this->Reopen();
  ASSERT_TRUE(this->Exists(2));
  EXPECT_EQ(this->desk->Read(2, 0), 'b');
}

TYPED_TEST(StorageContract, ASegmentIsMadeOnceAndListedInOrder) {
  for (const uint64_t id : {1, 2, 5, 5000, 70}) EXPECT_TRUE(this->desk->Create(id).ok()) << id;
  EXPECT_EQ(this->desk->Create(5).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(this->Ids(), (Ids{1, 2, 5, 70, 5000}));
  EXPECT_EQ(this->storage().Space()->segments, 5u);
  EXPECT_NE(this->storage().NameOf(SegmentId{70}), this->storage().NameOf(SegmentId{5}));
}

TYPED_TEST(StorageContract, ARemovedSegmentIsGoneForWhoeverAsks) {
  ASSERT_TRUE(this->desk->Create(1).ok());
  ASSERT_TRUE(this->desk->Create(2).ok());
  ASSERT_TRUE(this->desk->Write(2, 0, 'b').ok());
  ASSERT_TRUE(this->storage().Remove(SegmentId{1}).ok());
  const Status read = this->desk->TryRead(1, 0);
  EXPECT_EQ(read.code(), StatusCode::kNotFound);
  EXPECT_NE(read.message().find(this->storage().NameOf(SegmentId{1})), std::string::npos) << read;
  EXPECT_EQ(this->desk->Write(1, 0, 'x').code(), StatusCode::kNotFound);
  EXPECT_EQ(this->desk->Sync(1).code(), StatusCode::kNotFound);
  EXPECT_EQ(this->storage().Remove(SegmentId{1}).code(), StatusCode::kNotFound);
  EXPECT_EQ(this->Ids(), (Ids{2}));
  EXPECT_EQ(this->desk->Read(2, 0), 'b');
}

TYPED_TEST(StorageContract, SegmentsComeAndGoAndKeepWhatIsTheirs) {
  Random random(7);
  std::map<uint64_t, char> there;
  uint64_t next = 1;
  for (int step = 0; step < 300; ++step) {
    if (there.size() < 12 && random.OneIn(2)) {
      const char fill = static_cast<char>('a' + random.Below(26));
      ASSERT_TRUE(this->desk->Create(next).ok());
      ASSERT_TRUE(this->desk->Write(next, static_cast<uint32_t>(next % 512), fill).ok());
      there[next++] = fill;
    } else if (!there.empty()) {
      const auto at = std::next(there.begin(), static_cast<ptrdiff_t>(random.Below(there.size())));
      ASSERT_EQ(this->desk->Read(at->first, static_cast<uint32_t>(at->first % 512)), at->second);
      if (random.OneIn(2)) {
        ASSERT_TRUE(this->storage().Remove(SegmentId{at->first}).ok());
        there.erase(at);
      }
    }
  }
  EXPECT_EQ(this->Ids().size(), there.size());
}

Task<void> ReadLater(dsm::Worker& worker, Storage& storage, Io* io) {
  [[maybe_unused]] const Status read = co_await storage.Run(worker, {io, 1});
}
Task<void> FillOther(dsm::Worker& worker, Storage& storage, Io* io) {
  [[maybe_unused]] const Status made = co_await storage.Create(worker, io->segment, Making{});
  [[maybe_unused]] const Status written = co_await storage.Run(worker, {io, 1});
}

TYPED_TEST(StorageContract, ReadsSubmittedBeforeARemoveEndWithWhatWasThere) {
  ASSERT_TRUE(this->desk->Create(1).ok());
  constexpr size_t kBlocks = kSegmentBytes / kBlockBytes;
  ASSERT_TRUE(this->desk->Write(1, 0, 'a', kBlocks).ok());
  Blocks read(kBlocks), other(kBlocks, 'z');
  Io io{IoKind::kRead, SegmentId{1}, 0, read.span()};
  Io fill{IoKind::kWrite, SegmentId{2}, 0, other.span()};
  dsm::Worker& worker = this->desk->worker();
  worker.Spawn(ReadLater(worker, this->storage(), &io));
  ASSERT_TRUE(this->storage().Remove(SegmentId{1}).ok());
  worker.Spawn(FillOther(worker, this->storage(), &fill));  // may not get the file meanwhile
  worker.RunUntilIdle();
  ASSERT_TRUE(io.status.ok()) << io.status;
  ASSERT_TRUE(fill.status.ok()) << fill.status;
  for (size_t i = 0; i < kBlocks; ++i) ASSERT_EQ(read.Uniform(i), 'a') << i;
}

TYPED_TEST(StorageContract, ADeviceThatIsFullSaysSoAndTakesMoreWhenThereIsRoom) {
  this->desk.reset();
  this->kind.SetSegmentsMax(3);
  this->Reopened();
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(this->desk->Create(id).ok());
  EXPECT_EQ(this->storage().Space()->bytes_free, 0u);
  const Status full = this->desk->Create(4);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(full.message().find(this->storage().NameOf(SegmentId{4})), std::string::npos) << full;
  EXPECT_FALSE(this->Exists(4));
  EXPECT_TRUE(this->desk->Write(2, 0, 'b').ok()) << "what exists can be written";
  ASSERT_TRUE(this->storage().Remove(SegmentId{1}).ok());
  EXPECT_TRUE(this->desk->Create(4).ok());
  EXPECT_EQ(this->desk->Read(2, 0), 'b');
}

TYPED_TEST(StorageContract, AReserveIsLeftToThoseWhoMayTakeOfTheirPart) {
  this->desk.reset();
  this->kind.SetSegmentsMax(8);
  this->Reopened();
  this->storage().SetReserve({2, 1, 1});  // merges, flushes, logs
  uint64_t next = 1;
  while (this->desk->Create(next).ok()) ++next;
  EXPECT_EQ(next, 5u) << "8 segments, less the reserve";
  EXPECT_EQ(this->desk->Create(next).code(), StatusCode::kResourceExhausted);
  StorageSpace space = *this->storage().Space();
  EXPECT_EQ(space.bytes_free, 0u);
  EXPECT_EQ(space.reserve, 4u);
  EXPECT_EQ(space.reserve_held, 4u);
  const auto take = [&](Reserve part) { return this->desk->CreateFrom(part, next++).code(); };
  EXPECT_EQ(take(Reserve::kLogs), StatusCode::kOk);
  EXPECT_EQ(take(Reserve::kLogs), StatusCode::kResourceExhausted);
  EXPECT_EQ(take(Reserve::kMerges), StatusCode::kOk);
  EXPECT_EQ(take(Reserve::kMerges), StatusCode::kOk);
  EXPECT_EQ(take(Reserve::kMerges), StatusCode::kResourceExhausted);
  EXPECT_EQ(take(Reserve::kFlushes), StatusCode::kOk);
  EXPECT_EQ(take(Reserve::kFlushes), StatusCode::kResourceExhausted);
  // What comes free is merges' first, and others have it when all is there again.
  ASSERT_TRUE(this->storage().Remove(SegmentId{1}).ok());
  EXPECT_EQ(take(Reserve::kFlushes), StatusCode::kResourceExhausted);
  EXPECT_EQ(take(Reserve::kMerges), StatusCode::kOk);
  for (uint64_t id = 2; id <= 4; ++id) ASSERT_TRUE(this->storage().Remove(SegmentId{id}).ok());
  EXPECT_EQ(this->desk->Create(next).code(), StatusCode::kResourceExhausted);
  ASSERT_TRUE(this->storage().Remove((*this->storage().List())[0]).ok());
  EXPECT_EQ(this->desk->Create(next).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(this->desk->FillReserve().ok());
  ASSERT_TRUE(this->storage().Remove((*this->storage().List())[0]).ok());
  EXPECT_TRUE(this->desk->Create(next).ok());
  space = *this->storage().Space();
  EXPECT_EQ(space.reserve_held, 4u);
}

TYPED_TEST(StorageContract, ReservesThatBecomeSmallerGiveRoomToOthers) {
  this->desk.reset();
  this->kind.SetSegmentsMax(4);
  this->Reopened();
  this->storage().SetReserve({2, 0, 1});
  ASSERT_TRUE(this->desk->Create(1).ok());
  ASSERT_EQ(this->desk->Create(2).code(), StatusCode::kResourceExhausted);
  this->storage().SetReserve({0, 1, 1});
  EXPECT_TRUE(this->desk->Create(2).ok());
  EXPECT_EQ(this->desk->Create(3).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(this->desk->CreateFrom(Reserve::kFlushes, 3).ok()) << "what merges had went there";
  this->storage().SetReserve({});
  EXPECT_TRUE(this->desk->Create(4).ok());
  EXPECT_EQ(this->desk->Create(5).code(), StatusCode::kResourceExhausted);
}

TYPED_TEST(StorageContract, AReserveIsThereForTheNextProcess) {
  this->desk.reset();
  this->kind.SetSegmentsMax(6);
  this->Reopened();
  this->storage().SetReserve({1, 1, 1});
  uint64_t next = 1;
  while (this->desk->Create(next).ok()) ASSERT_TRUE(this->desk->Sync(next++).ok());
  ASSERT_EQ(next, 4u);
  this->Reopen();
  this->storage().SetReserve({1, 1, 1});
  EXPECT_TRUE(this->desk->FillReserve().ok());
  EXPECT_EQ(this->storage().Space()->reserve_held, 3u);
  EXPECT_EQ(this->desk->Create(next).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(this->desk->CreateFrom(Reserve::kMerges, next++).ok());
  EXPECT_TRUE(this->desk->CreateFrom(Reserve::kFlushes, next++).ok());
  EXPECT_TRUE(this->desk->CreateFrom(Reserve::kLogs, next++).ok());
  EXPECT_EQ(this->desk->CreateFrom(Reserve::kLogs, next++).code(), StatusCode::kResourceExhausted);
}

TYPED_TEST(StorageContract, NamedFilesAreReplacedAppendedToAndRemoved) {
  EXPECT_NE(this->desk->ReadFile("MANIFEST").find("not found"), std::string::npos);
  EXPECT_EQ(this->desk->Append("MANIFEST", "x").code(), StatusCode::kNotFound);
  ASSERT_TRUE(this->desk->Replace("MANIFEST", "one").ok());
  ASSERT_TRUE(this->desk->Append("MANIFEST", " two").ok());
  EXPECT_EQ(this->desk->ReadFile("MANIFEST"), "one two");
  ASSERT_TRUE(this->desk->Replace("OPTIONS", "").ok());
  EXPECT_EQ(this->desk->ReadFile("OPTIONS"), "");
  ASSERT_TRUE(this->desk->Replace("MANIFEST", "three").ok());
  EXPECT_EQ(*this->storage().ListFiles(), (std::vector<std::string>{"MANIFEST", "OPTIONS"}));
  this->Reopen();
  EXPECT_EQ(this->desk->ReadFile("MANIFEST"), "three");
  ASSERT_TRUE(this->storage().RemoveFile("MANIFEST").ok());
  EXPECT_EQ(this->storage().RemoveFile("MANIFEST").code(), StatusCode::kNotFound);
  EXPECT_EQ(*this->storage().ListFiles(), (std::vector<std::string>{"OPTIONS"}));
}

TYPED_TEST(StorageContract, ANameThatIsAPathOrTheStoragesOwnIsRefused) {
  for (const char* name : {"", "a/b", "..", ".hidden", "LOCK", "segments", "free", "x.new"}) {
    EXPECT_EQ(this->desk->Replace(name, "x").code(), StatusCode::kInvalidArgument) << name;
  }
}

TYPED_TEST(StorageContract, TransfersAreCounted) {
  ASSERT_TRUE(this->desk->Create(1).ok());
  ASSERT_TRUE(this->desk->Write(1, 0, 'a', 4).ok());
  ASSERT_TRUE(this->desk->Sync(1).ok());
  EXPECT_EQ(this->desk->Read(1, 1), 'a');
  ASSERT_TRUE(this->desk->Replace("MANIFEST", "12345").ok());
  EXPECT_EQ(this->desk->ReadFile("MANIFEST"), "12345");
  const StorageCounts counts = this->storage().counts();
  EXPECT_EQ(counts.writes, 1u);
  EXPECT_EQ(counts.reads, 1u);
  EXPECT_EQ(counts.syncs, 1u);
  EXPECT_EQ(counts.bytes_written, 4 * kBlockBytes + 5u);
  EXPECT_EQ(counts.bytes_read, kBlockBytes + 5u);
}

constexpr uint64_t kMixSegments = 4;

/// Writes and reads blocks that only this task uses, each with its own byte.
Task<void> Mix(dsm::Worker& worker, Storage& storage, uint32_t task, uint64_t seed,
               std::atomic<int>* wrong) {
  Random random(seed);
  Blocks bytes(2);
  std::map<std::pair<uint64_t, uint32_t>, int> written;
  for (int step = 0; step < 40; ++step) {
    const uint64_t id = 1 + random.Below(kMixSegments);
    const uint32_t block = task * 4 + static_cast<uint32_t>(random.Below(4));
    const int fill = static_cast<int>(random.Below(100));
    std::memset(bytes.block(0).data(), fill, kBlockBytes);
    const bool writes = random.OneIn(2) || !written.contains({id, block});
    Io ios[] = {{writes ? IoKind::kWrite : IoKind::kRead, SegmentId{id}, block * kBlockBytes,
                 bytes.block(writes ? 0 : 1)},
                {IoKind::kSync, SegmentId{id}}};
    const std::span<Io> some(ios, random.OneIn(20) ? 2 : 1);
    const Status done = co_await storage.Run(worker, some);
    if (!done.ok()) ++*wrong;
    if (writes) {
      written[{id, block}] = fill;
    } else if (bytes.Uniform(1) != written[{id, block}]) {
      ++*wrong;
    }
  }
}

void RunMixes(dsm::Worker& worker, Storage& storage, uint32_t first, std::atomic<int>* wrong) {
  for (uint32_t task = first; task < first + 64; ++task) {
    worker.Spawn(Mix(worker, storage, task, task + 1, wrong));
  }
  worker.RunUntilIdle();
}

TYPED_TEST(StorageContract, ManyIosOfOneWorkerAreUnderWayAtOnce) {
  for (uint64_t id = 1; id <= kMixSegments; ++id) ASSERT_TRUE(this->desk->Create(id).ok());
  std::atomic<int> wrong = 0;
  RunMixes(this->desk->worker(), this->storage(), 0, &wrong);
  EXPECT_EQ(wrong.load(), 0);
}

TYPED_TEST(StorageContract, TwoWorkersInTwoThreadsShareTheStorage) {
  if (!TypeParam::kRealThreads) GTEST_SKIP() << "a simulation has one thread";
  for (uint64_t id = 1; id <= kMixSegments; ++id) ASSERT_TRUE(this->desk->Create(id).ok());
  std::atomic<int> wrong = 0;
  std::atomic<bool> done = false;
  const auto serve = [&](uint32_t first) {
    Desk own(&this->storage(), &this->kind.clock());
    RunMixes(own.worker(), this->storage(), first, &wrong);
  };
  std::thread one(serve, 0), two(serve, 64);
  std::thread churn([&] {
    Desk own(&this->storage(), &this->kind.clock());
    for (uint64_t id = 100; !done.load(); ++id) {
      if (!own.Create(id).ok() || !own.Write(id, 0, 'x').ok() || own.Read(id, 0) != 'x') ++wrong;
      if (!this->storage().Remove(SegmentId{id}).ok()) ++wrong;
    }
  });
  one.join();
  two.join();
  done = true;
  churn.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(this->Ids(), (Ids{1, 2, 3, 4}));
}

}  // namespace
}  // namespace farleaf::index::storage
