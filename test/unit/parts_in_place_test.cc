// Gets of fixed8 that are served where their leaf lies cost what READs of the same parts do: to the round trip, the READ and
// the byte.
#include <gtest/gtest.h>

#include "dsm/base/random.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr uint64_t kKeys = 30'000;

std::string PresentKeyOf(uint64_t i) { return Fixed(Mix64(i) | 1); }
std::string AbsentKeyOf(uint64_t i) { return Fixed(Mix64(i) & ~uint64_t{1}); }

struct Costs {
  dsm::FabricCounts insert, first_get, get, absent, update, stale_get;
  uint64_t stale_gets = 0;
};

/// All of it over shared memory.
Costs CostsWith(InPlace in_place) {
  LocalTree tree({.geometry = Geometry::Parted(), .tree = {.in_place = in_place}});
  BlinkTree stale(&tree.pool(), tree.tree().info(), {.in_place = in_place});
  Costs costs;
  OpContext op{tree.worker(), costs.stale_get};
  const auto get_stale = [&](uint64_t i) {
    ++costs.stale_gets;
    std::string value;
    const auto found = tree.worker().Run(stale.Get(op, PresentKeyOf(i), &value));
    EXPECT_TRUE(found.ok() && *found && value == Fixed(i)) << i;
  };
  for (uint64_t i = 0; i < kKeys; ++i) {
    tree.Insert(PresentKeyOf(i), Fixed(i));
    costs.insert += tree.cost();
    if (i % 10 == 0) get_stale(i / 2);  // while leaves split, which it learns by what it finds
  }
  for (uint64_t i = 0; i < kKeys; ++i) {
    EXPECT_EQ(tree.Get(PresentKeyOf(i)), Fixed(i));
    costs.first_get += tree.cost();
  }
  for (uint64_t i = 0; i < kKeys; ++i) {
    EXPECT_EQ(tree.Get(PresentKeyOf(i)), Fixed(i));
    costs.get += tree.cost();
    EXPECT_EQ(tree.Get(AbsentKeyOf(i)), std::nullopt);
    costs.absent += tree.cost();
    tree.Update(PresentKeyOf(i), Fixed(i));
    costs.update += tree.cost();
  }
  return costs;
}

TEST(PartsInPlace, GetsCostTheSameAsWhereThePartsAreRead) {
  const Costs looked = CostsWith(InPlace::kOn), read = CostsWith(InPlace::kOff);
  const auto expect_same = [](const char* name, const dsm::FabricCounts& a,
                              const dsm::FabricCounts& b) {
    std::printf("%-9s %lu round trips, %lu READs, %lu bytes read, %lu written\n", name,
                a.round_trips, a.reads, a.bytes_read, a.bytes_written);
    EXPECT_EQ(a.round_trips, b.round_trips) << name;
    EXPECT_EQ(a.reads, b.reads) << name;
    EXPECT_EQ(a.bytes_read, b.bytes_read) << name;
    EXPECT_EQ(a.bytes_written, b.bytes_written) << name;
    EXPECT_TRUE(a == b) << name;
  };
  expect_same("insert", looked.insert, read.insert);
  expect_same("first get", looked.first_get, read.first_get);
  expect_same("get", looked.get, read.get);
  expect_same("absent", looked.absent, read.absent);
  expect_same("update", looked.update, read.update);
  expect_same("stale get", looked.stale_get, read.stale_get);
  EXPECT_GT(looked.stale_get.round_trips, looked.stale_gets) << "no leaf was met that had split";
}

}  // namespace
}  // namespace farleaf::index
