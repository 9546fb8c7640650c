// Snapshots of the LSM store, on threads: what they see stays together and stays as it was, and what is kept for them goes with them.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/random.h"
#include "index/lsm/snapshot.h"
#include "test/support/lsm_host.h"
#include "test/support/test_scale.h"

namespace farleaf::test {
namespace {

using index::KeyValue;
using index::ScanDirection;
using index::ScanRange;
using index::lsm::Change;
using index::lsm::ChangeKind;
using index::lsm::Snapshot;
using index::lsm::SnapshotIterator;

std::string Get(dsm::Worker& worker, LsmHost& host, const Snapshot& snapshot,
                const std::string& key) {
  dsm::FabricCounts counts;
  dsm::OpContext op{worker, counts};
  std::string value;
  auto found = worker.Run(host.store().GetAt(op, snapshot, key, &value));
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() && *found ? value : "none";
}

void Put(dsm::Worker& worker, LsmHost& host, const std::string& key, const std::string& value) {
  dsm::FabricCounts counts;
  dsm::OpContext op{worker, counts};
  auto put = worker.Run(host.index(0).Put(op, key, value));
  ASSERT_TRUE(put.ok()) << put.status();
}

TEST(LsmSnapshotThreadsTest, WhatIsWrittenTogetherIsSeenTogetherAndStays) {
  LsmHost host({.store = LsmHost::SmallStore(), .flush_every_us = 1000});
  constexpr uint64_t kPairs = 50;
  std::atomic<bool> ended{false};
  std::vector<std::thread> writers;
  for (uint64_t number = 0; number < 2; ++number) {
    writers.emplace_back([&, number] {
      auto worker = host.OpenWorker();
      Random random(number + 1);
      for (uint64_t i = 0; !ended; ++i) {
        const std::string pair = std::to_string(random.Below(kPairs));
        const std::string left = "a" + pair, right = "b" + pair;
        const std::string value = std::to_string(i) + std::string(random.OneIn(4) ? 400 : 20, 'v');
        const std::vector<Change> changes = {
            {.kind = ChangeKind::kPut, .key = left, .value = value},
            {.kind = ChangeKind::kPut, .key = right, .value = value}};
        dsm::FabricCounts counts;
        dsm::OpContext op{*worker, counts};
        const Status written = worker->Run(host.store().Write(op, changes));
        EXPECT_TRUE(written.ok()) << written;
      }
    });
  }
  {
    auto worker = host.OpenWorker();
    Random random(7);
    for (uint64_t i = 0; i < Amount{100, 400, 10'000} && !::testing::Test::HasFailure(); ++i) {
      const Snapshot snapshot = host.store().TakeSnapshot();
      const std::string pair = std::to_string(random.Below(kPairs));
      const std::string left = Get(*worker, host, snapshot, "a" + pair);
      std::this_thread::sleep_for(std::chrono::microseconds(random.Below(3000)));
      EXPECT_EQ(Get(*worker, host, snapshot, "b" + pair), left) << pair;
      EXPECT_EQ(Get(*worker, host, snapshot, "a" + pair), left) << pair;
      dsm::FabricCounts counts;
      dsm::OpContext op{*worker, counts};
      std::vector<KeyValue> rows;
      const Status scanned =
          worker->Run(host.store().ScanAt(op, snapshot, ScanRange{.start = {}}, &rows));
      ASSERT_TRUE(scanned.ok()) << scanned;
      ASSERT_EQ(rows.size() % 2, 0u);
      for (size_t row = 0; row < rows.size() / 2; ++row) {
        const KeyValue &one = rows[row], &other = rows[row + rows.size() / 2];
        EXPECT_EQ(one.key.substr(1), other.key.substr(1));
        EXPECT_EQ(one.value, other.value) << one.key;
      }
    }
    ended = true;
    for (std::thread& writer : writers) writer.join();
  }
  EXPECT_EQ(host.store().snapshot_metrics().open, 0u);
}

TEST(LsmSnapshotSpaceTest, CollectedValuesAreHeldForASnapshotAndGoWithIt) {
  LsmHost host({LsmHost::SmallStore()});
  auto worker = host.OpenWorker();
  constexpr uint64_t kKeys = 1000, kValueBytes = 4000;
  const auto key = [](uint64_t number) { return "key" + std::to_string(10'000 + number); };
  const auto value = [](uint64_t number, uint64_t version) {
    return std::to_string(number) + std::string(kValueBytes, static_cast<char>('a' + version % 26));
  };
  for (uint64_t number = 0; number < kKeys; ++number)
    Put(*worker, host, key(number), value(number, 0));
  Snapshot snapshot = host.store().TakeSnapshot();
  EXPECT_EQ(snapshot.sequence(), kKeys);
  std::optional<SnapshotIterator> iterator(std::in_place, &host.store(), snapshot);
  iterator->SeekBefore(std::nullopt);
  host.store().CompactEagerly(true);
  uint64_t version = 0;
  for (int waited_ms = 0; host.store().snapshot_metrics().segments_held == 0;) {
    ++version;
    for (uint64_t number = 0; number < kKeys; ++number) {
      Put(*worker, host, key(number), value(number, version));
    }
    worker->GoOnline();
    host.store().FlushSoon();
    worker->GoOffline();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_LT(waited_ms += 10, 60'000);
  }
  for (uint64_t number = 0; number < kKeys; number += 37) {
    ASSERT_EQ(Get(*worker, host, snapshot, key(number)), value(number, 0));
  }
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker, counts};
  for (uint64_t number = kKeys; number-- > 0;) {
    auto another = worker->Run(iterator->Next(op));
    ASSERT_TRUE(another.ok() && *another) << number;
    ASSERT_EQ(iterator->row().key, key(number));
    ASSERT_EQ(iterator->row().value, value(number, 0));
  }
  auto another = worker->Run(iterator->Next(op));
  EXPECT_TRUE(another.ok() && !*another);
  EXPECT_EQ(host.store().snapshot_metrics().open, 1u);
  EXPECT_EQ(host.store().snapshot_metrics().oldest, kKeys);
  snapshot = {};
  EXPECT_EQ(host.store().snapshot_metrics().open, 1u) << "the iterator holds it";
  iterator.emplace(&host.store(), host.store().TakeSnapshot());
  EXPECT_GT(host.store().snapshot_metrics().oldest, kKeys);
  iterator.reset();  // what is collected from here on would wait for it
  // Views that were let go are freed by whoever passes by.
  for (int waited_ms = 0; host.store().snapshot_metrics().segments_held > 0; ++waited_ms) {
    Put(*worker, host, "more", std::to_string(waited_ms));
    worker->GoOnline();
    host.store().FlushSoon();
    worker->GoOffline();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_LT(waited_ms, 60'000);
  }
}

}  // namespace
}  // namespace farleaf::test
