// A connection is served by one thread for life, whatever protocol it speaks and whatever keeps the trees: all steps of
// all its requests run there, and the threads have the same number of connections.
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <optional>
#include <thread>

#include "test/support/lsm_trees.h"
#include "test/support/native_under_test.h"
#include "test/support/pool_hosts.h"
#include "test/support/text_client.h"
#include "test/support/watched_host.h"

namespace farleaf::test {
namespace {

/// What has a connection, and asks for operations of all kinds on keys that begin with its name and an '@'.
class Asker {
 public:
  virtual ~Asker() = default;
  /// Returns when all is answered. False: something has failed.
  virtual bool Ask() = 0;
};

class NativeAsker final : public Asker {
 public:
  NativeAsker(std::unique_ptr<client::Session> session, const std::string& name)
      : session_(std::move(session)), tree_(*session_->OpenTree("t")), prefix_(name + "@") {}
  bool Ask() override {
    const auto failed = [this](bool ok) { failed_ |= !ok; };
    for (int i = 0; i < 20; ++i) {
      const std::string key = prefix_ + std::to_string(i);
      tree_.PutAsync(key, "x", [&failed](Result<bool> put) { failed(put.ok()); });
      tree_.GetAsync(key, [&failed](Result<client::Value> got) { failed(got.ok()); });
      tree_.AddAsync(prefix_ + "n", 1, 0, [&failed](Result<int64_t> sum) { failed(sum.ok()); });
    }
    while (session_->pending() > 0) session_->Poll(1'000);
    const std::vector<std::string> keys = {prefix_ + "1", prefix_ + "none"};
    failed(tree_.MultiGet(keys).ok());
    failed(tree_.Scan({.start = prefix_, .limit = 5}).ok());
    failed(tree_.Delete(prefix_ + "2").ok());
    return !failed_;
  }

 private:
  std::unique_ptr<client::Session> session_;
  client::SessionTree tree_;
  const std::string prefix_;
  bool failed_ = false;
};

/// memcached's and Redis' protocols: commands in which '?' stands for the name, sent all at once.
class TextAsker final : public Asker {
 public:
  TextAsker(const std::string& url, std::string_view commands, const std::string& name)
      : client_(url), redis_(url.starts_with("redis")) {
    for (const char c : commands) commands_ += c == '?' ? name : std::string(1, c);
  }
  bool Ask() override {
    const std::string answers = redis_ ? client_.AskRedis(commands_) : client_.Ask(commands_);
    return !answers.empty() && answers.find("ERR") == std::string::npos;
  }

 private:
  TextClient client_;
  const bool redis_;
  std::string commands_;
};

constexpr std::string_view kMemcachedCommands =
    "set ?@a 0 0 1\r\n1\r\nset ?@b 0 0 1\r\nx\r\nget ?@a\r\nget ?@b ?@a\r\ngets ?@none\r\n"
    "incr ?@a 1\r\nappend ?@b 0 0 1\r\ny\r\ngat 0 ?@a\r\nms ?@c 1\r\nz\r\nmg ?@c v\r\nget ?@c\r\n"
    "add ?@a 0 0 1\r\nx\r\ndelete ?@b\r\ntouch ?@a 100\r\n";
constexpr std::string_view kRedisCommands =
    "SET ?@a 1\r\nSET ?@b x\r\nGET ?@a\r\nGET ?@b\r\nMGET ?@a ?@b ?@none\r\nINCR ?@a\r\n"
    "MSET ?@c 1 ?@d 2\r\nDEL ?@c ?@d ?@none\r\nHSET ?@h f v g w\r\nHGETALL ?@h\r\nHLEN ?@h\r\n"
    "ZADD ?@z 1 m 2 n\r\nZRANGE ?@z 0 -1\r\nZREM ?@z m\r\nSET ?@e x EX 100\r\nGETDEL ?@b\r\n"
    "RANGE ?@ ?A LIMIT 3\r\n";

enum class WatchedEngine : uint8_t { kMap, kLsm, kPoolLate };

struct ConnectionThreadTest : NativeUnderTest, ::testing::WithParamInterface<WatchedEngine> {
  static constexpr size_t kThreads = 4, kProtocols = 5, kEach = 4;
  static constexpr int kRounds = 10;

