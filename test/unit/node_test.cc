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
            "invalid argument: leaf_bytes is 192, must be 256..4096");
  EXPECT_EQ(Geometry::Fixed8(1000).Validate().ToString(),
            "invalid argument: leaf_bytes is 1000, must be a multiple of 64");
  EXPECT_FALSE((Geometry{Layout::kFixed8, 1024, 1024, 16, 8}.Validate().ok()));
  EXPECT_FALSE((Geometry{Layout::kFixed8, 1024, 1024, 8, 16}.Validate().ok()));
  EXPECT_FALSE((Geometry{Layout::kBytes, 4096, 4096, 1025, 8}.Validate().ok()));
  EXPECT_FALSE((Geometry{Layout::kBytes, 4096, 4096, 0, 8}.Validate().ok()));
  EXPECT_FALSE((Geometry{Layout::kBytes, 4096, 4096, 8, UINT32_MAX}.Validate().ok()));
  const Status tight = Geometry{Layout::kBytes, 1024, 1024, 300, 100}.Validate();
  EXPECT_NE(tight.message().find("needs leaf_bytes of 1172, not 1024"), std::string::npos) << tight;
}

TEST(GeometryTest, LeavesAndInternalNodesHaveTheirOwnPageSize) {
  const Geometry geometry = Geometry::Fixed8(2048, 1024);
  EXPECT_TRUE(geometry.Validate().ok()) << geometry.Validate();
  EXPECT_EQ(geometry.image_bytes(0), 2040u);
  EXPECT_EQ(geometry.image_bytes(1), 1016u);
  EXPECT_EQ(geometry.image_bytes(kLevelMax), 1016u);
  EXPECT_EQ(Geometry::Fixed8(1024, 100).Validate().ToString(),
            "invalid argument: node_bytes is 100, must be 256..4096");
  const Status tight = Geometry{Layout::kBytes, 2048, 1024, 300, 100}.Validate();
  EXPECT_NE(tight.message().find("needs node_bytes of 1172, not 1024"), std::string::npos) << tight;
}

TEST(GeometryTest, PartedLeavesAreOfFixed8AndHaveWholeParts) {
  Geometry geometry = Geometry::Fixed8(1088, 1024);
  geometry.leaf_layout = LeafLayout::kParted;
  EXPECT_TRUE(geometry.Validate().ok()) << geometry.Validate();
  for (uint32_t leaf_bytes : {256u, 448u, 1024u, 4096u}) {
    geometry.leaf_bytes = leaf_bytes;
    EXPECT_NE(geometry.Validate().message().find("must be 64 + 128 * parts"), std::string::npos);
  }
  for (uint32_t leaf_bytes : {576u, 4032u}) {
    geometry.leaf_bytes = leaf_bytes;
    EXPECT_TRUE(geometry.Validate().ok()) << geometry.Validate();
  }
  Geometry bytes = Geometry::Bytes();
  bytes.leaf_layout = LeafLayout::kParted;
  EXPECT_NE(bytes.Validate().message().find("not of byte strings"), std::string::npos);
  bytes.leaf_layout = static_cast<LeafLayout>(3);
  EXPECT_EQ(bytes.Validate().ToString(), "invalid argument: leaf_layout is 3, must be 1..2");
}

TEST(GeometryTest, AnImageOfTheOtherLevelsSizeIsMalformed) {
  const Geometry geometry = Geometry::Fixed8(512, 256);
  std::vector<std::byte> image(geometry.image_bytes(1));
  Node node(geometry, image);
  node.Init({.tree = 1, .level = 0});
  node.Seal(1);
  EXPECT_EQ(ConstNode::Open(geometry, image), OpenOutcome::kMalformed);
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

TEST_P(NodeTest, SearchFindsTheChildForAKeyAndTheOneBelow) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    KeySource keys(geometry, &random);
    auto [low, high] = keys.Fences();
    NodeImage page(geometry);
    page->Init({7, 1, low, high, high ? GlobalAddress(1, 4096) : GlobalAddress()});
    std::map<std::string, std::string> model;
    PendingStorage storage;
    FillUntilRefused(&keys, low, high, &*page, &model, &storage);
    for (int i = 0; i < 300; ++i) {
      const std::string key = keys.Between(low, high, model);
      const auto after = model.upper_bound(key), at = model.lower_bound(key);
      const auto index_for = std::distance(model.begin(), after) - 1;
      const auto index_below = std::max<long>(std::distance(model.begin(), at) - 1, 0);
      ASSERT_EQ(page->ChildIndexFor(key), static_cast<size_t>(index_for));
      ASSERT_EQ(page->ChildIndexBelow(key), static_cast<size_t>(index_below));
      ASSERT_EQ(ChildText(page->Child(page->ChildIndexFor(key))), std::prev(after)->second);
      size_t entry = 0;
      for (const auto& [separator, child] : model) {
        const int order = page->CompareKey(entry++, key), expected = separator.compare(key);
        ASSERT_EQ(order < 0, expected < 0);
        ASSERT_EQ(order > 0, expected > 0);
      }
    }
  }
}

