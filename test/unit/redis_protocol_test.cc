// Redis' protocol without sockets: what it answers, however the bytes come; of one server over a map, and of two compute
// servers on one pool, of which now the one is asked, now the other.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "dsm/base/random.h"
#include "server/frontend/redis/pattern.h"
#include "test/support/record_members.h"
#include "test/support/redis_expiry_table.h"
#include "test/support/redis_peer.h"
#include "test/support/redis_table.h"

namespace farleaf::test {
namespace {

std::vector<std::vector<Exchange>> AllTables() {
  return {RedisServerTable(), RedisStringTable(), RedisCollectionTable(), RedisOwnTable()};
}

using RedisPeers = MemberPeers<RedisPeer, server::redis::Limits>;

struct RedisProtocolTest : RecordMembersTest {
  size_t asked = 0;

  /// A stream to a connection of its own, which finds no keys: each to the other member than the one before.
  std::string Ask(std::string_view stream, size_t piece_bytes = SIZE_MAX,
                  server::redis::Limits limits = {}) {
    const std::string answers = Connect(limits)->Exchange(stream, piece_bytes);
    Clear();
    return answers;
  }
  std::unique_ptr<RedisPeer> Connect(server::redis::Limits limits = {},
                                     std::vector<std::string> passwords = {}) {
    const size_t i = asked++;
    return std::make_unique<RedisPeer>(members.worker(i), limits, members.tree(i),
                                       std::move(passwords));
  }
  void Clear() { ASSERT_EQ(Connect()->Ask("FLUSHALL\r\n"), "+OK\r\n"); }
};
INSTANTIATE_TEST_SUITE_P(Members, RedisProtocolTest, kAllRecordMembers, RecordMembersName);

TEST_P(RedisProtocolTest, EveryRowOfTheTables) {
  for (size_t first = 0; first < members.count(); ++first) {
    for (const auto& table : {RedisStringTable(), RedisCollectionTable(), RedisOwnTable()}) {
      RedisPeers peers(&members, {}, first);
      for (const auto& [request, answer] : table) {
        const std::string answered = peers.Ask(request);
        EXPECT_TRUE(Matches(answer, answered)) << request << answered;
      }
      Clear();
    }
  }
  const auto peer = Connect();
  for (const auto& [request, answer] : RedisServerTable()) {
    const std::string answered = peer->Ask(request);
    EXPECT_TRUE(Matches(answer, answered)) << request << answered;
  }
}

// Each question at either server, and then the other is asked what has become of the key.
TEST_P(RedisProtocolTest, WhatHasExpiredIsAsIfItHadNotBeenThereWhateverItWas) {
  for (size_t first = 0; first < members.count(); ++first) {
    RedisPeers peers(&members, {}, first);
    const auto [before, behind] = RedisExpiredTable();
    for (const auto& [request, answer] : before) EXPECT_EQ(peers.Ask(request), answer) << request;
    peers.AdvanceNs(kRedisExpiryMs * kNsPerMs);
    for (const auto& table : {RedisOwnExpiredTable(), behind}) {
      for (const auto& [request, answer] : table) {
        EXPECT_EQ(peers.Ask(request), answer) << request;
      }
    }
    Clear();
  }
}

TEST_P(RedisProtocolTest, TheAnswersAreTheSameHoweverTheBytesAreCut) {
  for (const auto& table : AllTables()) {
    std::string all;
    for (const auto& row : table) all += row.request;
    const std::string expected = Ask(all);
    for (const size_t bytes : {1, 2, 3, 5, 7, 64, 1000}) {
      EXPECT_EQ(Ask(all, bytes), expected) << bytes;
    }
  }
}

// Split in two at every byte: no place is special.
TEST_P(RedisProtocolTest, OneCutAtEachByteChangesNothing) {
  for (const std::string& stream :
       {Request({"SET", "a", "b\r\n"}) + Request({"GET", "a"}) + "*0\r\nGET a\r\n" +
            Request({"GET", "b"}) + Request({"GET", "a"}) + "\r\n" + Request({"INCR", "a"}),
        Request({"SET", "a", std::string(300, 'x')}) + "PING\r\n" + Request({"GET", "a"}),
        Request({"SET", "a", "1"}) + "*2\r\n$3\r\nGET\r\n$-1\r\nPING\r\n",
        Request({"MSET", "a", "1", "b", std::string(150, 'y')}) + Request({"MGET", "a", "b"})}) {
    const server::redis::Limits limits{.value_bytes_max = 200, .request_bytes_max = 180};
    const std::string expected = Ask(stream, SIZE_MAX, limits);
    for (size_t cut = 0; cut <= stream.size(); ++cut) {
      const auto peer = Connect(limits);
      peer->Ask(std::string_view(stream).substr(0, cut));
      peer->Ask(std::string_view(stream).substr(cut));
      peer->End();
      EXPECT_EQ(peer->received(), expected) << cut;
      Clear();
    }
  }
}

TEST_P(RedisProtocolTest, WhatIsTooLargeIsSkippedAndWhatFollowsIsServed) {
  const server::redis::Limits limits{.value_bytes_max = 100, .request_bytes_max = 400};
  const std::string large(101, 'x'), fits(100, 'y');
  std::vector<std::string> many = {"MSET"};
  for (int i = 0; i < 61; ++i) many.push_back("k" + std::to_string(i));
  const std::string stream = Request({"SET", "a", "1"}) + Request({"SET", "a", large}) +
                             Request({"GET", "a"}) + Request({"SET", "a", fits}) +
                             Request({"APPEND", "a", "z"}) +
                             Request({"SETRANGE", "a", "100", "z"}) + Request(many) + "PING\r\n";
  const std::string too_large =
      "-ERR string exceeds maximum allowed size (redis_value_bytes_max)\r\n";
  for (const size_t bytes : {size_t{1}, size_t{50}, SIZE_MAX}) {
    EXPECT_EQ(Ask(stream, bytes, limits),
              "+OK\r\n-ERR an argument of 101 bytes; redis_value_bytes_max is 100\r\n$1\r\n1\r\n"
              "+OK\r\n" +
                  too_large + too_large +
                  "-ERR a request of more than 400 bytes, which is redis_request_bytes_max\r\n"
                  "+PONG\r\n");
  }
}

TEST_P(RedisProtocolTest, GarbageIsToldAndCutOff) {
  const std::pair<std::string, std::string> garbage[] = {
      {"*x\r\n", "invalid multibulk length"},
      {"*1048577\r\n", "invalid multibulk length"},
      {"*" + std::string(40, '1'), "invalid multibulk length"},
      {"*1\n$4\r\nPING\r\n", "invalid multibulk length"},
      {"*1\r\nPING\r\n", "expected '$', got 'P'"},
      {"*1\r\n$-1\r\n", "invalid bulk length"},
      {"*1\r\n$x\r\n", "invalid bulk length"},
      {"*1\r\n$536870913\r\n", "invalid bulk length"},
      {"*1\r\n$99999999999999999999\r\n", "invalid bulk length"},
      {"*1\r\n$4\r\nPINGxx", "expected the end of an argument"},
      {"ECHO \"a\r\n", "unbalanced quotes in request"},
      {"ECHO \"a\"b\r\n", "unbalanced quotes in request"},
      {std::string(66'000, 'x'), "too big inline request"},
  };
  for (const auto& [bytes, what] : garbage) {
    for (const size_t piece : {size_t{1}, SIZE_MAX}) {
      const auto peer = Connect();
      EXPECT_EQ(peer->Exchange("PING\r\n" + bytes + "PING\r\n", piece),
                "+PONG\r\n-ERR Protocol error: " + what + "\r\n");
      EXPECT_FALSE(peer->connection().failure().ok());
    }
  }
  EXPECT_EQ(Ask("POST / HTTP/1.1\r\nHost: x\r\n\r\nPING\r\n"), "-ERR this is not HTTP\r\n");
}

// Within a request, between requests, and where the last one had quotes.
TEST_P(RedisProtocolTest, RoomThatIsGivenBackChangesNoAnswer) {
  const std::string stream = Request({"SET", "a", "b"}) + "GET \"a\"\r\n" +
                             Request({"MSET", "a", "1", "b", "2"}) + Request({"MGET", "a", "b"});
  const std::string expected = Ask(stream);
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    const auto peer = Connect();
    peer->Ask(std::string_view(stream).substr(0, cut));
    peer->connection().GiveBackRoom();
    peer->Ask(std::string_view(stream).substr(cut));
    peer->End();
    EXPECT_EQ(peer->received(), expected) << cut;
    Clear();
  }
}

TEST_P(RedisProtocolTest, QuitEndsTheConnectionBehindTheAnswersBeforeIt) {
  EXPECT_EQ(Ask("PING\r\nGET a\r\nQUIT\r\nPING\r\n"), "+PONG\r\n$-1\r\n+OK\r\n");
}

// The client does not read: neither output nor input grows beyond what the limits say.
TEST_P(RedisProtocolTest, SlowReaderHoldsUpOnlyItself) {
  constexpr size_t kOutMax = 10'000, kValue = 1'000, kKeys = 500;
  const auto writer = Connect(), peer = Connect({.out_bytes_max = kOutMax});
  std::string gets;
  for (size_t i = 0; i < kKeys; ++i) {
    const std::string key = "k" + std::to_string(i);
    writer->Ask(Request({"SET", key, std::string(kValue, 'v')}));
    gets += Request({"GET", key});
  }
  std::string_view rest = gets;
  ASSERT_TRUE(peer->Send(&rest, SIZE_MAX));
  size_t largest = 0;
  while (!peer->connection().output().empty()) {
    largest = std::max(largest, peer->connection().output().size());
    peer->Receive(kOutMax / 3);
  }
  // One batch of 64 keys is taken before their size is known.
  EXPECT_LE(largest, kOutMax + 64 * (kValue + 50));
  EXPECT_EQ(peer->received().size(), kKeys * (kValue + 9));
}

TEST_P(RedisProtocolTest, AnswerBeyondTheLimitIsAnErrorAndTheConnectionGoesOn) {
  RedisPeers peers(&members, {.reply_bytes_max = 5'000});
  const std::string value(1'000, 'v');
  std::vector<std::string> get = {"MGET"};
  for (int i = 0; i < 100; ++i) get.push_back("k");
  peers.Ask(Request({"SET", "k", value}) + Request({"SET", "l", value}));
  const std::string large =
      "-ERR the answer is larger than redis_reply_bytes_max; ask for less at a time\r\n";
  EXPECT_EQ(peers.Ask(Request(get)), large);
  EXPECT_EQ(peers.Ask("RANGE - + KEYS\r\n"), "*2\r\n$1\r\nk\r\n$1\r\nl\r\n");
}

TEST_P(RedisProtocolTest, AnAbandonedSlowReaderLeavesNothingRunning) {
  const auto writer = Connect(), peer = Connect({.out_bytes_max = 100});
  writer->Ask(Request({"SET", "k", std::string(1'000, 'v')}));
  std::string gets;
  for (int i = 0; i < 300; ++i) gets += Request({"GET", "k"});
  EXPECT_EQ(peer->AbandonBehind(gets), 1u);
  EXPECT_EQ(peer->connection().in_flight(), 0u);
  EXPECT_TRUE(peer->connection().finished());
}

TEST_P(RedisProtocolTest, ExpiryIsKeptToTheMillisecondAndTheSpaceComesBack) {
  RedisPeers peers(&members, {});
  EXPECT_EQ(peers.Ask("SET a x PX 1500\r\nSET b y\r\nPTTL a\r\nTTL a\r\n"),
            "+OK\r\n+OK\r\n:1500\r\n:2\r\n");
  peers.AdvanceNs(1'499 * kNsPerMs);
  EXPECT_EQ(peers.Ask("PTTL a\r\nGET a\r\n"), ":1\r\n$1\r\nx\r\n");
  peers.AdvanceNs(kNsPerMs);
  EXPECT_EQ(peers.Ask("SCAN 0\r\nRANGE - +\r\n"),
            "*2\r\n$1\r\n0\r\n*1\r\n$1\r\nb\r\n*2\r\n$1\r\nb\r\n$1\r\ny\r\n");
  EXPECT_EQ(members.Records(0).size(), 2u);
  EXPECT_EQ(peers.Ask("DBSIZE\r\n"), ":2\r\n") << "as Redis counts what is still to be deleted";
  EXPECT_EQ(peers.Ask("MGET a b\r\n"), "*2\r\n$-1\r\n$1\r\ny\r\n");
  EXPECT_EQ(members.Records(0).size(), 1u) << "whoever meets it deletes it";
}

TEST_P(RedisProtocolTest, ScanMeetsEachKeyOnceWhateverItsStep) {
  RedisPeers peers(&members, {});
  std::set<std::string> expected;
  for (int i = 0; i < 300; ++i) {
    const std::string key = "key" + std::to_string(i * 7919 % 300);
    peers.Ask(Request({"SET", key, "x"}));
    if (key[3] == '1') expected.insert(key);
  }
  for (const char* count : {"1", "7", "100", "1000"}) {
    std::multiset<std::string> met;
    std::string cursor = "0";
    do {
      const std::string answer =
          peers.Ask(Request({"SCAN", cursor, "MATCH", "key1*", "COUNT", count}));
      // *2, the cursor's length and text, the count of keys, a length and a text for each.
      std::vector<std::string> lines;
      for (size_t at = 0; at < answer.size(); at = answer.find("\r\n", at) + 2) {
        lines.push_back(answer.substr(at, answer.find("\r\n", at) - at));
      }
      ASSERT_GE(lines.size(), 4u) << answer;
      cursor = lines[2];
      for (size_t i = 5; i < lines.size(); i += 2) met.insert(lines[i]);
    } while (cursor != "0");
    EXPECT_EQ(met, std::multiset<std::string>(expected.begin(), expected.end())) << count;
  }
}

TEST_P(RedisProtocolTest, WalksThatAreNeverFinishedDoNotFillThePool) {
  RedisPeers peers(&members, {});
  for (int i = 0; i < 50; ++i) peers.Ask(Request({"SET", "key" + std::to_string(i), "x"}));
  const std::string first = peers.Ask("SCAN 0 COUNT 20\r\n");
  const size_t records = members.Records(0).size();
  EXPECT_EQ(records, 51u) << "with the cursor's";
  for (int i = 0; i < 100; ++i) EXPECT_EQ(peers.Ask("SCAN 0 COUNT 20\r\n"), first);
  EXPECT_EQ(members.Records(0).size(), records);
}

TEST_P(RedisProtocolTest, EveryNumberComesBack) {
  RedisPeers peers(&members, {});
  Random random(11);
  int64_t sum = 0;
  for (int i = 0; i < 200; ++i) {
    const auto delta = static_cast<int64_t>(random.Next() >> random.Below(64)) / 256;
    sum += delta;
    EXPECT_EQ(peers.Ask(Request({"INCRBY", "n", std::to_string(delta)})),
              ":" + std::to_string(sum) + "\r\n");
  }
}

TEST_P(RedisProtocolTest, NobodyIsServedWithoutThePassword) {
  const std::vector<std::string> passwords = {"right", "other"};
  const std::string none = "-NOAUTH Authentication required.\r\n";
  const std::string wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
  const auto peer = Connect({}, passwords);
  EXPECT_FALSE(peer->connection().greeted());
  EXPECT_EQ(peer->Ask("GET a\r\nPING\r\nNONSENSE\r\nSET a b\r\nFLUSHALL\r\n"),
            none + none + none + none + none);
  EXPECT_EQ(peer->Ask(Request({"SET", "a", std::string(5'000, 'x')})), none);
  EXPECT_TRUE(peer->Ask("HELLO 3\r\n").starts_with("-NOAUTH HELLO must be called"));
  EXPECT_EQ(peer->Ask("AUTH wrong\r\nAUTH someone right\r\n"), wrong + wrong);
  EXPECT_EQ(peer->Ask("AUTH default other\r\nSET a b\r\nGET a\r\n"), "+OK\r\n+OK\r\n$1\r\nb\r\n");
  EXPECT_TRUE(peer->connection().greeted());
  EXPECT_EQ(peer->Ask(Request({"SET", "a", std::string(5'000, 'x')})), "+OK\r\n");
  const auto hello = Connect({}, passwords);
  EXPECT_TRUE(hello->Ask("HELLO 3 AUTH default right\r\n").starts_with("%7\r\n"));
  EXPECT_EQ(hello->Ask("GET none\r\n"), "_\r\n");
  const auto guesser = Connect({}, passwords);
  EXPECT_EQ(guesser->Ask("AUTH a\r\nAUTH b\r\nAUTH c\r\nAUTH right\r\n"), wrong + wrong + wrong);
  EXPECT_FALSE(guesser->connection().failure().ok());
}

TEST_P(RedisProtocolTest, MembersOfAnyBytesAndResp3Forms) {
  RedisPeers peers(&members, {});
  const std::string zeros("\0\0z", 3), key("k\0", 2), longer("k\0\0", 3);
  EXPECT_EQ(peers.Ask(Request({"HSET", key, zeros, "1", "", "2"}) +
                      Request({"HSET", longer, "x", "3"}) + Request({"HSET", "k", "y", "4"})),
            ":2\r\n:1\r\n:1\r\n");
  EXPECT_EQ(peers.Ask(Request({"HGETALL", key})),
            std::string("*4\r\n$0\r\n\r\n$1\r\n2\r\n$3\r\n") + zeros + "\r\n$1\r\n1\r\n");
  EXPECT_EQ(peers.Ask("HGETALL k\r\n"), "*2\r\n$1\r\ny\r\n$1\r\n4\r\n");
  const std::string long_field(1'010, 'f');
  const std::string too_long = "-ERR the key and its member together are too long\r\n";
  EXPECT_EQ(peers.Ask(Request({"HSET", "k", long_field, "1"}) +
                      Request({"ZADD", "s", "1", long_field}) + Request({"HGET", "k", long_field})),
            too_long + too_long + "$-1\r\n");
  EXPECT_EQ(peers.Ask("ZADD z 1.5 a 2 b\r\n"), ":2\r\n");
  for (size_t i = 0; i < members.count(); ++i) peers.Ask("HELLO 3\r\n");
  EXPECT_EQ(peers.Ask("HGETALL k\r\nHGETALL none\r\nZSCORE z a\r\nZRANGE z 0 -1 WITHSCORES\r\n"),
            "%1\r\n$1\r\ny\r\n$1\r\n4\r\n%0\r\n,1.5\r\n"
            "*2\r\n*2\r\n$1\r\na\r\n,1.5\r\n*2\r\n$1\r\nb\r\n,2\r\n");
}

TEST_P(RedisProtocolTest, PatternsMatchAsRedisSays) {
  using server::redis::LiteralPrefix;
  using server::redis::MatchesPattern;
  EXPECT_TRUE(MatchesPattern("*", "") && MatchesPattern("a*b*c", "axxbyyc"));
  EXPECT_TRUE(MatchesPattern("a?c", "abc") && !MatchesPattern("a?c", "ac"));
  EXPECT_TRUE(MatchesPattern("[a-c]x[^0-9]", "bxz") && !MatchesPattern("[a-c]x[^0-9]", "bx5"));
  EXPECT_TRUE(MatchesPattern("a\\*b", "a*b") && !MatchesPattern("a\\*b", "axb"));
  EXPECT_TRUE(MatchesPattern("*aab", "aaaaaab") && !MatchesPattern("*aab", "aaaaaa"));
  EXPECT_FALSE(MatchesPattern("abc", "ab") || MatchesPattern("ab", "abc") ||
               MatchesPattern("[", ""));
  EXPECT_TRUE(MatchesPattern("[c-a]", "b") && MatchesPattern("[\\]]", "]"));
  EXPECT_EQ(LiteralPrefix("user:\\*1*x"), "user:*1");
  // No key needs a longer one, and each row would have to be matched from each star on.
  for (const std::string scan : {"SCAN 0", "HSCAN h 0", "ZSCAN z 0"}) {
    EXPECT_EQ(Ask(scan + " MATCH " + std::string(8'192, '*') + "\r\n"), "*2\r\n$1\r\n0\r\n*0\r\n");
    EXPECT_EQ(Ask(scan + " MATCH " + std::string(8'193, '*') + "\r\n"),
              "-ERR a MATCH pattern of more than 8192 bytes\r\n");
  }
  // Many stars take no exponential time.
  EXPECT_FALSE(MatchesPattern("a*a*a*a*a*a*a*a*a*a*b", std::string(5'000, 'a')));
}

TEST_P(RedisProtocolTest, CollectionsAreIteratedPieceByPieceAndACursorEndsWithItsCollection) {
  RedisPeers peers(&members, {});
  for (int i = 100; i < 160; ++i) {
    const std::string n = std::to_string(i);
    peers.Ask("HSET h f" + n + " x\r\nZADD z " + n + " m" + n + "\r\n");
  }
  for (const std::string scan : {"HSCAN h", "ZSCAN z"}) {
    std::string cursor = "0", met;
    int turns = 0;
    do {
      const std::string answer = peers.Ask(scan + " " + cursor + " COUNT 7\r\n");
      const size_t at = answer.find("\r\n", 4) + 2;
      cursor = answer.substr(at, answer.find("\r\n", at) - at);
      met += answer;
      ++turns;
    } while (cursor != "0" && turns < 100);
    EXPECT_EQ(turns, 9);
    for (int i = 100; i < 160; ++i) {
      const std::string member = (scan[0] == 'H' ? "f" : "m") + std::to_string(i) + "\r\n";
      EXPECT_NE(met.find(member), std::string::npos) << member;
    }
  }
  const std::string answer = peers.Ask("HSCAN h 0 COUNT 7\r\n");
  const size_t at = answer.find("\r\n", 4) + 2;
  const std::string cursor = answer.substr(at, answer.find("\r\n", at) - at);
  peers.Ask("DEL h\r\nHSET h other 1\r\n");
  const std::string empty = "*2\r\n$1\r\n0\r\n*0\r\n",
                    whole = "*2\r\n$1\r\n0\r\n*2\r\n$5\r\nother\r\n$1\r\n1\r\n",
                    goes_on = peers.Ask("HSCAN h " + cursor + "\r\n");
  EXPECT_TRUE(goes_on == empty || goes_on == whole) << goes_on;
  EXPECT_EQ(peers.Ask("HSCAN h 77\r\n"),
            "-ERR the cursor is unknown or has expired: it is kept for an hour\r\n");
}

}  // namespace
}  // namespace farleaf::test
