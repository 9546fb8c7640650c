// The check of a part: that changes of one word or two, small and structured as a tree's are, are noticed,
// and that its 48 bits are spread as those of a random function.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "index/blink/parted_leaf.h"
#include "test/support/parted_leaf_fixture.h"
#include "test/support/test_scale.h"

namespace farleaf::index {
namespace {

constexpr size_t kWords = kPartBytes / 8;
constexpr uint64_t kHeadMask = ~((uint64_t{1} << 48) - 1);  // of word 0: what is not the check

struct PartWords {
  alignas(8) std::byte bytes[kPartBytes] = {};

  uint64_t Get(size_t word) const { return LoadLittle<uint64_t>(bytes + 8 * word); }
  void Set(size_t word, uint64_t value) {
    if (word == 0) value = (value & kHeadMask) | (Get(0) & ~kHeadMask);
    StoreLittle(bytes + 8 * word, value);
  }
  uint64_t Sealed() {
    Part(bytes).Seal();
    return Get(0) & ~kHeadMask;
  }
};

/// A part as applications fill them: keys that count up, values that are small, equal, random or text.
PartWords RandomPart(Random* random) {
  PartWords part;
  Part view(part.bytes);
  const uint64_t first = random->OneIn(2) ? random->Below(1000) : random->Next();
  const uint64_t style = random->Below(4), used = random->Below(kPartSlots + 1);
  for (size_t i = 0; i < used; ++i) {
    const uint64_t value = style == 0   ? 0
                           : style == 1 ? random->Below(100)
                           : style == 2 ? random->Next()
                                        : 0x2020202020203030 + i;
    view.Put(i, first + i, &value);
  }
  view.SetIdentity(random->Next() >> 16, static_cast<uint32_t>(random->Below(1000)));
  view.Seal();
  return part;
}

/// Another value of a word, as counters, small integers, flags and byte orders give it.
uint64_t ChangedWord(uint64_t word, Random* random) {
  switch (random->Below(8)) {
    case 0:
      return word + 1;
    case 1:
      return word - 1 - random->Below(16);
    case 2:
      return word ^ uint64_t { 1 } << 63;
    case 3:
      return word ^ uint64_t { 1 } << random->Below(64);
    case 4:
      return word ^ uint64_t { 3 } << random->Below(63);
    case 5:
      return word + (uint64_t{1} << 56);  // a big-endian key counts on
    case 6:
      return random->Below(256);
    default:
      return ~word;
  }
}

struct Trials {
  uint64_t changes = 0, unnoticed = 0;
};

/// Changes `words` of parts, which keep their old check.
Trials RunTrials(uint64_t trials, Random* random,
                 const std::function<void(PartWords*, const PartWords&)>& change) {
  Trials result;
  PartWords part, changed;
  for (uint64_t i = 0; i < trials; ++i) {
    if (i % 64 == 0) part = RandomPart(random);
    changed = part;
    change(&changed, part);
    if (std::equal(changed.bytes, changed.bytes + kPartBytes, part.bytes)) continue;
    ++result.changes;
    result.unnoticed += ConstPart(changed.bytes).Intact();
  }
  return result;
}

TEST(PartCheckTest, StructuredChangesOfOneWordOrTwoAreNoticed) {
  constexpr uint64_t kSeed = 17;
  Random random(kSeed);
  const uint64_t trials = test::Amount{100'000, 5'000'000, 50'000'000};
  const auto started = std::chrono::steady_clock::now();
  const Trials one = RunTrials(trials, &random, [&](PartWords* changed, const PartWords& part) {
    const size_t word = random.Below(kWords);
    changed->Set(word, ChangedWord(part.Get(word), &random));
  });
  const Trials two = RunTrials(trials, &random, [&](PartWords* changed, const PartWords& part) {
    const size_t a = random.Below(kWords), b = random.Below(kWords);
    switch (random.Below(4)) {
      case 0: {  // one up, one down
        const uint64_t by = 1 + random.Below(1000);
        changed->Set(a, part.Get(a) + by);
        changed->Set(b, changed->Get(b) - by);
        break;
      }
      case 1: {  // the same bits
        const uint64_t bits = uint64_t{1} << random.Below(64);
        changed->Set(a, part.Get(a) ^ bits);
        changed->Set(b, changed->Get(b) ^ bits);
        break;
      }
      case 2:  // exchanged
        changed->Set(a, part.Get(b));
        changed->Set(b, part.Get(a));
        break;
      default:
        changed->Set(a, ChangedWord(part.Get(a), &random));
        changed->Set(b, ChangedWord(part.Get(b), &random));
    }
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - started;
  std::printf("seed %llu: %llu changes of one word, %llu of two, %.1f s\n",
              static_cast<unsigned long long>(kSeed), static_cast<unsigned long long>(one.changes),
              static_cast<unsigned long long>(two.changes), seconds.count());
  EXPECT_GT(one.changes, trials / 2);
  EXPECT_GT(two.changes, trials / 2);
  EXPECT_EQ(one.unnoticed, 0u);
  EXPECT_EQ(two.unnoticed, 0u);
}

/// Pairs of equal values, which are sorted on the way.
uint64_t EqualPairs(std::vector<uint64_t> values) {
  std::sort(values.begin(), values.end());
  uint64_t pairs = 0, run = 0;
  for (size_t i = 1; i < values.size(); ++i) {
    run = values[i] == values[i - 1] ? run + 1 : 0;
    pairs += run;
  }
  return pairs;
}

/// Among n random values of 48 bits n * n / 2^49 pairs are equal: none of 2^19. Of their 24 low bits, and
/// their 24 high bits, n * n / 2^25, give or take six times the root of that.
void ExpectScattered(const std::vector<uint64_t>& checks, const std::string& what) {
  EXPECT_EQ(EqualPairs(checks), 0u) << what;
  const auto count = static_cast<double>(checks.size());
  const double expected = count * count / 0x1p25;
  for (const int shift : {0, 24}) {
    std::vector<uint64_t> some;
    for (const uint64_t check : checks) some.push_back(check >> shift & 0xffffff);
    const auto pairs = static_cast<double>(EqualPairs(std::move(some)));
    EXPECT_GT(pairs, expected - 6 * std::sqrt(expected)) << what << ", shift " << shift;
    EXPECT_LT(pairs, expected + 6 * std::sqrt(expected)) << what << ", shift " << shift;
  }
}

TEST(PartCheckTest, ChecksOfPartsThatCountInOneWordAreScattered) {
  Random random(23);
  const uint64_t count = test::Amount{1 << 16, 1 << 17, 1 << 19};
  for (const int shift : {0, 8, 40}) {
    for (size_t word = 1; word < kWords; ++word) {
      PartWords part = RandomPart(&random);
      std::vector<uint64_t> checks;
      for (uint64_t i = 0; i < count; ++i) {
        part.Set(word, i << shift);
        checks.push_back(part.Sealed());
      }
      ExpectScattered(checks, "word " + std::to_string(word) + " << " + std::to_string(shift));
    }
  }
}

TEST(PartCheckTest, ChecksOfPartsThatCountInTwoWordsAreScattered) {
  Random random(29);
  const uint64_t side = test::Amount{256, 256, 700};
  for (size_t a = 0; a < kWords; ++a) {
    for (size_t b = a + 1; b < kWords; ++b) {
      PartWords part = RandomPart(&random);
      const int a_shift = a == 0 ? 48 : random.OneIn(2) ? 0 : 52;
      const int b_shift = random.OneIn(2) ? 0 : 52;
      std::vector<uint64_t> checks;
      for (uint64_t i = 0; i < side; ++i) {
        part.Set(a, i << a_shift);
        for (uint64_t j = 0; j < side; ++j) {
          part.Set(b, j << b_shift);
          checks.push_back(part.Sealed());
        }
      }
      ExpectScattered(checks, "words " + std::to_string(a) + ", " + std::to_string(b));
    }
  }
}

TEST(PartCheckTest, EveryBitOfAPartChangesHalfOfTheCheck) {
  Random random(31);
  const uint64_t rounds = test::Amount{200, 200, 2000};
  for (size_t bit = 48; bit < kPartBytes * 8; ++bit) {
    uint64_t turned = 0;
    for (uint64_t round = 0; round < rounds; ++round) {
      PartWords part = RandomPart(&random);
      const uint64_t check = part.Sealed();
      part.Set(bit / 64, part.Get(bit / 64) ^ uint64_t{1} << bit % 64);
      turned += static_cast<uint64_t>(std::popcount(check ^ part.Sealed()));
    }
    const double share = static_cast<double>(turned) / (48.0 * static_cast<double>(rounds));
    EXPECT_GT(share, 0.4) << bit;
    EXPECT_LT(share, 0.6) << bit;
  }
}

TEST(PartCheckTest, AWordHidesItsPartnerOnlyAsItsConstantOrTheComplement) {
  // Of the pair that is slot 0: format.md, rule 8.
  constexpr uint64_t kOfKey = 0xa4093822299f31d0, kOfValue = 0x082efa98ec4e6c89;
  Random random(37);
  const auto hides = [&](size_t word, uint64_t value) {
    PartWords part = RandomPart(&random);
    part.Set(word, value);
    const uint64_t check = part.Sealed();
    part.Set(word ^ 1, random.Next());
    return part.Sealed() == check;
  };
  EXPECT_TRUE(hides(2, kOfKey) && hides(2, ~kOfKey));
  EXPECT_TRUE(hides(3, kOfValue) && hides(3, ~kOfValue));
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_FALSE(hides(2, kOfKey ^ uint64_t{1} << bit)) << bit;
    EXPECT_FALSE(hides(3, kOfValue ^ uint64_t{1} << bit)) << bit;
    EXPECT_FALSE(hides(3, ~kOfValue ^ uint64_t{1} << bit)) << bit;
  }
}

}  // namespace
}  // namespace farleaf::index
