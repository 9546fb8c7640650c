// What operations on byte-string keys cost, in round trips and bytes, on a warm cache: random keys of 24
// bytes, values of 8, 100 and 1,000 bytes; leaves that are read whole, as most fabrics have it, or where they lie.
// index/blink/README.md has the tables.
#include <gtest/gtest.h>

#include <string>

#include "dsm/base/bytes.h"
#include "dsm/base/random.h"
#include "test/support/mean_cost.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

/// 24 bytes of any value. The lowest bit of the last one says whether the key is stored.
std::string KeyOf(uint64_t i) {
  std::string key(24, '\0');
  for (uint64_t word = 0; word < 3; ++word) StoreBig64(&key[word * 8], Mix64(i * 3 + word));
  key.back() = static_cast<char>(key.back() | 1);
  return key;
}
std::string AbsentKeyOf(uint64_t i) {
  std::string key = KeyOf(i);
  key.back() = static_cast<char>(key.back() & ~1);
  return key;
}

struct Costs {
  MeanCost insert, get, absent, update, put, scan, remove;
};

constexpr uint64_t kCostKeys = 100'000;

Costs CostsOf(const Geometry& geometry, size_t value_bytes, InPlace in_place = InPlace::kOff) {
  LocalTree tree({.geometry = geometry,
                  .tree = {.in_place = in_place},
                  .fabric = {.servers = 2, .region_bytes = uint64_t{512} << 20}});
  const auto value = [&](uint64_t i) {
    std::string bytes(value_bytes, static_cast<char>('a' + i % 26));
    StoreBig64(bytes.data(), i);
    return bytes;
  };
  Costs costs;
  for (uint64_t i = 0; i < kCostKeys; ++i) {
    tree.Insert(KeyOf(i), value(i));
    if (i >= kCostKeys / 2) costs.insert.Add(tree.cost());
  }
  for (uint64_t i = 0; i < kCostKeys; ++i) {
    EXPECT_EQ(tree.Get(KeyOf(i)), value(i));
    costs.get.Add(tree.cost());
    EXPECT_EQ(tree.Get(AbsentKeyOf(i)), std::nullopt);
    costs.absent.Add(tree.cost());
  }
  for (uint64_t i = 0; i < kCostKeys; ++i) {
    tree.Update(KeyOf(i), value(i + 1));
    costs.update.Add(tree.cost());
    tree.Put(KeyOf(i), value(i + 2));
    costs.put.Add(tree.cost());
  }
  tree.Scan({});  // from here on it is known which blocks leaves name
  for (uint64_t i = 0; i < 2'000; ++i) {
    const std::string start = KeyOf(i);
    if (tree.Scan({.start = start, .limit = 100}).size() == 100) costs.scan.Add(tree.cost());
  }
  for (uint64_t i = 0; i < kCostKeys / 4; ++i) {
    tree.Delete(KeyOf(i));
    costs.remove.Add(tree.cost());
  }
  std::printf("leaves of %u, values of %zu bytes, inline up to %u\n", geometry.leaf_bytes,
              value_bytes, geometry.inline_value_bytes_max);
  costs.insert.Print("insert");
  costs.get.Print("get");
  costs.absent.Print("absent");
  costs.update.Print("update");
  costs.put.Print("put");
  costs.scan.Print("scan");
  costs.remove.Print("delete");
  return costs;
}

/// What those of trees of 8-byte keys and values are held to, too (CostsOfPartedLeavesOnAWarmCache).
/// `hints_lost`: the share of values out of line of which no hint found a place.
void ExpectRoundTripsOfPointOperations(const Costs& costs, double hints_lost = 0) {
  EXPECT_LE(costs.get.round_trips(), 1 + hints_lost);
  EXPECT_EQ(costs.absent.sum.round_trips, kCostKeys);
  EXPECT_LE(costs.update.round_trips(),
            2.03);  // until replaced blocks come back, new chunks are taken
  EXPECT_LE(costs.put.round_trips(), 2.01);
  EXPECT_LE(costs.insert.round_trips(), 2.06);
  EXPECT_LE(costs.remove.round_trips(), 2.06);
}

struct BytesMax {
  double get, absent, update, insert, remove, scan;
};
void ExpectBytes(const Costs& costs, const BytesMax& most) {
  EXPECT_LE(costs.get.bytes(), most.get);
  EXPECT_LE(costs.absent.bytes(), most.absent);
  EXPECT_LE(costs.update.bytes(), most.update);
  EXPECT_LE(costs.put.bytes(), most.update);
  EXPECT_LE(costs.insert.bytes(), most.insert);
  EXPECT_LE(costs.remove.bytes(), most.remove);
  EXPECT_LE(costs.scan.bytes(), most.scan);
}

TEST(BytesCostTest, ValuesOf8Bytes) {
  const Costs costs = CostsOf(Geometry::Bytes(), 8);
  ExpectRoundTripsOfPointOperations(costs);
  EXPECT_LE(costs.scan.round_trips(), 1.1);
  ExpectBytes(costs, {4'100, 4'100, 4'250, 5'400, 5'000, 13'000});
}

TEST(BytesCostTest, ValuesOf100BytesInTheLeaf) {
  const Costs costs = CostsOf(Geometry::Bytes(), 100);
  ExpectRoundTripsOfPointOperations(costs);
  EXPECT_LE(costs.scan.round_trips(), 1.1);
  ExpectBytes(costs, {4'100, 4'100, 4'450, 5'700, 4'600, 30'000});
}

TEST(BytesCostTest, ValuesOf100BytesOutOfLine) {
  const Costs costs = CostsOf(Geometry::Bytes(46), 100);
  ExpectRoundTripsOfPointOperations(costs, 0.004);
  EXPECT_LE(costs.scan.round_trips(), 1.1);
  ExpectBytes(costs, {4'250, 4'100, 4'450, 5'500, 4'900, 26'000});
}

TEST(BytesCostTest, ValuesOf1000Bytes) {
  const Costs costs = CostsOf(Geometry::Bytes(), 1'000);
  ExpectRoundTripsOfPointOperations(costs, 0.004);
  EXPECT_LE(costs.scan.round_trips(), 1.1);
  ExpectBytes(costs, {5'150, 4'100, 5'350, 6'400, 4'900, 116'000});
}

TEST(BytesCostTest, LeavesAreLookedAtAndValuesReplacedInPlace) {
  const Costs small = CostsOf(Geometry::Bytes(), 8, InPlace::kOn);
  ExpectRoundTripsOfPointOperations(small);
  EXPECT_LE(small.scan.round_trips(), 1.1);
  ExpectBytes(small, {840, 830, 1'000, 5'400, 5'000, 13'000});
  const Costs large = CostsOf(Geometry::Bytes(), 100, InPlace::kOn);
  ExpectRoundTripsOfPointOperations(large);
  EXPECT_LE(large.scan.round_trips(), 1.1);
  ExpectBytes(large, {450, 345, 790, 5'700, 4'600, 30'000});
  const Costs out_of_line = CostsOf(Geometry::Bytes(), 1'000, InPlace::kOn);
  ExpectRoundTripsOfPointOperations(out_of_line, 0.004);
  EXPECT_LE(out_of_line.scan.round_trips(), 1.1);
  ExpectBytes(out_of_line, {1'700, 640, 5'350, 6'400, 4'900, 116'000});
}

}  // namespace
}  // namespace farleaf::index
