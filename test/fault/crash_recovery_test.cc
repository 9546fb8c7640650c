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
TEST_F(CrashRecoveryTest, PartedLeavesOfTheDefaultSize) {
  DieAtEveryVerb(Updates(kDefaultLeaves));
  DieAtEveryVerb(Growth(kDefaultLeaves), 5);
  DieAtEveryVerb(Shrinking(kDefaultLeaves), 5);
  DieTwice(Updates(kDefaultLeaves), 5, 3);
}
TEST_F(CrashRecoveryTest, ValuesOutOfLine) { DieAtEveryVerb(LargeValues()); }
TEST_F(CrashRecoveryTest, UpdatesInsertsAndDeletesInMappedMemory) {
  EXPECT_LT(CrashWorld(Mapped(Updates(kBytes))).RunScript().reads_run,
            CrashWorld(Updates(kBytes)).RunScript().reads_run)
      << "nothing was done in place";
  DieAtEveryVerb(Mapped(Updates(kBytes)));
}
TEST_F(CrashRecoveryTest, SplitsInMappedMemory) { DieAtEveryVerb(Mapped(LeafSplits(kBytes))); }
TEST_F(CrashRecoveryTest, GrowthInMappedMemory) { DieAtEveryVerb(Mapped(Growth(kBytes)), 17); }
TEST_F(CrashRecoveryTest, MergesInMappedMemory) { DieAtEveryVerb(Mapped(Shrinking(kBytes)), 17); }
TEST_F(CrashRecoveryTest, ValuesOutOfLineInMappedMemory) { DieAtEveryVerb(Mapped(LargeValues())); }
TEST_F(CrashRecoveryTest, PartedLeavesInMappedMemory) {
  EXPECT_LT(CrashWorld(Mapped(Updates(kParted))).ReadsOfGets(),
            CrashWorld(Updates(kParted)).ReadsOfGets())
      << "nothing was looked at in place";
  DieAtEveryVerb(Mapped(Updates(kParted)));
  DieAtEveryVerb(Mapped(LeafSplits(kParted)));
  DieAtEveryVerb(Mapped(Growth(kParted)), 17);
  DieAtEveryVerb(Mapped(Shrinking(kParted)), 17);
}
TEST_F(CrashRecoveryTest, ASecondDeathInMappedMemory) {
  DieTwice(Mapped(Updates(kParted)), 3, 2);
  DieTwice(Mapped(LeafSplits(kParted)), 5, 7);
  DieTwice(Mapped(Updates(kBytes)), 3, 2);
  DieTwice(Mapped(LeafSplits(kBytes)), 5, 7);
}
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
