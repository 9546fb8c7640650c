// DamagedStore: a small LSM store on a simulated disk, with a model of what is in it, for tests that spoil its files.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "index/lsm/store.h"
#include "index/storage/sim_storage.h"
#include "test/support/interleaved_workers.h"

namespace farleaf::test {

class DamagedStore : public ::testing::Test {
 protected:
  using Change = index::lsm::Change;
  using ChangeKind = index::lsm::ChangeKind;
  using LsmStore = index::lsm::LsmStore;
  using RunPlace = index::lsm::RunPlace;
  using RunEnd = InterleavedWorkers::RunEnd;
  using SegmentId = index::storage::SegmentId;

  explicit DamagedStore(uint64_t seed = 3)
      : random_(seed),
        workers_({.seed = seed, .workers = 4}),
        storage_({.seed = seed, .clock = &workers_.clock()}) {
    options_.memtable_bytes = uint64_t{1} << 20;
    options_.cache_bytes = uint64_t{1} << 20;
    options_.growth_factor = 4;
    options_.table_bytes_max = uint64_t{4} << 20;
    options_.value_separation_bytes = 256;
  }
  ~DamagedStore() override {
    if (store_) Stop();
  }

  Status TryOpen() {
    auto opened =
        Run(LsmStore::Open(workers_[0], {&storage_, &workers_.epochs(), &workers_.clock(), 1},
                           options_, LsmStore::IfMissing::kCreate));
    if (!opened.ok()) return opened.status();
    store_ = std::move(*opened);
    workers_[1].Spawn(store_->RunLogs(workers_[1]));
    workers_[1].Spawn(store_->RunFlushes(workers_[1]));
    return Status::Ok();
  }
  void Open() {
    const Status opened = TryOpen();
    ASSERT_TRUE(opened.ok()) << opened;
  }
  void BeginMerges() { workers_[2].Spawn(store_->RunCompactions(workers_[2])); }
  void BeginCollection() { workers_[3].Spawn(store_->RunCollection(workers_[3])); }
  void Stop() {
    store_->Stop();
    ASSERT_EQ(workers_.RunAll(), RunEnd::kDone);
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
    FARLEAF_CHECK(end == RunEnd::kDone, "nothing goes on");
    return std::move(*result);
  }
  template <typename T>
  static dsm::Task<void> Await(dsm::Task<T> task, std::optional<T>* result) {
    T done = co_await std::move(task);
    *result = std::move(done);
  }
  void RunUntil(const std::function<bool()>& condition, uint64_t seconds = 600) {
    const uint64_t end_ns = workers_.clock().NowNs() + seconds * kNsPerSecond;
    const auto goes_on = [&] { return !condition() && workers_.clock().NowNs() < end_ns; };
    EXPECT_EQ(workers_.RunWhile(goes_on), RunEnd::kDone);
    workers_[0].GoOnline();
    EXPECT_TRUE(condition());
    workers_[0].GoOffline();
  }
  /// Whether there is anything to do or not.
  void RunFor(uint64_t seconds) {
    const uint64_t end_ns = workers_.clock().NowNs() + seconds * kNsPerSecond;
    const auto goes_on = [&] { return workers_.clock().NowNs() < end_ns; };
    if (workers_.RunWhile(goes_on) == RunEnd::kStuck) {
      workers_.clock().AdvanceNs(end_ns - workers_.clock().NowNs());
    }
  }

