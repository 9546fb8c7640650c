// What a store tells its mirror, while threads write and copies are filled: what mirror.h promises, and that a filled copy has what it
// is to have.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/random.h"
#include "dsm/shm/local_fabric.h"
#include "index/lsm/background.h"
#include "index/lsm/store.h"
#include "test/support/checking_mirror.h"
#include "test/support/memory_storage.h"
#include "test/support/noted_changes.h"
#include "test/support/test_scale.h"
#include "test/support/tiny_store.h"

namespace farleaf::index::lsm {
namespace {

using dsm::Task;
using dsm::Worker;
using storage::kBlockBytes;
using storage::kSegmentBytes;
using test::CheckingMirror;

/// A copy in memory, that checks what a CopySink is promised.
class MemoryCopy final : public CopySink {
 public:
  std::set<SegmentId> inventory;
  std::map<SegmentId, std::string> segments;
  std::set<SegmentId> opened;
  StoreState state;
  bool installed = false;
  std::map<SegmentId, CheckingMirror::Segment> mirrored;  ///< when it was installed

  explicit MemoryCopy(const CheckingMirror* mirror) : mirror_(mirror) {}

  Task<Result<std::set<SegmentId>>> Inventory(Worker&) override { co_return inventory; }
  Task<Status> Write(Worker&, SegmentId segment, uint32_t offset, std::span<const std::byte> bytes,
                     bool last) override {
    EXPECT_FALSE(whole_.contains(segment)) << Number(segment) << " was sent before";
    std::string& there = segments[segment];
    EXPECT_EQ(there.size(), offset);
    there.append(AsChars(bytes));
    if (last) whole_.insert(segment);
    co_return Status::Ok();
  }
  Task<Status> WriteOpen(Worker&, const MirrorPiece& piece) override {
    EXPECT_FALSE(segments.contains(piece.segment));
    segments[piece.segment] = AsChars({piece.segment_bytes, piece.to});
    opened.insert(piece.segment);
    co_return Status::Ok();
  }
  Task<Status> Install(Worker&, const StoreState& now) override {
    state = now;
    installed = true;
    mirrored = mirror_->segments();  // that stands still now
    co_return Status::Ok();
  }
  /// Of a log's segment: all whole records. Nothing else is in the last one's block.
  std::string Records(SegmentId id) const {
    const std::string& bytes = segments.at(id);
    const uint32_t seed = SegmentSeed(state.epoch, id);
    uint32_t end = 0;
    while (const auto record = ParseLogRecord(seed, end, AsBytes(bytes).subspan(end))) {
      end += record->bytes();
    }
    const size_t block = std::min<size_t>(bytes.size(), RoundUp(end, kBlockBytes));
    for (size_t at = end; at < block; ++at) {
      EXPECT_EQ(bytes[at], '\0') << Number(id) << " at " << at;
      if (bytes[at] != '\0') break;
    }
    return bytes.substr(0, end);
  }

