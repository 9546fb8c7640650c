// A device that the store has filled by itself: reads go on, puts are refused, and deletes alone, or the garbage that is there, make room
// for puts again, without a restart, behind one, and behind crashes.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

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

/// Of the simulation: what the store may take to make room.
constexpr uint64_t kPatienceNs = 600 * kNsPerSecond;

class FullDevice {
 public:
  FullDevice(uint64_t seed, uint64_t segments) : random_(seed), segments_(segments) {
    // Sizes on both sides of what goes to the value log.
    options_.value_separation_bytes = 512;
    options_.durability = random_.OneIn(2) ? Durability::kSynced : Durability::kLocal;
    options_.compaction_threads = 1;
  }
  ~FullDevice() {
    if (store_) Crash();
  }
  static std::string KeyOf(uint64_t number) { return "key" + std::to_string(1'000'000 + number); }
  static std::string ValueOf(uint64_t number, size_t bytes) {
    std::string value = std::to_string(number) + "/";
    value.resize(std::max(value.size(), bytes), static_cast<char>('a' + number % 23));
    return value;
  }
  enum class Work : uint8_t { kAll, kNoMerges };
  void Open(Work work = Work::kAll) {
    workers_ = std::make_unique<InterleavedWorkers>(
        InterleavedWorkers::Options{.seed = random_.Next(), .workers = 3});
    storage_ = std::make_unique<storage::SimStorage>(
        storage::SimStorageOptions{.seed = random_.Next(), .clock = &workers_->clock()},
        std::move(image_));
    storage_->SetSegmentsMax(segments_);
    Run([](FullDevice& self) -> dsm::Task<void> {
      const LsmStore::Deps deps{self.storage_.get(), &self.workers_->epochs(),
                                &self.workers_->clock(), 1};
      auto opened =
          co_await LsmStore::Open(self.worker(), deps, self.options_, LsmStore::IfMissing::kCreate);
      EXPECT_TRUE(opened.ok()) << opened.status();
      if (opened.ok()) self.store_ = std::move(*opened);
    });
    ASSERT_TRUE(store_);
    Worker& behind = (*workers_)[1];
    behind.Spawn(store_->RunLogs(behind));
    behind.Spawn(store_->RunLogFlushes(behind));
    behind.Spawn(store_->RunFlushes(behind));
    if (work == Work::kAll) StartMerges();
  }
  void StartMerges() {
    Worker& behind = (*workers_)[1];
    behind.Spawn(store_->RunCollection(behind));
    Worker& merger = (*workers_)[2];
    merger.Spawn(store_->RunCompactions(merger));
  }
  void StartReclaim() {
    Worker& behind = (*workers_)[1];
    behind.Spawn(store_->RunReclaim(behind));
  }
  void Crash() {
    image_ = storage_->Crash();
    workers_->Abandon();
    store_->Abandon();
    store_ = nullptr;
    storage_ = nullptr;
    workers_ = nullptr;
  }
  void Close() {
    store_->Stop();
    ASSERT_EQ(workers_->RunAll(), InterleavedWorkers::RunEnd::kDone);
    Run([](FullDevice& self) -> dsm::Task<void> {
      Status closed = co_await self.store_->Close(self.worker());
      EXPECT_TRUE(closed.ok()) << closed;
    });
    Crash();
  }

  /// `step` as a coroutine of the clients' worker, to its end.
  template <typename Step>
  void Run(const Step& step) {
    if (::testing::Test::HasFailure()) return;
    worker().Spawn(step(*this));
    const auto end = workers_->RunWhile([&] { return worker().spawned() > 0; });
    ASSERT_EQ(end, InterleavedWorkers::RunEnd::kDone) << "nothing goes on";
  }

  Worker& worker() { return (*workers_)[0]; }
  LsmStore& store() { return *store_; }
  storage::SimStorage& disk() { return *storage_; }
  Random& random() { return random_; }
  LsmOptions& options() { return options_; }
  std::map<std::string, std::string> model;

