// What operations on parted leaves cost by the number of parts. index/blink/README.md has the table.
#include <gtest/gtest.h>

#include <cstdio>

#include "dsm/base/random.h"
#include "index/blink/part_window.h"
#include "test/support/mean_cost.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr uint64_t kKeys = 200'000;

/// Of random keys, on a warm cache, when this process has met all leaves.
struct Costs {
  double entries_per_leaf = 0;
  MeanCost insert, get, scan;
};

Costs CostsOf(uint32_t parts, Placement placement) {
  LocalTree tree({.geometry = Geometry::Parted(parts), .tree = {.placement = placement}});
  Costs costs;
  for (uint64_t i = 0; i < kKeys; ++i) {
    tree.Insert(Fixed(Mix64(i)), Fixed(i));
    if (i >= kKeys / 2) costs.insert.Add(tree.cost());
  }
  costs.entries_per_leaf =
      static_cast<double>(kKeys) / static_cast<double>(tree.tree().stats().splits + 1);
  for (int pass = 0; pass < 2; ++pass) {  // the first one learns where entries went past a part
    costs.get = {};
    for (uint64_t i = 0; i < kKeys; ++i) {
      EXPECT_EQ(tree.Get(Fixed(Mix64(i))), Fixed(i));
      costs.get.Add(tree.cost());
    }
  }
  tree.Scan({});
  for (uint64_t i = 0; i < 8'000; ++i) {
    const std::string start = Fixed(Mix64(i * 7));
    const bool complete = tree.Scan({.start = start, .limit = 100}).size() == 100;
    if (complete) costs.scan.Add(tree.cost());
  }
  return costs;
}

TEST(LeafSizeTest, LargerLeavesSplitLessOftenAndGetsAndOrderedScansReadNoMore) {
  double insert_before = 3;
  for (const uint32_t parts : {12, 16, 20, 24, 28, 29, 31}) {
    const Costs ordered = CostsOf(parts, Placement::kOrdered);
    const Costs hashed = CostsOf(parts, Placement::kHashed);
    std::printf(
        "%u parts: %.1f entries; insert %.4f round trips, %.0f bytes; get %.4f, %.0f; scan of 100 "
        "%.3f, %.0f, hashed %.3f, %.0f\n",
        parts, ordered.entries_per_leaf, ordered.insert.round_trips(), ordered.insert.bytes(),
        ordered.get.round_trips(), ordered.get.bytes(), ordered.scan.round_trips(),
        ordered.scan.bytes(), hashed.scan.round_trips(), hashed.scan.bytes());
    EXPECT_LT(ordered.insert.round_trips(), insert_before);
    insert_before = ordered.insert.round_trips();
    EXPECT_LE(ordered.insert.round_trips(), 2.06);
    EXPECT_LE(ordered.insert.bytes(), 560);
    EXPECT_EQ(ordered.get.sum.round_trips, kKeys);
    EXPECT_LE(ordered.get.bytes(), 160.5);
    // Of leaves of more parts the number of entries is not remembered (part_window.h).
    const bool counted = parts <= PartHints::kCountedPartsMax;
    EXPECT_LE(ordered.scan.round_trips(), counted ? 1.1 : 1.15);
    EXPECT_LE(ordered.scan.bytes(), counted ? 4'200 : 5'200);
    EXPECT_GE(hashed.scan.bytes(), 1.2 * ordered.scan.bytes());
  }
}

}  // namespace
}  // namespace farleaf::index
