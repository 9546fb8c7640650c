// What each operation of the tree costs in round trips, verbs and bytes, and that the rare paths
// (split, root growth, merge, root shrinkage) keep every key.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"
#include "dsm/base/random.h"
#include "dsm/redo_record.h"
#include "test/support/mean_cost.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

std::vector<uint64_t> Shuffled(uint64_t count, uint64_t seed) {
  std::vector<uint64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  Random random(seed);
  for (uint64_t i = count; i > 1; --i) std::swap(numbers[i - 1], numbers[random.Below(i)]);
  return numbers;
}

TEST(TreeTest, LeavesAndInternalNodesMayHaveDifferentPageSizes) {
  for (const Geometry& geometry : {Geometry::Fixed8(2048, 1024), Geometry::Fixed8(256, 1024),
                                   Geometry{Layout::kBytes, 1024, 512, 60, 40}}) {
    LocalTree tree({.geometry = geometry, .tree = {.in_place = InPlace::kOff}});
    for (uint64_t i = 0; i < 3'000; ++i) tree.Put(Fixed(i * 7 % 3'001), Fixed(i));
    for (uint64_t i = 0; i < 3'000; ++i) {
      ASSERT_EQ(tree.Get(Fixed(i * 7 % 3'001)), Fixed(i));
    }
    EXPECT_GT(tree.tree().cache().root().level, 0);
    EXPECT_EQ(tree.cost(), (dsm::FabricCounts{1, 1, 0, 0, geometry.image_bytes(0), 0}));
  }
}

TEST(TreeTest, CostsOfPartedLeavesOnAWarmCache) {
  LocalTree tree({.geometry = Geometry::Parted()});
  constexpr uint64_t kKeys = 100'000;
  // Any numbers, so that leaves fill as those of hashed keys do. The lowest bit says who is there.
  const auto key = [](uint64_t i) { return Fixed(Mix64(i) | 1); };
  const auto absent_key = [](uint64_t i) { return Fixed(Mix64(i + kKeys) & ~uint64_t{1}); };
  MeanCost insert, get, absent, update, put, scan, remove;
  for (uint64_t i = 0; i < kKeys; ++i) {
    tree.Insert(key(i), Fixed(i));
    if (i >= kKeys / 2) insert.Add(tree.cost());
  }
  for (int pass = 0; pass < 2; ++pass) {  // the first one learns where entries went past a part
    get = absent = {};
    for (uint64_t i = 0; i < kKeys; ++i) {
      ASSERT_EQ(tree.Get(key(i)), Fixed(i));
      get.Add(tree.cost());
      ASSERT_EQ(tree.Get(absent_key(i)), std::nullopt);
      absent.Add(tree.cost());
    }
  }
  for (uint64_t i = 0; i < kKeys; ++i) {
    tree.Update(key(i), Fixed(i + 1));
    update.Add(tree.cost());
    tree.Put(key(i), Fixed(i + 2));
    put.Add(tree.cost());
  }
  for (uint64_t i = 0; i < 2'000; ++i) {
    const std::string start = key(i);
    const auto rows = tree.Scan({.start = start, .limit = 100});
    if (rows.size() == 100) scan.Add(tree.cost());
  }
  for (uint64_t i = 0; i < kKeys / 4; ++i) {
    tree.Delete(key(i));
    remove.Add(tree.cost());
  }
  for (const auto& [name, mean] : {std::pair{"insert", &insert},
                                   {"get", &get},
                                   {"absent", &absent},
                                   {"update", &update},
                                   {"put", &put},
                                   {"scan", &scan},
                                   {"delete", &remove}}) {
    mean->Print(name);
  }
  EXPECT_EQ(get.sum.round_trips, kKeys);
  EXPECT_EQ(absent.sum.round_trips, kKeys);
  EXPECT_LE(get.bytes(), 160);
  EXPECT_LE(absent.bytes(), 160);
  EXPECT_EQ(update.sum.round_trips, 2 * kKeys);
  EXPECT_LE(update.bytes(), 320);
  EXPECT_EQ(put.sum.round_trips, 2 * kKeys);
  EXPECT_LE(insert.round_trips(), 2.06);
  EXPECT_LE(insert.bytes(), 512);
  EXPECT_LE(remove.round_trips(), 2.06);
  EXPECT_LE(scan.round_trips(), 1.1);
  EXPECT_LE(scan.bytes(), 4'150);
}

TEST(TreeTest, SmallWriteBacksWriteLessAndTakeNoRoundTripMore) {
  for (const Geometry& geometry : {Geometry::Parted(), Geometry::Fixed8()}) {
    double written[2];
    for (const SmallWriteBacks small : {SmallWriteBacks::kOff, SmallWriteBacks::kOn}) {
      TreeOptions options;
      options.small_write_backs = small;
      LocalTree tree({.geometry = geometry, .tree = options});
      constexpr uint64_t kKeys = 20'000;
      const auto key = [](uint64_t i) { return Fixed(Mix64(i)); };
      for (uint64_t i = 0; i < kKeys; ++i) tree.Insert(key(i), Fixed(i));
      MeanCost update, put, insert, remove;
      for (uint64_t i = 0; i < kKeys; ++i) {
        ASSERT_TRUE(tree.Update(key(i), Fixed(i + 1)));
        update.Add(tree.cost());
        ASSERT_FALSE(tree.Put(key(i), Fixed(i + 2)));
        put.Add(tree.cost());
      }
      for (uint64_t i = kKeys; i < 2 * kKeys; ++i) {
        tree.Insert(key(i), Fixed(i + 2));
        insert.Add(tree.cost());
      }
      for (uint64_t i = 0; i < kKeys / 4; ++i) {
        ASSERT_TRUE(tree.Delete(key(i)));
        remove.Add(tree.cost());
      }
      std::printf("%s leaves, small write-backs %s\n",
                  geometry.leaf_layout == LeafLayout::kParted ? "parted" : "sorted",
                  small == SmallWriteBacks::kOn ? "on" : "off");
      for (const auto& [name, mean] : {std::pair{"update", &update},
                                       {"put", &put},
                                       {"insert", &insert},
                                       {"delete", &remove}}) {
        mean->Print(name);
      }
      EXPECT_EQ(update.sum.round_trips, 2 * kKeys);
      EXPECT_EQ(put.sum.round_trips, 2 * kKeys);
      written[static_cast<size_t>(small)] = update.Mean(update.sum.bytes_written);
      for (uint64_t i = kKeys / 4; i < 2 * kKeys; ++i) {
        ASSERT_EQ(tree.Get(key(i)), Fixed(i + 2));
      }
    }
    EXPECT_LT(written[1], 160);
    EXPECT_GT(written[0], geometry.leaf_bytes - 64);
  }
}

TEST(TreeTest, WithoutACacheALeafIsReadInPartAsItsParentSays) {
  LocalTree tree({.geometry = Geometry::Parted(), .tree = {.cache = CacheMode::kNone}});
  constexpr uint64_t kKeys = 60'000, kPartsMax = 7;  // four and three, by two placements
  const auto key = [](uint64_t i) { return Fixed(Mix64(i) | 1); };
  for (uint64_t i = 0; i < kKeys; ++i) tree.Insert(key(i), Fixed(i));
  const uint64_t levels = tree.tree().cache().root().level;
  const uint64_t node_bytes = levels * tree.tree().info().geometry.image_bytes(1);
  ASSERT_GE(levels, 2u);
  MeanCost get, absent, update, put;
  for (uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_EQ(tree.Get(key(i)), Fixed(i));
    get.Add(tree.cost());
    ASSERT_EQ(tree.Get(Fixed(Mix64(i) & ~uint64_t{1})), std::nullopt);
    absent.Add(tree.cost());
    ASSERT_TRUE(tree.Update(key(i), Fixed(i + 1)));
    update.Add(tree.cost());
    ASSERT_FALSE(tree.Put(key(i), Fixed(i)));
    put.Add(tree.cost());
  }
  for (const auto& [name, mean] : {std::pair{"get", &get}, std::pair{"absent", &absent},
                                   std::pair{"update", &update}, std::pair{"put", &put}}) {
    mean->Print(name);
  }
  const auto trips = static_cast<double>(levels);
  EXPECT_LE(get.round_trips(), trips + 1.001);
  EXPECT_LE(absent.round_trips(), trips + 1.003);
  EXPECT_LE(update.round_trips(), trips + 2.001);
  EXPECT_EQ(put.sum.round_trips, (levels + 2) * kKeys);
  EXPECT_LE(get.bytes(), static_cast<double>(node_bytes + kPartsMax * kPartBytes));
  EXPECT_LE(update.bytes(), static_cast<double>(node_bytes + kPartsMax * kPartBytes + 170));
}

TEST(TreeTest, EmptyingATreeOfPartedLeavesCostsItsMerges) {
  LocalTree tree({.geometry = Geometry::Parted(),
                  .fabric = {.servers = 2, .region_bytes = uint64_t{64} << 20}});
  constexpr uint64_t kKeys = 100'000;
  for (uint64_t i = 0; i < kKeys; ++i) tree.Put(Fixed(Mix64(i)), Fixed(i));
  MeanCost remove;
  for (uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_TRUE(tree.Delete(Fixed(Mix64(i))));
    remove.Add(tree.cost());
  }
  remove.Print("delete");
  const auto merges = static_cast<double>(tree.tree().stats().merges);
  const double each = static_cast<double>(remove.sum.round_trips - 2 * kKeys) / merges;
  std::printf("%.0f merges of %.2f round trips\n", merges, each);
  EXPECT_EQ(tree.tree().cache().root().level, 0);
  EXPECT_LE(remove.round_trips(), 2.1);
  EXPECT_LE(each, 6.5);
}

/// Leaf pages of one size serve all trees: a stale path may lead to a leaf of the other layout.
TEST(TreeTest, APageReusedByATreeOfTheOtherLayoutLeadsNobodyAstray) {
  const Geometry parted = Geometry::Parted(4, 256), sorted = Geometry::Fixed8(576, 256);
  constexpr uint64_t kKeys = 3'000;
  for (const auto& [first, second] : {std::pair(parted, sorted), {sorted, parted}}) {
    LocalTree tree({.geometry = first, .pool = {.allocator = {.grace_ms = 0}}});
    for (uint64_t i = 0; i < kKeys; ++i) tree.Insert(Fixed(i), Fixed(i));
    BlinkTree stale(&tree.pool(), tree.tree().info(), {.lock_wait_ms = 2'000});
    dsm::FabricCounts counts;
    OpContext op{tree.worker(), counts};
    ASSERT_TRUE(tree.worker().Run(stale.WarmCache(op)).ok());
    for (uint64_t i = 1; i < kKeys; ++i) tree.Delete(Fixed(i));
    ASSERT_EQ(tree.tree().cache().root().level, 0);
    auto info = tree.worker().Run(CreateTree(op, tree.pool(), "other", second));
    ASSERT_TRUE(info.ok()) << info.status();
    BlinkTree other(&tree.pool(), *info, {});
    for (uint64_t i = 0; i < kKeys; ++i) {
      ASSERT_TRUE(*tree.worker().Run(other.Insert(op, Fixed(i), Fixed(7))));
    }
    for (uint64_t i = 0; i < kKeys; i += 13) {
      std::string value;
      const auto found = tree.worker().Run(stale.Get(op, Fixed(i), &value));
      ASSERT_TRUE(found.ok()) << found.status() << " at " << i;
      EXPECT_EQ(*found, i == 0);
      const auto updated = tree.worker().Run(stale.Update(op, Fixed(i), Fixed(9)));
      ASSERT_TRUE(updated.ok()) << updated.status() << " at " << i;
      EXPECT_EQ(*updated, i == 0);
    }
    for (uint64_t i = 0; i < kKeys; ++i) {
      std::string value;
      ASSERT_TRUE(*tree.worker().Run(other.Get(op, Fixed(i), &value)));
      ASSERT_EQ(value, Fixed(7));
    }
  }
}

TEST(TreeTest, WhoHasFallenFarBehindAsksForANewPath) {
  LocalTree tree({.geometry = Geometry::Parted(4, 256)});
  tree.Insert(Fixed(0), Fixed(0));
  BlinkTree stale(&tree.pool(), tree.tree().info(), {.hop_threshold = 64});
  std::string value;
  dsm::FabricCounts counts;
  OpContext op{tree.worker(), counts};
  ASSERT_TRUE(*tree.worker().Run(stale.Get(op, Fixed(0), &value)));  // knows of one leaf, the root
  for (uint64_t i = 1; i < 5'000; ++i) tree.Insert(Fixed(i), Fixed(i));
  ASSERT_GT(tree.tree().stats().splits, 200u);
  const uint64_t before = counts.round_trips;
  ASSERT_TRUE(*tree.worker().Run(stale.Get(op, Fixed(4'999), &value)));
  EXPECT_EQ(value, Fixed(4'999));
  EXPECT_LE(counts.round_trips - before, 15u);
}

TEST(TreeTest, ACatalogEntryOfAnotherFormatIsRefusedByName) {
  LocalTree tree;
  const uint64_t entry = tree.tree().info().root_word_offset() - 8;
  auto bytes = tree.fabric().region_bytes(dsm::kCatalogServer).subspan(entry);
  bytes[22] = std::byte{0};
  StoreLittle(bytes.data() + 16, Crc32c(bytes.subspan(20, 12 + std::strlen("test"))));
  dsm::FabricCounts counts;
  OpContext op{tree.worker(), counts};
  const auto info = tree.worker().Run(OpenTree(op, tree.pool(), "test"));
  ASSERT_FALSE(info.ok());
  EXPECT_EQ(info.status().code(), StatusCode::kUnimplemented);
  EXPECT_NE(info.status().message().find("'test' has format 0"), std::string::npos)
      << info.status();
  EXPECT_EQ(counts.round_trips, 1u);
}

TEST(TreeTest, EmptyTreeAnswers) {
  LocalTree tree;
  EXPECT_EQ(tree.Get(Fixed(1)), std::nullopt);
  EXPECT_FALSE(tree.Delete(Fixed(1)));
  EXPECT_FALSE(tree.Update(Fixed(1), Fixed(2)));
  EXPECT_TRUE(tree.Scan({}).empty());
}

TEST(TreeTest, LoadedKeysAreFoundAndScanned) {
  LocalTree tree({.geometry = Geometry::Fixed8(256)});
  constexpr uint64_t kKeys = 20'000;
  for (uint64_t number : Shuffled(kKeys, 7)) {
    ASSERT_TRUE(tree.Insert(Fixed(number), Fixed(number * 3)));
  }
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_EQ(tree.Get(Fixed(i)), Fixed(i * 3)) << i;
  EXPECT_FALSE(tree.Insert(Fixed(5), Fixed(0)));
  EXPECT_EQ(tree.Get(Fixed(kKeys)), std::nullopt);
  auto rows = tree.Scan({});
  ASSERT_EQ(rows.size(), kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_EQ(rows[i], (KeyValue{Fixed(i), Fixed(i * 3)}));
  rows = tree.Scan({.direction = ScanDirection::kReverse});
  ASSERT_EQ(rows.size(), kKeys);
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_EQ(rows[i].key, Fixed(kKeys - 1 - i));
}

TEST(TreeTest, CostsOnAWarmCache) {
  LocalTree tree;
  constexpr uint64_t kKeys = 50'000;
  for (uint64_t number : Shuffled(kKeys, 11)) tree.Insert(Fixed(number * 2), Fixed(number));

  tree.Get(Fixed(200));
  EXPECT_EQ(tree.cost(), (dsm::FabricCounts{1, 1, 0, 0, 1016, 0}));
  tree.Get(Fixed(201));  // absent
  EXPECT_EQ(tree.cost(), (dsm::FabricCounts{1, 1, 0, 0, 1016, 0}));
  // Written: redo record, what it says, unlock; and the CAS. The record: its head, then checksum and
  // version, the value, and the second version, with a range header each.
  constexpr uint64_t kRedo = dsm::kRedoPlainHeaderBytes + (8 + 16) + (8 + 8) + (8 + 8);
  constexpr uint64_t kWritten = 16 + 8 + 8 + 8 + 8;  // ..., unlock, CAS
  static_assert(kRedo == 88);
  tree.Update(Fixed(200), Fixed(1));
  EXPECT_EQ(tree.cost(), (dsm::FabricCounts{2, 1, 5, 1, 1024, kWritten + kRedo}));
  tree.Put(Fixed(200), Fixed(2));
  EXPECT_EQ(tree.cost(), (dsm::FabricCounts{2, 1, 5, 1, 1024, kWritten + kRedo}));
  tree.Delete(Fixed(200));  // shifts keys and values: the record holds what stood behind the entry
  EXPECT_LE(tree.cost().bytes_written, 1032 + dsm::RedoBytesMax(1016));
  dsm::FabricCounts deleted = tree.cost();
  EXPECT_LE(deleted.writes, 6u);  // header, keys, values, the second version
  deleted.bytes_written = deleted.writes = 0;
  EXPECT_EQ(deleted, (dsm::FabricCounts{2, 1, 0, 1, 1024, 0}));
  uint64_t scan_round_trips = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(tree.Scan({.start = Fixed(i * 800), .limit = 100}).size(), 100u);
    scan_round_trips += tree.cost().round_trips;
  }
  EXPECT_LE(scan_round_trips, 200u);
}

TEST(TreeTest, InsertCostsTwoRoundTripsAndASplitNowAndThen) {
  LocalTree tree;
  constexpr uint64_t kKeys = 100'000;
  uint64_t round_trips = 0;
  for (uint64_t number : Shuffled(kKeys, 13)) {
    tree.Insert(Fixed(number), Fixed(number));
    round_trips += tree.cost().round_trips;
  }
  RecordProperty("round_trips_per_insert_x1000", static_cast<int>(round_trips * 1000 / kKeys));
  std::printf("round trips per insert: %.3f\n", static_cast<double>(round_trips) / kKeys);
  EXPECT_LE(round_trips, kKeys * 25 / 10);
}

TEST(TreeTest, OutOfLineValuesAreReadInOneRoundTripAndWrittenInTwo) {
  LocalTree tree({.geometry = Geometry::Bytes(), .fabric = {.servers = 1}});
  const std::string value(1'000, 'v');
  for (int i = 0; i < 20; ++i) tree.Put("key" + std::to_string(i), value);
  tree.Get("key7");
  EXPECT_EQ(tree.cost().round_trips, 1u);  // who wrote it knows where it is
  EXPECT_EQ(tree.cost().reads, 2u);
  tree.Get("key77");  // absent
  EXPECT_EQ(tree.cost().round_trips, 1u);
  tree.Put("key7", value);
  EXPECT_EQ(tree.cost().round_trips, 2u);
  EXPECT_EQ(tree.cost().writes,
            7u);  // new block, redo record, 3 of the leaf, old block's word, unlock
  tree.Update("key7", "now inline");
  EXPECT_EQ(tree.cost().round_trips, 2u);
  tree.Delete("key8");
  EXPECT_EQ(tree.cost().round_trips, 2u);
  EXPECT_EQ(tree.Scan({}).size(), 19u);
  EXPECT_EQ(tree.cost().round_trips, 2u);  // the leaf, then all values together
}

/// What a refresh of `tree`'s cache costs.
dsm::FabricCounts WarmCacheCost(LocalTree& local, BlinkTree& tree) {
  dsm::FabricCounts counts;
  OpContext op{local.worker(), counts};
  const Status status = local.worker().Run(tree.WarmCache(op));
  EXPECT_TRUE(status.ok()) << status;
  return counts;
}

TEST(TreeTest, CacheRefreshReadsOnlyWhatChanged) {
  LocalTree local({.geometry = Geometry::Fixed8(256)});
  constexpr uint64_t kKeys = 20'000;
  for (uint64_t number : Shuffled(kKeys, 31)) local.Insert(Fixed(number * 100), Fixed(number));
  // Another compute server's view of the same tree: a cache of its own, cold.
  BlinkTree other(&local.pool(), local.tree().info(), {});
  const dsm::FabricCounts cold = WarmCacheCost(local, other);
  EXPECT_EQ(cold.round_trips, 3u);
  EXPECT_EQ(other.cache().nodes(), local.tree().cache().nodes());
  const dsm::FabricCounts unchanged = WarmCacheCost(local, other);
  EXPECT_EQ(unchanged.round_trips, 2u);  // chunk tables, change counters; no node
  EXPECT_GE(cold.bytes_read, unchanged.bytes_read + other.cache().nodes() * 256);

  const uint64_t splits = local.tree().stats().splits;
  for (uint64_t i = 1; i < 40; ++i) local.Insert(Fixed(i), Fixed(i));  // all in one place
  const uint64_t split_pages = local.tree().stats().splits - splits;
  ASSERT_GT(split_pages, 0u);
  const dsm::FabricCounts changed = WarmCacheCost(local, other);
  EXPECT_EQ(changed.round_trips, 3u);
  EXPECT_GE(changed.bytes_read, unchanged.bytes_read + 256);
  EXPECT_LE(changed.bytes_read, unchanged.bytes_read + 2 * split_pages * 256);
  for (uint64_t i = 0; i < kKeys; i += 7) {
    dsm::FabricCounts counts;
    OpContext op{local.worker(), counts};
    std::string value;
    const auto found = local.worker().Run(other.Get(op, Fixed(i * 100), &value));
    ASSERT_TRUE(found.ok() && *found) << i;
    ASSERT_EQ(counts.round_trips, 1u) << i;
  }
}

TEST(TreeTest, ScanEndsBehindTheRowThatReachesItsBytes) {
  LocalTree tree({.geometry = Geometry::Bytes()});
  for (char c = 'a'; c <= 'z'; ++c) tree.Put(std::string(1, c), std::string(999, c));
  EXPECT_EQ(tree.Scan({.bytes_max = 3'500}).size(), 4u);
  const auto rows = tree.Scan({.bytes_max = 3'500, .direction = ScanDirection::kReverse});
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows.back().key, "w");
  EXPECT_EQ(tree.Scan({.bytes_max = 1}).size(), 1u);
}

TEST(TreeTest, EmptiedTreeShrinksAndServesAgain) {
  LocalTree tree({.geometry = Geometry::Fixed8(256)});
  for (int round = 0; round < 3; ++round) {
    for (uint64_t number : Shuffled(5'000, 17 + round))
      ASSERT_TRUE(tree.Insert(Fixed(number), Fixed(1)));
    for (uint64_t number : Shuffled(5'000, 29 + round)) ASSERT_TRUE(tree.Delete(Fixed(number)));
    EXPECT_TRUE(tree.Scan({}).empty());
    EXPECT_GT(tree.tree().stats().merges, 0u);
  }
  EXPECT_GT(tree.tree().stats().roots_shrunk, 0u);
}

TEST(TreeTest, ModelOfRandomOperations) {
  const uint64_t seed = 4711;
  SCOPED_TRACE(seed);
  LocalTree tree({.geometry = Geometry::Fixed8(256)});
  std::map<std::string, std::string> model;
  Random random(seed);
  for (int i = 0; i < 60'000; ++i) {
    const std::string key = Fixed(random.Below(3'000)), value = Fixed(random.Next());
    const bool shrink = i / 10'000 % 2 == 1;
    switch (random.Below(shrink ? 10 : 6)) {
      case 0:
        ASSERT_EQ(tree.Insert(key, value), model.emplace(key, value).second);
        break;
      case 1:
        ASSERT_EQ(tree.Put(key, value), model.count(key) == 0);
        model[key] = value;
        break;
      case 2:
        ASSERT_EQ(tree.Update(key, value), model.count(key) == 1);
        if (model.count(key)) model[key] = value;
        break;
      case 3: {
        auto it = model.find(key);
        ASSERT_EQ(tree.Get(key), it == model.end() ? std::nullopt : std::optional(it->second));
        break;
      }
      default:
        ASSERT_EQ(tree.Delete(key), model.erase(key) == 1);
        break;
    }
  }
  const auto rows = tree.Scan({});
  ASSERT_EQ(rows.size(), model.size());
  size_t i = 0;
  for (const auto& [key, value] : model) ASSERT_EQ(rows[i++], (KeyValue{key, value}));
}

TEST(TreeTest, ByteStringsAndLargeValues) {
  LocalTree tree(
      {.geometry = Geometry::Bytes(), .fabric = {.servers = 2, .region_bytes = 128 << 20}});
  std::map<std::string, std::string> model;
  Random random(99);
  for (int i = 0; i < 3'000; ++i) {
    const std::string key =
        "user/" + std::to_string(random.Below(2'000)) + std::string(random.Below(40), 'k');
    const std::string value(random.OneIn(20) ? random.Below(100'000) : random.Below(600),
                            static_cast<char>('a' + i % 26));
    model[key] = value;
    tree.Put(key, value);
    if (random.OneIn(5)) {
      const std::string victim =
          model.lower_bound("user/" + std::to_string(random.Below(2'000))) == model.end()
              ? key
              : model.lower_bound("user/")->first;
      ASSERT_TRUE(tree.Delete(victim));
      model.erase(victim);
    }
  }
  tree.Put("big", std::string(16 << 20, 'x'));
  model["big"] = std::string(16 << 20, 'x');
  for (const auto& [key, value] : model) ASSERT_EQ(tree.Get(key), value) << key;
  const auto rows = tree.Scan({});
  ASSERT_EQ(rows.size(), model.size());
  size_t i = 0;
  for (const auto& [key, value] : model) ASSERT_EQ(rows[i++], (KeyValue{key, value}));
}

}  // namespace
}  // namespace farleaf::index
