// A backup that builds its own tables (Build-Index), over tcp: promoted, it has all that its primary has acknowledged, and its tables are its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/thread_cpu.h"
#include "dsm/null_transport.h"
#include "index/storage/file_storage.h"
#include "server/replication/backup_region.h"
#include "server/replication/replica_set.h"
#include "test/support/fabric_under_test.h"
#include "test/support/tiny_store.h"

namespace farleaf::server::replication {
namespace {

using dsm::Task;
using dsm::Worker;
using index::KeyValue;
using index::lsm::LsmOptions;
using index::lsm::LsmStore;
using index::storage::FileStorage;

constexpr uint64_t kArea = 2 << 20;
constexpr uint64_t kOwnNumbers = uint64_t{1} << 38;  // of a store that has not used many

std::unique_ptr<FileStorage> OpenFiles(const std::string& directory) {
  auto files =
      FileStorage::Open({.directory = directory, .direct = index::storage::DirectIo::kOff});
  FARLEAF_CHECK(files.ok(), files.status());
  return std::move(*files);
}

LsmOptions Options() {
  LsmOptions options = test::TinyStore();
  options.durability = index::lsm::Durability::kReplicated;
  options.collect_values = false;
  options.value_separation_bytes = 256;
  return options;
}

std::vector<KeyValue> RowsOf(Worker& worker, LsmStore& store) {
  dsm::FabricCounts counts;
  index::OpContext op{worker, counts};
  std::vector<KeyValue> rows;
  const Status scanned = worker.Run(store.Scan(op, {.start = {}}, &rows));
  EXPECT_TRUE(scanned.ok()) << scanned;
  return rows;
}

class AnyViews final : public ViewKeeper {
 public:
  Task<Result<std::vector<NodeId>>> Exclude(Worker&, NodeId) override {
    co_return std::vector<NodeId>();
  }
  Task<Status> Include(Worker&, NodeId) override { co_return Status::Ok(); }
};

class ReplicatedBuildTest : public ::testing::Test {
 protected:
  ReplicatedBuildTest() {
    layout = *AreaLayout::For({4, 1 << 20, 16});
    OpenBackup();
  }
  ~ReplicatedBuildTest() override {
    if (thread.joinable()) StopBackup();
  }

  // ---- The backup
  void OpenBackup() {
    BackupRegion::Deps deps{.storage = backup_files.get(),
                            .area = cluster.region_bytes(0).subspan(kArea, layout.bytes()),
                            .layout = layout,
                            .cpu = &cpu};
    deps.build = index::lsm::Follower::Host{
        .options = Options(),
        .epochs = &backup_epochs,
        .wall = &cluster.clock(),
        .open_worker =
            [this] {
              return std::make_unique<Worker>(Worker::Deps{std::make_unique<dsm::NullTransport>(),
                                                           &backup_epochs, &cluster.clock()});
            },
        .cpu = &cpu};
    auto opened = backup_worker.Run(BackupRegion::Open(backup_worker, std::move(deps)));
    FARLEAF_CHECK(opened.ok(), opened.status());
    region = std::move(*opened);
    backup_worker.Run(region->Expect(++token));
    thread = std::thread([this] { backup_worker.Run(region->Serve(backup_worker)); });
  }
  void StopBackup() {
    region->Stop();
    thread.join();
  }

