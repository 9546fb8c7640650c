#include "benchmark/micro/lsm_pieces.h"

#include <absl/container/btree_map.h>
#include <benchmark/benchmark.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/clock.h"
#include "dsm/base/random.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/worker.h"
#include "index/lsm/commit_record.h"
#include "index/lsm/log_group.h"
#include "index/lsm/memtable.h"

namespace farleaf::micro {
namespace {

using index::lsm::Entry;
using index::lsm::EntryKind;
using index::lsm::kSequenceMax;
using index::lsm::Memtable;

constexpr uint64_t kEntries = 500'000;
constexpr size_t kValueBytes = 9;

/// 24..33 bytes, in an order that says nothing about theirs.
std::string KeyNumber(uint64_t number) {
  const uint64_t mixed = Mix64(number);
  std::string digits = std::to_string(mixed);
  std::string key = "user" + std::string(20 - digits.size(), '0') + digits;
  key.append(mixed % 10, 'k');
  return key;
}

const std::vector<std::string>& Keys() {
  static const auto* const keys = [] {
    auto* made = new std::vector<std::string>;
    for (uint64_t i = 0; i < kEntries; ++i) made->push_back(KeyNumber(i));
    return made;
  }();
  return *keys;
}

/// "cpu/item": CPU time of all threads for one of the `count` items of an iteration.
void CountItems(benchmark::State& state, uint64_t count) {
  state.counters["cpu/item"] =
      benchmark::Counter(static_cast<double>(state.iterations() * count),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void InsertAll(Memtable& memtable, uint64_t first, uint64_t step) {
  const std::string value(kValueBytes, 'v');
  for (uint64_t i = first; i < kEntries; i += step) {
    memtable.Insert(
        {.key = Keys()[i], .sequence = i + 1, .kind = EntryKind::kValue, .value = value});
  }
}

void MemtableInsert(benchmark::State& state) {
  (void)Keys();
  double bytes = 0;
  for (auto _ : state) {
    Memtable memtable;
    InsertAll(memtable, 0, 1);
    bytes = static_cast<double>(memtable.bytes());
  }
  state.counters["bytes/entry"] = bytes / kEntries;
  CountItems(state, kEntries);
}

void MemtableInsertByTwo(benchmark::State& state) {
  (void)Keys();
  for (auto _ : state) {
    Memtable memtable;
    std::thread other([&] { InsertAll(memtable, 1, 2); });
    InsertAll(memtable, 0, 2);
    other.join();
  }
  CountItems(state, kEntries);
}

/// All keys, in an order that says nothing about theirs.
void MemtableGet(benchmark::State& state) {
  Memtable memtable;
  InsertAll(memtable, 0, 1);
  for (auto _ : state) {
    for (const std::string& key : Keys()) {
      const auto found = memtable.Find(key, kSequenceMax);
      FARLEAF_CHECK(found);
      benchmark::DoNotOptimize(found->value.data());
    }
  }
  CountItems(state, kEntries);
}

void MemtableScan(benchmark::State& state) {
  Memtable memtable;
  InsertAll(memtable, 0, 1);
  Random random(1);
  uint64_t seen = 0;
  for (auto _ : state) {
    Memtable::Cursor cursor(&memtable);
    cursor.Seek(Keys()[random.Below(kEntries)], kSequenceMax);
    for (int i = 0; i < 100 && cursor.valid(); ++i, cursor.Next()) {
      seen += cursor.entry().value.size();
    }
  }
  benchmark::DoNotOptimize(seen);
}

void StdMapInsert(benchmark::State& state) {
  (void)Keys();
  for (auto _ : state) {
    std::map<std::string, std::string> map;
    for (const std::string& key : Keys()) map.emplace(key, std::string(kValueBytes, 'v'));
  }
  CountItems(state, kEntries);
}

void BtreeMapInsert(benchmark::State& state) {
  (void)Keys();
  for (auto _ : state) {
    absl::btree_map<std::string, std::string> map;
    for (const std::string& key : Keys()) map.emplace(key, std::string(kValueBytes, 'v'));
  }
  CountItems(state, kEntries);
}

void BtreeMapOfStringsGet(benchmark::State& state) {
  absl::btree_map<std::string, std::string> map;
  for (const std::string& key : Keys()) map.emplace(key, std::string(kValueBytes, 'v'));
  for (auto _ : state) {
    for (const std::string& key : Keys()) {
      benchmark::DoNotOptimize(map.find(key)->second.data());
    }
  }
  CountItems(state, kEntries);
}

/// A device that takes everything at once and keeps nothing.
class NullStorage final : public index::storage::Storage {
 public:
  using SegmentId = index::storage::SegmentId;
  dsm::Task<Status> Create(dsm::Worker&, SegmentId, index::storage::Making) override {
    co_return Status::Ok();
  }
  void SetReserve(const index::storage::ReserveSizes&) override {}
  dsm::Task<Status> FillReserve(dsm::Worker&) override { co_return Status::Ok(); }
  Status Remove(SegmentId) override { return Status::Ok(); }
  Result<std::vector<SegmentId>> List() override { return std::vector<SegmentId>(); }
  dsm::Task<Status> Run(dsm::Worker&, std::span<index::storage::Io>) override {
    co_return Status::Ok();
  }
  dsm::Task<Result<std::string>> ReadFile(dsm::Worker&, std::string name) override {
    co_return Status::NotFound(name);
  }
  dsm::Task<Status> ReplaceFile(dsm::Worker&, std::string, std::string) override {
    co_return Status::Ok();
  }
  dsm::Task<Status> AppendFile(dsm::Worker&, std::string, std::string) override {
    co_return Status::Ok();
  }
  Status RemoveFile(std::string_view) override { return Status::Ok(); }
  Result<std::vector<std::string>> ListFiles() override { return std::vector<std::string>(); }
  index::storage::StorageCounts counts() const override { return {}; }
  Result<index::storage::StorageSpace> Space() override { return index::storage::StorageSpace(); }
  std::string NameOf(SegmentId) const override { return "null"; }
};

class CountingSource final : public index::lsm::SegmentSource {
 public:
  dsm::Task<Result<index::lsm::SegmentId>> Take(dsm::Worker&, index::lsm::LogKind) override {
    co_return static_cast<index::lsm::SegmentId>(last_.fetch_add(1) + 1);
  }
  void GiveUp(index::lsm::LogKind, index::lsm::SegmentId) override {}

 private:
  std::atomic<uint64_t> last_{0};
};

/// A recovery log on it, and workers to append to it.
struct LogUnderTest {
  NullStorage storage;
  CountingSource source;
  MonotonicClock clock;
  dsm::EpochDomain epochs;
  index::lsm::LogBuffers buffers{8};
  index::lsm::Log log{{&storage, &source, &buffers, &epochs}, {index::lsm::LogKind::kRecovery, 1}};
  index::lsm::LogGroup group{&storage, {&log}, index::lsm::Durability::kLocal};
  std::unique_ptr<dsm::LocalFabric> fabric =
      std::move(*dsm::LocalFabric::Create({.servers = 1, .region_bytes = 4 << 20}));
  std::mutex mutex;

  std::unique_ptr<dsm::Worker> NewWorker() {
    std::lock_guard lock(mutex);
    return std::make_unique<dsm::Worker>(
        dsm::Worker::Deps{std::move(*fabric->OpenTransport()), &epochs, &clock, 1});
  }
};

dsm::Task<Status> AppendMany(LogUnderTest& under_test, dsm::Worker& worker, uint64_t count,
                             size_t value_bytes) {
  index::lsm::CommitWriter commit;
  const std::string value(value_bytes, 'v');
  Status status;
  for (uint64_t i = 0; i < count && status.ok();) {
    commit.Clear();
    commit.Add({.kind = index::lsm::ChangeKind::kPut, .key = Keys()[i], .value = value});
    index::lsm::Log::Appended appended;
    const auto outcome =
        under_test.log.AppendCommit(commit.payload(), 1, &appended, [](index::lsm::Sequence) {});
    if (outcome == index::lsm::Log::Outcome::kAppended) {
      ++i;
      if (appended.sealed) status = co_await under_test.group.Tend(worker);
    } else {
      status = co_await under_test.group.Room(worker, under_test.log, std::nullopt);
    }
  }
  co_return status;
}

/// Commits of one change of a value of so many bytes each, by so many threads, each with its own worker. Time is of the whole.
void LogAppend(benchmark::State& state) {
  constexpr uint64_t kAppends = 400'000, kAtOnce = 1000;
  const auto threads = static_cast<size_t>(state.range(0));
  const auto value_bytes = static_cast<size_t>(state.range(1));
  (void)Keys();
  LogUnderTest under_test;
  for (auto _ : state) {
    std::vector<std::thread> running;
    for (size_t t = 0; t < threads; ++t) {
      running.emplace_back([&] {
        auto worker = under_test.NewWorker();
        // Many, not one: buffers are used again when all workers have been idle for a moment.
        for (uint64_t done = 0; done < kAppends / threads; done += kAtOnce) {
          const Status status = worker->Run(AppendMany(under_test, *worker, kAtOnce, value_bytes));
          FARLEAF_CHECK(status.ok(), status);
        }
      });
    }
    for (auto& thread : running) thread.join();
  }
  CountItems(state, kAppends);
}

}  // namespace

void RegisterLsmPieces() {
  benchmark::RegisterBenchmark("memtable_insert", MemtableInsert);
  benchmark::RegisterBenchmark("memtable_insert/threads:2", MemtableInsertByTwo)
      ->MeasureProcessCPUTime();
  benchmark::RegisterBenchmark("memtable_get", MemtableGet);
  benchmark::RegisterBenchmark("memtable_scan_100", MemtableScan);
  benchmark::RegisterBenchmark("std_map_insert", StdMapInsert);
  benchmark::RegisterBenchmark("btree_map_of_strings_insert", BtreeMapInsert);
  benchmark::RegisterBenchmark("btree_map_of_strings_get", BtreeMapOfStringsGet);
  benchmark::RegisterBenchmark("log_append", LogAppend)
      ->ArgNames({"threads", "value_bytes"})
      ->ArgsProduct({{1, 2}, {9, 1000}})
      ->MeasureProcessCPUTime();
}

}  // namespace farleaf::micro
