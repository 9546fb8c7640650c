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
#include "test/support/tree_fixture.h"

namespace farleaf::index {
namespace {

TEST(FenceDigestTest, NumbersAndTheirBytesAgree) {
  Random random(3);
  for (int i = 0; i < 1'000; ++i) {
    const uint64_t low = random.Next(), high = random.Next();
    EXPECT_EQ(FenceDigestFixed8(7, low, high), FenceDigest(7, Fixed(low), Fixed(high)));
    EXPECT_EQ(FenceDigestFixed8(7, std::nullopt, high), FenceDigest(7, std::nullopt, Fixed(high)));
    EXPECT_EQ(FenceDigestFixed8(7, low, std::nullopt), FenceDigest(7, Fixed(low), std::nullopt));
  }
}

TEST(FenceDigestTest, WhatLooksAlikeHasADigestOfItsOwn) {
  std::set<uint64_t> digests;
  size_t made = 0;
  const auto add = [&](TreeId tree, std::optional<std::string> low,
                       std::optional<std::string> high) {
    const uint64_t digest = FenceDigest(tree, low, high);
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
  constexpr uint64_t kLeaves = 1'000'000;
  std::vector<uint64_t> digests(kLeaves);
  std::string low = GetParam().key(0), high;
  for (uint64_t i = 0; i < kLeaves; ++i, low.swap(high)) {
    high = GetParam().key(i + 1);
    digests[i] = FenceDigest(1, low, high);
  }
  EXPECT_EQ(Collisions(digests, kFenceDigestBits, true), 0u);
  for (const bool lowest : {true, false}) {
    const double expected = kLeaves / 2.0 * (kLeaves - 1) / 0x1p32;
    const double seen = static_cast<double>(Collisions(digests, 32, lowest));
    EXPECT_NEAR(seen, expected, 6 * std::sqrt(expected)) << GetParam().name << " " << lowest;
  }
  // Every bit is set in half of them: standard deviation 500.
  for (int bit = 0; bit < kFenceDigestBits; ++bit) {
    const auto set = std::count_if(digests.begin(), digests.end(),
                                   [&](uint64_t digest) { return (digest >> bit & 1) != 0; });
    EXPECT_NEAR(static_cast<double>(set), kLeaves / 2.0, 6 * 500.0)
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
