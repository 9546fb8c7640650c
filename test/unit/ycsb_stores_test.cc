// The benchmark's targets that are stores with a directory: their names, and whole runs on those that this build has.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "benchmark/adapters/lsm_target.h"
#include "benchmark/adapters/rocksdb_target.h"
#include "benchmark/adapters/stores.h"
#include "benchmark/ycsb/command.h"
#include "benchmark/ycsb/process_usage.h"
#include "dsm/null_transport.h"
#include "index/lsm/closed_store.h"

namespace farleaf::ycsb {
namespace {

// --- names ---

std::string Refusal(StoreEngine engine, std::string_view text) {
  const auto options = ParseStoreOptions(engine, text);
  return options.ok() ? "" : std::string(options.status().message());
}

TEST(StoreOptionsTest, EveryOptionIsRead) {
  const auto options = ParseStoreOptions(
      StoreEngine::kBlobDb,
      "/d/"
      "e?cache_mb=31&memtable_mb=8&growth=4&sync=1&flush_ms=20&direct=0&filter_bits=0&block_kb=16&"
      "compression=zstd&compaction_threads=2&separation_bytes=100&wal=1&dynamic_levels=0&"
      "readahead_kb=64&blob_collection=0");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->directory, "/d/e");
  EXPECT_EQ(options->cache_mb, 31u);
  EXPECT_EQ(options->memtable_mb, 8u);
  EXPECT_EQ(options->growth, 4u);
  EXPECT_TRUE(options->sync);
  EXPECT_EQ(options->flush_ms, 20u);
  EXPECT_FALSE(options->direct);
  EXPECT_EQ(options->filter_bits, 0u);
  EXPECT_EQ(options->block_kb, 16u);
  EXPECT_EQ(options->compression, StoreCompression::kZstd);
  EXPECT_EQ(options->compaction_threads, 2u);
  EXPECT_EQ(options->separation_bytes, 100u);
  EXPECT_TRUE(options->wal);
  EXPECT_FALSE(options->dynamic_levels);
  EXPECT_EQ(options->readahead_kb, 64u);
  EXPECT_FALSE(options->blob_collection);
}

TEST(StoreOptionsTest, DirectoryAloneMeansTheDefaults) {
  for (const char* text : {"dir", "dir?"}) {
    const auto options = ParseStoreOptions(StoreEngine::kLsm, text);
    ASSERT_TRUE(options.ok()) << options.status();
    EXPECT_EQ(options->directory, "dir");
    EXPECT_EQ(options->memtable_mb, 64u);
    EXPECT_EQ(options->flush_ms, 1000u);
    EXPECT_TRUE(options->blind);
    EXPECT_TRUE(options->direct);
    EXPECT_FALSE(options->sync);
  }
}

TEST(StoreOptionsTest, BadOptionsAreRefusedWithNameValueAndWhatIsAllowed) {
  EXPECT_EQ(Refusal(StoreEngine::kRocksDb, ""),
            "expected a directory: rocksdb:DIR or rocksdb:DIR?NAME=VALUE&…");
  EXPECT_EQ(Refusal(StoreEngine::kRocksDb, "?sync=1"),
            "expected a directory: rocksdb:DIR or rocksdb:DIR?NAME=VALUE&…");
  EXPECT_EQ(Refusal(StoreEngine::kRocksDb, "d?cache_mb=0"),
            "option 'cache_mb=0': expected a number from 1 to 4194304");
  EXPECT_EQ(Refusal(StoreEngine::kRocksDb, "d?growth=4x"),
            "option 'growth=4x': expected a number from 2 to 100");
  EXPECT_EQ(Refusal(StoreEngine::kRocksDb, "d?growth"),
            "option 'growth': expected a number from 2 to 100");
  EXPECT_EQ(Refusal(StoreEngine::kRocksDb, "d?sync=yes"), "option 'sync=yes': expected 0 or 1");
  EXPECT_EQ(Refusal(StoreEngine::kRocksDb, "d?compression=gzip"),
            "option 'compression=gzip': expected none, lz4 or zstd");
  EXPECT_EQ(Refusal(StoreEngine::kRocksDb, "d?wal=0&sync=1"),
            "option 'sync=1': a write without log (wal=0) cannot be synced");
}

TEST(StoreOptionsTest, OptionOfAnotherEngineIsRefusedWithThoseThereAre) {
  EXPECT_EQ(Refusal(StoreEngine::kRocksDb, "d?separation_bytes=512"),
            "option 'separation_bytes=512': rocksdb has cache_mb, memtable_mb, growth, sync, "
            "flush_ms, direct, filter_bits, block_kb, compression, compaction_threads, wal, "
            "dynamic_levels, "
            "readahead_kb");
  EXPECT_EQ(Refusal(StoreEngine::kBlobDb, "d?separation_bytes=512"), "");
  EXPECT_EQ(Refusal(StoreEngine::kLsm, "d?separation_bytes=512"), "");
  EXPECT_NE(Refusal(StoreEngine::kLsm, "d?wal=0").find("lsm has cache_mb"), std::string::npos);
}

TEST(StoreOptionsTest, BackupsAreOfOneEngineAndHaveAModeAndADurability) {
  auto options =
      ParseStoreOptions(StoreEngine::kReplicated,
                        "d?backups=2&mode=build&durability=synced&collect=0&growth=12&fabric=shm");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->backups, 2u);
  EXPECT_EQ(options->mode, ReplicationMode::kBuild);
  EXPECT_EQ(options->durability, StoreDurability::kSynced);
  EXPECT_EQ(options->fabric, ReplicationFabric::kShm);
  EXPECT_FALSE(options->collect);
  options = ParseStoreOptions(StoreEngine::kReplicated, "d");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->backups, 1u);
  EXPECT_EQ(options->mode, ReplicationMode::kSend);
  EXPECT_EQ(options->durability, StoreDurability::kReplicated);
  EXPECT_EQ(options->fabric, ReplicationFabric::kTcp);
  EXPECT_TRUE(options->collect);
  EXPECT_EQ(Refusal(StoreEngine::kReplicated, "d?mode=ship"),
            "option 'mode=ship': expected none, send or build");
  EXPECT_EQ(Refusal(StoreEngine::kReplicated, "d?durability=disk"),
            "option 'durability=disk': expected local, replicated or synced");
  EXPECT_EQ(Refusal(StoreEngine::kReplicated, "d?fabric=verbs"),
            "option 'fabric=verbs': expected tcp or shm");
  EXPECT_EQ(Refusal(StoreEngine::kReplicated, "d?backups=0"),
            "option 'backups=0': expected a number from 1 to 4");
  EXPECT_NE(Refusal(StoreEngine::kReplicated, "d?sync=1"), "");
  EXPECT_NE(Refusal(StoreEngine::kLsm, "d?mode=send"), "");
}

