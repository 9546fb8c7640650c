// Digests of fences: equal exactly for equal fences as far as 48 bits can tell, whatever the keys look like.
#include "index/blink/fence_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "dsm/base/random.h"
#include "index/blink/parted_leaf.h"
#include "test/support/test_scale.h"
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

TEST(FenceDigestTest, NumbersAndTheirBytesAgree) {
  Random random(3);
  for (int i = 0; i < 1'000; ++i) {
    const uint64_t low = random.Next(), high = random.Next();
    const DigestScope scope{random.Next(), 7};
    EXPECT_EQ(FenceDigestFixed8(scope, low, high), FenceDigest(scope, Fixed(low), Fixed(high)));
    EXPECT_EQ(FenceDigestFixed8(scope, std::nullopt, high),
              FenceDigest(scope, std::nullopt, Fixed(high)));
    EXPECT_EQ(FenceDigestFixed8(scope, low, std::nullopt),
              FenceDigest(scope, Fixed(low), std::nullopt));
  }
}

// Who knows the key can choose a low fence that makes a factor zero: then the high fence does not matter. The
// same fences are told apart by any other key.
TEST(FenceDigestTest, ChosenFencesAgreeOnlyForTheKeyThatTheyWereChosenFor) {
  constexpr uint64_t kChosenFor = 0x5eed;
  const uint64_t low = internal::kDigestKeys[0] ^ kChosenFor;
  const auto agree = [&](uint64_t key, uint64_t a, uint64_t b) {
    return FenceDigestFixed8({key, 1}, low, a) == FenceDigestFixed8({key, 1}, low, b);
  };
  Random random(4);
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t a = random.Next(), b = random.Next(), key = random.Next();
    EXPECT_TRUE(agree(kChosenFor, a, b));
    EXPECT_FALSE(agree(key, a, b)) << key;
  }
}

// Factors change places where fences differ by what the two words of the key do: that is another number for each
// key, not one of few.
TEST(FenceDigestTest, TheWordsOfTheKeyDifferByANumberOfAllBits) {
  Random random(5);
  std::set<uint32_t> upper, lower;
  constexpr size_t kKeys = 1'000;
  for (size_t i = 0; i < kKeys; ++i) {
    const uint64_t key = random.Next(), low = random.Next(), high = random.Next();
    const uint64_t differ =
        internal::kDigestKeys[0] ^ internal::kDigestKeys[1] ^ key ^ internal::OtherDigestKey(key);
    EXPECT_EQ(FenceDigestFixed8({key, 1}, low, high),
              FenceDigestFixed8({key, 1}, high ^ differ, low ^ differ));
    upper.insert(static_cast<uint32_t>(differ >> 32));
    lower.insert(static_cast<uint32_t>(differ));
    EXPECT_NE(differ >> 32, differ & UINT32_MAX) << key;
  }
  EXPECT_GT(upper.size(), kKeys - 10);
  EXPECT_GT(lower.size(), kKeys - 10);
}

