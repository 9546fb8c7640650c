// The whole store on a disk that crashes at any I/O, also while it flushes, merges, collects values and recovers: of each client's
// operations a prefix is there, all that were acknowledged as durable, and no value is wrong.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "index/lsm/store.h"
#include "index/storage/sim_storage.h"
#include "test/model/emptied_store.h"
#include "test/support/interleaved_workers.h"
#include "test/support/prefix_model.h"
#include "test/support/test_scale.h"
#include "test/support/tiny_store.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Worker;
using test::InterleavedWorkers;
using test::KeyOf;
using test::Operation;
using test::PrefixModel;
using test::ValueOf;

constexpr size_t kClients = 3;
constexpr uint64_t kKeysEach = 40;
/// One of clients, one of logs and flushes, and those that merge.
constexpr size_t kWorkers = 4;

/// When nothing of this test is left: such an entry never expires, and is stored as those that do are.
constexpr uint64_t kFarMs = uint64_t{1} << 48;

class StoreLives {
 public:
  explicit StoreLives(uint64_t seed) : random_(seed) {
    // Of these keys a third fits on it, of which the store keeps some in reserve.
    if (random_.OneIn(3)) segments_max_ = 24 + random_.Below(12);
  }

  void Run(int lives) {
    for (int life = 0; life < lives && !::testing::Test::HasFailure(); ++life) {
      SCOPED_TRACE("life " + std::to_string(life));
      Live(life + 1 == lives);
    }
  }
  uint64_t acknowledged = 0, recovered = 0, collected = 0, interrupted_opens = 0, looked_twice = 0;
  uint64_t refused = 0;  ///< as the device was full

 private:
  void Live(bool last) {
    workers_ = std::make_unique<InterleavedWorkers>(
        InterleavedWorkers::Options{.seed = random_.Next(), .workers = kWorkers});
    storage_ = std::make_unique<storage::SimStorage>(
        storage::SimStorageOptions{.seed = random_.Next(), .clock = &workers_->clock()},
        std::move(image_));
    storage_->SetSegmentsMax(segments_max_);
    DrawOptions();
    if (!last && random_.OneIn(4)) storage_->StopAfter(1 + random_.Below(30));
    Worker& worker = (*workers_)[0];
    worker.Spawn(OpenAndCheck(worker));
    Turn(worker);
    if (!::testing::Test::HasFailure() && store_) {
      Serve(last);
    } else {
      ++interrupted_opens;
    }
    image_ = storage_->Crash();
    workers_->Abandon();
    if (store_) {
      collected += store_->collected_segments();
      store_->Abandon();
    }
    store_ = nullptr;
    storage_ = nullptr;
    workers_ = nullptr;
  }

  /// Of each process anew: what others wrote is read with any of them.
  void DrawOptions() {
    options_.durability = random_.OneIn(2) ? Durability::kSynced : Durability::kLocal;
    options_.compression = static_cast<Compression>(random_.Below(3));
    options_.growth_factor = static_cast<uint32_t>(4 + random_.Below(13));
    options_.filter_bits_per_key = random_.OneIn(3) ? 0 : 10;
    options_.block_bytes = 4096u << random_.Below(4);
    options_.compaction_threads = 1 + random_.Below(kWorkers - 2);
    const Status valid = options_.Validate();
    ASSERT_TRUE(valid.ok()) << valid;
  }

  /// Until nothing more runs on this worker, or the disk has stopped.
  void Turn(Worker& worker) {
    const auto end = workers_->RunWhile([&] {
      return worker.spawned() > 0 && !storage_->stopped() && !::testing::Test::HasFailure();
    });
    ASSERT_EQ(end, InterleavedWorkers::RunEnd::kDone) << "nothing goes on";
  }

  void Serve(bool last) {
    Worker& behind = (*workers_)[1];
    behind.Spawn(store_->RunLogs(behind));
    behind.Spawn(store_->RunLogFlushes(behind));
    behind.Spawn(store_->RunFlushes(behind));
    behind.Spawn(store_->RunCollection(behind));
    behind.Spawn(store_->RunReclaim(behind));
    for (size_t i = 0; i < options_.compaction_threads; ++i) {
      Worker& merger = (*workers_)[2 + i];
      merger.Spawn(store_->RunCompactions(merger));
    }
    store_->CompactEagerly(random_.OneIn(2));
    big_ = random_.OneIn(2);
    Worker& worker = (*workers_)[0];
    if (last) {
      worker.Spawn(DeleteAll(worker));
      Turn(worker);
      return;
    }
    storage_->StopAfter(1 + random_.Below(random_.OneIn(3) ? 30 : 600));
    if (random_.OneIn(4)) storage_->FailIo(1 + random_.Below(100));
    writing_ = kClients;
    for (size_t client = 0; client < kClients; ++client) worker.Spawn(Write(worker, client));
    worker.Spawn(FlushNowAndThen(worker));
    worker.Spawn(LookTwice(worker));
    Turn(worker);
  }

