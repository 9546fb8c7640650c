// The search-layer cache of a tree that lives: what it says of leaves.
#include "index/blink/search_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "dsm/base/random.h"
#include "index/blink/fence_digest.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

/// Byte-string pages small enough for a tree of several levels.
Geometry SmallBytes() { return {Layout::kBytes, 512, 512, 64, 32}; }

class CachedTree {
 public:
  explicit CachedTree(Geometry geometry) : tree_({.geometry = geometry}) {}

  bool fixed8() const { return info().geometry.layout == Layout::kFixed8; }
  std::string Key(uint64_t i) const {
    return fixed8() ? Fixed(i * 3) : "key/" + std::to_string(i % 7) + "/" + std::to_string(i);
  }
  void Put(uint64_t i) { tree_.Put(Key(i), fixed8() ? Fixed(i) : std::string(i % 20, 'v')); }
  void Delete(uint64_t i) { tree_.Delete(Key(i)); }

  dsm::EpochDomain::Participant& reader() { return reader_; }
  const SearchCache& cache() { return tree_.tree().cache(); }
  const TreeInfo& info() const { return const_cast<LocalTree&>(tree_).tree().info(); }
  ConstNode Node(GlobalAddress address, Level level = 0) {
    const auto image = tree_.fabric()
                           .region_bytes(address.server())
                           .subspan(address.offset(), info().geometry.image_bytes(level));
    FARLEAF_CHECK(ConstNode::Open(info().geometry, image) == OpenOutcome::kValid, address);
    return ConstNode(info().geometry, image);
  }
  void RefreshCache() {
    dsm::FabricCounts counts;
    OpContext op{tree_.worker(), counts};
    const Status status = tree_.worker().Run(tree_.tree().WarmCache(op));
    FARLEAF_CHECK(status.ok(), status);
  }
  LocalTree& tree() { return tree_; }

 private:
  LocalTree tree_;
  dsm::EpochDomain::Participant reader_{&tree_.pool().epochs()};
};

class FindLeafTest : public testing::TestWithParam<bool> {
 protected:
  CachedTree tree_{GetParam() ? Geometry::Fixed8(256) : SmallBytes()};

  static bool Contains(const ConstNode& parent, const ConstNode& leaf) {
    const bool low = !parent.has_low() || (leaf.has_low() && leaf.low() >= parent.low());
    const bool high = !parent.has_high() || (leaf.has_high() && leaf.high() <= parent.high());
    return low && high;
  }
  /// How many of the first `keys` keys have a leaf whose own fences differ from the cached ones. Not
  /// counted: leaves that a merge across parents has left under two of them, each of which knows half.
  uint64_t StaleDigests(uint64_t keys) {
    tree_.reader().GoOnline();
    uint64_t stale = 0;
    for (uint64_t i = 0; i < keys; ++i) {
      const std::string key = tree_.Key(i);
      const SearchCache::LeafPath path = tree_.cache().FindLeaf(key);
      EXPECT_TRUE(path.complete);
      EXPECT_EQ(path.node, tree_.cache().Find(key, Side::kAt, 0).node);
      const ConstNode leaf = tree_.Node(path.node);
      const bool fresh = path.fence_digest == FenceDigestOf(leaf);
      EXPECT_TRUE(!fresh || leaf.Covers(key)) << i;
      stale += !fresh && (path.parent.is_null() || Contains(tree_.Node(path.parent), leaf));
    }
    tree_.reader().GoOffline();
    return stale;
  }
};