TEST(StoreOptionsTest, EngineIsWhatStandsBeforeTheColon) {
  EXPECT_EQ(StoreEngineOf("rocksdb:/d"), StoreEngine::kRocksDb);
  EXPECT_EQ(StoreEngineOf("blobdb:"), StoreEngine::kBlobDb);
  EXPECT_EQ(StoreEngineOf("rocksdb"), std::nullopt);
  EXPECT_EQ(StoreEngineOf("rocksdbs:/d"), std::nullopt);
  EXPECT_EQ(StoreEngineOf("local:"), std::nullopt);
}

// --- runs ---

TEST(LsmTargetTest, AStoreThatIsMadeAnewUnderTheSameSeedTakesNoOlderOnesBytesForItsOwn) {
  const std::string directory = ::testing::TempDir() + "farleaf_anew_" + std::to_string(::getpid());
  MonotonicClock clock;
  dsm::EpochDomain epochs;
  dsm::Worker worker({std::make_unique<dsm::NullTransport>(), &epochs, &clock, 1, 1});
  std::vector<uint64_t> epochs_of_stores;
  for (int i = 0; i < 2; ++i) {
    std::filesystem::remove_all(directory);
    StoreOptions store;
    store.directory = directory;
    store.direct = false;
    TargetOptions options;
    options.create_tree = true;
    options.seed = 7;
    auto target = OpenLsmTarget(store, options, &clock);
    ASSERT_TRUE(target.ok()) << target.status();
    const Status closed = (*target)->Close();
    ASSERT_TRUE(closed.ok()) << closed;
    auto look = worker.Run(index::lsm::ClosedStore::Open(worker, directory, &clock));
    ASSERT_TRUE(look.ok()) << look.status();
    epochs_of_stores.push_back((*look)->state().epoch);
  }
  std::filesystem::remove_all(directory);
  EXPECT_NE(epochs_of_stores[0], epochs_of_stores[1]);
}

struct StoreTest : ::testing::TestWithParam<const char*> {
  MonotonicClock clock;
  std::ostringstream out, error;
  std::string directory = ::testing::TempDir() + "farleaf_store_" + std::to_string(::getpid());