  // ---- The primary
  void OpenPrimary() {
    auto opened = worker.Run(
        LsmStore::Open(worker, {primary_files.get(), &epochs, &cluster.clock(), 1, &replicas},
                       Options(), LsmStore::IfMissing::kCreate));
    FARLEAF_CHECK(opened.ok(), opened.status());
    store = std::move(*opened);
    replicas.set_store(store.get());
    worker.Spawn(store->RunLogs(worker));
    worker.Spawn(store->RunFlushes(worker));
    worker.Spawn(store->RunCompactions(worker));
  }
  Task<Status> Join() {
    dsm::FabricCounts counts;
    const ChannelAddress address{0, kArea, token};
    const ChannelOptions options{.call_timeout_ms = 300'000};
    auto channel = co_await Channel::Open(worker, address, options, counts);
    if (!channel.ok()) co_return channel.status();
    const auto port = std::make_shared<ChannelPort>(std::move(*channel));
    worker.Spawn(ChannelPort::Run(worker, port));
    const auto link = std::make_shared<BackupLink>(1, port);
    Status added = co_await replicas.Add(worker, link);
    co_return added;
  }
  /// Most keys once, so that they end up in tables; some of them again, some deleted. Values of both kinds.
  Task<void> Write(uint64_t begin, uint64_t end) {
    dsm::FabricCounts counts;
    index::OpContext op{worker, counts};
    for (uint64_t n = begin; n < end; ++n) {
      const std::string key = "k" + std::to_string(n * 7919 % 50'021);
      const std::string value(n % 5 == 0 ? 300 : 40, static_cast<char>('a' + n % 26));
      index::lsm::Change change{.kind = index::lsm::ChangeKind::kPut, .key = key, .value = value};
      if (n % 17 == 0) change = {.kind = index::lsm::ChangeKind::kDelete, .key = key};
      Status written = co_await store->Write(op, {&change, 1});
      EXPECT_TRUE(written.ok()) << written;
      if (!written.ok()) co_return;
    }
  }
  /// The backup loses its primary; nobody has told it to sync anything.
  std::vector<KeyValue> LeaveBackup() {
    std::vector<KeyValue> rows = RowsOf(worker, *store);
    const Status removed = worker.Run(replicas.Remove(worker, 1));
    EXPECT_TRUE(removed.ok()) << removed;
    StopBackup();
    return rows;
  }
  void ClosePrimary() {
    store->Stop();
    replicas.Stop();
    worker.RunUntilIdle();
    const Status closed = worker.Run(store->Close(worker));
    EXPECT_TRUE(closed.ok()) << closed;
  }
  void ExpectPromoted(const std::vector<KeyValue>& rows) {
    const Status promoted = backup_worker.Run(region->Promote(backup_worker));
    ASSERT_TRUE(promoted.ok()) << promoted;
    region = nullptr;
    LsmOptions options = Options();
    options.durability = index::lsm::Durability::kLocal;
    auto opened = backup_worker.Run(
        LsmStore::Open(backup_worker, {backup_files.get(), &backup_epochs, &cluster.clock()},
                       options, LsmStore::IfMissing::kFail));
    ASSERT_TRUE(opened.ok()) << opened.status();
    const std::vector<KeyValue> there = RowsOf(backup_worker, **opened);
    EXPECT_EQ(there.size(), rows.size());
    EXPECT_TRUE(std::ranges::equal(rows, there, [](const KeyValue& a, const KeyValue& b) {
      return a.key == b.key && a.value == b.value;
    }));
    size_t own = 0;
    const index::lsm::StoreState state = backup_worker.Run((*opened)->State(backup_worker));
    for (const auto& [place, run] : state.runs()) {
      for (const auto& each : run->tables) own += Number(each.table.id()) > kOwnNumbers;
    }
    EXPECT_GT(own, 0u);
    const Status closed = backup_worker.Run((*opened)->Close(backup_worker));
    EXPECT_TRUE(closed.ok()) << closed;
  }

  dsm::FabricUnderTest cluster{dsm::FabricKind::kTcp,
                               {.servers = 1, .region_bytes = uint64_t{64} << 20}};
  const ThreadCpuClock cpu;
  AreaLayout layout;
  dsm::TempFolder folder;
  // The backup
  std::unique_ptr<FileStorage> backup_files = OpenFiles(folder.File("backup"));
  dsm::EpochDomain backup_epochs;
  Worker backup_worker{{std::make_unique<dsm::NullTransport>(), &backup_epochs, &cluster.clock()}};
  std::unique_ptr<BackupRegion> region;
  uint64_t token = 0x5eed;
  std::thread thread;
  // The primary
  std::unique_ptr<FileStorage> primary_files = OpenFiles(folder.File("primary"));
  dsm::EpochDomain epochs;
  Worker worker{{std::move(*cluster.fabric().OpenTransport()), &epochs, &cluster.clock()}};
  AnyViews views;
  ReplicaSet replicas{&views, IndexMode::kBuild};
  std::unique_ptr<LsmStore> store;
};

constexpr uint64_t kWrites = 40'000;

TEST_F(ReplicatedBuildTest, APromotedFollowerHasAllThatWasAcknowledged) {
  OpenPrimary();
  const Status joined = worker.Run(Join());
  ASSERT_TRUE(joined.ok()) << joined;
  worker.Run(Write(0, kWrites));
  const index::lsm::StoreMetrics built = region->follower()->store().metrics();
  EXPECT_GT(built.flushed_bytes, 0u);
  EXPECT_GT(region->follower()->following_cpu_ns(), 0u);
  ExpectPromoted(LeaveBackup());
  ClosePrimary();
}

TEST_F(ReplicatedBuildTest, AFollowerThatIsFilledLaterGoesOnFromThePrimarysTables) {
  OpenPrimary();
  worker.Run(Write(0, kWrites / 2));
  const Status joined = worker.Run(Join());
  ASSERT_TRUE(joined.ok()) << joined;
  worker.Run(Write(kWrites / 2, kWrites * 3 / 2));
  ExpectPromoted(LeaveBackup());
  ClosePrimary();
}

}  // namespace
}  // namespace farleaf::server::replication
