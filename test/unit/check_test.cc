// CheckPool: sound trees are found sound, and each kind of damage is found and named.
#include "index/blink/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "dsm/base/random.h"
#include "index/blink/page_header.h"
#include "server/check_report.h"
#include "test/support/pool_pages.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

std::string Describe(const CheckReport& report) {
  std::string text = std::to_string(report.findings.count()) + " findings";
  for (const Finding& finding : report.findings.described()) {
    text += "\n  " + std::string(FindingKindName(finding.kind)) + ": " + finding.text;
  }
  return text;
}

class CheckTest : public testing::Test {
 protected:
  void Load(Geometry geometry, uint64_t keys) {
    tree_ = std::make_unique<LocalTree>(LocalTree::Options{.geometry = geometry});
    pages_ = std::make_unique<PoolPages>(&tree_->fabric(), tree_->tree().info());
    for (uint64_t i = 0; i < keys; ++i) tree_->Put(Key(i), Value(i));
  }
  std::string Key(uint64_t i) const {
    return fixed8() ? Fixed(i * 10) : "key/" + std::to_string(1'000'000 + i);
  }
  std::string Value(uint64_t i) const {
    if (fixed8()) return Fixed(i);
    return std::string(i % 50 == 7 ? 3'000 : i % 30, static_cast<char>('a' + i % 26));
  }
  bool fixed8() const { return tree_->tree().info().geometry.layout == Layout::kFixed8; }
  PoolPages& pages() { return *pages_; }

  CheckReport Check(CheckOptions options = {}) {
    dsm::FabricCounts counts;
    OpContext op{tree_->worker(), counts};
    auto report = tree_->worker().Run(CheckPool(op, tree_->pool(), options));
    FARLEAF_CHECK(report.ok(), report.status());
    return std::move(*report);
  }
  /// That a finding of this kind names this page and says `words`.
  void ExpectFound(FindingKind kind, GlobalAddress address, std::string_view words) {
    const CheckReport report = Check({.looks_max = 2});
    EXPECT_FALSE(report.ok());
    EXPECT_GE(report.findings.count(kind), 1u);
    for (const Finding& finding : report.findings.described()) {
      if (finding.kind == kind && finding.address == address &&
          finding.text.find(words) != std::string::npos &&
          finding.text.find(address.ToString()) != std::string::npos) {
        return;
      }
    }
    ADD_FAILURE() << "no finding '" << FindingKindName(kind) << "' at " << address << " with '"
                  << words << "' among " << Describe(report);
  }

  std::unique_ptr<LocalTree> tree_;
  std::unique_ptr<PoolPages> pages_;
};

TEST_F(CheckTest, EmptyPoolAndEmptyTreeAreClean) {
  Load(Geometry::Fixed8(), 0);
  const CheckReport report = Check();
  EXPECT_TRUE(report.ok()) << Describe(report);
  ASSERT_EQ(report.trees.size(), 1u);
  EXPECT_EQ(report.trees[0].keys(), 0u);
  EXPECT_EQ(report.trees[0].leaves(), 1u);
  EXPECT_EQ(report.trees[0].height(), 1u);
  EXPECT_EQ(report.runs, 1u);
}

TEST_F(CheckTest, CountsWhatIsThere) {
  Load(Geometry::Fixed8(256), 5'000);
  const CheckReport report = Check();
  ASSERT_TRUE(report.ok()) << Describe(report);
  const TreeReport& tree = report.trees[0];
  EXPECT_EQ(tree.keys(), 5'000u);
  EXPECT_EQ(tree.height(), size_t{pages().Root().level} + 1);
  EXPECT_EQ(tree.leaves(), pages().Level(0).size());
  EXPECT_EQ(tree.missing_separators(), 0u);
  EXPECT_EQ(tree.levels[1].entries, tree.leaves());
  EXPECT_GT(tree.levels[0].mean_fill(), 0.4);
  uint64_t nodes = 0, leaf_pages = 0, search_pages = 0;
  for (const LevelReport& level : tree.levels) nodes += level.nodes;
  EXPECT_EQ(tree.pool_bytes(), nodes * 256);
  for (const ServerReport& server : report.servers) {
    leaf_pages += server.pages[size_t(dsm::ChunkKind::kLeaf)].in_use;
    search_pages += server.pages[size_t(dsm::ChunkKind::kSearch)].in_use;
    EXPECT_EQ(server.chunks_of_the_gone, 0u);
    EXPECT_EQ(server.chunks[size_t(dsm::ChunkKind::kRedo)], dsm::RedoAreaChunks(server.layout));
  }
  EXPECT_EQ(leaf_pages, tree.leaves());
  EXPECT_EQ(leaf_pages + search_pages, nodes);
}

TEST_F(CheckTest, TreesUnderRandomChangeStayClean) {
  for (const Geometry& geometry :
       {Geometry::Fixed8(256), Geometry{Layout::kBytes, 512, 512, 60, 40}, Geometry::Bytes(),
        Geometry::Fixed8(), Geometry::Fixed8(2048, 1024), Geometry::Fixed8(256, 512)}) {
    const uint64_t seed = 4242 + geometry.leaf_bytes;
    SCOPED_TRACE("seed " + std::to_string(seed));
    Load(geometry, 0);
    Random random(seed);
    std::map<std::string, bool> model;
    for (int phase = 0; phase < 6; ++phase) {
      const uint64_t deletes = phase % 2 == 1 ? 8 : 2;
      for (int i = 0; i < 4'000; ++i) {
        const uint64_t number = random.Below(3'000);
        if (random.Below(10) < deletes) {
          tree_->Delete(Key(number));
          model.erase(Key(number));
        } else {
          tree_->Put(Key(number), Value(random.Below(3'000)));
          model[Key(number)] = true;
        }
      }
      const CheckReport report = Check();
      ASSERT_TRUE(report.ok()) << Describe(report);
      ASSERT_EQ(report.trees[0].keys(), model.size());
      ASSERT_EQ(report.trees[0].missing_separators(), 0u);
    }
    for (const auto& [key, there] : model) ASSERT_TRUE(tree_->Delete(key));
    const CheckReport report = Check();
    ASSERT_TRUE(report.ok()) << Describe(report);
    EXPECT_EQ(report.keys(), 0u);
    EXPECT_EQ(report.trees[0].values_out_of_line, 0u);
  }
}

TEST_F(CheckTest, SeveralTreesAndAnExtentAreClean) {
  Load(Geometry::Bytes(), 500);
  tree_->Put("big", std::string(3 << 20, 'x'));
  dsm::FabricCounts counts;
  OpContext op{tree_->worker(), counts};
  auto info = tree_->worker().Run(CreateTree(op, tree_->pool(), "second", Geometry::Fixed8(4096)));
  ASSERT_TRUE(info.ok()) << info.status();
  BlinkTree second(&tree_->pool(), *info, {});
  for (uint64_t i = 0; i < 2'000; ++i) {
    auto put = tree_->worker().Run(second.Put(op, Fixed(i), Fixed(i)));
    ASSERT_TRUE(put.ok()) << put.status();
  }
  const CheckReport report = Check({.window_bytes = 1});
  ASSERT_TRUE(report.ok()) << Describe(report);
  EXPECT_EQ(report.keys(), 2'501u);
  EXPECT_EQ(report.trees[0].values_out_of_line, 11u);
  EXPECT_GT(report.trees[0].value_block_bytes, 3u << 20);
}

TEST_F(CheckTest, FlippedByteIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const GlobalAddress leaf = pages().Level(0)[20];
  pages().Bytes(leaf, 256)[100] ^= std::byte{4};
  ExpectFound(FindingKind::kPage, leaf, "fails its checksum; nobody holds its lock");
}

TEST_F(CheckTest, HalfWrittenPageNamesWhoHoldsItsLock) {
  Load(Geometry::Fixed8(256), 1'000);
  const GlobalAddress leaf = pages().Level(0)[20];
  pages().Bytes(leaf, 256)[100] ^= std::byte{4};
  dsm::LockWord lock{dsm::LockWord::State::kLocked, 77, 3, 0, 1};
  pages().SetWord(pages().LockOf(leaf), lock.Encode());
  ExpectFound(FindingKind::kPage, leaf, "locked by compute server 77 (incarnation 3)");
}

TEST_F(CheckTest, LockLeftBehindIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const GlobalAddress leaf = pages().Level(0)[3];
  dsm::LockWord lock{dsm::LockWord::State::kLocked, 77, 3, 0, 1};
  pages().SetWord(pages().LockOf(leaf), lock.Encode());
  ExpectFound(FindingKind::kLock, leaf, "stays locked by compute server 77 (incarnation 3)");
  EXPECT_EQ(Check({.looks_max = 2}).findings.count(), 1u);
}

TEST_F(CheckTest, WrongFenceIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const std::vector<GlobalAddress> leaves = pages().Level(0);
  pages().Change(leaves[5], [](Node& node) {  // bytes 40..47: the high fence
    auto* image = const_cast<std::byte*>(node.image().data());
    StoreBig64(image + 40, LoadBig64(image + 40) + 1);
  });
  ExpectFound(FindingKind::kChain, leaves[6], "but its left sibling " + leaves[5].ToString());
}

TEST_F(CheckTest, EntriesOutOfOrderAreFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const GlobalAddress leaf = pages().Level(0)[5];
  pages().Change(leaf, [](Node& node) {
    auto* image = const_cast<std::byte*>(node.image().data());
    std::swap_ranges(image + 48, image + 56, image + 56);
  });
  ExpectFound(FindingKind::kNode, leaf, "tree 'test'");
}

TEST_F(CheckTest, SeparatorToAFreedPageIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  std::vector<GlobalAddress> before = pages().Level(0);
  for (uint64_t i = 200; i < 500; ++i) tree_->Delete(Key(i));
  const std::vector<GlobalAddress> after = pages().Level(0);
  std::erase_if(before, [&](GlobalAddress a) {
    return std::find(after.begin(), after.end(), a) != after.end();
  });
  ASSERT_FALSE(before.empty());
  const GlobalAddress parent = pages().Level(1)[0];
  pages().Change(parent, [&](Node& node) { node.SetChild(1, before[0]); });
  ExpectFound(FindingKind::kSeparator, parent, before[0].ToString() + ", which is free");
}

TEST_F(CheckTest, SeparatorToALaterNodeIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const GlobalAddress parent = pages().Level(1)[0];
  const GlobalAddress later = pages().At(parent).Child(2);
  pages().Change(parent, [&](Node& node) { node.SetChild(1, later); });
  ExpectFound(FindingKind::kSeparator, parent, "begins only at");
}

TEST_F(CheckTest, MissingSeparatorIsCountedAndNoError) {
  Load(Geometry::Fixed8(256), 1'000);
  pages().Change(pages().Level(1)[0], [](Node& node) { node.RemoveChild(2); });
  const CheckReport report = Check();
  EXPECT_TRUE(report.ok()) << Describe(report);
  EXPECT_EQ(report.trees[0].levels[0].missing_separators, 1u);
  EXPECT_EQ(report.keys(), 1'000u);
}

TEST_F(CheckTest, LeakedPageIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  // Unlink a leaf as a merge does, but give it back to nobody.
  const std::vector<GlobalAddress> leaves = pages().Level(0);
  const GlobalAddress parent = pages().Level(1)[0];
  pages().Change(leaves[1], [&](Node& node) {
    auto* image = const_cast<std::byte*>(node.image().data());
    StoreBig64(image + 40, LoadBig64(pages().At(leaves[2]).high().data()));
    node.set_right(leaves[3]);
  });
  ASSERT_EQ(pages().At(parent).Child(2), leaves[2]);
  pages().Change(parent, [](Node& node) { node.RemoveChild(2); });
  ExpectFound(FindingKind::kLeak, leaves[2], "is in use but nothing leads to it");
  dsm::LockWord lock{dsm::LockWord::State::kLocked, 77, 3, 0, 1};
  pages().SetWord(pages().LockOf(leaves[2]), lock.Encode());
  ExpectFound(FindingKind::kLeak, leaves[2], "it is locked by compute server 77");
}

TEST_F(CheckTest, PageReachedTwiceIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const std::vector<GlobalAddress> leaves = pages().Level(0);
  pages().Change(leaves[5], [&](Node& node) { node.set_right(leaves[2]); });
  ExpectFound(FindingKind::kOwnership, leaves[2], "is reached twice");
}

TEST_F(CheckTest, DeadNodeInAChainIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const std::vector<GlobalAddress> leaves = pages().Level(0);
  pages().Change(leaves[5], [&](Node& node) { node.MarkDead(leaves[4]); });
  ExpectFound(FindingKind::kChain, leaves[5], "is dead");
}

TEST_F(CheckTest, FreePageInAChainIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const GlobalAddress leaf = pages().Level(0)[5];
  dsm::LockWord lock{dsm::LockWord::State::kFreePage, 9, 1, 0, 0};
  pages().SetWord(pages().LockOf(leaf), lock.Encode());
  ExpectFound(FindingKind::kOwnership, leaf, "is free (held by compute server 9)");
}

TEST_F(CheckTest, WrongLevelIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const GlobalAddress leaf = pages().Level(0)[5], inner = pages().Level(1)[0];
  pages().Change(pages().Level(0)[4], [&](Node& node) { node.set_right(inner); });
  ExpectFound(FindingKind::kOwnership, inner, "is reached twice");
  Load(Geometry::Fixed8(256), 1'000);
  const GlobalAddress target = pages().Level(0)[5];
  pages().Change(target, [](Node& node) {
    const_cast<std::byte*>(node.image().data())[offsetof(internal::PageHeader, level)] =
        std::byte{1};
  });
  EXPECT_EQ(target, leaf);
  ExpectFound(FindingKind::kChain, target, "is a node of level 1");
}

TEST_F(CheckTest, PageOfAnUnknownTreeIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const GlobalAddress leaf = pages().Level(0)[5];
  pages().Change(leaf, [](Node& node) {
    const_cast<std::byte*>(node.image().data())[offsetof(internal::PageHeader, tree)] =
        std::byte{99};
  });
  ExpectFound(FindingKind::kPage, leaf, "tree 99, which the catalog does not list");
}

TEST_F(CheckTest, ChangeCounterOutOfStepIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const GlobalAddress inner = pages().Level(1)[0];
  Node node = pages().At(inner);
  node.Seal(node.version() + 1);
  ExpectFound(FindingKind::kCounter, inner, "its change counter says");
}

TEST_F(CheckTest, ValueBlockWithAnotherIdIsFound) {
  Load(Geometry::Bytes(), 300);
  const GlobalAddress leaf = pages().LeafOf(Key(57));
  ConstNode node = pages().At(leaf);
  const auto at = node.Search(Key(57));
  ASSERT_TRUE(at.found && node.Value(at.index).out_of_line);
  OutOfLineValue value = DecodeOutOfLine(node.Value(at.index).bytes);
  value.unique_id += 1 << 26;
  char encoded[kOutOfLineBytes];
  EncodeOutOfLine(value, encoded);
  pages().Change(leaf, [&](Node& changed) {
    ASSERT_TRUE(changed.ReplaceValue(at.index, {{encoded, sizeof encoded}, true}));
  });
  ExpectFound(FindingKind::kValue, leaf, value.block.ToString() + ", which holds another value");
}

TEST_F(CheckTest, DamagedAndFreedAndSharedValueBlocksAreFound) {
  Load(Geometry::Bytes(), 300);
  const auto block_of = [this](uint64_t i) {
    ConstNode node = pages().At(pages().LeafOf(Key(i)));
    return DecodeOutOfLine(node.Value(node.Search(Key(i)).index).bytes);
  };
  const GlobalAddress damaged = block_of(57).block;
  pages().Bytes(damaged, 100)[99] ^= std::byte{1};
  ExpectFound(FindingKind::kValue, damaged, "fails its checksum");
  pages().Bytes(damaged, 100)[99] ^= std::byte{1};
  ASSERT_TRUE(Check().ok());

  const GlobalAddress leaf = pages().LeafOf(Key(107));
  char encoded[kOutOfLineBytes];
  EncodeOutOfLine(block_of(57), encoded);
  const GlobalAddress leaked = block_of(107).block;
  pages().Change(leaf, [&](Node& node) {
    ASSERT_TRUE(node.ReplaceValue(node.Search(Key(107)).index, {{encoded, sizeof encoded}, true}));
  });
  ExpectFound(FindingKind::kOwnership, leaf, "which is reached twice");
  ExpectFound(FindingKind::kLeak, leaked, "is in use but nothing leads to it");
  dsm::LockWord free{dsm::LockWord::State::kFreePage, 0, 0, 0, 0};
  pages().SetWord(damaged, free.Encode());
  ExpectFound(FindingKind::kValue, leaf, "which is free (in the pool's list)");
}

TEST_F(CheckTest, CatalogLockLeftBehindIsFound) {
  Load(Geometry::Fixed8(), 10);
  dsm::LockWord lock{dsm::LockWord::State::kLocked, 77, 3, 0, 1};
  pages().SetWord({dsm::kCatalogServer, dsm::kCatalogOffset}, lock.Encode());
  const CheckReport report = Check({.looks_max = 2});
  ASSERT_EQ(report.findings.count(), 1u) << Describe(report);
  EXPECT_EQ(report.findings.described()[0].text,
            "the catalog stays locked by compute server 77 (incarnation 3)");
}

TEST_F(CheckTest, RootWordToNowhereIsFound) {
  Load(Geometry::Fixed8(256), 1'000);
  const GlobalAddress nowhere(1, 63 << 20);
  pages().SetWord({dsm::kCatalogServer, tree_->tree().info().root_word_offset()},
                  RootWord{nowhere, 2}.Encode());
  ExpectFound(FindingKind::kOwnership, nowhere, "named by its root word, is no page in use");
}

TEST_F(CheckTest, LostServerIsAFailureThatNamesIt) {
  Load(Geometry::Fixed8(256), 1'000);
  tree_->fabric().KillServer(1);
  dsm::FabricCounts counts;
  OpContext op{tree_->worker(), counts};
  auto report = tree_->worker().Run(CheckPool(op, tree_->pool(), {}));
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(report.status().message().find("memory server 1"), std::string::npos)
      << report.status();
}

TEST_F(CheckTest, FreeListsAreAccountedFor) {
  LocalTree::Options options{.geometry = Geometry::Fixed8(256)};
  options.pool.allocator = {.grace_ms = 0, .local_free_pages_max = 8};
  tree_ = std::make_unique<LocalTree>(options);
  pages_ = std::make_unique<PoolPages>(&tree_->fabric(), tree_->tree().info());
  for (uint64_t i = 0; i < 5'000; ++i) tree_->Put(Key(i), Value(i));
  for (uint64_t i = 100; i < 5'000; ++i) tree_->Delete(Key(i));
  const CheckReport report = Check();
  ASSERT_TRUE(report.ok()) << Describe(report);
  uint64_t listed = 0, free = 0;
  for (const ServerReport& server : report.servers) {
    listed += server.listed_free_pages;
    free += server.pages[size_t(dsm::ChunkKind::kLeaf)].free +
            server.pages[size_t(dsm::ChunkKind::kSearch)].free;
    EXPECT_EQ(server.free_pages_of_the_gone, 0u);
  }
  EXPECT_GT(listed, 100u);
  EXPECT_GE(free, listed);

  const uint32_t list = dsm::FreeListIndex({dsm::ChunkKind::kLeaf, 256, 0});
  const GlobalAddress head(0, dsm::kFreeListsOffset + list * 8);
  const GlobalAddress carrier(0, (pages().Word(head) & ((uint64_t{1} << 42) - 1)) * 64);
  pages().SetWord(pages().LockOf(carrier), 0);
  ExpectFound(FindingKind::kFreeList, carrier, "is in a free list of the pool but not free");
  pages().SetWord(head, 7);  // leads outside the chunks
  EXPECT_GE(Check({.looks_max = 2}).findings.count(FindingKind::kFreeList), 1u);
}

TEST_F(CheckTest, ReportIsPrintedAsTextAndAsJson) {
  Load(Geometry::Bytes(), 300);
  const CheckReport clean = Check();
  const std::string text = server::CheckReportText(clean);
  EXPECT_NE(text.find("test                 bytes            300"), std::string::npos) << text;
  EXPECT_NE(text.find("\nno errors\n"), std::string::npos) << text;
  const auto json = server::CheckReportJson(clean);
  EXPECT_EQ(json["ok"], true);
  EXPECT_EQ(json["trees"][0]["keys"], 300);
  EXPECT_EQ(json["trees"][0]["values_out_of_line"], 6);
  EXPECT_EQ(json["memory_servers"].size(), 2u);

  const GlobalAddress leaf = pages().LeafOf(Key(0));
  pages().Bytes(leaf, 4096)[100] ^= std::byte{4};
  const CheckReport damaged = Check({.looks_max = 1});
  EXPECT_EQ(server::CheckReportJson(damaged)["ok"], false);
  EXPECT_NE(server::CheckReportText(damaged).find("page: page " + leaf.ToString() + " fails"),
            std::string::npos)
      << server::CheckReportText(damaged);
}

TEST_F(CheckTest, AllFindingsAreCountedAndTheFirstDescribed) {
  Load(Geometry::Fixed8(256), 1'000);
  for (GlobalAddress leaf : pages().Level(0)) {
    dsm::LockWord lock{dsm::LockWord::State::kLocked, 77, 3, 0, 1};
    pages().SetWord(pages().LockOf(leaf), lock.Encode());
  }
  const CheckReport report = Check({.findings_max = 5, .looks_max = 1});
  EXPECT_EQ(report.findings.count(FindingKind::kLock), pages().Level(0).size());
  EXPECT_EQ(report.findings.described().size(), 5u);
}

}  // namespace
}  // namespace farleaf::index
