// Verb programs: the shipped ones cost what was measured of the designs they stand for, locks make their
// holders wait, and bad program files are refused by name.
#include "benchmark/simulated/verb_program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "benchmark/ycsb/command.h"

namespace farleaf::ycsb {
namespace {

const std::string kModels = FARLEAF_MODELS;

struct VerbProgramTest : ::testing::Test {
  MonotonicClock clock;
  std::ostringstream out, error;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("verb_program_test." + std::to_string(::getpid()));

  void SetUp() override { std::filesystem::create_directory(folder); }
  void TearDown() override { std::filesystem::remove_all(folder); }

  int Ycsb(const std::string& program, std::vector<std::string> more) {
    out.str("");
    error.str("");
    std::vector<std::string> arguments = {"-P",
                                          std::string(FARLEAF_WORKLOADS) + "/workloadc",
                                          "-p",
                                          "recordcount=20000",
                                          "-p",
                                          "operationcount=8000",
                                          "--target",
                                          "sim:" + kModels + "/rf_tree_paper.toml",
                                          "--program",
                                          program,
                                          "--phase",
                                          "load,run",
                                          "--confidence",
                                          "0",
                                          "--status-interval",
                                          "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments,
                      {.open_target = OpenTarget, .clock = &clock, .out = &out, .error = &error});
  }
  nlohmann::json YcsbJson(const std::string& program, std::vector<std::string> more) {
    const std::string path = folder / "result.json";
    more.insert(more.end(), {"--json", path});
    EXPECT_EQ(Ycsb(program, std::move(more)), kExitOk) << error.str();
    std::ifstream file(path);
    return nlohmann::json::parse(file);
  }
  /// Of an operation of `kind` without contention.
  nlohmann::json Costs(const std::string& program, const std::string& kind,
                       const std::string& distribution = "uniform") {
    const auto result = YcsbJson(
        program, {"-p", "readproportion=0", "-p", kind + "proportion=1", "-p", "minscanlength=100",
                  "-p", "maxscanlength=100", "-p", "requestdistribution=" + distribution});
    return result["operations"].front();
  }
  std::string Write(const std::string& text) {
    const std::string path = folder / "program.toml";
    std::ofstream(path) << text;
    return path;
  }
};

struct Measured {
  const char* program;
  const char* kind;
  double round_trips, bytes_read, bytes_written;  ///< atomics left out
};

// Bytes within 15 %, or four words: a verb's length is a multiple of 8, and atomics are 8 more both ways.
TEST_F(VerbProgramTest, ShippedProgramsCostWhatWasMeasured) {
  const Measured cases[] = {{"sherman", "read", 1, 1024, 0},
                            {"sherman", "update", 3, 1024, 26},
                            {"sherman", "insert", 3.17, 1143, 98},
                            {"sherman", "scan", 1, 6200, 0},
                            {"deft", "read", 1, 128, 0},
                            {"deft", "update", 2, 128, 0},
                            {"deft", "insert", 2.04, 173, 44},
                            {"deft", "scan", 1, 6500, 0},
                            {"chime", "read", 1.04, 84, 0},
                            {"chime", "update", 3.03, 56, 29},
                            {"chime", "insert", 3.24, 359, 173},
                            {"chime", "scan", 1, 4200, 0},
                            {"smart", "read", 1, 34, 0},
                            {"smart", "update", 3, 34, 34},
                            {"smart", "insert", 3, 626, 32},
                            {"smart", "scan", 1.8, 14500, 0},
                            {"dex", "read", 0.95, 965, 0},
                            {"dex", "update", 1.87, 965, 945},
                            {"dex", "insert", 1.92, 965, 945},
                            {"dex", "scan", 13.3, 13312, 0},
                            {"fg", "read", 4, 4096, 0},
                            {"fg", "update", 7, 5120, 1032}};
  for (const Measured& one : cases) {
    const std::string name = std::string(one.program) + " " + one.kind;
    const auto costs = Costs(one.program, one.kind);
    EXPECT_NEAR(costs["round_trips_per_op"], one.round_trips, 0.03 * one.round_trips) << name;
    EXPECT_NEAR(costs["bytes_read_per_op"], one.bytes_read, std::max(32., 0.15 * one.bytes_read))
        << name;
    EXPECT_NEAR(costs["bytes_written_per_op"], one.bytes_written,
                std::max(32., 0.15 * one.bytes_written))
        << name;
  }
  EXPECT_NEAR(Costs("dex", "read", "zipfian")["round_trips_per_op"], 0.52, 0.02);
}

TEST_F(VerbProgramTest, LocksOfPopularLeavesAreWaitedFor) {
  for (const std::string program : {"sherman", "fg", "smart"}) {
    const auto run = [&](const std::string& distribution) {
      return YcsbJson(program, {"-p", "readproportion=0", "-p", "updateproportion=1", "-p",
                                "requestdistribution=" + distribution, "--threads", "64"});
    };
    const auto uniform = run("uniform"), skewed = run("zipfian");
    const auto tail = [](const auto& result) {
      return result["operations"]["UPDATE"]["latency_us"]["p999"].template get<double>();
    };
    EXPECT_GT(tail(skewed), 1.5 * tail(uniform)) << program;
    EXPECT_LT(skewed["overall"]["ops_per_second"], uniform["overall"]["ops_per_second"]) << program;
  }
}

TEST_F(VerbProgramTest, RunsRepeat) {
  const std::vector<std::string> flags = {
      "-p", "readproportion=0.5", "-p", "insertproportion=0.5", "--threads", "40"};
  for (const std::string program : {"sherman", "deft"}) {
    EXPECT_EQ(YcsbJson(program, flags).dump(), YcsbJson(program, flags).dump());
  }
}

constexpr const char* kGood = R"(
name = "one"
[data]
leaf_bytes = 64
leaf_entries = 4
[cpu_ns]
read = 10
[[read]]
verbs = ["READ leaf 64"]
[[update]]
verbs = ["LOCK", "READ leaf 64"]
[[update]]
verbs = ["WRITE leaf 16", "UNLOCK"]
[[insert]]
verbs = ["ADD"]
[[scan]]
verbs = ["READ leaves 64"]
)";

TEST_F(VerbProgramTest, GoodProgramIsTakenAsItIsWritten) {
  auto program = ParseProgram(kGood, "good.toml");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->name, "one");
  EXPECT_EQ(program->steps[static_cast<size_t>(OpKind::kUpdate)].size(), 2u);
  // Read-modify-write is an update where nothing else is said.
  EXPECT_EQ(program->steps[static_cast<size_t>(OpKind::kReadModifyWrite)].size(), 2u);
  EXPECT_EQ(program->steps[static_cast<size_t>(OpKind::kScan)][0].verbs[0].place,
            ProgramVerb::Place::kLeaves);
}

