// ValueLists: which blocks they say a scan will want, and which lists they keep. What scans pay is tested in
// scan_values_cost_test.cc.
#include "index/blink/value_lists.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/random.h"
#include "test/support/node_fixture.h"

namespace farleaf::index {
namespace {

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
  void Replace(uint64_t index, const ValueHint& block, uint64_t version) {
    char value[kOutOfLineBytes];
    EncodeOutOfLine({block.block, version * 4 + 1, block.bytes - 16}, value);
    image_->ReplaceValue(index, {{value, sizeof(value)}, true});
    image_->Seal(version);
  }
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

/// Where 8 more bytes of a key tell it from others, as many as are asked for.
std::string AlikeKey(uint64_t i) {
  std::string key = "many that begin alike: 12345678";
  StoreBig64(&key[key.size() - 8], i * 256 + 7);
  return key;
}
/// A leaf of such keys, `count` of them, behind a low fence that begins otherwise.
void FillAlike(NodeImage& image, uint64_t count) {
  image->Init({.tree = 1, .low = "a", .high = "z"});
  for (uint64_t i = 0; i < count; ++i) {
    char value[kOutOfLineBytes];
    const ValueHint block = ListedLeaf::Block(i);
    EncodeOutOfLine({block.block, i * 4 + 1, block.bytes - 16}, value);
    image->Insert(i, AlikeKey(i), {{value, sizeof(value)}, true});
  }
  image->Seal(1);
}

TEST(ValueListsTest, OfKeysThatBeginAlikeFewMoreThanTheLimitAreRead) {
  constexpr uint64_t kCount = 40, kRows = 5;
  ValueLists lists(uint64_t{1} << 20, Layouts());
  NodeImage leaf(Geometry::Bytes());
  FillAlike(leaf, kCount);
  lists.NoteScanned(GlobalAddress(0, 4096), *leaf, kMissed);
  uint64_t read = 0, needed = 0, lacking = 0;
  const auto check = [&](const WantedEntries& wanted, uint64_t first, uint64_t end) {
    const auto blocks = Found(lists, 1, wanted);
    ASSERT_LE(blocks.size(), 2 * kRows + 1);
    read += blocks.size();
    for (uint64_t n = 0; n < std::min(kRows, end - first); ++n, ++needed) {
      const ValueHint block = ListedLeaf::Block(wanted.forward ? first + n : end - 1 - n);
      lacking += std::find(blocks.begin(), blocks.end(), block) == blocks.end();
    }
  };
  for (uint64_t i = 0; i < kCount; ++i) {
    const std::string key = AlikeKey(i), next = key + '\0';
    check({.first = key, .rows = kRows, .bytes = kAll}, i, kCount);
    check({.first = next, .rows = kRows, .bytes = kAll}, i + 1, kCount);
    check({.end = key, .forward = false, .rows = kRows, .bytes = kAll}, 0, i);
    check({.end = next, .forward = false, .rows = kRows, .bytes = kAll}, 0, i + 1);
  }
  EXPECT_LE(lacking * 100, needed * 12) << lacking << " of " << needed;
  EXPECT_LE(read * 100, needed * 150) << read << " for " << needed;
  // No key, and no next one: from where the keys that begin like it begin.
  check({.first = "many", .rows = kRows, .bytes = kAll}, 0, kCount);
  check({.first = "many that", .rows = kRows, .bytes = kAll}, 0, kCount);
  read = 0;
  check({.end = "many that", .forward = false, .rows = kRows, .bytes = kAll}, 0, 0);
  EXPECT_LE(read, kRows + 1);
}

TEST(ValueListsTest, ALimitOfBytesIsReachedByRowsAndNotByBlocks) {
  ValueLists lists(uint64_t{1} << 20, Layouts());
  ListedLeaf leaf(100, 50);
  lists.NoteScanned(GlobalAddress(0, 4096), *leaf, kMissed);
  for (uint64_t limit = 1; limit < 12'000; limit += 7) {
    uint64_t needed = 0;
    for (uint64_t bytes = 0; bytes < limit && needed < 50; ++needed) {
      bytes += ListedLeaf::Key(100).size() + ListedLeaf::Block(100 + needed).bytes - 16;
    }
    std::vector<ValueHint> blocks;
    const auto listed = lists.Find(GlobalAddress(0, 4096), {.rows = kAll, .bytes = limit}, &blocks);
    ASSERT_TRUE(listed);
    EXPECT_EQ(listed->wanted, 50u);
    EXPECT_EQ(listed->rows, blocks.size());
    EXPECT_GE(blocks.size(), needed);
    EXPECT_LE(blocks.size(), needed + 1 + needed / 16);
  }
}

TEST(ValueListsTest, AListThatNoScanAsksForGoesWithTheWritesAndSplits) {
  ValueLists lists(uint64_t{1} << 20, Layouts());
  ListedLeaf leaf(100, 50);
  const GlobalAddress left(0, 4096), right(0, 8192);
  lists.NoteScanned(left, *leaf, kMissed);
  for (int i = 0; i < 200; ++i) {
    if (i % 30 == 0) {
      EXPECT_FALSE(Found(lists, 1, {.rows = 1, .bytes = kAll}).empty());
    }
    lists.NoteWritten(left, *leaf);
  }
  for (int i = 0; i < 8; ++i) lists.NoteWritten(left, *leaf);
  lists.NoteSplit(left, right, *leaf);
  EXPECT_EQ(lists.lists(), 2u);
  for (int i = 0; i < 20; ++i) {
    lists.NoteWritten(left, *leaf);
    lists.NoteWritten(right, *leaf);
  }
  EXPECT_TRUE(lists.empty());
  EXPECT_EQ(lists.bytes(), 0u);
}

TEST(ValueListsTest, AValueThatIsReplacedChangesItsWordAlone) {
  ValueLists lists(uint64_t{1} << 20, Layouts());
  const WantedEntries all{.rows = kAll, .bytes = kAll};
  const GlobalAddress address(0, 4096);
  ListedLeaf leaf(100, 50, 1);
  lists.NoteScanned(address, *leaf, kMissed);
  std::vector<ValueHint> expected = Found(lists, 1, all);
  for (uint64_t version = 2; version < 400; ++version) {
    const uint64_t i = Mix64(version) % 50;
    const ValueHint block = ListedLeaf::Block(1'000 + version);
    leaf.Replace(i, block, version);
    lists.NoteWritten(address, *leaf, i);
    expected[i] = block;
    ASSERT_EQ(lists.lists(), 1u);
  }
  EXPECT_EQ(Found(lists, 1, all), expected);
  const std::string from = ListedLeaf::Key(120), to = ListedLeaf::Key(130);
  EXPECT_EQ(Found(lists, 1, {.first = from, .end = to, .rows = kAll, .bytes = kAll}),
            std::vector(expected.begin() + 20, expected.begin() + 30));
  // Of another version than the one before, the list is made anew.
  leaf.Replace(3, ListedLeaf::Block(2'000), 500);
  leaf.Replace(4, ListedLeaf::Block(2'001), 501);
  lists.NoteWritten(address, *leaf, 4);
  expected[3] = ListedLeaf::Block(2'000);
  expected[4] = ListedLeaf::Block(2'001);
  EXPECT_EQ(Found(lists, 1, all), expected);
  // What no scan asks for goes at last.
  for (uint64_t version = 502; !lists.empty(); ++version) {
    ASSERT_LT(version, 2'000u);
    leaf.Replace(5, ListedLeaf::Block(version), version);
    lists.NoteWritten(address, *leaf, 5);
  }
}

TEST(ValueListsTest, AListThatIsRightIsUsedHoweverLittleOfItIsWanted) {
  ValueLists lists(uint64_t{1} << 20, Layouts());
  ListedLeaf leaf(100, 50);
  lists.NoteScanned(GlobalAddress(0, 4096), *leaf, kMissed);
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Found(lists, 1, {.rows = 5, .bytes = kAll}).size(), 5u);
    lists.NoteScanned(GlobalAddress(0, 4096), *leaf, {.guessed = 5, .right = 1});
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

}  // namespace
}  // namespace farleaf::index
