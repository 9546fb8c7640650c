// The LSM store as a whole: levels that turn over, snapshots of scans, reopening.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/random.h"
#include "test/support/lsm_host.h"
#include "test/support/noted_changes.h"
#include "test/support/test_scale.h"

namespace farleaf::test {
namespace {

using index::KeyValue;
using index::ScanRange;
using index::lsm::Change;
using index::lsm::ChangeKind;

class LsmStoreTest : public ::testing::Test {
 protected:
  std::string Key(uint64_t number) {
    char key[24];
    std::snprintf(key, sizeof key, "key%09llu", static_cast<unsigned long long>(number));
    return key;
  }
  std::string Value(uint64_t number, uint64_t version) {
    Random random(number * 1000 + version);
    const size_t bytes = number % 5 == 0 ? 700 : 30;
    std::string value = std::to_string(number) + "." + std::to_string(version) + ".";
    while (value.size() < bytes) value.push_back(static_cast<char>('a' + random.Below(26)));
    return value;
  }
  void OpenWorker() { worker_ = host_.OpenWorker(); }
  dsm::OpContext Op() { return {*worker_, counts_}; }
  void Put(const std::string& key, const std::string& value) {
    dsm::OpContext op = Op();
    auto put = worker_->Run(host_.index(0).Put(op, key, value));
    ASSERT_TRUE(put.ok()) << put.status();
    ASSERT_EQ(*put, !model_.contains(key)) << key;
    model_[key] = value;
  }
  void Delete(const std::string& key) {
    dsm::OpContext op = Op();
    auto deleted = worker_->Run(host_.index(0).Delete(op, key));
    ASSERT_TRUE(deleted.ok()) << deleted.status();
    ASSERT_EQ(*deleted, model_.erase(key) == 1) << key;
  }
  void ExpectGet(const std::string& key) {
    dsm::OpContext op = Op();
    std::string value;
    auto found = worker_->Run(host_.index(0).Get(op, key, &value));
    ASSERT_TRUE(found.ok()) << found.status();
    const auto at = model_.find(key);
    ASSERT_EQ(*found, at != model_.end()) << key;
    if (*found) {
      ASSERT_EQ(value, at->second) << key;
    }
  }
  void ExpectAll(index::ScanDirection direction) {
    dsm::OpContext op = Op();
    std::vector<KeyValue> rows;
    Status scanned = worker_->Run(
        host_.index(0).Scan(op, ScanRange{.start = {}, .direction = direction}, &rows));
    ASSERT_TRUE(scanned.ok()) << scanned;
    std::vector<KeyValue> expected;
    for (const auto& [key, value] : model_) expected.push_back({key, value});
    if (direction == index::ScanDirection::kReverse) std::reverse(expected.begin(), expected.end());
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i], expected[i]) << i;
  }

  void FlushSoon() {
    worker_->GoOnline();
    host_.store().FlushSoon();
    worker_->GoOffline();
  }
  Status Write(const std::vector<Change>& changes) {
    dsm::OpContext op = Op();
    return worker_->Run(host_.store().Write(op, changes));
  }
  void Reopen() {
    worker_ = nullptr;
    host_.Close();
    host_.Open();
    OpenWorker();
  }
  static dsm::Task<void> CountTurns(dsm::Worker& worker, uint64_t* turns, const bool* ended) {
    while (!*ended) {
      ++*turns;
      co_await worker.Sleep(0);
    }
  }

  LsmHost host_{{LsmHost::SmallStore()}};
  std::unique_ptr<dsm::Worker> worker_;
  dsm::FabricCounts counts_;
  std::map<std::string, std::string> model_;
};

TEST_F(LsmStoreTest, WhatWasPutIsFoundThroughManyFlushesAndCompactions) {
  OpenWorker();
  host_.store().CompactEagerly(true);
  Random random(1);
  constexpr uint64_t kKeys = 4'000;
  for (uint64_t i = 0; i < 15'000; ++i) {
    const uint64_t number = random.Below(kKeys);
    if (random.Below(10) == 0) {
      Delete(Key(number));
    } else {
      Put(Key(number), Value(number, i));
    }
    if (i % 400 == 0) FlushSoon();
    if (HasFatalFailure()) return;
  }
  for (uint64_t number = 0; number < kKeys; ++number) {
    ExpectGet(Key(number));
    if (HasFatalFailure()) return;
  }
  ExpectAll(index::ScanDirection::kForward);
  ExpectAll(index::ScanDirection::kReverse);
  Reopen();
  ExpectAll(index::ScanDirection::kForward);
  for (uint64_t number = 0; number < kKeys; number += 7) ExpectGet(Key(number));
  worker_ = nullptr;
}

