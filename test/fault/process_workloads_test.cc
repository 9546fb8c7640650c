// YCSB's workloads through the shipped programs: what they cost in round trips, the same on every
// fabric, and that no value is ever wrong.
#include <gtest/gtest.h>

#include <tuple>

#include "test/support/process.h"

namespace farleaf {
namespace {

using Json = nlohmann::json;

std::string Workload(char letter) { return std::string(FARLEAF_WORKLOADS) + "/workload" + letter; }

double RoundTrips(const Json& phase, const std::string& kind) {
  return phase["operations"][kind]["round_trips_per_op"].get<double>();
}

/// One cluster, and the results of what ran on it.
class WorkloadRuns {
 public:
  WorkloadRuns(const std::string& fabric, Bootstrap bootstrap, std::string keys)
      : cluster_({.fabric = fabric, .bootstrap = bootstrap}), keys_(std::move(keys)) {
    cluster_.StartMemoryServers();
  }
  ~WorkloadRuns() { cluster_.StopMemoryServers(); }

  std::vector<std::string> Flags(char letter, const std::string& phase, const std::string& tree,
                                 std::vector<std::string> more = {}) const {
    std::vector<std::string> flags{"--target", cluster_.pool_target(),
                                   "-P",       Workload(letter),
                                   "--phase",  phase,
                                   "-p",       "recordcount=20000",
                                   "-p",       "operationcount=4000",
                                   "-p",       "fieldcount=1",
                                   "-p",       "fieldlength=40",
                                   "-p",       "farleaf.keys=" + keys_,
                                   "-p",       "farleaf.tree=" + tree};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }
  /// The phases of one run: "load" and "run".
  Json Run(char letter, const std::string& phase, const std::string& tree,
           std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--json", cluster_.File("result.json")});
    const Ended ended = cluster_.Run("ycsb", Flags(letter, phase, tree, more));
    EXPECT_EQ(ended.code, 0) << "workload " << letter << ": " << ended.output;
    if (ended.code != 0) return {};
    return cluster_.Json("result.json")["phases"];
  }
  ProcessCluster& cluster() { return cluster_; }

