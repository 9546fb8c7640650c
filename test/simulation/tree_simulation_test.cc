// The tree in simulated worlds: the runs of every file repeat exactly. How many seeds run beside these:
// CMakeLists.txt.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "test/simulation/run_file.h"
#include "test/simulation/tree_run.h"
#include "test/support/test_scale.h"

namespace farleaf::simulation {
namespace {

std::vector<std::string> RunFiles() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(FARLEAF_RUN_FILES)) {
    if (entry.path().extension() == ".toml") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class RunFile : public testing::TestWithParam<std::string> {
 protected:
  RunPlan Load() {
    auto plan = LoadRunFile(GetParam());
    FARLEAF_CHECK(plan.ok(), plan.status());
    return *plan;
  }
};

TEST_P(RunFile, ASeedRepeatsARunExactlyUnderEachOfItsFaults) {
  const RunPlan plan = Load();
  const uint64_t seeds = std::min<uint64_t>(plan.faults.size(), test::Amount{2, 100});
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const TreeRunResult first = RunTree(plan, seed);
    const TreeRunResult second = RunTree(plan, seed);
    EXPECT_EQ(first.trace_hash, second.trace_hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_EQ(first.virtual_ns, second.virtual_ns) << "seed " << seed;
    EXPECT_EQ(first.failure, second.failure) << "seed " << seed;
    EXPECT_EQ(first.failure, "") << "seed " << seed;
  }
}

TEST_P(RunFile, ATracedRunIsTheSameRun) {
  const RunPlan plan = Load();
  uint64_t lines = 0;
  const auto count = [&lines](uint64_t, const std::string&) { ++lines; };
  const TreeRunResult traced = RunTree(plan, 3, count);
  EXPECT_EQ(traced.trace_hash, RunTree(plan, 3).trace_hash);
  EXPECT_GT(lines, 100u);
}

INSTANTIATE_TEST_SUITE_P(Files, RunFile, testing::ValuesIn(RunFiles()), [](const auto& file) {
  return std::filesystem::path(file.param).stem().string();
});

// ---- Files that are wrong

/// Of `text` as the file f.toml.
std::string Refusal(const std::string& text) {
  auto plan = ParseRunFile(text, "f.toml");
  return plan.ok() ? "accepted" : std::string(plan.status().message());
}

TEST(RunFileTest, AnEmptyFileIsTheDefault) {
  auto plan = ParseRunFile("", "f.toml");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->faults.size(), 1u);
  EXPECT_TRUE(plan->faults[0].set.empty());
}

TEST(RunFileTest, WhatIsWrongIsNamedWithFileLineKeyAndWhatIsAllowed) {
  EXPECT_EQ(Refusal("\n[setup]\nworkers = 9\n"),
            "f.toml:3: setup.workers: allowed is a number from 1 to 8, or two as in [low, high], "
            "within it");
  EXPECT_EQ(Refusal("[setup]\nworkers = [3, 2]\n"),
            "f.toml:2: setup.workers: allowed is a number from 1 to 8, or two as in [low, high], "
            "within it");
  EXPECT_EQ(Refusal("[workload]\nchoice = 'cold'\n"),
            "f.toml:2: workload.choice: allowed is one of \"uniform\", \"hot\", \"window\"");
  EXPECT_EQ(Refusal("[checks]\noperation_ms = 1\n"),
            "f.toml:2: there is no key 'checks.operation_ms'; allowed are operation_ms_max");
  EXPECT_TRUE(Refusal("[[faults]]\nset = 'storms'\n")
                  .starts_with("f.toml:2: faults.set: allowed is none, drops, stalls, "));
  EXPECT_TRUE(
      Refusal("[setup]\nwithout = 'share'\n")
          .starts_with("f.toml:2: setup.without: allowed is all, shortcuts, share_reads, "));
  EXPECT_EQ(Refusal("[workload]\n[workload.mix]\nget = 0\n"), "workload.mix: all weights are 0");
  EXPECT_TRUE(Refusal("seeds = [0]").starts_with("f.toml:1: seeds: allowed is a list of numbers"));
  EXPECT_TRUE(Refusal("faults = 3").starts_with("f.toml:1: faults: allowed is tables"));
  EXPECT_TRUE(Refusal("[setup").starts_with("f.toml:1: "));
}

TEST(RunFileTest, AFileThatIsNotThereIsNamed) {
  EXPECT_EQ(LoadRunFile("/nowhere/f.toml").status().message(),
            "cannot read the run file /nowhere/f.toml");
}

TEST(RunFileTest, FaultsAreNamedAloneOrJoined) {
  EXPECT_EQ(ParseFaultSet("stalls+drops")->Name(), "drops+stalls");
  EXPECT_TRUE(ParseFaultSet("none")->empty());
  EXPECT_FALSE(ParseFaultSet("drops+").ok() && ParseFaultSet("drops+")->Name() != "drops");
  EXPECT_FALSE(ParseFaultSet("").ok());
}

TEST(RunFileTest, OptionsThatAreOffAreNamedAloneJoinedOrAllAtOnce) {
  using test::OptionSet, test::ParseOptionSet, test::TreeOption;
  EXPECT_EQ(*ParseOptionSet("hand_over+cache"),
            (OptionSet{TreeOption::kHandOver, TreeOption::kCache}));
  EXPECT_EQ(*ParseOptionSet("shortcuts+wide_cache+merging+cache"), OptionSet::All());
  EXPECT_FALSE(ParseOptionSet("").ok());
  EXPECT_FALSE(ParseOptionSet("caches").ok());
  const auto plan = ParseRunFile("[setup]\nwithout = 'all'\n", "f.toml");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->setup.without, OptionSet::All());
}

}  // namespace
}  // namespace farleaf::simulation