  /// A change, by Write, that is made in the model if it is made in the store. RE: it was refused.
  dsm::Task<Status> Put(std::string key, std::string value) {
    dsm::FabricCounts counts;
    OpContext op{worker(), counts};
    Status status;
    if (random_.OneIn(2)) {
      status = co_await store_->BlindPut(op, key, value);
    } else {
      auto put = co_await store_->Put(op, key, value);
      status = put.status();
    }
    if (status.ok()) {
      model[key] = value;
    } else {
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
      EXPECT_NE(status.message().find("the device is full"), std::string::npos) << status;
    }
    co_return status;
  }
  /// By Write, of a pair that expires then, of the simulation's clock.
  dsm::Task<Status> PutUntil(uint64_t expires_ms, std::string key, std::string value) {
    dsm::FabricCounts counts;
    OpContext op{worker(), counts};
    const Change change{
        .kind = ChangeKind::kPut, .key = key, .value = value, .expires_ms = expires_ms};
    Status status = co_await store_->Write(op, {&change, 1});
    if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
    }
    co_return status;
  }
  dsm::Task<void> Delete(std::string key) {
    dsm::FabricCounts counts;
    OpContext op{worker(), counts};
    auto deleted = co_await store_->Delete(op, key);
    EXPECT_TRUE(deleted.ok()) << deleted.status();
    if (deleted.ok()) {
      EXPECT_EQ(*deleted, model.erase(key) > 0);
    }
  }
  dsm::Task<void> DeleteRange(std::string start, std::string end) {
    dsm::FabricCounts counts;
    OpContext op{worker(), counts};
    Status deleted = co_await store_->DeleteRange(op, start, end);
    EXPECT_TRUE(deleted.ok()) << deleted;
    model.erase(model.lower_bound(start), model.lower_bound(end));
  }
  dsm::Task<void> ExpectAll() {
    dsm::FabricCounts counts;
    OpContext op{worker(), counts};
    std::vector<KeyValue> rows;
    const ScanRange all{.start = {}};
    Status scanned = co_await store_->Scan(op, all, &rows);
    EXPECT_TRUE(scanned.ok()) << scanned;
    EXPECT_EQ(rows.size(), model.size());
    auto at = model.begin();
    for (size_t i = 0; i < std::min(rows.size(), model.size()); ++i, ++at) {
      EXPECT_TRUE(rows[i].key == at->first && rows[i].value == at->second) << rows[i].key;
      if (::testing::Test::HasFailure()) co_return;
      if (i % 50 != 0) continue;
      std::string value;
      const std::string key = at->first;
      auto found = co_await store_->Get(op, key, &value);
      EXPECT_TRUE(found.ok() && *found && value == model[key]) << key << found.status();
    }
  }
  /// Until puts are refused, and still are after a while.
  dsm::Task<void> FillUp(uint64_t first, uint64_t keys, size_t bytes_max) {
    uint64_t refused = 0;
    for (uint64_t number = first; refused < 10; ++number) {
      const size_t bytes = 1 + random_.Below(bytes_max);
      Status put = co_await Put(KeyOf(number % keys), ValueOf(number, bytes));
      refused = put.ok() ? 0 : refused + 1;
      if (put.ok()) ++stored;
      if (!put.ok()) co_await worker().Sleep(kNsPerSecond);
      if (::testing::Test::HasFailure()) co_return;
    }
    EXPECT_TRUE(store_->full());
  }
  /// That so many puts are taken by and by.
  dsm::Task<void> ExpectRoomFor(uint64_t puts, uint64_t first, size_t bytes_max) {
    const uint64_t end_ns = workers_->clock().NowNs() + kPatienceNs;
    for (uint64_t done = 0; done < puts;) {
      Status put = co_await Put(KeyOf(first + done), ValueOf(done, 1 + random_.Below(bytes_max)));
      done += put.ok();
      if (put.ok()) continue;
      if (workers_->clock().NowNs() > end_ns) {
        const storage::StorageSpace space = *storage_->Space();
        ADD_FAILURE() << done << " puts of " << puts << " were taken, then " << put << "; "
                      << space.segments << " segments, " << space.reserve_held << " of "
                      << space.reserve << " in reserve, " << store_->version()->fresh
                      << " fresh runs";
        co_return;
      }
      co_await worker().Sleep(kNsPerSecond / 10);
    }
  }
  /// Of a store that holds next to nothing, once all is quiet.
  dsm::Task<void> ExpectNoLeak(uint64_t segments_most) {
    size_t left = 0, recovery = 0, values = 0, tables = 0;
    std::set<SegmentId>
        unnamed;  // each time so far: what was just replaced goes with the next change
    store_->CompactEagerly(true);
    for (int i = 0; i < 200; ++i) {
      Status put = co_await Put("key", "x");  // so that there is something to flush
      store_->FlushSoon();
      co_await worker().Sleep(kNsPerSecond);
      const StoreState state = co_await store_->State(worker());
      const auto there = storage_->List();
      std::set<SegmentId> rest(there->begin(), there->end());
      recovery = values = tables = 0;
      for (const SegmentId id : state.recovery_log) recovery += rest.erase(id);
      for (const auto& [id, garbage] : state.value_log) values += rest.erase(id);
      for (const auto& [place, run] : state.runs()) {
        for (const auto& each : run->tables) {
          for (const SegmentId id : each.table.segments) tables += rest.erase(id);
        }
      }
      left = there->size();
      if (i == 0) unnamed = rest;
      std::erase_if(unnamed, [&](SegmentId id) { return !rest.contains(id); });
      if (i > 0 && put.ok() && left <= segments_most && unnamed.empty()) co_return;
    }
    ADD_FAILURE() << left << " segments are left: " << recovery << " of the recovery log, "
                  << values << " of values, " << tables << " of tables, and nothing names "
                  << unnamed.size();
  }
  uint64_t stored = 0;

 private:
  Random random_;
  const uint64_t segments_;
  LsmOptions options_ = test::TinyStore();
  std::unique_ptr<InterleavedWorkers> workers_;
  std::unique_ptr<storage::SimStorage> storage_;
  std::unique_ptr<LsmStore> store_;
  storage::SimImage image_;
};

