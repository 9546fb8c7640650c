// The benchmark in virtual time: what it counts is what the tree does on any fabric, runs repeat, and
// bad model files are refused by name.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "benchmark/simulated/model_file.h"
#include "benchmark/ycsb/batch_means.h"
#include "benchmark/ycsb/command.h"
#include "dsm/base/random.h"
#include "test/support/child_process.h"

namespace farleaf::ycsb {
namespace {

const std::string kModels = FARLEAF_MODELS;

struct SimulatedTargetTest : ::testing::Test {
  MonotonicClock clock;
  std::ostringstream out, error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       ("simulated_target_test." + std::to_string(::getpid()));

  void SetUp() override { std::filesystem::create_directory(folder); }
  void TearDown() override { std::filesystem::remove_all(folder); }

  int Ycsb(char workload, const std::string& target, std::vector<std::string> more = {}) {
    out.str("");
    error.str("");
    std::vector<std::string> arguments = {"-P",
                                          std::string(FARLEAF_WORKLOADS) + "/workload" + workload,
                                          "-p",
                                          "recordcount=3000",
                                          "-p",
                                          "operationcount=4000",
                                          "--target",
                                          target,
                                          "--status-interval",
                                          "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments,
                      {.open_target = OpenTarget, .clock = &clock, .out = &out, .error = &error});
  }
  nlohmann::json YcsbJson(char workload, const std::string& target,
                          std::vector<std::string> more = {}) {
    const std::string path = folder / "result.json";
    more.insert(more.end(), {"--json", path});
    EXPECT_EQ(Ycsb(workload, target, std::move(more)), kExitOk) << error.str();
    std::ifstream file(path);
    return nlohmann::json::parse(file);
  }
  /// The Return= lines of the last phase.
  std::string Returns() const {
    std::string returns;
    std::istringstream lines(out.str());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# phase")) returns.clear();
      if (line.find("Return=") != std::string::npos) returns += line + "\n";
    }
    return returns;
  }
  std::string PaperModel() const {
    std::ifstream file(kModels + "/rf_tree_paper.toml");
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  /// The paper's model with a line of it replaced.
  static std::string Replaced(std::string text, const std::string& key, const std::string& line) {
    const size_t at = text.find("\n" + key + " =") + 1;
    EXPECT_NE(at, 0u) << key;
    return text.replace(at, text.find('\n', at) - at, line);
  }
  std::string WriteModel(const std::string& text) {
    const std::string path = folder / "model.toml";
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(SimulatedTargetTest, CountsAreThoseOverSharedMemory) {
  const std::string model =
      WriteModel(Replaced(PaperModel(), "compute_servers", "compute_servers = 1"));
  for (char workload : std::string("abcdef")) {
    const std::vector<std::string> phases = {"--phase", "load,run"};
    std::vector<std::string> exact = phases;
    exact.insert(exact.end(), {"--confidence", "0"});
    const auto simulated = YcsbJson(workload, "sim:" + model + "?region=64MiB&chunk=256KiB", exact);
    const auto measured = YcsbJson(workload, "local:?servers=2&region=64MiB&chunk=256KiB", phases);
    for (const char* phase : {"load", "run"}) {
      for (const auto& [kind, one] : measured["phases"][phase]["operations"].items()) {
        const auto& other = simulated["phases"][phase]["operations"][kind];
        for (const char* count : {"count", "round_trips_per_op", "verbs_per_op",
                                  "bytes_read_per_op", "bytes_written_per_op", "returns"}) {
          EXPECT_EQ(other[count], one[count]) << workload << " " << phase << " " << kind << count;
        }
      }
    }
  }
}

TEST_F(SimulatedTargetTest, RunsRepeat) {
  const std::string target = "sim:" + kModels + "/rf_tree_paper.toml?region=64MiB&chunk=256KiB";
  const std::vector<std::string> flags = {"--phase", "load,run",     "--threads",
                                          "40",      "--confidence", "0"};
  std::vector<std::string> other_seed = flags;
  other_seed.insert(other_seed.end(), {"--seed", "2"});
  for (char workload : std::string("ae")) {
    const auto first = YcsbJson(workload, target, flags);
    EXPECT_EQ(first.dump(), YcsbJson(workload, target, flags).dump());
    EXPECT_NE(first.dump(), YcsbJson(workload, target, other_seed).dump());
  }
}

TEST_F(SimulatedTargetTest, IntervalsAreOfVirtualTimeAndRepeat) {
  const std::string target = "sim:" + kModels + "/rf_tree_paper.toml?region=64MiB&chunk=256KiB";
  const std::string log = folder / "log.hlog";
  const std::vector<std::string> flags = {"--phase",      "load,run",   "--threads",    "40",
                                          "--confidence", "0",          "--in-flight",  "2",
                                          "--interval",   "0.0001",     "--hdr-log",    log};
  const auto read_log = [&log] {
    std::ifstream file(log);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  };
  const auto first = YcsbJson('a', target, flags);
  const std::string first_log = read_log();
  EXPECT_EQ(first.dump(), YcsbJson('a', target, flags).dump());
  EXPECT_EQ(first_log, read_log());
  // The load takes no time.
  EXPECT_FALSE(first["phases"]["load"].contains("series"));
  const auto& run = first["phases"]["run"];
  for (const char* kind : {"READ", "UPDATE"}) {
    const auto& rows = run["series"][kind];
    uint64_t operations = 0;
    double max_us = 0;
    for (const auto& row : rows) {
      operations += row["operations"].get<uint64_t>();
      if (!row["max_us"].is_null()) max_us = std::max(max_us, row["max_us"].get<double>());
    }
    EXPECT_EQ(operations, run["operations"][kind]["count"]);
    EXPECT_NEAR(max_us, run["operations"][kind]["latency_us"]["max"].get<double>(), 1e-6);
    EXPECT_EQ(rows.size(), std::ceil(run["overall"]["run_time_ms"].get<double>() * 10));
  }
}

/// What `ycsb` writes with --json, byte for byte.
std::string JsonOfAProcess(const std::filesystem::path& folder,
                           std::vector<std::string> arguments) {
  const std::string json = folder / "process.json";
  arguments.insert(arguments.begin(), FARLEAF_YCSB);
  arguments.insert(arguments.end(), {"--json", json});
  ChildProcess ycsb(std::move(arguments), folder / "process.txt");
  EXPECT_EQ(ycsb.Wait(), kExitOk) << ycsb.Output();
  std::ifstream file(json);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_F(SimulatedTargetTest, ProcessesWriteIdenticalJson) {
  const std::string target = "sim:" + kModels + "/rf_tree_paper.toml?region=64MiB&chunk=256KiB";
  for (const char workload : std::string("ade")) {
    for (const std::vector<std::string>& more : std::vector<std::vector<std::string>>{
             {},
             {"--confidence", "2", "--operations-max", "6000"},
             {"--rate", "2000000", "--warmup", "500", "--interval", "0.0001"},
             {"-p", "farleaf.keys=bytes", "-p", "fieldlength=20"},
             {"--program", "sherman", "--in-flight", "3"},
             {"--against", target, "--against-args", "--cache off", "--rounds", "3"}}) {
      std::vector<std::string> arguments = {
          "-P",        std::string(FARLEAF_WORKLOADS) + "/workload" + workload,
          "-p",        "recordcount=3000",
          "-p",        "operationcount=2000",
          "--threads", "24",
          "--phase",   "load,run",
          "--target",  target,
          "--seed",    "7"};
      if (more.empty() || more.front() != "--confidence") {
        arguments.insert(arguments.end(), {"--confidence", "0"});
      }
      arguments.insert(arguments.end(), more.begin(), more.end());
      const std::string first = JsonOfAProcess(folder, arguments);
      EXPECT_GT(first.size(), 1000u);
      EXPECT_EQ(first, JsonOfAProcess(folder, arguments)) << workload;
    }
  }
}

TEST_F(SimulatedTargetTest, ComparisonWithItselfShowsNoDifference) {
  const std::string target = "sim:" + kModels + "/rf_tree_paper.toml?region=64MiB&chunk=256KiB";
  const auto json = YcsbJson('a', target,
                             {"--phase", "load,run", "--threads", "20", "--against", target,
                              "--rounds", "3"});
  const auto& comparison = json["comparison"];
  EXPECT_EQ(comparison["rounds"].size(), 3u);
  for (const auto& round : comparison["rounds"]) EXPECT_EQ(round["target"], round["against"]);
  EXPECT_EQ(comparison["figures"].size(), 8u);
  for (const auto& [name, figure] : comparison["figures"].items()) {
    EXPECT_EQ(figure["ratio"], 1) << name;
    EXPECT_EQ(figure["difference_shown"], false) << name;
  }
  // Rounds are seeds, and of operationcount operations.
  EXPECT_NE(comparison["rounds"][0]["target"], comparison["rounds"][1]["target"]);
  EXPECT_EQ(comparison["rounds"][0]["target"]["overall"]["count"], 4000);
}

TEST_F(SimulatedTargetTest, ComparisonShowsWhatTheCacheIsWorth) {
  const std::string target = "sim:" + kModels + "/rf_tree_paper.toml?region=64MiB&chunk=256KiB";
  const auto json = YcsbJson('c', target,
                             {"--phase", "load,run", "--threads", "20", "--against", target,
                              "--against-args", "--cache off", "--rounds", "3"});
  const auto& figures = json["comparison"]["figures"];
  EXPECT_GT(figures["ops_per_second"]["ci95"][0], 1.2);
  EXPECT_LT(figures["READ.latency_us.p50"]["ci95"][1], 0.8);
}

TEST_F(SimulatedTargetTest, EveryWorkloadRunsWithHundredsOfClients) {
  const std::string target = "sim:" + kModels + "/rf_tree_paper.toml?region=64MiB&chunk=256KiB";
  for (char workload : std::string("abcdef")) {
    const auto result =
        YcsbJson(workload, target,
                 {"--phase", "load,run", "--threads", "96", "--in-flight", "3", "-p",
                  "farleaf.keys=bytes", "-p", "fieldlength=20", "--confidence", "0"});
    EXPECT_GT(result["overall"]["ops_per_second"], 1e6) << workload;
  }
}

TEST_F(SimulatedTargetTest, RunEndsWhenItsThroughputIsKnown) {
  const std::string target = "sim:" + kModels + "/rf_tree_paper.toml?region=64MiB&chunk=256KiB";
  const auto result = YcsbJson('c', target, {"--phase", "load,run", "--threads", "20"});
  EXPECT_GT(result["overall"]["count"], 4000);
  EXPECT_LE(result["overall"]["throughput_ci95_percent"], 1);
  const auto ended = YcsbJson('a', target,
                              {"--phase", "load,run", "--threads", "20", "--confidence", "0.001",
                               "--operations-max", "30000"});
  EXPECT_EQ(ended["overall"]["count"], 30000);
  EXPECT_GT(ended["overall"].value("throughput_ci95_percent", 100.0), 0.001);
}

TEST_F(SimulatedTargetTest, ATraceHasTheOutcomesOfItsOrder) {
  const std::string trace = folder / "t.trace";
  {
    std::ofstream file(trace);
    Random random(12);
    const char* const kinds[] = {"READ ", "UPDATE ", "INSERT ", "RMW "};
    for (int i = 0; i < 2'000; ++i) {
      file << kinds[random.Below(4)] << random.Below(50) * 100 << "\n";
    }
  }
  const std::vector<std::string> replay = {"--phase", "load,run", "-p", "insertorder=ordered", "-p",
                                           "farleaf.trace=" + trace, "-p",
                                           "farleaf.trace_own_values=true"};
  const std::string target = "sim:" + kModels + "/rf_tree_paper.toml";
  std::set<std::string> outcomes;
  for (const auto& [threads, in_flight] : {std::pair("1", "1"), {"1", "16"}, {"7", "4"}}) {
    auto arguments = replay;
    arguments.insert(arguments.end(), {"--threads", threads, "--in-flight", in_flight});
    ASSERT_EQ(Ycsb('a', target, arguments), kExitOk) << error.str();
    outcomes.insert(Returns());
  }
  ASSERT_EQ(outcomes.size(), 1u) << *outcomes.begin() << *outcomes.rbegin();
  // Keys from 3000 on are not loaded, so that it hangs on the order which operations find them.
  for (const char* found : {"[READ], Return=NOT_FOUND", "[INSERT], Return=OK",
                            "[UPDATE], Return=NOT_FOUND", "[INSERT], Return=EXISTS"}) {
    EXPECT_NE(outcomes.begin()->find(found), std::string::npos) << *outcomes.begin();
  }
  auto program = replay;
  program.insert(program.end(), {"--program", "sherman", "--in-flight", "8"});
  EXPECT_EQ(Ycsb('a', target, program), kExitOk) << error.str();
}

TEST_F(SimulatedTargetTest, OpenLoopKeepsItsRate) {
  const std::string target = "sim:" + kModels + "/rf_tree_paper.toml?region=64MiB&chunk=256KiB";
  for (const std::string program : {"", "sherman"}) {
    std::vector<std::string> flags = {"--phase", "load,run", "--threads",    "16",
                                      "--rate",  "1000000",  "--confidence", "0"};
    if (!program.empty()) flags.insert(flags.end(), {"--program", program});
    const auto result = YcsbJson('b', target, flags);
    EXPECT_EQ(result["overall"]["count"], 4000);
    EXPECT_NEAR(result["overall"]["ops_per_second"].get<double>(), 1e6, 2e4) << program;
  }
}

TEST_F(SimulatedTargetTest, LoadAloneTakesTime) {
  const std::string target = "sim:" + kModels + "/rf_tree_paper.toml?region=64MiB&chunk=256KiB";
  const auto timed = YcsbJson('a', target, {"--phase", "load", "--threads", "20"});
  EXPECT_GT(timed["overall"]["ops_per_second"], 1e5);
  const auto free = YcsbJson('a', target, {"--phase", "load,run", "--threads", "20"});
  EXPECT_EQ(free["phases"]["load"]["overall"]["run_time_ms"], 0);
  EXPECT_EQ(free["phases"]["load"]["overall"]["count"], 3000);
}

TEST_F(SimulatedTargetTest, BadModelFilesAreRefusedByName) {
  const std::string good = PaperModel();
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {Replaced(good, "cores", "cores = 0"), {"machine.cores", "0", "from 1 to 1024"}},
      {Replaced(good, "cores", "cores = 1.5"), {"machine.cores", "1.5", "whole number"}},
      {Replaced(good, "wire_ns", "wire_ns = -1"), {"latency.wire_ns", "-1", "from 0"}},
      {Replaced(good, "wire_ns", "wire_ns = 'short'"), {"latency.wire_ns", "'short'"}},
      {Replaced(good, "wire_ns", "wire_ns = nan"), {"latency.wire_ns", "nan"}},
      {Replaced(good, "bandwidth_gbps", "bandwidth_gbps = 0"), {"nic.bandwidth_gbps", "0"}},
      {Replaced(good, "cores", "colours = 3"), {"machine.colours", "no parameter"}},
      {Replaced(good, "cores", ""), {"machine.cores is missing"}},
      {"cores = 3\n" + good, {"cores", "outside of a table"}},
      {"[machine", {"line 1"}}};
  for (const auto& [text, named] : cases) {
    const std::string path = WriteModel(text);
    EXPECT_EQ(Ycsb('a', "sim:" + path, {"--phase", "load"}), kExitUsage);
    EXPECT_NE(error.str().find(path), std::string::npos) << error.str();
    for (const std::string& part : named) {
      EXPECT_NE(error.str().find(part), std::string::npos) << part << ": " << error.str();
    }
  }
}

TEST_F(SimulatedTargetTest, WrongTargetsAndFlagsAreRefusedByName) {
  const std::string model = kModels + "/rf_tree_paper.toml";
  EXPECT_EQ(Ycsb('a', "sim:" + model), kExitUsage);
  EXPECT_NE(error.str().find("load,run"), std::string::npos) << error.str();
  EXPECT_EQ(Ycsb('a', "sim:/nowhere.toml", {"--phase", "load"}), kExitFailed);
  EXPECT_NE(error.str().find("/nowhere.toml"), std::string::npos) << error.str();
  EXPECT_EQ(Ycsb('a', "sim:" + model + "?colour=blue", {"--phase", "load"}), kExitUsage);
  EXPECT_NE(error.str().find("colour=blue"), std::string::npos) << error.str();
  EXPECT_EQ(Ycsb('a', "local:", {"--phase", "load", "--confidence", "1"}), kExitUsage);
  EXPECT_NE(error.str().find("--confidence"), std::string::npos) << error.str();
}

TEST(BatchMeansTest, IntervalHoldsTheRateAndNarrows) {
  Random random(7);
  BatchMeans means(100);
  uint64_t now_ns = 0, done = 0;
  double first_percent = 100;
  for (int i = 0; i < 20'000; ++i) {
    means.Sample(now_ns, done);
    now_ns += 500 + random.Below(1'001);
    done += 10;
    if (i == 1'000) first_percent = means.ConfidencePercent();
  }
  EXPECT_LT(first_percent, 5);
  EXPECT_LT(means.ConfidencePercent(), first_percent / 2);
  EXPECT_GT(means.ConfidencePercent(), 0.05);
}

TEST(BatchMeansTest, TooFewBatchesTellNothing) {
  BatchMeans means(100);
  for (uint64_t i = 0; i < 20; ++i) means.Sample(i * 1'000, i * 100);
  EXPECT_EQ(means.ConfidencePercent(), 100);
}

}  // namespace
}  // namespace farleaf::ycsb
