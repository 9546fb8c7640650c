// What ordered placement does for trees: no more pool than hashed placement takes, whatever the order in
// which keys come; and trees whose members place entries differently, or remember wrongly, answer right.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <map>

#include "dsm/base/random.h"
#include "test/support/mean_cost.h"
#include "test/support/test_scale.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

struct Load {
  const char* name;
  std::function<uint64_t(uint64_t)> key;  ///< of the i-th insert
};

/// Bursts of 50 neighbours, `step` apart, around random points.
uint64_t Burst(uint64_t i, uint64_t step) {
  return Mix64(i / 50) / 4 * 2 + step * (Mix64(i) % 1000);
}

constexpr uint64_t kPlacedKeys = 60'000;

const Load kLoads[] = {
    {"random", [](uint64_t i) { return Mix64(i); }},
    {"ascending", [](uint64_t i) { return i; }},
    {"ascending by 1000", [](uint64_t i) { return 1000 * i; }},
    {"descending", [](uint64_t i) { return kPlacedKeys - i; }},
    {"near bursts", [](uint64_t i) { return Burst(i, 2); }},
    {"wide bursts", [](uint64_t i) { return Burst(i, uint64_t{1} << 40); }},
    {"clusters", [](uint64_t i) { return Mix64(i % 300) + Mix64(i) % 4096; }},
    {"growing clusters", [](uint64_t i) { return Mix64(i / 40 % 500) + i * 3; }},
    {"common high bytes", [](uint64_t i) { return (Mix64(i % 7) << 32) + (Mix64(i) >> 40); }},
    {"squares", [](uint64_t i) { return (Mix64(i) >> 33) * (Mix64(i) >> 33); }},
};

struct Loaded {
  MeanCost insert;
  double bytes_per_key = 0;
};

Loaded LoadWith(const Load& load, Placement placement) {
  LocalTree tree({.geometry = Geometry::Parted(), .tree = {.placement = placement}});
  Loaded loaded;
  uint64_t keys = 0;
  for (uint64_t i = 0; i < kPlacedKeys; ++i) {
    keys += tree.Insert(Fixed(load.key(i)), Fixed(i)) ? 1 : 0;
    loaded.insert.Add(tree.cost());
  }
  const TreeStats& stats = tree.tree().stats();
  const auto leaves = static_cast<double>(stats.splits + 1);
  loaded.bytes_per_key = Geometry::Parted().leaf_bytes * leaves / static_cast<double>(keys);
  return loaded;
}

TEST(LeafPlacementTest, OrderedLeavesAreAsFullAsHashedOnesAndInsertsCostNoMoreRoundTrips) {
  for (const Load& load : kLoads) {
    const Loaded hashed = LoadWith(load, Placement::kHashed);
    const Loaded ordered = LoadWith(load, Placement::kOrdered);
    std::printf(
        "%-18s bytes a key %.1f hashed, %.1f ordered; insert %.3f and %.3f round trips, "
        "%.0f and %.0f bytes\n",
        load.name, hashed.bytes_per_key, ordered.bytes_per_key, hashed.insert.round_trips(),
        ordered.insert.round_trips(), hashed.insert.bytes(), ordered.insert.bytes());
    EXPECT_LE(ordered.bytes_per_key, 1.06 * hashed.bytes_per_key) << load.name;
    EXPECT_LE(ordered.insert.round_trips(), hashed.insert.round_trips() + 0.02) << load.name;
  }
}

struct ScanCosts {
  MeanCost of_100, of_any;  ///< of 1 to 100 rows, evenly, as YCSB's workload e
};

