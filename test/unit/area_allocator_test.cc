#include "dsm/area_allocator.h"

#include <gtest/gtest.h>

#include <vector>

#include "dsm/base/random.h"

namespace farleaf::dsm {
namespace {

struct AreaAllocatorTest : ::testing::Test {
  AreaAllocator areas{{.offset = 100, .bytes = 1000}};

  Area Take(uint64_t bytes, uint64_t alignment = 1) {
    auto area = areas.Take(bytes, alignment);
    EXPECT_TRUE(area.ok()) << area.status();
    return area.ok() ? *area : Area();
  }
};

TEST_F(AreaAllocatorTest, TheFirstThatFitsIsTaken) {
  const Area a = Take(10), b = Take(50), c = Take(10);
  EXPECT_EQ(a, (Area{100, 10}));
  EXPECT_EQ(b, (Area{110, 50}));
  EXPECT_EQ(c, (Area{160, 10}));
  areas.Release(b);
  EXPECT_EQ(Take(60), (Area{170, 60}));
  EXPECT_EQ(Take(50), b);
}

TEST_F(AreaAllocatorTest, AnAreaIsAlignedAndWhatIsBeforeItStaysFree) {
  EXPECT_EQ(Take(8, 64), (Area{128, 8}));
  EXPECT_EQ(Take(64, 64), (Area{192, 64}));
  EXPECT_EQ(Take(28), (Area{100, 28}));
  EXPECT_EQ(Take(56), (Area{136, 56}));
}

TEST_F(AreaAllocatorTest, NeighboursThatAreReleasedAreOneRange) {
  const Area a = Take(300), b = Take(300), c = Take(400);
  areas.Release(a);
  areas.Release(c);
  EXPECT_FALSE(areas.Take(401, 1).ok());
  areas.Release(b);
  EXPECT_EQ(Take(1000), (Area{100, 1000}));
}

TEST_F(AreaAllocatorTest, WhenNothingFitsItSaysHowMuchIsFree) {
  const Area a = Take(300);
  Take(300);
  areas.Release(a);
  EXPECT_EQ(areas.free_bytes(), 700u);
  EXPECT_EQ(areas.Take(500, 8).status().ToString(),
            "resource exhausted: no 500 bytes of registered memory at a multiple of 8: of 1000 are "
            "700 free, 400 in a row");
  EXPECT_FALSE(areas.Take(400, 64).ok());  // long enough, but not from a multiple on
}

TEST_F(AreaAllocatorTest, WhatIsNotTakenCannotBeReleased) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Area a = Take(300);
  EXPECT_DEATH(areas.Release({a.offset, 299}), "");
  areas.Release(a);
  EXPECT_DEATH(areas.Release(a), "");
}

TEST_F(AreaAllocatorTest, AreasNeverOverlap) {
  Random random(5);
  AreaAllocator many({.offset = 4096, .bytes = 1 << 16});
  std::vector<bool> used(4096 + (1 << 16));
  std::vector<Area> taken;
  for (int step = 0; step < 5'000; ++step) {
    if (!taken.empty() && random.OneIn(2)) {
      std::swap(taken[random.Below(taken.size())], taken.back());
      for (uint64_t i = 0; i < taken.back().bytes; ++i) used[taken.back().offset + i] = false;
      many.Release(taken.back());
      taken.pop_back();
      continue;
    }
    const uint64_t alignment = uint64_t{1} << random.Below(10);
    auto area = many.Take(1 + random.Below(4'000), alignment);
    if (!area.ok()) continue;
    ASSERT_EQ(area->offset % alignment, 0u);
    ASSERT_GE(area->offset, 4096u);
    for (uint64_t i = 0; i < area->bytes; ++i) {
      ASSERT_FALSE(used.at(area->offset + i)) << area->offset;
      used[area->offset + i] = true;
    }
    taken.push_back(*area);
  }
  for (const Area& area : taken) many.Release(area);
  EXPECT_TRUE(many.Take(1 << 16, 4096).ok());
}

}  // namespace
}  // namespace farleaf::dsm