TEST_P(FindLeafTest, DigestsOfAFreshCacheAreTheLeavesOwn) {
  EXPECT_EQ(tree_.cache().root().level, 0);
  tree_.Put(1);
  EXPECT_EQ(StaleDigests(1), 0u);  // one leaf, no fences
  constexpr uint64_t kKeys = 20'000;
  constexpr uint64_t kSeed = 17;
  Random random(kSeed);
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  for (uint64_t i = 0; i < kKeys; ++i) tree_.Put(random.Below(kKeys));
  EXPECT_GE(tree_.cache().root().level, 2);
  // The only writer has told all parents, and cached what it told them.
  EXPECT_EQ(StaleDigests(kKeys), 0u);
  for (uint64_t i = 0; i < kKeys; ++i) tree_.Delete(random.Below(kKeys));
  for (uint64_t i = 0; i < kKeys / 4; ++i) tree_.Put(random.Below(kKeys));
  ASSERT_GT(tree_.tree().tree().stats().merges, 0u);
  EXPECT_EQ(StaleDigests(kKeys), 0u);
  for (uint64_t i = 0; i < kKeys; ++i) tree_.Delete(i);
  EXPECT_EQ(StaleDigests(kKeys), 0u);
}

TEST_P(FindLeafTest, DigestsOfAStaleCacheDiffer) {
  constexpr uint64_t kKeys = 4'000;
  for (uint64_t i = 0; i < kKeys; i += 2) tree_.Put(i);
  // Another compute server's view, which sees nothing of what follows.
  BlinkTree other(&tree_.tree().pool(), tree_.info(), {});
  dsm::FabricCounts counts;
  OpContext op{tree_.tree().worker(), counts};
  ASSERT_TRUE(tree_.tree().worker().Run(other.WarmCache(op)).ok());
  const uint64_t splits = tree_.tree().tree().stats().splits;
  for (uint64_t i = 1; i < kKeys; i += 2) tree_.Put(i);
  ASSERT_GT(tree_.tree().tree().stats().splits, splits + 10);
  tree_.reader().GoOnline();
  uint64_t differ = 0;
  for (uint64_t i = 0; i < kKeys; ++i) {
    const std::string key = tree_.Key(i);
    const SearchCache::LeafPath path = other.cache().FindLeaf(key);
    ASSERT_TRUE(path.complete);
    const ConstNode leaf = tree_.Node(path.node);
    if (path.fence_digest == FenceDigestOf(leaf)) {
      ASSERT_TRUE(leaf.Covers(key));
    } else {
      ++differ;
    }
  }
  tree_.reader().GoOffline();
  EXPECT_GT(differ, kKeys / 10);
}
INSTANTIATE_TEST_SUITE_P(Layouts, FindLeafTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "Fixed8" : "Bytes"; });

class LearnSplitTest : public testing::TestWithParam<bool> {
 protected:
  CachedTree tree_{GetParam() ? Geometry::Fixed8(256, 1024) : SmallBytes()};
};

TEST_P(LearnSplitTest, AParentLearnsOfOneSplitAndIsReadAgainForTheNext) {
  constexpr uint64_t kKeys = 4'000;
  // Not in the order of keys, which would leave nodes full.
  for (uint64_t i = 0; i < kKeys; i += 2) tree_.Put(i * 1237 % kKeys);
  BlinkTree other(&tree_.tree().pool(), tree_.info(), {});
  dsm::FabricCounts counts;
  OpContext op{tree_.tree().worker(), counts};
  ASSERT_TRUE(tree_.tree().worker().Run(other.WarmCache(op)).ok());
  tree_.reader().GoOnline();
  const auto round_trips = [&](const std::string& key) {
    const uint64_t before = counts.round_trips;
    std::string value;
    EXPECT_TRUE(*tree_.tree().worker().Run(other.Get(op, key, &value)));
    return counts.round_trips - before;
  };
  uint64_t next = 1;
  // A key that a split has just taken to a right sibling, of a leaf that the other's parent names. The
  // parent has room for one more.
  const auto split_away = [&](GlobalAddress parent) -> std::string {
    while (next < kKeys) {
      const std::string key = tree_.Key(next);
      tree_.Put(next);
      next += 2;
      const SearchCache::LeafPath path = other.cache().FindLeaf(key);
      const uint64_t known = other.cache().VersionOf(path.parent);
      const bool wanted = parent.is_null() ? tree_.Node(path.parent, 1).version() == known + 1
                                           : path.parent == parent;
      if (wanted && !tree_.Node(path.node).Covers(key)) return key;
    }
    return "";
  };
  const std::string first = split_away(GlobalAddress());
  ASSERT_NE(first, "");
  const GlobalAddress parent = other.cache().FindLeaf(first).parent;
  const uint64_t version = other.cache().VersionOf(parent);
  EXPECT_EQ(round_trips(first), 2u);
  EXPECT_EQ(other.stats().hop_refresh_bytes, 0u);
  EXPECT_EQ(other.cache().LearnedOf(parent), 1);
  EXPECT_EQ(other.cache().VersionOf(parent), version);
  const SearchCache::LeafPath learned = other.cache().FindLeaf(first);
  EXPECT_EQ(learned.fence_digest, FenceDigestOf(tree_.Node(learned.node)));
  EXPECT_EQ(round_trips(first), 1u);

  const std::string second = split_away(parent);
  ASSERT_NE(second, "");
  EXPECT_EQ(round_trips(second), 3u);
  EXPECT_EQ(other.stats().hop_refresh_bytes, tree_.info().geometry.image_bytes(1));
  EXPECT_EQ(other.cache().LearnedOf(parent), 0);
  EXPECT_GT(other.cache().VersionOf(parent), version);
  EXPECT_EQ(round_trips(first), 1u);
  EXPECT_EQ(round_trips(second), 1u);
  tree_.reader().GoOffline();
}

