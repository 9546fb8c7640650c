// Value collection: space of values that were overwritten comes back, none of the others is lost on the way, and what is damaged
// is kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/random.h"
#include "test/support/lsm_host.h"

namespace farleaf::test {
namespace {

using index::KeyValue;
using index::ScanRange;
using index::storage::SegmentId;

constexpr uint64_t kSegmentBytes = index::storage::kSegmentBytes;

class LsmCollectionTest : public ::testing::Test {
 protected:
  LsmCollectionTest() { Open(); }
  ~LsmCollectionTest() override { worker_ = nullptr; }

  void Open() { worker_ = host_.OpenWorker(); }
  void Reopen() {
    worker_ = nullptr;
    host_.Close();
    host_.Open();
    Open();
  }
  static std::string Key(uint64_t number) { return "key" + std::to_string(1'000'000 + number); }
  static std::string Large(uint64_t number, uint64_t version, size_t bytes) {
    std::string value = std::to_string(number) + "." + std::to_string(version) + ".";
    value.resize(bytes, static_cast<char>('a' + version % 26));
    return value;
  }
  void Put(const std::string& key, std::string value) {
    constexpr uint64_t kPatienceNs =
        60'000 * kNsPerMs;  // it is told what it waits for, if that never comes
    const uint64_t deadline_ns = worker_->clock().NowNs() + kPatienceNs;
    dsm::OpContext op{.worker = *worker_, .counts = counts_, .deadline_ns = deadline_ns};
    auto put = worker_->Run(host_.index(0).Put(op, key, value));
    ASSERT_TRUE(put.ok()) << put.status();
    ASSERT_EQ(*put, !model_.contains(key)) << key;
    model_[key] = std::move(value);
  }
  Result<bool> Get(const std::string& key, std::string* value) {
    dsm::OpContext op{*worker_, counts_};
    return worker_->Run(host_.index(0).Get(op, key, value));
  }
  void ExpectAll() {
    dsm::OpContext op{*worker_, counts_};
    std::vector<KeyValue> rows;
    Status scanned = worker_->Run(host_.index(0).Scan(op, ScanRange{.start = {}}, &rows));
    ASSERT_TRUE(scanned.ok()) << scanned;
    ASSERT_EQ(rows.size(), model_.size());
    size_t i = 0;
    for (const auto& [key, value] : model_) {
      ASSERT_EQ(rows[i].key, key);
      ASSERT_TRUE(rows[i].value == value) << key;
      ++i;
    }
  }
  uint64_t Segments() { return host_.storage().List()->size(); }
  /// Of those that were written.
  std::optional<SegmentId> FirstValueSegment() {
    constexpr size_t kLogKindAt = 8;
    const std::vector<SegmentId> segments = *host_.storage().List();
    for (const SegmentId id : segments) {
      if (host_.storage().ByteAt(id, kLogKindAt) == std::byte{2}) return id;
    }
    return std::nullopt;
  }
  void FlushSoon() {
    worker_->GoOnline();
    host_.store().FlushSoon();
    worker_->GoOffline();
  }
  /// Until it is so; merges tell what is garbage, so they go on meanwhile.
  template <typename Condition>
  void Await(const std::string& what, Condition condition) {
    host_.store().CompactEagerly(true);
    for (int waited_ms = 0; !condition(); waited_ms += 10) {
      ASSERT_LT(waited_ms, 120'000) << what << "; " << Segments() << " segments";
      FlushSoon();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    host_.store().CompactEagerly(false);
  }

  LsmHost host_{{LsmHost::SmallStore()}};
  std::unique_ptr<dsm::Worker> worker_;
  dsm::FabricCounts counts_;
  std::map<std::string, std::string> model_;
};

/// What runs in the background does so on the writer's own worker: so it happens while somebody writes, and not otherwise.
class LsmGarbageLimitTest : public LsmCollectionTest {
 protected:
  static constexpr uint64_t kKeys = 200, kValueBytes = 60'000;

  LsmGarbageLimitTest() {
    worker_ = nullptr;
    host_.Close();
    OpenWithoutCollection();
  }
  ~LsmGarbageLimitTest() override { StopAll(); }

  void OpenWithoutCollection() {
    const Status opened = host_.TryOpen();
    ASSERT_TRUE(opened.ok()) << opened;
    Open();
    store().CompactEagerly(true);
    worker_->Spawn(store().RunLogs(*worker_));
    worker_->Spawn(store().RunFlushes(*worker_));
    worker_->Spawn(store().RunCompactions(*worker_));
  }
  void Collect() { worker_->Spawn(store().RunCollection(*worker_)); }
  void StopAll() {
    store().Stop();
    worker_->RunUntilIdle();
  }
  index::lsm::LsmStore& store() { return host_.store(); }
  bool OverLimit() { return store().garbage().share() >= store().options().garbage_limit(); }
  void FillToLimit() {
    for (uint64_t puts = 1; !OverLimit(); ++puts) {
      ASSERT_LT(puts, 20 * kKeys) << store().garbage().share();
      Put(Key(puts % kKeys), Large(puts % kKeys, puts, kValueBytes));
      ASSERT_FALSE(HasFatalFailure());
      if (puts % kKeys == 0) FlushSoon();
    }
  }
  static dsm::Task<void> Nap(dsm::Worker& worker) { co_await worker.Sleep(kNsPerMs); }
};

TEST_F(LsmGarbageLimitTest, WritersWaitWhileTooMuchIsGarbage) {
  FillToLimit();
  const uint64_t segments = Segments();
  for (uint64_t i = 0; i < 5; ++i) {
    const uint64_t now_ns = worker_->clock().NowNs();
    dsm::OpContext op{.worker = *worker_, .counts = counts_, .deadline_ns = now_ns + 5 * kNsPerMs};
    const auto refused = worker_->Run(store().Put(op, Key(i), Large(i, 0, kValueBytes)));
    ASSERT_EQ(refused.status().code(), StatusCode::kDeadlineExceeded) << refused.status();
    EXPECT_NE(refused.status().message().find("garbage_max is"), std::string::npos)
        << refused.status();
  }
  EXPECT_EQ(Segments(), segments);
  constexpr auto kCollection = static_cast<size_t>(index::lsm::WaitsFor::kCollection);
  EXPECT_EQ(store().metrics().waits[kCollection].count, 5u);
  ExpectAll();  // reads go on

  Collect();
  Put(Key(0), "small");
  EXPECT_FALSE(OverLimit());
  EXPECT_GT(store().collected_segments(), 0u);
  ExpectAll();
}

// What is collected is moved to the tail, and before the first commit there is none.
TEST_F(LsmGarbageLimitTest, AStoreThatHasTooMuchWhenItIsOpenedTakesWrites) {
  FillToLimit();
  StopAll();
  worker_ = nullptr;
  host_.Close();
  OpenWithoutCollection();
  Collect();
  FlushSoon();  // of what was replayed: with that edit the garbage is known
  for (int naps = 0; store().memtables().flushes == 0; ++naps) {
    ASSERT_LT(naps, 60'000);
    worker_->Run(Nap(*worker_));
  }
  EXPECT_TRUE(OverLimit()) << store().garbage().share();
  for (uint64_t i = 0; i < kKeys && !HasFatalFailure(); ++i) {
    Put(Key(i), Large(i, 0, kValueBytes));
  }
  EXPECT_GT(store().collected_segments(), 0u);
  ExpectAll();
}

TEST_F(LsmCollectionTest, OverwrittenValuesGiveTheirSpaceBack) {
  constexpr uint64_t kKeys = 4000, kValueBytes = 3000;
  // Segments that the values which are there would fill, and as much again; and the rest of the store.
  constexpr uint64_t kSegmentsEnough = 2 * (kKeys * kValueBytes / kSegmentBytes) + 24;
  Random random(3);
  for (uint64_t number = 0; number < kKeys; ++number) {
    Put(Key(number), Large(number, 0, kValueBytes));
  }
  // A tenth is never overwritten: it is moved, again and again.
  for (uint64_t i = 1; i <= 12 * kKeys; ++i) {
    const uint64_t number = random.Below(kKeys);
    if (number % 10 == 0) continue;
    Put(Key(number), Large(number, i, kValueBytes));
    ASSERT_FALSE(HasFatalFailure());
  }
  Await("space comes back", [&] { return Segments() <= kSegmentsEnough; });
  EXPECT_GT(host_.store().collected_segments(), 20u);
  ExpectAll();
  Reopen();
  ExpectAll();
}

// Entries are small beside their values: the memtable would not be full for long.
TEST_F(LsmCollectionTest, AKeyThatIsOverwrittenAgainAndAgainTakesBoundedSpace) {
  constexpr uint64_t kValueBytes = 64 << 10, kTimes = 6000;
  // Two memtables with 16 times their size of values, as much again that is not collected yet, and the rest of the store.
  const uint64_t enough = 4 * 16 * host_.store().options().memtable_bytes / kSegmentBytes + 24;
  ASSERT_LT(enough, kTimes * kValueBytes / kSegmentBytes);
  uint64_t most = 0;
  for (uint64_t i = 0; i < kTimes; ++i) {
    Put("key", Large(1, i, kValueBytes));
    ASSERT_FALSE(HasFatalFailure());
    if (i % 64 == 0) most = std::max(most, Segments());
  }
  EXPECT_LE(most, enough);
  ExpectAll();
}

TEST_F(LsmCollectionTest, AValueThatExpiresAtTheEndOfTimeIsMovedLikeOthers) {
  constexpr uint64_t kKeys = 3000, kValueBytes = 3000;
  const std::string key = Key(0), value = Large(0, 7, kValueBytes);
  index::lsm::Change change{.kind = index::lsm::ChangeKind::kPut, .key = key, .value = value};
  change.expires_ms = UINT64_MAX;
  dsm::OpContext op{*worker_, counts_};
  const Status written = worker_->Run(host_.store().Write(op, {&change, 1}));
  ASSERT_TRUE(written.ok()) << written;
  model_[key] = value;
  for (uint64_t number = 1; number < kKeys; ++number)
    Put(Key(number), Large(number, 0, kValueBytes));
  Await("a segment of values is written", [&] { return FirstValueSegment().has_value(); });
  const std::optional<SegmentId> first = FirstValueSegment();
  ASSERT_TRUE(first);
  for (uint64_t version = 1; version < 3; ++version) {
    for (uint64_t number = 1; number < kKeys; ++number) {
      Put(Key(number), Large(number, version, kValueBytes));
    }
  }
  Await("the first segment is collected", [&] {
    const std::vector<SegmentId> segments = *host_.storage().List();
    return std::find(segments.begin(), segments.end(), *first) == segments.end();
  });
  ExpectAll();
}

TEST_F(LsmCollectionTest, ASegmentWithADamagedRecordIsKept) {
  constexpr uint64_t kKeys = 3000, kValueBytes = 3000;
  for (uint64_t number = 0; number < kKeys; ++number) {
    Put(Key(number), Large(number, 0, kValueBytes));
  }
  // Tables name the values, not commits: where these name one that is lost, recovery takes the log to end there.
  FlushSoon();
  Await("all is flushed", [&] {
    worker_->GoOnline();
    const bool quiet = host_.store().Quiet();
    worker_->GoOffline();
    return quiet;
  });
  Reopen();
  // The first segment of the value log is full, and others behind it were used since: its last record loses a bit.
  const std::optional<SegmentId> damaged = FirstValueSegment();
  ASSERT_TRUE(damaged);
  worker_ = nullptr;
  host_.Close();
  {
    std::vector<std::byte>& bytes = host_.storage().bytes(*damaged);
    size_t last = bytes.size() - 1;
    while (bytes[last] == std::byte{0}) --last;
    bytes[last] ^= std::byte{1};
  }
  host_.Open();
  Open();
  const uint64_t collected = host_.store().collected_segments();
  for (uint64_t number = 0; number < kKeys; ++number) {
    if (number % 8 == 0) continue;  // so that each segment is garbage for the most part
    dsm::OpContext op{*worker_, counts_};
    const std::string key = Key(number), value = Large(number, 1, kValueBytes);
    auto put = worker_->Run(host_.index(0).Put(op, key, value));
    ASSERT_TRUE(put.ok()) << put.status();
    model_[key] = value;
  }
  uint64_t ticks = 0;
  Await("others are collected", [&] {
    Put("tick", std::to_string(
                    ++ticks));  // what overwrites sinks to what it overwrites with the next merges
    return host_.store().collected_segments() >= collected + 2;
  });
  const std::vector<SegmentId> there = *host_.storage().List();
  EXPECT_TRUE(std::find(there.begin(), there.end(), *damaged) != there.end());
  size_t damaged_values = 0;
  for (const auto& [key, expected] : model_) {
    std::string value;
    auto found = Get(key, &value);
    if (!found.ok()) {
      EXPECT_EQ(found.status().code(), StatusCode::kCorruption) << found.status();
      ++damaged_values;
    } else {
      EXPECT_TRUE(*found && value == expected) << key;
    }
  }
  EXPECT_LE(damaged_values, 1u);
}

}  // namespace
}  // namespace farleaf::test
