// Snapshots and expiry, while all turns over: memtables are flushed, levels merged, values collected, the store is opened again, and time goes
// on. What each
// snapshot and each iterator shows is what a copy of a map shows that was made with it; and when nobody looks any more, nothing of
// what was deleted or has expired takes space.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "index/lsm/snapshot.h"
#include "index/lsm/store.h"
#include "index/storage/sim_storage.h"
#include "test/support/interleaved_workers.h"
#include "test/support/test_scale.h"
#include "test/support/tiny_store.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Worker;
using test::InterleavedWorkers;

constexpr size_t kSnapshotsMax = 5, kIteratorsMax = 4;
/// The value log's tail, what is prepared behind it, and what was granted with these.
constexpr uint64_t kValueSegmentsLeft = 16;

struct Counts {
  uint64_t snapshots = 0, kept = 0, iterated = 0, collected = 0, held_max = 0, expired = 0;
  uint64_t expiries_kept = 0, expiries_changed = 0, expiries_read = 0, reopened = 0;
};

class StoreRun {
 public:
  StoreRun(uint64_t seed, Counts* counts)
      : random_(seed), counts_(counts), workers_({.seed = random_.Next(), .workers = 3}) {
    wall_.AdvanceNs(uint64_t{1'700'000'000} * kNsPerSecond);
  }
  ~StoreRun() {
    // A run that has failed is left in the middle of it.
    if (!store_) return;
    (void)storage_.Crash();
    workers_.Abandon();
    store_->Abandon();
    iterators_.clear();
    store_ = nullptr;
    taken_.clear();
  }

  void Live(uint64_t steps) {
    Worker& worker = workers_[0];
    Turn(OpenStore(worker));
    if (::testing::Test::HasFailure()) return;
    Turn(Steps(worker, steps));
    if (!::testing::Test::HasFailure()) Turn(LetAllExpire(worker));
    if (::testing::Test::HasFailure()) return;
    counts_->collected += store_->collected_segments();
    const Snapshot outlives_the_store = store_->TakeSnapshot();
    store_->Stop();
    ASSERT_EQ(workers_.RunAll(), InterleavedWorkers::RunEnd::kDone);
    Turn(CloseStore(worker));
    store_ = nullptr;
  }

 private:
  static constexpr uint64_t kKeys = 60;
  static constexpr uint64_t kHourMs = 3'600'000;

  struct Row {
    std::string value;
    uint64_t expires_ms = 0;
  };
  using Model = std::map<std::string, Row>;
  using Content = std::map<std::string, std::string>;
  struct Taken {
    Snapshot snapshot;
    Content content;
    Model rows;  ///< also those that have expired
  };
  struct Iterating {
    std::unique_ptr<SnapshotIterator> iterator;
    std::vector<KeyValue> rest;  ///< the next one is the last
    bool ended = false;
  };

  void Turn(dsm::Task<void> task) {
    Worker& worker = workers_[0];
    worker.Spawn(std::move(task));
    const auto end =
        workers_.RunWhile([&] { return worker.spawned() > 0 && !::testing::Test::HasFailure(); });
    ASSERT_EQ(end, InterleavedWorkers::RunEnd::kDone) << "nothing goes on";
  }
  dsm::Task<void> OpenStore(Worker& worker) {
    const LsmStore::Deps deps{&storage_, &workers_.epochs(), &wall_, 1};
    const LsmOptions options = test::TinyStore();
    auto opened = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kCreate);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (!opened.ok()) co_return;
    store_ = std::move(*opened);
    workers_[1].Spawn(store_->RunLogs(workers_[1]));
    workers_[1].Spawn(store_->RunLogFlushes(workers_[1]));
    workers_[1].Spawn(store_->RunFlushes(workers_[1]));
    workers_[1].Spawn(store_->RunCollection(workers_[1]));
    workers_[1].Spawn(store_->RunReclaim(workers_[1]));
    workers_[2].Spawn(store_->RunCompactions(workers_[2]));
  }
  dsm::Task<void> Reopen(Worker& worker) {
    iterators_.clear();
    taken_.clear();
    counts_->collected += store_->collected_segments();
    store_->Stop();
    while (workers_[1].spawned() + workers_[2].spawned() > 0) co_await worker.Sleep(kNsPerMs);
    co_await CloseStore(worker);
    store_ = nullptr;
    co_await OpenStore(worker);
    ++counts_->reopened;
  }
  dsm::Task<void> CloseStore(Worker& worker) {
    Status closed = co_await store_->Close(worker);
    EXPECT_TRUE(closed.ok()) << closed;
  }

  uint64_t NowMs() const { return wall_.NowNs() / kNsPerMs; }
  static std::string KeyOf(uint64_t number) { return "k" + std::to_string(100 + number); }
  std::string RandomKey() { return KeyOf(random_.Below(kKeys)); }
  static bool Expired(const Row& row, uint64_t now_ms) {
    return row.expires_ms != 0 && row.expires_ms <= now_ms;
  }
  static std::optional<uint64_t> ExpiryOf(const Model& model, const std::string& key,
                                          uint64_t now_ms) {
    const auto at = model.find(key);
    if (at == model.end() || Expired(at->second, now_ms)) return std::nullopt;
    return at->second.expires_ms;
  }
  Content ContentNow() const {
    Content content;
    for (const auto& [key, row] : model_) {
      if (!Expired(row, NowMs())) content[key] = row.value;
    }
    return content;
  }
  static std::vector<KeyValue> RowsOf(const Content& content, const ScanRange& range) {
    std::vector<KeyValue> rows;
    for (const auto& [key, value] : content) {
      if (key >= range.start && (!range.end || key < *range.end)) rows.push_back({key, value});
    }
    if (range.direction == ScanDirection::kReverse) std::reverse(rows.begin(), rows.end());
    if (rows.size() > range.limit) rows.resize(range.limit);
    return rows;
  }

  dsm::Task<void> Steps(Worker& worker, uint64_t steps) {
    for (uint64_t step = 0; step < steps && !::testing::Test::HasFailure(); ++step) {
      const uint64_t what = random_.Below(100);
      if (what < 30) {
        co_await Write(worker);
      } else if (what < 40) {
        co_await Modify(worker);
      } else if (what < 45) {
        TakeOrRelease();
      } else if (what < 60) {
        co_await Get(worker);
      } else if (what < 68) {
        co_await Scan(worker);
      } else if (what < 72) {
        OpenOrCloseIterator();
      } else if (what < 90) {
        co_await Iterate(worker);
      } else if (what < 94) {
        store_->FlushSoon();
      } else if (what < 98) {
        wall_.AdvanceNs(random_.Below(random_.OneIn(50) ? 2 * kHourMs : 500) * kNsPerMs);
        co_await worker.Sleep(random_.Below(10 * kNsPerMs));
      } else if (!random_.OneIn(20)) {
        store_->CompactEagerly(random_.OneIn(2));
      } else {
        co_await Reopen(worker);
        if (!store_) co_return;
      }
      counts_->held_max = std::max(counts_->held_max, store_->snapshot_metrics().segments_held);
    }
  }

  dsm::Task<void> Write(Worker& worker) {
    std::vector<std::string> keys, ends, values;
    std::vector<Change> changes;
    const size_t count = random_.OneIn(4) ? 4 : 1;
    keys.reserve(count);
    ends.reserve(count);
    values.reserve(count);
    Model after = model_;
    for (size_t i = 0; i < count; ++i) {
      Change change{.kind = ChangeKind::kPut, .key = keys.emplace_back(RandomKey())};
      const uint64_t kind = random_.Below(40);
      if (kind == 0) {
        change.kind = ChangeKind::kDeleteRange;
        change.end = ends.emplace_back(keys.back().substr(0, 3) + ":");  // up to ten of them
        after.erase(after.lower_bound(keys.back()), after.lower_bound(ends.back()));
      } else if (kind < 6) {
        change.kind = ChangeKind::kDelete;
        after.erase(keys.back());
      } else {
        std::string value = std::to_string(++version_) + "/";
        value.resize(random_.OneIn(2) ? 30 : 64 + random_.Below(60'000),
                     static_cast<char>('a' + version_ % 26));
        if (random_.OneIn(4)) change.expires_ms = NowMs() + 1 + random_.Below(2000);
        counts_->expired += change.expires_ms != 0;
        after[keys.back()] = {value, change.expires_ms};
        change.value = values.emplace_back(std::move(value));
      }
      changes.push_back(change);
    }
    dsm::FabricCounts fabric;
    OpContext op{worker, fabric};
    Status written = co_await store_->Write(op, changes);
    EXPECT_TRUE(written.ok()) << written;
    model_ = std::move(after);
  }

  /// Through the interface of all indexes, or through the store's own.
  dsm::Task<void> Modify(Worker& worker) {
    const std::string key = RandomKey();
    const auto at = model_.find(key);
    const bool there = at != model_.end() && !Expired(at->second, NowMs());
    const Row before = there ? at->second : Row();
    Row after{std::to_string(++version_) + "/", 0};
    after.value.resize(random_.OneIn(2) ? 30 : 64 + random_.Below(60'000), 'm');
    const bool deletes = random_.OneIn(8), reads = random_.OneIn(2), shared = random_.OneIn(3);
    const bool keeps = shared ? reads : random_.OneIn(2);
    after.expires_ms = keeps ? before.expires_ms : 0;
    if (!shared && !keeps && random_.OneIn(2)) after.expires_ms = NowMs() + random_.Below(2000);
    counts_->expiries_kept += keeps && !deletes && before.expires_ms != 0;
    counts_->expiries_changed += !shared && after.expires_ms != before.expires_ms;
    bool saw = there;
    std::string value;
    uint64_t expires_ms = 0;
    const ModifyAction action = deletes ? ModifyAction::kDelete : ModifyAction::kWrite;
    const ModifyFunction blind = [&](std::optional<std::string_view> current, std::string* next) {
      saw = current.has_value();
      value = current.value_or("");
      *next = after.value;
      return action;
    };
    const ModifyEntryFunction seeing = [&](const std::optional<CurrentEntry>& current,
                                           NewEntry* next) {
      saw = current.has_value();
      value = current ? current->value : "";
      expires_ms = current ? current->expires_ms : 0;
      next->value = after.value;
      if (!keeps) next->expires_ms = after.expires_ms;
      return action;
    };
    dsm::FabricCounts fabric;
    OpContext op{worker, fabric};
    const CurrentValue use = reads ? CurrentValue::kRead : CurrentValue::kPresenceOnly;
    auto task =
        shared ? store_->Modify(op, key, blind, use) : store_->ModifyEntry(op, key, seeing, use);
    auto modified = co_await std::move(task);
    EXPECT_TRUE(modified.ok()) << modified.status();
    EXPECT_EQ(saw, there) << key;
    EXPECT_TRUE(value == (reads ? before.value : "")) << key;
    EXPECT_TRUE(shared || expires_ms == before.expires_ms) << key << ", " << expires_ms;
    if (deletes) {
      model_.erase(key);
    } else {
      model_[key] = std::move(after);
    }
  }

  void TakeOrRelease() {
    if (taken_.size() < kSnapshotsMax && random_.OneIn(2)) {
      taken_.push_back({store_->TakeSnapshot(), ContentNow(), model_});
      EXPECT_EQ(taken_.back().snapshot.taken_ms(), NowMs());
      ++counts_->snapshots;
    } else if (!taken_.empty()) {
      taken_.erase(taken_.begin() + static_cast<ptrdiff_t>(random_.Below(taken_.size())));
    }
    const LsmStore::SnapshotMetrics metrics = store_->snapshot_metrics();
    EXPECT_GE(metrics.open, taken_.empty() ? 0u : 1u);
    if (!taken_.empty()) {
      EXPECT_GE(metrics.oldest_age_ms, NowMs() - taken_.front().snapshot.taken_ms());
    }
  }

  const Taken* RandomTaken() {
    return taken_.empty() ? nullptr : &taken_[random_.Below(taken_.size())];
  }

  dsm::Task<void> Get(Worker& worker) {
    dsm::FabricCounts fabric;
    OpContext op{worker, fabric};
    const std::string key = RandomKey();
    std::string value;
    const Content now = ContentNow();
    const auto is = now.find(key);
    auto found = co_await store_->Get(op, key, &value);
    EXPECT_TRUE(found.ok()) << found.status();
    if (!found.ok()) co_return;
    EXPECT_TRUE(*found == (is != now.end()) && (!*found || value == is->second)) << key;
    auto expiry = co_await store_->ExpiryOf(op, key);
    EXPECT_TRUE(expiry.ok() && *expiry == ExpiryOf(model_, key, NowMs())) << key;
    const Taken* const taken = RandomTaken();
    if (!taken) co_return;
    const auto was = taken->content.find(key);
    value.clear();
    auto there = co_await store_->GetAt(op, taken->snapshot, key, &value);
    EXPECT_TRUE(there.ok()) << key << " at " << taken->snapshot.sequence() << ": "
                            << there.status();
    if (!there.ok()) co_return;
    EXPECT_TRUE(*there == (was != taken->content.end()) && (!*there || value == was->second))
        << key << " at " << taken->snapshot.sequence();
    auto expired = co_await store_->ExpiryAt(op, taken->snapshot, key);
    EXPECT_TRUE(expired.ok()) << expired.status();
    if (!expired.ok()) co_return;
    EXPECT_EQ(*expired, ExpiryOf(taken->rows, key, taken->snapshot.taken_ms())) << key;
    counts_->expiries_read += expired->value_or(0) != 0;
    counts_->kept += *there && (is == now.end() || is->second != value);
  }

  dsm::Task<void> Scan(Worker& worker) {
    dsm::FabricCounts fabric;
    OpContext op{worker, fabric};
    const std::string start = RandomKey(), end = RandomKey();
    ScanRange range;
    if (random_.OneIn(2)) range.start = start;
    if (random_.OneIn(2)) range.end = end;
    if (random_.OneIn(4)) range.limit = random_.Below(10);
    if (random_.OneIn(2)) range.direction = ScanDirection::kReverse;
    const Taken* const taken = RandomTaken();
    const std::vector<KeyValue> expected = RowsOf(taken ? taken->content : ContentNow(), range);
    std::vector<KeyValue> rows;
    Status scanned;
    if (taken) {
      scanned = co_await store_->ScanAt(op, taken->snapshot, range, &rows);
    } else {
      scanned = co_await store_->Scan(op, range, &rows);
    }
    EXPECT_TRUE(scanned.ok()) << scanned;
    EXPECT_TRUE(rows == expected) << rows.size() << " rows, expected " << expected.size();
  }

  void OpenOrCloseIterator() {
    const Taken* const taken = RandomTaken();
    if (iterators_.size() == kIteratorsMax || (!iterators_.empty() && random_.OneIn(3))) {
      iterators_.erase(iterators_.begin() +
                       static_cast<ptrdiff_t>(random_.Below(iterators_.size())));
    } else if (taken) {
      Iterating each{std::make_unique<SnapshotIterator>(store_.get(), taken->snapshot), {}};
      const std::string at = RandomKey();
      ScanRange range;
      if (random_.OneIn(2)) {
        range.start = at;
        each.iterator->SeekTo(at);
      } else {
        range.direction = ScanDirection::kReverse;
        if (random_.OneIn(2)) range.end = at;
        each.iterator->SeekBefore(range.end);
      }
      each.rest = RowsOf(taken->content, range);
      std::reverse(each.rest.begin(), each.rest.end());
      iterators_.push_back(std::move(each));
    }
  }

  dsm::Task<void> Iterate(Worker& worker) {
    if (iterators_.empty()) co_return;
    Iterating& each = iterators_[random_.Below(iterators_.size())];
    dsm::FabricCounts fabric;
    OpContext op{worker, fabric};
    for (uint64_t steps = 1 + random_.Below(6); steps > 0; --steps) {
      auto another = co_await each.iterator->Next(op);
      EXPECT_TRUE(another.ok()) << another.status();
      if (!another.ok()) co_return;
      EXPECT_EQ(*another, !each.rest.empty());
      if (!*another || each.rest.empty()) co_return;
      EXPECT_TRUE(each.iterator->row() == each.rest.back())
          << each.iterator->row().key << ", not " << each.rest.back().key;
      each.rest.pop_back();
      ++counts_->iterated;
    }
  }

  /// Tables with keys of the model, whatever is said of them there.
  uint64_t Tables() const {
    uint64_t tables = 0;
    const auto version = store_->version();
    for (const Run& run : version->runs) {
      for (const TableRef& table : run.tables) tables += table.file->info().largest >= KeyOf(0);
    }
    return tables;
  }

  /// Nothing is deleted: it expires, and is merged away.
  dsm::Task<void> LetAllExpire(Worker& worker) {
    iterators_.clear();
    taken_.clear();
    dsm::FabricCounts fabric;
    OpContext op{worker, fabric};
    for (uint64_t number = 0; number < kKeys; ++number) {
      const std::string key = KeyOf(number), value(random_.Below(3000), 'x');
      const Change change{
          .kind = ChangeKind::kPut, .key = key, .value = value, .expires_ms = NowMs() + 1};
      Status written = co_await store_->Write(op, {&change, 1});
      EXPECT_TRUE(written.ok()) << written;
    }
    wall_.AdvanceNs(kNsPerMs);
    store_->CompactEagerly(true);
    uint64_t tables = 0, segments = 0;
    for (int i = 0; i < 100; ++i) {
      const std::string key = "a" + std::to_string(i % 2);  // so that there is something to flush
      auto put = co_await store_->Put(op, key, "x");
      EXPECT_TRUE(put.ok()) << put.status();
      store_->FlushSoon();
      co_await worker.Sleep(kNsPerSecond);
      tables = Tables();
      const StoreState state = co_await store_->State(worker);
      segments = state.value_log.size();
      const uint64_t held = store_->snapshot_metrics().segments_held;
      if (tables == 0 && held == 0 && segments <= kValueSegmentsLeft) break;
    }
    EXPECT_EQ(tables, 0u);
    EXPECT_LE(segments, kValueSegmentsLeft);
    const LsmStore::SnapshotMetrics metrics = store_->snapshot_metrics();
    EXPECT_EQ(metrics.open, 0u);
    EXPECT_EQ(metrics.segments_held, 0u);
    EXPECT_EQ(metrics.oldest_age_ms, 0u);
  }

  Random random_;
  Counts* const counts_;
  InterleavedWorkers workers_;
  ManualClock wall_;
  storage::SimStorage storage_{{.seed = random_.Next(), .clock = &workers_.clock()}, {}};
  std::unique_ptr<LsmStore> store_;
  Model model_;
  uint64_t version_ = 0;
  std::vector<Taken> taken_;
  std::vector<Iterating> iterators_;
};

TEST(LsmSnapshotTest, WhatASnapshotSeesStaysWhateverIsFlushedMergedCollectedOrExpires) {
  const uint64_t seeds = test::Amount{3, 12, 500};
  Counts counts;
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    StoreRun run(seed, &counts);
    run.Live(3000);
  }
  std::printf(
      "%lu seeds: %lu snapshots, %lu reads of what is gone since, %lu rows of iterators, %lu "
      "segments collected, of which up to %lu were held; %lu values with an expiry, %lu kept and "
      "%lu "
      "changed by a modify, %lu seen in snapshots; opened again %lu times\n",
      seeds, counts.snapshots, counts.kept, counts.iterated, counts.collected, counts.held_max,
      counts.expired, counts.expiries_kept, counts.expiries_changed, counts.expiries_read,
      counts.reopened);
  EXPECT_GT(counts.kept, seeds * 20);
  EXPECT_GT(counts.iterated, seeds * 100);
  EXPECT_GT(counts.collected, seeds);
  EXPECT_GT(counts.held_max, 0u);
  EXPECT_GT(counts.expiries_kept, seeds * 5);
  EXPECT_GT(counts.expiries_changed, seeds * 20);
  EXPECT_GT(counts.expiries_read, seeds * 5);
  EXPECT_GT(counts.reopened, 0u);
}

}  // namespace
}  // namespace farleaf::index::lsm