TEST(FenceDigestTest, TheKeyIsThePools) {
  LocalTree one({.geometry = Geometry::Parted()}), other({.geometry = Geometry::Parted()});
  const uint64_t key = one.tree().info().geometry.digest_key;
  EXPECT_NE(key, other.tree().info().geometry.digest_key);
  dsm::FabricCounts counts;
  OpContext op{one.worker(), counts};
  const auto opened = one.worker().Run(OpenTree(op, one.pool(), "test"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->geometry.digest_key, key);
  // It is in the leaves: the first one has no fences.
  EXPECT_EQ(one.Get(Fixed(1)), std::nullopt);
  const dsm::GlobalAddress root = one.tree().cache().root().address;
  const std::byte* const leaf = one.fabric().region_bytes(root.server()).data() + root.offset();
  EXPECT_EQ(ConstPart(leaf).digest(), FenceDigest({key, 1}, std::nullopt, std::nullopt));
}

TEST(FenceDigestTest, WhatLooksAlikeHasADigestOfItsOwn) {
  std::set<uint64_t> digests;
  size_t made = 0;
  const auto add = [&](TreeId tree, std::optional<std::string> low,
                       std::optional<std::string> high) {
    const uint64_t digest = FenceDigest({17, tree}, low, high);
    EXPECT_GT(digest, 0u);
    EXPECT_EQ(digest >> kFenceDigestBits, 0u);
    digests.insert(digest);
    ++made;
  };
  for (const TreeId tree : {1, 2, 128}) {
    add(tree, std::nullopt, std::nullopt);
    // No fence, an empty one, zeros of any length; a byte that moves from one fence to the other.
    for (size_t length = 0; length <= 24; ++length) {
      const std::string zeros(length, '\0');
      add(tree, zeros, std::nullopt);
      add(tree, std::nullopt, zeros);
      for (size_t other = 0; other <= 24; ++other) add(tree, zeros, std::string(other, '\0'));
    }
    for (size_t cut = 0; cut <= 20; ++cut) {
      const std::string text = "abcdefghijklmnopqrst";
      add(tree, text.substr(0, cut), text.substr(cut));
    }
  }
  EXPECT_EQ(digests.size(), made);
}

/// Pairs of equal numbers among the `bits` lowest (or highest of 48) bits of the digests.
uint64_t Collisions(const std::vector<uint64_t>& digests, int bits, bool lowest) {
  std::vector<uint64_t> cut(digests.size());
  for (size_t i = 0; i < cut.size(); ++i) {
    cut[i] =
        lowest ? digests[i] & ((uint64_t{1} << bits) - 1) : digests[i] >> (kFenceDigestBits - bits);
  }
  std::sort(cut.begin(), cut.end());
  uint64_t pairs = 0, run = 0;
  for (size_t i = 1; i < cut.size(); ++i) {
    run = cut[i] == cut[i - 1] ? run + 1 : 0;
    pairs += run;
  }
  return pairs;
}

/// Key i of a sequence of ascending keys that people do use.
using Keys = std::function<std::string(uint64_t)>;
struct Structured {
  const char* name;
  Keys key;
};

class StructuredKeys : public testing::TestWithParam<Structured> {};

// Of n digests drawn at random, n (n - 1) / 2 / 2^bits pairs agree in some 32 bits: about 116 of 1 M,
// with a standard deviation of 11. Six of those either way: one false alarm in 10^9.
TEST_P(StructuredKeys, CollideAsRandomNumbersDo) {
  const uint64_t leaves = test::Amount{200'000, 1'000'000};
  std::vector<uint64_t> digests(leaves);
  std::string low = GetParam().key(0), high;
  for (uint64_t i = 0; i < leaves; ++i, low.swap(high)) {
    high = GetParam().key(i + 1);
    digests[i] = FenceDigest({17, 1}, low, high);
  }
  EXPECT_EQ(Collisions(digests, kFenceDigestBits, true), 0u);
  for (const bool lowest : {true, false}) {
    const double count = static_cast<double>(leaves), expected = count / 2 * (count - 1) / 0x1p32;
    const double seen = static_cast<double>(Collisions(digests, 32, lowest));
    EXPECT_NEAR(seen, expected, 6 * std::sqrt(expected)) << GetParam().name << " " << lowest;
  }
  // Every bit is set in half of them: standard deviation sqrt(leaves) / 2.
  for (int bit = 0; bit < kFenceDigestBits; ++bit) {
    const auto set = std::count_if(digests.begin(), digests.end(),
                                   [&](uint64_t digest) { return (digest >> bit & 1) != 0; });
    EXPECT_NEAR(static_cast<double>(set), leaves / 2.0, 3 * std::sqrt(leaves))
        << GetParam().name << " " << bit;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, StructuredKeys,
    testing::Values(
        Structured{"Dense", [](uint64_t i) { return Fixed(i); }},
        Structured{"Leaves", [](uint64_t i) { return Fixed(i * 41); }},
        Structured{"HighWords", [](uint64_t i) { return Fixed(i << 40); }},
        Structured{"PowersAndSteps",
                   [](uint64_t i) { return Fixed((i >> 10) << 32 | (i & 1023)); }},
        Structured{"LittleEndian", [](uint64_t i) { return Fixed(__builtin_bswap64(i * 16)); }},
        Structured{"Users", [](uint64_t i) { return "user" + std::to_string(100'000'000 + i); }},
        Structured{"Paths",
                   [](uint64_t i) {
                     return "/var/data/" + std::to_string(i % 1'000) + "/file" + std::to_string(i);
                   }},
        Structured{"Lengths",
                   [](uint64_t i) { return std::string(i % 64, 'a') + std::to_string(i); }}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace farleaf::index