constexpr uint64_t kSegments = 36;

enum class Again : uint8_t { kNotAtAll, kClosed, kCrashed };
enum class Deletion : uint8_t { kEachKey, kParts, kAll };

void MakeRoomByDeletes(uint64_t seed) {
  FullDevice device(seed, kSegments);
  const size_t bytes_max = std::vector<size_t>{400, 1'000, 60'000}[seed % 3];
  const auto deletion = static_cast<Deletion>((seed + seed / 3) % 3);
  const auto again = static_cast<Again>(device.random().Below(3));
  SCOPED_TRACE(::testing::Message()
               << "seed " << seed << ", values of up to " << bytes_max << ", deletion "
               << static_cast<int>(deletion) << ", again " << static_cast<int>(again));
  device.Open();
  device.Run([&](FullDevice& on) { return on.FillUp(0, 1'000'000, bytes_max); });
  const uint64_t stored = device.stored;
  device.Run([](FullDevice& on) { return on.ExpectAll(); });
  if (again == Again::kClosed) device.Close();
  if (again == Again::kCrashed && device.options().durability == Durability::kSynced) {
    device.Crash();
  }
  if (::testing::Test::HasFailure()) return;
  if (again == Again::kClosed ||
      (again == Again::kCrashed && device.options().durability == Durability::kSynced)) {
    device.Open();
    device.Run([](FullDevice& on) { return on.ExpectAll(); });
  }
  device.Run([&](FullDevice& on) -> dsm::Task<void> {
    if (deletion == Deletion::kAll) co_await on.DeleteRange("a", "z");
    for (uint64_t i = 0; deletion == Deletion::kParts && i < stored; i += 100) {
      co_await on.DeleteRange(on.KeyOf(i), on.KeyOf(i + 80));
    }
    for (uint64_t i = 0; deletion == Deletion::kEachKey && i < stored; ++i) {
      if (i % 5 == 0) continue;
      co_await on.Delete(on.KeyOf(i));
      if (::testing::Test::HasFailure()) co_return;
    }
  });
  device.Run([&](FullDevice& on) { return on.ExpectRoomFor(stored / 3, 2'000'000, bytes_max); });
  device.Run([](FullDevice& on) { return on.ExpectAll(); });
  // All of it once more, so that nothing was lost of the room itself.
  device.Run([](FullDevice& on) { return on.DeleteRange("a", "z"); });
  device.Run([&](FullDevice& on) { return on.ExpectRoomFor(stored / 2, 0, bytes_max); });
  device.Run([](FullDevice& on) { return on.DeleteRange("a", "z"); });
  device.Run([](FullDevice& on) { return on.ExpectNoLeak(kSegmentsLeft); });
}

TEST(LsmFullDeviceTest, DeletesMakeRoomForPutsAgain) {
  const uint64_t seeds = test::Amount{1, 3, 300};
  for (uint64_t seed = 0; seed < seeds && !HasFailure(); ++seed) MakeRoomByDeletes(seed);
}

