// A store and two backups on memory that is here: what an acknowledged write costs, and that the view has no member that was left out.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "dsm/shm/local_fabric.h"
#include "server/replication/backup_region.h"
#include "server/replication/replica_set.h"
#include "test/support/memory_storage.h"
#include "test/support/noted_changes.h"
#include "test/support/tiny_store.h"

namespace farleaf::server::replication {
namespace {

using dsm::Task;
using dsm::Worker;
using index::lsm::Change;
using index::lsm::ChangeKind;
using index::lsm::LsmStore;
using index::storage::SegmentId;

constexpr uint64_t kAreaAt = uint64_t{1} << 20;
constexpr size_t kBackups = 2;

/// Memory that is here, but for WRITEs that the test holds: they land, or fail, when it says so.
class HoldingTransport final : public dsm::Transport {
 public:
  HoldingTransport(std::unique_ptr<dsm::Transport> below, const bool* holds,
                   std::vector<dsm::Batch*>* held)
      : below_(std::move(below)), holds_(holds), held_(held) {}
  void Post(dsm::Batch& batch) override {
    if (*holds_ && batch.verbs().front().kind == dsm::VerbKind::kWrite) {
      held_->push_back(&batch);
    } else {
      below_->Post(batch);
    }
  }
  size_t Poll() override { return below_->Poll(); }
  void Wait(int wake_fd, uint64_t timeout_ns) override { below_->Wait(wake_fd, timeout_ns); }

 private:
  const std::unique_ptr<dsm::Transport> below_;
  const bool* const holds_;
  std::vector<dsm::Batch*>* const held_;
};

/// A view that is changed at once, unless it is told to wait.
class ViewsInMemory final : public ViewKeeper {
 public:
  std::set<NodeId> members;
  bool holds_include = false;  ///< until it is false again
  bool including = false;
  bool holds_exclude = false;

  Task<Result<std::vector<NodeId>>> Exclude(Worker& worker, NodeId node) override {
    while (holds_exclude) co_await worker.Sleep(0);
    members.erase(node);
    co_return std::vector<NodeId>(members.begin(), members.end());
  }
  Task<Status> Include(Worker& worker, NodeId node) override {
    including = true;
    while (holds_include) co_await worker.Sleep(0);
    members.insert(node);
    co_return Status::Ok();
  }
};

class ReplicaSetTest : public ::testing::Test {
 protected:
  explicit ReplicaSetTest(uint32_t min_in_sync = 1)
      : replicas_(&views_, IndexMode::kSend, {}, unsettled_, min_in_sync) {}
  struct Backup {
    test::MemoryStorage disk;
    std::unique_ptr<BackupRegion> region;
    bool serving = false;
  };

