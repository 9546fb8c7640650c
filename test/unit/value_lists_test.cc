// ValueLists: what scans of values out of line pay with them and without, while this compute server changes the
// tree and while others do, and what they remember at what price. index/blink/README.md has the table.
#include "index/blink/value_lists.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/random.h"
#include "test/support/mean_cost.h"
#include "test/support/node_fixture.h"
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

std::vector<dsm::RegionLayout> Layouts() {
  std::vector<dsm::RegionLayout> layouts;
  for (dsm::ServerId server = 0; server < 3; ++server) {
    layouts.push_back(*dsm::RegionLayout::For(server, uint64_t{64} << 20, uint64_t{1} << 20));
  }
  return layouts;
}

/// A leaf whose entries `first`, `first` + 1, ... name a block of their own each, one of three servers.
class ListedLeaf {
 public:
  ListedLeaf(uint64_t first, uint64_t count, uint64_t version = 1) : image_(Geometry::Bytes()) {
    const std::string low = Key(first), high = Key(first + count);
    image_->Init({.tree = 1,
                  .low = first == 0 ? std::nullopt : std::optional<std::string_view>(low),
                  .high = high});
    for (uint64_t i = first; i < first + count; ++i) {
      char value[kOutOfLineBytes];
      EncodeOutOfLine({Block(i).block, i * 4 + 1, Block(i).bytes - 16}, value);
      image_->Insert(i - first, Key(i), {{value, sizeof(value)}, true});
    }
    image_->Seal(version);
  }
  const ConstNode& operator*() { return *image_; }
  static std::string Key(uint64_t i) {
    std::string key = "user";
    return key += std::to_string(1'000'000'000 + i * 7919);
  }
  static ValueHint Block(uint64_t i) {
    return {{static_cast<dsm::ServerId>(i % 3), (uint64_t{8} << 20) + i / 3 * 1024},
            static_cast<uint32_t>(24 + i % 100 * 8)};
  }

 private:
  NodeImage image_;
};

constexpr ListVerdict kMissed{.missed = 1};
constexpr uint64_t kAll = UINT64_MAX;

std::vector<ValueHint> Found(const ValueLists& lists, uint64_t leaf, const WantedEntries& wanted) {
  std::vector<ValueHint> blocks;
  lists.Find(GlobalAddress(0, leaf * 4096), wanted, &blocks);
  return blocks;
}

TEST(ValueListsTest, ARangeFindsItsBlocksInItsOrder) {
  for (const uint64_t begin : {0, 500}) {  // without a low fence, and with one
    ValueLists lists(uint64_t{1} << 20, Layouts());
    ListedLeaf leaf(begin, 50);
    lists.NoteScanned(GlobalAddress(0, 4096), *leaf, kMissed);
    for (uint64_t first = 0; first <= 50; ++first) {
      for (uint64_t end = first; end <= 50; ++end) {
        const std::string from = ListedLeaf::Key(begin + first), to = ListedLeaf::Key(begin + end);
        const auto forward = Found(lists, 1, {.first = from, .end = to, .rows = 10, .bytes = kAll});
        ASSERT_EQ(forward.size(), std::min<uint64_t>(10, end - first));
        for (uint64_t i = 0; i < forward.size(); ++i) {
          ASSERT_EQ(forward[i], ListedLeaf::Block(begin + first + i));
        }
        const auto reverse = Found(
            lists, 1, {.first = from, .end = to, .forward = false, .rows = kAll, .bytes = kAll});
        ASSERT_EQ(reverse.size(), end - first);
        for (uint64_t i = 0; i < reverse.size(); ++i) {
          ASSERT_EQ(reverse[i], ListedLeaf::Block(begin + end - 1 - i));
        }
      }
    }
    EXPECT_EQ(Found(lists, 1, {.rows = kAll, .bytes = 1}).size(), 1u);
    EXPECT_EQ(Found(lists, 1, {.first = "user9", .rows = kAll, .bytes = kAll}).size(), 0u);
    EXPECT_EQ(Found(lists, 2, {.rows = kAll, .bytes = kAll}).size(), 0u);
  }
}

TEST(ValueListsTest, WritesChangeWhatIsThereAndSplitsAddToIt) {
  ValueLists lists(uint64_t{1} << 20, Layouts());
  const WantedEntries all{.rows = kAll, .bytes = kAll};
  ListedLeaf left(100, 25, 2), right(125, 25, 1);
  lists.NoteWritten(GlobalAddress(0, 4096), *left);
  EXPECT_TRUE(lists.empty());
  ListedLeaf both(100, 50, 1), older(100, 30, 1);
  lists.NoteScanned(GlobalAddress(0, 4096), *both, kMissed);
  lists.NoteSplit(GlobalAddress(0, 4096), GlobalAddress(0, 8192), *right);
  lists.NoteWritten(GlobalAddress(0, 4096), *left);
  EXPECT_EQ(Found(lists, 1, all).size(), 25u);
  EXPECT_EQ(Found(lists, 2, all).front(), ListedLeaf::Block(125));
  // Read before it was written: unless the list has proved wrong, it stays.
  lists.NoteScanned(GlobalAddress(0, 4096), *older, {.guessed = 25, .right = 25});
  EXPECT_EQ(Found(lists, 1, all).size(), 25u);
  lists.NoteScanned(GlobalAddress(0, 4096), *older, {.guessed = 25, .right = 25, .missed = 5});
  EXPECT_EQ(Found(lists, 1, all).size(), 30u);
  ListedLeaf empty(100, 0, 3);
  lists.NoteWritten(GlobalAddress(0, 4096), *empty);
  lists.NoteWritten(GlobalAddress(0, 8192), *empty);
  EXPECT_TRUE(lists.empty());
  EXPECT_EQ(lists.bytes(), 0u);
}

TEST(ValueListsTest, AListThatIsMostlyWrongIsUsedLessAndLess) {
  ValueLists lists(uint64_t{1} << 20, Layouts());
  const WantedEntries all{.rows = kAll, .bytes = kAll};
  uint64_t guessed = 0;
  for (uint64_t scan = 0; scan < 1'600; ++scan) {
    ListedLeaf leaf(1 + scan % 7, 10, scan + 1);
    const size_t blocks = Found(lists, 1, all).size();
    guessed += blocks > 0;
    lists.NoteScanned(GlobalAddress(0, 4096), *leaf, {.guessed = blocks, .missed = 10});
  }
  EXPECT_GE(guessed, 100u);
  EXPECT_LE(guessed, 104u);
  uint64_t scans = 0;
  for (uint64_t right = 0; right < 6; ++scans) {  // what proves right is soon used always
    ListedLeaf leaf(1, 10, 10'000);
    const size_t blocks = Found(lists, 1, all).size();
    right += blocks > 0;
    lists.NoteScanned(GlobalAddress(0, 4096), *leaf, {.guessed = blocks, .right = blocks});
  }
  EXPECT_LE(scans, 16u + 6);
}

TEST(ValueListsTest, TheBudgetHoldsAndWhatIsUsedStays) {
  constexpr uint64_t kBytes = uint64_t{256} << 10;
  ValueLists lists(kBytes, Layouts());
  const WantedEntries all{.rows = kAll, .bytes = kAll};
  constexpr uint64_t kHot = 50;
  ListedLeaf leaf(100, 50);
  uint64_t kept = 0, asked = 0;
  for (uint64_t i = 0; i < 20'000; ++i) {
    lists.NoteScanned(GlobalAddress(0, (kHot + 1 + i) * 4096 % (uint64_t{64} << 20)), *leaf,
                      kMissed);
    const uint64_t hot = 1 + Mix64(i) % kHot;
    const bool found = !Found(lists, hot, all).empty();
    if (!found) lists.NoteScanned(GlobalAddress(0, hot * 4096), *leaf, kMissed);
    asked += i > 5'000;
    kept += i > 5'000 && found;
    ASSERT_LE(lists.bytes(), kBytes);
  }
  EXPECT_GE(kept * 100, asked * 95) << kept << " of " << asked;
  EXPECT_GE(lists.bytes(), kBytes * 9 / 10);
  ValueLists none(0, Layouts());
  none.NoteScanned(GlobalAddress(0, 4096), *leaf, kMissed);
  EXPECT_TRUE(none.empty());
}

TEST(ValueListsTest, ThreadsFindNoBlockThatNobodyNoted) {
  ValueLists lists(uint64_t{32} << 10, Layouts());
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&lists, t] {
      Random random(t);
      ListedLeaf one(0, 30), two(30, 30, 2);
      for (int n = 0; n < 20'000; ++n) {
        const uint64_t leaf = random.Below(100);
        const GlobalAddress address(0, leaf * 4096);
        if (random.OneIn(3)) lists.NoteScanned(address, *one, kMissed);
        if (random.OneIn(3)) lists.NoteWritten(address, *two);
        if (random.OneIn(9))
          lists.NoteSplit(address, GlobalAddress(0, 4096 * random.Below(100)), *two);
        const auto found = Found(lists, leaf, {.rows = kAll, .bytes = kAll});
        if (found.empty()) continue;
        const uint64_t first = found[0] == ListedLeaf::Block(0) ? 0 : 30;
        ASSERT_EQ(found.size(), 30u);
        for (uint64_t i = 0; i < 30; ++i) ASSERT_EQ(found[i], ListedLeaf::Block(first + i));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

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
