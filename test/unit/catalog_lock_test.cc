// The catalog's lock where connections break: whoever took it, or let it go, and does not know, leaves it with
// nobody (index/blink/catalog.cc).
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>

#include "index/blink/catalog.h"
#include "index/blink/recover_member.h"
#include "test/support/scripted_members.h"

namespace farleaf::index {
namespace {

const Geometry kGeometry = Geometry::Fixed8(256);
const GlobalAddress kLock(dsm::kCatalogServer, dsm::kCatalogOffset);

bool SwapsLock(const dsm::Batch& batch) {
  return Touches(batch, dsm::VerbKind::kCompareAndSwap, kLock, 8);
}

class CatalogLockTest : public testing::TestWithParam<StatusCode> {
 protected:
  Status Failure() const {
    return GetParam() == StatusCode::kUnknown ? Status::Unknown("no answer")
                                              : Status::Unavailable("the connection broke");
  }
  /// Of the swaps of the catalog's lock by `member`, from number `first` on, `count` fail, the first of them
  /// behind its effect, if it `lands`.
  void FailSwaps(ScriptedMember& member, int first, int count, bool lands) {
    member.script().rule = [=, this, swaps = 0](
                               const dsm::Batch& batch,
                               const dsm::RunVerbs& run) mutable -> std::optional<Status> {
      const int number = SwapsLock(batch) ? swaps++ : -1;
      if (number >= first && number < first + count) {
        if (number == first && lands) run(dsm::kAllVerbs);
        return Failure();
      }
      run(dsm::kAllVerbs);
      return Status::Ok();
    };
  }
  Status Create(ScriptedMember& member, const std::string& name) {
    OpContext op = member.Op();
    return member.Run(CreateTree(op, member.pool(), name, kGeometry)).status();
  }
  void ExpectCreatesAtOnce(ScriptedMember& member, const std::string& name) {
    const uint64_t start_ns = pool_.clock()->NowNs();
    const Status created = Create(member, name);
    EXPECT_TRUE(created.ok()) << created;
    EXPECT_LT(pool_.clock()->NowNs() - start_ns, 100 * kNsPerMs);
  }
  void ExpectAllLeaveInGoodOrder() {
    EXPECT_EQ(pool_.Word(kLock), dsm::kUnlockedWord);
    a_.script().rule = nullptr;
    a_.ExpectLeavesInGoodOrder();
    b_.ExpectWholePool();
    b_.ExpectLeavesInGoodOrder();
  }

