// What an LSM store takes of memory beside blocks, and what it reads when it is opened: both bounded, whatever it holds (README.md,
// Memory; Recovery).
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "test/support/lsm_host.h"
#include "test/support/test_scale.h"

namespace farleaf::test {
namespace {

using index::lsm::BlockCache;
using index::lsm::LsmOptions;
using index::storage::kSegmentBytes;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class LsmBoundsTest : public ::testing::Test {
 protected:
  static LsmOptions Options() {
    LsmOptions options = LsmHost::SmallStore();
    options.memtable_bytes = kMiB;
    return options;
  }
  /// Of keys all over.
  static std::string Key(uint64_t number) { return std::to_string(Mix64(number)); }
  void PutMore(uint64_t count, size_t value_bytes) {
    const std::string value(value_bytes, 'v');
    for (const uint64_t end = put_ + count; put_ < end; ++put_) {
      dsm::OpContext op{*worker_, counts_};
      const std::string key = Key(put_);
      const Status done = worker_->Run(host_.store().BlindPut(op, key, value));
      ASSERT_TRUE(done.ok()) << done;
    }
  }
  template <typename Condition>
  void Await(const Condition& holds) {  // the test's timeout bounds it
    for (;;) {
      worker_->GoOnline();
      const bool held = holds();
      worker_->GoOffline();
      if (held) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  void FlushAll() {
    Await([&] {
      const auto memtables = host_.store().memtables();
      if (!memtables.active_empty) host_.store().FlushSoon();
      return memtables.active_empty && !memtables.flushing_bytes;
    });
  }
  /// Ends and opens the store, and returns what was read of segments. Nothing runs in the background then.
  uint64_t BytesReadByOpening() {
    worker_ = nullptr;
    host_.Close();
    const uint64_t before = host_.storage().counts().bytes_read;
    const Status opened = host_.TryOpen();
    FARLEAF_CHECK(opened.ok(), opened);
    worker_ = host_.OpenWorker();
    return host_.storage().counts().bytes_read - before;
  }
  void TearDown() override { worker_ = nullptr; }

  LsmHost host_{{Options()}};
  std::unique_ptr<dsm::Worker> worker_ = host_.OpenWorker();
  dsm::FabricCounts counts_;
  uint64_t put_ = 0;
};

/// As README.md states it: of the memtables that a process may leave behind the recovery log, and the values that it names; of each log
/// the segments at their ends, and those that were ready.
uint64_t OpeningReadsAtMost(const LsmOptions& options) {
  constexpr uint64_t kMemtables = 2, kEnds = 2 * 3 * kSegmentBytes;
  const auto values = static_cast<uint64_t>(index::lsm::Memtable::kValuesToBytes);
  return kMemtables * (1 + values) * options.memtable_bytes + kEnds;
}

TEST_F(LsmBoundsTest, AnOpeningReadsWhatMemtablesMayNameHoweverLargeTheStore) {
  const uint64_t values = Amount{12'000, 25'000, 150'000};
  PutMore(values, 4'000);
  ASSERT_GT(values * 4'000, OpeningReadsAtMost(Options()));
  const uint64_t read = BytesReadByOpening();
  EXPECT_LE(read, OpeningReadsAtMost(Options()));
  EXPECT_GT(host_.store().metrics().recovered_changes, 0u) << "there was something to read";
}

TEST_F(LsmBoundsTest, OfSmallPairsAnOpeningReadsTheLogAlone) {
  PutMore(Amount{40'000, 100'000, 1'000'000}, 100);
  const uint64_t read = BytesReadByOpening();
  EXPECT_LE(read, 2 * Options().memtable_bytes + 3 * kSegmentBytes);
  EXPECT_GT(host_.store().metrics().recovered_changes, 0u);
}

TEST_F(LsmBoundsTest, OfAStoreWithNothingInMemoryAnOpeningReadsNoValues) {
  PutMore(5'000, 4'000);
  FlushAll();
  EXPECT_LE(BytesReadByOpening(), 3 * kSegmentBytes);
  EXPECT_EQ(host_.store().metrics().recovered_changes, 0u);
}

TEST_F(LsmBoundsTest, WhatIsKnownOfTablesIsInTheBudgetOfTheCache) {
  const BlockCache& cache = host_.store().cache();
  EXPECT_EQ(cache.reserved(), 0u);
  PutMore(4'000, 3'000);
  FlushAll();
  const auto known = [&] {
    uint64_t bytes = 0;
    for (const index::lsm::Run& run : host_.store().version()->runs) {
      for (const auto& table : run.tables) {
        bytes += 2 * table.file->info().description_bytes() + table.file->info().dictionary_bytes();
      }
    }
    return bytes;
  };
  Await([&] { return cache.reserved() >= known(); });
  EXPECT_EQ(cache.over_reserved(), 0u);
  EXPECT_LT(cache.reserved(), 200'000u);
  BytesReadByOpening();
  EXPECT_GT(host_.store().cache().reserved(), 0u) << "from the opening on";
}

// Of any number and length, for which no other bound is. Two fresh runs are not merged.
TEST_F(LsmBoundsTest, TheCacheGivesWayForRangeDeletesDownToAQuarter) {
  const BlockCache& cache = host_.store().cache();
  PutMore(4'000, 100);
  FlushAll();
  for (uint64_t number = 0; number < 700; ++number) {
    dsm::OpContext op{*worker_, counts_};
    const std::string start = Key(number) + std::string(400, 's'), end = start + "t";
    const Status done = worker_->Run(host_.store().DeleteRange(op, start, end));
    ASSERT_TRUE(done.ok()) << done;
  }
  FlushAll();
  ASSERT_GT(cache.reserved(), uint64_t{700} * 4 * 400);  // two keys, twice
  EXPECT_EQ(cache.over_reserved(), cache.reserved() - cache.bytes_max() * 3 / 4);
  for (uint64_t number = 0; number < put_; ++number) {
    dsm::OpContext op{*worker_, counts_};
    std::string value;
    const std::string key = Key(number);
    const auto found = worker_->Run(host_.store().Get(op, key, &value));
    ASSERT_TRUE(found.ok() && *found) << key;
  }
  EXPECT_GT(cache.bytes(), 0u);
  EXPECT_LE(cache.bytes(), cache.bytes_max() / BlockCache::kBlocksShareMin);
}

}  // namespace
}  // namespace farleaf::test