  index::OpContext Op() {
    return {workers_[0], counts_, workers_.clock().NowNs() + 60 * kNsPerSecond};
  }
  static std::string Key(uint64_t number) { return "key" + std::to_string(100'000 + number); }
  /// Hardly to be compressed.
  std::string Value(size_t bytes) {
    std::string value;
    while (value.size() < bytes) value.push_back(static_cast<char>(random_.Below(256)));
    return value;
  }
  Status Put(const std::string& key, std::string value) {
    index::OpContext op = Op();
    auto put = Run(store_->Put(op, key, value));
    if (put.ok()) model_[key] = std::move(value);
    return put.status();
  }
  Status Delete(const std::string& key) {
    index::OpContext op = Op();
    auto deleted = Run(store_->Delete(op, key));
    if (deleted.ok()) model_.erase(key);
    return deleted.status();
  }
  /// What is there of some keys is overwritten without a look.
  void PutMany(uint64_t first, uint64_t end, size_t bytes, uint64_t stride = 1) {
    while (first < end) {
      std::vector<Change> changes;
      std::vector<std::string> keys;
      for (; first < end && keys.size() < 100; first += stride) keys.push_back(Key(first));
      for (const std::string& key : keys) {
        const std::string& value = model_[key] = Value(bytes);
        changes.push_back({.kind = ChangeKind::kPut, .key = key, .value = value});
      }
      index::OpContext op = Op();
      const Status put = Run(store_->Write(op, changes));
      ASSERT_TRUE(put.ok()) << put;
    }
  }
  /// What was put before. Collection may put more meanwhile.
  void Flush() {
    workers_[0].GoOnline();
    const LsmStore::Memtables before = store_->memtables();
    store_->FlushSoon();
    workers_[0].GoOffline();
    const uint64_t flushes = before.flushes + (before.flushing_bytes ? 2 : 1);
    if (before.active_empty && !before.flushing_bytes) return;
    RunUntil([&] {
      const LsmStore::Memtables now = store_->memtables();
      return now.flushes >= flushes || (!now.flushing_bytes && now.active_empty);
    });
  }
  void AwaitQuiet() {
    RunUntil([&] { return store_->Quiet(); });
  }
  std::shared_ptr<const index::lsm::Version> VersionNow() {
    workers_[0].GoOnline();
    auto version = store_->version();
    workers_[0].GoOffline();
    return version;
  }
  index::lsm::StoreState State() { return Run(StateOf(store_.get(), workers_[0])); }
  static dsm::Task<index::lsm::StoreState> StateOf(LsmStore* store, dsm::Worker& worker) {
    index::lsm::StoreState state = co_await store->State(worker);
    co_return state;
  }
  bool Exists(SegmentId id) {
    const std::vector<SegmentId> there = *storage_.List();
    return std::ranges::find(there, id) != there.end();
  }

  Result<bool> Get(const std::string& key, std::string* value) {
    index::OpContext op = Op();
    return Run(store_->Get(op, key, value));
  }
  /// Of what could not be read for damage.
  static void ExpectNamesPlace(const Status& status) {
    EXPECT_TRUE(status.code() == StatusCode::kCorruption || status.code() == StatusCode::kIoError)
        << status;
    EXPECT_NE(status.message().find("sim/"), std::string_view::npos) << status;
    EXPECT_NE(status.message().find(" at "), std::string_view::npos) << status;
  }
  /// Each key and some that are not there: what is told is right, or an error that names its place. The keys of these.
  std::set<std::string> ExpectRightOrDamaged(uint64_t keys) {
    std::set<std::string> damaged;
    for (uint64_t number = 0; number < keys; ++number) {
      const std::string key = Key(number);
      std::string value;
      const auto found = Get(key, &value);
      if (!found.ok()) {
        ExpectNamesPlace(found.status());
        damaged.insert(key);
        continue;
      }
      const auto expected = model_.find(key);
      EXPECT_EQ(*found, expected != model_.end()) << key;
      if (*found && expected != model_.end()) {
        EXPECT_TRUE(value == expected->second) << key;
      }
    }
    return damaged;
  }

  index::lsm::LsmOptions options_;
  Random random_;
  InterleavedWorkers workers_;
  index::storage::SimStorage storage_;
  std::unique_ptr<LsmStore> store_;
  std::map<std::string, std::string> model_;
  dsm::FabricCounts counts_;
};

}  // namespace farleaf::test