 private:
  ProcessCluster cluster_;
  const std::string keys_;
};

// ---- counts --------------------------------------------------------------------------------------

struct CountTest : ::testing::TestWithParam<std::tuple<Bootstrap, std::string>> {
  /// Round trips of every kind of operation, "a.READ" and so on. One operation at a time, so that
  /// nothing that happens at the same time changes them.
  static std::map<std::string, double> Counts(const std::string& fabric) {
    const auto& [bootstrap, keys] = GetParam();
    WorkloadRuns runs(fabric, bootstrap, keys);
    std::map<std::string, double> counts;
    for (const char letter : {'a', 'b', 'c', 'f', 'd', 'e'}) {
      // As YCSB advises: d inserts, so that e begins anew.
      const bool loads = letter == 'a' || letter == 'e';
      const std::string tree = letter == 'e' ? "second" : "first";
      const Json phases = runs.Run(letter, loads ? "load,run" : "run", tree);
      if (phases.is_null()) return {};
      for (const auto& [phase, result] : phases.items()) {
        for (const auto& [kind, operation] : result["operations"].items()) {
          const std::string name =
              std::string(1, letter) + (phase == "load" ? ".load." : ".") + kind;
          counts[name] = operation["round_trips_per_op"].template get<double>();
        }
      }
    }
    return counts;
  }
};

TEST_P(CountTest, AreWithinTheBoundsAndTheSameOnBothFabrics) {
  const auto shm = Counts("shm");
  ASSERT_FALSE(shm.empty());
  for (const auto& [name, round_trips] : shm) {
    const std::string kind = name.substr(name.rfind('.') + 1);
    const double most = kind == "READ"     ? 1.02
                        : kind == "INSERT" ? 2.5
                        : kind == "SCAN"   ? 2.2
                                           : 2.02;
    EXPECT_LE(round_trips, most) << name;
    EXPECT_GE(round_trips, 1.0) << name;
  }
  EXPECT_EQ(shm.size(), 13u);
  const auto tcp = Counts("tcp");
  ASSERT_EQ(tcp.size(), shm.size());
  for (const auto& [name, round_trips] : tcp) {
    EXPECT_NEAR(round_trips, shm.at(name), 0.01 * shm.at(name)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Pool, CountTest,
                         ::testing::Values(std::tuple(Bootstrap::kFile, "fixed8"),
                                           std::tuple(Bootstrap::kFile, "bytes"),
                                           std::tuple(Bootstrap::kMemcached, "fixed8")),
                         [](const auto& each) {
                           const bool file = std::get<0>(each.param) == Bootstrap::kFile;
                           return (file ? "File" : "Memcached") + std::string("_") +
                                  std::get<1>(each.param);
                         });

// ---- the other ways to run -----------------------------------------------------------------------

struct WorkloadTest : ::testing::TestWithParam<std::string> {};

TEST_P(WorkloadTest, AnUncachedTreeReadsEveryLevelFromThePool) {
  WorkloadRuns runs(GetParam(), Bootstrap::kFile, "fixed8");
  runs.Run('a', "load", "t", {"--in-flight", "16"});
  const Json cached = runs.Run('a', "run", "t")["run"];
  const Json uncached = runs.Run('a', "run", "t", {"--cache", "off"})["run"];
  // 20,000 keys fill three levels: the root, one below it, the leaves.
  EXPECT_NEAR(RoundTrips(uncached, "READ"), 3.0, 0.02);
  EXPECT_NEAR(RoundTrips(uncached, "UPDATE"), 4.0, 0.02);
  EXPECT_LE(RoundTrips(cached, "READ"), 1.02);
  const Json scans = runs.Run('e', "run", "t")["run"];
  const Json uncached_scans = runs.Run('e', "run", "t", {"--cache", "off"})["run"];
  EXPECT_GT(RoundTrips(uncached_scans, "SCAN"), 2 * RoundTrips(scans, "SCAN"));
}

TEST_P(WorkloadTest, LongValuesCostOneRoundTripMore) {
  WorkloadRuns runs(GetParam(), Bootstrap::kFile, "bytes");
  const std::vector<std::string> long_values{"-p", "fieldlength=1000", "-p", "recordcount=4000"};
  const Json phases = runs.Run('a', "load,run", "t", long_values);
  EXPECT_LE(RoundTrips(phases["run"], "READ"), 2.02);
  EXPECT_LE(RoundTrips(phases["run"], "UPDATE"), 3.04);
  const Json scans = runs.Run('e', "run", "t", long_values)["run"];
  EXPECT_LE(RoundTrips(scans, "SCAN"), 3.2);
}

TEST_P(WorkloadTest, TwoComputeServersAtOnceReadNoWrongValue) {
  WorkloadRuns runs(GetParam(), Bootstrap::kFile, "fixed8");
  ProcessCluster& cluster = runs.cluster();
  const std::vector<std::string> busy{"--threads", "2", "--in-flight", "16"};
  runs.Run('a', "load", "t", busy);
  for (const char letter : {'a', 'f', 'e'}) {
    // Their inserts meet on the same keys: EXISTS is an answer, not an error.
    auto flags = runs.Flags(letter, "run", "t", busy);
    auto first = cluster.Start("ycsb", flags);
    flags.insert(flags.end(), {"--seed", "2"});
    auto second = cluster.Start("ycsb", flags);
    for (ChildProcess* process : {first.get(), second.get()}) {
      const Ended ended = cluster.WaitFor(*process);
      EXPECT_EQ(ended.code, 0) << "workload " << letter << ": " << ended.output;
      EXPECT_TRUE(ended.says("[OVERALL], Errors, 0")) << ended.output;
    }
  }
}

TEST_P(WorkloadTest, RunThroughAComputeServerAndItsClient) {
  ProcessCluster cluster({.fabric = GetParam()});
  cluster.StartMemoryServers();
  ComputeServerProcess server = cluster.StartComputeServer({"--unix-socket", cluster.File("c")});
  for (const char letter : {'a', 'e', 'f'}) {
    const std::string target = letter == 'e' ? "farleaf+unix:" + cluster.File("c") : server.url();
    const Ended ended = cluster.Run(
        "ycsb", {"--target", target, "-P", Workload(letter), "--phase", "load,run", "-p",
                 "recordcount=4000", "-p", "operationcount=2000", "-p", "farleaf.keys=bytes", "-p",
                 std::string("farleaf.tree=") + letter, "--threads", "2", "--in-flight", "16"});
    EXPECT_EQ(ended.code, 0) << "workload " << letter << ": " << ended.output;
  }
  server.process->Signal(SIGTERM);
  const Ended ended = cluster.WaitFor(*server.process);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_FALSE(std::filesystem::exists(cluster.File("c")));
  cluster.StopMemoryServers();
}

// The throughput itself is for a benchmark; what makes it is counted here: how often a memory server
// had nothing to do and slept.
TEST(InFlightTest, ManyOperationsInFlightKeepTheMemoryServersAwake) {
  WorkloadRuns runs("tcp", Bootstrap::kFile, "fixed8");
  runs.Run('a', "load", "t", {"--in-flight", "16"});
  const auto sleeps_of = [&](const std::string& in_flight) {
    const uint64_t before = runs.cluster().memory_server(0).VoluntarySwitches();
    runs.Run('c', "run", "t", {"--in-flight", in_flight, "-p", "operationcount=20000"});
    return runs.cluster().memory_server(0).VoluntarySwitches() - before;
  };
  const uint64_t sleeps_of_1 = sleeps_of("1");
  const uint64_t sleeps_of_32 = sleeps_of("32");
  EXPECT_GT(sleeps_of_1, 2 * sleeps_of_32);
}

INSTANTIATE_TEST_SUITE_P(Fabric, WorkloadTest, ::testing::Values("shm", "tcp"),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace farleaf