  std::optional<MapTreeHost> maps;
  std::optional<LsmTrees> lsm;
  std::optional<PoolHosts> pool;
  std::optional<WatchedHost> watched;
  std::vector<std::unique_ptr<Asker>> askers;

  void SetUp() override {
    NativeUnderTest::SetUp();
    farleaf::server::TreeHost* behind = nullptr;
    if (GetParam() == WatchedEngine::kMap) behind = &maps.emplace(&clock);
    if (GetParam() == WatchedEngine::kLsm) behind = &lsm.emplace().host();
    if (GetParam() == WatchedEngine::kPoolLate) behind = &pool.emplace(1, 7).host(0);
    watched.emplace(behind);
  }
  size_t servers() const override { return 1; }
  farleaf::server::TreeHost& served(size_t) override { return *watched; }
  void TearDown() override {
    askers.clear();
    NativeUnderTest::TearDown();
  }
  /// With one connection more, of the protocol of this number.
  void AddAsker(size_t protocol) {
    const std::string name = std::to_string(10 + askers.size());
    if (protocol < 3) {
      askers.push_back(std::make_unique<NativeAsker>(ConnectSession(all_urls()[protocol]), name));
    } else if (protocol == 3) {
      askers.push_back(std::make_unique<TextAsker>(memcached_url(), kMemcachedCommands, name));
    } else {
      askers.push_back(std::make_unique<TextAsker>(redis_url(), kRedisCommands, name));
    }
    EXPECT_TRUE(askers.back()->Ask()) << "protocol " << protocol;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, ConnectionThreadTest,
                         ::testing::Values(WatchedEngine::kMap, WatchedEngine::kLsm,
                                           WatchedEngine::kPoolLate),
                         [](const auto& engine) {
                           return engine.param == WatchedEngine::kMap   ? "Map"
                                  : engine.param == WatchedEngine::kLsm ? "Lsm"
                                                                        : "PoolLateVerbs";
                         });

TEST_P(ConnectionThreadTest, EachConnectionIsServedByOneThreadAndEachThreadHasItsShare) {
  options.threads = kThreads;
  options.expiry_sweep_s = 0;  // which is nobody's request
  ListenForRecords();
  StartServer();
  {
    auto session = ConnectSession(unix_url());
    ASSERT_TRUE(session->CreateTree({.name = "t"}).ok());
  }
  ASSERT_TRUE(AwaitOpen(0));
  for (size_t i = 0; i < kProtocols * kEach; ++i) AddAsker(i % kProtocols);
  // All at a time.
  std::vector<std::future<bool>> asked;
  for (const auto& asker : askers) {
    asked.push_back(std::async(std::launch::async, [&asker] {
      bool all = true;
      for (int round = 0; round < kRounds; ++round) all &= asker->Ask();
      return all;
    }));
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_TRUE(asked[i].get()) << "protocol " << i % kProtocols;
  }
  const auto seen = watched->ThreadsSeen();
  EXPECT_EQ(seen.size(), askers.size());
  std::map<std::thread::id, size_t> connections;
  for (const auto& [name, threads] : seen) {
    EXPECT_EQ(threads.size(), 1u) << "connection " << name;
    for (const std::thread::id& thread : threads) ++connections[thread];
  }
  EXPECT_EQ(connections.size(), kThreads);
  for (const auto& [thread, count] : connections) {
    EXPECT_EQ(count, askers.size() / kThreads) << thread;
  }
}

// What the test above would see otherwise.
TEST(WatchedHostTest, AnOperationThatGoesOnOnAnotherThreadIsSeen) {
  MonotonicClock clock;
  MapTreeHost host(&clock);
  ThreadsByName threads;
  WatchedIndex watched(&host.Add("t"), &threads);
  const auto put = [&](std::string_view key) {
    const auto worker = std::move(*host.OpenWorker());
    dsm::FabricCounts counts;
    dsm::OpContext op{*worker, counts};
    EXPECT_TRUE(worker->Run(watched.Put(op, key, "x")).ok());
  };
  put("10@a");
  put("11@a");
  std::thread(put, "10@b").join();
  EXPECT_EQ(threads.Seen().at("10").size(), 2u);
  EXPECT_EQ(threads.Seen().at("11").size(), 1u);
}

}  // namespace
}  // namespace farleaf::test
