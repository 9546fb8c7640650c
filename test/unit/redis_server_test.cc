// Redis' protocol at servers: one over a map, and two compute servers on one pool, of which a client asks now the
// one, now the other.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "dsm/base/random.h"
#include "test/support/record_servers.h"
#include "test/support/redis_expiry_table.h"
#include "test/support/redis_peer.h"
#include "test/support/redis_table.h"
#include "test/support/text_client.h"

namespace farleaf::test {
namespace {

using server::NativeServerOptions;

using RedisServerTest = RecordServersTest;
INSTANTIATE_TEST_SUITE_P(All, RedisServerTest, kAllRecordServers, RecordServersName);

TEST_P(RedisServerTest, EachRowAtTheOtherServerThanTheRowBefore) {
  const auto all = Start();
  for (const auto& table : {RedisStringTable(), RedisCollectionTable(), RedisOwnTable()}) {
    TextClient clients[] = {TextClient(all->redis_url(0)), TextClient(all->redis_url(1))};
    for (size_t i = 0; i < table.size(); ++i) {
      const std::string answer = clients[i % 2].AskRedis(table[i].request);
      EXPECT_TRUE(Matches(table[i].answer, answer)) << table[i].request << answer;
    }
    EXPECT_EQ(clients[0].AskRedis("FLUSHALL\r\n"), "+OK\r\n");
  }
  TextClient client(all->redis_url(1));
  for (const auto& [request, answer] : RedisServerTable()) {
    const std::string answered = client.AskRedis(request);
    EXPECT_TRUE(Matches(answer, answered)) << request << answered;
  }
}

TEST_P(RedisServerTest, WhatHasExpiredIsAsIfItHadNotBeenThereWhateverItWas) {
  const auto all = Start();
  TextClient clients[] = {TextClient(all->redis_url(0)), TextClient(all->redis_url(1))};
  const auto [before, behind] = RedisExpiredTable();
  size_t asked = 0;
  for (const auto& [request, answer] : before) {
    EXPECT_EQ(clients[asked++ % 2].AskRedis(request), answer) << request;
  }
  all->wall.AdvanceNs(kRedisExpiryMs * kNsPerMs);
  for (const auto& table : {RedisOwnExpiredTable(), behind}) {
    for (const auto& [request, answer] : table) {
      EXPECT_EQ(clients[asked++ % 2].AskRedis(request), answer) << request;
    }
  }
}

TEST_P(RedisServerTest, NoIncrementIsLostWhicheverServerTakesIt) {
  const auto all = Start();
  constexpr size_t kClients = 6, kEach = 150;
  std::vector<std::thread> threads;
  std::atomic<uint64_t> won{0};
  for (size_t t = 0; t < kClients; ++t) {
    threads.emplace_back([&, t] {
      TextClient client(all->redis_url(t));
      std::string pipelined;
      for (size_t i = 0; i < kEach; ++i) pipelined += "INCR n\r\nAPPEND text x\r\n";
      client.AskRedis(pipelined);
      // Exactly one of all stores each key.
      for (size_t i = 0; i < 20; ++i) {
        won += client.AskRedis("SETNX once" + std::to_string(i) + " x\r\n") == ":1\r\n";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string total = std::to_string(kClients * kEach);
  EXPECT_EQ(TextClient(all->redis_url(1)).AskRedis("GET n\r\nSTRLEN text\r\n"),
            "$3\r\n" + total + "\r\n:" + total + "\r\n");
  EXPECT_EQ(won.load(), 20u);
}

// Whoever of all asks, of whichever server: one of them has it.
TEST_P(RedisServerTest, ConditionsHoldOfOneAtATimeWhicheverServerIsAsked) {
  const auto all = Start();
  constexpr size_t kClients = 4, kEach = 40;
  std::string exchanged;
  for (size_t i = 0; i < kEach; ++i) exchanged += "SET taken" + std::to_string(i) + " x\r\n";
  TextClient(all->redis_url(0)).AskRedis(exchanged + "SET exchanged first\r\n");
  std::atomic<uint64_t> set{0}, replaced{0}, taken{0}, of_hash{0}, of_sorted_set{0};
  std::vector<std::vector<std::string>> previous(kClients);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kClients; ++t) {
    threads.emplace_back([&, t] {
      TextClient client(all->redis_url(t));
      const auto says = [&client](const std::string& request, const std::string& answer) {
        return client.AskRedis(request + "\r\n") == answer;
      };
      const std::string own = std::to_string(t);
      for (size_t i = 0; i < kEach; ++i) {
        const std::string n = std::to_string(i), score = std::to_string(i * kClients + t + 1);
        set += says("SET once" + n + " x NX", "+OK\r\n");
        replaced += says("SET never" + n + " x XX", "+OK\r\n");
        taken += says("GETDEL taken" + n, "$1\r\nx\r\n");
        of_hash += says("HSETNX h f" + n + " " + own, ":1\r\n");
        of_sorted_set += says("ZADD z NX " + own + " m" + n, ":1\r\n");
        previous[t].push_back(client.AskRedis("SET exchanged " + own + "." + n + " GET\r\n"));
        client.AskRedis("ZADD most GT " + score + " m\r\nZADD least LT -" + score +
                        " m\r\nSETRANGE places " + std::to_string(i * kClients + t) + " " + own +
                        "\r\n");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(set.load(), kEach);
  EXPECT_EQ(replaced.load(), 0u);
  EXPECT_EQ(taken.load(), kEach);
  EXPECT_EQ(of_hash.load(), kEach);
  EXPECT_EQ(of_sorted_set.load(), kEach);
  TextClient client(all->redis_url(1));
  // Each value was there once: one exchange has found it, or it is the last one.
  std::set<std::string> values{client.AskRedis("GET exchanged\r\n")};
  for (const auto& found : previous) values.insert(found.begin(), found.end());
  EXPECT_EQ(values.size(), kClients * kEach + 1);
  EXPECT_EQ(client.AskRedis("ZSCORE most m\r\nZSCORE least m\r\nHLEN h\r\nZCARD z\r\n"),
            "$3\r\n160\r\n$4\r\n-160\r\n:40\r\n:40\r\n");
  std::string places;
  for (size_t i = 0; i < kEach; ++i) places += "0123";
  EXPECT_EQ(client.AskRedis("GET places\r\n"), "$160\r\n" + places + "\r\n");
}

// Sets that follow one another are looked at, and made, together, as far as they need not wait.
TEST_P(RedisServerTest, WhatIsPipelinedIsDoneAndAnsweredInItsOrder) {
  const auto all = Start();
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Random random(seed);
  std::map<std::string, std::string> items;
  TextClient clients[] = {TextClient(all->redis_url(0)), TextClient(all->redis_url(1))};
  const auto bulk = [](const std::string& text) {
    return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
  };
  for (int round = 0; round < 30; ++round) {
    std::string requests, answers;
    for (uint64_t n = 1 + random.Below(60); n > 0; --n) {
      const std::string key = "key" + std::to_string(random.Below(round < 15 ? 40 : 4));
      const auto item = items.find(key);
      // Most are of one length: those are made where the one of before lies.
      const size_t bytes = random.Below(8) == 0 ? 1 + random.Below(300) : 20;
      const std::string value(bytes, static_cast<char>('a' + random.Below(26)));
      switch (random.Below(12)) {
        case 0:
          requests += "*2\r\n$3\r\nGET\r\n" + bulk(key);
          answers += item == items.end() ? "$-1\r\n" : bulk(item->second);
          break;
        case 1:
          requests += "DEL " + key + "\r\n";
          answers += ":" + std::to_string(items.erase(key)) + "\r\n";
          break;
        case 2:  // inline, and so not where the reader leaves the others
          requests += "set " + key + " " + value + "\r\n";
          answers += "+OK\r\n";
          items[key] = value;
          break;
        case 3:
          requests += "SET " + key + " " + value + " NX\r\n";
          answers += items.try_emplace(key, value).second ? "+OK\r\n" : "$-1\r\n";
          break;
        default:
          requests += "*3\r\n$3\r\nSET\r\n" + bulk(key) + bulk(value);
          answers += "+OK\r\n";
          items[key] = value;
      }
    }
    ASSERT_EQ(clients[round % 2].AskRedis(requests), answers) << requests;
  }
}

TEST_P(RedisServerTest, ClientsOfMemcachedAndRedisSeeTheSameStrings) {
  const auto all = Start();
  TextClient redis(all->redis_url(0)), memcached(all->memcached_url(1));
  EXPECT_EQ(redis.AskRedis("SET both 41 EX 100\r\n"), "+OK\r\n");
  EXPECT_EQ(memcached.Ask("incr both 1\r\nmg both t\r\n"), "42\r\nHD t100\r\n");
  EXPECT_EQ(redis.AskRedis("GET both\r\nPERSIST both\r\n"), "$2\r\n42\r\n:1\r\n");
  EXPECT_EQ(memcached.Ask("set other 5 0 1\r\nx\r\n"), "STORED\r\n");
  EXPECT_EQ(redis.AskRedis("APPEND other yz\r\nDBSIZE\r\n"), ":3\r\n:2\r\n");
  EXPECT_EQ(memcached.Ask("get other\r\nflush_all\r\n"), "VALUE other 5 3\r\nxyz\r\nEND\r\nOK\r\n");
  EXPECT_EQ(redis.AskRedis("DBSIZE\r\n"), ":0\r\n");
}

// Members come and go at both servers, so that the collections end and begin all the time.
TEST_P(RedisServerTest, CollectionsLoseNothingThatWasAnsweredWhicheverServerTakesIt) {
  const auto all = Start();
  constexpr size_t kClients = 4, kEach = 60;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kClients; ++t) {
    threads.emplace_back([&, t] {
      TextClient client(all->redis_url(t));
      const std::string own = "f" + std::to_string(t);
      for (size_t i = 0; i < kEach; ++i) {
        // Only this client changes its field and its member: whatever others do, they are as it left them.
        EXPECT_EQ(client.AskRedis("HSET h " + own + " x\r\nHGET h " + own + "\r\nHDEL h " + own +
                                  "\r\nHEXISTS h " + own + "\r\n"),
                  ":1\r\n$1\r\nx\r\n:1\r\n:0\r\n");
        EXPECT_EQ(
            client
                .AskRedis("ZADD z 5 " + own + "\r\nZADD z 7 " + own +
                          "\r\nZCOUNT z 7 7\r\nZREM z " + own + "\r\nZSCORE z " + own + "\r\n")
                .substr(0, 8),
            ":1\r\n:0\r\n");
        client.AskRedis("HINCRBY sum n 1\r\nZINCRBY scores 1 n\r\nZADD moved " +
                        std::to_string(i * kClients + t) + " shared\r\n");
      }
    });
  }
  for (auto& thread : threads) thread.join();
  TextClient client(all->redis_url(1));
  EXPECT_EQ(client.AskRedis("EXISTS h z\r\nHGET sum n\r\nZSCORE scores n\r\nZCARD moved\r\n"),
            ":0\r\n$3\r\n240\r\n$3\r\n240\r\n:1\r\n");
  // The member has one score, and is met under it and nowhere else.
  EXPECT_EQ(client.AskRedis("ZCOUNT moved -inf +inf\r\nZRANGE scores 0 -1 WITHSCORES\r\n"),
            ":1\r\n*2\r\n$1\r\nn\r\n$3\r\n240\r\n");
}

TEST_P(RedisServerTest, WhatCollectionsLeaveBehindIsSweptAway) {
  NativeServerOptions options;
  options.expiry_sweep_s = 1;
  const auto all = Start(options);
  TextClient one(all->redis_url(0)), two(all->redis_url(1));
  std::string requests;
  for (int i = 0; i < 300; ++i) {
    requests += "HSET h f" + std::to_string(i) + " x\r\nZADD z " + std::to_string(i) +
                " m\r\nZADD e 1 m" + std::to_string(i) + "\r\n";
  }
  one.AskRedis(requests);
  EXPECT_EQ(two.AskRedis("DEL h\r\nEXPIRE e 100\r\nHSET h only y\r\n"), ":1\r\n:1\r\n:1\r\n");
  all->wall.AdvanceNs(200 * kNsPerSecond);
  const auto swept = [&] {
    uint64_t members = 0;
    for (const auto& server : all->servers) {
      const std::string text = server->StatsText(), name = "records.swept_members ";
      members += std::stoull(text.substr(text.find(name) + name.size()));
    }
    return members;
  };
  // 300 fields; 300 members and their scores.
  const uint64_t end_ns = all->clock.NowNs() + 60 * kNsPerSecond;
  while (swept() < 900 && all->clock.NowNs() < end_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GE(swept(), 900u);
  EXPECT_EQ(two.AskRedis("HGETALL h\r\nEXISTS e\r\nZRANGE z 0 -1 WITHSCORES\r\n"),
            "*2\r\n$4\r\nonly\r\n$1\r\ny\r\n:0\r\n*2\r\n$1\r\nm\r\n$3\r\n299\r\n");
}

TEST_P(RedisServerTest, CursorGoesOnAtTheOtherServer) {
  const auto all = Start();
  TextClient clients[] = {TextClient(all->redis_url(0)), TextClient(all->redis_url(1))};
  std::string sets;
  for (int i = 100; i < 400; ++i) sets += "SET key" + std::to_string(i) + " x\r\n";
  clients[0].AskRedis(sets);
  std::string cursor = "0", met;
  size_t turns = 0;
  do {
    const std::string answer = clients[turns++ % 2].AskRedis("SCAN " + cursor + " COUNT 50\r\n");
    const size_t at = answer.find("\r\n", 4) + 2;
    cursor = answer.substr(at, answer.find("\r\n", at) - at);
    met += answer;
  } while (cursor != "0" && turns < 100);
  EXPECT_GE(turns, 6u);
  for (int i = 100; i < 400; ++i) {
    EXPECT_NE(met.find("\r\nkey" + std::to_string(i) + "\r\n"), std::string::npos) << i;
  }
}

TEST_P(RedisServerTest, LargeValuesAndManyKeysPassInOrder) {
  const auto all = Start();
  TextClient writer(all->redis_url(0)), reader(all->redis_url(1));
  const std::string large(all->data_bytes_max, 'L');
  EXPECT_EQ(writer.AskRedis(Request({"SET", "large", large})), "+OK\r\n");
  EXPECT_TRUE(reader.AskRedis(Request({"GET", "large"})) ==
              "$" + std::to_string(large.size()) + "\r\n" + large + "\r\n");
  std::vector<std::string> set = {"MSET"}, get = {"MGET"};
  std::string values;
  for (int i = 0; i < 700; ++i) {
    const std::string key = "key" + std::to_string(i * 7919 % 700);
    set.insert(set.end(), {key, key});
    get.insert(get.end(), {key, "none" + key});
    values += "$" + std::to_string(key.size()) + "\r\n" + key + "\r\n$-1\r\n";
  }
  EXPECT_EQ(writer.AskRedis(Request(set)), "+OK\r\n");
  EXPECT_TRUE(reader.AskRedis(Request(get)) == "*1400\r\n" + values);
}

TEST_P(RedisServerTest, StatisticsCountWhatWasAsked) {
  const auto all = Start();
  TextClient client(all->redis_url(0));
  client.AskRedis("SET a x\r\nGET a\r\nGET b\r\nLPUSH c d\r\n");
  const std::string info = client.AskRedis("INFO stats\r\n");
  for (const char* line :
       {"keyspace_hits:1\r\n", "keyspace_misses:1\r\n", "farleaf_refused:1\r\n"}) {
    EXPECT_NE(info.find(line), std::string::npos) << line << info;
  }
  EXPECT_NE(client.AskRedis("INFO\r\n").find("redis_version:7.0.15\r\n"), std::string::npos);
  EXPECT_EQ(client.AskRedis("CONFIG GET maxclients\r\n"),
            "*2\r\n$10\r\nmaxclients\r\n$4\r\n4096\r\n");
  const std::string text = all->servers[0]->StatsText();
  EXPECT_NE(text.find("redis.set.count 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("redis.get.count 2\n"), std::string::npos) << text;
}

TEST_P(RedisServerTest, SlowCommandsAreTold) {
  NativeServerOptions options;
  options.slow_log.slow_us = 1;  // every command
  const auto all = Start(options);
  TextClient client(all->redis_url(0));
  client.AskRedis("SLOWLOG RESET\r\nSET slow.key x\r\n");
  EXPECT_NE(client.AskRedis("SLOWLOG LEN\r\n"), ":0\r\n");
  const std::string told = client.AskRedis("SLOWLOG GET\r\n");
  EXPECT_NE(told.find("*2\r\n$3\r\nset\r\n$8\r\nslow.key\r\n"), std::string::npos) << told;
}

}  // namespace
}  // namespace farleaf::test