// Nothing is merged nor collected while it is filled, so that the store knows of no garbage; then nothing but its own work makes room.
TEST(LsmFullDeviceTest, AStoreThatIsFullOfItsOwnGarbageMakesRoomByItself) {
  const uint64_t seeds = test::Amount{1, 2, 100};
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FullDevice device(seed, kSegments);
    constexpr size_t kBytesMax = 20'000;
    device.Open(FullDevice::Work::kNoMerges);
    device.Run([](FullDevice& on) { return on.FillUp(0, 300, kBytesMax); });
    device.Run([](FullDevice& on) { return on.ExpectAll(); });
    if (seed % 2 == 0) {
      device.Close();
      device.Open();
    } else if (!HasFailure()) {
      device.StartMerges();
    }
    device.Run([&](FullDevice& on) { return on.ExpectRoomFor(500, 0, kBytesMax); });
    device.Run([](FullDevice& on) { return on.ExpectAll(); });
    device.Run([](FullDevice& on) { return on.DeleteRange("a", "z"); });
    device.Run([](FullDevice& on) { return on.ExpectNoLeak(kSegmentsLeft); });
  }
}

// Of each table half stays, so that none goes as a whole; and there is nothing else to be merged that would make room.
TEST(LsmFullDeviceTest, WhatHasExpiredMakesRoomThoughNobodyDeletes) {
  constexpr uint64_t kLifeNs = 3600 * kNsPerSecond;
  const uint64_t seeds = test::Amount{1, 2, 50};
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FullDevice device(seed, kSegments);
    constexpr size_t kBytesMax = 400;
    device.Open();
    device.StartReclaim();
    uint64_t stored = 0;
    device.Run([&](FullDevice& on) -> dsm::Task<void> {
      const uint64_t expires_ms = (on.worker().clock().NowNs() + kLifeNs) / kNsPerMs;
      for (uint64_t refused = 0; refused < 10 && !::testing::Test::HasFailure();) {
        const size_t bytes = 1 + on.random().Below(kBytesMax);
        const bool stays = stored % 2 == 0;
        const std::string key = on.KeyOf(stored), value = on.ValueOf(stored, bytes);
        Status put;
        if (stays) {
          put = co_await on.Put(key, value);
        } else {
          put = co_await on.PutUntil(expires_ms, key, value);
        }
        refused = put.ok() ? 0 : refused + 1;
        stored += put.ok();
        if (!put.ok()) co_await on.worker().Sleep(kNsPerSecond);
      }
      EXPECT_TRUE(on.store().full());
      co_await on.worker().Sleep(kLifeNs);
    });
    device.Run([&](FullDevice& on) { return on.ExpectRoomFor(stored / 5, 2'000'000, kBytesMax); });
    device.Run([](FullDevice& on) { return on.ExpectAll(); });
    EXPECT_GT(device.store().metrics().reclaimed_tables, 0u);
  }
}

// Others take all that the store has not: what it keeps in reserve is its own.
TEST(LsmFullDeviceTest, WhenOthersHaveFilledTheDeviceDeletesStillMakeRoom) {
  FullDevice device(1, 200);
  device.Open();
  device.Run([](FullDevice& on) -> dsm::Task<void> {
    for (uint64_t i = 0; i < 2'000; ++i) co_await on.Put(on.KeyOf(i), on.ValueOf(i, 20'000));
  });
  device.disk().SetSegmentsMax(1);
  device.Run([](FullDevice& on) { return on.FillUp(10'000, 1'000'000, 20'000); });
  device.Run([](FullDevice& on) { return on.ExpectAll(); });
  EXPECT_GT(device.store().metrics().writes_refused, 5u);
  device.Run([](FullDevice& on) { return on.DeleteRange(on.KeyOf(100), on.KeyOf(1'900)); });
  device.Run([](FullDevice& on) { return on.ExpectAll(); });
  // What was freed is the reserve's first; what it has no use for, others have taken.
  device.Run([](FullDevice& on) -> dsm::Task<void> {
    co_await on.worker().Sleep(60 * kNsPerSecond);
    const storage::StorageSpace space = *on.disk().Space();
    EXPECT_GT(space.reserve_held, 0u);
    on.disk().SetSegmentsMax(space.segments + space.reserve + 8);
  });
  device.Run([](FullDevice& on) { return on.ExpectRoomFor(300, 20'000, 20'000); });
  device.Run([](FullDevice& on) { return on.ExpectAll(); });
}

}  // namespace
}  // namespace farleaf::index::lsm
