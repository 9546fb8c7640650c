// Nodes against std::map: single nodes under random changes, splits and merges, for both layouts.
#include "index/blink/node.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "dsm/base/random.h"
#include "test/support/node_fixture.h"

namespace farleaf::index {
namespace {

TEST(GeometryTest, DefaultsAreValid) {
  EXPECT_TRUE(Geometry::Fixed8().Validate().ok());
  EXPECT_TRUE(Geometry::Fixed8(256).Validate().ok());
  EXPECT_TRUE(Geometry::Bytes().Validate().ok()) << Geometry::Bytes().Validate();
}

TEST(GeometryTest, RefusalNamesFieldValueAndRange) {
  EXPECT_EQ(Geometry::Fixed8(192).Validate().ToString(),
            "invalid argument: page_bytes is 192, must be 256..4096");
  EXPECT_EQ(Geometry::Fixed8(1000).Validate().ToString(),
            "invalid argument: page_bytes is 1000, must be a multiple of 64");
  EXPECT_FALSE((Geometry{Layout::kFixed8, 1024, 16, 8}.Validate().ok()));
  EXPECT_FALSE((Geometry{Layout::kFixed8, 1024, 8, 16}.Validate().ok()));
  EXPECT_FALSE((Geometry{Layout::kBytes, 4096, 1025, 8}.Validate().ok()));
  EXPECT_FALSE((Geometry{Layout::kBytes, 4096, 0, 8}.Validate().ok()));
  EXPECT_FALSE((Geometry{Layout::kBytes, 4096, 8, UINT32_MAX}.Validate().ok()));
  const Status tight = Geometry{Layout::kBytes, 1024, 300, 100}.Validate();
  EXPECT_NE(tight.message().find("needs page_bytes of 1172, not 1024"), std::string::npos) << tight;
}

class NodeTest : public ::testing::TestWithParam<Geometry> {
 protected:
  const Geometry geometry = GetParam();
  NodeTest() { EXPECT_TRUE(geometry.Validate().ok()) << geometry.Validate(); }
};

TEST_P(NodeTest, LeafBehavesLikeMap) {
  size_t refused = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    KeySource keys(geometry, &random);
    NodeImage page(geometry);
    auto [low, high] = keys.Fences();
    page->Init({7, 0, low, high, high ? GlobalAddress(1, 4096) : GlobalAddress()});
    std::map<std::string, std::string> model;
    for (int step = 0; step < 900; ++step) {
      const std::string key = keys.Between(low, high, model);
      const std::string value = keys.Value();
      const auto at = page->Search(key);
      const auto model_at = model.find(key);
      ASSERT_EQ(at.found, model_at != model.end());
      ASSERT_EQ(at.index,
                static_cast<size_t>(std::distance(model.begin(), model.lower_bound(key))));
      if (at.found && random.OneIn(6)) {
        page->Remove(at.index);
        model.erase(model_at);
      } else if (at.found) {
        if (page->ReplaceValue(at.index, Stored(value))) {
          model[key] = value;
        } else {
          ++refused;
        }
      } else if (page->Insert(at.index, key, Stored(value))) {
        model[key] = value;
      } else {
        ++refused;
        ASSERT_GT(page->used_bytes() + keys.EntryBytesMax(), page->capacity_bytes());
      }
      ASSERT_LE(page->used_bytes(), page->capacity_bytes());
      if (step % 16 == 0) {
        ASSERT_EQ(EntriesOf(*page), model) << "step " << step;
      }
    }
    ASSERT_EQ(EntriesOf(*page), model);
    page->Seal(seed);
    ASSERT_TRUE(page->Validate().ok()) << page->Validate();
    EXPECT_EQ(page->version(), seed);
    EXPECT_TRUE(page.LockWordUntouched());
  }
  EXPECT_GT(refused, 0u);
}

TEST_P(NodeTest, SplitsAndMergesKeepEveryEntryAndTheFences) {
  size_t splits = 0, merges = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    KeySource keys(geometry, &random);
    const Level level = random.OneIn(2) ? 0 : 2;
    NodeImage full(geometry);
    auto [low, high] = keys.Fences();
    full->Init({7, level, low, high, high ? GlobalAddress(1, 4096) : GlobalAddress()});
    std::map<std::string, std::string> model;
    PendingStorage storage;
    const auto pending = FillUntilRefused(&keys, low, high, &*full, &model, &storage);
    full->Seal(seed);
    ASSERT_TRUE(full->Validate().ok()) << full->Validate();
    if (!pending || (pending->replaces && model.size() < 2)) continue;

    NodeImage left(geometry), right(geometry);
    const std::string separator =
        SplitNode(*full, *pending, GlobalAddress(2, 8192), &*left, &*right);
    ++splits;
    left->Seal(1);
    right->Seal(1);
    ASSERT_TRUE(left->Validate().ok()) << left->Validate();
    ASSERT_TRUE(right->Validate().ok()) << right->Validate();
    EXPECT_TRUE(left.LockWordUntouched() && right.LockWordUntouched());
    EXPECT_GE(left->count(), 1u);
    EXPECT_GE(right->count(), 1u);
    EXPECT_EQ(left->has_low(), low.has_value());
    EXPECT_EQ(left->low(), full->low());
    EXPECT_EQ(left->high(), separator);
    EXPECT_EQ(right->low(), separator);
    EXPECT_EQ(right->has_high(), high.has_value());
    if (high) {
      EXPECT_EQ(right->high(), *high);
    }
    EXPECT_EQ(left->right(), GlobalAddress(2, 8192));
    EXPECT_EQ(right->right(), full->right());
    EXPECT_EQ(left->level(), level);
    EXPECT_EQ(left->tree(), 7);
    model[storage.key] = level == 0 ? storage.value : ChildText(pending->child);
    auto both = EntriesOf(*left);
    both.merge(EntriesOf(*right));
    ASSERT_EQ(both, model);

    // Thin both out until they fit one node, then merge.
    while (!FitsMerged(*left, *right, 1.0)) {
      Node& victim = left->count() >= right->count() ? *left : *right;
      ASSERT_GT(victim.count(), level == 0 ? 0u : 1u);
      model.erase(victim.Key(victim.count() - 1));
      if (level == 0) {
        victim.Remove(victim.count() - 1);
      } else {
        victim.RemoveChild(victim.count() - 1);
      }
    }
    NodeImage merged(geometry);
    MergeNodes(*left, *right, &*merged);
    ++merges;
    merged->Seal(2);
    ASSERT_TRUE(merged->Validate().ok()) << merged->Validate();
    EXPECT_EQ(merged->low(), full->low());
    EXPECT_EQ(merged->has_high(), high.has_value());
    if (high) {
      EXPECT_EQ(merged->high(), *high);
    }
    EXPECT_EQ(merged->right(), full->right());
    ASSERT_EQ(EntriesOf(*merged), model);
  }
  EXPECT_GT(splits, 150u);
  EXPECT_GT(merges, 150u);
}

INSTANTIATE_TEST_SUITE_P(Geometries, NodeTest, ::testing::ValuesIn(TestGeometries()),
                         [](const auto& param) { return GeometryName(param.param); });

}  // namespace
}  // namespace farleaf::index