  void SetUp() override {
    if (!IsLsm() && !HasRocksDb()) GTEST_SKIP() << "built without RocksDB (librocksdb-dev)";
  }
  bool IsReplicated() const { return std::string_view(GetParam()) == "replicated"; }
  bool IsLsm() const { return std::string_view(GetParam()) == "lsm" || IsReplicated(); }
  void TearDown() override { std::filesystem::remove_all(directory); }

  /// Small memtables, so that there are flushes and compactions; no direct I/O, which not every file system has.
  std::string Url(const std::string& more = "") const {
    return std::string(GetParam()) + ":" + directory + "?direct=0&memtable_mb=1&cache_mb=1" + more;
  }
  int Ycsb(char workload, const std::string& target, std::vector<std::string> more = {}) {
    out.str("");
    error.str("");
    std::vector<std::string> arguments = {"-P",
                                          std::string(FARLEAF_WORKLOADS) + "/workload" + workload,
                                          "-p",
                                          "recordcount=20000",
                                          "-p",
                                          "operationcount=5000",
                                          "-p",
                                          "farleaf.kvmix=sd",
                                          "--threads",
                                          "2",
                                          "--target",
                                          target,
                                          "--status-interval",
                                          "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments,
                      {.open_target = OpenTarget, .clock = &clock, .out = &out, .error = &error});
  }
  /// The number behind `line` in the last phase.
  double Figure(const std::string& line) const {
    const size_t at = out.str().rfind(line + ", ");
    EXPECT_NE(at, std::string::npos) << line << " in\n" << out.str();
    return at == std::string::npos ? -1 : std::stod(out.str().substr(at + line.size() + 2));
  }
};

