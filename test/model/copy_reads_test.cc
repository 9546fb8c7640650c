// A copy is read by threads while it follows a store that is written to, flushes, merges and collects values, is filled anew, and left. What is read is one
// state of the store's history, of all keys the same one: no older than what was acknowledged when the copy's proved stamp was taken, and no newer than
// the end of the read. A damaged copy gives Corruption, and no other answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dsm/base/random.h"
#include "dsm/shm/local_fabric.h"
#include "index/lsm/copy_reader.h"
#include "index/lsm/store.h"
#include "index/lsm/store_copy.h"
#include "test/support/memory_storage.h"
#include "test/support/mirrored_storage.h"
#include "test/support/test_scale.h"
#include "test/support/tiny_store.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Task;
using dsm::Worker;
using test::MirroredStorage;

constexpr uint64_t kKeys = 200;
constexpr int kReaders = 3;

std::string KeyOf(uint64_t number) { return "k" + std::to_string(1000 + number); }

/// What was read, of keys from `first` to `last`, both included: all others of these are absent.
struct Seen {
  std::string first, last;
  std::map<std::string, std::string> rows;
};

/// The operations of one writer, one after the other. State n is what the first n of them have made.
class History {
 public:
  using Changes = std::map<std::string, std::optional<std::string>>;
  void Begin(const Changes& changes) {
    std::lock_guard lock(mutex_);
    ++begun_;
    for (const auto& [key, value] : changes) versions_[key].push_back({begun_, value});
  }
  void Acknowledge(uint64_t now_ns) {
    std::lock_guard lock(mutex_);
    acknowledged_ns_.push_back(now_ns);
  }
  /// That it is a state, and which one may have been the newest between `from_ns` and now.
  void Check(const Seen& seen, uint64_t from_ns) {
    std::lock_guard lock(mutex_);
    const auto oldest = static_cast<size_t>(
        std::lower_bound(acknowledged_ns_.begin(), acknowledged_ns_.end(), from_ns) -
        acknowledged_ns_.begin());
    std::vector<int> wrong(begun_ - oldest + 2, 0);  // by state, differences
    const auto add_wrong = [&](size_t begin, size_t end) {
      begin = std::max(begin, oldest);
      end = std::min(end, begun_ + 1);
      if (begin >= end) return;
      ++wrong[begin - oldest];
      --wrong[end - oldest];
    };
    for (auto at = versions_.lower_bound(seen.first);
         at != versions_.end() && at->first <= seen.last; ++at) {
      const auto row = seen.rows.find(at->first);
      const auto matches = [&](const std::optional<std::string>& value) {
        return row == seen.rows.end() ? !value : value && *value == row->second;
      };
      const auto& versions = at->second;
      if (!matches(std::nullopt)) add_wrong(0, versions.front().first);
      for (size_t i = 0; i < versions.size(); ++i) {
        const size_t end = i + 1 < versions.size() ? versions[i + 1].first : SIZE_MAX;
        if (!matches(versions[i].second)) add_wrong(versions[i].first, end);
      }
    }
    for (const auto& [key, value] : seen.rows) {
      EXPECT_TRUE(versions_.contains(key)) << key << " was never written";
    }
    int sum = 0;
    bool fits = false;
    for (size_t i = 0; i + 1 < wrong.size(); ++i) fits |= (sum += wrong[i]) == 0;
    EXPECT_TRUE(fits) << seen.rows.size() << " rows from " << seen.first << " to " << seen.last
                      << " are none of the states " << oldest << " to " << begun_;
  }
  std::map<std::string, std::string> Now() const {
    std::lock_guard lock(mutex_);
    std::map<std::string, std::string> rows;
    for (const auto& [key, versions] : versions_) {
      if (versions.back().second) rows[key] = *versions.back().second;
    }
    return rows;
  }
  size_t begun() const {
    std::lock_guard lock(mutex_);
    return begun_;
  }