TEST_F(LsmStoreTest, RangesMayBeDeletedInAnyNumber) {
  OpenWorker();
  for (uint64_t number = 0; number < 3000; ++number) Put(Key(number), Value(number, 0));
  FlushSoon();
  Random random(3);
  for (int round = 0; round < 40; ++round) {
    std::vector<Change> changes;
    std::vector<std::pair<std::string, std::string>> bounds;
    for (int i = 0; i < 200; ++i) {
      const uint64_t start = random.Below(3000);
      bounds.emplace_back(Key(start), Key(start + 1 + random.Below(3)));
    }
    for (const auto& [start, end] : bounds) {
      changes.push_back({.kind = ChangeKind::kDeleteRange, .key = start, .end = end});
      model_.erase(model_.lower_bound(start), model_.lower_bound(end));
    }
    const Status written = Write(changes);
    ASSERT_TRUE(written.ok()) << written;
    for (int i = 0; i < 60; ++i) {
      const uint64_t number = random.Below(3000);
      Put(Key(number), Value(number, 1 + static_cast<uint64_t>(round)));
    }
    for (int i = 0; i < 20; ++i) ExpectGet(Key(random.Below(3000)));
    if (round % 9 == 0) FlushSoon();
    if (round % 10 == 5) ExpectAll(index::ScanDirection::kForward);
    if (HasFatalFailure()) return;
  }
  Reopen();
  ExpectAll(index::ScanDirection::kForward);
  host_.store().CompactEagerly(true);
  FlushSoon();
  ExpectAll(index::ScanDirection::kReverse);
  worker_ = nullptr;
}

