// memcached's protocol at servers: one over a map, and two compute servers on one pool, of which a client asks
// now the one, now the other.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "dsm/base/random.h"
#include "test/support/memcached_table.h"
#include "test/support/record_servers.h"
#include "test/support/text_client.h"

namespace farleaf::test {
namespace {

using server::NativeServerOptions;

constexpr uint64_t kPatienceNs = 60 * kNsPerSecond;

using MemcachedServerTest = RecordServersTest;
INSTANTIATE_TEST_SUITE_P(All, MemcachedServerTest, kAllRecordServers, RecordServersName);

TEST_P(MemcachedServerTest, EachRowAtTheOtherServerThanTheRowBefore) {
  const auto all = Start();
  for (const auto& table : {ClassicTable(), MetaTable(), OwnTable()}) {
    TextClient clients[] = {TextClient(all->memcached_url(0)), TextClient(all->memcached_url(1))};
    for (size_t i = 0; i < table.size(); ++i) {
      const std::string answer = clients[i % 2].Ask(table[i].request);
      EXPECT_TRUE(Matches(table[i].answer, answer)) << table[i].request << answer;
    }
    EXPECT_EQ(clients[0].Ask("flush_all\r\n"), "OK\r\n");
  }
}

TEST_P(MemcachedServerTest, NoIncrementIsLostWhicheverServerTakesIt) {
  const auto all = Start();
  constexpr size_t kClients = 6, kEach = 150;
  ASSERT_EQ(TextClient(all->memcached_url(0)).Ask("set n 0 0 1\r\n0\r\nset m 0 0 1\r\n0\r\n"),
            "STORED\r\nSTORED\r\n");
  std::vector<std::thread> threads;
  std::atomic<uint64_t> won{0};
  for (size_t t = 0; t < kClients; ++t) {
    threads.emplace_back([&, t] {
      TextClient client(all->memcached_url(t));
      std::string pipelined;
      for (size_t i = 0; i < kEach; ++i) pipelined += "incr n 1 noreply\r\nma m q\r\n";
      client.Ask(pipelined);
      // Exactly one of all adds each key.
      for (size_t i = 0; i < 20; ++i) {
        won += client.Ask("add once" + std::to_string(i) + " 0 0 1\r\nx\r\n") == "STORED\r\n";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string total = std::to_string(kClients * kEach);
  EXPECT_EQ(TextClient(all->memcached_url(1)).Ask("get n m\r\n"),
            "VALUE n 0 3\r\n" + total + "\r\nVALUE m 0 3\r\n" + total + "\r\nEND\r\n");
  EXPECT_EQ(won.load(), 20u);
}

// Sets that follow one another are looked at, and made, together, as far as they need not wait.
TEST_P(MemcachedServerTest, WhatIsPipelinedIsDoneAndAnsweredInItsOrder) {
  const auto all = Start();
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Random random(seed);
  std::map<std::string, std::string> items;
  TextClient clients[] = {TextClient(all->memcached_url(0)), TextClient(all->memcached_url(1))};
  for (int round = 0; round < 30; ++round) {
    std::string requests, answers;
    // The last rounds are more than fits one block of input.
    const bool blocks = round >= 25;
    for (uint64_t n = blocks ? 300 : 1 + random.Below(60); n > 0; --n) {
      const std::string key = "key" + std::to_string(random.Below(round < 15 ? 40 : 4));
      const auto item = items.find(key);
      // Most are of one length: those are made where the one of before lies.
      const size_t bytes = blocks                 ? random.Below(2'000)
                           : random.Below(8) == 0 ? random.Below(300)
                                                  : 20;
      const std::string value(bytes, static_cast<char>('a' + random.Below(26)));
      const std::string line = key + " 0 0 " + std::to_string(bytes);
      switch (random.Below(12)) {
        case 0:
          requests += "get " + key + "\r\n";
          if (item != items.end()) {
            answers += "VALUE " + key + " 0 " + std::to_string(item->second.size()) + "\r\n" +
                       item->second + "\r\n";
          }
          answers += "END\r\n";
          break;
        case 1:
          requests += "delete " + key + "\r\n";
          answers += items.erase(key) > 0 ? "DELETED\r\n" : "NOT_FOUND\r\n";
          break;
        case 2:
          requests += "set " + line + " noreply\r\n" + value + "\r\n";
          items[key] = value;
          break;
        case 3:
          requests += "set " + key + " 0 -1 1\r\nx\r\n";
          answers += "STORED\r\n";
          items.erase(key);
          break;
        default:
          requests += "set " + line + "\r\n" + value + "\r\n";
          answers += "STORED\r\n";
          items[key] = value;
      }
    }
    ASSERT_TRUE(clients[round % 2].Ask(requests) == answers)
        << round << ": " << requests.substr(0, 8'000);
  }
}

TEST_P(MemcachedServerTest, CompareAndSetLosesNoUpdate) {
  const auto all = Start();
  constexpr uint64_t kClients = 4, kEach = 25;
  ASSERT_EQ(TextClient(all->memcached_url(0)).Ask("set n 0 0 1\r\n0\r\n"), "STORED\r\n");
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kClients; ++t) {
    threads.emplace_back([&, t] {
      TextClient client(all->memcached_url(t));
      for (uint64_t done = 0; done < kEach;) {
        const std::string got = client.Ask("gets n\r\n");
        unsigned long long bytes = 0, cas = 0, count = 0;
        ASSERT_EQ(std::sscanf(got.c_str(), "VALUE n 0 %llu %llu\r\n%llu", &bytes, &cas, &count), 3)
            << got;
        const std::string next = std::to_string(count + 1);
        done += client.Ask("cas n 0 0 " + std::to_string(next.size()) + " " + std::to_string(cas) +
                           "\r\n" + next + "\r\n") == "STORED\r\n";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(TextClient(all->memcached_url(0)).Ask("get n\r\n"), "VALUE n 0 3\r\n100\r\nEND\r\n");
}

// Pieces are put to both ends of one item, its expiry is moved meanwhile, and items are deleted and made anew.
TEST_P(MemcachedServerTest, NoPieceIsLostAndOneOfAllDeletesAnItem) {
  const auto all = Start();
  constexpr size_t kClients = 4, kEach = 40;
  std::string sets = "set text 0 0 1\r\n|\r\n";
  for (size_t i = 0; i < kEach; ++i) sets += "set d" + std::to_string(i) + " 0 0 1\r\nx\r\n";
  TextClient(all->memcached_url(0)).Ask(sets);
  std::atomic<uint64_t> deleted{0}, made{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kClients; ++t) {
    threads.emplace_back([&, t] {
      TextClient client(all->memcached_url(t));
      const char own = static_cast<char>('a' + t);
      for (size_t i = 0; i < kEach; ++i) {
        const std::string n = std::to_string(i);
        const std::string piece = {own, static_cast<char>('0' + i)};
        EXPECT_EQ(client.Ask("append text 0 0 2\r\n" + piece + "\r\nprepend text 0 0 2\r\n" +
                             piece + "\r\ntouch text 1000\r\n"),
                  "STORED\r\nSTORED\r\nTOUCHED\r\n");
        deleted += client.Ask("delete d" + n + "\r\n") == "DELETED\r\n";
        made += client.Ask("ms m" + n + " 1 ME\r\nx\r\n") == "HD\r\n";
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(deleted.load(), kEach);
  EXPECT_EQ(made.load(), kEach);
  const std::string answer = TextClient(all->memcached_url(1)).Ask("mg text v\r\n");
  const std::string text = answer.substr(answer.find("\r\n") + 2);
  const size_t middle = text.find('|'), pieces = kClients * kEach;
  ASSERT_EQ(answer.substr(0, 3), "VA ") << answer;
  ASSERT_EQ(middle, 2 * pieces) << text;
  ASSERT_EQ(text.size(), 4 * pieces + 1 + 2) << text;
  // Those of a client are in its order behind the middle, and in the other one before it.
  for (size_t t = 0; t < kClients; ++t) {
    char behind = '0', before = static_cast<char>('0' + kEach);
    for (size_t at = 0; at < 2 * pieces; at += 2) {
      if (text[middle + 1 + at] == static_cast<char>('a' + t)) {
        EXPECT_EQ(text[middle + 2 + at], behind++) << text;
      }
      if (text[at] == static_cast<char>('a' + t)) {
        EXPECT_EQ(text[at + 1], --before) << text;
      }
    }
    EXPECT_EQ(behind, static_cast<char>('0' + kEach));
    EXPECT_EQ(before, '0');
  }
}

TEST_P(MemcachedServerTest, LargeValuesAndManyKeysPassInOrder) {
  const auto all = Start();
  TextClient writer(all->memcached_url(0)), reader(all->memcached_url(1));
  const std::string large(all->data_bytes_max, 'L');
  const std::string size = std::to_string(large.size()), more = std::to_string(large.size() + 1);
  EXPECT_EQ(writer.Ask("set large 9 0 " + size + "\r\n" + large + "\r\n"), "STORED\r\n");
  EXPECT_TRUE(reader.Ask("get large\r\n") ==
              "VALUE large 9 " + size + "\r\n" + large + "\r\nEND\r\n");
  EXPECT_EQ(writer.Ask("set large 9 0 " + more + "\r\n" + large + "x\r\n"),
            "SERVER_ERROR object too large for cache\r\n");
  EXPECT_EQ(reader.Ask("get large\r\n"), "END\r\n");
  std::string sets, get = "get", values;
  for (int i = 0; i < 700; ++i) {
    const std::string key = "key" + std::to_string(i * 7919 % 700);
    sets += "set " + key + " 0 0 " + std::to_string(key.size()) + " noreply\r\n" + key + "\r\n";
    get += " " + key + " none" + key;
    values += "VALUE " + key + " 0 " + std::to_string(key.size()) + "\r\n" + key + "\r\n";
  }
  EXPECT_EQ(writer.Ask(sets), "");
  EXPECT_TRUE(reader.Ask(get + "\r\n") == values + "END\r\n");
}

TEST_P(MemcachedServerTest, WhatHasExpiredIsGoneAtBothAndItsSpaceComesBack) {
  NativeServerOptions options;
  options.expiry_sweep_s = 1;
  const auto all = Start(options);
  TextClient one(all->memcached_url(0)), two(all->memcached_url(1));
  std::string sets;
  for (int i = 0; i < 1'500; ++i) {
    sets += "set e" + std::to_string(i) + " 0 100 1 noreply\r\nx\r\n";
  }
  sets += "set stays 0 0 1 noreply\r\nx\r\n";
  EXPECT_EQ(one.Ask(sets), "");
  EXPECT_EQ(two.Ask("get e7 stays\r\n"), "VALUE e7 0 1\r\nx\r\nVALUE stays 0 1\r\nx\r\nEND\r\n");
  all->wall.AdvanceNs(100 * kNsPerSecond);
  EXPECT_EQ(two.Ask("get e7 stays\r\n"), "VALUE stays 0 1\r\nx\r\nEND\r\n");
  EXPECT_EQ(one.Ask("get e7\r\nadd e8 0 0 1\r\ny\r\n"), "END\r\nSTORED\r\n");
  // The sweeps of both come by.
  const auto swept = [&] {
    uint64_t records = 0;
    for (const auto& server : all->servers) {
      const std::string text = server->StatsText();
      const std::string name = "records.swept_expired ";
      records += std::stoull(text.substr(text.find(name) + name.size()));
    }
    return records;
  };
  const uint64_t end_ns = all->clock.NowNs() + kPatienceNs;
  while (swept() < 1'498 && all->clock.NowNs() < end_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_GE(swept(), 1'498u);
  EXPECT_EQ(two.Ask("get e8 stays\r\n"), "VALUE e8 0 1\r\ny\r\nVALUE stays 0 1\r\nx\r\nEND\r\n");
}

TEST_P(MemcachedServerTest, FlushAllIsSeenByTheOtherServerAtOnceOrWhenItsDelayIsOver) {
  const auto all = Start();
  TextClient one(all->memcached_url(0)), two(all->memcached_url(1));
  std::string sets;
  for (int i = 0; i < 1'200; ++i) sets += "set f" + std::to_string(i) + " 0 0 1 noreply\r\nx\r\n";
  one.Ask(sets);
  EXPECT_EQ(one.Ask("flush_all\r\n"), "OK\r\n");
  EXPECT_EQ(two.Ask("get f0 f600 f1199\r\n"), "END\r\n");
  EXPECT_EQ(two.Ask("set f 0 0 1\r\nx\r\n"), "STORED\r\n");
  EXPECT_EQ(one.Ask("flush_all 10\r\nget f\r\n"), "OK\r\nVALUE f 0 1\r\nx\r\nEND\r\n");
  all->wall.AdvanceNs(10 * kNsPerSecond);
  const uint64_t end_ns = all->clock.NowNs() + kPatienceNs;
  while (two.Ask("get f\r\n") != "END\r\n" && all->clock.NowNs() < end_ns) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(two.Ask("get f\r\n"), "END\r\n");
  EXPECT_EQ(two.Ask("set f 0 0 1\r\nx\r\n"), "STORED\r\n");
}

TEST_P(MemcachedServerTest, StatisticsCountWhatWasAsked) {
  const auto all = Start();
  TextClient client(all->memcached_url(0));
  client.Ask("set a 0 0 1\r\nx\r\nget a b\r\nincr c 1\r\ndelete a\r\n");
  const std::string general = client.Ask("stats\r\n");
  for (const char* line : {"STAT cmd_set 1\r\n", "STAT get_hits 1\r\n", "STAT incr_misses 1\r\n",
                           "STAT delete_hits 1\r\n", "STAT curr_connections 1\r\n"}) {
    EXPECT_NE(general.find(line), std::string::npos) << line << general;
  }
  EXPECT_TRUE(general.ends_with("END\r\n"));
  EXPECT_NE(client.Ask("stats settings\r\n")
                .find("STAT item_size_max " + std::to_string(all->data_bytes_max) + "\r\n"),
            std::string::npos);
  const std::string text = all->servers[0]->StatsText();
  EXPECT_NE(text.find("memcached.set.count 1\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace farleaf::test
