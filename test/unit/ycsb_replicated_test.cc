// The benchmark's target with backups: whole runs in each mode, and what the backups' directories hold afterwards beside the primary's.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <tuple>

#include "benchmark/adapters/stores.h"
#include "benchmark/ycsb/command.h"
#include "benchmark/ycsb/kv_mix.h"
#include "dsm/null_transport.h"
#include "index/lsm/log_buffer.h"
#include "index/lsm/store.h"
#include "index/storage/file_storage.h"
#include "test/support/test_scale.h"

namespace farleaf::ycsb {
namespace {

using index::KeyValue;
using index::lsm::AlignedBytes;
using index::lsm::LsmStore;
using index::lsm::StoreState;
using index::lsm::TableInfo;
using index::storage::FileStorage;
using index::storage::SegmentId;

/// From here on a backup numbers tables of its own, in a store that is new.
constexpr uint64_t kOwnNumbers = uint64_t{1} << 39;

/// A directory of the target that was closed, opened as a store.
class ClosedReplica {
 public:
  explicit ClosedReplica(const std::string& directory) {
    auto storage =
        FileStorage::Open({.directory = directory, .direct = index::storage::DirectIo::kOff});
    EXPECT_TRUE(storage.ok()) << storage.status();
    if (storage.ok()) storage_ = std::move(*storage);
    auto store = worker_.Run(LsmStore::Open(worker_, {storage_.get(), &epochs_, &clock_}, {},
                                            LsmStore::IfMissing::kFail));
    EXPECT_TRUE(store.ok()) << directory << ": " << store.status();
    if (store.ok()) store_ = std::move(*store);
  }
  ~ClosedReplica() {
    if (!store_) return;
    const Status closed = worker_.Run(store_->Close(worker_));
    EXPECT_TRUE(closed.ok()) << closed;
  }

  bool ok() const { return store_ != nullptr; }
  StoreState State() { return worker_.Run(store_->State(worker_)); }
  std::vector<KeyValue> Rows() {
    dsm::FabricCounts counts;
    index::OpContext op{worker_, counts};
    std::vector<KeyValue> rows;
    const Status scanned = worker_.Run(store_->Scan(op, {.start = {}}, &rows));
    EXPECT_TRUE(scanned.ok()) << scanned;
    return rows;
  }
  std::string BytesOf(SegmentId segment, uint32_t bytes) {
    AlignedBytes memory(bytes);
    index::storage::Io read{index::storage::IoKind::kRead, segment, 0, memory.span()};
    const Status status = worker_.Run(storage_->Run(worker_, {&read, 1}));
    EXPECT_TRUE(status.ok()) << status;
    return std::string(AsChars(memory.span()));
  }
  std::vector<TableInfo> Tables() {
    std::vector<TableInfo> tables;
    const StoreState state = State();
    for (const auto& [place, run] : state.runs()) {
      for (const auto& each : run->tables) tables.push_back(each.table);
    }
    return tables;
  }

 private:
  MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  dsm::Worker worker_{{std::make_unique<dsm::NullTransport>(), &epochs_, &clock_}};
  std::unique_ptr<FileStorage> storage_;
  std::unique_ptr<LsmStore> store_;
};

struct ReplicatedTest : ::testing::Test {
  uint64_t records = 60'000;
  MonotonicClock clock;
  std::ostringstream out, error;
  std::string directory = ::testing::TempDir() + "farleaf_replicated_" + std::to_string(::getpid());

  void TearDown() override { std::filesystem::remove_all(directory); }

