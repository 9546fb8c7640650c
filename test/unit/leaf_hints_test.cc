// LeafHints: a word a leaf, of the size that was promised.
#include "index/blink/leaf_hints.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <vector>

#include "dsm/base/random.h"

namespace farleaf::index {
namespace {

using dsm::GlobalAddress;

std::vector<dsm::RegionLayout> Layouts(uint32_t servers) {
  std::vector<dsm::RegionLayout> layouts;
  for (uint32_t i = 0; i < servers; ++i) {
    layouts.push_back(*dsm::RegionLayout::For(static_cast<dsm::ServerId>(i), uint64_t{64} << 20,
                                              dsm::kChunkBytesDefault));
  }
  return layouts;
}

class LeafHintsTest : public testing::TestWithParam<uint32_t> {};

TEST_P(LeafHintsTest, EveryLeafHasAWordOfItsOwn) {
  const uint32_t leaf_bytes = GetParam();
  const auto layouts = Layouts(3);
  LeafHints hints(leaf_bytes, layouts);
  std::map<uint64_t, uint64_t> expected;
  for (const dsm::RegionLayout& layout : layouts) {
    for (const uint64_t chunk : {uint64_t{0}, uint64_t{5}, layout.chunk_count - 1}) {
      for (uint64_t page = 0; page < layout.chunk_bytes / leaf_bytes; ++page) {
        const GlobalAddress leaf(layout.server, layout.ChunkOffset(chunk) + page * leaf_bytes);
        ASSERT_EQ(hints.Load(leaf), 0u);
        hints.Update(leaf, 0, leaf.word());
        expected[leaf.word()] = leaf.word();
      }
    }
  }
  for (const auto& [address, word] : expected) {
    ASSERT_EQ(hints.Load(GlobalAddress::FromWord(address)), word);
  }
}
INSTANTIATE_TEST_SUITE_P(LeafBytes, LeafHintsTest,
                         testing::Values(128, 192, 256, 320, 448, 512, 704, 1024, 1088, 4096, 8192),
                         [](const auto& test) { return std::to_string(test.param); });

TEST(LeafHintsTest, BitsAreClearedThenSet) {
  const auto layouts = Layouts(1);
  LeafHints hints(512, layouts);
  const GlobalAddress leaf(0, layouts[0].ChunkOffset(1));
  hints.Update(leaf, 0, 0xff00);
  hints.Update(leaf, 0x0f00, 0x0101);
  EXPECT_EQ(hints.Load(leaf), 0xf101u);
  hints.Update(leaf, ~uint64_t{0}, 0);
  EXPECT_EQ(hints.Load(leaf), 0u);
}

TEST(LeafHintsTest, AddressesOutsideOfChunksHaveNone) {
  const auto layouts = Layouts(1);
  LeafHints hints(512, layouts);
  for (const GlobalAddress nowhere :
       {GlobalAddress(), GlobalAddress(0, 64), GlobalAddress(0, layouts[0].region_bytes),
        GlobalAddress(0, GlobalAddress::kOffsetMax), GlobalAddress(1, layouts[0].first_chunk)}) {
    hints.Update(nowhere, 0, 1);
    EXPECT_EQ(hints.Load(nowhere), 0u) << nowhere;
  }
}

TEST(LeafHintsTest, MemoryIsThatOfTheChunksMet) {
  const auto layouts = Layouts(2);
  LeafHints hints(512, layouts);
  const uint64_t tables = hints.bytes();
  EXPECT_EQ(tables, 2 * layouts[0].chunk_count * 8);
  for (uint64_t page = 0; page < 100; ++page) {
    hints.Update({1, layouts[1].ChunkOffset(3) + page * 512}, 0, 1);
  }
  EXPECT_EQ(hints.Load({1, layouts[1].ChunkOffset(2)}), 0u);  // a look allocates nothing
  EXPECT_EQ(hints.bytes(), tables + (dsm::kChunkBytesDefault / 512 + 1) * 8);
}

TEST(LeafHintsTest, ThreadsThatMeetAChunkAtOnceShareItsWords) {
  const auto layouts = Layouts(1);
  constexpr uint64_t kThreads = 4;
  for (uint64_t round = 0; round < 50; ++round) {
    LeafHints hints(512, layouts);
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (uint64_t page = t; page < 512; page += kThreads) {
          hints.Update({0, layouts[0].ChunkOffset(page % 8) + page * 512}, 0, page + 1);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint64_t page = 0; page < 512; ++page) {
      ASSERT_EQ(hints.Load({0, layouts[0].ChunkOffset(page % 8) + page * 512}), page + 1);
    }
    ASSERT_EQ(hints.bytes(),
              layouts[0].chunk_count * 8 + 8 * (dsm::kChunkBytesDefault / 512 + 1) * 8);
  }
}

}  // namespace
}  // namespace farleaf::index
