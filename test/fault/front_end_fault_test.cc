// Clients of all protocols of one server that die, stall, lie and flood, beside others that do not: those get right
// answers, the others are told what is wrong, and the server's memory stays as it was.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <functional>
#include <thread>

#include "client/session.h"
#include "dsm/base/random.h"
#include "test/support/allocated_bytes.h"
#include "test/support/native_under_test.h"
#include "test/support/record_dialect.h"
#include "test/support/text_client.h"

namespace farleaf::test {
namespace {

using client::Session;
using client::Value;

/// A client of one protocol with keys of its own. The n-th has the same keys and sizes in each round.
class LoadClient {
 public:
  virtual ~LoadClient() = default;
  /// Sends all requests; the answers wait.
  virtual void Begin() = 0;
  /// Whether all answers came, and were right.
  virtual bool EndsRight() = 0;
};

constexpr uint64_t kRequests = 40;

std::string KeyOfClient(uint64_t client, uint64_t i) {
  return "client" + std::to_string(client) + "." + std::to_string(i);
}
std::string ValueOfClient(uint64_t client, uint64_t i, uint64_t round) {
  const uint64_t bytes = 10 + Mix64(client * 1000 + i) % (i % 8 == 0 ? 20'000 : 200);
  return std::string(bytes, static_cast<char>('a' + (client + i + round) % 26));
}

class NativeLoad final : public LoadClient {
 public:
  NativeLoad(const std::string& url, uint64_t client, uint64_t round)
      : client_(client), round_(round), session_(NativeUnderTest::ConnectSession(url)) {
    auto tree = session_->OpenTree("t");
    FARLEAF_CHECK(tree.ok(), tree.status());
    tree_.emplace(std::move(*tree));
  }
  void Begin() override {
    for (uint64_t i = 0; i < kRequests; ++i) {
      tree_->PutAsync(KeyOfClient(client_, i), ValueOfClient(client_, i, round_),
                      [this](Result<bool> put) { right_ += put.ok(); });
    }
    session_->Flush();
  }
  bool EndsRight() override {
    while (session_->pending() > 0) session_->Poll(1'000);
    for (uint64_t i = 0; i < kRequests; ++i) {
      tree_->GetAsync(KeyOfClient(client_, i), [this, i](Result<Value> value) {
        right_ += value.ok() && *value == ValueOfClient(client_, i, round_);
      });
    }
    while (session_->pending() > 0) session_->Poll(1'000);
    return right_ == 2 * kRequests;
  }

 private:
  const uint64_t client_, round_;
  uint64_t right_ = 0;
  std::unique_ptr<Session> session_;
  std::optional<client::SessionTree> tree_;  // destroyed first
};

class TextLoad final : public LoadClient {
 public:
  TextLoad(const std::string& url, RecordDialect dialect, uint64_t client, uint64_t round)
      : connection_(url) {
    for (uint64_t i = 0; i < kRequests; ++i) {
      const std::string key = KeyOfClient(client, i), value = ValueOfClient(client, i, round);
      requests_ += dialect.Set(key, value) + dialect.Get(key);
      answers_ += dialect.stored() + dialect.Found(key, value);
    }
  }
  void Begin() override { connection_.Send(requests_); }
  bool EndsRight() override {
    connection_.HalfClose();
    return connection_.ReceiveAll() == answers_;
  }

 private:
  TextClient connection_;
  std::string requests_, answers_;
};

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
      {"a value of another size", "set k 0 0 3\r\nvalue", "CLIENT_ERROR bad data chunk\r\n"},
      {"half a value", "set k 0 0 300\r\nnot all of it", ""},
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
      {"half a request", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$300\r\nnot all of it", ""},
  };
}

struct FrontEndFaultTest : NativeUnderTest {
  void SetUp() override {
    NativeUnderTest::SetUp();
    rlimit files{};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    host.Add("t");
    options.memcached.listen = {"127.0.0.1:0"};
    options.redis.listen = {"127.0.0.1:0"};
  }
  const std::string& memcached_url() const { return server->memcached_urls()[0]; }
  const std::string& redis_url() const { return server->redis_urls()[0]; }
  std::unique_ptr<LoadClient> Connect(uint64_t client, uint64_t round) {
    switch (client % 3) {
      case 0:
        return std::make_unique<NativeLoad>(client % 2 == 0 ? tcp_url() : unix_url(), client,
                                            round);
      case 1:
        return std::make_unique<TextLoad>(
            memcached_url(), RecordDialect{RecordDialect::Protocol::kMemcached}, client, round);
      default:
        return std::make_unique<TextLoad>(
            redis_url(), RecordDialect{RecordDialect::Protocol::kRedis}, client, round);
    }
  }
  bool Await(const std::function<bool()>& condition) {
    const uint64_t end_ns = clock.NowNs() + kPatienceMs * kNsPerMs;
    while (!condition() && clock.NowNs() < end_ns) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return condition();
  }
  bool AllClosed() {
    return Await([this] { return server->Connections().open == 0; });
  }
  /// Peers that ask for 4 MB of answers and do not read them, and such as send nonsense or the half of a request.
  void Misbehave(Random& random, std::vector<std::unique_ptr<TextClient>>* peers) {
    std::string gets;
    for (int i = 0; i < 400; ++i) gets += "get large\r\n";
    for (const std::string* url : {&memcached_url(), &redis_url()}) {
      peers->push_back(std::make_unique<TextClient>(*url));
      peers->back()->Send(gets);
    }
    for (const auto& [what, bytes, told] : MemcachedNonsense()) {
      peers->push_back(std::make_unique<TextClient>(memcached_url()));
      peers->back()->Send(bytes);
    }
    for (const auto& [what, bytes, told] : RedisNonsense()) {
      peers->push_back(std::make_unique<TextClient>(redis_url()));
      peers->back()->Send(bytes);
    }
    std::string any(200, '\0');
    for (char& byte : any) byte = static_cast<char>(random.Next());
    peers->push_back(std::make_unique<TextClient>(tcp_url()));
    peers->back()->Send(any);
  }
};

TEST_F(FrontEndFaultTest, NonsenseIsAnsweredWithWhatIsWrong) {
  options.memcached.limits.line_bytes_max = options.memcached.limits.value_bytes_max = kLimit;
  options.redis.limits.value_bytes_max = options.redis.limits.request_bytes_max = kLimit;
  StartServer();
  for (const auto& [url, table] :
       {std::pair(memcached_url(), MemcachedNonsense()), std::pair(redis_url(), RedisNonsense())}) {
    for (const auto& [what, bytes, told] : table) {
      TextClient peer(url);
      peer.Send(bytes);
      peer.HalfClose();
      const std::string answer = peer.ReceiveAll();
      EXPECT_TRUE(answer.starts_with(told) && (answer == told || !told.ends_with("\r\n")))
          << what << ": " << answer;
    }
  }
  EXPECT_EQ(TextClient(redis_url()).AskRedis("EXISTS k\r\n"), ":0\r\n") << "nothing was half done";
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
  TextClient stalled(memcached_url());
  std::string gets;
  for (int i = 0; i < 32; ++i) gets += "get large\r\n";
  stalled.Send(gets + std::string(2 * options.memcached.limits.line_bytes_max, 'x'));
  EXPECT_TRUE(AllClosed());
}

// A tenth of the clients dies at random in the midst of its requests, others do not read, or send nonsense.
TEST_F(FrontEndFaultTest, OthersAreServedRightAndMemoryIsFlatWhileClientsDieStallAndLie) {
  constexpr uint64_t kSeed = 41, kClients = 60, kRounds = 8, kWarmRounds = 3;
  constexpr size_t kGrowthMax =
      1 << 20;  // of some hundred connections that kept a block: 64 KiB each
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
      for (uint64_t i = 0; i < kClients; ++i) clients.push_back(Connect(i, round));
      for (auto& client : clients) {
        client->Begin();
        if (random.OneIn(10)) client.reset();
      }
      for (uint64_t i = 0; i < kClients; ++i) {
        EXPECT_TRUE(!clients[i] || clients[i]->EndsRight()) << "client " << i << " of " << round;
      }
    }
    ASSERT_TRUE(AllClosed()) << server->Connections().open;
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
  constexpr uint64_t kConnections = 2'000, kBytesEach = 4'096;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < 5'000) GTEST_SKIP() << "needs 5,000 open files";
  StartServer();
  const auto before = AllocatedBytes();
  if (!before) GTEST_SKIP() << "a sanitizer's allocator";
  std::string hello;
  client::protocol::AppendClientHello({}, &hello);
  std::vector<std::unique_ptr<TextClient>> clients;
  for (uint64_t i = 0; i < kConnections; ++i) {
    clients.push_back(std::make_unique<TextClient>(i % 3 == 0   ? tcp_url()
                                                   : i % 3 == 1 ? memcached_url()
                                                                : redis_url()));
    clients.back()->Send(i % 3 == 0 ? hello : i % 3 == 1 ? "get none\r\n" : "GET none\r\n");
  }
  for (uint64_t i = 0; i < kConnections; ++i) {
    if (i % 3 != 0) clients[i]->ReceiveUntil(i % 3 == 1 ? "END\r\n" : "$-1\r\n");
  }
  EXPECT_TRUE(Await([this] { return server->Connections().open == kConnections; }));
  EXPECT_TRUE(Await([&] { return *AllocatedBytes() < *before + kConnections * kBytesEach; }))
      << (*AllocatedBytes() - *before) / kConnections << " bytes each";
  // And they are still of use.
  for (uint64_t i = 2; i < kConnections; i += 333 * 3) {
    EXPECT_EQ(clients[i]->AskRedis("PING\r\n"), "+PONG\r\n");
  }
}

}  // namespace
}  // namespace farleaf::test