  int Ycsb(const std::string& options, const std::string& phase) {
    out.str("");
    error.str("");
    const std::vector<std::string> arguments = {
        "-P",
        std::string(FARLEAF_WORKLOADS) + "/workloada",
        "-p",
        "recordcount=" + std::to_string(records),
        "-p",
        "operationcount=" + std::to_string(test::Amount{5'000, 20'000}),
        "-p",
        "farleaf.kvmix=sd",
        "--threads",
        "2",
        "--in-flight",
        "16",
        "--target",
        "replicated:" + directory + "?direct=0&memtable_mb=2&cache_mb=1&growth=4&" + options,
        "--status-interval",
        "0",
        "--phase",
        phase,
        "--settle",
        "60"};
    return RunCommand(arguments,
                      {.open_target = OpenTarget, .clock = &clock, .out = &out, .error = &error});
  }
  double Figure(const std::string& line) const {
    const size_t at = out.str().rfind(line + ", ");
    EXPECT_NE(at, std::string::npos) << line << " in\n" << out.str();
    return at == std::string::npos ? -1 : std::stod(out.str().substr(at + line.size() + 2));
  }
};

TEST_F(ReplicatedTest, WithoutBackupsNothingGoesOverANetwork) {
  ASSERT_EQ(Ycsb("mode=none", "load,run"), kExitOk) << error.str();
  EXPECT_EQ(Figure("[SETTLE], NetworkBytes"), 0);
  EXPECT_EQ(Figure("[SETTLE], NetworkAmplification"), 1);
  EXPECT_EQ(Figure("[SETTLE], BackupBytesWritten"), 0);
  EXPECT_GT(Figure("[SETTLE], PrimaryBytesWritten"), 0);
  EXPECT_FALSE(std::filesystem::exists(directory + "/backup1"));
}

TEST_F(ReplicatedTest, WhatIsSentIsTheBytesOfTablesAndNothingIsBuilt) {
  ASSERT_EQ(Ycsb("mode=send", "load"), kExitOk) << error.str();
  const double user = Figure("[STORE], UserBytesWritten");
  // Each pair at least once, with its record's head.
  EXPECT_GT(Figure("[SETTLE], LogReplicationBytes"), user);
  EXPECT_LT(Figure("[SETTLE], LogReplicationBytes"), 2 * user);
  const double made = Figure("[SETTLE], FlushedBytes") + Figure("[SETTLE], MergedBytesWritten");
  EXPECT_NEAR(Figure("[SETTLE], TableShippingBytes"), made, 0.1 * made);
  EXPECT_EQ(Figure("[SETTLE], BackupFlushedBytes"), 0);
  EXPECT_GT(Figure("[SETTLE], CpuBackupTables(us)"), 0);
  EXPECT_EQ(Figure("[SETTLE], CpuBackupMerges(us)"), 0);
  EXPECT_GT(Figure("[SETTLE], NetworkAmplification"), 2);
}

TEST_F(ReplicatedTest, WhoBuildsIsSentNoTablesAndFlushesForItself) {
  records = 100'000;  // flushed in ten runs or more: a merge begins with four
  ASSERT_EQ(Ycsb("mode=build", "load"), kExitOk) << error.str();
  EXPECT_EQ(Figure("[SETTLE], TableShippingBytes"), 0);
  EXPECT_GT(Figure("[SETTLE], LogReplicationBytes"), Figure("[STORE], UserBytesWritten"));
  EXPECT_GT(Figure("[SETTLE], BackupFlushedBytes"), 0);
  EXPECT_GT(Figure("[SETTLE], BackupMergedBytesWritten"), 0);
  EXPECT_GT(Figure("[SETTLE], CpuBackupFollowing(us)"), 0);
  EXPECT_GT(Figure("[SETTLE], CpuBackupMerges(us)"), 0);
  // Half a memtable each.
  EXPECT_EQ(Figure("[SETTLE], WritePathMemtableBytes"), 2 * 2 * (1 << 20));
}

TEST_F(ReplicatedTest, BackupsWhoseMemoryIsMappedHaveNoAgents) {
  for (const char* mode : {"send", "build"}) {
    ASSERT_EQ(Ycsb(std::string("fabric=shm&backups=2&mode=") + mode, "load"), kExitOk)
        << error.str();
    EXPECT_EQ(Figure("[SETTLE], CpuBackupAgents(us)"), 0);
    EXPECT_GT(Figure("[SETTLE], LogReplicationBytes"), 2 * Figure("[STORE], UserBytesWritten"));
    EXPECT_EQ(Figure("[SETTLE], TableShippingBytes") > 0, std::string_view(mode) == "send");
    ASSERT_EQ(Ycsb(std::string("fabric=shm&backups=2&mode=") + mode, "run"), kExitOk)
        << error.str();
    std::filesystem::remove_all(directory);
  }
}

/// Mode and backups.
struct ReplicatedCopiesTest : ReplicatedTest,
                              ::testing::WithParamInterface<std::tuple<const char*, int>> {
  // Who builds begins to merge later, with as much as is left of the memtables.
  ReplicatedCopiesTest() {
    records = Sends() ? test::Amount{30'000, 60'000} : test::Amount{40'000, 60'000};
  }
  std::string Options() const {
    return std::string("mode=") + std::get<0>(GetParam()) +
           "&backups=" + std::to_string(std::get<1>(GetParam()));
  }
  bool Sends() const { return std::string_view(std::get<0>(GetParam())) == "send"; }

  void ExpectSameBytes(ClosedReplica& primary, ClosedReplica& backup, SegmentId segment,
                       uint32_t bytes) {
    EXPECT_TRUE(primary.BytesOf(segment, bytes) == backup.BytesOf(segment, bytes))
        << "segment " << Number(segment);
  }
  void CheckTables(ClosedReplica& primary, ClosedReplica& backup) {
    const std::vector<TableInfo> tables = primary.Tables(), others = backup.Tables();
    EXPECT_FALSE(others.empty());
    if (!Sends()) {
      for (const TableInfo& table : others) EXPECT_GE(Number(table.id()), kOwnNumbers);
      return;
    }
    ASSERT_EQ(tables.size(), others.size());
    SegmentId last = SegmentId::kNone;
    for (size_t i = 0; i < tables.size(); ++i) {
      EXPECT_EQ(tables[i].id(), others[i].id());
      for (const auto part : index::lsm::SegmentsOf(tables[i])) {
        ExpectSameBytes(primary, backup, part.segment, part.bytes);
      }
      for (const auto& log : tables[i].dictionary) last = std::max<SegmentId>(last, log.segment);
    }
    // Pointers' targets: full segments of the value log.
    const StoreState state = primary.State();
    for (const auto& [id, garbage] : state.value_log) {
      if (id >= last) break;
      ExpectSameBytes(primary, backup, id, index::storage::kSegmentBytes);
    }
  }
  void CheckBackups() {
    ClosedReplica primary(directory + "/primary");
    ASSERT_TRUE(primary.ok());
    const std::vector<KeyValue> rows = primary.Rows();
    EXPECT_EQ(rows.size(), records);
    for (int i = 1; i <= std::get<1>(GetParam()); ++i) {
      SCOPED_TRACE("backup " + std::to_string(i));
      ClosedReplica backup(directory + "/backup" + std::to_string(i));
      ASSERT_TRUE(backup.ok());
      const std::vector<KeyValue> there = backup.Rows();
      ASSERT_EQ(there.size(), rows.size());
      for (size_t row = 0; row < rows.size(); ++row) {
        ASSERT_EQ(there[row].key, rows[row].key);
        ASSERT_TRUE(there[row].value == rows[row].value) << "value of " << rows[row].key;
      }
      CheckTables(primary, backup);
    }
  }
};

TEST_P(ReplicatedCopiesTest, EveryKeyAndValueIsAtEachBackup) {
  ASSERT_EQ(Ycsb(Options(), "load,run"), kExitOk) << error.str();
  EXPECT_EQ(Figure("[OVERALL], Errors"), 0);
  CheckBackups();
}

TEST_P(ReplicatedCopiesTest, BackupsOfAnEarlierLifeAreFilledAgainAndFollow) {
  ASSERT_EQ(Ycsb(Options(), "load"), kExitOk) << error.str();
  ASSERT_EQ(Ycsb(Options(), "run"), kExitOk) << error.str();
  EXPECT_EQ(Figure("[OVERALL], Errors"), 0);
  ClosedReplica primary(directory + "/primary");
  ASSERT_TRUE(primary.ok());
  ClosedReplica backup(directory + "/backup1");
  ASSERT_TRUE(backup.ok());
  const std::vector<KeyValue> rows = primary.Rows(), there = backup.Rows();
  ASSERT_EQ(there.size(), rows.size());
  EXPECT_TRUE(std::ranges::equal(rows, there, [](const KeyValue& a, const KeyValue& b) {
    return a.key == b.key && a.value == b.value;
  }));
}

INSTANTIATE_TEST_SUITE_P(Modes, ReplicatedCopiesTest,
                         ::testing::Combine(::testing::Values("send", "build"),
                                            ::testing::Values(1, 2)),
                         [](const auto& instance) {
                           return std::string(std::get<0>(instance.param)) +
                                  std::to_string(std::get<1>(instance.param));
                         });

}  // namespace
}  // namespace farleaf::ycsb
