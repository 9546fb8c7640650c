// A store of which flushes go on and merges do not: reads see all of many fresh runs, writers are slowed down and in the end refused,
// and all goes on when merges do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "index/lsm/store.h"
#include "index/storage/sim_storage.h"
#include "test/support/interleaved_workers.h"
#include "test/support/test_scale.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Worker;

class LsmFreshRunsTest : public ::testing::Test {
 protected:
  explicit LsmFreshRunsTest(uint64_t io_ns_min = 1'000, uint64_t io_ns_max = 200'000)
      : storage_({.seed = 3,
                  .clock = &workers_.clock(),
                  .io_ns_min = io_ns_min,
                  .io_ns_max = io_ns_max}) {
    options_.memtable_bytes = uint64_t{1} << 20;
    options_.cache_bytes = uint64_t{1} << 20;
    options_.growth_factor = 4;
    options_.table_bytes_max = uint64_t{4} << 20;
    options_.value_separation_bytes = 256;
    Open();
  }
  ~LsmFreshRunsTest() override { Stop(); }

  void Open() {
    auto opened =
        Run(LsmStore::Open(workers_[0], {&storage_, &workers_.epochs(), &workers_.clock(), 1},
                           options_, LsmStore::IfMissing::kCreate));
    FARLEAF_CHECK(opened.ok(), opened.status());
    store_ = std::move(*opened);
    workers_[1].Spawn(store_->RunLogs(workers_[1]));
    workers_[1].Spawn(store_->RunFlushes(workers_[1]));
  }
  void BeginMerges() { workers_[2].Spawn(store_->RunCompactions(workers_[2])); }
  void Stop() {
    store_->Stop();
    ASSERT_EQ(workers_.RunAll(), test::InterleavedWorkers::RunEnd::kDone);
    const Status closed = Run(store_->Close(workers_[0]));
    EXPECT_TRUE(closed.ok()) << closed;
    store_ = nullptr;
  }
  void Reopen() {
    Stop();
    Open();
  }

  /// The others have their turns meanwhile.
  template <typename T>
  T Run(dsm::Task<T> task) {
    std::optional<T> result;
    workers_[0].Spawn(Await(std::move(task), &result));
    const auto end = workers_.RunWhile([&] { return !result; });
    FARLEAF_CHECK(end == test::InterleavedWorkers::RunEnd::kDone, "nothing goes on");
    return std::move(*result);
  }
  template <typename T>
  static dsm::Task<void> Await(dsm::Task<T> task, std::optional<T>* result) {
    T done = co_await std::move(task);
    *result = std::move(done);
  }

