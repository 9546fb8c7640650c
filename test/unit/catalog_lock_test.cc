// The catalog's lock where connections break: whoever took it, or let it go, and does not know, leaves it with
// nobody (index/blink/catalog.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "index/blink/catalog_entry.h"
#include "index/blink/recover_member.h"
#include "test/support/scripted_members.h"

namespace farleaf::index {
namespace {

const Geometry kGeometry = Geometry::Fixed8(256);
const GlobalAddress kLock(dsm::kCatalogServer, dsm::kCatalogOffset);

bool SwapsLock(const dsm::Batch& batch) {
  return Touches(batch, dsm::VerbKind::kCompareAndSwap, kLock, 8);
}

GlobalAddress EntryOf(TreeId id) {
  return {dsm::kCatalogServer, TreeInfo{.id = id}.root_word_offset() - kCatalogRootAt};
}

bool WritesEntry(const dsm::Batch& batch, TreeId id) {
  return Touches(batch, dsm::VerbKind::kWrite, EntryOf(id), dsm::kCatalogEntryBytes);
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
  /// By whoever makes "tree", under number 1. Of a page that comes from there its lock alone tells who had it.
  void LeaveAPageInAList() {
    ScriptedMember builder(pool_);
    builder.Create("tree", kGeometry);
    for (uint64_t i = 0; i < 40; ++i) builder.Put(i, i);
    for (uint64_t i = 0; i < 30; ++i) EXPECT_TRUE(builder.Delete(i).ok());
    builder.ExpectLeavesInGoodOrder();
  }
  Status CreateOnAnotherWorkerOfA(const std::string& name) {
    auto other = std::move(*a_.pool().OpenWorker());
    dsm::FabricCounts counts;
    OpContext op{*other, counts};
    return other->Run(CreateTree(op, a_.pool(), name, kGeometry)).status();
  }
  std::set<std::string> NamesSeenBy(ScriptedMember& member) {
    OpContext op = member.Op();
    auto trees = member.Run(ListTrees(op, member.pool()));
    EXPECT_TRUE(trees.ok()) << trees.status();
    std::set<std::string> names;
    if (trees.ok()) {
      for (const TreeInfo& tree : *trees) names.insert(tree.name);
    }
    return names;
  }
  void ExpectRecoveryOfAByB() {
    a_.Die();
    OpContext op = b_.Op();
    auto recovered = b_.Run(RecoverMember(op, b_.pool(), a_.pool().self(), {}));
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    for (const std::string& name : NamesSeenBy(b_)) b_.Open(name);
    b_.Put(3, 4);
    EXPECT_EQ(pool_.Word(kLock), dsm::kUnlockedWord);
    b_.ExpectWholePool();
    b_.ExpectLeavesInGoodOrder();
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
  // By another worker if nothing of the first one's can land any more.
  if (GetParam() == StatusCode::kUnknown) {
    EXPECT_EQ(CreateOnAnotherWorkerOfA("not made").code(), StatusCode::kDeadlineExceeded);
    ExpectCreatesAtOnce(a_, "made");
  } else {
    const Status created = CreateOnAnotherWorkerOfA("made");
    EXPECT_TRUE(created.ok()) << created;
  }
  EXPECT_TRUE(a_.pool().unresolved_locks().empty());
  ExpectCreatesAtOnce(b_, "made by b");
  ExpectAllLeaveInGoodOrder();
}

/// Of batches whose outcome is unknown: what was not posted does not land.
class CatalogLockInDoubtTest : public CatalogLockTest {};

TEST_P(CatalogLockInDoubtTest, IsNotTakenOverWhileAnEntryThatWasWrittenUnderItMayLand) {
  std::vector<std::byte> late;
  a_.script().rule = [&](const dsm::Batch& batch,
                         const dsm::RunVerbs& run) -> std::optional<Status> {
    const bool entry = WritesEntry(batch, 1);
    if (!late.empty() && batch.server() == dsm::kCatalogServer && !entry) return Failure();
    const auto bytes = pool_.Bytes(EntryOf(1), dsm::kCatalogEntryBytes);
    const std::vector<std::byte> before(bytes.begin(), bytes.end());
    run(dsm::kAllVerbs);
    if (!entry) return Status::Ok();
    late.assign(bytes.begin(), bytes.end());
    std::copy(before.begin(), before.end(), bytes.begin());
    return Failure();
  };
  EXPECT_EQ(Create(a_, "late").code(), StatusCode::kUnknown);
  ASSERT_FALSE(late.empty());
  EXPECT_EQ(pool_.HolderOf(kLock), a_.id());
  a_.script().rule = nullptr;
  EXPECT_EQ(CreateOnAnotherWorkerOfA("not made").code(), StatusCode::kDeadlineExceeded);
  std::copy(late.begin(), late.end(),
            pool_.Bytes(EntryOf(1), dsm::kCatalogEntryBytes).begin());  // it lands
  ExpectCreatesAtOnce(a_, "made");                                      // on a new connection
  EXPECT_EQ(NamesSeenBy(b_), (std::set<std::string>{"late", "made"}));
  a_.Open("late");
  OpContext op = a_.Op();
  EXPECT_TRUE(a_.Run(a_.tree().Upkeep(op)).ok());
  a_.Put(1, 2);
  ExpectRecoveryOfAByB();
}

TEST_P(CatalogLockTest, ACreationOfWhichOneAttemptMayHaveLandedIsUnknown) {
  int attempts = 0;
  a_.script().rule = [&](const dsm::Batch& batch,
                         const dsm::RunVerbs& run) -> std::optional<Status> {
    const bool fails = WritesEntry(batch, 1);
    if (fails && attempts++ > 0) return Status::Unavailable("the connection broke");
    run(dsm::kAllVerbs);
    return fails ? Failure() : Status::Ok();
  };
  EXPECT_EQ(Create(a_, "late").code(), GetParam());
  EXPECT_GT(attempts, 1);
  EXPECT_EQ(NamesSeenBy(b_), std::set<std::string>{"late"});
  ExpectRecoveryOfAByB();
}

/// How many locks of a class may be held at once.
size_t FreeSlots(ScriptedMember& member) {
  std::vector<uint64_t> words;
  dsm::RedoSlots& slots = member.pool().redo_slots(0);
  while (const auto word = slots.Take(LeftLockClass(0))) words.push_back(*word);
  for (const uint64_t word : words) slots.Give(word);
  return words.size();
}

TEST_P(CatalogLockTest, TheSlotOfAFirstLeafThatIsLostIsUsedAgainWhenItIsFound) {
  a_.Create("tree", kGeometry);
  const size_t slots = FreeSlots(a_);
  for (const bool lands : {false, true}) {
    bool landed = !lands;
    a_.script().rule = [&](const dsm::Batch& batch,
                           const dsm::RunVerbs& run) -> std::optional<Status> {
      const bool unlocks_leaf =
          batch.verbs()[0].kind == dsm::VerbKind::kCompareAndSwap && !SwapsLock(batch);
      if (!unlocks_leaf || !std::exchange(landed, true)) run(dsm::kAllVerbs);
      return unlocks_leaf ? Failure() : Status::Ok();
    };
    const std::string name = lands ? "lands" : "does not";
    EXPECT_TRUE(Create(a_, name).ok());
    a_.script().rule = nullptr;
    EXPECT_EQ(a_.pool().unresolved_locks().size(), 1u);
    EXPECT_EQ(FreeSlots(a_), slots - 1);
    a_.Open(name);
    OpContext op = a_.Op();
    EXPECT_TRUE(a_.Run(a_.tree(1 + lands).Upkeep(op)).ok());
    EXPECT_TRUE(a_.pool().unresolved_locks().empty());
    EXPECT_EQ(FreeSlots(a_), slots);
    a_.Put(1, 2, 1 + lands);
  }
  ExpectRecoveryOfAByB();
}

TEST_P(CatalogLockTest, TheSlotOfAFirstLeafKeepsItsRecordWhereATreeOfAnotherPageSizeHasTheNumber) {
  LeaveAPageInAList();
  a_.script().rule = [](const dsm::Batch& batch,
                        const dsm::RunVerbs& run) -> std::optional<Status> {
    if (WritesEntry(batch, 2)) return Status::Unavailable("the connection broke");
    run(dsm::kAllVerbs);
    return Status::Ok();
  };
  EXPECT_FALSE(Create(a_, "not made").ok());
  a_.script().rule = nullptr;
  const size_t slots = FreeSlots(a_);
  EXPECT_EQ(a_.pool().unresolved_locks().size(), 1u);
  b_.Create("of b", Geometry::Fixed8(512));
  a_.Open("of b");
  OpContext op = a_.Op();
  EXPECT_TRUE(a_.Run(a_.tree().Upkeep(op)).ok());
  EXPECT_TRUE(a_.pool().unresolved_locks().empty());
  EXPECT_EQ(FreeSlots(a_), slots);
  for (uint64_t i = 0; i < 100; ++i) a_.Put(i, i);
  ExpectRecoveryOfAByB();
}

TEST_P(CatalogLockTest, AnEntryThatIsWrittenDuringTheRecoveryIsNotTakenForTheDeadOnes) {
  LeaveAPageInAList();
  bool dead = false;
  a_.script().rule = [&](const dsm::Batch& batch,
                         const dsm::RunVerbs& run) -> std::optional<Status> {
    if (!dead) run(WritesEntry(batch, 2) ? 1 : dsm::kAllVerbs);  // half the entry: no state word
    dead = dead || WritesEntry(batch, 2);
    return dead ? Failure() : Status::Ok();
  };
  EXPECT_FALSE(Create(a_, "half").ok());
  ASSERT_TRUE(dead);
  a_.Die();
  ScriptedMember c(pool_);
  bool made = false;
  // The READs of a batch run in the other order, and somebody makes a tree behind all but the last of them.
  b_.script().rule = [&](const dsm::Batch& batch,
                         const dsm::RunVerbs& run) -> std::optional<Status> {
    if (made || !Touches(batch, dsm::VerbKind::kRead, EntryOf(2), 8) ||
        batch.verbs()[0].length != 8) {
      run(dsm::kAllVerbs);
      return Status::Ok();
    }
    const auto verbs = batch.verbs();
    for (size_t i = verbs.size(); i > 0; --i) {
      if (i == 1) c.Create("of c", kGeometry);
      EXPECT_TRUE(
          dsm::ExecuteVerb(verbs[i - 1], pool_.servers()->region_bytes(batch.server())).ok());
    }
    made = true;
    return Status::Ok();
  };
  OpContext op = b_.Op();
  auto recovered = b_.Run(RecoverMember(op, b_.pool(), a_.pool().self(), {}));
  b_.script().rule = nullptr;  // what it refers to ends with this function, b_ does not
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_TRUE(made);
  EXPECT_EQ(NamesSeenBy(b_), (std::set<std::string>{"of c", "tree"}));
  c.Put(1, 2);
  c.ExpectLeavesInGoodOrder();
  b_.ExpectWholePool();
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
INSTANTIATE_TEST_SUITE_P(Failures, CatalogLockInDoubtTest, testing::Values(StatusCode::kUnknown));

}  // namespace
}  // namespace farleaf::index