TEST_F(LsmStoreTest, ABatchIsLookedAtAsAWholeBeforeAnyOfItIsDone) {
  OpenWorker();
  const std::string large(900'000, 'v'), inline_value(200, 'i');
  EXPECT_TRUE(Write({}).ok());
  const std::vector<std::vector<Change>> refused = {
      {{.kind = ChangeKind::kPut, .key = "a", .value = large},
       {.kind = ChangeKind::kPut, .key = ""}},
      {{.kind = ChangeKind::kPut, .key = "a"}, {.kind = ChangeKind::kPutPointer, .key = "b"}},
      {{.kind = ChangeKind::kPut, .key = "a"},
       {.kind = ChangeKind::kDeleteRange, .key = "c", .end = "c"}},
      {{.kind = ChangeKind::kPut, .key = "a"},
       {.kind = ChangeKind::kDelete, .key = "b", .expires_ms = 7}},
      std::vector<Change>(20'000, {.kind = ChangeKind::kPut, .key = "a", .value = inline_value}),
  };
  for (const std::vector<Change>& changes : refused) {
    const uint64_t written = host_.storage().counts().bytes_written;
    EXPECT_EQ(Write(changes).code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(host_.storage().counts().bytes_written, written);
  }
  ExpectAll(index::ScanDirection::kForward);
  // Large values are counted where they are stored.
  const std::vector<Change> fits(4, {.kind = ChangeKind::kPut, .key = "a", .value = large});
  EXPECT_TRUE(Write(fits).ok());
  model_["a"] = large;
  Reopen();
  ExpectAll(index::ScanDirection::kForward);
  worker_ = nullptr;
}

struct ChangesTogetherTest : LsmStoreTest {
  using CurrentValue = index::CurrentValue;
  static LsmHost::Options Synced() {
    LsmHost::Options options{LsmHost::SmallStore()};
    options.store.durability = index::lsm::Durability::kSynced;
    return options;
  }
  size_t Run(const std::vector<std::string>& keys, NotedChanges& changes,
             CurrentValue use = CurrentValue::kRead) {
    const std::vector<std::string_view> views(keys.begin(), keys.end());
    dsm::OpContext op{*worker_, counts_};
    return worker_->Run(synced_.store().ModifyTogether(op, views, use, changes));
  }
  std::optional<std::string> Get(const std::string& key) {
    dsm::OpContext op{*worker_, counts_};
    std::string value;
    const auto found = worker_->Run(synced_.store().Get(op, key, &value));
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() && *found ? std::optional(value) : std::nullopt;
  }
  uint64_t rounds() { return synced_.storage().counts().syncs; }

  LsmHost synced_{Synced()};
};

TEST_F(ChangesTogetherTest, AreMadeInTheirOrderAndSyncedOnce) {
  worker_ = synced_.OpenWorker();
  NotedChanges first({"1"});
  const uint64_t before_first = rounds();
  ASSERT_EQ(Run({"a"}, first), 1u);
  const uint64_t of_one = rounds() - before_first;
  ASSERT_GT(of_one, 0u);

  const std::string large(700, 'v');
  std::vector<std::string> keys;
  NotedChanges::Wanted wanted;
  for (int i = 0; i < 60; ++i) {
    keys.push_back("k" + std::to_string(i));
    wanted.push_back(i % 7 == 0 ? large : std::to_string(i));
  }
  // What is named twice has what came last; each sees what those before it have left.
  keys.insert(keys.end(), {"a", "k1", "a", "absent", "a"});
  wanted.insert(wanted.end(), {"2", "again", std::nullopt, std::nullopt, "3"});
  NotedChanges many(wanted);
  const uint64_t before = rounds();
  ASSERT_EQ(Run(keys, many), keys.size());
  // One for each log: the values' is synced, too, where there are values.
  EXPECT_LE(rounds() - before, of_one + 1);
  ASSERT_EQ(many.done.size(), keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(many.decided[i], i);
    EXPECT_EQ(many.done[i], i);
    EXPECT_TRUE(many.results[i].ok()) << many.results[i].status();
  }
  EXPECT_EQ(many.found[60], "1");
  EXPECT_EQ(many.found[62], "2");
  EXPECT_EQ(many.found[64], std::nullopt);
  EXPECT_TRUE(many.results[62]->existed);
  EXPECT_FALSE(many.results[63]->existed);
  EXPECT_FALSE(many.results[64]->existed);
  EXPECT_EQ(Get("a"), "3");
  EXPECT_EQ(Get("k1"), "again");
  EXPECT_EQ(Get("k7"), large);
  EXPECT_EQ(Get("absent"), std::nullopt);
  worker_ = nullptr;
}

TEST_F(ChangesTogetherTest, EndBeforeOneThatCannotBeMade) {
  worker_ = synced_.OpenWorker();
  NotedChanges refused({"1", "2", std::string(index::lsm::kValueBytesMax + 1, 'v'), "4"});
  EXPECT_EQ(Run({"a", "b", "c", "d"}, refused), 2u);
  EXPECT_EQ(refused.done, (std::vector<size_t>{0, 1}));
  EXPECT_TRUE(refused.results[1].ok());
  EXPECT_EQ(Get("b"), "2");
  EXPECT_EQ(Get("d"), std::nullopt);
  NotedChanges wrong({"1", "2"});
  EXPECT_EQ(Run({"", "b"}, wrong), 0u);
  EXPECT_TRUE(wrong.done.empty());
  worker_ = nullptr;
}

TEST_F(ChangesTogetherTest, AreAllInDoubtWhereTheDeviceDoesNotSync) {
  worker_ = synced_.OpenWorker();
  NotedChanges first({"1"});
  ASSERT_EQ(Run({"a"}, first), 1u);
  synced_.storage().fail = [](const MemoryStorage::Io& io) {
    return io.kind == MemoryStorage::IoKind::kSync ? Status::IoError("no sync") : Status::Ok();
  };
  NotedChanges lost({"2", "3", "4"});
  EXPECT_EQ(Run({"a", "b", "a"}, lost), 3u);
  ASSERT_EQ(lost.results.size(), 3u);
  for (const auto& result : lost.results) {
    EXPECT_EQ(result.status().code(), StatusCode::kUnknown) << result.status();
  }
  synced_.storage().fail = nullptr;
  worker_ = nullptr;
}

// If a range delete does not exclude read-modify-writes, one of them may look at what was there before, and write behind it.
TEST_F(LsmStoreTest, ARangeDeleteIsInFrontOfAReadModifyWriteOrBehindIt) {
  std::atomic<uint64_t> absent{0}, rounds{0};
  std::atomic<bool> ended{false};
  std::thread counter([&] {
    auto worker = host_.OpenWorker();
    dsm::FabricCounts counts;
    while (!ended) {
      dsm::OpContext op{*worker, counts};
      auto put = worker->Run(host_.index(0).Put(op, "counter", "1"));
      ASSERT_TRUE(put.ok()) << put.status();
      absent += *put;
      ++rounds;
    }
  });
  OpenWorker();
  uint64_t deletes = 0;
  for (; deletes < 300; ++deletes) {
    const uint64_t before = rounds;
    while (rounds < before + 2) std::this_thread::yield();
    ASSERT_TRUE(Write({{.kind = ChangeKind::kDeleteRange, .key = "a", .end = "z"}}).ok());
  }
  const uint64_t before = rounds;
  while (rounds < before + 2) std::this_thread::yield();
  ended = true;
  counter.join();
  EXPECT_EQ(absent, deletes + 1) << "each delete is seen once, and the first put";
  worker_ = nullptr;
}

TEST_F(LsmStoreTest, AFullDiskIsWritableAgainOnceThereIsSpace) {
  const auto full = std::make_shared<std::atomic<bool>>(false);  // the host outlives the test
  host_.storage().fail = [full](const index::storage::Io& io) {
    const bool fails = *full && io.kind == index::storage::IoKind::kWrite;
    return fails ? Status::ResourceExhausted("no space left on device") : Status::Ok();
  };
  OpenWorker();
  for (uint64_t i = 0; i < 1000; ++i) Put(Key(i), Value(i, 0));
  *full = true;
  FlushSoon();
  Status failed;
  for (uint64_t i = 1000; i < 400'000 && failed.ok(); ++i) {
    dsm::OpContext op = Op();
    const std::string key = Key(i), value = Value(i, 0);
    auto put = worker_->Run(host_.index(0).Put(op, key, value));
    failed = put.status();
    if (failed.ok()) model_[key] = value;
  }
  EXPECT_EQ(failed.code(), StatusCode::kResourceExhausted) << failed;
  for (uint64_t i = 0; i < 1000; ++i) ExpectGet(Key(i));
  *full = false;
  const std::string value = Value(1, 1);
  for (;;) {  // the test's timeout bounds it
    dsm::OpContext op = Op();
    auto put = worker_->Run(host_.index(0).Put(op, Key(1), value));
    if (put.ok()) break;
    ASSERT_EQ(put.status().code(), StatusCode::kResourceExhausted) << put.status();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  model_[Key(1)] = value;
  for (;;) {
    dsm::OpContext op = Op();
    if (worker_->Run(host_.index(0).Upkeep(op)).ok()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ExpectAll(index::ScanDirection::kForward);
  worker_ = nullptr;
}

// Nothing takes the memtable: whoever waits for room in it ends with the store.
TEST_F(LsmStoreTest, WritersThatWaitEndWhenTheStoreStops) {
  OpenWorker();
  host_.StopBackground();
  FlushSoon();
  Status failed;
  for (uint64_t i = 0; i < 400'000 && failed.ok(); ++i) {
    if (i == 1) FlushSoon();
    dsm::OpContext op = Op();
    failed = worker_->Run(host_.index(0).Put(op, Key(i), Value(i, 0))).status();
  }
  EXPECT_EQ(failed.code(), StatusCode::kUnavailable) << failed;
  worker_ = nullptr;
}

TEST_F(LsmStoreTest, AScanLetsOthersRun) {
  OpenWorker();
  for (uint64_t number = 0; number < 5000; ++number) Put(Key(number), "v");
  ASSERT_TRUE(Write({{.kind = ChangeKind::kDeleteRange, .key = Key(1000), .end = Key(4000)}}).ok());
  for (uint64_t number = 1000; number < 4000; ++number) model_.erase(Key(number));
  uint64_t turns = 0;
  bool ended = false;
  worker_->Spawn(CountTurns(*worker_, &turns, &ended));
  ExpectAll(index::ScanDirection::kForward);
  EXPECT_GE(turns, 5u);
  turns = 0;
  ExpectAll(index::ScanDirection::kReverse);
  EXPECT_GE(turns, 5u);
  ended = true;
  worker_->RunUntilIdle();
  worker_ = nullptr;
}

TEST_F(LsmStoreTest, ASegmentThatIsMissingIsNamed) {
  OpenWorker();
  for (uint64_t number = 0; number < 500; ++number) Put(Key(number), Value(number, 0));
  FlushSoon();
  while (!host_.store().Quiet()) std::this_thread::yield();
  index::storage::SegmentId values{}, leaves{};
  worker_->GoOnline();
  const auto version = host_.store().version();
  for (const auto& table : version->runs.front().tables) {
    leaves = table.file->info().segments.front();
    if (!table.file->info().dictionary.empty()) {
      values = table.file->info().dictionary.front().segment;
    }
  }
  worker_->GoOffline();
  worker_ = nullptr;
  host_.Close();
  for (const auto segment : {values, leaves}) {
    const std::vector<std::byte> kept = host_.storage().bytes(segment);
    ASSERT_TRUE(host_.storage().Remove(segment).ok());
    const Status opened = host_.TryOpen();
    EXPECT_EQ(opened.code(), StatusCode::kCorruption) << opened;
    EXPECT_NE(opened.message().find(host_.storage().NameOf(segment)), std::string_view::npos);
    worker_ = host_.OpenWorker();
    ASSERT_TRUE(
        worker_->Run(host_.storage().Create(*worker_, segment, index::storage::Making{})).ok());
    worker_ = nullptr;
    host_.storage().bytes(segment) = kept;
  }
  host_.Open();
  OpenWorker();
  ExpectAll(index::ScanDirection::kForward);
  worker_ = nullptr;
}

// Tables are cut, and the merge that is begun anew finds what the one before has left.
TEST_F(LsmStoreTest, AMergeThatIsInterruptedAgainAndAgainLosesNothing) {
  OpenWorker();
  Random random(5);
  const uint64_t keys = Amount{20'000, 30'000, 400'000};
  const std::string filler(150, 'f');
  uint64_t version = 0;
  for (uint64_t number = 0; number < keys; ++number) Put(Key(number), filler + Key(number));
  uint64_t cuts = 0;
  for (uint64_t round = 0; round < Amount{5, 12, 300}; ++round) {
    host_.store().CompactEagerly(true);
    for (int i = 0; i < 1500; ++i) {
      const uint64_t number = random.Below(keys);
      if (random.OneIn(20)) {
        Delete(Key(number));
      } else {
        Put(Key(number), filler + std::to_string(++version));
      }
      if (HasFatalFailure()) return;
    }
    FlushSoon();
    std::this_thread::sleep_for(std::chrono::microseconds(random.Below(120'000)));
    worker_->GoOnline();
    const auto tables_now = host_.store().version();
    for (const auto& run : tables_now->runs) {
      for (const auto& table : run.tables) cuts += !table.from.empty();
    }
    worker_->GoOffline();
    Reopen();
    ExpectAll(round % 2 == 0 ? index::ScanDirection::kForward : index::ScanDirection::kReverse);
    if (HasFatalFailure()) return;
  }
  RecordProperty("cuts", std::to_string(cuts));
  worker_ = nullptr;
}

// Each thread has keys of its own, so that it knows what each operation must say; what turns over beneath is common.
class Hammer {
 public:
  explicit Hammer(uint64_t part) : part_(part), random_(part + 1) {}

  void Run(LsmHost& host, uint64_t steps) {
    auto worker = host.OpenWorker();
    for (uint64_t i = 0; i < steps && !::testing::Test::HasFailure(); ++i) {
      Step(*worker, host.index(0), i);
    }
  }

 private:
  void Step(dsm::Worker& worker, index::RangeIndex& store, uint64_t step) {
    dsm::OpContext op{worker, counts_};
    const std::string key = std::to_string(random_.Below(4000)) + "." + std::to_string(part_);
    const bool there = model_.contains(key);
    const uint64_t what = random_.Below(20);
    std::string value;
    if (what == 0) {
      auto deleted = worker.Run(store.Delete(op, key));
      EXPECT_TRUE(deleted.ok() && *deleted == there) << "Delete " << key << ", step " << step;
      model_.erase(key);
    } else if (what < 12) {
      const size_t bytes = random_.OneIn(10) ? 400 : 100;
      value = key + "/" + std::to_string(step) + std::string(bytes, 'v');
      auto put = worker.Run(store.Put(op, key, value));
      EXPECT_TRUE(put.ok() && *put != there) << "Put " << key << ", step " << step;
      model_[key] = value;
    } else {
      auto got = worker.Run(store.Get(op, key, &value));
      EXPECT_TRUE(got.ok() && *got == there) << "Get " << key << ", step " << step;
      if (there) {
        EXPECT_EQ(value, model_[key]) << "Get " << key << ", step " << step;
      }
    }
  }

  const uint64_t part_;
  Random random_;
  dsm::FabricCounts counts_;
  std::map<std::string, std::string> model_;
};

class LsmStoreStressTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(LsmStoreStressTest, NothingIsLostOrComesBackWhileLevelsTurnOver) {
  LsmHost::Options options{.store = LsmHost::SmallStore(), .flush_every_us = 2000};
  options.io_delay_ns = GetParam();
  LsmHost host(options);
  std::vector<Hammer> hammers;
  for (uint64_t part = 0; part < 3; ++part) hammers.emplace_back(part);
  for (int round = 0; round < 4; ++round) {
    std::vector<std::thread> threads;
    for (Hammer& hammer : hammers) {
      threads.emplace_back([&] { hammer.Run(host, Amount{500, 4000, 100'000}); });
    }
    for (std::thread& thread : threads) thread.join();
    // In the middle of whatever flush and compaction there are.
    host.Close();
    host.Open();
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LsmStoreStressTest, ::testing::Values(0, 20'000));

}  // namespace
}  // namespace farleaf::test
