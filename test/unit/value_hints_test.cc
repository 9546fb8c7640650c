// ValueHints: what they remember, and for how long; and what gets pay with them and without.
#include "index/blink/value_hints.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "dsm/base/random.h"
#include "test/support/other_view.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

std::vector<dsm::RegionLayout> Layouts(uint64_t region_bytes) {
  std::vector<dsm::RegionLayout> layouts;
  for (dsm::ServerId server = 0; server < 3; ++server) {
    layouts.push_back(*dsm::RegionLayout::For(server, region_bytes, uint64_t{1} << 20));
  }
  return layouts;
}

uint64_t HashOf(uint64_t i) { return ValueHints::HashOf(1, std::to_string(i)); }

/// A block of its own for each number.
ValueHint HintOf(uint64_t i) {
  return {{static_cast<dsm::ServerId>(i % 3), (uint64_t{8} << 20) + i / 3 * 64},
          static_cast<uint32_t>(24 + i % 1000 * 8)};
}

TEST(ValueHintsTest, AHintComesBackAsItWasNoted) {
  ValueHints hints(uint64_t{1} << 20, Layouts(uint64_t{64} << 20));
  EXPECT_EQ(hints.bytes(), 0u);
  EXPECT_EQ(hints.Find(HashOf(1)), std::nullopt);
  for (uint64_t i = 0; i < 100; ++i) hints.Note(HashOf(i), HintOf(i));
  for (uint64_t i = 0; i < 100; ++i) ASSERT_EQ(hints.Find(HashOf(i)), HintOf(i)) << i;
  for (uint64_t i = 0; i < 100; ++i) hints.Note(HashOf(i), HintOf(i + 1));
  for (uint64_t i = 0; i < 100; ++i) ASSERT_EQ(hints.Find(HashOf(i)), HintOf(i + 1)) << i;
  hints.Forget(HashOf(7));
  EXPECT_EQ(hints.Find(HashOf(7)), std::nullopt);
}

/// How many of the first `count` hints are there.
uint64_t Kept(const ValueHints& hints, uint64_t count) {
  uint64_t kept = 0;
  for (uint64_t i = 0; i < count; ++i) kept += hints.Find(HashOf(i)) == HintOf(i);
  return kept;
}

