// A compute server dies at every verb of what it does, before it and in the middle of it; whoever comes
// after it finds a whole tree, with all that was acknowledged. And the next one dies at any verb of the
// recovery.
#include "test/support/crash_test.h"

namespace farleaf::index {
namespace {

using CrashRecoveryTest = CrashTest;

TEST_F(CrashRecoveryTest, UpdatesInsertsAndDeletesOfFixed8) { DieAtEveryVerb(Updates(kFixed)); }
TEST_F(CrashRecoveryTest, UpdatesInsertsAndDeletesOfByteStrings) {
  DieAtEveryVerb(Updates(kBytes));
}
TEST_F(CrashRecoveryTest, SplitsOfLeavesOfFixed8) { DieAtEveryVerb(LeafSplits(kFixed)); }
TEST_F(CrashRecoveryTest, SplitsOfLeavesOfByteStrings) { DieAtEveryVerb(LeafSplits(kBytes)); }
TEST_F(CrashRecoveryTest, GrowthFromNothingOfFixed8) { DieAtEveryVerb(Growth(kFixed), 3); }
TEST_F(CrashRecoveryTest, GrowthFromNothingOfByteStrings) { DieAtEveryVerb(Growth(kBytes), 3); }
TEST_F(CrashRecoveryTest, MergesAndShrinkageOfFixed8) { DieAtEveryVerb(Shrinking(kFixed), 3); }
TEST_F(CrashRecoveryTest, GrowthOfLeavesLargerThanInternalNodes) {
  DieAtEveryVerb(Growth(kLargeLeaves), 3);
}
TEST_F(CrashRecoveryTest, MergesOfLeavesLargerThanInternalNodes) {
  DieAtEveryVerb(Shrinking(kLargeLeaves), 3);
}
TEST_F(CrashRecoveryTest, MergesAndShrinkageOfByteStrings) { DieAtEveryVerb(Shrinking(kBytes), 3); }
TEST_F(CrashRecoveryTest, UpdatesInsertsAndDeletesOfPartedLeaves) {
  DieAtEveryVerb(Updates(kParted));
}
TEST_F(CrashRecoveryTest, SplitsOfPartedLeaves) { DieAtEveryVerb(LeafSplits(kParted)); }
TEST_F(CrashRecoveryTest, GrowthOfPartedLeaves) { DieAtEveryVerb(Growth(kParted), 3); }
TEST_F(CrashRecoveryTest, MergesOfPartedLeaves) { DieAtEveryVerb(Shrinking(kParted), 3); }
TEST_F(CrashRecoveryTest, ValuesOutOfLine) { DieAtEveryVerb(LargeValues()); }
TEST_F(CrashRecoveryTest, ASecondDeathDuringTheRecoveryOfWrites) {
  DieTwice(Updates(kFixed), 3, 2);
}
TEST_F(CrashRecoveryTest, ASecondDeathDuringTheRecoveryOfSplits) {
  DieTwice(LeafSplits(kBytes), 5, 7);
}
TEST_F(CrashRecoveryTest, ASecondDeathDuringTheRecoveryOfGrowth) {
  DieTwice(Growth(kFixed), 17, 7);
}
TEST_F(CrashRecoveryTest, ASecondDeathDuringTheRecoveryOfMerges) {
  DieTwice(Shrinking(kFixed), 13, 7);
}
TEST_F(CrashRecoveryTest, ASecondDeathDuringTheRecoveryOfPartedLeaves) {
  DieTwice(Updates(kParted), 3, 2);
  DieTwice(LeafSplits(kParted), 5, 7);
  DieTwice(Shrinking(kParted), 17, 11);
}

}  // namespace
}  // namespace farleaf::index
