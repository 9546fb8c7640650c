// A compute server dies at verbs of what it does, with each option of the tree off, with all of them on and with none: the
// scenarios of crash_recovery_test.cc at some of their verbs, at all of them in long tests.
#include "test/support/crash_test.h"
#include "test/support/options_off.h"
#include "test/support/test_scale.h"

namespace farleaf::index {
namespace {

class CrashOptionsTest : public CrashTest, public ::testing::WithParamInterface<test::OptionsCase> {
 protected:
  Scenario With(Scenario scenario) const {
    GetParam().off.TurnOff(&scenario.tree);
    scenario.memory = memory_;
    return scenario;
  }
  void DieAtSomeVerbs(const Geometry& geometry) {
    DieAtEveryVerb(With(Updates(geometry)), test::Amount{31, 11, 1});
    DieAtEveryVerb(With(LeafSplits(geometry)), test::Amount{59, 19, 1});
    DieAtEveryVerb(With(Growth(geometry, 60)), test::Amount{199, 67, 1});
    DieAtEveryVerb(With(Shrinking(geometry, 60)), test::Amount{199, 67, 1});
    DieTwice(With(Updates(geometry)), test::Amount{29, 17, 3}, test::Amount{19, 11, 2});
  }

  dsm::CrashMemory memory_ = dsm::CrashMemory::kByVerbs;
};

TEST_P(CrashOptionsTest, LosesNothingOfFixed8) {
  DieAtSomeVerbs(kParted);
  DieAtSomeVerbs(kFixed);
}
TEST_P(CrashOptionsTest, LosesNothingOfPartedLeavesInMappedMemory) {
  memory_ = dsm::CrashMemory::kMapped;
  DieAtSomeVerbs(kParted);
}
TEST_P(CrashOptionsTest, LosesNothingOfLeavesOfTheDefaultSize) {
  DieAtEveryVerb(With(Updates(kDefaultLeaves)), test::Amount{31, 11, 1});
  DieAtEveryVerb(With(Growth(kDefaultLeaves, 150)), test::Amount{399, 131, 3});
}
TEST_P(CrashOptionsTest, LosesNothingOfByteStrings) {
  DieAtSomeVerbs(kBytes);
  DieAtEveryVerb(With(LargeValues()), test::Amount{89, 29, 1});
}
TEST_P(CrashOptionsTest, LosesNothingOfByteStringsInMappedMemory) {
  memory_ = dsm::CrashMemory::kMapped;
  DieAtSomeVerbs(kBytes);
  DieAtEveryVerb(With(LargeValues()), test::Amount{89, 29, 1});
}

INSTANTIATE_TEST_SUITE_P(Options, CrashOptionsTest, ::testing::ValuesIn(test::EachOptionOff()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace farleaf::index