 private:
  const CheckingMirror* const mirror_;
  std::set<SegmentId> whole_;
};

class MirroredStore : public ::testing::Test {
 protected:
  void Open(Durability durability) {
    OpenIdle(durability);
    StartBackground();
  }
  /// Nothing is flushed until StartBackground.
  void OpenIdle(Durability durability) {
    LsmOptions options = test::TinyStore();
    options.log_buffers_max = 8;
    options.durability = durability;
    auto opened = worker_->Run(LsmStore::Open(*worker_, {&storage_, &epochs_, &clock_, 1, &mirror_},
                                              options, LsmStore::IfMissing::kCreate));
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = std::move(*opened);
    mirror_.set_epoch(worker_->Run(store_->State(*worker_)).epoch);
  }
  void StartBackground() {
    auto background = Background::Start(
        store_.get(), [this]() -> Result<std::unique_ptr<Worker>> { return OpenWorker(); });
    ASSERT_TRUE(background.ok());
    background_ = std::move(*background);
  }
  ~MirroredStore() override {
    background_ = nullptr;
    if (!store_) return;
    const Status closed = worker_->Run(store_->Close(*worker_));
    EXPECT_TRUE(closed.ok()) << closed;
    store_ = nullptr;
  }
  std::unique_ptr<Worker> OpenWorker() {
    const uint64_t number = ++workers_;
    return std::make_unique<Worker>(
        Worker::Deps{std::move(*fabric_->OpenTransport()), &epochs_, &clock_, number, number});
  }
  Task<void> Put(Worker& worker, std::string key, std::string value) {
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    auto put = co_await store_->Put(op, key, value);
    EXPECT_TRUE(put.ok()) << put.status();
  }
  Task<void> PutMany(Worker& worker, uint64_t seed, uint64_t count, size_t bytes_max) {
    Random random(seed);
    for (uint64_t i = 0; i < count; ++i) {
      const size_t bytes = random.OneIn(2) ? 20 : random.Below(bytes_max);
      co_await Put(worker, "key" + std::to_string(random.Below(3000)),
                   std::string(bytes, static_cast<char>('a' + i % 26)));
    }
  }
  void ExpectNoWriteUnlessItMayAnswer() {
    dsm::FabricCounts counts;
    OpContext op{*worker_, counts};
    const auto put = [&](std::string_view key) {
      return worker_->Run(store_->Put(op, key, "value")).status().code();
    };
    EXPECT_EQ(put("there"), StatusCode::kOk);
    const Sequence before = store_->last_sequence();
    mirror_.set_looks_left(0);
    EXPECT_EQ(put("new"), StatusCode::kUnavailable);
    EXPECT_EQ(worker_->Run(store_->Delete(op, "there")).status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(store_->last_sequence(), before) << "something was done";
    mirror_.set_looks_left(1);
    EXPECT_EQ(put("late"), StatusCode::kUnknown);
    EXPECT_EQ(store_->last_sequence(), before + 1);
    mirror_.set_looks_left(-1);
    EXPECT_EQ(put("new"), StatusCode::kOk);
  }
  Task<void> FillOnce(MemoryCopy* copy) {
    Status filled = co_await store_->FillCopy(*worker_, *copy);
    EXPECT_TRUE(filled.ok()) << filled;
  }
  /// That the copy has, of each segment that is named, just what the mirror was told of it.
  void ExpectLogs(const MemoryCopy& copy) {
    ASSERT_TRUE(copy.installed);
    std::vector<SegmentId> logs = copy.state.recovery_log;
    for (const auto& [id, garbage] : copy.state.value_log) logs.push_back(id);
    for (const SegmentId id : logs) {
      const auto found = copy.mirrored.find(id);
      if (found == copy.mirrored.end() || found->second.bytes.empty())
        continue;  // not made, or not used
      if (copy.inventory.contains(id) && !copy.segments.contains(id)) continue;
      ASSERT_TRUE(copy.segments.contains(id)) << Number(id) << " is missing";
      const std::string there = copy.Records(id);
      EXPECT_TRUE(found->second.bytes == there) << Number(id);
    }
  }

  MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  const std::unique_ptr<dsm::LocalFabric> fabric_ = std::move(*dsm::LocalFabric::Create(
      {.servers = 1, .region_bytes = 4 << 20, .hugepages = dsm::Hugepages::kNever}));
  std::atomic<uint64_t> workers_{0};
  test::MemoryStorage storage_;
  CheckingMirror mirror_{&storage_};
  std::unique_ptr<Worker> worker_ = OpenWorker();
  std::unique_ptr<LsmStore> store_;
  std::unique_ptr<Background> background_;
};

TEST_F(MirroredStore, ThreadsWriteWhileCopiesAreFilled) {
  Open(Durability::kReplicated);
  store_->CompactEagerly(true);
  constexpr int kWriters = 4;
  const uint64_t puts = test::Amount{300, 1500, 6000};
  std::atomic<int> left{kWriters};
  std::vector<std::thread> threads;
  for (int i = 0; i < kWriters; ++i) {
    threads.emplace_back([&, i] {
      auto worker = OpenWorker();
      for (int each = 0; each < 3; ++each) {
        worker->Spawn(PutMany(*worker, static_cast<uint64_t>(i * 3 + each), puts / 3, 20'000));
      }
      worker->RunUntilIdle();
      --left;
    });
  }
  uint64_t filled = 0;
  std::unique_ptr<MemoryCopy> copy;
  do {
    copy = std::make_unique<MemoryCopy>(&mirror_);
    worker_->Run(FillOnce(copy.get()));
    ExpectLogs(*copy);
    ++filled;
    worker_->GoOnline();
    store_->FlushSoon();
    worker_->GoOffline();
  } while (left > 0 && !HasFailure());
  for (std::thread& thread : threads) thread.join();
  const CheckingMirror::Counts counts = mirror_.counts();
  std::printf("%lu copies filled; %lu appends, %lu seals, %lu syncs, %lu commits\n", filled,
              counts.appends, counts.seals, counts.syncs, counts.commits);
  EXPECT_GT(counts.appends, 0u);
  EXPECT_GT(counts.seals, 0u);
  EXPECT_GT(counts.commits, 0u);
}

// What was acknowledged with a copy is in its memory, and not on this disk by then; once no copy counts, reads of it wait for the disk, too.
TEST_F(MirroredStore, WithoutCopiesWhatIsAnsweredIsOnTheDisk) {
  Open(Durability::kReplicated);
  const auto syncs = [this] { return storage_.counts().syncs; };
  const auto get = [this](std::string_view key) {
    dsm::FabricCounts counts;
    OpContext op{*worker_, counts};
    std::string value;
    auto found = worker_->Run(store_->Get(op, key, &value));
    EXPECT_TRUE(found.ok() && *found) << key;
  };
  uint64_t before = syncs();
  worker_->Run(Put(*worker_, "with", "value"));
  get("with");
  EXPECT_EQ(syncs(), before);
  mirror_.set_has_copies(false);
  get("with");
  EXPECT_GT(syncs(), before);
  before = syncs();
  worker_->Run(Put(*worker_, "without", "value"));
  EXPECT_GT(syncs(), before);
  before = syncs();
  get("without");  // it is there
  EXPECT_EQ(syncs(), before);
  mirror_.set_has_copies(true);
  worker_->Run(Put(*worker_, "with again", "value"));
  get("with again");
  EXPECT_EQ(syncs(), before);
  // Of many keys, one that is not safe.
  const std::vector<std::string_view> keys = {"without", "with again", "absent"};
  std::vector<std::optional<std::string>> values;
  const auto multi_get = [&] {
    dsm::FabricCounts counts;
    OpContext op{*worker_, counts};
    return worker_->Run(store_->MultiGet(op, keys, &values));
  };
  mirror_.set_has_copies(false);
  EXPECT_TRUE(multi_get().ok());
  EXPECT_EQ(values, (std::vector<std::optional<std::string>>{"value", "value", std::nullopt}));
  EXPECT_GT(syncs(), before);
  before = syncs();
  EXPECT_TRUE(multi_get().ok());
  EXPECT_EQ(syncs(), before);
  mirror_.set_looks_left(0);
  EXPECT_EQ(multi_get().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(values.empty());
  mirror_.set_looks_left(-1);
}

// Whoever may serve no more refuses a write that it has not begun, so that it can be done elsewhere, and does not acknowledge one that it has.
TEST_F(MirroredStore, WhoMayNotAnswerBeginsNoWrite) {
  Open(Durability::kReplicated);
  ExpectNoWriteUnlessItMayAnswer();
}

TEST_F(MirroredStore, WhoMayNotAnswerBeginsNoWriteOfWhatIsLocalEither) {
  Open(Durability::kLocal);
  ExpectNoWriteUnlessItMayAnswer();
}

// The first look is ahead of the wait, the second one behind it.
TEST_F(MirroredStore, WhoMayAnswerNoMoreWhenAWriteHasWaitedDoesNotBeginIt) {
  OpenIdle(Durability::kReplicated);
  StatusCode filled = StatusCode::kOk;
  for (int i = 0; i < 10'000 && filled == StatusCode::kOk; ++i) {
    dsm::FabricCounts counts;
    OpContext op{*worker_, counts};
    op.deadline_ns = clock_.NowNs() + 100 * kNsPerMs;
    const std::string key = std::to_string(i) + std::string(500, 'k');
    filled = worker_->Run(store_->BlindPut(op, key, "v")).code();
  }
  ASSERT_EQ(filled, StatusCode::kDeadlineExceeded);
  const Sequence before = store_->last_sequence();
  std::optional<StatusCode> waited;
  const auto put = [&]() -> Task<void> {
    dsm::FabricCounts counts;
    OpContext op{*worker_, counts};
    waited = (co_await store_->BlindPut(op, "waits", "v")).code();
  };
  mirror_.set_looks_left(1);
  worker_->Spawn(put());
  worker_->GoOnline();
  for (int i = 0; i < 10; ++i) worker_->RunOnce(Worker::Idle::kReturn);
  worker_->GoOffline();
  EXPECT_FALSE(waited);
  StartBackground();
  worker_->RunUntilIdle();
  EXPECT_EQ(waited, StatusCode::kUnavailable);
  EXPECT_EQ(store_->last_sequence(), before) << "it was begun";
  mirror_.set_looks_left(-1);
}

// Of changes that are made together each is told what became of it: Unavailable says that nothing was done.
TEST_F(MirroredStore, WhoMayNotAnswerTellsOfEachChangeWhatBecameOfIt) {
  Open(Durability::kReplicated);
  const std::vector<std::string_view> keys = {"a", "b"};
  using Codes = std::vector<StatusCode>;
  const auto codes = [&](test::NotedChanges::Wanted wanted, int looks) {
    test::NotedChanges changes(std::move(wanted));
    dsm::FabricCounts counts;
    OpContext op{*worker_, counts};
    mirror_.set_looks_left(looks);
    const size_t done =
        worker_->Run(store_->ModifyTogether(op, keys, CurrentValue::kRead, changes));
    mirror_.set_looks_left(-1);
    EXPECT_EQ(changes.results.size(), done);
    Codes told;
    for (const auto& result : changes.results) told.push_back(result.status().code());
    return told;
  };
  constexpr auto kOk = StatusCode::kOk, kUnknown = StatusCode::kUnknown,
                 kUnavailable = StatusCode::kUnavailable;
  // One look before each, one when they are durable, and one for what was seen.
  EXPECT_EQ(codes({"0", "0"}, -1), (Codes{kOk, kOk}));  // has segments of the logs be opened
  EXPECT_EQ(codes({"1", "1"}, 0), Codes{});
  EXPECT_EQ(codes({"2", "2"}, 1), (Codes{kUnknown}));
  EXPECT_EQ(codes({"3", "3"}, 2), (Codes{kUnknown, kUnknown}));
  EXPECT_EQ(codes({"4", "4"}, 3), (Codes{kOk, kOk}));
  EXPECT_EQ(codes({std::nullopt, std::nullopt}, -1), (Codes{kOk, kOk}));
  EXPECT_EQ(codes({std::nullopt, std::nullopt}, 2), Codes{}) << "nothing was to be done";
  EXPECT_EQ(codes({"5", std::nullopt}, 2), (Codes{kUnknown, kUnknown}));
  EXPECT_EQ(codes({"6", std::nullopt}, 3), (Codes{kOk, kUnavailable}));
}

// The second one's bytes are everywhere before the first one's are known not to be.
TEST_F(MirroredStore, WhatComesBehindARoundThatFailsIsNotAcknowledged) {
  Open(Durability::kReplicated);
  worker_->Run(Put(*worker_, "before", "value"));
  const uint64_t appends = mirror_.counts().appends;
  mirror_.set_failing_append(appends + 1);
  std::vector<Status> answers(2);
  const auto put = [&](std::string key, Status* answer) -> Task<void> {
    dsm::FabricCounts counts;
    OpContext op{*worker_, counts};
    *answer = (co_await store_->Put(op, key, "value")).status();
  };
  for (size_t i = 0; i < answers.size(); ++i) {
    worker_->Spawn(put("key" + std::to_string(i), &answers[i]));
  }
  worker_->RunUntilIdle();
  EXPECT_EQ(mirror_.counts().appends, appends + 2) << "they were not on their way together";
  for (const Status& answer : answers) EXPECT_FALSE(answer.ok());
  background_ = nullptr;
  EXPECT_EQ(worker_->Run(store_->Close(*worker_)).code(), StatusCode::kFenced);
  store_ = nullptr;
}

// A merge or a flush that fails has shipped part of what it made.
TEST_F(MirroredStore, WhatNoEditWillNameIsDropped) {
  std::atomic<int> syncs{0};
  std::atomic<bool> failing{true};
  storage_.fail = [&](const storage::Io& io) {
    const bool of_table = io.kind == storage::IoKind::kSync && mirror_.is_in_the_making(io.segment);
    return of_table && failing && ++syncs % 3 == 1 ? Status::ResourceExhausted("no room")
                                                   : Status::Ok();
  };
  Open(Durability::kReplicated);
  store_->CompactEagerly(true);
  // Some are refused, while there is no room.
  const auto put = [this](std::string key, std::string value) -> Task<void> {
    dsm::FabricCounts counts;
    OpContext op{*worker_, counts};
    Status ignored = (co_await store_->Put(op, key, value)).status();
    (void)ignored;
  };
  Random random(1);
  const uint64_t deadline_ns = clock_.NowNs() + 120 * kNsPerSecond;
  for (uint64_t i = 0; mirror_.dropped() < 3 || syncs < 12; ++i) {
    ASSERT_LT(clock_.NowNs(), deadline_ns)
        << mirror_.dropped() << " dropped, " << syncs << " syncs";
    worker_->Run(put("key" + std::to_string(random.Below(3000)), std::string(10'000, 'v')));
    if (i % 200 == 0) store_->FlushSoon();
  }
  EXPECT_GT(mirror_.counts().commits, 0u);
  EXPECT_GE(mirror_.dropped(), 3u);
  failing = false;
  background_ = nullptr;
  const Status closed = worker_->Run(store_->Close(*worker_));
  EXPECT_TRUE(closed.ok()) << closed;
  store_ = nullptr;
  EXPECT_EQ(mirror_.tables_in_the_making(), 0u);
}

// An earlier life of the primary may have sent commits of a segment that it has lost since.
TEST_F(MirroredStore, TheRecoveryLogIsSentWhateverTheCopyHasOfIt) {
  Open(Durability::kReplicated);
  worker_->Run(PutMany(*worker_, 1, 200, 60'000));
  MemoryCopy first(&mirror_), again(&mirror_);
  worker_->Run(FillOnce(&first));
  for (const auto& [id, bytes] : first.segments) {
    if (!first.opened.contains(id)) again.inventory.insert(id);
  }
  worker_->Run(FillOnce(&again));
  for (const SegmentId id : again.state.recovery_log) {
    if (!first.segments.contains(id)) continue;
    EXPECT_TRUE(again.segments.contains(id)) << Number(id);
  }
}

}  // namespace
}  // namespace farleaf::index::lsm