  dsm::Task<void> OpenAndCheck(Worker& worker) {
    const LsmStore::Deps deps{storage_.get(), &workers_->epochs(), &workers_->clock(), 1};
    auto opened = co_await LsmStore::Open(worker, deps, options_, LsmStore::IfMissing::kCreate);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (!opened.ok()) co_return;
    std::vector<KeyValue> rows;
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    const ScanRange all{.start = {}};
    Status scanned = co_await (*opened)->Scan(op, all, &rows);
    EXPECT_TRUE(scanned.ok()) << scanned;
    if (!scanned.ok()) co_return;
    for (size_t client = 0; client < kClients; ++client) models_[client].Check(client, rows);
    for (const KeyValue& row : rows) {
      std::string value;
      auto found = co_await (*opened)->Get(op, row.key, &value);
      EXPECT_TRUE(found.ok() && *found && value == row.value) << row.key;
    }
    store_ = std::move(*opened);
    ++recovered;
  }

  Operation NewOperation(uint64_t number) {
    Operation operation;
    const uint64_t kind = random_.Below(20);
    const uint64_t first = random_.Below(kKeysEach);
    if (kind == 0) {  // a range
      for (uint64_t key = first; key < std::min(first + 10, kKeysEach); ++key) {
        operation.changes[key] = std::nullopt;
      }
      return operation;
    }
    for (uint64_t n = kind < 4 ? 3 : 1; n > 0; --n) {
      const size_t bytes = random_.OneIn(2) ? 30
                           : big_           ? random_.Below(100'000)
                                            : random_.Below(1000);
      auto& change = operation.changes[random_.Below(kKeysEach)];
      change = random_.OneIn(5) ? std::nullopt : std::optional(ValueOf(number, bytes));
    }
    return operation;
  }

  dsm::Task<void> Write(Worker& worker, size_t client) {
    PrefixModel& model = models_[client];
    for (;;) {
      Operation operation = NewOperation(model.operations.size());
      model.operations.push_back(operation);
      const size_t count = model.operations.size();
      // Of a store without copies what is asked to be replicated is synced.
      const auto wanted = random_.OneIn(6)
                              ? static_cast<WriteDurability>(1 + random_.Below(kWriteDurabilityMax))
                              : WriteDurability::kOfStore;
      Status status = co_await Apply(worker, client, operation, wanted);
      const bool synced =
          options_.durability == Durability::kSynced || wanted != WriteDurability::kOfStore;
      if (status.ok() && synced) {
        model.durable = count;
        ++acknowledged;
      }
      if (status.code() == StatusCode::kResourceExhausted) {  // then nothing was done
        model.operations.pop_back();
        ++refused;
        co_await worker.Sleep(random_.Below(100 * kNsPerMs));
        continue;
      }
      // What failed may have been committed: nothing is known of it until the store is opened again.
      if (!status.ok()) break;
      if (random_.OneIn(8)) co_await worker.Sleep(random_.Below(kNsPerMs));
    }
    --writing_;
  }

  dsm::Task<Status> Apply(Worker& worker, size_t client, const Operation& operation,
                          WriteDurability wanted) {
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    op.durability = wanted;
    std::vector<std::string> keys;
    for (const auto& [key, value] : operation.changes) keys.push_back(KeyOf(client, key));
    if (operation.changes.size() == 1) {
      const auto& value = operation.changes.begin()->second;
      if (value && random_.OneIn(2)) {
        Status stored = co_await store_->BlindPut(op, keys[0], *value);
        co_return stored;
      }
      if (value) {
        auto put = co_await store_->Put(op, keys[0], *value);
        co_return put.status();
      }
      auto deleted = co_await store_->Delete(op, keys[0]);
      co_return deleted.status();
    }
    std::vector<Change> changes;
    size_t i = 0;
    if (operation.changes.size() > 3) {
      const std::string end = keys.back() + '\0';
      changes.push_back({.kind = ChangeKind::kDeleteRange, .key = keys[0], .end = end});
      Status deleted = co_await store_->Write(op, changes);
      co_return deleted;
    }
    for (const auto& [key, value] : operation.changes) {
      Change change{.kind = value ? ChangeKind::kPut : ChangeKind::kDelete, .key = keys[i++]};
      if (value) change.value = *value;
      if (value && random_.OneIn(4)) change.expires_ms = kFarMs;
      changes.push_back(change);
    }
    Status written = co_await store_->Write(op, changes);
    co_return written;
  }

  /// What a snapshot sees stays, whatever is written, merged and collected meanwhile.
  dsm::Task<void> LookTwice(Worker& worker) {
    while (writing_ > 0) {
      const Snapshot snapshot = store_->TakeSnapshot();
      dsm::FabricCounts counts;
      OpContext op{worker, counts};
      const ScanRange all{.start = {}};
      std::vector<KeyValue> rows, again;
      Status scanned = co_await store_->ScanAt(op, snapshot, all, &rows);
      co_await worker.Sleep(random_.Below(50 * kNsPerMs));
      if (scanned.ok()) scanned = co_await store_->ScanAt(op, snapshot, all, &again);
      if (!scanned.ok()) continue;  // the disk failed
      EXPECT_TRUE(rows == again) << rows.size() << " rows, then " << again.size();
      ++looked_twice;
    }
  }

  dsm::Task<void> FlushNowAndThen(Worker& worker) {
    while (writing_ > 0) {
      co_await worker.Sleep(random_.Below(20 * kNsPerMs));
      store_->FlushSoon();
    }
  }

  /// When nothing is left, next to nothing is left of the disk's space either.
  dsm::Task<void> DeleteAll(Worker& worker) {
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    const Change all{.kind = ChangeKind::kDeleteRange, .key = "a", .end = "z"};
    Status deleted = co_await store_->Write(op, {&all, 1});
    EXPECT_TRUE(deleted.ok()) << deleted;
    store_->CompactEagerly(true);
    size_t left = 0;
    std::set<SegmentId>
        unnamed;  // each time so far: what was just replaced goes with the next change
    for (int i = 0; i < 100; ++i) {
      const std::string key = "a" + std::to_string(i % 2);  // so that there is something to flush
      auto put = co_await store_->Put(op, key, "x");
      const bool is_full = put.status().code() == StatusCode::kResourceExhausted;
      EXPECT_TRUE(put.ok() || (is_full && segments_max_ != 0 && i < 50)) << put.status();
      store_->FlushSoon();
      co_await worker.Sleep(kNsPerSecond);  // of the simulation: until all is quiet
      const StoreState state = co_await store_->State(worker);
      const auto there = storage_->List();
      const std::set<SegmentId> now = Unnamed(state, *there);
      if (i == 0) unnamed = now;
      std::erase_if(unnamed, [&](SegmentId id) { return !now.contains(id); });
      left = there->size();
      if (i > 0 && left <= kSegmentsLeft && unnamed.empty()) co_return;
    }
    ADD_FAILURE() << "of an empty store there are " << left << " segments, of which nothing names "
                  << unnamed.size();
  }

  static std::set<SegmentId> Unnamed(const StoreState& state, const std::vector<SegmentId>& there) {
    std::set<SegmentId> unnamed(there.begin(), there.end());
    for (const SegmentId id : state.recovery_log) unnamed.erase(id);
    for (const auto& [id, garbage] : state.value_log) unnamed.erase(id);
    for (const auto& [place, run] : state.runs()) {
      for (const auto& each : run->tables) {
        for (const SegmentId id : each.table.segments) unnamed.erase(id);
      }
    }
    return unnamed;
  }

  Random random_;
  LsmOptions options_ = test::TinyStore();
  std::unique_ptr<InterleavedWorkers> workers_;
  std::unique_ptr<storage::SimStorage> storage_;
  std::unique_ptr<LsmStore> store_;
  storage::SimImage image_;
  uint64_t segments_max_ = 0;  // 0: there is no end of it
  std::array<PrefixModel, kClients> models_;
  size_t writing_ = 0;
  bool big_ = false;
};

TEST(LsmStoreCrashTest, APrefixOfEachClientsOperationsIsThereAndAllThatWasAcknowledged) {
  const uint64_t seeds = test::Amount{5, 25, 1500};
  uint64_t acknowledged = 0, recovered = 0, collected = 0, interrupted = 0, looked_twice = 0,
           refused = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    StoreLives lives(seed);
    lives.Run(8);
    acknowledged += lives.acknowledged;
    recovered += lives.recovered;
    collected += lives.collected;
    interrupted += lives.interrupted_opens;
    looked_twice += lives.looked_twice;
    refused += lives.refused;
    if (HasFailure()) break;
  }
  std::printf(
      "%lu seeds: %lu acknowledged, %lu recoveries and %lu cut short, %lu segments collected, %lu "
      "snapshots looked at twice, %lu operations refused\n",
      seeds, acknowledged, recovered, interrupted, collected, looked_twice, refused);
  EXPECT_GT(looked_twice, seeds);
  EXPECT_GT(acknowledged, seeds * 10);
  EXPECT_GT(recovered, seeds * 4);
  EXPECT_GT(interrupted, 0u);
  EXPECT_GT(collected, seeds);
}

}  // namespace
}  // namespace farleaf::index::lsm