ScanCosts CostsOfScans(const Geometry& geometry, Placement placement, ScanDirection direction) {
  LocalTree tree({.geometry = geometry, .tree = {.placement = placement}});
  for (uint64_t i = 0; i < 100'000; ++i) tree.Insert(Fixed(Mix64(i)), Fixed(i));
  ScanCosts costs;
  for (uint64_t i = 0; i < 8'000; ++i) {
    const std::string key = Fixed(Mix64(i * 7));
    ScanRange range{.limit = i % 2 == 0 ? 100 : 1 + Mix64(i) % 100, .direction = direction};
    if (direction == ScanDirection::kForward) {
      range.start = key;
    } else {
      range.end = key;
    }
    if (tree.Scan(range).size() < range.limit || i < 2'000) continue;  // the first learn of leaves
    (i % 2 == 0 ? costs.of_100 : costs.of_any).Add(tree.cost());
  }
  return costs;
}

TEST(LeafPlacementTest, ScansOfOrderedLeavesReadLittleMoreThanTheirRows) {
  for (const ScanDirection direction : {ScanDirection::kForward, ScanDirection::kReverse}) {
    const ScanCosts sorted = CostsOfScans(Geometry::Fixed8(), Placement::kOrdered, direction);
    const ScanCosts hashed = CostsOfScans(Geometry::Parted(), Placement::kHashed, direction);
    const ScanCosts ordered = CostsOfScans(Geometry::Parted(), Placement::kOrdered, direction);
    for (const auto& [name, costs] : {std::pair{"sorted", &sorted}, std::pair{"hashed", &hashed},
                                      std::pair{"ordered", &ordered}}) {
      costs->of_100.Print(name);
      costs->of_any.Print("  short");
    }
    EXPECT_LE(ordered.of_100.round_trips(), 1.1);
    EXPECT_LE(ordered.of_100.bytes(), 4'200);
    EXPECT_LE(ordered.of_any.round_trips(), 1.1);
    EXPECT_LE(ordered.of_any.bytes(), 0.6 * hashed.of_any.bytes());
  }
}

TEST(LeafPlacementTest, ScansOrderKeysThatDifferInTheirLowestBitsOnly) {
  LocalTree tree({.geometry = Geometry::Parted()});
  std::map<std::string, std::string> model;
  for (uint64_t i = 0; i < 400; ++i) {  // few leaves, each of some 2^60 keys
    for (uint64_t near = 0; near < 1 + i % 4; ++near) {
      const std::string key = Fixed(Mix64(i) + (near * 5 + i) % 7), value = Fixed(i * 8 + near);
      tree.Put(key, value);
      model[key] = value;
    }
  }
  std::vector<KeyValue> rows(1'500, KeyValue{"what was there", std::string(10'000, 'x')});
  dsm::FabricCounts counts;
  OpContext op{tree.worker(), counts};
  for (const ScanDirection direction : {ScanDirection::kForward, ScanDirection::kReverse}) {
    for (const uint64_t limit : {uint64_t{2'000}, uint64_t{100}, uint64_t{150}}) {
      const Status status =
          tree.worker().Run(tree.tree().Scan(op, {.limit = limit, .direction = direction}, &rows));
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(rows.size(), std::min<uint64_t>(limit, model.size()));
      auto up = model.begin();
      auto down = model.rbegin();
      for (const KeyValue& row : rows) {
        const auto& [key, value] = direction == ScanDirection::kForward ? *up++ : *down++;
        EXPECT_EQ(row.key, key);
        EXPECT_EQ(row.value, value);
        EXPECT_LT(row.value.capacity(), 5'000u);
      }
    }
  }
}

TEST(LeafPlacementTest, MembersThatPlaceEntriesDifferentlyAndRememberWronglyAgreeWithAMap) {
  for (uint64_t seed = 0; seed < test::Amount{4, 12, 200}; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    LocalTree tree(
        {.geometry = Geometry::Parted(4 + static_cast<uint32_t>(random.Below(13)), 256)});
    BlinkTree hashing(&tree.pool(), tree.tree().info(), {.placement = Placement::kHashed});
    dsm::FabricCounts counts;
    OpContext op{tree.worker(), counts};
    std::map<uint64_t, uint64_t> model;
    const Load& load = kLoads[seed % std::size(kLoads)];
    const uint64_t keys = 200 + random.Below(3000);
    const auto expect_scan = [&](BlinkTree& by) {
      const bool forward = random.OneIn(2);
      uint64_t start = load.key(random.Below(keys)), end = load.key(random.Below(keys));
      if (end < start) std::swap(start, end);
      const bool has_end = random.OneIn(2), has_start = random.OneIn(2);
      const std::string start_key = Fixed(start), end_key = Fixed(end);
      ScanRange range{.limit = random.OneIn(4) ? UINT64_MAX : 1 + random.Below(150)};
      if (has_start) range.start = start_key;
      if (has_end) range.end = end_key;
      if (!forward) range.direction = ScanDirection::kReverse;
      std::vector<KeyValue> rows;
      ASSERT_TRUE(tree.worker().Run(by.Scan(op, range, &rows)).ok());
      const auto first = has_start ? model.lower_bound(start) : model.begin();
      const auto last = has_end ? model.lower_bound(end) : model.end();
      std::vector<std::pair<uint64_t, uint64_t>> expected(first, last);
      if (!forward) std::reverse(expected.begin(), expected.end());
      if (expected.size() > range.limit) expected.resize(range.limit);
      ASSERT_EQ(rows.size(), expected.size());
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_EQ(rows[i].key, Fixed(expected[i].first)) << i;
        ASSERT_EQ(rows[i].value, Fixed(expected[i].second)) << i;
      }
    };
    for (uint64_t step = 0; step < 6 * keys; ++step) {
      BlinkTree& by = random.OneIn(2) ? tree.tree() : hashing;
      const uint64_t key = load.key(random.Below(keys));
      if (step % 16 == 0) {
        ASSERT_NO_FATAL_FAILURE(expect_scan(by)) << step;
      } else if (random.OneIn(3)) {
        const auto deleted = tree.worker().Run(by.Delete(op, Fixed(key)));
        ASSERT_TRUE(deleted.ok());
        ASSERT_EQ(*deleted, model.erase(key) == 1) << step;
      } else if (random.OneIn(3)) {
        std::string value;
        const auto found = tree.worker().Run(by.Get(op, Fixed(key), &value));
        ASSERT_TRUE(found.ok());
        ASSERT_EQ(*found, model.contains(key)) << step;
        if (*found) {
          ASSERT_EQ(value, Fixed(model[key]));
        }
      } else {
        ASSERT_TRUE(tree.worker().Run(by.Put(op, Fixed(key), Fixed(step))).ok());
        model[key] = step;
      }
    }
  }
}

}  // namespace
}  // namespace farleaf::index
