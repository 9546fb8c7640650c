// Homes of keys: ordered ones are those of the formula, in the order of keys, even for keys that are spread
// evenly, and never outside of the leaf.
#include "index/blink/leaf_homes.h"

#include <gtest/gtest.h>

#include <vector>

#include "dsm/base/random.h"
#include "index/blink/part_window.h"
#include "test/support/test_scale.h"

namespace farleaf::index {
namespace {

LeafRange RandomRange(Random* random) {
  const uint64_t low = random->OneIn(3) ? random->Below(3) : random->Next() >> random->Below(64);
  const uint64_t room = ~uint64_t{0} - low;
  const uint64_t span = random->OneIn(4) ? room : random->Next() >> random->Below(64);
  return {low, low + std::min(std::max<uint64_t>(span, 1), room)};
}

/// As leaf_homes.h has it, with numbers that cannot overflow.
size_t HomeByFormula(uint64_t key, size_t parts, LeafRange range) {
  using Wide = unsigned __int128;
  const Wide last = range.high - 1 - range.low;
  int shift = 0;
  while (last >> shift >= Wide{1} << 32) ++shift;
  const Wide units = (last >> shift) + 1;
  const Wide middle = 2 * (Wide{key - range.low} >> shift) + 1;
  return static_cast<size_t>(middle * ((Wide{parts} << 57) / units) >> 58);
}

TEST(LeafHomesTest, OrderedHomesAreThoseOfTheFormulaAndInTheOrderOfKeys) {
  for (uint64_t seed = 0; seed < test::Amount{2'000, 20'000, 500'000}; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const LeafRange range = RandomRange(&random);
    if (!range.bounded()) continue;
    const size_t parts = 4 + random.Below(28);
    const LeafHomes homes(parts, Placement::kOrdered, range);
    ASSERT_TRUE(homes.ordered());
    std::vector<uint64_t> keys = {range.low, range.high - 1};
    for (int i = 0; i < 20; ++i) keys.push_back(range.low + random.Below(range.high - range.low));
    for (size_t part = 0; part < parts; ++part) {
      const uint64_t first = homes.FirstKeyOf(part), end = homes.EndKeyOf(part);
      ASSERT_LE(first, end);
      ASSERT_GE(first, range.low);
      ASSERT_LE(end, range.high);
      if (first < range.high) {
        ASSERT_GE(homes.Of(first), part);
      }
      if (first > range.low) {
        ASSERT_LT(homes.Of(first - 1), part);
      }
      if (first < end) {
        ASSERT_EQ(homes.Of(first), part);
        ASSERT_EQ(homes.Of(end - 1), part);
        keys.push_back(first);
        keys.push_back(end - 1);
      }
    }
    ASSERT_EQ(homes.FirstKeyOf(0), range.low);
    ASSERT_EQ(homes.EndKeyOf(parts - 1), range.high);
    std::sort(keys.begin(), keys.end());
    size_t before = 0;
    for (const uint64_t key : keys) {
      const size_t home = homes.Of(key);
      ASSERT_EQ(home, HomeByFormula(key, parts, range)) << key;
      ASSERT_GE(home, before);
      ASSERT_LT(home, parts);
      before = home;
    }
  }
}

TEST(LeafHomesTest, AKeyOutsideOfTheFencesHasAHomeInTheLeaf) {
  for (uint64_t seed = 0; seed < test::Amount{2'000, 20'000, 500'000}; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    LeafRange range = RandomRange(&random);
    if (random.OneIn(4)) range = {random.Next(), random.Next()};
    const size_t parts = 4 + random.Below(28);
    for (const Placement placement : {Placement::kHashed, Placement::kOrdered}) {
      const LeafHomes homes(parts, placement, range);
      ASSERT_EQ(homes.ordered(), placement == Placement::kOrdered && range.bounded());
      for (const uint64_t key :
           {uint64_t{0}, ~uint64_t{0}, range.low - 1, range.high, range.high + 1, random.Next()}) {
        ASSERT_LT(homes.Of(key), parts);
      }
      if (!homes.ordered()) continue;
      ASSERT_EQ(homes.Of(range.low == 0 ? 0 : range.low - 1), homes.Of(range.low));
      ASSERT_EQ(homes.Of(range.high), homes.Of(range.high - 1));
    }
  }
}

TEST(LeafHomesTest, EvenKeysFillPartsEvenly) {
  for (const size_t parts : {4u, 16u, 31u}) {
    for (const uint64_t span : {uint64_t{1000}, uint64_t{1} << 33, (uint64_t{1} << 63) + 12345}) {
      const LeafRange range{777, 777 + span};
      const LeafHomes homes(parts, Placement::kOrdered, range);
      std::vector<size_t> count(parts);
      const uint64_t step = span / 1000;
      for (uint64_t i = 0; i < 1000; ++i) ++count[homes.Of(range.low + i * step)];
      for (const size_t keys : count) EXPECT_NEAR(keys, 1000.0 / parts, 2) << parts << ' ' << span;
    }
  }
}

TEST(LeafHomesTest, AWindowBeginsAtTheHomeOfThePlacementThatIsRemembered) {
  const LeafRange range{0, 1600};
  constexpr uint64_t kAllMet = 0x55555555;
  const PartHints ordered{kAllMet}, hashed{PartHints::kHashed | kAllMet};
  for (uint64_t key = 0; key < 1600; ++key) {
    EXPECT_EQ(WindowToRead(key, LeafHomes(16, ordered.placement(), range), ordered),
              PartMask{1} << key / 100);
    EXPECT_EQ(WindowToRead(key, LeafHomes(16, hashed.placement(), range), hashed),
              PartMask{1} << HomePart(key, 16));
  }
  EXPECT_EQ(WindowToRead(250, LeafHomes(16, ordered.placement(), range), PartHints{}), 0xcu)
      << "of parts that were never met, the next too";
  const PartHints passed{PartHints::kPassed << 2 * 15};  // entries went past the last part
  EXPECT_EQ(WindowToRead(1599, LeafHomes(16, passed.placement(), range), passed), 0x8001u);
}

TEST(LeafHomesTest, AWindowForANewKeyEndsWithRoomOrWhereThereMayBeSome) {
  const LeafHomes homes(16, Placement::kOrdered, LeafRange{0, 1600});
  const auto window = [&](std::initializer_list<uint64_t> states_from_part_2) {
    uint64_t word = 0;
    size_t part = 2;
    for (const uint64_t state : states_from_part_2) word |= state << 2 * part++;
    return WindowToCreate(250, homes, PartHints{word});
  };
  constexpr uint64_t kMet = PartHints::kMet, kFull = PartHints::kFull, kPassed = PartHints::kPassed;
  EXPECT_EQ(window({}), 0b1100u);
  EXPECT_EQ(window({kMet}), 0b100u);
  EXPECT_EQ(window({kFull, kMet}), 0b1100u);
  EXPECT_EQ(window({kFull}), 0b1100u);
  EXPECT_EQ(window({0, kFull, kMet}), 0b11100u);
  EXPECT_EQ(window({kPassed, kFull, kPassed, kMet}), 0b111100u);
  EXPECT_EQ(window({kFull, kFull}), 0b11100u) << "there may be room in the last one";
  EXPECT_EQ(window({kPassed, kPassed, kFull}), AllParts(16)) << "it is to be split";
}

TEST(CountFieldTest, HoldsWhatALeafHasRoomForAndNothingElseOfTheWord) {
  for (size_t parts = kLeafPartsMin; parts <= PartHints::kCountedPartsMax; ++parts) {
    const CountField& field = CountField::Of(parts);
    const uint64_t states = (uint64_t{1} << 2 * parts) - 1;
    EXPECT_EQ(field.mask() & (states | PartHints::kHashed), 0u) << parts;
    EXPECT_EQ(PartHints{~field.mask()}.count(parts), std::nullopt) << parts;
    for (size_t entries = 0; entries <= parts * kPartSlots; ++entries) {
      const uint64_t bits = field.Bits(static_cast<double>(entries));
      EXPECT_EQ(bits & ~field.mask(), 0u) << parts << ' ' << entries;
      const auto count = PartHints{~field.mask() | bits}.count(parts);
      ASSERT_TRUE(count) << parts << ' ' << entries;
      EXPECT_NEAR(*count, static_cast<double>(entries), static_cast<double>(field.unit()) / 2);
    }
  }
  EXPECT_EQ(PartHints{~uint64_t{0}}.count(PartHints::kCountedPartsMax + 1), std::nullopt);
}

}  // namespace
}  // namespace farleaf::index