  void SetUp() override {
    OpenStore();
    for (size_t i = 0; i < kBackups; ++i) worker_.Run(OpenBackup(i));
  }
  void OpenStore() {
    index::lsm::LsmOptions options = test::TinyStore();
    options.durability = durability_;
    store_ = nullptr;
    auto opened = worker_.Run(LsmStore::Open(worker_, {&disk_, &epochs_, &clock_, 1, &replicas_},
                                             options, LsmStore::IfMissing::kCreate));
    FARLEAF_CHECK(opened.ok(), opened.status());
    store_ = std::move(*opened);
    replicas_.set_store(store_.get());
  }
  void TearDown() override {
    views_.holds_exclude = false;  // a test that fails may have left it
    for (const NodeId node : replicas_.members()) {
      EXPECT_TRUE(worker_.Run(replicas_.Remove(worker_, node)).ok());
    }
    for (Backup& backup : backups_) backup.region->Stop();
    replicas_.Stop();
    worker_.RunUntilIdle();
    EXPECT_TRUE(worker_.Run(store_->Close(worker_)).ok());
    store_ = nullptr;
  }
  Task<void> OpenBackup(size_t i) {
    const auto server = static_cast<dsm::ServerId>(i);
    const BackupRegion::Deps deps{
        .storage = &backups_[i].disk,
        .area = fabric_->region_bytes(server).subspan(kAreaAt, layout_.bytes()),
        .layout = layout_,
        .checks = &check_memory_};
    auto region = co_await BackupRegion::Open(worker_, deps);
    EXPECT_TRUE(region.ok()) << region.status();
    backups_[i].region = std::move(*region);
    co_await backups_[i].region->Expect(i + 1);
    worker_.Spawn(backups_[i].region->Serve(worker_));
  }
  Task<void> Add(size_t i, Status* added) {
    dsm::FabricCounts counts;
    const ChannelAddress address{static_cast<dsm::ServerId>(i), kAreaAt, i + 1};
    const ChannelOptions options;
    auto channel = co_await Channel::Open(worker_, address, options, counts);
    EXPECT_TRUE(channel.ok()) << channel.status();
    const auto port = std::make_shared<ChannelPort>(std::move(*channel));
    worker_.Spawn(ChannelPort::Run(worker_, port));
    const auto link = std::make_shared<BackupLink>(static_cast<NodeId>(i + 1), port);
    *added = co_await replicas_.Add(worker_, link);
  }
  void AddAll() {
    for (size_t i = 0; i < kBackups; ++i) {
      Status added;
      worker_.Run(Add(i, &added));
      ASSERT_TRUE(added.ok()) << added;
    }
  }
  Task<Status> Write(std::string key, std::string value, WriteDurability durability,
                     uint64_t wait_ns = 0) {
    dsm::FabricCounts counts;
    index::OpContext op{worker_, counts};
    op.durability = durability;
    if (wait_ns > 0) op.deadline_ns = clock_.NowNs() + wait_ns;
    const Change change{.kind = ChangeKind::kPut, .key = key, .value = value};
    Status written = co_await store_->Write(op, {&change, 1});
    co_return written;
  }
  void Put(const std::string& key, const std::string& value,
           WriteDurability durability = WriteDurability::kOfStore) {
    const Status put = worker_.Run(Write(key, value, durability));
    ASSERT_TRUE(put.ok()) << put;
  }
  uint64_t Messages() const {
    uint64_t messages = 0;
    for (const Backup& backup : backups_) messages += backup.region->statistics().messages;
    return messages;
  }
  /// Of one write that is acknowledged: verbs of Append.
  dsm::FabricCounts CostOf(const std::string& key, const std::string& value) {
    const dsm::FabricCounts before = replicas_.counts().verbs;
    Put(key, value);
    dsm::FabricCounts cost = replicas_.counts().verbs;
    cost.round_trips -= before.round_trips;
    cost.reads -= before.reads;
    cost.writes -= before.writes;
    cost.bytes_written -= before.bytes_written;
    return cost;
  }

  MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  const AreaLayout layout_ =
      *AreaLayout::For({.slots = 4, .payload_bytes = 64 << 10, .log_buffers = 12});
  const std::unique_ptr<dsm::LocalFabric> fabric_ = std::move(
      *dsm::LocalFabric::Create({.servers = kBackups,
                                 .region_bytes = RoundUp(kAreaAt + layout_.bytes(), 4 << 20),
                                 .hugepages = dsm::Hugepages::kNever}));
  bool holds_writes_ = false;
  std::vector<dsm::Batch*> held_;
  Worker worker_{{std::make_unique<HoldingTransport>(std::move(*fabric_->OpenTransport()),
                                                     &holds_writes_, &held_),
                  &epochs_, &clock_}};
  const std::unique_ptr<dsm::Transport> landing_ = std::move(*fabric_->OpenTransport());
  test::MemoryStorage disk_;
  ViewsInMemory views_;
  const std::shared_ptr<UnsettledMemory> unsettled_ = std::make_shared<UnsettledMemory>();
  ReplicaSet replicas_;
  index::lsm::Durability durability_ = index::lsm::Durability::kReplicated;
  index::lsm::CheckMemory check_memory_{2};
  std::array<Backup, kBackups> backups_;
  std::unique_ptr<LsmStore> store_;
};

TEST_F(ReplicaSetTest, AnAcknowledgedWriteIsOneRoundTripAndNoWorkForTheBackups) {
  AddAll();
  // The first ones open segments.
  Put("a", "1");
  Put("a", std::string(64, 'v'));
  Put("a", "1");
  const uint64_t messages = Messages();
  for (const size_t bytes : {1u, 63u, 64u, 1000u}) {
    SCOPED_TRACE(bytes);
    const dsm::FabricCounts cost = CostOf("a", std::string(bytes, 'v'));
    const bool separate = bytes >= store_->options().value_separation_bytes;
    EXPECT_EQ(cost.round_trips, 1u);
    // Of each log's piece whole words, and the word in which it ends, which may be whole.
    const uint64_t pieces = separate ? 2 : 1;
    EXPECT_GE(cost.writes, kBackups * pieces);
    EXPECT_LE(cost.writes, kBackups * pieces * 2);
    EXPECT_EQ(cost.reads, 0u);
    const uint64_t value = separate ? index::lsm::ValueRecordBytes(1, bytes) : 0;
    const Change change{
        .kind = separate ? ChangeKind::kPutPointer : ChangeKind::kPut, .key = "a", .value = {}};
    const uint64_t commit = index::lsm::kLogHeaderBytes + index::lsm::kCommitHeadBytes +
                            index::lsm::ChangeBytes(change) + (separate ? 0 : bytes);
    // Each piece is rounded to words at both of its ends.
    EXPECT_GE(cost.bytes_written, kBackups * (value + commit));
    EXPECT_LT(cost.bytes_written, kBackups * (value + commit + pieces * 2 * 8));
  }
  EXPECT_EQ(Messages(), messages);
}

/// Of two writes, whose rounds are on their way together: each one's WRITEs to each backup.
struct TwoRoundsTest : ReplicaSetTest {
  std::array<Status, 2> answers;
  std::array<bool, 2> answered = {};
  SegmentId log = SegmentId::kNone;