  OpContext Op() { return {workers_[0], counts_, deadline_ns_}; }
  Status Put(const std::string& key, const std::string& value) {
    OpContext op = Op();
    auto put = Run(store_->Put(op, key, value));
    if (put.ok()) {
      EXPECT_EQ(*put, !model_.contains(key)) << key;
      model_[key] = value;
    }
    return put.status();
  }
  /// Of 200 bytes that hardly compress: one of each `stride` keys.
  void PutMany(uint64_t first, uint64_t count, uint64_t stride = 1) {
    for (uint64_t done = 0; done < count;) {
      std::vector<std::string> keys, values;
      for (; keys.size() < 200 && done < count; ++done) {
        keys.push_back(Key(first + done * stride + random_.Below(stride)));
        std::string& value = values.emplace_back();
        while (value.size() < 200) value.push_back(static_cast<char>(random_.Below(256)));
        model_[keys.back()] = value;
      }
      std::vector<Change> changes;
      for (size_t i = 0; i < keys.size(); ++i) {
        changes.push_back({.kind = ChangeKind::kPut, .key = keys[i], .value = values[i]});
      }
      OpContext op = Op();
      const Status put = Run(store_->Write(op, changes));
      ASSERT_TRUE(put.ok()) << put;
    }
  }
  void DeleteRange(const std::string& start, const std::string& end) {
    OpContext op = Op();
    const std::vector<Change> changes = {
        {.kind = ChangeKind::kDeleteRange, .key = start, .end = end}};
    const Status deleted = Run(store_->Write(op, changes));
    ASSERT_TRUE(deleted.ok()) << deleted;
    model_.erase(model_.lower_bound(start), model_.lower_bound(end));
  }
  void Delete(const std::string& key) {
    OpContext op = Op();
    auto deleted = Run(store_->Delete(op, key));
    ASSERT_TRUE(deleted.ok()) << deleted.status();
    EXPECT_EQ(*deleted, model_.erase(key) == 1) << key;
  }
  void Flush() {
    workers_[0].GoOnline();
    store_->FlushSoon();
    workers_[0].GoOffline();
    const auto goes_on = [&] {
      const LsmStore::Memtables now = store_->memtables();
      return now.flushing_bytes || !now.active_empty;
    };
    ASSERT_EQ(workers_.RunWhile(goes_on), test::InterleavedWorkers::RunEnd::kDone);
  }
  void AwaitQuiet() {
    ASSERT_EQ(workers_.RunWhile([&] { return !store_->Quiet(); }),
              test::InterleavedWorkers::RunEnd::kDone);
  }
  std::shared_ptr<const Version> VersionNow() {
    workers_[0].GoOnline();
    auto version = store_->version();
    workers_[0].GoOffline();
    return version;
  }
  size_t FreshRuns() { return VersionNow()->fresh; }
  StoreState State() { return Run(StateOf(store_.get(), workers_[0])); }
  static dsm::Task<StoreState> StateOf(LsmStore* store, Worker& worker) {
    StoreState state = co_await store->State(worker);
    co_return state;
  }
  static std::string Key(uint64_t number) { return "key" + std::to_string(10'000 + number); }

  void ExpectAll() {
    for (const auto direction : {ScanDirection::kForward, ScanDirection::kReverse}) {
      for (const auto& [start, end] :
           {std::pair<std::string, std::string>{"", "z"}, std::pair{Key(130), Key(420)}}) {
        OpContext op = Op();
        std::vector<KeyValue> rows, expected;
        const Status scanned =
            Run(store_->Scan(op, {.start = start, .end = end, .direction = direction}, &rows));
        ASSERT_TRUE(scanned.ok()) << scanned;
        for (auto at = model_.lower_bound(start); at != model_.lower_bound(end); ++at) {
          expected.push_back({at->first, at->second});
        }
        if (direction == ScanDirection::kReverse) std::reverse(expected.begin(), expected.end());
        ASSERT_EQ(rows, expected);
      }
    }
    for (uint64_t number = 0; number < kKeys; ++number) {
      OpContext op = Op();
      std::string value;
      auto got = Run(store_->Get(op, Key(number), &value));
      ASSERT_TRUE(got.ok()) << got.status();
      const auto at = model_.find(Key(number));
      ASSERT_EQ(*got, at != model_.end()) << Key(number);
      if (*got) {
        ASSERT_EQ(value, at->second) << Key(number);
      }
    }
  }

  /// Changes of all kinds, or at times range deletes alone; then they are a fresh run.
  void ChangeAndFlush(uint64_t round) {
    if (random_.OneIn(6)) {
      DeleteRange(Key(random_.Below(kKeys)), Key(kKeys + random_.Below(9)));
    }
    for (uint64_t n = random_.OneIn(5) ? 0 : 40; n > 0; --n) {
      const std::string key = Key(random_.Below(kKeys));
      if (random_.OneIn(4)) {
        Delete(key);
      } else {
        const std::string filler(random_.OneIn(6) ? 400 : 30, 'f');
        ASSERT_TRUE(Put(key, std::to_string(round) + filler).ok());
      }
      if (random_.OneIn(40)) {
        const uint64_t start = random_.Below(kKeys);
        DeleteRange(Key(start), Key(start + 1 + random_.Below(60)));
      }
    }
    Flush();
  }

  static constexpr uint64_t kKeys = 500;
  LsmOptions options_;
  Random random_{7};
  test::InterleavedWorkers workers_{{.seed = 3, .workers = 3}};
  storage::SimStorage storage_;
  std::unique_ptr<LsmStore> store_;
  dsm::FabricCounts counts_;
  uint64_t deadline_ns_ = UINT64_MAX;
  std::map<std::string, std::string> model_;
};

TEST_F(LsmFreshRunsTest, ReadsSeeWhatTheNewestRunSaysThatKnowsAKey) {
  for (int cycle = 0; cycle < 3; ++cycle) {
    for (uint64_t round = 0; FreshRuns() < 12; ++round) {
      ChangeAndFlush(round);
      if (round % 3 == 0) ExpectAll();
      if (HasFatalFailure()) return;
    }
    ExpectAll();
    Reopen();
    EXPECT_EQ(FreshRuns(), 12u) << "the manifest has them";
    ExpectAll();
    BeginMerges();
    AwaitQuiet();
    EXPECT_EQ(FreshRuns(), 0u) << "all of them are merged at once";
    ExpectAll();
    Reopen();
    ExpectAll();
    if (HasFatalFailure()) return;
  }
}

TEST_F(LsmFreshRunsTest, RunsThatAreFlushedDuringAMergeStayInFrontOfIt) {
  for (uint64_t round = 0; round < 60; ++round) {
    if (round == 3) BeginMerges();
    ChangeAndFlush(round);
    if (round % 7 == 0) ExpectAll();
    if (HasFatalFailure()) return;
  }
  AwaitQuiet();
  EXPECT_LT(FreshRuns(), kFreshMany);
  ExpectAll();
}

TEST_F(LsmFreshRunsTest, AFewOfThemAreMergedOnlyWhenAskedTo) {
  BeginMerges();
  for (uint64_t round = 0; FreshRuns() + 1 < kFreshFew; ++round) {
    ASSERT_TRUE(Put(Key(round), "v").ok());
    Flush();
  }
  AwaitQuiet();
  EXPECT_EQ(FreshRuns() + 1, kFreshFew);
  store_->CompactEagerly(true);
  AwaitQuiet();
  EXPECT_EQ(FreshRuns(), 0u);
  ExpectAll();
}

TEST_F(LsmFreshRunsTest, WithoutMergesWritersAreRefusedAtLastAndNoRunTooManyIsMade) {
  const std::string filler(100, 'f');
  Status refused;
  uint64_t written = 0;
  for (; refused.ok(); ++written) {
    ASSERT_LT(written, 1'000'000u);
    deadline_ns_ = workers_.clock().NowNs() + 10 * kNsPerSecond;
    refused = Put(Key(written % 100'000), filler);
  }
  EXPECT_EQ(refused.code(), StatusCode::kDeadlineExceeded) << refused;
  EXPECT_EQ(FreshRuns(), kFreshMax);
  deadline_ns_ = UINT64_MAX;
  BeginMerges();
  for (uint64_t more = 0; more < 3000; ++more) {
    ASSERT_TRUE(Put(Key((written + more) % 100'000), filler).ok());
  }
  AwaitQuiet();
  EXPECT_LT(FreshRuns(), kFreshMax);
  ExpectAll();
}

// A merge into level 2 has used up a sinking run of low keys with its first table, and has others to write: what is merged into level 1
// meanwhile, of high keys, is not the run that it merges.
TEST_F(LsmFreshRunsTest, ARunThatSinksWhileAMergeEndsIsNotTakenForTheOneThatWasMerged) {
  constexpr uint64_t kMany = 45'000, kFew = 50;
  constexpr RunPlace kSinking{0, RunKind::kSinking};
  PutMany(0, kMany);
  Flush();
  BeginMerges();
  AwaitQuiet();
  const auto run_while = [&](const std::function<bool(const Version&)>& goes_on) {
    ASSERT_EQ(workers_.RunWhile([&] { return goes_on(*store_->version()); }),
              test::InterleavedWorkers::RunEnd::kDone);
  };
  // Level 1 sinks, however small it is; the levels below it only when they are full.
  const auto flush_and_sink = [&](uint64_t first) {
    const bool sinks = !VersionNow()->run({0, RunKind::kGrowing}).empty();
    PutMany(first + random_.Below(500), kFew);
    store_->CompactEagerly(true);
    Flush();
    if (sinks) run_while([](const Version& now) { return now.run(kSinking).empty(); });
    store_->CompactEagerly(false);
    run_while([](const Version& now) { return now.fresh > 0; });
  };
  int sunk_meanwhile = 0;
  const uint64_t rounds = test::Amount{3, 6};
  for (uint64_t round = 0; round < rounds; ++round) {
    flush_and_sink(0);
    AwaitQuiet();
    flush_and_sink(kMany - 1000);
    EXPECT_GT(VersionNow()->run({1, RunKind::kGrowing}).tables.size(), 1u);
    store_->CompactEagerly(true);  // behind the begin of the merge into level 2
    PutMany(kMany - 1000, kFew);
    Flush();
    sunk_meanwhile += !VersionNow()->run(kSinking).empty();
    run_while([](const Version& now) { return !now.run(kSinking).empty(); });
    store_->CompactEagerly(false);
    AwaitQuiet();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(sunk_meanwhile, 0);
  ExpectAll();
}

TEST_F(LsmFreshRunsTest, AFlushThatIsAskedForDuringAnotherOneComesBehindIt) {
  ASSERT_TRUE(Put(Key(1), "v").ok());
  workers_[0].GoOnline();
  store_->FlushSoon();
  workers_[0].GoOffline();
  ASSERT_TRUE(Put(Key(2), "v").ok());
  ASSERT_TRUE(store_->memtables().flushing_bytes);
  workers_[0].GoOnline();
  store_->FlushSoon();
  workers_[0].GoOffline();
  AwaitQuiet();
  EXPECT_TRUE(store_->memtables().active_empty);
  EXPECT_EQ(FreshRuns(), 2u);
}

TEST_F(LsmFreshRunsTest, WhatFlushesOfRangeDeletesWriteSaysNothingOfOthers) {
  while (State().flush_bytes == 0) PutMany(0, 1000);
  PutMany(0, 1);
  Flush();
  const uint64_t before = State().flush_bytes;
  PutMany(0, 1);  // lest nothing be written
  const std::string start = Key(kKeys), end = start + "0";
  const std::vector<Change> changes(512,
                                    {.kind = ChangeKind::kDeleteRange, .key = start, .end = end});
  model_.erase(start);
  for (uint32_t deleted = 0; deleted < Memtable::kRangesFull; deleted += 512) {
    OpContext op = Op();
    ASSERT_TRUE(Run(store_->Write(op, changes)).ok());
  }
  Flush();
  EXPECT_EQ(State().flush_bytes, before);
  ExpectAll();
}

TEST_F(LsmFreshRunsTest, TheManifestCountsWhatIsWrittenForWhatUsersWrite) {
  const auto table_bytes = [](const StoreState& state) {
    uint64_t bytes = 0;
    for (const auto& [place, run] : state.runs()) {
      for (const TableState& each : run->tables)
        bytes += each.table.bytes + each.table.footer_bytes;
    }
    return bytes;
  };
  constexpr uint64_t kInline = 8 + 200, kSeparated = 8 + 1000;
  const std::string large(1000, 'v');
  PutMany(0, 100);
  for (uint64_t number = 0; number < 10; ++number) ASSERT_TRUE(Put(Key(number), large).ok());
  EXPECT_EQ(State().written, WrittenBytes{}) << "of memtables nothing is told";
  Flush();
  WrittenBytes expected{.user = 100 * kInline + 10 * kSeparated,
                        .values = State().written.values,
                        .recovery = 0,
                        .flushed = table_bytes(State())};
  EXPECT_EQ(State().written, expected);
  EXPECT_GT(expected.values, 10 * kSeparated);
  EXPECT_LT(expected.values, 11 * kSeparated);

  // What was written before an opening counts once it is in a table.
  PutMany(0, 50);
  Reopen();
  EXPECT_EQ(State().written, expected);
  Flush();
  expected.user += 50 * kInline;
  expected.flushed = table_bytes(State());
  expected.recovery = State().written.recovery;
  EXPECT_GE(expected.recovery, storage::kSegmentBytes);
  EXPECT_EQ(State().written, expected);

  while (FreshRuns() < 8) {
    PutMany(0, 100);
    expected.user += 100 * kInline;
    Flush();
  }
  BeginMerges();
  AwaitQuiet();
  expected.recovery = State().written.recovery;
  expected.flushed = State().written.flushed;
  expected.merged = table_bytes(State());  // by one merge into an empty level
  EXPECT_EQ(State().written, expected);
}

TEST_F(LsmFreshRunsTest, AStoreThatIsOpenedWithManyFreshRunsSlowsWritersDownFromTheStart) {
  for (uint64_t round = 0; FreshRuns() < kFreshMax; ++round) {
    ChangeAndFlush(round);
    if (HasFatalFailure()) return;
  }
  Reopen();
  const uint64_t before_ns = workers_.clock().NowNs();
  for (uint64_t number = 0; number < 2000; ++number) {
    ASSERT_TRUE(Put(Key(number % kKeys), "v").ok());
  }
  const uint64_t took_ns = workers_.clock().NowNs() - before_ns;
  EXPECT_GT(took_ns, 50 * kNsPerMs) << "of the simulation";
  EXPECT_LT(took_ns, 50 * kNsPerSecond);
}

/// Each I/O takes a millisecond of the simulation, and all else next to nothing.
class LsmScanCostTest : public LsmFreshRunsTest {
 protected:
  LsmScanCostTest() : LsmFreshRunsTest(kNsPerMs, kNsPerMs) {}
};

TEST_F(LsmScanCostTest, AScanReadsOfEachFreshRunAndWaitsAsForOne) {
  for (const size_t runs : {1, 4, 8, 16}) {
    while (FreshRuns() < runs) {
      PutMany(0, 1500, 16);
      Flush();
      if (HasFatalFailure()) return;
    }
    for (const uint64_t limit : {1, 10, 100, 1000}) {
      Reopen();
      const uint64_t before_ns = workers_.clock().NowNs(), reads = storage_.counts().reads;
      OpContext op = Op();
      std::vector<KeyValue> rows;
      const Status scanned = Run(store_->Scan(op, {.start = Key(7000), .limit = limit}, &rows));
      ASSERT_TRUE(scanned.ok()) << scanned;
      EXPECT_EQ(rows.size(), limit);
      const uint64_t waits = (workers_.clock().NowNs() - before_ns) / kNsPerMs;
      const uint64_t read = storage_.counts().reads - reads;
      std::printf("%2zu fresh runs, %4lu rows: %3lu blocks read, %2lu waits\n", runs, limit, read,
                  waits);
      EXPECT_GE(read, 2 * runs) << "of each run a node and a leaf";
      EXPECT_LE(read, runs * (2 + limit / 8)) << "of about 20 rows to a leaf";
      EXPECT_LE(waits, 3 + limit / 16) << "for all runs at once";
    }
  }
}

}  // namespace
}  // namespace farleaf::index::lsm
