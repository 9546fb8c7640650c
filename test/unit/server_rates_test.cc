#include "server/control/server_rates.h"

#include <gtest/gtest.h>

#include "server/frontend/slow_log.h"

namespace farleaf::server {
namespace {

StatLines Lines(uint64_t gets, uint64_t below_64) {
  const auto text = [](uint64_t number) { return std::to_string(number); };
  return {{"server", "farleaf://x:1"},
          {"connections.open", "7"},
          {"get.count", text(gets)},
          {"get.failed", "1"},
          {"get.round_trips", text(2 * gets)},
          {"get.bytes_read", text(10 * gets)},
          {"get.bytes_written", "0"},
          {"get.latency_us.below.64", text(below_64)},
          {"get.latency_us.below.128", text(gets)},
          {"memcached.get.count", "0"},
          {"tree.x.splits", "3"}};
}

TEST(ServerRatesTest, ALookKeepsKindsApartFromOtherNumbers) {
  const ServerLook look = ParseLook(Lines(10, 5), 0);
  EXPECT_EQ(look.number("connections.open"), 7u);
  EXPECT_EQ(look.number("tree.x.splits"), 3u);
  ASSERT_TRUE(look.kinds.contains("get") && look.kinds.contains("memcached.get"));
  EXPECT_EQ(look.kinds.at("get").round_trips, 20u);
  EXPECT_EQ(look.kinds.at("get").below.at(64), 5u);
}

TEST(ServerRatesTest, RatesAreOfWhatHappenedBetweenTheLooks) {
  const auto rates =
      RatesBetween(ParseLook(Lines(100, 100), 0), ParseLook(Lines(300, 200), 2'000'000'000));
  ASSERT_EQ(rates.size(), 1u);
  EXPECT_EQ(rates[0].name, "get");
  EXPECT_EQ(rates[0].count, 200u);
  EXPECT_EQ(rates[0].per_s, 100);
  EXPECT_EQ(rates[0].round_trips_each, 2);
  EXPECT_EQ(rates[0].bytes_each, 10);
  EXPECT_EQ(rates[0].failed, 0u);
  EXPECT_EQ(rates[0].p50_us, 64);
  EXPECT_GT(rates[0].p99_us, 120);
  EXPECT_LE(rates[0].p99_us, 128);
}

TEST(ServerRatesTest, WhatCachesDidIsAddedUpOverTreesWhateverTheirNames) {
  const auto lines = [](uint64_t hits, uint64_t misses) {
    return StatLines{{"tree.x.cache_hits", std::to_string(hits)},
                     {"tree.x.cache_misses", std::to_string(misses)},
                     {"tree.x.cache_bytes", "100"},
                     {"tree.x.cache_budget_bytes", "1000"},
                     {"tree.lsm.cache_hits_a.b.cache_hits", std::to_string(10 * hits)},
                     {"tree.lsm.cache_hits_a.b.cache_evictions", "7"},
                     {"tree.lsm.cache_hits_a.b.cache_bytes", "11"},
                     {"tree.cache_hits.splits", "1000"}};
  };
  const CacheRate rate = CacheBetween(ParseLook(lines(5, 3), 0), ParseLook(lines(9, 4), 1));
  EXPECT_EQ(rate.hits, 44u);
  EXPECT_EQ(rate.misses, 1u);
  EXPECT_EQ(rate.evictions, 0u);
  EXPECT_EQ(rate.bytes, 111u);
  EXPECT_EQ(CacheBetween(ParseLook(lines(9, 4), 0), ParseLook(lines(2, 1), 1)).hits, 22u)
      << "it was started anew";
  const auto blocks = [](uint64_t of_data) {
    return StatLines{{"lsm.cache_hits_data", std::to_string(of_data)},
                     {"lsm.cache_hits_value", "3"},
                     {"lsm.cache_misses_data", "2"},
                     {"lsm.cache_bytes", "5"},
                     {"lsm.cache_budget_bytes", "50"}};
  };
  const CacheRate store = CacheBetween(ServerLook(), ParseLook(blocks(4), 1));
  EXPECT_EQ(store.hits, 7u);
  EXPECT_EQ(store.misses, 2u);
  EXPECT_EQ(store.bytes, 5u);
}

TEST(ServerRatesTest, AServerThatWasStartedAnewHasNoRates) {
  EXPECT_TRUE(RatesBetween(ParseLook(Lines(300, 0), 0), ParseLook(Lines(5, 0), 1)).empty());
}

TEST(ServerRatesTest, AQuantileLiesInTheBucketOfItsRank) {
  EXPECT_EQ(LatencyQuantile({}, 0, 0.5), 0);
  EXPECT_EQ(LatencyQuantile({{8, 10}}, 10, 1.0), 8);
  EXPECT_EQ(LatencyQuantile({{8, 10}}, 10, 0.5), 6);
  EXPECT_EQ(LatencyQuantile({{8, 1}, {1024, 2}}, 2, 1.0), 1024);
  EXPECT_EQ(LatencyQuantile({{8, 1}}, 5, 0.99), 8);  // beyond all bounds
}

TEST(SlowLogTest, TheMostRecentStay) {
  SlowLog log({.slow_us = 10, .entries = 3});
  EXPECT_FALSE(log.IsSlow(9'999));
  EXPECT_TRUE(log.IsSlow(10'000));
  EXPECT_FALSE(SlowLog({.slow_us = 0}).IsSlow(UINT64_MAX));
  for (int i = 1; i <= 5; ++i) log.Add({.duration_us = static_cast<uint64_t>(i)});
  const auto entries = log.Entries();
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].id, 5u);
  EXPECT_EQ(entries[2].duration_us, 3u);
  EXPECT_EQ(log.count(), 5u);
  log.Clear();
  EXPECT_TRUE(log.Entries().empty());
}

TEST(SlowLogTest, KeysAreCutAndPrintable) {
  SlowLog log({});
  log.Add({.key = std::string("a\"\\\0\xff", 5) + std::string(100, 'x')});
  const std::string key = log.Entries()[0].key;
  EXPECT_TRUE(key.starts_with("a\"\\\\\\x00\\xffx")) << key;
  EXPECT_TRUE(key.ends_with("x…")) << key;
  const auto json = nlohmann::json::parse(log.ToJson(), nullptr, false);
  ASSERT_TRUE(json.is_array()) << log.ToJson();
  EXPECT_EQ(json[0]["key"], key);
}

}  // namespace
}  // namespace farleaf::server
