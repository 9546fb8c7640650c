// The benchmark's parts: what it reads, draws and checks.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <thread>

#include "benchmark/ycsb/acknowledged.h"
#include "benchmark/ycsb/distributions.h"
#include "benchmark/ycsb/properties.h"
#include "benchmark/ycsb/record.h"

namespace farleaf::ycsb {
namespace {

// --- properties ---

TEST(PropertiesTest, JavaFormatIsRead) {
  Properties properties;
  ASSERT_TRUE(properties
                  .LoadText("# comment\n! too\n\n recordcount = 10 \nworkload:Core\\\n  Workload\n"
                            "recordcount=20\r\nempty=\n",
                            "text")
                  .ok());
  EXPECT_EQ(properties.values(),
            (std::map<std::string, std::string>{
                {"recordcount", "20"}, {"workload", "CoreWorkload"}, {"empty", ""}}));
}

TEST(PropertiesTest, LineWithoutValueIsRefusedWithItsNumber) {
  Properties properties;
  const Status status = properties.LoadText("a=1\nnonsense\n", "file.x");
  EXPECT_EQ(status.message(), "file.x line 2: 'nonsense' is not NAME=VALUE");
}

TEST(PropertiesTest, MissingFileIsNamed) {
  Properties properties;
  EXPECT_NE(properties.LoadFile("/nowhere/w").message().find("/nowhere/w"), std::string::npos);
}

struct BadProperty {
  std::string name, value, expected;
};
struct BadPropertyTest : ::testing::TestWithParam<BadProperty> {};

TEST_P(BadPropertyTest, RefusedWithNameValueAndRange) {
  Properties properties;
  properties.Set("recordcount", "100");
  properties.Set("operationcount", "100");
  properties.Set(GetParam().name, GetParam().value);
  std::vector<std::string> unknown;
  auto workload = ParseWorkload(properties, true, &unknown);
  ASSERT_FALSE(workload.ok());
  const std::string message(workload.status().message());
  EXPECT_NE(message.find(GetParam().name + "=" + GetParam().value), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().expected), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadPropertyTest,
    ::testing::Values(BadProperty{"recordcount", "0", "from 1 to"},
                      BadProperty{"recordcount", "many", "an integer from 1 to"},
                      BadProperty{"recordcount", "-1", "an integer from 1 to"},
                      BadProperty{"operationcount", "0", "at least 1"},
                      BadProperty{"operationcount", "1e6", "an integer from 0 to"},
                      BadProperty{"insertstart", "100", "below recordcount"},
                      BadProperty{"insertcount", "101", "from 1 to 100"},
                      BadProperty{"readproportion", "1.5", "from 0 to 1"},
                      BadProperty{"updateproportion", "-0.1", "from 0 to 1"},
                      BadProperty{"insertproportion", "nan", "from 0 to 1"},
                      BadProperty{"scanproportion", "half", "from 0 to 1"},
                      BadProperty{"readmodifywriteproportion", "", "from 0 to 1"},
                      BadProperty{"requestdistribution", "binomial", "zipfian, uniform, latest"},
                      BadProperty{"scanlengthdistribution", "latest", "uniform, zipfian"},
                      BadProperty{"minscanlength", "0", "from 1 to"},
                      BadProperty{"maxscanlength", "0", "from 1 to"},
                      BadProperty{"insertorder", "random", "hashed, ordered"},
                      BadProperty{"fieldcount", "0", "from 1 to"},
                      BadProperty{"fieldlength", "99999999", "from 1 to"},
                      BadProperty{"fieldlengthdistribution", "zipfian", "one of constant"},
                      BadProperty{"readallfields", "yes", "true, false"},
                      BadProperty{"workload", "TimeSeries", "CoreWorkload"},
                      BadProperty{"zeropadding", "65", "from 1 to 64"},
                      BadProperty{"maxexecutiontime", "-5", "from 0 to"},
                      BadProperty{"farleaf.keys", "fixed16", "fixed8, bytes"},
                      BadProperty{"farleaf.tree", "", "needs a name"},
                      BadProperty{"farleaf.allow_errors", "1", "true, false"},
                      BadProperty{"farleaf.operation_timeout_ms", "0", "from 1 to"}));

TEST(WorkloadTest, ValueTooSmallForItsHeaderIsRefused) {
  Properties properties;
  properties.Set("recordcount", "1");
  properties.Set("farleaf.keys", "bytes");
  properties.Set("fieldcount", "1");
  properties.Set("fieldlength", "23");
  std::vector<std::string> unknown;
  auto workload = ParseWorkload(properties, false, &unknown);
  ASSERT_FALSE(workload.ok());
  EXPECT_NE(workload.status().message().find("fieldlength=23"), std::string::npos);
}

TEST(WorkloadTest, ShippedFilesAreYcsbsDefinitions) {
  struct Expected {
    std::array<double, kOpKinds> mix;  // read, update, insert, scan, read-modify-write
    RequestDistribution distribution;
  };
  const std::map<char, Expected> expected = {
      {'a', {{0.5, 0.5, 0, 0, 0}, RequestDistribution::kZipfian}},
      {'b', {{0.95, 0.05, 0, 0, 0}, RequestDistribution::kZipfian}},
      {'c', {{1, 0, 0, 0, 0}, RequestDistribution::kZipfian}},
      {'d', {{0.95, 0, 0.05, 0, 0}, RequestDistribution::kLatest}},
      {'e', {{0, 0, 0.05, 0.95, 0}, RequestDistribution::kZipfian}},
      {'f', {{0.5, 0, 0, 0, 0.5}, RequestDistribution::kZipfian}}};
  for (const auto& [letter, want] : expected) {
    Properties properties;
    ASSERT_TRUE(properties.LoadFile(std::string(FARLEAF_WORKLOADS) + "/workload" + letter).ok());
    std::vector<std::string> unknown;
    auto workload = ParseWorkload(properties, true, &unknown);
    ASSERT_TRUE(workload.ok()) << letter << ": " << workload.status();
    EXPECT_TRUE(unknown.empty()) << letter << ": " << unknown.front();
    EXPECT_EQ(workload->proportions, want.mix) << letter;
    EXPECT_EQ(workload->request_distribution, want.distribution) << letter;
    if (letter == 'e') {
      EXPECT_EQ(workload->scan_length_min, 1u);
      EXPECT_EQ(workload->scan_length_max, 100u);
      EXPECT_EQ(workload->scan_length_distribution, ScanLengthDistribution::kUniform);
    }
  }
}

// --- distributions ---

TEST(DistributionTest, ZipfianFollowsItsLaw) {
  constexpr uint64_t kItems = 1000, kDraws = 1'000'000;
  const Zipfian zipfian(kItems);
  Random random(7);
  std::vector<uint64_t> seen(kItems);
  for (uint64_t i = 0; i < kDraws; ++i) ++seen.at(zipfian.Next(random));
  // The first two ranks are exact in Gray's method, the rest an approximation: compare the sums of
  // ranks 0..9, 0..99 and so on within 3 % of all draws.
  auto share = [&](uint64_t ranks) {
    double law = 0;
    uint64_t drawn = 0;
    for (uint64_t r = 0; r < ranks; ++r) {
      law += std::pow(static_cast<double>(r + 1), -kZipfianConstant) / zipfian.zeta();
      drawn += seen[r];
    }
    return std::pair(law, static_cast<double>(drawn) / kDraws);
  };
  for (uint64_t ranks : {1, 2}) EXPECT_NEAR(share(ranks).first, share(ranks).second, 0.003);
  for (uint64_t ranks : {10, 100, 500}) EXPECT_NEAR(share(ranks).first, share(ranks).second, 0.03);
}

TEST(DistributionTest, ZetaGrownEqualsZetaSummed) {
  Zipfian grown(10);
  grown.Grow(5'000);
  grown.Grow(100);  // fewer: nothing
  EXPECT_EQ(grown.items(), 5'000u);
  EXPECT_NEAR(grown.zeta(), Zipfian(5'000).zeta(), 1e-9);
}

TEST(DistributionTest, FewItemsStayInRange) {
  Random random(3);
  for (uint64_t items : {1, 2, 3}) {
    const Zipfian zipfian(items);
    for (int i = 0; i < 10'000; ++i) ASSERT_LT(zipfian.Next(random), items);
  }
}

TEST(DistributionTest, ScrambledZipfianScattersItsPopularItems) {
  constexpr uint64_t kFirst = 500, kCount = 100'000, kDraws = 1'000'000;
  const ScrambledZipfian zipfian(kFirst, kCount);
  Random random(11);
  std::map<uint64_t, uint64_t> seen;
  for (uint64_t i = 0; i < kDraws; ++i) ++seen[zipfian.Next(random)];
  EXPECT_GE(seen.begin()->first, kFirst);
  EXPECT_LT(seen.rbegin()->first, kFirst + kCount);
  std::vector<std::pair<uint64_t, uint64_t>> by_count;
  for (auto [number, count] : seen) by_count.push_back({count, number});
  std::sort(by_count.rbegin(), by_count.rend());
  // 1 / zeta of YCSB's ten thousand million items; the place is the hash's.
  EXPECT_NEAR(static_cast<double>(by_count[0].first) / kDraws, 1 / 26.469, 0.002);
  EXPECT_EQ(by_count[0].second, kFirst + YcsbHash(0) % kCount);
  EXPECT_EQ(by_count[1].second, kFirst + YcsbHash(1) % kCount);
}

TEST(DistributionTest, HashIsYcsbs) {
  // FNV-1a over eight bytes, little-endian, made non-negative; worked out by hand for 0.
  uint64_t hash = 0xcbf29ce484222325;
  for (int i = 0; i < 8; ++i) hash *= 1099511628211;
  EXPECT_EQ(YcsbHash(0), hash >> 63 ? -hash : hash);
  for (uint64_t i = 0; i < 10'000; ++i) ASSERT_EQ(YcsbHash(i) >> 63, 0u);
}

TEST(AcknowledgedCounterTest, EndNeverPassesAHole) {
  AcknowledgedCounter counter(100);
  EXPECT_EQ(counter.Take(), 100u);
  EXPECT_EQ(counter.Take(), 101u);
  EXPECT_EQ(counter.Take(), 102u);
  counter.Acknowledge(102);
  counter.Acknowledge(101);
  EXPECT_EQ(counter.end(), 100u);
  counter.Acknowledge(100);
  EXPECT_EQ(counter.end(), 103u);
}

TEST(AcknowledgedCounterTest, ThreadsLoseNoNumber) {
  AcknowledgedCounter counter(0);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 10'000; ++i) counter.Acknowledge(counter.Take());
      });
    }
  }
  EXPECT_EQ(counter.end(), 40'000u);
}

// --- records ---

struct Record {
  std::string key, value;
};
Record MakeRecord(const RecordCodec& codec, uint64_t number, uint64_t version) {
  Record record;
  codec.MakeKey(number, &record.key);
  codec.MakeValue(record.key, number, version, &record.value);
  return record;
}

TEST(RecordTest, EveryFlippedBitIsFound) {
  for (KeyLayout layout : {KeyLayout::kFixed8, KeyLayout::kBytes}) {
    const RecordCodec codec(layout, InsertOrder::kHashed, 1,
                            layout == KeyLayout::kFixed8 ? 8 : 100);
    const Record record = MakeRecord(codec, 12345, 77);
    ASSERT_EQ(codec.Check(record.key, record.value), std::nullopt);
    EXPECT_EQ(codec.VersionOf(record.value), 77u);
    for (size_t bit = 0; bit < record.value.size() * 8; ++bit) {
      std::string damaged = record.value;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      EXPECT_NE(codec.Check(record.key, damaged), std::nullopt) << "bit " << bit;
    }
  }
}

TEST(RecordTest, ValueOfAnotherKeyIsFound) {
  for (KeyLayout layout : {KeyLayout::kFixed8, KeyLayout::kBytes}) {
    const RecordCodec codec(layout, InsertOrder::kHashed, 1,
                            layout == KeyLayout::kFixed8 ? 8 : 100);
    const Record one = MakeRecord(codec, 1, 5), other = MakeRecord(codec, 2, 5);
    EXPECT_NE(codec.Check(one.key, other.value), std::nullopt);
    EXPECT_NE(codec.Check(one.key, one.value.substr(1)), std::nullopt);
    EXPECT_NE(codec.Check(one.key, one.value + "x"), std::nullopt);
    EXPECT_NE(codec.Check(one.key, ""), std::nullopt);
  }
}

TEST(RecordTest, KeysAreDistinctAndOrderedWhenAskedTo) {
  const RecordCodec hashed(KeyLayout::kFixed8, InsertOrder::kHashed, 1, 8);
  const RecordCodec ordered(KeyLayout::kFixed8, InsertOrder::kOrdered, 1, 8);
  std::set<std::string> keys;
  std::string previous, key;
  for (uint64_t i = 0; i < 100'000; ++i) {
    hashed.MakeKey(i, &key);
    keys.insert(key);
    ordered.MakeKey(i, &key);
    ASSERT_LT(previous, key);
    ASSERT_EQ(ordered.NumberOfOrderedKey(key), i);
    previous = key;
  }
  EXPECT_EQ(keys.size(), 100'000u);
}

TEST(RecordTest, ByteKeysAreYcsbs) {
  std::string key;
  RecordCodec(KeyLayout::kBytes, InsertOrder::kHashed, 1, 100).MakeKey(0, &key);
  EXPECT_EQ(key, "user" + std::to_string(YcsbHash(0)));
  RecordCodec(KeyLayout::kBytes, InsertOrder::kOrdered, 10, 100).MakeKey(42, &key);
  EXPECT_EQ(key, "user0000000042");
}

}  // namespace
}  // namespace farleaf::ycsb
