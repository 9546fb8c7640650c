// A store of which flushes go on and merges do not: reads see all of many fresh runs, writers are slowed down and in the end refused,
// and all goes on when merges do.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "index/lsm/store.h"
#include "index/storage/sim_storage.h"
#include "test/support/interleaved_workers.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Worker;

class LsmFreshRunsTest : public ::testing::Test {
 protected:
  LsmFreshRunsTest() {
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
    ASSERT_EQ(workers_.RunWhile([&] { return store_->memtables().flushing_bytes.has_value(); }),
              test::InterleavedWorkers::RunEnd::kDone);
  }
  void AwaitQuiet() {
    ASSERT_EQ(workers_.RunWhile([&] { return !store_->Quiet(); }),
              test::InterleavedWorkers::RunEnd::kDone);
  }
  size_t FreshRuns() {
    workers_[0].GoOnline();
    const size_t fresh = store_->version()->fresh;
    workers_[0].GoOffline();
    return fresh;
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
  storage::SimStorage storage_{{.seed = 3, .clock = &workers_.clock()}};
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

}  // namespace
}  // namespace farleaf::index::lsm
