// How a tree counts the searches that its cache answers, by words of the workers that make them.
#include <gtest/gtest.h>

#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "index/blink/count_by_worker.h"
#include "test/support/other_view.h"
#include "test/support/test_scale.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

TEST(CountByWorkerTest, LosesNothingWhoeverAdds) {
  const uint64_t each = test::Amount{20'000, 200'000};
  // Neighbours on one block, others on more of them, and those that share a word: unnumbered, or too many.
  constexpr uint64_t kWorkers[] = {
      1, 2, 3, 16, CountByWorker::kWorkersMax - 1, 0, 0, CountByWorker::kWorkersMax, UINT64_MAX};
  CountByWorker count;
  std::vector<std::thread> threads;
  for (const uint64_t worker : kWorkers) {
    threads.emplace_back([&count, worker, each] {
      for (uint64_t i = 0; i < each; ++i) count.Add(worker, 1 + i % 2);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(count.Sum(), std::size(kWorkers) * each / 2 * 3);
}

class CacheHitsTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr uint64_t kKeys = 500;
  LocalTree local_{
      {.geometry = fixed8() ? Geometry::Fixed8(256) : Geometry{Layout::kBytes, 512, 512, 64, 32}}};

  static bool fixed8() { return GetParam(); }
  static std::string Key(uint64_t i) {
    return fixed8() ? Fixed(i) : "key" + std::to_string(1'000 + i);
  }
  void SetUp() override {
    for (uint64_t i = 0; i < kKeys; ++i) local_.Put(Key(i), fixed8() ? Fixed(i) : "value");
    dsm::FabricCounts counts;
    OpContext op{local_.worker(), counts};
    const Status warmed = local_.worker().Run(local_.tree().WarmCache(op));
    ASSERT_TRUE(warmed.ok()) << warmed;
  }
};
INSTANTIATE_TEST_SUITE_P(Layouts, CacheHitsTest, testing::Bool(),
                         [](const auto& layout) { return layout.param ? "Fixed8" : "Bytes"; });

TEST_P(CacheHitsTest, EachSearchOfAWarmCacheIsOne) {
  BlinkTree& tree = local_.tree();
  auto added = [&tree, before = tree.cache_hits()]() mutable {
    return tree.cache_hits() - std::exchange(before, tree.cache_hits());
  };
  const uint64_t misses = tree.stats().cache_misses;
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(local_.Get(Key(i)));
  EXPECT_EQ(added(), kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) local_.Put(Key(i), fixed8() ? Fixed(i + 1) : "other");
  EXPECT_EQ(added(), kKeys);
  EXPECT_EQ(local_.Scan({.limit = 20}).size(), 20u);
  EXPECT_GE(added(), 1u);
  EXPECT_EQ(tree.stats().cache_misses, misses);
  EXPECT_EQ(added(), 0u);
}

TEST_P(CacheHitsTest, WhatTheCacheLacksIsAMissAndNoHit) {
  OtherView cold(local_, {});
  ASSERT_TRUE(cold.Get(Key(0)));
  EXPECT_EQ(cold.tree().cache_hits(), 0u);
  const uint64_t misses = cold.tree().stats().cache_misses;
  ASSERT_TRUE(cold.Get(Key(0)));
  EXPECT_EQ(cold.tree().cache_hits(), 1u);
  EXPECT_EQ(cold.tree().stats().cache_misses, misses);
  ASSERT_TRUE(cold.Get(Key(kKeys - 1))) << "under the same root";
  EXPECT_EQ(cold.tree().cache_hits(), 1u);
  EXPECT_GT(cold.tree().stats().cache_misses, misses);
  cold.WarmCache();
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < kKeys; ++i) keys.push_back(Key(i));
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  for (const auto& value : cold.MultiGet(views)) EXPECT_TRUE(value);
  EXPECT_EQ(cold.tree().cache_hits(), 1 + kKeys);
}

}  // namespace
}  // namespace farleaf::index