TEST_P(StoreTest, EveryWorkloadRunsOnWhatWasLoaded) {
  ASSERT_EQ(Ycsb('a', Url(), {"--phase", "load"}), kExitOk) << error.str();
  EXPECT_EQ(Figure("[INSERT], Return=OK"), 20'000);
  uint64_t records = 20'000;
  for (char workload : std::string("abcdef")) {
    ASSERT_EQ(Ycsb(workload, Url(), {"-p", "recordcount=" + std::to_string(records)}), kExitOk)
        << workload << ": " << error.str();
    EXPECT_EQ(error.str(), "") << workload;
    EXPECT_EQ(Figure("[OVERALL], Errors"), 0) << workload;
    if (workload == 'd' || workload == 'e') {
      records += static_cast<uint64_t>(Figure("[INSERT], Return=OK"));
    }
  }
}

TEST_P(StoreTest, ReportTellsWhatTheStoreDidAndSettled) {
  const std::string json_path = directory + ".json";
  ASSERT_EQ(Ycsb('a', Url(), {"--phase", "load", "--settle", "60", "--json", json_path}), kExitOk)
      << error.str();
  const double loaded = Figure("[STORE], UserBytesWritten");
  EXPECT_NEAR(loaded, 20'000 * MeanPairBytes(KvMix::kSd), loaded * 0.03);
  EXPECT_EQ(Figure("[STORE], LiveUserBytes"), loaded);
  EXPECT_EQ(Figure("[STORE], UserBytesRead"), 0);
  EXPECT_EQ(Figure("[SETTLE], Quiet"), 1);
  // All of it is in files now: in tables, and the last of it in the log.
  EXPECT_GE(Figure("[SETTLE], DirectoryBytes"), loaded * 0.9);
  EXPECT_NEAR(Figure("[SETTLE], SpaceAmplification"), Figure("[SETTLE], DirectoryBytes") / loaded,
              0.001);
  if (ReadDeviceTraffic()) {
    EXPECT_GT(Figure("[STORE], DeviceBytesWritten"), 0);
  }
  EXPECT_GE(Figure("[OVERALL], LongestStall(us)"), 50);
  EXPECT_GT(Figure("[OVERALL], MaxLatency(us)"), 0);

  std::ifstream file(json_path);
  const auto json = nlohmann::json::parse(file);
  std::filesystem::remove(json_path);
  const auto& load = json.at("phases").at("load");
  EXPECT_EQ(load.at("store").at("UserBytesWritten"), loaded);
  EXPECT_EQ(load.at("settle").at("Quiet"), 1);
  EXPECT_TRUE(load.at("overall").contains("longest_stall_us"));
  EXPECT_EQ(json.at("configuration").at("kv_mix"), "sd");

  // Another process's run counts the same data, and what it adds.
  ASSERT_EQ(Ycsb('d', Url()), kExitOk) << error.str();
  EXPECT_EQ(Figure("[STORE], LiveUserBytes"), loaded + Figure("[STORE], UserBytesWritten"));
  EXPECT_GT(Figure("[STORE], UserBytesRead"), 0);
  EXPECT_EQ(out.str().find("[SETTLE]"), std::string::npos);
}

TEST_P(StoreTest, OrderedScansHaveNoHoles) {
  EXPECT_EQ(Ycsb('e', Url(), {"--phase", "load,run", "-p", "insertorder=ordered"}), kExitOk)
      << error.str();
}

TEST_P(StoreTest, FixedKeysRunAndAnOpenLoopKeepsItsRate) {
  ASSERT_EQ(Ycsb('a', Url(),
                 {"--phase", "load,run", "-p", "farleaf.kvmix=none", "-p", "recordcount=1000", "-p",
                  "operationcount=200", "--rate", "2000"}),
            kExitOk)
      << error.str();
  EXPECT_GE(Figure("[OVERALL], RunTime(ms)"), 90);
}

TEST_P(StoreTest, WritesRunWithWhatOptionsSay) {
  for (const char* more : {IsReplicated() ? "&durability=synced" : "&sync=1", "&flush_ms=5",
                           "&compression=lz4", "&growth=4", IsLsm() ? "&blind=0" : "&wal=0"}) {
    EXPECT_EQ(Ycsb('a', Url(more),
                   {"--phase", "load,run", "-p", "recordcount=100", "-p", "operationcount=100"}),
              kExitOk)
        << more << error.str();
    std::filesystem::remove_all(directory);
  }
}

TEST_P(StoreTest, LoadIsRefusedOverAStoreAndARunWithoutOne) {
  EXPECT_EQ(Ycsb('a', Url()), kExitFailed);
  EXPECT_NE(error.str().find("holds no store"), std::string::npos) << error.str();
  ASSERT_EQ(Ycsb('a', Url(), {"--phase", "load"}), kExitOk) << error.str();
  EXPECT_EQ(Ycsb('a', Url(), {"--phase", "load"}), kExitFailed);
  EXPECT_NE(error.str().find("holds a store"), std::string::npos) << error.str();
}

TEST_P(StoreTest, TwoDirectoriesAreComparedAndOneIsNotOpenedTwice) {
  const std::string other = directory + "_other";
  const auto compare = [&](const std::string& at, const std::string& phase) {
    return Ycsb('d', Url(),
                {"--phase", phase, "--against", std::string(GetParam()) + ":" + at + "?direct=0",
                 "--rounds", "3", "-p", "recordcount=2000", "-p", "operationcount=1000"});
  };
  EXPECT_EQ(compare(other, "load,run"), kExitOk) << error.str();
  EXPECT_NE(out.str().find("3 of 3 rounds"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("INSERT p50 (us)"), std::string::npos) << out.str();
  EXPECT_EQ(error.str(), "");
  EXPECT_EQ(
      compare(directory + "/../" + std::filesystem::path(directory).filename().string(), "run"),
      kExitUsage);
  EXPECT_NE(error.str().find(": data directory " + directory + " is --target's"), std::string::npos)
      << error.str();
  std::filesystem::remove_all(other);
}

TEST_P(StoreTest, WrongMixOfWhatWasLoadedIsFound) {
  ASSERT_EQ(Ycsb('c', Url(), {"--phase", "load"}), kExitOk) << error.str();
  EXPECT_EQ(Ycsb('c', Url(), {"-p", "farleaf.kvmix=ld"}), kExitFailed);
  EXPECT_NE(error.str().find("farleaf.kvmix=ld"), std::string::npos) << error.str();
}

TEST_P(StoreTest, ManyOperationsInFlightOfAThreadAreForWhoeverDoesNotBlock) {
  const std::vector<std::string> in_flight = {"--phase", "load", "--in-flight", "2"};
  if (IsLsm()) {
    EXPECT_EQ(Ycsb('a', Url(), in_flight), kExitOk) << error.str();
    return;
  }
  EXPECT_EQ(Ycsb('a', Url(), in_flight), kExitUsage);
  EXPECT_NE(error.str().find("--in-flight 1"), std::string::npos) << error.str();
}

INSTANTIATE_TEST_SUITE_P(All, StoreTest,
                         ::testing::Values("rocksdb", "blobdb", "lsm", "replicated"));

TEST(StoreWithoutRocksDbTest, TargetIsRefusedWithWhatToInstall) {
  if (HasRocksDb()) GTEST_SKIP() << "built with RocksDB";
  MonotonicClock clock;
  const auto target =
      OpenTarget("rocksdb:" + ::testing::TempDir() + "none", TargetOptions{}, &clock);
  ASSERT_FALSE(target.ok());
  EXPECT_EQ(target.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(target.status().message().find("librocksdb-dev"), std::string::npos);
}

}  // namespace
}  // namespace farleaf::ycsb