TEST_P(NodeTest, FencesDecideWhatIsCovered) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    KeySource keys(geometry, &random);
    auto [low, high] = keys.Fences();
    NodeImage page(geometry);
    page->Init({7, 0, low, high, high ? GlobalAddress(1, 4096) : GlobalAddress()});
    for (int i = 0; i < 20; ++i) {
      const std::string key = i == 0 && low ? *low : i == 1 && high ? *high : keys.Key();
      EXPECT_EQ(page->BelowLow(key), low && key < *low);
      EXPECT_EQ(page->AtOrPastHigh(key), high && key >= *high);
      EXPECT_EQ(page->PastHigh(key), high && key > *high);
      EXPECT_EQ(page->LowEquals(key), low && key == *low);
      EXPECT_EQ(page->HighEquals(key), high && key == *high);
      if (page->BelowLow(key)) {
        EXPECT_EQ(page->Search(key).index, 0u);
      }
    }
  }
}

TEST_P(NodeTest, AppendToTheRightmostNodeLeavesTheLeftOneFull) {
  NodeImage full(geometry), left(geometry), right(geometry);
  full->Init({7, 0, std::nullopt, std::nullopt, GlobalAddress()});
  const std::string value(8, 'v');
  std::string key(8, '\0');
  uint64_t next = 0;
  do {
    StoreBig64(key.data(), ++next);
  } while (full->Insert(full->count(), key, {value, false}));
  SplitNode(*full, {key, {value, false}, {}, false}, GlobalAddress(1, 64), &*left, &*right);
  EXPECT_GE(left->count() + 1, full->count());  // the new high fence may cost one
  EXPECT_LE(right->count(), 2u);
  EXPECT_EQ(right->Key(right->count() - 1), key);
}

TEST_P(NodeTest, MergedRunOfOneChildIsKeptOnce) {
  NodeImage left(geometry), right(geometry), merged(geometry);
  const std::string middle(8, 'm'), last(8, 'x');
  const GlobalAddress a(0, 64), b(0, 128), c(0, 192);
  left->Init({7, 1, std::nullopt, middle, GlobalAddress(1, 64)});
  left->InsertChild(0, left->low(), a);
  left->InsertChild(1, std::string(8, 'b'), b);
  right->Init({7, 1, middle, std::nullopt, GlobalAddress()});
  right->InsertChild(0, middle, b);
  right->InsertChild(1, last, c);
  ASSERT_TRUE(FitsMerged(*left, *right, 1.0));
  MergeNodes(*left, *right, &*merged);
  ASSERT_EQ(merged->count(), 3u);
  EXPECT_EQ(merged->Child(merged->ChildIndexFor(middle)), b);
  EXPECT_EQ(merged->Child(merged->ChildIndexFor(last)), c);
}

TEST_P(NodeTest, AnAddressWhereNoPageCanBeIsMalformedThoughTheChecksumAgrees) {
  const GlobalAddress good(0, 128);
  for (const GlobalAddress odd :
       {GlobalAddress(0, 132), GlobalAddress(0, 8), GlobalAddress(3, 1)}) {
    for (const bool at_child : {true, false}) {
      NodeImage page(geometry);
      page->Init({7, 1, std::nullopt, std::string(8, 'm'), at_child ? good : odd});
      page->InsertChild(0, page->low(), good);
      page->InsertChild(1, std::string(8, 'b'), at_child ? odd : good);
      page->Seal(1);
      EXPECT_EQ(ConstNode::Open(geometry, page.image()), OpenOutcome::kMalformed) << odd;
    }
  }
}

TEST_P(NodeTest, FitsMergedHonoursTheFillLimit) {
  NodeImage left(geometry), right(geometry);
  const std::string middle(8, 'm');
  left->Init({7, 0, std::nullopt, middle, GlobalAddress(1, 64)});
  right->Init({7, 0, middle, std::nullopt, GlobalAddress()});
  EXPECT_TRUE(FitsMerged(*left, *right, 0.0));
  ASSERT_TRUE(left->Insert(0, std::string(8, 'a'), {"12345678", false}));
  ASSERT_TRUE(right->Insert(0, std::string(8, 'z'), {"12345678", false}));
  EXPECT_FALSE(FitsMerged(*left, *right, 0.0));
  NodeImage merged(geometry);
  MergeNodes(*left, *right, &*merged);
  const double fill = static_cast<double>(merged->used_bytes()) / merged->capacity_bytes();
  EXPECT_TRUE(FitsMerged(*left, *right, fill + 1e-9));
  EXPECT_FALSE(FitsMerged(*left, *right, fill - 1e-3));
}

