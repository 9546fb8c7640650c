// What the crash tests check does fail where compute servers die after they have done something wrong: the same deaths
// pass without the fault, and the fault passes without a death, so that it is the deaths that show it.
//
// Each run is a child process, since failures of tests are what is asked for.
#include <cstdio>
#include <cstdlib>
#include <ostream>

#include "test/support/crash_test.h"

namespace farleaf::index {
namespace {

constexpr int kCaught = 3;  ///< exit code

/// Tells by its exit code whether a check of this process has failed, and the first failure by its words.
[[noreturn]] void EndJudged() {
  const ::testing::TestResult& result =
      *::testing::UnitTest::GetInstance()->current_test_info()->result();
  for (int i = 0; i < result.total_part_count(); ++i) {
    const ::testing::TestPartResult& part = result.GetTestPartResult(i);
    if (!part.failed()) continue;
    std::fprintf(stderr, "caught: %.500s\n", part.message());
    std::exit(kCaught);
  }
  std::exit(EXIT_SUCCESS);
}

/// The compute server dies at each verb, until a check fails.
[[noreturn]] void DieWith(const Scenario& scenario, dsm::CrashFault fault) {
  CrashWorld world(scenario);
  const uint64_t verbs = world.ScriptVerbs();
  for (uint64_t verb = 0; verb < verbs && !::testing::Test::HasFailure(); ++verb) {
    world.Run({verb, verb * 2 + 1, fault}, std::nullopt);
  }
  EndJudged();
}
/// The compute server dies when it is done.
[[noreturn]] void LiveWith(const Scenario& scenario, dsm::CrashFault fault) {
  CrashWorld(scenario).Run({.fault = fault}, std::nullopt);
  EndJudged();
}
/// The first one dies at each verb in turn, the second, at whose recovery something is wrong, at each of its first ones.
[[noreturn]] void DieTwiceWith(const Scenario& scenario, dsm::CrashFault fault) {
  CrashWorld world(scenario);
  const uint64_t verbs = world.ScriptVerbs();
  for (uint64_t verb = 0; verb < verbs; ++verb) {
    for (uint64_t again = 0, last = UINT64_MAX; again <= last; ++again) {
      const uint64_t ran = world.Run({verb, verb * 2 + 1}, Death{again, again * 2 + 1, fault});
      if (ran < again) last = 0;
      if (::testing::Test::HasFailure()) EndJudged();
    }
  }
  EndJudged();
}

struct Kind {
  std::string name;
  Scenario scenario;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
std::vector<Kind> Kinds() {
  return {{"Fixed8", Updates(kFixed)},
          {"Parted", Updates(kParted)},
          {"PartedMapped", Mapped(Updates(kParted))},
          {"Bytes", Updates(kBytes)},
          {"BytesMapped", Mapped(Updates(kBytes))}};
}

class CrashMutationTest : public ::testing::TestWithParam<Kind> {
 protected:
  using Exited = ::testing::ExitedWithCode;
  using Fault = dsm::CrashFault;
  const Scenario& scenario() const { return GetParam().scenario; }
};

TEST_P(CrashMutationTest, NothingIsCaughtOfTheProduct) {
  EXPECT_EXIT(DieWith(scenario(), Fault::kNone), Exited(EXIT_SUCCESS), "");
  EXPECT_EXIT(LiveWith(scenario(), Fault::kNoRedo), Exited(EXIT_SUCCESS), "");
  EXPECT_EXIT(LiveWith(scenario(), Fault::kUnlockFirst), Exited(EXIT_SUCCESS), "");
}
TEST_P(CrashMutationTest, WriteBacksWithoutARedoRecordAreCaught) {
  EXPECT_EXIT(DieWith(scenario(), Fault::kNoRedo), Exited(kCaught), "caught: ");
}
TEST_P(CrashMutationTest, AnUnlockAheadOfItsWriteBackIsCaught) {
  EXPECT_EXIT(DieWith(scenario(), Fault::kUnlockFirst), Exited(kCaught), "caught: ");
}
TEST_P(CrashMutationTest, ATakeOverWithoutACopyOfTheRecordIsCaught) {
  EXPECT_EXIT(DieTwiceWith(scenario(), Fault::kNoRedo), Exited(kCaught), "caught: ");
}

INSTANTIATE_TEST_SUITE_P(Kinds, CrashMutationTest, ::testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace farleaf::index
