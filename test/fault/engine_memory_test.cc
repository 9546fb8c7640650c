// What a process with an LSM store takes of memory: what index/lsm/README.md (Memory) says, however much it stores. The embedded store of
// the benchmark, loaded and read, as a process of its own.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "test/support/process.h"
#include "test/support/test_scale.h"

namespace farleaf {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kCache = 16 * kMiB, kMemtable = 4 * kMiB;

/// Of README.md, with the figures of its options that are not given here.
constexpr uint64_t StoreAtMost() {
  constexpr uint64_t kLogs = (8 + 6) * 2 * kMiB, kMerge = 18 * kMiB, kFlush = 6 * kMiB,
                     kCollection = 5 * kMiB;
  return kCache + 2 * kMemtable + kLogs + kMerge + kFlush + kCollection;
}
/// Beside the store: program, threads, the benchmark's own, and what the allocator has in hand.
constexpr uint64_t kProcess = 48 * kMiB;

struct EngineMemoryTest : ::testing::Test {
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's own memory is many times as much";
#endif
  }
  /// The most that was resident in a load of `records` pairs of about 1 KiB, and in a run of updates and gets behind it.
  uint64_t MostResident(uint64_t records) {
    const std::string directory = cluster.File("store" + std::to_string(records));
    const std::string target = "lsm:" + directory + "?cache_mb=" + std::to_string(kCache / kMiB) +
                               "&memtable_mb=" + std::to_string(kMemtable / kMiB);
    uint64_t most = 0;
    for (const std::string phase : {"load", "run"}) {
      const std::string json = cluster.File(phase + std::to_string(records) + ".json");
      const auto process =
          cluster.Start("ycsb", {"-P",        FARLEAF_WORKLOADS "/workloada",
                                 "--phase",   phase,
                                 "--target",  target,
                                 "--threads", "2",
                                 "--seed",    "1",
                                 "-p",        "farleaf.kvmix=l",
                                 "-p",        "requestdistribution=uniform",
                                 "-p",        "recordcount=" + std::to_string(records),
                                 "-p",        "operationcount=" + std::to_string(records / 4),
                                 "--json",    json});
      const Ended ended = cluster.WaitFor(*process, 600'000);
      EXPECT_EQ(ended.code, 0) << ended.output;
      if (ended.code != 0) return 0;
      const auto result = nlohmann::json::parse(std::ifstream(json));
      const auto resident = result["phases"][phase]["overall"].value("max_rss_bytes", uint64_t{0});
      RecordProperty(phase + " of " + std::to_string(records), std::to_string(resident));
      most = std::max(most, resident);
    }
    return most;
  }

  ProcessCluster cluster{{.memory_servers = 0}};
};

// Of twice as much data as the bound, and of thirty times as much in the long mode: whatever grows with the data is seen.
TEST_F(EngineMemoryTest, WhatIsResidentKeepsToTheBudgetHoweverMuchIsStored) {
  const uint64_t records = test::Amount{150'000, 300'000, 4'000'000};
  const uint64_t resident = MostResident(records);
  if (!HasFailure() && resident == 0) GTEST_SKIP() << "the kernel does not tell";
  EXPECT_LE(resident, StoreAtMost() + kProcess);
}

}  // namespace
}  // namespace farleaf
