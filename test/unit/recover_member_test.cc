// A recovery beside members that are alive, in an exact order of events (index/blink/recover_member.cc).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "index/blink/recover_member.h"
#include "test/support/scripted_members.h"

namespace farleaf::index {
namespace {

const Geometry kRecoveredGeometry = Geometry::Fixed8(256);
constexpr uint64_t kRecoveredKeys = 60;

/// `dead` has made a tree; a leaf of it, in a chunk of `dead`, is to die and be used again while `dead` is
/// recovered. What `alive` does stops when it is about to write the dead leaf, and at the test's will.
class ReusedPageTest : public testing::Test {
 protected:
  ReusedPageTest() {
    dead_.Create("tree", kRecoveredGeometry);
    for (uint64_t i = 0; i < kRecoveredKeys; ++i) dead_.Put(i * 10, i);
    alive_.Open("tree");
    dead_.Die();
    const auto leaves = alive_.Leaves();
    left_ = leaves[2].address;
    right_ = leaves[3].address;
  }
  bool IsLeaf(GlobalAddress page) {
    const auto leaves = alive_.Leaves();
    return std::any_of(leaves.begin(), leaves.end(),
                       [&](const CachedLeaf& leaf) { return leaf.address == page; });
  }
  /// Of the one that writes the right leaf.
  size_t VerbsAhead(const dsm::Batch& batch) const {
    const auto all = batch.verbs();
    const auto writes = [this](const dsm::Verb& verb) {
      return verb.kind == dsm::VerbKind::kWrite && verb.offset >= right_.offset() &&
             verb.offset < right_.offset() + kRecoveredGeometry.leaf_bytes;
    };
    return static_cast<size_t>(std::find_if(all.begin(), all.end(), writes) - all.begin());
  }
  /// Until the right leaf is about to get its dead image.
  void BeginMerge() {
    alive_.script().rule = [this](const dsm::Batch& batch,
                                  const dsm::RunVerbs& run) -> std::optional<Status> {
      const bool kills = Touches(batch, dsm::VerbKind::kWrite, right_, 64) &&
                         pool_.HolderOf(alive_.LockOf(left_)) == alive_.id();
      if (kills && holds_) {
        if (!std::exchange(stopped_, true)) run(VerbsAhead(batch));
        return std::nullopt;
      }
      run(dsm::kAllVerbs);
      return Status::Ok();
    };
    for (const uint64_t key : alive_.KeysIn(left_)) {
      auto begun = alive_.BeginDelete(key);
      deleted_.push_back(key);
      for (int i = 0; i < 200 && !stopped_ && !begun->ended; ++i) alive_.Turn();
      if (stopped_) return;
    }
  }
  /// The page is a leaf again, in use and not locked.
  void EndMergeAndReuse() {
    holds_ = false;
    alive_.RunUntilIdle();
    EXPECT_EQ(alive_.tree().stats().merges, 1u);
    EXPECT_FALSE(IsLeaf(right_));
    for (uint64_t i = 0; i < 2'000 && !IsLeaf(right_); ++i) {
      alive_.Put(10'000 + i, i);
      put_ = i + 1;
    }
    EXPECT_TRUE(IsLeaf(right_));
  }

  ScriptedPool pool_{1};
  ScriptedMember dead_{pool_}, alive_{pool_}, recoverer_{pool_};
  GlobalAddress left_, right_;
  bool holds_ = true, stopped_ = false;
  std::vector<uint64_t> deleted_;
  uint64_t put_ = 0;
};

TEST_F(ReusedPageTest, IsNotTakenFromTheTreeThatItIsInByNow) {
  enum class Stage { kBefore, kScans, kMerges, kReused } stage = Stage::kBefore;
  const GlobalAddress lock = alive_.LockOf(right_);
  recoverer_.script().rule = [&](const dsm::Batch& batch,
                                 const dsm::RunVerbs& run) -> std::optional<Status> {
    const bool takes = Touches(batch, dsm::VerbKind::kCompareAndSwap, lock, 8);
    if (stage == Stage::kMerges && takes) {
      stage = Stage::kReused;
      EndMergeAndReuse();
    }
    const auto scans = [&](const dsm::Verb& verb) {
      return verb.kind == dsm::VerbKind::kRead && verb.length > 4096 &&
             verb.offset <= right_.offset() && right_.offset() < verb.offset + verb.length;
    };
    run(dsm::kAllVerbs);
    if (stage == Stage::kScans && std::any_of(batch.verbs().begin(), batch.verbs().end(), scans)) {
      stage = Stage::kMerges;
      BeginMerge();
      EXPECT_TRUE(stopped_);
    }
    return Status::Ok();
  };
  RecoverMemberOptions options;
  options.progress = [&](const std::string&) {  // the locks are done: what follows is the scan
    if (stage == Stage::kBefore) stage = Stage::kScans;
  };
  OpContext op = recoverer_.Op();
  auto recovered =
      recoverer_.Run(RecoverMember(op, recoverer_.pool(), dead_.pool().self(), options));
  recoverer_.script().rule = nullptr;
  ASSERT_TRUE(recovered.ok()) << recovered.status();
  EXPECT_EQ(recovered->given_up_pages, 0u);
  ASSERT_GE(stage, Stage::kMerges);
  if (stage == Stage::kMerges) EndMergeAndReuse();
  alive_.script().rule = nullptr;
  for (uint64_t i = 0; i < kRecoveredKeys; ++i) {
    const bool gone = std::count(deleted_.begin(), deleted_.end(), i * 10) > 0;
    EXPECT_EQ(alive_.Get(i * 10), gone ? std::nullopt : std::optional(i)) << i;
  }
  for (uint64_t i = 0; i < put_; ++i) EXPECT_EQ(alive_.Get(10'000 + i), i) << i;
  alive_.ExpectWholePool();
  alive_.ExpectLeavesInGoodOrder();
  recoverer_.ExpectWholePool();
}

/// Somebody dies at a verb of CreateTree; when its recovery has let go the catalog's lock, and has not seen to
/// other locks, another tree gets the number that was meant for it. Returns how many verbs ran.
uint64_t GiveNumberToAnotherTree(uint64_t verb, Geometry died_at, Geometry other) {
  ScriptedPool pool(1);
  ScriptedMember alive(pool), recoverer(pool);
  dsm::CrashPlan plan;
  ScriptedMember dead(pool,
                      std::make_unique<dsm::CrashingFabric>(pool.servers(), pool.clock(), &plan));
  plan.verbs_run = 0;
  plan.verbs_left = verb;
  {
    OpContext op = dead.Op();
    const Status created = dead.Run(CreateTree(op, dead.pool(), "never made", died_at)).status();
    EXPECT_TRUE(created.ok() || plan.dead) << created;
  }
  const uint64_t ran = plan.verbs_run;
  plan.dead = true;
  dead.Die();
  const GlobalAddress lock(dsm::kCatalogServer, dsm::kCatalogOffset);
  bool made = false;
  const auto make = [&] {
    if (std::exchange(made, true)) return;
    alive.Create("other", other);
    alive.Put(1, 2);
  };
  recoverer.script().rule = [&](const dsm::Batch& batch,
                                const dsm::RunVerbs& run) -> std::optional<Status> {
    run(dsm::kAllVerbs);
    if (Touches(batch, dsm::VerbKind::kCompareAndSwap, lock, 8)) make();
    return Status::Ok();
  };
  OpContext op = recoverer.Op();
  auto recovered = recoverer.Run(RecoverMember(op, recoverer.pool(), dead.pool().self(), {}));
  recoverer.script().rule = nullptr;
  EXPECT_TRUE(recovered.ok()) << recovered.status();
  make();
  EXPECT_EQ(alive.Get(1), 2u);
  alive.ExpectLeavesInGoodOrder();
  recoverer.ExpectWholePool();
  return ran;
}

TEST(RecoverMemberTest, ATreeThatWasNeverMadeIsNotTakenForTheOneThatGetsItsNumber) {
  const Geometry sorted = Geometry::Fixed8(576, 256), parted = Geometry::Parted(4, 256);
  ASSERT_EQ(sorted.leaf_bytes, parted.leaf_bytes);
  for (const auto& [died_at, other] : {std::pair(kRecoveredGeometry, kRecoveredGeometry),
                                       std::pair(kRecoveredGeometry, Geometry::Fixed8(512)),
                                       std::pair(sorted, parted), std::pair(parted, sorted)}) {
    for (uint64_t verb = 0; GiveNumberToAnotherTree(verb, died_at, other) == verb; ++verb) {
      ASSERT_FALSE(testing::Test::HasFailure()) << "verb " << verb;
    }
  }
}

}  // namespace
}  // namespace farleaf::index
