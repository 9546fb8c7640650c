// YCSB's workloads through the shipped programs: what they cost in round trips, the same on every
// fabric, and that no value is ever wrong.
#include <gtest/gtest.h>

#include <cstdio>

#include "test/support/process.h"
#include "test/support/test_scale.h"

namespace farleaf {
namespace {

using Json = nlohmann::json;

std::string Workload(char letter) { return std::string(FARLEAF_WORKLOADS) + "/workload" + letter; }

const test::Amount kRecords{.small = 400, .usual = 20'000};
const test::Amount kOperations{.small = 200, .usual = 4'000};

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
                                   "-p",       "recordcount=" + std::to_string(kRecords),
                                   "-p",       "operationcount=" + std::to_string(kOperations),
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

// ---- costs ---------------------------------------------------------------------------------------

/// What the operations of a kind cost, by workload, phase and kind: "a.run.READ".
using Costs = std::map<std::string, Json>;

/// Of YCSB's workloads a to f, with a process each. One operation at a time, so that nothing that
/// happens at the same time changes what it costs; and no leaf looked at in place, as only shared memory allows.
Costs CostsOf(const std::string& fabric, Bootstrap bootstrap, const std::string& keys) {
  WorkloadRuns runs(fabric, bootstrap, keys);
  Costs costs;
  for (const char letter : {'a', 'b', 'c', 'f', 'd', 'e'}) {
    // As YCSB advises: d inserts, so that e begins anew.
    const bool loads = letter == 'a' || letter == 'e';
    const std::string tree = letter == 'e' ? "second" : "first";
    const Json phases = runs.Run(letter, loads ? "load,run" : "run", tree, {"--in-place", "off"});
    for (const auto& [phase, result] : phases.items()) {
      for (const auto& [kind, operation] : result["operations"].items()) {
        Json& cost = costs[std::string(1, letter) + "." + phase + "." + kind];
        for (const char* what : {"count", "returns", "round_trips_per_op", "verbs_per_op",
                                 "bytes_read_per_op", "bytes_written_per_op"}) {
          cost[what] = operation.at(what);
        }
      }
    }
  }
  return costs;
}

struct Bounds {
  double round_trips_least, round_trips_most;
  double bytes_most;  ///< both ways
};
/// Of 20,000 keys: of parted leaves, or of byte strings, whose leaves are read whole. The first reads of a process are among
/// them, which learn where entries went past a part, and what has split since its cache was warmed.
Bounds BoundsOf(const std::string& kind, const std::string& keys) {
  const bool bytes = keys == "bytes";
  if (kind == "READ") return {1.0, 1.01, bytes ? 4'100.0 : 220.0};
  if (kind == "INSERT") return {2.0, bytes ? 2.06 : 2.08, bytes ? 5'300.0 : 565.0};
  if (kind == "SCAN") return {1.0, bytes ? 1.01 : 1.06, bytes ? 12'300.0 : 2'200.0};
  // One that may have to create the entry reads the whole leaf where all parts of the key are full.
  if (kind == "READ-MODIFY-WRITE") return {2.0, 2.01, bytes ? 4'310.0 : 470.0};
  return {2.0, 2.01, bytes ? 4'310.0 : 330.0};
}

void ExpectWithinBounds(const Costs& costs, const std::string& keys) {
  for (const auto& [name, cost] : costs) {
    const Bounds bounds = BoundsOf(name.substr(name.rfind('.') + 1), keys);
    const double round_trips = cost["round_trips_per_op"].get<double>();
    const double bytes =
        cost["bytes_read_per_op"].get<double>() + cost["bytes_written_per_op"].get<double>();
    std::printf("%s, %s: %.4f round trips, %.1f bytes\n", keys.c_str(), name.c_str(), round_trips,
                bytes);
    EXPECT_GE(round_trips, bounds.round_trips_least) << name;
    EXPECT_LE(round_trips, bounds.round_trips_most) << name;
    EXPECT_LE(bytes, bounds.bytes_most) << name;
  }
}

struct Comparison {
  std::vector<std::string> fabrics;
  Bootstrap bootstrap;
  std::string keys;

  std::string Name() const {
    std::string name = bootstrap == Bootstrap::kFile ? "File_" + keys : "Memcached_" + keys;
    for (const std::string& fabric : fabrics) name += "_" + fabric;
    return name;
  }
};
void PrintTo(const Comparison& comparison, std::ostream* out) { *out << comparison.Name(); }

struct CostTest : ::testing::TestWithParam<Comparison> {};

// Exactly: the same operations on the same tree, and the counts are those of the batches.
TEST_P(CostTest, IsWithinTheBoundsAndTheSameOnEveryFabric) {
  const auto& [fabrics, bootstrap, keys] = GetParam();
  const Costs first = CostsOf(fabrics[0], bootstrap, keys);
  EXPECT_EQ(first.size(), 13u);
  // Few operations would be charged with a cold cache and a first chunk.
  if (test::ScaleOfTests() != test::Scale::kSmall) ExpectWithinBounds(first, keys);
  for (size_t i = 1; i < fabrics.size(); ++i) {
    const Costs other = CostsOf(fabrics[i], bootstrap, keys);
    EXPECT_EQ(other.size(), first.size()) << fabrics[i];
    for (const auto& [name, cost] : other) {
      ASSERT_TRUE(first.contains(name)) << name;
      EXPECT_EQ(cost, first.at(name))
          << name << " over " << fabrics[i] << ", not as over " << fabrics[0];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Fabrics, CostTest,
    ::testing::Values(Comparison{dsm::ProcessFabricNames(), Bootstrap::kFile, "fixed8"},
                      Comparison{dsm::ProcessFabricNames(), Bootstrap::kFile, "bytes"},
                      Comparison{{"shm", "tcp"}, Bootstrap::kMemcached, "fixed8"}),
    [](const auto& each) { return each.param.Name(); });

// ---- the other ways to run -----------------------------------------------------------------------

struct WorkloadTest : ::testing::TestWithParam<std::string> {};

TEST_P(WorkloadTest, AnUncachedTreeReadsEveryLevelFromThePool) {
  WorkloadRuns runs(GetParam(), Bootstrap::kFile, "fixed8");
  runs.Run('a', "load", "t", {"--in-flight", "16"});
  const Json cached = runs.Run('a', "run", "t")["run"];
  const Json uncached = runs.Run('a', "run", "t", {"--cache", "off"})["run"];
  // 20,000 keys fill three levels: the root, one below it, the leaves. A few hundred fill two.
  const double levels = test::Amount{.small = 2, .usual = 3};
  EXPECT_NEAR(RoundTrips(uncached, "READ"), levels, 0.02);
  EXPECT_NEAR(RoundTrips(uncached, "UPDATE"), levels + 1, 0.02);
  EXPECT_LT(RoundTrips(cached, "READ"), levels - 0.9);
  const Json scans = runs.Run('e', "run", "t")["run"];
  const Json uncached_scans = runs.Run('e', "run", "t", {"--cache", "off"})["run"];
  EXPECT_GT(RoundTrips(uncached_scans, "SCAN"), RoundTrips(scans, "SCAN") + levels - 1.5);
}

TEST_P(WorkloadTest, LongValuesCostOneRoundTripMoreWhereTheirPlaceIsNotKnown) {
  WorkloadRuns runs(GetParam(), Bootstrap::kFile, "bytes");
  const auto run = [&runs](char letter, const std::string& phases, bool remembers) {
    std::vector<std::string> flags{"-p", "fieldlength=1000", "-p",
                                   "recordcount=" + std::to_string(kRecords / 5)};
    if (!remembers) {
      flags.insert(flags.end(), {"--value-hint-bytes", "0", "--value-list-bytes", "0"});
    }
    return runs.Run(letter, phases, "t", flags)["run"];
  };
  const bool few = test::ScaleOfTests() == test::Scale::kSmall;
  const Json known = run('a', "load,run", true);  // by whoever has stored them
  EXPECT_LE(RoundTrips(known, "READ"), 1.02);
  EXPECT_LE(RoundTrips(known, "UPDATE"), few ? 2.2 : 2.13);  // chunks for blocks included
  const Json unknown = run('a', "run", false);
  EXPECT_GE(RoundTrips(unknown, "READ"), 2);
  EXPECT_LE(RoundTrips(unknown, "READ"), 2.02);
  EXPECT_LE(RoundTrips(unknown, "UPDATE"), few ? 2.2 : 2.05);
  const Json learned = run('a', "run", true);  // each by its first read
  EXPECT_GT(RoundTrips(learned, "READ"), RoundTrips(known, "READ") + 0.05);
  EXPECT_LT(RoundTrips(learned, "READ"), RoundTrips(unknown, "READ") - 0.05);
  const Json scans = run('e', "run", true), unknown_scans = run('e', "run", false);
  EXPECT_LE(RoundTrips(scans, "SCAN"), few ? 1.5 : 1.03);
  EXPECT_GE(RoundTrips(unknown_scans, "SCAN"), 2);
  EXPECT_LE(RoundTrips(unknown_scans, "SCAN"), few ? 2.2 : 2.02);
  for (const auto& [name, json, kind] : {std::tuple{"known", &known, "READ"},
                                         {"known", &known, "UPDATE"},
                                         {"unknown", &unknown, "READ"},
                                         {"unknown", &unknown, "UPDATE"},
                                         {"learned", &learned, "READ"},
                                         {"learned", &scans, "SCAN"},
                                         {"unknown", &unknown_scans, "SCAN"}}) {
    std::printf("%s: %s %.3f round trips\n", name, kind, RoundTrips(*json, kind));
  }
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
    const Ended ended =
        cluster.Run("ycsb", {"--target", target, "-P", Workload(letter), "--phase", "load,run",
                             "-p", "recordcount=" + std::to_string(kRecords / 5), "-p",
                             "operationcount=" + std::to_string(kOperations / 2), "-p",
                             "farleaf.keys=bytes", "-p", std::string("farleaf.tree=") + letter,
                             "--threads", "2", "--in-flight", "16"});
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

INSTANTIATE_TEST_SUITE_P(Fabric, WorkloadTest, ::testing::ValuesIn(dsm::ProcessFabricNames()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace farleaf
