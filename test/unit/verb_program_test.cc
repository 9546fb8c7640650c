// Verb programs: the shipped ones cost what was measured of the designs they stand for, locks make their
// holders wait, and bad program files are refused by name.
#include "benchmark/simulated/verb_program.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "benchmark/simulated/program_costs.h"
#include "benchmark/ycsb/command.h"

namespace farleaf::ycsb {
namespace {

const std::string kProgramModels = FARLEAF_MODELS;

constexpr const char* kOwned = R"(
name = "owner"
[data]
leaf_bytes = 64
leaf_entries = 4
[lock]
place = "owner"
queue = "local"
[cpu_ns]
read = 10
[[read]]
verbs = ["READ leaf 64"]
[[update]]
verbs = ["LOCK"]
[[update]]
verbs = ["READ leaf 64"]
[[update]]
verbs = ["UNLOCK"]
[[insert]]
verbs = ["ADD"]
[[scan]]
verbs = ["READ leaves 64"]
)";

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
                                          "operationcount=40000",
                                          "--target",
                                          "sim:" + kProgramModels + "/rf_tree_paper.toml",
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

/// What was measured of the published code, as its table prints it; atomics are not in the bytes.
struct Measured {
  const char* program;
  OpKind kind;
  double round_trips, bytes_read, bytes_written;
  double atomics = 0;
  double bytes_digit = 1;  ///< of the last digit that the table has
  bool skewed = false;
};
constexpr OpKind kRead = OpKind::kRead, kUpdate = OpKind::kUpdate, kInsert = OpKind::kInsert,
                 kScan = OpKind::kScan;
// Not printed there, but derived: what splits of dex, fg and rf_tree read and write, and their scans, which read the 3.38
// leaves of 100 rows one after another.
constexpr Measured kTable[] = {{"sherman", kRead, 1, 1024, 0},
                               {"sherman", kUpdate, 3, 1024, 26, 1},
                               {"sherman", kInsert, 3.17, 1143, 98, 1.03},
                               {"sherman", kScan, 1, 6200, 0, 0, 100},
                               {"deft", kRead, 1, 128, 0},
                               {"deft", kUpdate, 2, 128, 0, 3},
                               {"deft", kInsert, 2.04, 173, 44, 3.1},
                               {"deft", kScan, 1, 6500, 0, 0, 100},
                               {"chime", kRead, 1.04, 84, 0},
                               {"chime", kRead, 1.04, 35, 0, 0, 1, true},
                               {"chime", kUpdate, 3.03, 56, 29, 1},
                               {"chime", kInsert, 3.24, 359, 173, 1.03},
                               {"chime", kScan, 1, 4200, 0, 0, 100},
                               {"smart", kRead, 1, 34, 0},
                               {"smart", kUpdate, 3, 34, 34, 1},
                               {"smart", kInsert, 3, 626, 32, 1},
                               {"smart", kScan, 1.8, 14500, 0, 0, 100},
                               {"rolex", kRead, 1, 891, 0},
                               {"rolex", kUpdate, 4, 1176, 293, 1},
                               {"rolex", kInsert, 4, 1176, 293, 1},
                               {"dex", kRead, 0.95, 965, 0},
                               {"dex", kRead, 0.52, 528, 0, 0, 1, true},
                               {"dex", kUpdate, 1.87, 965, 945},
                               {"dex", kInsert, 1.92, 965, 996},
                               {"dex", kScan, 13.3, 13619, 0},
                               {"fg", kRead, 4, 4096, 0},
                               {"fg", kUpdate, 7, 5120, 1032, 1},
                               {"fg", kInsert, 7.14, 5155, 1103, 1.03},
                               {"fg", kScan, 6.38, 6534, 0, 0, 2},
                               {"rf_tree", kRead, 1, 1024, 0},
                               {"rf_tree", kUpdate, 3, 1024, 1024, 1},
                               {"rf_tree", kInsert, 3.17, 1059, 1128, 1.03},
                               {"rf_tree", kScan, 3.38, 3462, 0, 0, 2}};

std::string NameOf(const Measured& one) {
  return std::string(one.program) + " " + std::string(OpKindName(one.kind)) +
         (one.skewed ? ", skewed" : "");
}

TEST(VerbProgramTable, ShippedProgramsAskForWhatWasMeasured) {
  for (const Measured& one : kTable) {
    auto program = LoadProgramFile(kProgramModels + "/programs/" + one.program + ".toml");
    ASSERT_TRUE(program.ok()) << program.status();
    const ProgramCosts costs = CostsOf(*program, {.kind = one.kind, .skewed = one.skewed});
    EXPECT_NEAR(costs.round_trips, one.round_trips, 0.0051) << NameOf(one);
    EXPECT_NEAR(costs.bytes_read, one.bytes_read, one.bytes_digit) << NameOf(one);
    EXPECT_NEAR(costs.bytes_written, one.bytes_written, one.bytes_digit) << NameOf(one);
    EXPECT_NEAR(costs.atomics, one.atomics, 0.006) << NameOf(one);
  }
  auto smart = LoadProgramFile(kProgramModels + "/programs/smart.toml");
  ASSERT_TRUE(smart.ok()) << smart.status();
  EXPECT_NEAR(CostsOf(*smart, {.kind = kScan}).reads, 193, 0.5);
}

// One thread, so that nothing collides. What a split costs, once in 29 inserts of 40,000, is known to within 3 %.
TEST_F(VerbProgramTest, RunsCostWhatTheProgramAsksFor) {
  const std::map<OpKind, std::string> proportions = {
      {kRead, "read"}, {kUpdate, "update"}, {kInsert, "insert"}, {kScan, "scan"}};
  for (const Measured& one : kTable) {
    auto program = LoadProgramFile(kProgramModels + "/programs/" + one.program + ".toml");
    ASSERT_TRUE(program.ok()) << program.status();
    const ProgramCosts costs = CostsOf(*program, {.kind = one.kind, .skewed = one.skewed});
    const auto counted =
        Costs(one.program, proportions.at(one.kind), one.skewed ? "zipfian" : "uniform");
    const auto near = [&](const char* what, double expected) {
      EXPECT_NEAR(counted[what].get<double>(), expected, 0.04 * expected + 0.002)
          << NameOf(one) << " " << what;
    };
    near("round_trips_per_op", costs.round_trips);
    near("verbs_per_op", costs.reads + costs.writes + costs.atomics);
    near("atomics_per_op", costs.atomics);
    near("bytes_read_per_op", costs.bytes_read_moved + 8 * costs.atomics);
    near("bytes_written_per_op", costs.bytes_written_moved + 8 * costs.atomics);
  }
}

TEST_F(VerbProgramTest, AnOwnersLatchCostsNothingOnTheFabricAndIsWaitedFor) {
  std::string text = kOwned;
  const auto updates = [&](const std::string& program) {
    return YcsbJson(program, {"-p", "readproportion=0", "-p", "updateproportion=1", "-p",
                              "requestdistribution=zipfian", "--threads", "64"});
  };
  const auto latched = updates(Write(text))["operations"]["UPDATE"];
  EXPECT_EQ(latched["round_trips_per_op"], 1);
  EXPECT_EQ(latched["atomics_per_op"], 0);
  for (const std::string latch : {"\"LOCK\"", "\"UNLOCK\""}) {
    text.replace(text.find(latch), latch.size(), "\"READ root 8\"");
  }
  const auto free = updates(Write(text))["operations"]["UPDATE"];
  EXPECT_GT(latched["latency_us"]["p999"].get<double>(), free["latency_us"]["p999"].get<double>());
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
      {with("verbs = [\"ADD\"]", "verbs = [\"ADD\"]\notherwise = true\nchance = 0.5"),
       {"insert[0]", "chance has no place"}},
      {with("[cpu_ns]", "[lock]\nplace = \"owner\"\n[cpu_ns]"), {"'owner'", "lock.queue"}},
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