TEST_F(VerbProgramTest, BadProgramsAreRefusedByName) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = kGood;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases = {
      {with("name = \"one\"", ""), {"name is missing"}},
      {with("leaf_bytes = 64", ""), {"data.leaf_bytes is missing"}},
      {with("leaf_bytes = 64", "leaf_bytes = 0"), {"data.leaf_bytes", "0", "from 8"}},
      {with("read = 10", "reed = 10"), {"cpu_ns.reed"}},
      {with("READ leaf 64", "REED leaf 64"), {"read[0].verbs", "'REED leaf 64'", "UNLOCK"}},
      {with("READ leaf 64", "READ leaf"), {"read[0].verbs", "'READ leaf'"}},
      {with("READ leaf 64", "READ leaf 64 64"), {"read[0].verbs"}},
      {with("\"WRITE leaf 16\", \"UNLOCK\"", "\"READ leaf 8\", \"UNLOCK\""),
       {"update[1].verbs", "'UNLOCK'", "round trip of its own"}},
      {with("\"WRITE leaf 16\", \"UNLOCK\"", "\"WRITE leaf 16\""),
       {"update", "LOCK without UNLOCK"}},
      {with("\"UNLOCK\"]", "\"UNLOCK\"]\nchance = 0.5"), {"update", "do not match"}},
      {with("verbs = [\"ADD\"]", "verbs = []"), {"insert[0].verbs"}},
      {with("verbs = [\"ADD\"]", "verbs = [\"ADD\"]\nchance = 2"), {"insert[0].chance", "2"}},
      {with("[[scan]]\nverbs = [\"READ leaves 64\"]", ""), {"scan is missing"}},
      {with("[[insert]]", "[[invert]]"), {"invert"}}};
  for (const auto& [text, named] : cases) {
    const std::string path = Write(text);
    EXPECT_EQ(Ycsb(path, {}), kExitUsage) << text;
    EXPECT_NE(error.str().find(path), std::string::npos) << error.str();
    for (const std::string& part : named) {
      EXPECT_NE(error.str().find(part), std::string::npos) << part << ": " << error.str();
    }
  }
  EXPECT_EQ(Ycsb("nobody", {}), kExitFailed);
  EXPECT_NE(error.str().find("programs/nobody.toml"), std::string::npos) << error.str();
  out.str("");
  error.str("");
  const std::vector<std::string> elsewhere = {
      "-P",        std::string(FARLEAF_WORKLOADS) + "/workloadc",
      "-p",        "recordcount=100",
      "--target",  "local:",
      "--program", "sherman",
      "--phase",   "load"};
  EXPECT_EQ(RunCommand(elsewhere,
                       {.open_target = OpenTarget, .clock = &clock, .out = &out, .error = &error}),
            kExitUsage);
  EXPECT_NE(error.str().find("--program sherman"), std::string::npos) << error.str();
}

}  // namespace
}  // namespace farleaf::ycsb
