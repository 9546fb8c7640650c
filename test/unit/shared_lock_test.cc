// What operations of one compute server do for one another under one lock: changes that its holder makes for
// those who wait, and a lock that is handed over.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "index/blink/parted_leaf.h"
#include "test/support/scripted_members.h"

namespace farleaf::index {
namespace {

/// What the holder's delete looks like: it lets its leaf go with the write-back, or keeps it, since it may merge.
enum class Leaf { kIsLetGo, kIsKept };

/// Deletes of two keys of one part of a leaf, the second of which is made by the holder of the lock: until one
/// pair has the write-back that is wanted, which fails after so many verbs, and whatever follows it.
class DeletesInPairs {
 public:
  explicit DeletesInPairs(Leaf wanted) : wanted_(wanted), pool_(1), a_(pool_), reader_(pool_) {
    a_.Create("tree", Geometry::Parted(4));
    for (uint64_t i = 0; i < 120; ++i) a_.Put(Mix64(i), i);
    reader_.Open("tree");
    leaf_ = a_.Leaves()[2].address;
  }

  /// Returns how many verbs the write-back had.
  size_t FailAfter(size_t verbs_run) {
    size_t verbs = 0;
    bool holds = true, fails = false;
    a_.script().rule = [&](const dsm::Batch& batch,
                           const dsm::RunVerbs& run) -> std::optional<Status> {
      if (fails) return Status::Unavailable("the memory server does not answer");
      if (holds) return std::nullopt;
      if (IsWanted(batch)) {
        verbs = batch.verbs().size();
        run(verbs_run);
        fails = true;
        return Status::Unavailable("the connection broke");
      }
      run(dsm::kAllVerbs);
      return Status::Ok();
    };
    for (auto pair = NextPair(); pair && !fails; pair = NextPair()) {
      holds = true;
      const uint64_t combined = a_.tree().stats().combined;
      const auto first = a_.BeginDelete(pair->first), second = a_.BeginDelete(pair->second);
      holds = false;
      a_.RunUntilIdle();
      EXPECT_EQ(a_.tree().stats().combined, combined + 1);
      for (const auto& begun : {first, second}) {
        EXPECT_EQ(begun->ended->code(), fails ? StatusCode::kUnknown : StatusCode::kOk)
            << *begun->ended;
      }
      ExpectBothOrNone(*pair);
    }
    EXPECT_TRUE(fails);
    a_.script().rule = nullptr;
    OpContext op = a_.Op();
    const Status settled = a_.Run(a_.tree().SettleLocks(op));
    EXPECT_TRUE(settled.ok()) << settled;
    a_.ExpectLeavesInGoodOrder();
    reader_.ExpectWholePool();
    return verbs;
  }

 private:
  bool IsWanted(const dsm::Batch& batch) {
    const bool writes = Touches(batch, dsm::VerbKind::kWrite, leaf_, 64 + 4 * kPartBytes);
    const bool lets_go = Touches(batch, dsm::VerbKind::kWrite, a_.LockOf(leaf_), 8);
    return writes && lets_go == (wanted_ == Leaf::kIsLetGo);
  }
  /// Two keys of one part; of the parts with as many, the one that has least.
  std::optional<std::pair<uint64_t, uint64_t>> NextPair() {
    const auto image = pool_.Bytes(leaf_, a_.tree().info().geometry.image_bytes(0));
    std::optional<std::vector<uint64_t>> least;
    for (size_t i = 0; i < PartsOf(a_.tree().info().geometry.leaf_bytes); ++i) {
      const ConstPart part(&image[i * kPartBytes]);
      std::vector<uint64_t> keys;
      for (size_t slot = 0; slot < kPartSlots; ++slot) {
        if ((part.used() >> slot & 1) != 0) keys.push_back(part.key(slot));
      }
      if (keys.size() >= 2 && (!least || keys.size() < least->size())) least = keys;
    }
    if (!least) return std::nullopt;
    return std::pair((*least)[0], (*least)[1]);
  }
  void ExpectBothOrNone(std::pair<uint64_t, uint64_t> keys) {
    EXPECT_EQ(reader_.Get(keys.first).has_value(), reader_.Get(keys.second).has_value());
  }

  Leaf wanted_;
  ScriptedPool pool_;
  ScriptedMember a_, reader_;
  GlobalAddress leaf_;
};

void FailAfterEachVerb(Leaf wanted) {
  size_t verbs = 1;
  for (size_t run = 0; run <= verbs && !testing::Test::HasFailure(); ++run) {
    SCOPED_TRACE(testing::Message() << run << " verbs run");
    verbs = DeletesInPairs(wanted).FailAfter(run);
  }
  EXPECT_GE(verbs, 2u);
}

TEST(CombiningTest, WhatMayHaveLandedIsUnknownToAllWhoseChangesItHolds) {
  FailAfterEachVerb(Leaf::kIsLetGo);
}

TEST(CombiningTest, WhatMayHaveLandedAheadOfAMergeIsUnknownToAllWhoseChangesItHolds) {
  FailAfterEachVerb(Leaf::kIsKept);
}

/// Leaf pages of one size serve all trees: operations of two trees may wait for one page at a time, one of them
/// led there by what is out of date.
TEST(HandOverTest, ALockIsNotHandedOverBetweenLeavesOfTwoLayouts) {
  const Geometry parted = Geometry::Parted(4, 256), sorted = Geometry::Fixed8(576, 256);
  constexpr uint64_t kKeys = 300;
  for (const auto& [before, now] : {std::pair(parted, sorted), {sorted, parted}}) {
    ScriptedPool pool(1);
    ScriptedMember a(pool), reader(pool);
    a.Create("before", before);
    for (uint64_t i = 0; i < kKeys; ++i) a.Put(i << 32, i);
    a.Open("before");  // what becomes stale
    for (uint64_t i = 1; i < kKeys; ++i) ASSERT_TRUE(a.Delete(i << 32).ok());
    a.Create("now", now);
    for (uint64_t i = 0; i < kKeys; ++i) a.Put(i << 32, i, 2);
    std::map<GlobalAddress, uint64_t> leaves;  // and a key of each
    for (uint64_t i = 1; i < kKeys; ++i) {
      a.worker().GoOnline();
      leaves[a.tree(1).cache().FindLeaf(Fixed(i << 32)).node] = i << 32;
      a.worker().GoOffline();
    }
    uint64_t met = 0;
    for (const CachedLeaf& leaf : a.Leaves(2)) {
      const auto stale = leaves.find(leaf.address);
      if (stale == leaves.end()) continue;
      const uint64_t key = a.KeysIn(leaf.address, 2)[0];
      bool holds = true;
      a.script().rule = [&](const dsm::Batch&, const dsm::RunVerbs& run) -> std::optional<Status> {
        if (holds) return std::nullopt;
        run(dsm::kAllVerbs);
        return Status::Ok();
      };
      const auto first = a.BeginPut(key, 7, 2);
      const auto second = a.BeginPut(stale->second, 8, 1);  // waits for the first
      holds = false;
      a.RunUntilIdle();
      a.script().rule = nullptr;
      EXPECT_TRUE(first->ended->ok()) << *first->ended;
      EXPECT_TRUE(second->ended->ok()) << *second->ended;
      EXPECT_EQ(a.Get(key, 2), 7u);
      EXPECT_EQ(a.Get(stale->second), 8u);
      ++met;
    }
    EXPECT_GT(met, 3u);
    EXPECT_GT(a.tree(1).stats().restarts + a.tree(1).stats().path_refreshes, 0u);
    reader.ExpectWholePool();
  }
}

}  // namespace
}  // namespace farleaf::index
