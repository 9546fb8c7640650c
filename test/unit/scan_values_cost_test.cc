// What scans of values out of line pay with lists of their blocks and without, wherever they begin, page by page,
// while this compute server changes the tree and while others do. index/blink/README.md has the table.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "dsm/base/random.h"
#include "index/blink/value_lists.h"
#include "test/support/mean_cost.h"
#include "test/support/other_view.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

constexpr uint64_t kKeys = 40'000;

/// 24 bytes of any value.
std::string KeyOf(uint64_t i) {
  std::string key(24, '\0');
  for (uint64_t word = 0; word < 3; ++word) StoreBig64(&key[word * 8], Mix64(i * 3 + word));
  return key;
}

/// A tree of keys with values out of line, and what it holds.
class ScannedTree {
 public:
  explicit ScannedTree(size_t value_bytes, TreeOptions options = {})
      : value_bytes_(value_bytes),
        local_({.geometry = Geometry::Bytes(46),
                .tree = options,
                .fabric = {.servers = 2, .region_bytes = uint64_t{256} << 20},
                .pool = {.allocator = {.grace_ms = 0}}}) {
    for (uint64_t i = 0; i < kKeys; ++i) Put(local_, KeyOf(i));
  }

  template <typename View>
  void Put(View& view, const std::string& key) {
    std::string value(value_bytes_, 'v');
    StoreBig64(value.data(), ++changes_);
    view.Put(key, value);
    rows_[key] = value;
  }
  template <typename View>
  void Delete(View& view, const std::string& key) {
    view.Delete(key);
    rows_.erase(key);
  }
  /// The cost of scans from anywhere, each of which brings what is there.
  template <typename View>
  MeanCost Scans(View& view, uint64_t limit, ScanDirection direction, uint64_t count = 1'000) {
    MeanCost cost;
    for (uint64_t i = 0; i < count; ++i) {
      const std::string key = KeyOf(Mix64(i + limit) % kKeys);
      Check(view, key, limit, direction);
      cost.Add(view.cost());
    }
    return cost;
  }
  template <typename View>
  void Check(View& view, const std::string& key, uint64_t limit, ScanDirection direction) {
    ScanRange range{.limit = limit, .direction = direction};
    auto expected = rows_.lower_bound(key);
    const bool forward = direction == ScanDirection::kForward;
    (forward ? range.start : range.end.emplace()) = key;
    const std::vector<KeyValue> rows = view.Scan(range);
    for (const KeyValue& row : rows) {
      if (!forward) --expected;
      ASSERT_EQ(row.key, expected->first);
      ASSERT_EQ(row.value, expected->second);
      if (forward) ++expected;
    }
    if (rows.size() < limit) {
      ASSERT_EQ(expected, forward ? rows_.end() : rows_.begin());
    }
  }
  LocalTree& local() { return local_; }
  const BlinkTree& tree() { return local_.tree(); }
  Random& random() { return random_; }

 private:
  size_t value_bytes_;
  LocalTree local_;
  Random random_{7};
  uint64_t changes_ = 0;
  std::map<std::string, std::string> rows_;
};

