// Pairs of mixed sizes: how many there are of each, and that each is checked like any other.
#include "benchmark/ycsb/kv_mix.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "benchmark/ycsb/record.h"
#include "benchmark/ycsb/workload.h"

namespace farleaf::ycsb {
namespace {

constexpr KvMix kMixes[] = {KvMix::kS,  KvMix::kM,  KvMix::kL,   KvMix::kSd,
                            KvMix::kMd, KvMix::kLd, KvMix::kS40, KvMix::kS80};

RecordCodec CodecOf(KvMix mix, InsertOrder order = InsertOrder::kHashed) {
  return {KeyLayout::kBytes, order, kMixKeyDigits, 0, mix};
}

struct Pair {
  std::string key, value;
  uint64_t bytes() const { return key.size() + value.size(); }
};
Pair MakePair(const RecordCodec& codec, uint64_t number, uint64_t version) {
  Pair pair;
  codec.MakeKey(number, &pair.key);
  codec.MakeValue(pair.key, number, version, &pair.value);
  return pair;
}

TEST(KvMixTest, SharesAreThoseOfTheTable) {
  constexpr uint64_t kPairs = 100'000;
  const RecordCodec codec = CodecOf(KvMix::kS);
  std::string key;
  for (KvMix mix : kMixes) {
    std::array<uint64_t, kKvSizes> counts{};
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < kPairs; ++i) {
      codec.MakeKey(i, &key);
      const KvSize size = SizeOfKey(mix, key);
      ++counts[static_cast<size_t>(size)];
      bytes += kPairBytes[static_cast<size_t>(size)];
    }
    for (size_t size = 0; size < kKvSizes; ++size) {
      const double expected = static_cast<double>(kPairs * SharesOf(mix)[size]) / 100;
      // Six standard deviations of a draw; nothing where the share is all or nothing.
      const double share = expected / kPairs;
      const double spread = 6 * std::sqrt(kPairs * share * (1 - share));
      EXPECT_NEAR(static_cast<double>(counts[size]), expected, spread) << KvMixName(mix);
    }
    EXPECT_NEAR(static_cast<double>(bytes) / kPairs, MeanPairBytes(mix), MeanPairBytes(mix) * 0.02);
  }
}

TEST(KvMixTest, SizesOfKeysStayWhatTheyWere) {
  // Data that a past run has loaded is read by a later one.
  const auto count = [](KvMix mix) {
    const RecordCodec codec = CodecOf(mix);
    std::array<uint64_t, kKvSizes> counts{};
    std::string key;
    for (uint64_t i = 0; i < 10'000; ++i) {
      codec.MakeKey(i, &key);
      ++counts[static_cast<size_t>(SizeOfKey(mix, key))];
    }
    return counts;
  };
  EXPECT_EQ(count(KvMix::kSd), (std::array<uint64_t, kKvSizes>{6042, 1985, 1973}));
  EXPECT_EQ(count(KvMix::kMd), (std::array<uint64_t, kKvSizes>{2005, 6022, 1973}));
  EXPECT_EQ(count(KvMix::kLd), (std::array<uint64_t, kKvSizes>{2005, 1991, 6004}));
}

TEST(KvMixTest, MeansMakeTheTablesDatasets) {
  // 100 M pairs, in GiB, as the table rounds them.
  const auto gib = [](KvMix mix) { return MeanPairBytes(mix) * 1e8 / (1 << 30); };
  EXPECT_NEAR(gib(KvMix::kS), 3, 0.1);
  EXPECT_NEAR(gib(KvMix::kM), 11.4, 0.1);
  EXPECT_NEAR(gib(KvMix::kL), 95.2, 0.1);
  EXPECT_NEAR(gib(KvMix::kSd), 23.2, 0.1);
  EXPECT_NEAR(gib(KvMix::kMd), 26.5, 0.1);
  EXPECT_NEAR(gib(KvMix::kLd), 60, 0.1);
}

TEST(KvMixTest, PairsHaveTheSizeOfTheirKeyWhateverTheVersion) {
  for (KvMix mix : kMixes) {
    const RecordCodec codec = CodecOf(mix);
    for (uint64_t i = 0; i < 1000; ++i) {
      const Pair first = MakePair(codec, i, 0), later = MakePair(codec, i, uint64_t{i} << 20 | 7);
      ASSERT_EQ(first.key.size(), kMixKeyBytes);
      ASSERT_EQ(first.bytes(), kPairBytes[static_cast<size_t>(SizeOfKey(mix, first.key))]);
      ASSERT_EQ(later.bytes(), first.bytes());
      ASSERT_NE(later.value, first.value);
      ASSERT_EQ(MakePair(codec, i, 0).value, first.value);
      ASSERT_EQ(codec.Check(first.key, first.value), std::nullopt);
      ASSERT_EQ(codec.Check(later.key, later.value), std::nullopt);
      ASSERT_EQ(codec.VersionOf(later.value), uint64_t{i} << 20 | 7);
    }
  }
}

TEST(KvMixTest, EveryFlippedBitIsFoundInEverySize) {
  for (KvMix mix : {KvMix::kS, KvMix::kM, KvMix::kL}) {
    const RecordCodec codec = CodecOf(mix);
    const Pair pair = MakePair(codec, 12345, 77);
    for (size_t bit = 0; bit < pair.value.size() * 8; ++bit) {
      std::string damaged = pair.value;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      EXPECT_NE(codec.Check(pair.key, damaged), std::nullopt) << KvMixName(mix) << " bit " << bit;
    }
  }
}

TEST(KvMixTest, ValueOfAnotherKeyOrSizeIsFound) {
  for (KvMix mix : kMixes) {
    const RecordCodec codec = CodecOf(mix);
    for (uint64_t i = 0; i < 100; ++i) {
      const Pair one = MakePair(codec, i, 5), other = MakePair(codec, i + 1, 5);
      ASSERT_NE(codec.Check(one.key, other.value), std::nullopt);
      ASSERT_NE(codec.Check(one.key, one.value.substr(1)), std::nullopt);
      ASSERT_NE(codec.Check(one.key, one.value + "x"), std::nullopt);
      ASSERT_NE(codec.Check(one.key, ""), std::nullopt);
      ASSERT_NE(codec.Check("user1", one.value), std::nullopt);
    }
  }
  // A whole pair, but not of this mix's size.
  const Pair large = MakePair(CodecOf(KvMix::kL), 1, 0);
  const auto problem = CodecOf(KvMix::kM).Check(large.key, large.value);
  ASSERT_TRUE(problem);
  EXPECT_NE(problem->find("expected 99 bytes (farleaf.kvmix=m), found 999"), std::string::npos)
      << *problem;
}

TEST(KvMixTest, OrderedKeysSortLikeTheirNumbers) {
  const RecordCodec codec = CodecOf(KvMix::kSd, InsertOrder::kOrdered);
  std::string previous, key;
  for (uint64_t number : {0, 1, 9, 10, 99, 100, 123'456'789}) {
    codec.MakeKey(number, &key);
    EXPECT_LT(previous, key);
    EXPECT_EQ(codec.NumberOfOrderedKey(key), number);
    previous = key;
  }
  EXPECT_EQ(codec.NumberOfOrderedKey("user123"), std::nullopt);
  EXPECT_EQ(codec.NumberOfOrderedKey(previous.substr(0, 23) + "x"), std::nullopt);
  EXPECT_EQ(CodecOf(KvMix::kSd).NumberOfOrderedKey(previous), std::nullopt);
}

Result<WorkloadOptions> Parse(const std::map<std::string, std::string>& more) {
  Properties properties;
  properties.Set("recordcount", "10");
  for (const auto& [name, value] : more) properties.Set(name, value);
  std::vector<std::string> unknown;
  return ParseWorkload(properties, false, &unknown);
}

TEST(KvMixTest, PropertyNamesEachMixAndMakesKeysByteStrings) {
  for (KvMix mix : kMixes) {
    auto workload = Parse({{"farleaf.kvmix", std::string(KvMixName(mix))}});
    ASSERT_TRUE(workload.ok()) << workload.status();
    EXPECT_EQ(workload->kv_mix, mix);
    EXPECT_EQ(workload->key_layout, KeyLayout::kBytes);
    EXPECT_EQ(workload->zero_padding, kMixKeyDigits);
  }
  EXPECT_EQ(Parse({})->kv_mix, KvMix::kNone);
  EXPECT_EQ(Parse({{"farleaf.kvmix", "none"}})->key_layout, KeyLayout::kFixed8);
}

TEST(KvMixTest, PropertiesThatContradictAMixAreRefused) {
  const auto refusal = [](std::map<std::string, std::string> properties) {
    properties.emplace("farleaf.kvmix", "sd");
    const auto workload = Parse(properties);
    return workload.ok() ? "" : std::string(workload.status().message());
  };
  EXPECT_EQ(refusal({{"farleaf.kvmix", "xl"}}),
            "property farleaf.kvmix=xl: expected one of none, s, m, l, sd, md, ld, s40, s80");
  EXPECT_EQ(refusal({{"farleaf.keys", "fixed8"}}),
            "property farleaf.keys=fixed8: farleaf.kvmix=sd needs bytes");
  EXPECT_EQ(refusal({{"fieldlength", "50"}}),
            "property fieldlength=50: farleaf.kvmix=sd says how large a pair is");
  EXPECT_EQ(refusal({{"zeropadding", "3"}}),
            "property zeropadding=3: farleaf.kvmix=sd needs keys of 20 digits");
}

}  // namespace
}  // namespace farleaf::ycsb
