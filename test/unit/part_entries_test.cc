// Entries of parts in the order of keys, by vectors and one by one, beside a sort.
#include "index/blink/part_entries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "dsm/base/random.h"

namespace farleaf::index {
namespace {

constexpr size_t kParts = 16;

struct Where {
  uint64_t key;
  size_t part, slot;
  bool operator==(const Where&) const = default;
};

class PartEntriesTest : public testing::Test {
 protected:
  /// Keys of the range, where they happen to be; slots that are not in use hold keys as well.
  void Fill(LeafRange range, Random& random) {
    for (size_t p = 0; p < kParts; ++p) {
      Part part(image_ + p * kPartBytes);
      std::memset(image_ + p * kPartBytes, 0, kPartBytes);
      for (size_t slot = 0; slot < kPartSlots; ++slot) {
        const uint64_t value = random.Below(100);
        part.Put(slot, range.low + random.Below(range.high - range.low), &value);
      }
      for (size_t slot = 0; slot < kPartSlots; ++slot) {
        if (random.Below(3) == 0) part.Clear(slot);
      }
    }
  }
  static std::vector<Where> BySort(const LeafParts& leaf, const PartEntries::Parts& parts,
                                   size_t number, const EntryWindow& window,
                                   std::vector<size_t>* ends) {
    std::vector<Where> all;
    for (size_t i = 0; i < number; ++i) {
      const ConstPart part = leaf.part(parts[i]);
      std::vector<Where> some;
      for (size_t slot = 0; slot < kPartSlots; ++slot) {
        const uint64_t offset = part.key(slot) - window.low;
        const bool inside = offset >= window.first && offset - window.first < window.span;
        if ((part.used() >> slot & 1) != 0 && inside)
          some.push_back({part.key(slot), parts[i], slot});
      }
      std::sort(some.begin(), some.end(), [&](const Where& a, const Where& b) {
        const uint64_t x = (a.key - window.low) >> window.shift,
                       y = (b.key - window.low) >> window.shift;
        return x != y ? x < y : a.slot < b.slot;
      });
      all.insert(all.end(), some.begin(), some.end());
      ends->push_back(all.size());
    }
    return all;
  }
  static std::vector<Where> Of(const LeafParts& leaf, const PartEntries& entries) {
    std::vector<Where> all;
    for (size_t i = 0; i < entries.count(); ++i) {
      all.push_back(
          {leaf.part(entries.part(i)).key(entries.slot(i)), entries.part(i), entries.slot(i)});
    }
    return all;
  }

  alignas(64) std::byte image_[kParts * kPartBytes + kLeafTrailerBytes - 8] = {};
};

TEST_F(PartEntriesTest, EachPartIsSortedInBothWays) {
  Random random(11);
  const LeafRange ranges[] = {
      {5, 60}, {1000, uint64_t{1} << 40}, {uint64_t{1} << 63, UINT64_MAX}, {1, UINT64_MAX}};
  for (int turn = 0; turn < 4000; ++turn) {
    const LeafRange range = ranges[turn % std::size(ranges)];
    Fill(range, random);
    const LeafParts leaf(image_, (uint32_t{1} << kParts) - 1, range);
    EntryWindow window{range.low, PartEntries::ShiftOf(range), 0, range.high - range.low};
    if (turn % 3 != 0) {
      window.first = random.Below(window.span);
      window.span = 1 + random.Below(window.span - window.first);
    }
    PartEntries vectors, one_by_one;
    std::vector<Where> expected;
    for (size_t first = 0; first < kParts;) {
      PartEntries::Parts parts{};
      const size_t number = std::min(kParts - first, 1 + random.Below(PartEntries::kTogether));
      for (size_t i = 0; i < number; ++i) parts[i] = static_cast<uint8_t>(first + i);
      std::vector<size_t> ends;
      const std::vector<Where> more = BySort(leaf, parts, number, window, &ends);
      PartEntries::Ends by_vectors{}, by_one{};
      vectors.Add(leaf, parts, number, window, &by_vectors);
      one_by_one.AddOneByOne(leaf, parts, number, window, &by_one);
      for (size_t i = 0; i < number; ++i) {
        ASSERT_EQ(by_vectors[i], expected.size() + ends[i]) << "turn " << turn;
        ASSERT_EQ(by_one[i], expected.size() + ends[i]) << "turn " << turn;
      }
      expected.insert(expected.end(), more.begin(), more.end());
      first += number;
    }
    ASSERT_EQ(Of(leaf, vectors), expected) << "turn " << turn;
    ASSERT_EQ(Of(leaf, one_by_one), expected) << "turn " << turn;
  }
}

TEST_F(PartEntriesTest, AllPartsTogetherAreSortedByKeysOrSomeKeyStandsTwice) {
  Random random(12);
  size_t twice = 0;
  for (int turn = 0; turn < 2000; ++turn) {
    // Keys whose offsets, as far as they fit, are equal now and then; and few enough to be there twice.
    const LeafRange range = turn % 2 == 0 ? LeafRange{0, uint64_t{1} << 63} : LeafRange{7, 4000};
    Fill(range, random);
    if (turn % 4 == 0) {
      Part part(image_);
      const uint64_t value = 1, key = part.key(1);
      part.Put(2, key ^ 1, &value);
      part.Put(1, key, &value);
    }
    const LeafParts leaf(image_, (uint32_t{1} << kParts) - 1, range);
    const EntryWindow window{range.low, PartEntries::ShiftOf(range), 0, range.high - range.low};
    PartEntries entries;
    for (size_t first = 0; first < kParts; first += PartEntries::kTogether) {
      PartEntries::Parts parts{};
      for (size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<uint8_t>(first + i);
      PartEntries::Ends ends;
      entries.Add(leaf, parts, parts.size(), window, &ends);
    }
    std::vector<uint64_t> keys;
    for (const Where& where : Of(leaf, entries)) keys.push_back(where.key);
    std::sort(keys.begin(), keys.end());
    const bool distinct = std::adjacent_find(keys.begin(), keys.end()) == keys.end();
    twice += !distinct;
    if (turn % 5 == 0) entries.Sort();
    const bool in_order = !entries.SortNearly() || entries.SortByKeys(leaf);
    ASSERT_EQ(in_order, distinct) << "turn " << turn;
    if (!in_order) continue;
    const std::vector<Where> all = Of(leaf, entries);
    ASSERT_EQ(all.size(), keys.size());
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(all[i].key, keys[i]) << "turn " << turn;
  }
  EXPECT_GT(twice, 100U);
}

}  // namespace
}  // namespace farleaf::index