class ScanCostTest : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(ValueBytes, ScanCostTest, testing::Values(100, 1'000));

TEST_P(ScanCostTest, AWarmScanTakesOneRoundTripAndNoMoreBytesThanTwo) {
  ScannedTree tree(GetParam());
  OtherView without(tree.local(), {.value_list_bytes = 0});
  without.WarmCache();
  tree.local().Scan({});
  for (const uint64_t limit : {10, 100}) {
    for (const ScanDirection direction : {ScanDirection::kForward, ScanDirection::kReverse}) {
      const MeanCost one = tree.Scans(tree.local(), limit, direction);
      const MeanCost two = tree.Scans(without, limit, direction);
      std::printf("%zu bytes, %s of %zu\n", GetParam(),
                  direction == ScanDirection::kForward ? "scan" : "reverse scan", limit);
      two.Print("without");
      one.Print("with");
      EXPECT_LE(one.round_trips(), 1.1);
      EXPECT_GE(two.round_trips(), 2);
      EXPECT_LE(one.bytes(), two.bytes());
    }
  }
  const ValueLists& lists = tree.tree().value_lists();
  std::printf("%.1f bytes a value\n", static_cast<double>(lists.bytes()) / kKeys);
  EXPECT_LE(lists.bytes(), 13 * kKeys);
}

/// The cost of a page, on average, where the whole tree is read page by page: forward from behind the last key,
/// in reverse from that key.
MeanCost Pages(LocalTree& tree, uint64_t keys, uint64_t limit, ScanDirection direction,
               std::string (*next)(const std::string& key)) {
  MeanCost cost;
  uint64_t rows_seen = 0;
  std::string bound;
  for (std::vector<KeyValue> rows(limit); rows.size() == limit; rows_seen += rows.size()) {
    ScanRange range{.limit = limit, .direction = direction};
    if (direction == ScanDirection::kForward) {
      range.start = bound;
    } else if (!bound.empty()) {
      range.end = bound;
    }
    rows = tree.Scan(range);
    cost.Add(tree.cost());
    if (rows.empty()) break;
    bound = direction == ScanDirection::kForward ? next(rows.back().key) : rows.back().key;
  }
  EXPECT_EQ(rows_seen, keys);
  return cost;
}
std::string NextBytes(const std::string& key) { return key + '\0'; }
std::string NextFixed8(const std::string& key) { return Fixed(LoadBig64(key.data()) + 1); }

TEST_P(ScanCostTest, PagesTakeAsManyRoundTripsAsThoseOfSmallKeysAndValues) {
  ScannedTree tree(GetParam());
  LocalTree small({.fabric = {.servers = 2, .region_bytes = uint64_t{256} << 20}});
  for (uint64_t i = 0; i < kKeys; ++i) small.Put(Fixed(Mix64(i) / 2), Fixed(i));
  tree.local().Scan({});
  small.Scan({});
  for (const uint64_t limit : {10, 100}) {
    for (const ScanDirection direction : {ScanDirection::kForward, ScanDirection::kReverse}) {
      const MeanCost listed = Pages(tree.local(), kKeys, limit, direction, NextBytes);
      const MeanCost fixed = Pages(small, kKeys, limit, direction, NextFixed8);
      std::printf("pages of %zu, %s\n", limit,
                  direction == ScanDirection::kForward ? "forward" : "reverse");
      fixed.Print("fixed8");
      listed.Print("listed");
      EXPECT_LE(listed.round_trips(), fixed.round_trips() + 0.01);
    }
  }
}

TEST_P(ScanCostTest, WhereverAScanBeginsItTakesOneRoundTripAndAtMostABlockInVain) {
  ScannedTree tree(GetParam());
  tree.local().Scan({});
  const MeanCost exact = tree.Scans(tree.local(), 10, ScanDirection::kForward);
  const MeanCost exact_reverse = tree.Scans(tree.local(), 10, ScanDirection::kReverse);
  for (const ScanDirection direction : {ScanDirection::kForward, ScanDirection::kReverse}) {
    const bool forward = direction == ScanDirection::kForward;
    for (const char* const begin : {"ahead of a key", "at the next one possible", "behind a key"}) {
      MeanCost cost;
      for (uint64_t i = 0; i < 1'000; ++i) {
        std::string key = KeyOf(Mix64(i + 10) % kKeys);
        if (begin[0] == 'b') {
          key += "behind";
        } else if (begin[1] == 't') {
          key += '\0';
        } else {
          key.resize(12);
        }
        tree.Check(tree.local(), key, 10, direction);
        cost.Add(tree.local().cost());
      }
      std::printf("%s, %s\n", begin, forward ? "forward" : "reverse");
      cost.Print("listed");
      EXPECT_LE(cost.round_trips(), 1.01);
      EXPECT_LE(cost.bytes(), (forward ? exact : exact_reverse).bytes() +
                                  static_cast<double>(GetParam()) + 24 + 100);
    }
  }
}

TEST_P(ScanCostTest, LimitsOfBytesTakeOneRoundTripToo) {
  ScannedTree tree(GetParam());
  tree.local().Scan({});
  const uint64_t row_bytes = GetParam() + 24;
  for (const ScanDirection direction : {ScanDirection::kForward, ScanDirection::kReverse}) {
    MeanCost cost;
    for (uint64_t i = 0; i < 1'000; ++i) {
      const std::string key = KeyOf(i);
      ScanRange range{.limit = 30, .bytes_max = 20 * row_bytes, .direction = direction};
      (direction == ScanDirection::kForward ? range.start : range.end.emplace()) = key;
      const size_t rows = tree.local().Scan(range).size();
      EXPECT_LE(rows, 20u);
      if (rows == 20) cost.Add(tree.local().cost());
    }
    cost.Print("bytes");
    EXPECT_LE(cost.round_trips(), 1.01);
    EXPECT_LE(cost.bytes(), 21.5 * static_cast<double>(row_bytes) + 1.5 * 4'096);
  }
}

TEST_P(ScanCostTest, ThisComputeServersWritesKeepTheListsRight) {
  ScannedTree tree(GetParam());
  tree.local().Scan({});
  MeanCost scans;
  for (uint64_t i = 0; i < 20'000; ++i) {
    const std::string key = KeyOf(tree.random().Below(2 * kKeys));
    if (tree.random().OneIn(3)) {
      tree.Delete(tree.local(), key);
    } else {
      tree.Put(tree.local(), key);
    }
    if (i % 10 == 0) {
      tree.Check(tree.local(), KeyOf(tree.random().Below(kKeys)), 100, ScanDirection::kForward);
      scans.Add(tree.local().cost());
    }
  }
  scans.Print("mixed");
  EXPECT_LE(scans.round_trips(), 1.1);
}

TEST_P(ScanCostTest, WhatOthersChangeCostsASecondRoundTripForTheChangedRows) {
  ScannedTree tree(GetParam());
  OtherView other(tree.local(), {});
  other.WarmCache();
  tree.local().Scan({});
  const MeanCost before = tree.Scans(tree.local(), 100, ScanDirection::kForward);
  MeanCost scans;
  for (uint64_t i = 0; i < 2'000; ++i) {
    const std::string start = KeyOf(tree.random().Below(kKeys));
    const std::vector<KeyValue> rows = tree.local().Scan({.start = start, .limit = 20});
    for (size_t row = 0; row < rows.size(); row += 5) tree.Put(other, rows[row].key);
    tree.Check(tree.local(), start, 100, ScanDirection::kForward);
    scans.Add(tree.local().cost());
  }
  scans.Print("others");
  EXPECT_LE(scans.round_trips(), 2.1);
  EXPECT_LE(scans.bytes(), before.bytes() + 5.0 * static_cast<double>(GetParam() + 24));
}

}  // namespace
}  // namespace farleaf::index
