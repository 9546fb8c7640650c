// Tables on disks: a simulated one whose I/Os end in any order, fail, and lose what was not synced; and files.
#include <gtest/gtest.h>

#include <string>

#include "test/support/storage_under_test.h"
#include "test/support/table_fixture.h"

namespace farleaf::index::lsm {
namespace {

Entries ManyEntries(uint64_t seed) {
  Random random(seed);
  return RandomEntries({.count = 30'000,
                        .key_bytes_min = 6,
                        .value_bytes_max = 150,
                        .versions_max = 2,
                        .pointer_percent = 5},
                       &random);
}

template <typename Disk>
struct LsmTableDiskTest : ::testing::Test {
  Disk disk;
};
using Disks =
    ::testing::Types<storage::SimUnderTest, storage::FileUnderTest<storage::IoEngine::kThreads>>;
TYPED_TEST_SUITE(LsmTableDiskTest, Disks);

TYPED_TEST(LsmTableDiskTest, ATableIsReadAsItWasWritten) {
  const Entries entries = ManyEntries(1);
  TableFixture fixture(&this->disk.storage(), &this->disk.clock());
  for (const Compression compression : {Compression::kNone, Compression::kLz4}) {
    const auto table =
        fixture.Build(entries, {.compression = compression, .buffer_bytes = 262'144});
    ASSERT_TRUE(table);
    EXPECT_EQ(fixture.ReadStream(*table), entries);
    EXPECT_EQ(fixture.ReadStream(*table, {}, 65'536), entries);
    EXPECT_EQ(fixture.ReadForward(*table), entries);
    fixture.NewCache(1 << 20);
    for (size_t i = 0; i < entries.size(); i += 501) {
      EXPECT_EQ(fixture.Find(*table, entries[i].key, entries[i].sequence), entries[i]);
    }
  }
}

TYPED_TEST(LsmTableDiskTest, AFinishedTableSurvivesAPowerLoss) {
  const Entries entries = ManyEntries(2);
  TableInfo info;
  {
    TableFixture fixture(&this->disk.storage(), &this->disk.clock());
    const auto built = fixture.TryBuild(entries);
    ASSERT_TRUE(built.ok()) << built.status();
    info = *built;
  }
  this->disk.Crash();
  this->disk.Open();
  TableFixture fixture(&this->disk.storage(), &this->disk.clock());
  const Table table(&this->disk.storage(), info);
  EXPECT_EQ(fixture.ReadStream(table), entries);
}

TEST(LsmTableOnAFailingDiskTest, WhicheverIoFailsTheTableFailsOrIsRight) {
  const Entries entries = ManyEntries(3);
  storage::SimUnderTest disk;
  TableFixture fixture(&disk.storage(), &disk.clock());
  uint64_t begun = 0;
  {
    const uint64_t before = disk.sim().ios();
    ASSERT_TRUE(fixture.TryBuild(entries, {.buffer_bytes = 262'144}).ok());
    begun = disk.sim().ios() - before;
  }
  ASSERT_GT(begun, 10u);
  for (uint64_t n = 1; n <= begun; ++n) {
    disk.sim().FailIo(n);
    const auto info = fixture.TryBuild(entries, {.buffer_bytes = 262'144});
    EXPECT_EQ(info.status().code(), StatusCode::kIoError) << n;
  }
  const auto table = fixture.Build(entries);
  const uint64_t before = disk.sim().ios();
  ASSERT_EQ(fixture.ReadStream(*table, {}, 65'536), entries);
  const uint64_t reads = disk.sim().ios() - before;
  for (uint64_t n = 1; n <= reads; ++n) {
    disk.sim().FailIo(n);
    Status status;
    const Entries read = fixture.ReadStream(*table, {}, 65'536, &status);
    if (read != entries) {
      EXPECT_EQ(status.code(), StatusCode::kIoError) << n;
    }
  }
}

dsm::Task<void> FetchRoot(dsm::Worker& worker, const Table& table, BlockCache& cache) {
  Result<BlockCache::Handle> root =
      co_await table.Fetch(worker, cache, {table.info().root, table.info().root_level});
  EXPECT_FALSE(root.ok()) << "of a disk that does not answer";
}

TEST(LsmTableOnAFailingDiskTest, ACrashLeavesNobodyWaitingInTheCache) {
  storage::SimUnderTest disk;
  TableFixture fixture(&disk.storage(), &disk.clock());
  const auto table = fixture.Build(ManyEntries(4));
  auto cache = std::make_unique<BlockCache>(uint64_t{1} << 20);
  auto worker = fixture.NewWorker();
  disk.sim().StopAfter(1);
  for (int i = 0; i < 3; ++i) worker->Spawn(FetchRoot(*worker, *table, *cache));
  disk.Crash();
  worker->Abandon();
  worker.reset();
  cache.reset();  // checks that nothing is pinned, and nobody waits
}

}  // namespace
}  // namespace farleaf::index::lsm