INSTANTIATE_TEST_SUITE_P(Layouts, LearnSplitTest, testing::Bool(),
                         [](const auto& layout) { return layout.param ? "Fixed8" : "Bytes"; });

TEST(LearnSplitScanTest, AScanReadsALeafThatHasSplitOnceAndItsSiblingNext) {
  CachedTree tree(Geometry::Parted(4));
  constexpr uint64_t kKeys = 4'000;
  for (uint64_t i = 0; i < kKeys; i += 2) tree.Put(i * 1237 % kKeys);
  BlinkTree other(&tree.tree().pool(), tree.info(), {});
  dsm::FabricCounts counts;
  OpContext op{tree.tree().worker(), counts};
  ASSERT_TRUE(tree.tree().worker().Run(other.WarmCache(op)).ok());
  tree.reader().GoOnline();
  SearchCache::LeafPath stale;
  const auto learned = [&] { return other.cache().LearnedOf(stale.parent); };
  const uint64_t splits = tree.tree().tree().stats().splits;
  for (uint64_t i = kKeys / 2 + 1; tree.tree().tree().stats().splits == splits; i += 2) {
    stale = other.cache().FindLeaf(tree.Key(i));
    tree.Put(i);
  }
  ASSERT_EQ(tree.tree().tree().stats().splits, splits + 1);
  ASSERT_TRUE(stale.range.bounded());
  const std::string low = Fixed(stale.range.low), high = Fixed(stale.range.high);
  std::vector<KeyValue> rows;
  const auto round_trips = [&](ScanRange range) {
    const uint64_t before = counts.round_trips;
    EXPECT_TRUE(tree.tree().worker().Run(other.Scan(op, range, &rows)).ok());
    return counts.round_trips - before;
  };
  EXPECT_EQ(learned(), 0);
  // The leaf's parts, which are not as expected, the whole leaf, and its sibling's parts.
  EXPECT_EQ(round_trips({.start = low, .end = high}), 3u);
  EXPECT_EQ(learned(), 1);
  EXPECT_EQ(other.stats().hops, 0u);
  const std::vector<KeyValue> found = rows;
  EXPECT_EQ(round_trips({.start = low, .end = high}), 1u);
  EXPECT_EQ(rows, found);
  BlinkTree fresh(&tree.tree().pool(), tree.info(), {});
  ASSERT_TRUE(tree.tree().worker().Run(fresh.Scan(op, {.start = low, .end = high}, &rows)).ok());
  EXPECT_EQ(rows, found);
  EXPECT_GT(rows.size(), 12u);
  tree.reader().GoOffline();
}

