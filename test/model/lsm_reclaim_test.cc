// What has expired, or was deleted by a range, gives its space back though nobody writes; and while there is no such thing, nothing is done.
// Time is the test's.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "index/lsm/expiry_times.h"
#include "index/lsm/snapshot.h"
#include "index/lsm/store.h"
#include "index/storage/sim_storage.h"
#include "test/model/emptied_store.h"
#include "test/support/interleaved_workers.h"
#include "test/support/test_scale.h"
#include "test/support/tiny_store.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Worker;
using test::InterleavedWorkers;

class LsmReclaimTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kKeys = 12'000;
  static constexpr uint64_t kHourMs = 3'600'000;
  /// Until the space is back: the flush of an idle memtable, a look for each run, the reading, and collection.
  static constexpr uint64_t kReclaimSeconds = 60;

  LsmReclaimTest() {
    wall_.AdvanceNs(uint64_t{1'700'000'000} * kNsPerSecond);
    NewProcess();
    Open();
  }
  ~LsmReclaimTest() override {
    if (store_) Close();
  }

  void NewProcess() {
    workers_ = std::make_unique<InterleavedWorkers>(
        InterleavedWorkers::Options{.seed = random_.Next(), .workers = 3});
    storage_ = std::make_unique<storage::SimStorage>(
        storage::SimStorageOptions{.seed = random_.Next(), .clock = &workers_->clock()},
        std::move(image_));
  }
  /// At the n-th I/O from now, or when so much time has passed.
  void CrashAt(uint64_t ios, uint64_t seconds) {
    storage_->StopAfter(ios);
    Worker& worker = (*workers_)[0];
    worker.Spawn(Nap(worker, seconds * kNsPerSecond));
    workers_->RunWhile([&] { return worker.spawned() > 0 && !storage_->stopped(); });
    image_ = storage_->Crash();
    workers_->Abandon();
    store_->Abandon();
    store_ = nullptr;
    storage_ = nullptr;
    NewProcess();
  }

  void Run(dsm::Task<void> task) {
    (*workers_)[0].Spawn(std::move(task));
    const auto end = workers_->RunWhile([&] { return (*workers_)[0].spawned() > 0; });
    ASSERT_EQ(end, InterleavedWorkers::RunEnd::kDone);
  }
  void Open() {
    Run(OpenTask((*workers_)[0]));
    (*workers_)[1].Spawn(store_->RunLogs((*workers_)[1]));
    (*workers_)[1].Spawn(store_->RunLogFlushes((*workers_)[1]));
    (*workers_)[1].Spawn(store_->RunFlushes((*workers_)[1]));
    (*workers_)[1].Spawn(store_->RunCollection((*workers_)[1]));
    (*workers_)[1].Spawn(store_->RunReclaim((*workers_)[1]));
    (*workers_)[2].Spawn(store_->RunCompactions((*workers_)[2]));
  }
  void Close() {
    store_->Stop();
    ASSERT_EQ(workers_->RunAll(), InterleavedWorkers::RunEnd::kDone);
    Run(CloseTask((*workers_)[0]));
    store_ = nullptr;
  }
  void Reopen() {
    Close();
    Open();
  }
  void Idle(uint64_t seconds) { Run(Nap((*workers_)[0], seconds * kNsPerSecond)); }
  void PassHours(uint64_t hours) { wall_.AdvanceNs(hours * kHourMs * kNsPerMs); }
  uint64_t HoursFromNowMs(uint64_t hours) const {
    return wall_.NowNs() / kNsPerMs + hours * kHourMs;
  }

  static std::string KeyOf(uint64_t number) { return "key" + std::to_string(100'000 + number); }
  std::string ValueOf(uint64_t number) const {
    return std::to_string(number) + std::string(number % 2 == 0 ? 20 : 6000, 'v');
  }
  void Write(Change change) {
    Run(WriteTask((*workers_)[0], change));
    if (change.kind == ChangeKind::kPut)
      model_[std::string(change.key)] = std::string(change.value);
  }
  void Put(uint64_t number, uint64_t expires_ms) {
    const std::string key = KeyOf(number), value = ValueOf(number);
    Write({.kind = ChangeKind::kPut, .key = key, .value = value, .expires_ms = expires_ms});
  }
  void DeleteRange(const std::string& start, const std::string& end) {
    Write({.kind = ChangeKind::kDeleteRange, .key = start, .end = end});
    model_.erase(model_.lower_bound(start), model_.lower_bound(end));
  }
  /// All of it into tables, of one or of several levels.
  void Settle(bool eagerly) {
    store_->CompactEagerly(eagerly);
    Run(FlushTask((*workers_)[0]));
    Idle(5);
    store_->CompactEagerly(false);
  }
  void ExpectModel() { Run(ExpectTask((*workers_)[0], {})); }
  void ExpectModelAt(const Snapshot& snapshot) { Run(ExpectTask((*workers_)[0], snapshot)); }

  std::set<TableId> Tables() const {
    std::set<TableId> tables;
    const auto version = store_->version();
    for (const lsm::Run& run : version->runs) {
      for (const TableRef& ref : run.tables) tables.insert(ref.file->info().id());
    }
    return tables;
  }
  uint64_t Entries() const {
    uint64_t entries = 0;
    const auto version = store_->version();
    for (const lsm::Run& run : version->runs) {
      for (const TableRef& ref : run.tables) entries += ref.file->info().entries;
    }
    return entries;
  }
  size_t Segments() const { return storage_->List()->size(); }
  /// Whatever the store does by itself: nothing, now.
  void ExpectIdle(uint64_t seconds) {
    const StoreMetrics before = store_->metrics();
    const std::set<TableId> tables = Tables();
    const uint64_t collected = store_->collected_segments();
    Idle(seconds);
    const StoreMetrics now = store_->metrics();
    EXPECT_EQ(Tables(), tables);
    EXPECT_EQ(now.flushed_bytes, before.flushed_bytes);
    EXPECT_EQ(now.merged_bytes_read, before.merged_bytes_read);
    EXPECT_EQ(now.reclaimed_tables, before.reclaimed_tables);
    EXPECT_EQ(now.reclaimed_bytes_read, before.reclaimed_bytes_read);
    EXPECT_EQ(store_->collected_segments(), collected);
  }

  Random random_{3};
  std::unique_ptr<InterleavedWorkers> workers_;
  ManualClock wall_;
  storage::SimImage image_;
  std::unique_ptr<storage::SimStorage> storage_;
  LsmOptions options_ = test::TinyStore();
  std::unique_ptr<LsmStore> store_;
  std::map<std::string, std::string> model_;  // that is to be there

 private:
  static dsm::Task<void> Nap(Worker& worker, uint64_t ns) { co_await worker.Sleep(ns); }
  dsm::Task<void> OpenTask(Worker& worker) {
    const LsmStore::Deps deps{storage_.get(), &workers_->epochs(), &wall_, 1};
    auto opened = co_await LsmStore::Open(worker, deps, options_, LsmStore::IfMissing::kCreate);
    FARLEAF_CHECK(opened.ok(), opened.status());
    store_ = std::move(*opened);
  }
  dsm::Task<void> CloseTask(Worker& worker) {
    Status closed = co_await store_->Close(worker);
    EXPECT_TRUE(closed.ok()) << closed;
  }
  dsm::Task<void> WriteTask(Worker& worker, Change change) {
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    Status written = co_await store_->Write(op, {&change, 1});
    EXPECT_TRUE(written.ok()) << written;
  }
  dsm::Task<void> FlushTask(Worker& worker) {
    store_->FlushSoon();
    while (!store_->Quiet()) co_await worker.Sleep(kNsPerMs);
  }
  dsm::Task<void> ExpectTask(Worker& worker, Snapshot snapshot) {
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    std::vector<KeyValue> rows;
    const ScanRange all{.start = {}};
    Status scanned;
    if (snapshot.holds()) {
      scanned = co_await store_->ScanAt(op, snapshot, all, &rows);
    } else {
      scanned = co_await store_->Scan(op, all, &rows);
    }
    EXPECT_TRUE(scanned.ok()) << scanned;
    EXPECT_EQ(rows.size(), model_.size());
    const bool same = std::ranges::equal(rows, model_, [](const KeyValue& row, const auto& is) {
      return row.key == is.first && row.value == is.second;
    });
    EXPECT_TRUE(same);
  }
};

TEST_F(LsmReclaimTest, AllThatHasExpiredGoesThoughNobodyWrites) {
  for (uint64_t number = 0; number < kKeys; ++number) {
    Put(number * 7 % kKeys, HoursFromNowMs(1 + number % 3));
  }
  Settle(true);
  for (uint64_t number = 0; number < kKeys / 2; number += 2) Put(number, HoursFromNowMs(3));
  Settle(false);
  for (uint64_t number = 0; number < kKeys / 4; number += 2) Put(number, HoursFromNowMs(2));
  Idle(20);
  const size_t segments = Segments();
  ASSERT_GE(Tables().size(), 2u);
  ASSERT_FALSE(store_->memtables().active_empty);
  ASSERT_GT(segments, kLogSegmentsLeft + 10);
  ExpectIdle(600);
  ExpectModel();
  PassHours(4);
  model_.clear();
  Idle(kReclaimSeconds);
  EXPECT_TRUE(Tables().empty()) << Tables().size();
  EXPECT_TRUE(store_->memtables().active_empty);
  EXPECT_LE(Segments(), kLogSegmentsLeft);
  EXPECT_GT(store_->metrics().reclaimed_tables, 0u);
  ExpectIdle(600);
  Reopen();
  ExpectModel();
}

// Collection waits for a first commit, which nobody makes.
TEST_F(LsmReclaimTest, AStoreThatIsOpenedAndNotWrittenToGivesItsSpaceBack) {
  for (uint64_t number = 0; number < kKeys; ++number) Put(number, HoursFromNowMs(1));
  Reopen();
  Idle(20);  // what was replayed is flushed
  ExpectIdle(60);
  ASSERT_GT(Segments(), kLogSegmentsLeft + 10);
  PassHours(2);
  model_.clear();
  Idle(kReclaimSeconds);
  EXPECT_TRUE(Tables().empty()) << Tables().size();
  EXPECT_LE(Segments(), kLogSegmentsLeft);
  ExpectModel();
  Reopen();
  ExpectModel();
}

TEST_F(LsmReclaimTest, ATableIsWrittenAnewWhenHalfOfItHasExpiredAndNotBefore) {
  // A fifth of the bytes expires each hour, the last one never.
  for (uint64_t number = 0; number < kKeys; ++number) {
    const uint64_t hour = 1 + number / 2 % 5;
    Put(number, hour == 5 ? 0 : HoursFromNowMs(hour));
  }
  Settle(true);
  const auto forget = [&](uint64_t hour) {
    for (uint64_t number = 0; number < kKeys; ++number) {
      if (1 + number / 2 % 5 == hour) model_.erase(KeyOf(number));
    }
  };
  for (const uint64_t hour : {1, 2}) {
    PassHours(1);
    forget(hour);
    ExpectIdle(60);
    ExpectModel();
  }
  EXPECT_EQ(Entries(), kKeys);
  PassHours(1);
  forget(3);
  Idle(kReclaimSeconds);
  EXPECT_LT(Entries(), kKeys);  // those whose values were moved may be there twice
  ExpectModel();
  ExpectIdle(600);
  Reopen();
  ExpectModel();
}

// The upper run's entries become deletions: what they hide may be there for ever.
TEST_F(LsmReclaimTest, WhatExpiredHidesNeverComesBack) {
  for (uint64_t number = 0; number < kKeys / 2; ++number) Put(number, 0);
  Settle(true);
  for (uint64_t number = 0; number < kKeys / 2; number += 2) Put(number, HoursFromNowMs(1));
  Settle(false);
  ASSERT_GE(store_->version()->runs.size(), 2u);
  PassHours(2);
  for (uint64_t number = 0; number < kKeys / 2; number += 2) model_.erase(KeyOf(number));
  Idle(kReclaimSeconds);
  EXPECT_GT(store_->metrics().reclaimed_tables, 0u);
  ExpectModel();
  ExpectIdle(600);
  Reopen();
  ExpectModel();
}

TEST_F(LsmReclaimTest, WhatASnapshotSeesStaysUntilItIsLetGo) {
  for (uint64_t number = 0; number < kKeys / 2; ++number) Put(number, HoursFromNowMs(1));
  Settle(true);
  std::optional<Snapshot> snapshot = store_->TakeSnapshot();
  PassHours(2);
  ExpectIdle(60);
  ExpectModelAt(*snapshot);
  snapshot.reset();
  model_.clear();
  Idle(kReclaimSeconds);
  EXPECT_TRUE(Tables().empty());
  ExpectModel();
}

TEST_F(LsmReclaimTest, WhatARangeDeletesGoesThoughNobodyWrites) {
  for (uint64_t number = 0; number < kKeys; ++number) {
    Put(number * 7 % kKeys, 0);
    if (number == kKeys / 2) Settle(true);
  }
  Settle(false);
  const size_t segments = Segments();
  ASSERT_GT(segments, kLogSegmentsLeft);
  std::optional<Snapshot> snapshot = store_->TakeSnapshot();
  const std::map<std::string, std::string> before = model_;
  DeleteRange(KeyOf(0), KeyOf(kKeys));
  const std::map<std::string, std::string> after = std::exchange(model_, before);
  Idle(kReclaimSeconds);
  ExpectModelAt(*snapshot);
  model_ = after;
  snapshot.reset();
  Idle(kReclaimSeconds);
  EXPECT_TRUE(Tables().empty()) << Tables().size();
  EXPECT_LE(Segments(), kLogSegmentsLeft);
  ExpectModel();
  ExpectIdle(600);
  Put(1, 0);
  Reopen();
  ExpectModel();
}

TEST_F(LsmReclaimTest, NothingThatHasNotExpiredIsLostInACrashAndNothingThatHasComesBack) {
  Close();
  options_.durability = Durability::kSynced;
  options_.table_bytes_max = uint64_t{4} << 20;
  Open();
  constexpr uint64_t kHours = 40;
  const uint64_t begun_ms = wall_.NowNs() / kNsPerMs;
  std::map<std::string, uint64_t> expires_ms;
  uint64_t reclaimed = 0;
  const uint64_t crashes = test::Amount{10, 30, 1000};
  for (uint64_t crash = 0; crash < crashes && !HasFailure(); ++crash) {
    SCOPED_TRACE("crash " + std::to_string(crash));
    for (uint64_t i = 0; i < 150; ++i) {
      const uint64_t number = random_.Below(600);
      const uint64_t at = random_.OneIn(4) ? 0 : HoursFromNowMs(1 + random_.Below(kHours));
      Put(number, at);
      expires_ms[KeyOf(number)] = at;
    }
    if (random_.OneIn(10)) DeleteRange(KeyOf(random_.Below(300)), KeyOf(300 + random_.Below(300)));
    Settle(random_.OneIn(2));
    PassHours(random_.Below(kHours));
    std::erase_if(model_, [&](const auto& each) {
      const uint64_t at = expires_ms[each.first];
      return at != 0 && at <= wall_.NowNs() / kNsPerMs;
    });
    if (random_.OneIn(3)) Idle(2);
    reclaimed += store_->metrics().reclaimed_tables;
    CrashAt(1 + random_.Below(40), 5);
    Open();
    ExpectModel();
  }
  std::printf("%lu crashes in %lu hours, %lu tables reclaimed before them\n", crashes,
              (wall_.NowNs() / kNsPerMs - begun_ms) / kHourMs, reclaimed);
  EXPECT_GT(reclaimed, 0u);
}

TEST(LsmReclaimPlanTest, ATableGoesUnreadOnlyIfAllOfItIsKnownToHaveExpired) {
  TableInfo info;
  info.segments = {SegmentId{5}};
  info.smallest = "a";
  info.largest = "m";
  info.entries = 4;
  info.deletes = info.expiring = 2;
  info.content_bytes = 10;
  const auto dead = [](const TableInfo& table, std::string from, size_t runs_behind) {
    Version version;
    lsm::Run run;
    run.place = {0, RunKind::kGrowing};
    run.tables = {{std::make_shared<TableFile>(nullptr, nullptr, table), std::move(from)}};
    version.runs.push_back(run);
    run.place.level = 1;
    run.tables.clear();
    for (; runs_behind > 0; --runs_behind) version.runs.push_back(run);
    return ReclaimPlan{.now_ms = 1000}.DeadTables(version);
  };
  auto of_old = dead(info, "", 0);  // built before times were kept: half of it are deletions
  ASSERT_EQ(of_old.size(), 1u);
  EXPECT_FALSE(of_old[0].whole);
  info.expiry.Add(1000, 6);
  ASSERT_EQ(dead(info, "", 0).size(), 1u);
  EXPECT_TRUE(dead(info, "", 0)[0].whole);
  EXPECT_FALSE(dead(info, "b", 0)[0].whole);
  ASSERT_EQ(dead(info, "", 1).size(), 1u);
  EXPECT_FALSE(dead(info, "", 1)[0].whole);
  info.expiry.Add(1001, 1);
  EXPECT_FALSE(dead(info, "", 0)[0].whole);
  info.expiry = {};
  EXPECT_TRUE(dead(info, "", 1).empty());
}

TEST(LsmExpiryTimesTest, TheyTellOfNoMoreThanHasExpiredAndOfAllInTheEnd) {
  Random random(5);
  for (uint64_t round = 0; round < test::Amount{100, 500, 20'000}; ++round) {
    std::vector<std::pair<uint64_t, uint64_t>> added;
    const uint64_t shift = random.Below(64);
    for (uint64_t i = 1 + random.Below(60); i > 0; --i) {
      const uint64_t at =
          random.OneIn(20) ? random.Next() : uint64_t{1} << 40 | random.Next() >> shift;
      added.emplace_back(std::max<uint64_t>(at, 1), random.Below(100));
    }
    ExpiryTimes times, others;
    uint64_t all = 0;
    for (const auto& [at, bytes] : added) {
      times.Add(at, bytes);
      all += bytes;
    }
    for (size_t i = added.size(); i-- > 0;) others.Add(added[i].first, added[i].second);
    EXPECT_TRUE(times == others);
    EXPECT_TRUE(times.Fits());
    EXPECT_EQ(times.all_bytes(), all);
    EXPECT_EQ(times.ExpiredBytes(UINT64_MAX), all);
    const uint64_t now = added[random.Below(added.size())].first;
    uint64_t expired = 0;
    for (const auto& [at, bytes] : added) expired += at <= now ? bytes : 0;
    EXPECT_LE(times.ExpiredBytes(now), expired);
    EXPECT_TRUE(times.shift() > 0 || times.ExpiredBytes(now) == expired);
  }
}

}  // namespace
}  // namespace farleaf::index::lsm
