// Trees that are made while a member is recovered: what it left is returned, and nothing of theirs.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "index/blink/recover_member.h"
#include "test/support/scripted_members.h"

namespace farleaf::index {
namespace {

constexpr uint64_t kKeys = 400;
constexpr uint64_t kCatalogBytes = uint64_t{dsm::kCatalogEntries} * dsm::kCatalogEntryBytes - 8;
const Geometry kGeometry = Geometry::Fixed8(256);

/// `dead` has filled a tree; `alive` has most of its leaves' pages free, which lie in chunks of `dead`.
class LateTreeTest : public testing::Test {
 protected:
  LateTreeTest() {
    dead_.Create("early", kGeometry);
    for (uint64_t i = 0; i < kKeys; ++i) dead_.Put(i, i);
    alive_.Open("early");
    for (uint64_t i = 8; i < kKeys; ++i) EXPECT_TRUE(alive_.Delete(i).ok());
    dead_.Die();
  }
  /// `make`: called behind the first line that the recovery tells, when it knows all trees that there are.
  void RecoverBeside(RecoverMemberOptions options, const std::function<void()>& make) {
    OpContext op = recoverer_.Op();
    bool made = false;
    options.progress = [&](const std::string&) {
      if (!std::exchange(made, true)) make();
    };
    auto recovered = recoverer_.Run(
        RecoverMember(op, recoverer_.pool(), dead_.pool().self(), std::move(options)));
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    ASSERT_TRUE(recovered->was_member && made);
    EXPECT_EQ(recovered->given_up_pages, 0u);
  }
  void ExpectAllTrees() {
    for (uint64_t i = 0; i < kKeys; ++i) EXPECT_EQ(alive_.Get(i, 1), i + 1) << i;
    for (uint64_t i = 0; i < 8; ++i) EXPECT_EQ(alive_.Get(i), i) << i;
    alive_.ExpectWholePool();
    alive_.ExpectLeavesInGoodOrder();
    recoverer_.ExpectWholePool();
  }
  void FillLateTree() {
    for (uint64_t i = 0; i < kKeys; ++i) alive_.Put(i, i + 1, 1);
  }
  static Task<void> MakeLateTree(ScriptedMember* member, std::optional<Status>* ended) {
    OpContext op = member->Op();
    const std::string name = "late";
    auto info = co_await CreateTree(op, member->pool(), name, kGeometry);
    *ended = info.status();
  }

  ScriptedPool pool_{1};
  ScriptedMember dead_{pool_}, alive_{pool_}, recoverer_{pool_};
};

TEST_F(LateTreeTest, KeepsTheLeavesThatItHasFromTheDeadOnesChunks) {
  RecoverBeside({}, [&] {
    alive_.Create("late", kGeometry);
    FillLateTree();
  });
  ExpectAllTrees();
}

TEST_F(LateTreeTest, KeepsItsFirstLeafThatTheCatalogDoesNotNameYet) {
  std::optional<Status> ended;
  bool holds = true;
  alive_.script().rule = [&](const dsm::Batch& batch,
                             const dsm::RunVerbs& run) -> std::optional<Status> {
    const bool is_entry = Touches(batch, dsm::VerbKind::kWrite,
                                  {dsm::kCatalogServer, dsm::kCatalogOffset + 8}, kCatalogBytes);
    if (holds && is_entry) return std::nullopt;
    run(dsm::kAllVerbs);
    return Status::Ok();
  };
  const uint64_t start_ns = pool_.clock()->NowNs();
  RecoverBeside({}, [&] {
    alive_.worker().Spawn(MakeLateTree(&alive_, &ended));
    alive_.Turn(100);
    EXPECT_FALSE(ended);
  });
  EXPECT_LT(pool_.clock()->NowNs() - start_ns, kNsPerSecond)
      << "it waited for a member that is silent";
  EXPECT_FALSE(ended);
  holds = false;
  alive_.RunUntilIdle();
  ASSERT_TRUE(ended && ended->ok()) << *ended;
  alive_.script().rule = nullptr;
  alive_.Open("late");
  FillLateTree();
  ExpectAllTrees();
}

}  // namespace
}  // namespace farleaf::index
