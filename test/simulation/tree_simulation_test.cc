// The tree in simulated worlds: runs repeat exactly, and what failed once is run again. How many seeds run
// beside these: CMakeLists.txt.
#include <gtest/gtest.h>

#include "test/simulation/tree_run.h"

namespace farleaf::simulation {
namespace {

class TreeSimulation : public testing::TestWithParam<FaultMix> {};

TEST_P(TreeSimulation, ASeedRepeatsARunExactly) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const TreeRunResult first = RunTree({seed, GetParam(), nullptr});
    const TreeRunResult second = RunTree({seed, GetParam(), nullptr});
    EXPECT_EQ(first.trace_hash, second.trace_hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_EQ(first.virtual_ns, second.virtual_ns) << "seed " << seed;
    EXPECT_EQ(first.failure, second.failure) << "seed " << seed;
  }
}

TEST_P(TreeSimulation, EveryCheckPasses) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    EXPECT_EQ(RunTree({seed, GetParam(), nullptr}).failure, "") << "seed " << seed;
  }
}

// Reading the trace changes nothing.
TEST_P(TreeSimulation, ATracedRunIsTheSameRun) {
  uint64_t lines = 0;
  const auto count = [&lines](uint64_t, const std::string&) { ++lines; };
  const TreeRunResult traced = RunTree({3, GetParam(), count});
  EXPECT_EQ(traced.trace_hash, RunTree({3, GetParam(), nullptr}).trace_hash);
  EXPECT_GT(lines, 100u);
}

INSTANTIATE_TEST_SUITE_P(Faults, TreeSimulation,
                         testing::Values(FaultMix::kNone, FaultMix::kDrops, FaultMix::kStalls,
                                         FaultMix::kPartitions, FaultMix::kLostServers,
                                         FaultMix::kCrashes),
                         [](const auto& mix) {
                           return std::string(kFaultMixNames[static_cast<size_t>(mix.param)]);
                         });

}  // namespace
}  // namespace farleaf::simulation