/// A parent of two leaves, the first of which has split.
class LearnedEntryTest : public testing::Test {
 protected:
  LearnedEntryTest() {
    reader_.GoOnline();
    Install(5);
    cache_.set_root({parent_, 1});
  }
  ~LearnedEntryTest() override { reader_.GoOffline(); }

  void Install(uint64_t version) {
    PageBuffer page;
    Node node(kGeometry, page.image(kGeometry, 1));
    node.Init({1, 1, std::nullopt, std::nullopt, GlobalAddress()});
    FARLEAF_CHECK(node.InsertChild(0, node.low(), leaf_) && node.InsertChild(1, Fixed(50), other_));
    node.Seal(version);
    cache_.Install(parent_, node.image());
  }
  bool LearnSplit() {
    PageBuffer page;
    Node leaf(kGeometry, page.image(kGeometry, 0));
    const std::string high = Fixed(30);
    leaf.Init({1, 0, std::nullopt, high, right_});
    leaf.Seal(9);
    return cache_.LearnSplit(parent_, leaf_, leaf);
  }
  GlobalAddress LeafOf(uint64_t key) { return cache_.FindLeaf(Fixed(key)).node; }

  static constexpr Geometry kGeometry{Layout::kFixed8, 256, 256, 8, 8};
  LocalTree tree_;
  const uint64_t chunk_ = tree_.pool().layouts()[0].first_chunk;
  const GlobalAddress parent_{0, chunk_ + 4096}, leaf_{0, chunk_ + 8192}, other_{0, chunk_ + 12288},
      right_{0, chunk_ + 16384};
  dsm::EpochDomain::Participant reader_{&tree_.pool().epochs()};
  SearchCache cache_{kGeometry, 1, tree_.pool().layouts(), &tree_.pool().epochs()};
};

TEST_F(LearnedEntryTest, GoesWhenItsParentIsReadAgain) {
  ASSERT_TRUE(LearnSplit());
  EXPECT_EQ(LeafOf(40), right_);
  EXPECT_EQ(cache_.LearnedOf(parent_), 1);
  Install(5);  // nobody has published it: the right half may have merged again
  EXPECT_EQ(LeafOf(40), leaf_);
  EXPECT_EQ(LeafOf(60), other_);
  EXPECT_EQ(cache_.LearnedOf(parent_), 0);
  ASSERT_TRUE(LearnSplit());
  EXPECT_EQ(LeafOf(40), right_);
}

TEST_F(LearnedEntryTest, StaysWhereAnOlderParentComesLate) {
  ASSERT_TRUE(LearnSplit());
  Install(4);
  EXPECT_EQ(LeafOf(40), right_);
  EXPECT_EQ(cache_.VersionOf(parent_), 5u);
}

TEST(ChildFenceDigestTest, ARunOfOneChildIsOneEntry) {
  for (const Geometry& geometry : {Geometry::Fixed8(256), SmallBytes()}) {
    const auto address = [](uint64_t page) { return GlobalAddress(0, 1 << 20 | page << 10); };
    PageBuffer page;
    Node node(geometry, page.image(geometry, 1));
    node.Init({1, 1, "low-----", "z-------", address(99)});
    const char* separators[] = {"low-----", "m-------", "p-------", "t-------", "x-------"};
    const uint64_t children[] = {1, 2, 2, 2, 3};
    for (size_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(node.InsertChild(i, separators[i], address(children[i])));
    }
    EXPECT_EQ(ChildFenceDigest(node, 0), FenceDigest({0, 1}, "low-----", "m-------"));
    for (size_t i = 1; i <= 3; ++i) {
      EXPECT_EQ(ChildFenceDigest(node, i), FenceDigest({0, 1}, "m-------", "x-------")) << i;
    }
    EXPECT_EQ(ChildFenceDigest(node, 4), FenceDigest({0, 1}, "x-------", "z-------"));
  }
}

}  // namespace
}  // namespace farleaf::index