TEST(BytesNodeTest, KeysDropWhatTheyShareWithTheLowFence) {
  const Geometry geometry{Layout::kBytes, 4096, 4096, 200, 8};
  const std::string path = "/usr/share/doc/";
  NodeImage with(geometry), without(geometry);
  with->Init({1, 0, path, std::nullopt, GlobalAddress()});
  without->Init({1, 0, std::nullopt, std::nullopt, GlobalAddress()});
  const auto fill = [&path](Node& node) {
    size_t i = 0;
    while (node.Insert(i, path + std::to_string(1000 + i), {"", false})) ++i;
    return i;
  };
  // 10 + 4 bytes an entry against 10 + 19.
  EXPECT_EQ(fill(*with), (4088 - 44 - path.size()) / 14);
  EXPECT_EQ(fill(*without), (4088 - 44) / 29);
}

TEST(BytesNodeTest, LeafSeparatorIsTheShortest) {
  const Geometry geometry = Geometry::Bytes();
  NodeImage full(geometry), left(geometry), right(geometry);
  full->Init({1, 0, std::nullopt, std::nullopt, GlobalAddress()});
  ASSERT_TRUE(full->Insert(0, "apple-" + std::string(900, 'a'), {"", false}));
  ASSERT_TRUE(full->Insert(1, "apricot-" + std::string(900, 'a'), {"", false}));
  EXPECT_EQ(SplitNode(*full, {"a", {"", false}, {}, false}, GlobalAddress(1, 64), &*left, &*right),
            "apr");
}

// Keys as long as they may be, foreign fences, and neighbours that differ in their last byte only:
// the separators are as long as the keys. Pages that drop only what both fences share cannot split
// this one.
TEST(BytesNodeTest, LongestKeysBetweenForeignFencesSplit) {
  const Geometry geometry = Geometry::Bytes();
  const std::string low(1024, 'a'), high(1024, 'z'), stem(1023, 'm');
  for (size_t pending_at = 0; pending_at < 3; ++pending_at) {
    for (uint32_t small : {0u, 100u, geometry.inline_value_bytes_max}) {
      NodeImage full(geometry), left(geometry), right(geometry);
      full->Init({1, 0, low, high, GlobalAddress(1, 4096)});
      const std::string big_value(geometry.inline_value_bytes_max, 'v'), value(small, 'w');
      std::map<std::string, std::string> model;
      std::string pending_key;
      for (size_t i = 0; i < 3; ++i) {
        const std::string key = stem.substr(0, i == pending_at ? 1023 : 987) + "135"[i];
        if (i == pending_at) {
          pending_key = key;
          model[key] = big_value;
        } else if (full->Insert(full->Search(key).index, key, {value, false})) {
          model[key] = value;
        }
      }
      ASSERT_GE(full->count(), 1u);
      SplitNode(*full, {pending_key, {big_value, false}, {}, false}, GlobalAddress(2, 64), &*left,
                &*right);
      auto both = EntriesOf(*left);
      both.merge(EntriesOf(*right));
      EXPECT_EQ(both, model);
    }
  }
}

TEST(BytesNodeTest, EveryReplacementFitsALeafOfOneEntry) {
  const Geometry geometry = Geometry::Bytes();
  NodeImage page(geometry);
  page->Init({1, 0, std::string(1024, 'a'), std::string(1024, 'z'), GlobalAddress(1, 64)});
  ASSERT_TRUE(page->Insert(0, std::string(1024, 'm'), {"", false}));
  for (uint32_t bytes = 0; bytes <= geometry.inline_value_bytes_max; ++bytes) {
    const std::string value(bytes, static_cast<char>(bytes));
    ASSERT_TRUE(page->ReplaceValue(0, {value, false})) << bytes;
    ASSERT_EQ(page->Value(0).bytes, value);
  }
  ASSERT_TRUE(page->ReplaceValue(0, {std::string(kOutOfLineBytes, 'o'), true}));
  EXPECT_TRUE(page->Value(0).out_of_line);
}

INSTANTIATE_TEST_SUITE_P(Geometries, NodeTest, ::testing::ValuesIn(TestGeometries()),
                         [](const auto& param) { return GeometryName(param.param); });

}  // namespace
}  // namespace farleaf::index