 private:
  mutable std::mutex mutex_;  // guards all below
  size_t begun_ = 0;
  std::vector<uint64_t> acknowledged_ns_;
  std::map<std::string, std::vector<std::pair<size_t, std::optional<std::string>>>> versions_;
};

struct Counts {
  uint64_t operations = 0, shown = 0, begun_again = 0, collected = 0, edits = 0, kept_max = 0;
  uint64_t hidden = 0, damaged = 0, damage_met = 0;
  std::atomic<uint64_t> gets{0}, scans{0}, rows{0}, unavailable{0};
};

class CopyReads {
 public:
  CopyReads(uint64_t seed, Counts* counts) : random_(seed), counts_(*counts) {}

  void Run(int lives) {
    for (int life = 0; life < lives && !::testing::Test::HasFailure(); ++life) {
      SCOPED_TRACE("life " + std::to_string(life));
      Live();
    }
  }

 private:
  bool Failed() const { return ::testing::Test::HasFailure(); }
  std::unique_ptr<Worker> OpenWorker() {
    const uint64_t number = ++workers_;
    return std::make_unique<Worker>(
        Worker::Deps{std::move(*fabric_->OpenTransport()), &epochs_, &clock_, number, number});
  }

  void Live() {
    worker_ = OpenWorker();
    mirror_ = std::make_unique<MirroredStorage>(&primary_disk_, random_.Next());
    copy_disk_.delay_ns = random_.OneIn(2) ? 0 : 30 * kNsPerUs;
    reader_ = std::make_unique<CopyReader>(
        CopyReader::Deps{.storage = &copy_disk_, .wall = &clock_, .cache_bytes = 1 << 20});
    worker_->Run(OpenAndFill(*worker_));
    if (Failed()) return;
    Worker& worker = *worker_;
    worker.Spawn(store_->RunLogs(worker));
    worker.Spawn(store_->RunLogFlushes(worker));
    worker.Spawn(store_->RunFlushes(worker));
    worker.Spawn(store_->RunCollection(worker));
    worker.Spawn(store_->RunReclaim(worker));
    worker.Spawn(store_->RunCompactions(worker));
    store_->CompactEagerly(random_.OneIn(2));
    stop_ = false;
    std::vector<std::thread> readers;
    for (int i = 0; i < kReaders; ++i) {
      readers.emplace_back([this, seed = random_.Next()] {
        const auto mine = OpenWorker();
        mine->Run(Read(*mine, seed));
      });
    }
    worker.Spawn(Stamp(worker));
    worker.Run(Write(worker, test::Amount{600, 2500, 10'000}));
    if (!Failed()) worker.Run(ExpectAll(worker));
    stop_ = true;
    for (std::thread& reader : readers) reader.join();
    store_->Stop();
    worker.RunUntilIdle();
    EXPECT_TRUE(mirror_->follows());
    if (!Failed()) worker.Run(Damage(worker));
    End();
  }

  void End() {
    counts_.shown += reader_->counts().shown;
    counts_.begun_again += reader_->counts().begun_again;
    counts_.collected += store_->collected_segments();
    counts_.edits += copy_->metrics().edits;
    mirror_->Leave();
    // What is left of it is filled anew in the next life.
    copy_ = nullptr;
    const Status closed = worker_->Run(store_->Close(*worker_));
    EXPECT_TRUE(closed.ok()) << closed;
    store_ = nullptr;
    reader_ = nullptr;
    worker_ = nullptr;
  }

  Task<void> OpenAndFill(Worker& worker) {
    LsmOptions options = test::TinyStore();
    options.durability = Durability::kSynced;
    if (random_.OneIn(2)) options.flush_memtable_ms = 10 + random_.Below(100);
    flushes_itself_ = options.flush_memtable_ms != 0;
    flush_each_ = random_.OneIn(2) ? 30 : 300;
    stamps_ns_ = (random_.OneIn(2) ? 4 : 100) * kNsPerMs;
    shown_ = false;
    const LsmStore::Deps deps{mirror_.get(), &epochs_, &clock_, 1};
    auto opened = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kCreate);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (!opened.ok()) co_return;
    store_ = std::move(*opened);
    auto copy = co_await StoreCopy::Open(worker, &copy_disk_);
    EXPECT_TRUE(copy.ok()) << copy.status();
    if (!copy.ok()) co_return;
    copy_ = std::move(*copy);
    const size_t kept_max = random_.OneIn(3) ? random_.Below(3) : 1024;
    copy_->ServeReads({.reader = reader_.get(), .clock = &clock_, .kept_segments_max = kept_max});
    StoreState state = co_await store_->State(worker);
    Status filled =
        co_await mirror_->Fill(worker, *copy_, std::move(state), MirroredStorage::Syncs::kDevice);
    EXPECT_TRUE(filled.ok()) << filled;
    EXPECT_FALSE(copy_->proved_ns());
  }

  Task<void> Stamp(Worker& worker) {
    while (!stop_) {
      co_await worker.Sleep(random_.Below(stamps_ns_));
      Status stamped = co_await mirror_->Stamp(worker, [this] { return store_->last_sequence(); });
      EXPECT_TRUE(stamped.ok()) << stamped;
    }
  }

  // ---- The writer

  Task<void> Write(Worker& worker, uint64_t count) {
    for (uint64_t i = 0; i < count && !Failed(); ++i) {
      dsm::FabricCounts counts;
      OpContext op{worker, counts};
      History::Changes changes;
      Status status;
      if (random_.OneIn(50)) {
        const uint64_t first = random_.Below(kKeys);
        const std::string start = KeyOf(first), end = KeyOf(first + 1 + random_.Below(10));
        for (uint64_t n = first; KeyOf(n) < end; ++n) changes[KeyOf(n)] = std::nullopt;
        history_.Begin(changes);
        status = co_await store_->DeleteRange(op, start, end);
      } else {
        changes = Draw();
        history_.Begin(changes);
        status = co_await WriteBatch(op, changes);
      }
      EXPECT_TRUE(status.ok()) << status;
      history_.Acknowledge(clock_.NowNs());
      ++counts_.operations;
      counts_.kept_max = std::max<uint64_t>(counts_.kept_max, copy_->metrics().segments_kept);
      const bool shown = copy_->proved_ns().has_value();
      counts_.hidden += std::exchange(shown_, shown) && !shown;
      if (!flushes_itself_ && random_.OneIn(flush_each_)) store_->FlushSoon();
      if (random_.OneIn(8)) co_await worker.Sleep(random_.Below(kNsPerMs));
    }
  }
  History::Changes Draw() {
    History::Changes changes;
    for (uint64_t n = random_.OneIn(4) ? 3 : 1; n > 0; --n) {
      const size_t bytes = random_.OneIn(2) ? 30 : random_.Below(16'000);
      std::string value = std::to_string(history_.begun()) + "/";
      while (value.size() < bytes) value += static_cast<char>('a' + value.size() % 23);
      auto& change = changes[KeyOf(random_.Below(kKeys))];
      if (!random_.OneIn(6)) change = std::move(value);
    }
    return changes;
  }
  Task<Status> WriteBatch(OpContext& op, History::Changes changes) {
    std::vector<Change> batch;
    for (const auto& [key, value] : changes) {
      Change change{.kind = value ? ChangeKind::kPut : ChangeKind::kDelete, .key = key};
      if (value) change.value = *value;
      batch.push_back(change);
    }
    Status written = co_await store_->Write(op, batch);
    co_return written;
  }

  // ---- Readers

  Task<void> Read(Worker& worker, uint64_t seed) {
    Random random(seed);
    while (!stop_ && !Failed()) {
      const std::optional<uint64_t> proved_ns = copy_->proved_ns();
      if (!proved_ns) {
        co_await worker.Sleep(200 * kNsPerUs);
        continue;
      }
      Status status;
      if (random.OneIn(3)) {
        status = co_await ScanSome(worker, random, *proved_ns);
      } else {
        status = co_await GetSome(worker, random, *proved_ns);
      }
      if (status.code() == StatusCode::kUnavailable) {
        ++counts_.unavailable;
        co_await worker.Sleep(200 * kNsPerUs);
        continue;
      }
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  Task<Status> GetSome(Worker& worker, Random& random, uint64_t proved_ns) {
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    const std::string key = KeyOf(random.Below(kKeys));
    std::string value;
    auto found = co_await reader_->Get(op, key, &value);
    if (!found.ok()) co_return found.status();
    Seen seen{key, key, {}};
    if (*found) seen.rows[key] = value;
    history_.Check(seen, proved_ns);
    ++counts_.gets;
    co_return Status::Ok();
  }
  Task<Status> ScanSome(Worker& worker, Random& random, uint64_t proved_ns) {
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    const uint64_t first = random.Below(kKeys), last = first + random.Below(kKeys - first);
    const std::string start = KeyOf(first), end = KeyOf(last + 1);
    ScanRange range{.start = start};
    range.end = end;
    if (random.OneIn(2)) range.direction = ScanDirection::kReverse;
    if (random.OneIn(2)) range.limit = 1 + random.Below(30);
    std::vector<KeyValue> rows;
    Status scanned = co_await reader_->Scan(op, range, &rows);
    if (!scanned.ok()) co_return scanned;
    CheckRows(range, {KeyOf(first), KeyOf(last), {}}, rows, proved_ns);
    ++counts_.scans;
    counts_.rows += rows.size();
    co_return Status::Ok();
  }
  void CheckRows(const ScanRange& range, Seen seen, const std::vector<KeyValue>& rows,
                 uint64_t proved_ns) {
    const bool forward = range.direction == ScanDirection::kForward;
    EXPECT_LE(rows.size(), range.limit);
    for (size_t i = 1; i < rows.size(); ++i) {
      EXPECT_TRUE(forward ? rows[i - 1].key < rows[i].key : rows[i - 1].key > rows[i].key);
    }
    // Behind the last one of a scan that has reached its limit nothing was looked at.
    if (rows.size() == range.limit) (forward ? seen.last : seen.first) = rows.back().key;
    for (const KeyValue& row : rows) {
      EXPECT_TRUE(row.key >= seen.first && row.key <= seen.last) << row.key;
      seen.rows[row.key] = row.value;
    }
    history_.Check(seen, proved_ns);
  }
  static ScanRange All() { return {.start = {}}; }

  /// Once nobody writes any more all of it comes to be read.
  Task<void> ExpectAll(Worker& worker) {
    const uint64_t written_ns = clock_.NowNs();
    for (int i = 0; i < 20'000; ++i) {
      if (!flushes_itself_) store_->FlushSoon();
      const auto proved_ns = copy_->proved_ns();
      if (proved_ns && *proved_ns > written_ns) break;
      co_await worker.Sleep(kNsPerMs);
    }
    const auto proved_ns = copy_->proved_ns();
    EXPECT_TRUE(proved_ns && *proved_ns > written_ns) << "the staleness has no end";
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    std::vector<KeyValue> rows;
    Status scanned = co_await reader_->Scan(op, All(), &rows);
    EXPECT_TRUE(scanned.ok()) << scanned;
    std::map<std::string, std::string> there;
    for (const KeyValue& row : rows) there[row.key] = row.value;
    EXPECT_TRUE(there == history_.Now()) << there.size();
  }

  /// Another bit in a segment: each answer is the right one, or Corruption.
  Task<void> Damage(Worker& worker) {
    copy_disk_.delay_ns = 0;
    const std::vector<SegmentId> segments = *copy_disk_.List();
    const std::map<std::string, std::string> right = history_.Now();
    for (int flips = 0; flips < 40 && !Failed(); ++flips) {
      const SegmentId id = segments[random_.Below(segments.size())];
      // Where something is, mostly.
      const size_t at = random_.Below(random_.OneIn(2) ? 64 << 10 : storage::kSegmentBytes);
      std::byte& byte = copy_disk_.bytes(id)[at];
      const std::byte before = byte;
      byte ^= std::byte{1} << random_.Below(8);
      CopyReader reader({.storage = &copy_disk_, .wall = &clock_, .cache_bytes = 1 << 20});
      reader.Show(copy_->state());
      bool met = false;
      co_await CheckDamaged(worker, reader, right, &met);
      byte = before;
      ++counts_.damaged;
      counts_.damage_met += met;
    }
  }
  Task<void> CheckDamaged(Worker& worker, CopyReader& reader,
                          const std::map<std::string, std::string>& right, bool* met) {
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    std::vector<KeyValue> rows;
    Status scanned = co_await reader.Scan(op, All(), &rows);
    *met = !scanned.ok();
    EXPECT_TRUE(scanned.ok() || scanned.code() == StatusCode::kCorruption) << scanned;
    EXPECT_TRUE(!scanned.ok() || rows.size() == right.size());
    auto next = right.begin();
    for (const KeyValue& row : rows) {  // the first ones
      const bool same = next != right.end() && next->first == row.key && next->second == row.value;
      EXPECT_TRUE(same) << row.key;
      if (!same) co_return;
      ++next;
    }
    for (const auto& [key, expected] : right) {
      std::string value;
      auto found = co_await reader.Get(op, key, &value);
      const bool corrupt = found.status().code() == StatusCode::kCorruption;
      *met |= corrupt;
      EXPECT_TRUE(corrupt || (found.ok() && *found && value == expected)) << key;
    }
  }

  Random random_;
  Counts& counts_;
  MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  const std::unique_ptr<dsm::LocalFabric> fabric_ = std::move(*dsm::LocalFabric::Create(
      {.servers = 1, .region_bytes = 4 << 20, .hugepages = dsm::Hugepages::kNever}));
  std::atomic<uint64_t> workers_{0};
  test::MemoryStorage primary_disk_, copy_disk_;
  History history_;
  std::unique_ptr<Worker> worker_;  // primary and copy
  std::unique_ptr<MirroredStorage> mirror_;
  std::unique_ptr<CopyReader> reader_;
  std::unique_ptr<LsmStore> store_;
  std::unique_ptr<StoreCopy> copy_;
  bool flushes_itself_ = false, shown_ = false;
  uint64_t flush_each_ = 0, stamps_ns_ = 0;
  std::atomic<bool> stop_{false};
};

TEST(CopyReadsTest, WhatIsReadIsAStateThatIsNoOlderThanTheProvedStamp) {
  const uint64_t seeds = test::Amount{1, 3, 20};
  const char* const only = std::getenv("FARLEAF_TEST_SEED");
  const uint64_t first = only ? std::stoull(only) : 1;
  Counts counts;
  for (uint64_t seed = first; seed < first + (only ? 1 : seeds) && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CopyReads run(seed, &counts);
    run.Run(test::Amount{2, 3});
  }
  std::printf(
      "%lu operations, %lu edits, %lu states shown, %lu segments collected, %lu kept at most, "
      "hidden %lu times\n%lu gets, %lu scans of %lu rows, %lu begun again, %lu unavailable\n"
      "%lu flips, %lu met\n",
      counts.operations, counts.edits, counts.shown, counts.collected, counts.kept_max,
      counts.hidden, counts.gets.load(), counts.scans.load(), counts.rows.load(),
      counts.begun_again, counts.unavailable.load(), counts.damaged, counts.damage_met);
  EXPECT_GT(counts.gets, 0u);
  EXPECT_GT(counts.scans, 0u);
  if (only || seeds < 3) return;
  EXPECT_GT(counts.collected, 0u);
  EXPECT_GT(counts.begun_again, 0u) << "nothing has gone while it was read";
  EXPECT_GT(counts.damage_met, 0u);
}

}  // namespace
}  // namespace farleaf::index::lsm
