// What servers tell those who watch them: metrics as Prometheus's own parser reads them, and health.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "test/support/metrics_page.h"
#include "test/support/process.h"
#include "test/support/process_client.h"
#include "test/support/prometheus_check.h"

namespace farleaf {
namespace {

using test::ExpectWellFormed;
using test::HttpAnswer;
using test::HttpGet;
using test::MetricsUrl;
using test::Sample;

struct MetricsProcessTest : ::testing::Test {
  static HttpAnswer HealthOf(const std::string& url) { return HttpGet(url, "/health"); }
  /// Until it is the status that is wanted, and the text begins with `what`, or patience ends.
  static HttpAnswer WaitForHealth(const std::string& url, int status, std::string_view what = "") {
    const MonotonicClock clock;
    const uint64_t end_ns = clock.NowNs() + kPatienceMs * kNsPerMs;
    HttpAnswer answer = HealthOf(url);
    const auto wanted = [&] { return answer.status == status && answer.body.starts_with(what); };
    while (!wanted() && clock.NowNs() < end_ns) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      answer = HealthOf(url);
    }
    return answer;
  }
};

/// A sample of an operation of Redis' protocol; `by`: a label more.
double RedisSample(const std::string& page, const std::string& family, const std::string& operation,
                   const std::string& by = "") {
  return Sample(page, family + "{protocol=\"redis\",operation=\"" + operation + "\"" + by + "}");
}

/// SET of a new key, and of an old one; GET of one that is there, and of one that is not; an HSET of a string.
void ExpectRedisCounted(const std::string& page) {
  const std::string operations = "farleaf_operations_total", ok = ",outcome=\"ok\"",
                    round_trips = "farleaf_round_trips_total", bytes = "farleaf_fabric_bytes_total",
                    read = ",direction=\"read\"", written = ",direction=\"written\"";
  EXPECT_EQ(RedisSample(page, operations, "set", ok), 2);
  EXPECT_EQ(RedisSample(page, operations, "get", ok), 2);
  EXPECT_EQ(RedisSample(page, operations, "hset", ok), 1);
  EXPECT_EQ(RedisSample(page, operations, "set", ",outcome=\"failed\""), 0);
  EXPECT_EQ(RedisSample(page, operations, "zadd", ok), 0);
  EXPECT_EQ(RedisSample(page, "farleaf_operation_duration_seconds_count", "set"), 2);
  EXPECT_GE(RedisSample(page, round_trips, "set"), 4) << "the lock, and the write-back";
  EXPECT_GE(RedisSample(page, round_trips, "get"), 2);
  // A key's record has a header of its own; a get writes nothing.
  EXPECT_GT(RedisSample(page, bytes, "set", read), 0);
  EXPECT_GT(RedisSample(page, bytes, "set", written), 0);
  EXPECT_GT(RedisSample(page, bytes, "get", read), 0);
  EXPECT_EQ(RedisSample(page, bytes, "get", written), 0);
  EXPECT_EQ(Sample(page, "farleaf_redis_lookups_total{outcome=\"hit\"}"), 1);
  EXPECT_EQ(Sample(page, "farleaf_redis_lookups_total{outcome=\"miss\"}"), 1);
}

// What one has not heard of that the other has split costs it another look, which is counted by its cause.
TEST_F(MetricsProcessTest, RetriesBytesAndChunksAreCountedByWhatTheyAreFor) {
  ProcessCluster cluster({.memory_server_flags = {"--metrics-listen", "127.0.0.1:0"}});
  cluster.StartMemoryServers();
  const auto one = cluster.StartComputeServer({"--metrics-listen", "127.0.0.1:0"}),
             other = cluster.StartComputeServer();
  const auto client = ConnectTo(one, kPatienceMs), others_client = ConnectTo(other, kPatienceMs);
  auto tree = CreateTree(*client);
  ASSERT_TRUE(tree.Put("0", "value").ok());
  auto others = others_client->OpenTree("tested");
  ASSERT_TRUE(others.ok()) << others.status();
  constexpr int kKeys = 2'000;
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(others->Put(std::to_string(i), "value").ok());
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(tree.Get(std::to_string(i)).ok());
  const std::string page = HttpGet(MetricsUrl(*one.process), "/metrics").body;
  double retries = 0;
  for (const std::string cause :
       {"torn_read", "torn_value", "lock_conflict", "hop", "restart", "stale_lock", "stale_part"}) {
    const double of_one =
        Sample(page, "farleaf_tree_retries_total{tree=\"tested\",cause=\"" + cause + "\"}");
    EXPECT_GE(of_one, 0) << cause;
    retries += of_one;
  }
  EXPECT_GT(retries, 0);
  const std::string gets =
      "farleaf_fabric_bytes_total{protocol=\"native\",operation=\"get\",direction=";
  EXPECT_GE(Sample(page, gets + "\"read\"}"), kKeys * 8);
  double filled = 0;
  for (const std::string cause : {"miss", "path_refresh", "hop_refresh", "cache_refresh"}) {
    const double of_one = Sample(
        page, "farleaf_tree_cache_fill_bytes_total{tree=\"tested\",cause=\"" + cause + "\"}");
    EXPECT_GE(of_one, 0) << cause;
    filled += of_one;
  }
  EXPECT_GT(filled, 0);
  // Each get has searched once at least; what the other has split costs a READ and no hit more.
  const std::string of_tree = "{tree=\"tested\"}";
  const double hits = Sample(page, "farleaf_tree_cache_hits_total" + of_tree);
  EXPECT_GE(hits, kKeys);
  for (int i = 0; i < kKeys; ++i) ASSERT_TRUE(tree.Get(std::to_string(i)).ok());
  const std::string later = HttpGet(MetricsUrl(*one.process), "/metrics").body;
  EXPECT_GE(Sample(later, "farleaf_tree_cache_hits_total" + of_tree), hits + kKeys);
  EXPECT_EQ(Sample(later, "farleaf_tree_cache_misses_total" + of_tree),
            Sample(page, "farleaf_tree_cache_misses_total" + of_tree));
  for (int id : {0, 1}) {
    const std::string memory_page = HttpGet(MetricsUrl(cluster.memory_server(id)), "/metrics").body;
    const std::string chunks =
        "farleaf_memory_server_chunks{memory_server=\"" + std::to_string(id) + "\",kind=\"";
    double all = 0;
    size_t at = 0;
    while ((at = memory_page.find("\n" + chunks, at)) != std::string::npos) {
      const size_t value = memory_page.find(' ', at);
      all += std::stod(memory_page.substr(value));
      at = value;
    }
    EXPECT_EQ(all, 63) << "of 64 MiB, less what stands before the first";
    EXPECT_GT(Sample(memory_page, chunks + "leaf\"}"), 0);
    EXPECT_LT(Sample(memory_page, chunks + "unused\"}"), 63);
  }
}

TEST_F(MetricsProcessTest, ServersCountWhatTheirClientsDo) {
  ProcessCluster cluster({.memory_server_flags = {"--metrics-listen", "127.0.0.1:0"}});
  cluster.StartMemoryServers();
  const std::string memcached = FreeAddress(), redis = FreeAddress();
  const auto server =
      cluster.StartComputeServer({"--metrics-listen", "127.0.0.1:0", "--memcached-listen",
                                  memcached, "--redis-listen", redis});
  const std::string url = MetricsUrl(*server.process);
  const auto client = ConnectTo(server, kPatienceMs);
  auto tree = CreateTree(*client);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(tree.Put(std::to_string(i), "value").ok());
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(tree.Get(std::to_string(i)).ok());
  test::TextClient text("memcached://" + memcached);
  EXPECT_EQ(text.Ask("set a 0 0 1\r\nx\r\n"), "STORED\r\n");
  text.Send("get a\r\nget b\r\nget a b\r\nversion\r\n");
  EXPECT_NE(text.ReceiveUntil("\r\n"), "");
  test::TextClient resp("redis://" + redis);
  EXPECT_EQ(resp.AskRedis("SET r x\r\nSET r y\r\nGET r\r\nHSET r f 1\r\nGET none\r\n"),
            "+OK\r\n+OK\r\n$1\r\ny\r\n-WRONGTYPE Operation against a key holding the wrong kind of "
            "value\r\n$-1\r\n");
  EXPECT_EQ(HealthOf(url).status, 200);
  EXPECT_EQ(HealthOf(url).body, "ok\n");

  const std::string page = HttpGet(url, "/metrics").body;
  const auto native = [](const std::string& operation) {
    return "{protocol=\"native\",operation=\"" + operation + "\"";
  };
  EXPECT_EQ(Sample(page, "farleaf_operations_total" + native("put") + ",outcome=\"ok\"}"), 200);
  EXPECT_EQ(Sample(page, "farleaf_operations_total" + native("put") + ",outcome=\"failed\"}"), 0);
  EXPECT_EQ(Sample(page, "farleaf_operation_duration_seconds_count" + native("get") + "}"), 50);
  // On a warm cache, which this is: a get is one round trip, a put two, and splits a few more.
  EXPECT_GE(Sample(page, "farleaf_round_trips_total" + native("get") + "}"), 50);
  EXPECT_GE(Sample(page, "farleaf_round_trips_total" + native("put") + "}"), 400);
  EXPECT_GT(Sample(page, "farleaf_tree_splits_total{tree=\"tested\"}"), 0);
  EXPECT_GT(Sample(page, "farleaf_tree_cache_bytes{tree=\"tested\"}"), 0);
  EXPECT_EQ(Sample(page, "farleaf_connections"), 3);
  EXPECT_EQ(Sample(page, "farleaf_connections_truncated_total"), 0);
  EXPECT_EQ(Sample(page,
                   "farleaf_operations_total{protocol=\"memcached\",operation=\"set\","
                   "outcome=\"ok\"}"),
            1);
  EXPECT_EQ(Sample(page,
                   "farleaf_operations_total{protocol=\"memcached\",operation=\"get\","
                   "outcome=\"ok\"}"),
            3);
  EXPECT_EQ(Sample(page, "farleaf_memcached_lookups_total{command=\"get\",outcome=\"hit\"}"), 2);
  ExpectRedisCounted(page);
  EXPECT_EQ(Sample(page, "farleaf_memory_server_up{memory_server=\"1\"}"), 1);
  ExpectWellFormed(cluster, url,
                   {"farleaf_operations", "farleaf_operation_duration_seconds", "farleaf_verbs",
                    "farleaf_fabric_bytes", "farleaf_tree_retries", "farleaf_build_info",
                    "farleaf_memory_server_chunks", "process_cpu_seconds"});

  for (int id : {0, 1}) {
    const std::string memory_url = MetricsUrl(cluster.memory_server(id));
    const std::string number = "memory_server=\"" + std::to_string(id) + "\"";
    const std::string memory_page = HttpGet(memory_url, "/metrics").body;
    EXPECT_EQ(Sample(memory_page, "farleaf_memory_server_bytes{" + number + "}"), 64 << 20);
    EXPECT_GT(Sample(memory_page, "farleaf_memory_server_chunks{" + number + ",kind=\"leaf\"}"), 0);
    EXPECT_EQ(Sample(memory_page, "farleaf_memory_server_members{" + number + ",state=\"leased\"}"),
              1);
    EXPECT_EQ(HealthOf(memory_url).status, 200);
    ExpectWellFormed(cluster, memory_url,
                     {"farleaf_memory_server_chunks", "farleaf_connections", "farleaf_build_info"});
  }
}

TEST_F(MetricsProcessTest, HealthNamesTheMemoryServerThatIsLost) {
  ProcessCluster cluster({});
  cluster.StartMemoryServers();
  const auto server = cluster.StartComputeServer({"--metrics-listen", "127.0.0.1:0"});
  const std::string url = MetricsUrl(*server.process);
  ASSERT_EQ(WaitForHealth(url, 200).status, 200);
  cluster.KillMemoryServer(1);
  const HttpAnswer sick = WaitForHealth(url, 503);
  EXPECT_EQ(sick.status, 503);
  EXPECT_TRUE(sick.body.starts_with("memory server 1 does not answer")) << sick.body;
  const std::string page = HttpGet(url, "/metrics").body;
  EXPECT_EQ(Sample(page, "farleaf_memory_server_up{memory_server=\"0\"}"), 1);
  EXPECT_EQ(Sample(page, "farleaf_memory_server_up{memory_server=\"1\"}"), 0);
  EXPECT_EQ(Sample(page, "farleaf_healthy"), 0);
}

TEST_F(MetricsProcessTest, WhoWasCutOffIsNotHealthy) {
  // Without leases it is not told to join again.
  ProcessCluster cluster({.fabric = "tcp", .lease_ms = 0});
  cluster.StartMemoryServers();
  const auto server = cluster.StartComputeServer({"--metrics-listen", "127.0.0.1:0"});
  const std::string url = MetricsUrl(*server.process);
  ASSERT_EQ(WaitForHealth(url, 200).status, 200);
  EXPECT_EQ(cluster.Control({"cut-off", server.Id()}).code, 0);
  const HttpAnswer sick = WaitForHealth(url, 503);
  EXPECT_EQ(sick.status, 503);
  EXPECT_TRUE(sick.body.starts_with("fenced")) << sick.body;
}

TEST_F(MetricsProcessTest, WhoEndsRunningRequestsIsNotHealthy) {
  ProcessCluster cluster({.fabric = "tcp"});
  cluster.StartMemoryServers();
  const auto server =
      cluster.StartComputeServer({"--metrics-listen", "127.0.0.1:0", "--drain-ms", "60000"});
  const std::string url = MetricsUrl(*server.process);
  const auto client = ConnectTo(server, kPatienceMs);
  auto tree = CreateTree(*client);
  ASSERT_TRUE(tree.Put("key", "value").ok());
  for (int id : {0, 1}) cluster.memory_server(id).Signal(SIGSTOP);
  auto held = tree.GetAsync("key");
  ASSERT_TRUE(client->Ping().ok());  // so it has arrived
  server.process->Signal(SIGTERM);
  // Until it has taken the signal, it may say that memory servers do not answer.
  const HttpAnswer draining = WaitForHealth(url, 503, "draining");
  EXPECT_EQ(draining.status, 503);
  EXPECT_TRUE(draining.body.starts_with("draining")) << draining.body;
  for (int id : {0, 1}) cluster.memory_server(id).Signal(SIGCONT);
  (void)held.get();
  cluster.WaitFor(*server.process);
}

TEST_F(MetricsProcessTest, AnotherAddressThanLoopbackIsRefused) {
  ProcessCluster cluster({});
  for (const char* program : {"compute_server", "memory_server"}) {
    const Ended ended = cluster.Run(
        program, {"--bootstrap", cluster.bootstrap_url(), "--metrics-listen", "0.0.0.0:0"});
    EXPECT_EQ(ended.code, 2) << ended.output;
    EXPECT_TRUE(ended.says("0.0.0.0:0")) << ended.output;
    EXPECT_TRUE(ended.says("not a loopback address")) << ended.output;
  }
}

}  // namespace
}  // namespace farleaf