  ScriptedPool pool_{1};
  ScriptedMember a_{pool_}, b_{pool_};
};

TEST_P(CatalogLockTest, ThatLandsWhileItsConnectionBreaksIsUndone) {
  for (const int undo_failures : {0, 1, 3}) {
    FailSwaps(a_, 0, 1 + undo_failures, true);
    EXPECT_FALSE(Create(a_, "not made").ok());
    EXPECT_EQ(pool_.HolderOf(kLock), 0);
    ExpectCreatesAtOnce(b_, "made by b, " + std::to_string(undo_failures));
  }
  EXPECT_TRUE(a_.pool().unresolved_locks().empty());
  ExpectAllLeaveInGoodOrder();
}

TEST_P(CatalogLockTest, IsLetGoAgainUntilThatHasLanded) {
  for (const bool lands : {false, true}) {
    const std::string name = lands ? "lands" : "does not";
    FailSwaps(a_, 1, 3, lands);
    const Status created = Create(a_, name);
    EXPECT_TRUE(created.ok()) << created;
    EXPECT_EQ(pool_.HolderOf(kLock), 0);
    ExpectCreatesAtOnce(b_, name + ", b");
  }
  ExpectAllLeaveInGoodOrder();
}

TEST_P(CatalogLockTest, ThatIsLostIsFoundByUpkeep) {
  a_.Create("tree", kGeometry);
  FailSwaps(a_, 0, 1'000, true);
  EXPECT_FALSE(Create(a_, "not made").ok());
  EXPECT_EQ(pool_.HolderOf(kLock), a_.id());
  EXPECT_EQ(a_.pool().unresolved_locks().size(), 1u);
  EXPECT_EQ(a_.pool().Leave().code(), StatusCode::kUnavailable);  // nobody could undo it
  OpContext op = a_.Op();
  EXPECT_EQ(a_.Run(a_.tree().Upkeep(op)).code(), StatusCode::kUnavailable);
  a_.script().rule = nullptr;
  EXPECT_TRUE(a_.Run(a_.tree().Upkeep(op)).ok());
  EXPECT_TRUE(a_.pool().unresolved_locks().empty());
  ExpectCreatesAtOnce(b_, "made by b");
  ExpectAllLeaveInGoodOrder();
}

TEST_P(CatalogLockTest, ThatIsLostIsTakenFromItselfByTheSameMember) {
  FailSwaps(a_, 0, 1'000, true);
  EXPECT_FALSE(Create(a_, "not made").ok());
  a_.script().rule = nullptr;
  auto other = std::move(*a_.pool().OpenWorker());
  dsm::FabricCounts counts;
  {
    OpContext op{*other, counts};
    const Status created = other->Run(CreateTree(op, a_.pool(), "made", kGeometry)).status();
    EXPECT_TRUE(created.ok()) << created;
  }
  EXPECT_TRUE(a_.pool().unresolved_locks().empty());
  ExpectCreatesAtOnce(b_, "made by b");
  other.reset();
  ExpectAllLeaveInGoodOrder();
}

TEST_P(CatalogLockTest, ThatIsLostIsFreedByTheRecoveryOfItsMember) {
  a_.Create("tree", kGeometry);
  FailSwaps(a_, 0, 1'000, true);
  EXPECT_FALSE(Create(a_, "not made").ok());
  a_.Die();
  OpContext op = b_.Op();
  auto recovered = b_.Run(RecoverMember(op, b_.pool(), a_.pool().self(), {}));
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  ExpectCreatesAtOnce(b_, "made by b");
  b_.ExpectWholePool();
}

TEST_P(CatalogLockTest, IsNeverLockedTwiceWithOneWord) {
  std::set<uint64_t> words;
  for (int i = 0; i < 3; ++i) {
    a_.script().rule = [&](const dsm::Batch& batch,
                           const dsm::RunVerbs& run) -> std::optional<Status> {
      run(dsm::kAllVerbs);
      if (SwapsLock(batch) && pool_.Word(kLock) != 0) words.insert(pool_.Word(kLock));
      return Status::Ok();
    };
    EXPECT_TRUE(Create(a_, "tree " + std::to_string(i)).ok());
  }
  EXPECT_EQ(words.size(), 3u) << "an undo that is late would let go what is locked anew";
  ExpectAllLeaveInGoodOrder();
}

/// Of a CreateTree, `count` batches from number `first` on fail, the first of them behind its effect, if it
/// `lands`. Returns whether there were so many.
bool CreateWhileBatchesFail(Status failure, int first, int count, bool lands) {
  ScriptedPool pool(1);
  ScriptedMember a(pool), b(pool);
  a.Create("tree", kGeometry);
  int batches = 0;
  a.script().rule = [&](const dsm::Batch&, const dsm::RunVerbs& run) -> std::optional<Status> {
    const int number = batches++;
    const bool fails = number >= first && number < first + count;
    if (!fails || (number == first && lands)) run(dsm::kAllVerbs);
    return fails ? failure : Status::Ok();
  };
  OpContext op = a.Op();
  const Status created = a.Run(CreateTree(op, a.pool(), "late", Geometry::Fixed8(512))).status();
  a.script().rule = nullptr;
  EXPECT_TRUE(a.Run(a.tree().Upkeep(op)).ok());
  if (created.ok()) {
    a.Open("late");
    a.Put(1, 2, 1);
    EXPECT_TRUE(a.Run(a.tree(1).Upkeep(op)).ok());
  }
  // Whoever lives keeps nobody from making trees.
  EXPECT_EQ(pool.HolderOf(kLock), 0);
  b.Create("of b", Geometry::Fixed8(512));
  b.Put(3, 4);
  if (a.pool().allocator().has_given_up() || !a.pool().unresolved_locks().empty()) {
    a.Die();
    OpContext recovers = b.Op();
    auto recovered = b.Run(RecoverMember(recovers, b.pool(), a.pool().self(), {}));
    EXPECT_TRUE(recovered.ok()) << recovered.status();
  } else {
    a.ExpectLeavesInGoodOrder();
  }
  EXPECT_EQ(b.Get(3), 4u);
  if (created.ok()) {
    b.Open("late");
    EXPECT_EQ(b.Get(1, 1), 2u);
    b.Put(1, 3, 1);
  }
  b.ExpectWholePool();
  b.ExpectLeavesInGoodOrder();
  return batches > first;
}

TEST_P(CatalogLockTest, ACreationAtWhichBatchesFailKeepsNobodyWaitingAndLosesNoPage) {
  for (const int count : {1, 3, 1'000}) {
    for (const bool lands : {false, true}) {
      for (int first = 0; CreateWhileBatchesFail(Failure(), first, count, lands); ++first) {
        ASSERT_FALSE(HasFailure()) << count << " batches fail from number " << first << " on"
                                   << (lands ? ", which lands" : "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Failures, CatalogLockTest,
                         testing::Values(StatusCode::kUnavailable, StatusCode::kUnknown));

}  // namespace
}  // namespace farleaf::index
