// 2,000 connections at two compute servers of one pool, as processes: clients of all protocols with keys of their own,
// of whom some are killed at random with requests in flight, beside slow readers, garbage, requests that are too large
// or cut short. All others get right answers, what the servers take of memory stays as it was, and the pool is whole.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "test/support/load_round.h"
#include "test/support/metrics_page.h"
#include "test/support/open_files.h"
#include "test/support/process.h"
#include "test/support/process_client.h"

namespace farleaf {
namespace {

constexpr uint64_t kConnections = 2'000;
constexpr size_t kServers = 2;

/// Of one process, without what it shares with others: the pool's memory is mapped.
uint64_t ResidentBytes(const ChildProcess& process) {
  std::ifstream file("/proc/" + std::to_string(process.pid()) + "/status");
  for (std::string name; file >> name;) {
    uint64_t kib = 0;
    if (name == "RssAnon:" && file >> kib) return kib << 10;
  }
  ADD_FAILURE() << "no RssAnon";
  return 0;
}

struct ServerUnderLoad {
  ComputeServerProcess process;
  test::FrontEndUrls urls;
  std::string metrics;

  double Metric(const std::string& name) const {
    return test::Sample(test::HttpGet(metrics, "/metrics").body, name);
  }
};

struct ProcessLoadTest : ::testing::Test {
  ProcessCluster cluster{{.region = "128MiB"}};
  std::vector<ServerUnderLoad> servers;

  void SetUp() override {
    if (!test::MayOpenFiles(kConnections + 1'000)) GTEST_SKIP() << "needs 3,000 open files";
    cluster.StartMemoryServers();
    for (size_t i = 0; i < kServers; ++i) StartServer(i);
    const test::RecordDialect redis{test::RecordDialect::Protocol::kRedis};
    test::TextClient writer(servers[0].urls.redis);
    ASSERT_EQ(redis.Ask(writer, redis.Set("large", test::kLargeValue)), redis.stored());
    const auto connected = ConnectTo(servers[1].process, kPatienceMs);
    auto tree = connected->OpenTree("t");
    ASSERT_TRUE(tree.ok()) << tree.status();
    ASSERT_TRUE(tree->Put("large", test::kLargeValue).ok());
  }
  void StartServer(size_t i) {
    const std::string memcached = FreeAddress(), redis = FreeAddress(),
                      socket = cluster.File("native" + std::to_string(i) + ".sock"),
                      value_max = std::to_string(test::kFaultyValueMax);
    auto process = cluster.StartComputeServer({"--trees",
                                               "t:bytes",
                                               "--memcached-listen",
                                               memcached,
                                               "--redis-listen",
                                               redis,
                                               "--unix-socket",
                                               socket,
                                               "--metrics-listen",
                                               "127.0.0.1:0",
                                               "--deadline-ms",
                                               "60000",
                                               "--value-bytes-max",
                                               value_max,
                                               "--memcached-value-bytes-max",
                                               value_max,
                                               "--redis-value-bytes-max",
                                               value_max,
                                               "--connection-bytes-max",
                                               "64KiB",
                                               "--memcached-out-bytes-max",
                                               "64KiB",
                                               "--redis-out-bytes-max",
                                               "64KiB"});
    const std::string native = process.url(), metrics = test::MetricsUrl(*process.process);
    servers.push_back(
        {std::move(process),
         {native, "farleaf+unix:" + socket, "memcached://" + memcached, "redis://" + redis},
         metrics});
  }
  /// Those of each six that follow one another, which are of all protocols, are of one server.
  const test::FrontEndUrls& UrlsOf(uint64_t i) const { return servers[i / 6 % kServers].urls; }
  double Sum(const std::string& name) const {
    double sum = 0;
    for (const ServerUnderLoad& server : servers) sum += server.Metric(name);
    return sum;
  }
  bool AwaitOpen(double connections) const {
    const MonotonicClock clock;
    const uint64_t end_ns = clock.NowNs() + kPatienceMs * kNsPerMs;
    while (Sum("farleaf_connections") != connections && clock.NowNs() < end_ns) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return Sum("farleaf_connections") == connections;
  }

  void RunRound(uint64_t round, Random& random) {
    const double refused = Sum("farleaf_connections_refused_total"),
                 truncated = Sum("farleaf_connections_truncated_total");
    test::LoadRound load({.connections = kConnections,
                          .round = round,
                          .half_closing_every = 7,
                          .killed_one_in = 7,
                          .urls_of = [this](uint64_t i) { return UrlsOf(i); }});
    ASSERT_TRUE(AwaitOpen(kConnections)) << Sum("farleaf_connections");
    load.Begin(random);
    EXPECT_GE(load.killed(), kConnections / 10);
    load.End();
    ASSERT_TRUE(AwaitOpen(0)) << Sum("farleaf_connections");
    EXPECT_EQ(Sum("farleaf_connections_refused_total") - refused, load.garbage());
    // And those that were killed in the middle of one.
    EXPECT_GE(Sum("farleaf_connections_truncated_total") - truncated, load.truncated());
  }
  void ExpectPoolWholeWithoutServers() {
    for (ServerUnderLoad& server : servers) {
      server.process.process->Signal(SIGTERM);
      const Ended ended = cluster.WaitFor(*server.process.process);
      EXPECT_EQ(ended.code, 0) << ended.output;
    }
    const Ended check = cluster.Control({"check"});
    EXPECT_EQ(check.code, 0) << check.output;
  }
};

TEST_F(ProcessLoadTest, ServersTakeNoMoreMemoryHoweverManyConnectionsAreKilled) {
  constexpr uint64_t kSeed = 47, kRounds = 5, kWarmRounds = 2;
  // What an allocator keeps for later differs by some MiB; a leak of 4 KiB a connection would be 12 MiB a server.
  constexpr uint64_t kGrowthMax = 8 << 20;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  std::vector<uint64_t> warm(kServers);
  for (uint64_t round = 0; round < kRounds; ++round) {
    RunRound(round, random);
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < kServers; ++i) {
      const uint64_t resident = ResidentBytes(*servers[i].process.process);
      RecordProperty("server " + std::to_string(i) + " KiB behind round " + std::to_string(round),
                     std::to_string(resident >> 10));
      if (round < kWarmRounds) warm[i] = std::max(warm[i], resident);
      if (round + 1 == kRounds) {
        EXPECT_LT(resident, warm[i] + kGrowthMax) << "server " << i;
      }
    }
  }
  ExpectPoolWholeWithoutServers();
}

}  // namespace
}  // namespace farleaf