TEST(ValueHintsTest, TheTableGrowsWithWhatIsMet) {
  ValueHints hints(uint64_t{64} << 20, Layouts(uint64_t{1} << 30));
  uint64_t next_look = 5'000;
  for (uint64_t i = 0; i < 400'000; ++i) {
    hints.Note(HashOf(i), HintOf(i));
    if (i + 1 < next_look) continue;
    next_look += next_look / 4;  // before, while and after the sets are split
    EXPECT_LE(hints.bytes(), 27 * i) << i;
    EXPECT_GE(Kept(hints, i + 1) * 1'000, (i + 1) * 995) << i;
  }
}

TEST(ValueHintsTest, ATableThatMayGrowNoMoreHoldsWhatHasRoom) {
  constexpr uint64_t kBytes = 100'000;  // no power of two
  ValueHints hints(kBytes, Layouts(uint64_t{1} << 30));
  constexpr uint64_t kHints = 10'000, kRoom = kBytes / 8;
  for (uint64_t i = 0; i < kHints; ++i) hints.Note(HashOf(i), HintOf(i));
  EXPECT_LE(hints.bytes(), kBytes);
  EXPECT_GE(hints.bytes(), kBytes - 128);
  EXPECT_GE(Kept(hints, kHints) * 100, kHints * 85);
  for (uint64_t i = kHints; i < 10 * kHints; ++i) hints.Note(HashOf(i), HintOf(i));
  EXPECT_GE(Kept(hints, 10 * kHints) * 100, kRoom * 95);
  EXPECT_LE(hints.bytes(), kBytes);
}

TEST(ValueHintsTest, WhereAWordHasFewBitsOfTheHashTheTableBeginsLarge) {
  ValueHints hints(uint64_t{1} << 20, Layouts(uint64_t{1} << 46));
  constexpr uint64_t kHints = 40'000;
  for (uint64_t i = 0; i < kHints; ++i) hints.Note(HashOf(i), HintOf(i));
  EXPECT_EQ(hints.bytes(), uint64_t{1} << 20);
  EXPECT_GE(Kept(hints, kHints) * 100, kHints * 99);
}

TEST(ValueHintsTest, NothingIsNotedThatNoHintCanName) {
  ValueHints hints(uint64_t{1} << 16, Layouts(uint64_t{64} << 20));
  hints.Note(HashOf(1), {{0, 4096 + 8}, 24});                          // no block begins there
  hints.Note(HashOf(1), {{3, 4096}, 24});                              // no such server
  hints.Note(HashOf(1), {{2, uint64_t{64} << 20}, 24});                // outside of its region
  hints.Note(HashOf(1), {{0, 4096}, BlockNames::kBlockBytesMax + 8});  // too long
  EXPECT_EQ(hints.Find(HashOf(1)), std::nullopt);
  hints.Note(HashOf(1), {{0, 4096}, BlockNames::kBlockBytesMax});
  EXPECT_NE(hints.Find(HashOf(1)), std::nullopt);
}

TEST(ValueHintsTest, WithoutBytesThereAreNoHints) {
  ValueHints hints(127, Layouts(uint64_t{64} << 20));
  hints.Note(HashOf(1), HintOf(1));
  hints.Forget(HashOf(1));
  EXPECT_EQ(hints.Find(HashOf(1)), std::nullopt);
  EXPECT_FALSE(hints.enabled());
}

TEST(ValueHintsTest, WhatIsReadOftenOutlivesWhatIsReadOnce) {
  ValueHints hints(uint64_t{64} << 10, Layouts(uint64_t{1} << 30));  // 8,192 hints
  constexpr uint64_t kHot = 2'000;
  uint64_t kept = 0, asked = 0;
  for (uint64_t i = 0; i < 400'000; ++i) {
    hints.Note(HashOf(kHot + i), HintOf(kHot + i));
    const uint64_t hot = Mix64(i) % kHot;
    const bool found = hints.Find(HashOf(hot)).has_value();
    if (!found) hints.Note(HashOf(hot), HintOf(hot));
    if (i >= 200'000) {
      ++asked;
      kept += found;
    }
  }
  EXPECT_GE(kept * 100, asked * 60) << kept << " of " << asked;
  EXPECT_LE(hints.bytes(), uint64_t{64} << 10);
}

TEST(ValueHintsTest, ThreadsFindNoHintThatNobodyNoted) {
  ValueHints hints(uint64_t{128} << 10, Layouts(uint64_t{64} << 20));
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&hints, t] {
      Random random(t);
      for (uint64_t n = 0; n < 50'000; ++n) {
        const uint64_t i = random.Below(100 + n / 2);  // so that the table grows all the while
        if (random.OneIn(3)) hints.Note(HashOf(i), HintOf(i + 30'000 * random.Below(3)));
        if (random.OneIn(9)) hints.Forget(HashOf(i));
        const auto found = hints.Find(HashOf(i));
        // By chance another key's hash may agree, once in 2^30 or so.
        if (found) {
          ASSERT_TRUE(*found == HintOf(i) || *found == HintOf(i + 30'000) ||
                      *found == HintOf(i + 60'000));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::string Long(char c) { return std::string(1'000, c); }

TEST(ValueHintsTest, AStaleHintCostsOneRoundTripAndNoAnswer) {
  LocalTree tree({.geometry = Geometry::Bytes(), .pool = {.allocator = {.grace_ms = 0}}});
  tree.Put("key", Long('a'));
  OtherView other(tree, {.in_place = InPlace::kOff});
  EXPECT_EQ(other.Get("key"), Long('a'));  // the root word, the leaf, the block
  EXPECT_EQ(other.Get("key"), Long('a'));
  EXPECT_EQ(other.round_trips(), 1u);
  tree.Put("key", Long('b'));
  tree.Put("foreign", Long('c'));  // of the same length, perhaps in the block that was freed
  EXPECT_EQ(other.Get("key"), Long('b'));
  EXPECT_EQ(other.round_trips(), 2u);
  EXPECT_EQ(other.tree().stats().stale_value_hints, 1u);
  EXPECT_EQ(other.Get("key"), Long('b'));
  EXPECT_EQ(other.round_trips(), 1u);
  tree.Put("key", "short");
  EXPECT_EQ(other.Get("key"), "short");
  EXPECT_EQ(other.cost().reads, 2u);  // in vain, the last time
  EXPECT_EQ(other.Get("key"), "short");
  EXPECT_EQ(other.cost().reads, 1u);
  tree.Put("key", Long('d'));
  tree.Put("key", std::string(200, 'e'));  // a block of another length
  EXPECT_EQ(other.Get("key"), std::string(200, 'e'));
  tree.Delete("key");
  EXPECT_EQ(other.Get("key"), std::nullopt);
  EXPECT_EQ(other.round_trips(), 1u);
}

TEST(ValueHintsTest, WithoutHintsAGetOfALongValueTakesTwoRoundTrips) {
  LocalTree tree({.geometry = Geometry::Bytes()});
  tree.Put("key", Long('a'));
  for (const TreeOptions& options :
       {TreeOptions{.value_hint_bytes = 0}, TreeOptions{.cache = CacheMode::kNone}}) {
    OtherView other(tree, options);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(other.Get("key"), Long('a'));
    EXPECT_EQ(other.round_trips(), 2u);
    EXPECT_EQ(other.tree().value_hints().bytes(), 0u);
  }
}

TEST(ValueHintsTest, AMultiGetTakesOneRoundTripOrTwo) {
  LocalTree tree({.geometry = Geometry::Bytes(), .fabric = {.servers = 2}});
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 2'000; ++i) {
    keys.push_back("key" + std::to_string(Mix64(i)));
    if (i % 3 != 0) tree.Put(keys.back(), i % 2 == 0 ? Long('x') : "short" + keys.back());
  }
  OtherView other(tree, {});
  dsm::FabricCounts counts;
  OpContext warm{tree.worker(), counts};
  ASSERT_TRUE(tree.worker().Run(other.tree().WarmCache(warm)).ok());
  for (uint64_t round_trips : {2, 1}) {
    std::vector<std::string_view> wanted(keys.begin(), keys.begin() + 500);
    const auto values = other.MultiGet(wanted);
    EXPECT_EQ(other.round_trips(), round_trips);
    for (uint64_t i = 0; i < 500; ++i) {
      if (i % 3 == 0) {
        EXPECT_EQ(values[i], std::nullopt);
      } else {
        EXPECT_EQ(values[i], i % 2 == 0 ? Long('x') : "short" + keys[i]);
      }
    }
  }
}

}  // namespace
}  // namespace farleaf::index