  Task<void> Answered(size_t i, std::string key, std::string value) {
    answers[i] = co_await Write(key, value, WriteDurability::kOfStore);
    answered[i] = true;
  }
  void BeginBoth() {
    AddAll();
    Put("opens", "segments", WriteDurability::kSynced);
    log = worker_.Run(store_->State(worker_)).recovery_log.front();
    holds_writes_ = true;
    worker_.Spawn(Answered(0, "first key", "of 13 bytes ."));
    worker_.Spawn(Answered(1, "second key", "and 7 ."));
    ASSERT_EQ(held_.size(), 2 * kBackups);
    holds_writes_ = false;
  }
  void Land(size_t round, size_t backup) { landing_->Post(*held_[round * kBackups + backup]); }
  void Turn() {
    worker_.GoOnline();
    for (int i = 0; i < 100; ++i) worker_.RunOnce(Worker::Idle::kReturn);
    worker_.GoOffline();
  }
  bool Holds(test::MemoryStorage& disk, std::string_view key) {
    return AsChars(disk.bytes(log)).find(key) != std::string_view::npos;
  }
};

TEST_F(TwoRoundsTest, TheyEndInTheirOrderAndTheWordBetweenThemIsWhole) {
  BeginBoth();
  Land(0, 0);
  Land(1, 0);
  Land(0, 1);
  Turn();
  EXPECT_TRUE(answered[0]);
  EXPECT_FALSE(answered[1]);
  Land(1, 1);
  Turn();
  EXPECT_TRUE(answered[1]);
  for (const Status& answer : answers) EXPECT_TRUE(answer.ok()) << answer;
  Put("syncs", "all", WriteDurability::kSynced);
  const std::string_view here = AsChars(disk_.bytes(log));
  const size_t end = here.find_last_not_of('\0') + 1;
  for (Backup& backup : backups_) {
    EXPECT_TRUE(AsChars(backup.disk.bytes(log)).substr(0, end) == here.substr(0, end));
  }
}

TEST_F(TwoRoundsTest, TheSecondIsNotAnsweredBeforeTheFirst) {
  BeginBoth();
  for (size_t backup = 0; backup < kBackups; ++backup) Land(1, backup);
  Turn();
  EXPECT_FALSE(answered[1]);
  for (size_t backup = 0; backup < kBackups; ++backup) Land(0, backup);
  Turn();
  EXPECT_TRUE(answered[0] && answered[1]);
}

// Its connection breaks behind the second's posting, and is made again ahead of its sending.
TEST_F(TwoRoundsTest, WhatLandsBehindAHoleIsNotSyncedAndIsAnsweredOnceTheBackupIsExcluded) {
  BeginBoth();
  views_.holds_exclude = true;
  held_[1]->CompleteWith(Status::Unavailable("the connection is gone"));
  Land(0, 0);
  Land(1, 0);
  Land(1, 1);
  Turn();
  EXPECT_FALSE(answered[0] || answered[1]);
  const Status synced = worker_.Run(replicas_.Sync(worker_, index::lsm::SyncReach::kBoth));
  EXPECT_TRUE(synced.ok()) << synced;
  EXPECT_TRUE(Holds(backups_[0].disk, "second key"));
  EXPECT_FALSE(Holds(backups_[1].disk, "second key"));
  views_.holds_exclude = false;
  Turn();
  EXPECT_TRUE(answered[0] && answered[1]);
  for (const Status& answer : answers) EXPECT_TRUE(answer.ok()) << answer;
  EXPECT_EQ(replicas_.members(), std::vector<NodeId>{1});
}

TEST_F(ReplicaSetTest, ChangesThatAreMadeTogetherAreOneRoundTrip) {
  AddAll();
  Put("a", "1");
  Put("a", std::string(64, 'v'));
  std::vector<std::string> keys;
  test::NotedChanges::Wanted wanted;
  for (size_t i = 0; i < 40; ++i) {
    keys.push_back("k" + std::to_string(i));
    wanted.push_back(std::string(i % 3 == 0 ? 64 : 8, 'v'));
  }
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  test::NotedChanges changes(wanted);
  const ReplicaSet::Counts before = replicas_.counts();
  dsm::FabricCounts counts;
  index::OpContext op{worker_, counts};
  ASSERT_EQ(worker_.Run(store_->ModifyTogether(op, views, index::CurrentValue::kRead, changes)),
            keys.size());
  for (const auto& result : changes.results) EXPECT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(replicas_.counts().appends, before.appends + 1);
  EXPECT_EQ(replicas_.counts().verbs.round_trips, before.verbs.round_trips + 1);
}

TEST_F(ReplicaSetTest, BackupsKeepNothingOfTablesThatAreDropped) {
  AddAll();
  const SegmentId segment{900};
  const std::vector<std::byte> bytes(64 << 10);
  const auto ship = [&](uint32_t at) {
    const Status told = worker_.Run(replicas_.WriteTable(worker_, segment, at, bytes));
    ASSERT_TRUE(told.ok()) << told;
  };
  ship(0);
  ship(static_cast<uint32_t>(bytes.size()));
  EXPECT_EQ(check_memory_.left(), 0u);
  for (const Backup& backup : backups_) {
    EXPECT_EQ(backup.region->copy().metrics().segments_pending, 1u);
  }
  const uint64_t messages = Messages();
  const std::vector<SegmentId> dropped = {SegmentId{899}, segment};
  ASSERT_TRUE(worker_.Run(replicas_.DropTables(worker_, dropped)).ok());
  EXPECT_EQ(Messages(), messages + kBackups);
  EXPECT_EQ(check_memory_.left(), kBackups);
  for (const Backup& backup : backups_) {
    EXPECT_EQ(backup.region->copy().metrics().segments_pending, 0u);
  }
  // Of what they have nothing of they are not told.
  ASSERT_TRUE(worker_.Run(replicas_.DropTables(worker_, dropped)).ok());
  EXPECT_EQ(Messages(), messages + kBackups);
}

// Who is written to and not in the view yet would not be promoted: what is acknowledged is on this disk, too.
TEST_F(ReplicaSetTest, OnlyAMemberOfTheViewIsACopy) {
  const auto syncs_of_a_put = [this](const std::string& key) {
    const uint64_t before = disk_.counts().syncs;
    Put(key, "value");
    return disk_.counts().syncs - before;
  };
  EXPECT_FALSE(replicas_.has_copies());
  EXPECT_GT(syncs_of_a_put("alone"), 0u);

  views_.holds_include = true;
  Status added;
  worker_.Spawn(Add(0, &added));
  const auto until_including = [this]() -> Task<void> {
    while (!views_.including) co_await worker_.Sleep(0);
  };
  worker_.Run(until_including());
  EXPECT_EQ(replicas_.members().size(), 1u);
  EXPECT_FALSE(replicas_.has_copies());
  EXPECT_GT(syncs_of_a_put("while the view takes him in"), 0u);

  views_.holds_include = false;
  const auto until_included = [this]() -> Task<void> {
    while (!replicas_.has_copies()) co_await worker_.Sleep(0);
  };
  worker_.Run(until_included());
  EXPECT_TRUE(views_.members.contains(1));
  EXPECT_EQ(syncs_of_a_put("with a copy"), 0u);

  EXPECT_TRUE(worker_.Run(replicas_.Remove(worker_, 1)).ok());
  EXPECT_FALSE(replicas_.has_copies());
  EXPECT_GT(syncs_of_a_put("alone again"), 0u);
}

// An Append to a link of before may end while the new one is filled, and what it has WRITTEN land behind that.
TEST_F(ReplicaSetTest, WhoMayGetOldBytesYetDoesNotJoin) {
  for (int i = 0; i < 100; ++i) Put("key" + std::to_string(i), std::string(100, 'v'));
  ASSERT_TRUE(worker_.Run(store_->Close(worker_)).ok());  // what it has goes to its disk
  OpenStore();
  bool filling = false;
  backups_[0].disk.fail = [this, &filling](const test::MemoryStorage::Io&) {
    if (!std::exchange(filling, true)) unsettled_->Add(0);
    return Status::Ok();
  };
  Status added;
  worker_.Run(Add(0, &added));
  EXPECT_TRUE(filling) << "nothing of the fill is written to the backup's disk";
  EXPECT_EQ(added.code(), StatusCode::kUnavailable) << added;
  EXPECT_TRUE(replicas_.members().empty());
  EXPECT_TRUE(views_.members.empty());
  unsettled_->Settle(0);
  worker_.Run(backups_[0].region->Expect(1));
  worker_.Run(Add(0, &added));
  EXPECT_TRUE(added.ok()) << added;
  EXPECT_TRUE(replicas_.has_copies());
}

// The master takes one out; this process has not looked at that yet when the other one fails.
TEST_F(ReplicaSetTest, WhoIsNotInTheViewThatIsCommittedIsNoCopy) {
  AddAll();
  Put("a", "1");
  ASSERT_TRUE(replicas_.has_copies());
  views_.members.erase(1);
  EXPECT_TRUE(replicas_.has_copies());
  EXPECT_TRUE(worker_.Run(replicas_.Remove(worker_, 2)).ok());
  EXPECT_FALSE(replicas_.has_copies());
  const uint64_t before = disk_.counts().syncs;
  Put("b", "1");
  EXPECT_GT(disk_.counts().syncs, before);
}

TEST_F(ReplicaSetTest, WhoIsExcludedWhileTheViewTakesHimInStaysOut) {
  views_.holds_include = true;
  Status added;
  worker_.Spawn(Add(0, &added));
  const auto until_included = [this]() -> Task<void> {
    while (!views_.including) co_await worker_.Sleep(0);
  };
  worker_.Run(until_included());
  Status removed;
  const auto remove = [this, &removed]() -> Task<void> {
    removed = co_await replicas_.Remove(worker_, 1);
  };
  bool ended = false;
  const auto removing = [&]() -> Task<void> {
    co_await remove();
    ended = true;
  };
  worker_.Spawn(removing());
  const auto settle = [&]() -> Task<void> {
    for (int turns = 0; turns < 100; ++turns) co_await worker_.Sleep(0);
    views_.holds_include = false;
    while (!ended) co_await worker_.Sleep(0);
    for (int turns = 0; turns < 100; ++turns) co_await worker_.Sleep(0);
  };
  worker_.Run(settle());
  EXPECT_TRUE(removed.ok()) << removed;
  EXPECT_TRUE(replicas_.members().empty());
  EXPECT_TRUE(views_.members.empty()) << "a member to which nothing is written";
}

struct TwoInSyncTest : ReplicaSetTest {
  static constexpr uint64_t kSyncNs = 200 * kNsPerMs;  ///< within that the backup is lost
  TwoInSyncTest() : ReplicaSetTest(2) {}
  std::string Get(const std::string& key) {
    dsm::FabricCounts counts;
    index::OpContext op{worker_, counts};
    std::string value;
    const auto found = worker_.Run(store_->Get(op, key, &value));
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() && *found ? value : "(absent)";
  }
  void ExpectRefused(const std::string& key) {
    const uint64_t before = store_->metrics().user_bytes;
    const Status put = worker_.Run(Write(key, "refused", WriteDurability::kOfStore));
    EXPECT_EQ(
        put.ToString(),
        Status::Unavailable("nodes in sync: 1 of the 2 that are to have a write (--min-in-sync)")
            .ToString());
    EXPECT_EQ(store_->metrics().user_bytes, before);
  }
  void AddOne(size_t i) {
    Status added;
    worker_.Run(Add(i, &added));
    ASSERT_TRUE(added.ok()) << added;
  }
  static Task<void> Note(Task<Status> task, std::optional<Status>* ended) {
    *ended = co_await std::move(task);
  }
  /// A write that was begun with a backup, which is lost before it ends.
  void BeginAndLoseTheBackup(std::optional<Status>* ended, uint64_t wait_ns) {
    disk_.delay_ns = kSyncNs;
    const uint64_t before = disk_.counts().syncs;
    worker_.Spawn(Note(Write("a", "2", WriteDurability::kSynced, wait_ns), ended));
    EXPECT_TRUE(worker_.Run(replicas_.Remove(worker_, 1)).ok());
    EXPECT_FALSE(replicas_.has_copies());
    EXPECT_FALSE(*ended) << "it has ended before the backup was lost";
    const auto synced = [this, before]() -> Task<void> {
      while (disk_.counts().syncs == before) co_await worker_.Sleep(kNsPerMs);
      co_await worker_.Sleep(kSyncNs);
    };
    worker_.Run(synced());
    disk_.delay_ns = 0;
  }
  void Await(const std::optional<Status>& ended) {
    const auto until = [this, &ended]() -> Task<void> {
      while (!ended) co_await worker_.Sleep(kNsPerMs);
    };
    worker_.Run(until());
  }
};

TEST_F(TwoInSyncTest, NoWriteBeginsWhileThereIsOnlyOne) {
  ExpectRefused("a");
  EXPECT_EQ(Get("a"), "(absent)");
  AddOne(0);
  Put("a", "1");
  ASSERT_TRUE(worker_.Run(replicas_.Remove(worker_, 1)).ok());
  ExpectRefused("a");
  ExpectRefused("b");
  EXPECT_EQ(Get("a"), "1");
  AddOne(1);
  Put("b", "1");
}

TEST_F(TwoInSyncTest, AWriteThatHasBegunWaitsForAnother) {
  AddOne(0);
  Put("a", "1");
  std::optional<Status> ended;
  BeginAndLoseTheBackup(&ended, 0);
  EXPECT_FALSE(ended) << *ended;
  AddOne(1);
  Await(ended);
  EXPECT_TRUE(ended->ok()) << *ended;
  EXPECT_EQ(Get("a"), "2");
  EXPECT_EQ(store_->metrics().waits[static_cast<size_t>(index::lsm::WaitsFor::kCopies)].count, 1u);
}

TEST_F(TwoInSyncTest, AWriteThatHasBegunIsInDoubtWhereNobodyComes) {
  AddOne(0);
  Put("a", "1");
  std::optional<Status> ended;
  BeginAndLoseTheBackup(&ended, 5 * kSyncNs);
  Await(ended);
  EXPECT_EQ(ended->code(), StatusCode::kUnknown) << *ended;
  EXPECT_NE(ended->message().find("--min-in-sync"), std::string::npos) << *ended;
}

struct LocalReplicaSetTest : ReplicaSetTest {
  LocalReplicaSetTest() { durability_ = index::lsm::Durability::kLocal; }
  uint64_t SyncsOfWhoIsAlone() {
    const uint64_t before = disk_.counts().syncs;
    EXPECT_TRUE(worker_.Run(store_->SyncReplicated(worker_)).ok());
    return disk_.counts().syncs - before;
  }
};

TEST_F(LocalReplicaSetTest, WhatWasAskedToBeReplicatedIsSyncedByWhoIsLeftAlone) {
  AddAll();
  Put("a", "1");
  EXPECT_EQ(SyncsOfWhoIsAlone(), 0u) << "it was promised to nobody";
  Put("a", "2", WriteDurability::kReplicated);
  for (const NodeId node : {1, 2}) ASSERT_TRUE(worker_.Run(replicas_.Remove(worker_, node)).ok());
  EXPECT_GT(SyncsOfWhoIsAlone(), 0u);
  Put("a", "3");
  EXPECT_EQ(SyncsOfWhoIsAlone(), 0u);
}

TEST(StampsTest, TheNewestWhoseSequenceIsFlushedIsProved) {
  Stamps stamps;
  stamps.Add(10, 5);
  stamps.Add(20, 5);
  stamps.Add(30, 6);
  EXPECT_EQ(stamps.proved_ns(), 0u);
  stamps.Flushed(4);
  EXPECT_EQ(stamps.proved_ns(), 0u);
  stamps.Flushed(5);
  EXPECT_EQ(stamps.proved_ns(), 20u);
  stamps.Flushed(0);  // an edit that flushes nothing
  stamps.Add(40, 6);
  EXPECT_EQ(stamps.proved_ns(), 20u);
  stamps.Flushed(7);
  EXPECT_EQ(stamps.proved_ns(), 40u);
  stamps.Add(50, 7);  // nothing is unflushed
  EXPECT_EQ(stamps.proved_ns(), 50u);
  EXPECT_EQ(stamps.waiting(), 0u);
}

TEST(StampsTest, OfManyThoseStayWhoseGapsAreSmallForTheirAge) {
  constexpr uint64_t kStep = 100 * kNsPerMs, kCount = 36'000;
  for (const uint64_t flushed : {uint64_t{1}, uint64_t{1000}, kCount / 2, kCount - 20, kCount}) {
    Stamps stamps;
    for (uint64_t i = 1; i <= kCount; ++i) {
      stamps.Add(i * kStep, i);
      ASSERT_LE(stamps.waiting(), Stamps::kMax);
    }
    stamps.Flushed(flushed);
    ASSERT_GT(stamps.proved_ns(), 0u);
    ASSERT_LE(stamps.proved_ns(), flushed * kStep);
    const uint64_t age = (kCount - flushed) * kStep;
    EXPECT_LE(flushed * kStep - stamps.proved_ns(), age / 2 + kStep) << flushed;
  }
}

}  // namespace
}  // namespace farleaf::server::replication
