// Clients of all protocols of two compute servers on one pool that die, stall, lie and flood, beside others that do not: those get right
// answers, the others are told what is wrong, and the servers' memory stays as it was.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "dsm/base/random.h"
#include "test/support/allocated_bytes.h"
#include "test/support/await.h"
#include "test/support/load_client.h"
#include "test/support/native_under_test.h"
#include "test/support/open_files.h"
#include "test/support/test_scale.h"
#include "test/support/text_client.h"

namespace farleaf::test {
namespace {

/// What a peer says that the protocol does not allow, and what it is told.
struct Nonsense {
  const char* what;
  std::string bytes, told;
};

const size_t kLimit = 4'096;

std::vector<Nonsense> MemcachedNonsense() {
  const std::string large(2 * kLimit, 'x'), size = std::to_string(large.size());
  return {
      {"garbage", "\x01\x02 garbage\r\n", "ERROR\r\n"},
      {"the binary protocol", "\x80\x01 and so on",
       "CLIENT_ERROR the binary protocol is not spoken here; use the text or meta protocol\r\n"},
      {"a line without an end", large, "CLIENT_ERROR line too long\r\n"},
      {"a value that is too large", "set k 0 0 " + size + "\r\n" + large + "\r\nget k\r\n",
       "SERVER_ERROR object too large for cache\r\nEND\r\n"},
      {"a value of another size", "set k 0 0 3\r\nvalue\r\n",
       "CLIENT_ERROR bad data chunk\r\nERROR\r\n"},
      {"half a value", "set k 0 0 300\r\nnot all of it",
       "CLIENT_ERROR the stream ended in the middle of a request\r\n"},
  };
}

std::vector<Nonsense> RedisNonsense() {
  const std::string large(2 * kLimit, 'x'), size = std::to_string(large.size());
  return {
      {"garbage", "\x01\x02 garbage\r\n", "-ERR unknown command"},
      {"a count that is no number", "*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
      {"no string's head", "*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"},
      {"an argument that is too large",
       "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$" + size + "\r\n" + large + "\r\nEXISTS k\r\n", "-ERR "},
      {"half a request", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$300\r\nnot all of it",
       "-ERR Protocol error: the stream ended in the middle of a request\r\n"},
  };
}

struct FrontEndFaultTest : TwoOnOnePool {
  void SetUp() override {
    TwoOnOnePool::SetUp();
    Add("t");
    ListenForRecords();
  }
  bool Await(const std::function<bool()>& condition) { return test::Await(condition, kPatienceMs); }
  /// Peers that ask for 4 MB of answers and do not read them, and such as send nonsense or the half of a request.
  void Misbehave(Random& random, std::vector<std::unique_ptr<TextClient>>* peers) {
    std::string gets;
    for (int i = 0; i < 400; ++i) gets += "get large\r\n";
    // Each at the other server than the one before.
    const auto send = [&](const std::string& url, const std::string& bytes) {
      peers->push_back(std::make_unique<TextClient>(url));
      peers->back()->Send(bytes);
    };
    send(memcached_url(peers->size()), gets);
    send(redis_url(peers->size()), gets);
    for (const auto& [what, bytes, told] : MemcachedNonsense()) {
      send(memcached_url(peers->size()), bytes);
    }
    for (const auto& [what, bytes, told] : RedisNonsense()) send(redis_url(peers->size()), bytes);
    std::string any(200, '\0');
    for (char& byte : any) byte = static_cast<char>(random.Next());
    send(tcp_url(peers->size()), any);
  }
};

TEST_F(FrontEndFaultTest, NonsenseIsAnsweredWithWhatIsWrong) {
  options.memcached.limits.line_bytes_max = options.memcached.limits.value_bytes_max = kLimit;
  options.redis.limits.value_bytes_max = options.redis.limits.request_bytes_max = kLimit;
  StartServer();
  for (size_t i = 0; i < servers(); ++i) {
    for (const auto& [url, table] : {std::pair(memcached_url(i), MemcachedNonsense()),
                                     std::pair(redis_url(i), RedisNonsense())}) {
      for (const auto& [what, bytes, told] : table) {
        TextClient peer(url);
        peer.Send(bytes);
        peer.HalfClose();
        const std::string answer = peer.ReceiveAll();
        EXPECT_TRUE(answer.starts_with(told) && (answer == told || !told.ends_with("\r\n")))
            << what << ": " << answer;
      }
    }
    EXPECT_EQ(TextClient(redis_url(i + 1)).AskRedis("EXISTS k\r\n"), ":0\r\n")
        << "nothing was half done";
  }
  ExpectServing();
}

TEST_F(FrontEndFaultTest, ARefusedPeerThatDoesNotReadIsNotWaitedFor) {
  options.hello_timeout_ms = 100;
  options.memcached.limits.out_bytes_max = 64 << 20;  // so that the nonsense is met
  StartServer();
  const std::string large(1 << 20, 'x');
  TextClient writer(memcached_url());
  writer.Send("set large 0 0 " + std::to_string(large.size()) + "\r\n" + large + "\r\nquit\r\n");
  EXPECT_EQ(writer.ReceiveAll(), "STORED\r\n");
  TextClient stalled(memcached_url(1));
  std::string gets;
  for (int i = 0; i < 32; ++i) gets += "get large\r\n";
  stalled.Send(gets + std::string(2 * options.memcached.limits.line_bytes_max, 'x'));
  EXPECT_TRUE(AwaitOpen(0));
}

TEST_F(FrontEndFaultTest, WhoAsksForNothingIsLetGoAndWhoAsksIsNot) {
  options.idle_timeout_ms = 4'000;
  StartServer();
  TextClient asking(memcached_url()), memcached(memcached_url()), redis(redis_url(1));
  memcached.Send("version\r\n");
  EXPECT_EQ(redis.AskRedis("PING\r\n"), "+PONG\r\n");
  std::atomic<bool> idle_are_gone{false};
  std::jthread others([&] {
    while (!idle_are_gone) {
      EXPECT_EQ(asking.Ask("get k\r\n"), "END\r\n");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  EXPECT_TRUE(AwaitOpen(1));
  // What they did not ask for they are not told: it would be taken for the answer to their next request.
  EXPECT_TRUE(memcached.ReceiveAll().starts_with("VERSION "));
  EXPECT_EQ(redis.ReceiveAll(), "");
  idle_are_gone = true;
  others.join();
  EXPECT_EQ(asking.Ask("get k\r\n"), "END\r\n");
}

// A tenth of the clients dies at random in the midst of its requests, others do not read, or send nonsense.
TEST_F(FrontEndFaultTest, OthersAreServedRightAndMemoryIsFlatWhileClientsDieStallAndLie) {
  constexpr uint64_t kSeed = 41, kClients = 60, kWarmRounds = 3;
  const uint64_t kRounds = Amount{4, 8};
  // Some hundred connections that kept a block, 64 KiB each, would be far more. Workers keep the frames of the coroutines
  // of their busiest moment (dsm/frame_pool.h), whenever that is.
  constexpr size_t kGrowthMax = 4 << 20;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  options.memcached.limits.line_bytes_max = kLimit;
  StartServer();
  ASSERT_EQ(TextClient(redis_url()).AskRedis("SET large " + std::string(10'000, 'L') + "\r\n"),
            "+OK\r\n");
  std::optional<size_t> before;
  for (uint64_t round = 0; round < kRounds; ++round) {
    {
      std::vector<std::unique_ptr<TextClient>> misbehaving;
      Misbehave(random, &misbehaving);
      std::vector<std::unique_ptr<LoadClient>> clients;
      for (uint64_t i = 0; i < kClients; ++i) {
        clients.push_back(ConnectLoad(front_ends(i / 6), {.client = i, .round = round}));
      }
      for (auto& client : clients) {
        client->Begin();
        if (random.OneIn(10)) client.reset();
      }
      for (uint64_t i = 0; i < kClients; ++i) {
        if (clients[i]) {
          EXPECT_EQ(clients[i]->WhatIsWrong(), "") << "client " << i << " of " << round;
        }
      }
    }
    ASSERT_TRUE(AwaitOpen(0)) << Connections().open;
    if (round + 1 == kWarmRounds) before = AllocatedBytes();
  }
  const auto after = AllocatedBytes();
  if (before) {
    EXPECT_LT(*after, *before + kGrowthMax);
  }
  ExpectServing();
}

// Each has been used, and has taken a block for what it sent.
TEST_F(FrontEndFaultTest, TwoThousandIdleConnectionsKeepLessThanFourKilobytesEach) {
  constexpr uint64_t kIdle = 2'000, kBytesEach = 4'096;
  if (!MayOpenFiles(5'000)) GTEST_SKIP() << "needs 5,000 open files";
  StartServer();
  const auto before = AllocatedBytes();
  if (!before) GTEST_SKIP() << "a sanitizer's allocator";
  std::string hello;
  client::protocol::AppendClientHello({}, &hello);
  std::vector<std::unique_ptr<TextClient>> clients;
  for (uint64_t i = 0; i < kIdle; ++i) {
    clients.push_back(std::make_unique<TextClient>(i % 3 == 0   ? tcp_url(i)
                                                   : i % 3 == 1 ? memcached_url(i)
                                                                : redis_url(i)));
    clients.back()->Send(i % 3 == 0 ? hello : i % 3 == 1 ? "get none\r\n" : "GET none\r\n");
  }
  for (uint64_t i = 0; i < kIdle; ++i) {
    if (i % 3 != 0) clients[i]->ReceiveUntil(i % 3 == 1 ? "END\r\n" : "$-1\r\n");
  }
  EXPECT_TRUE(AwaitOpen(kIdle));
  EXPECT_TRUE(Await([&] { return *AllocatedBytes() < *before + kIdle * kBytesEach; }))
      << (*AllocatedBytes() - *before) / kIdle << " bytes each";
  // And they are still of use.
  for (uint64_t i = 2; i < kIdle; i += 333 * 3) {
    EXPECT_EQ(clients[i]->AskRedis("PING\r\n"), "+PONG\r\n");
  }
}

}  // namespace
}  // namespace farleaf::test
