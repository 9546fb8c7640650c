// Unmodified clients of Redis against two compute servers of one pool; and Redis itself, which shows that the
// tables of the protocol's tests ask for nothing that it does not do.
#include "test/fault/record_clients.h"
#include "test/support/redis_table.h"

namespace farleaf {
namespace {

struct RedisClientsTest : RecordClientsTest {
  RedisClientsTest() : RecordClientsTest("redis") {}
  /// redis-cli at a server, and what it prints.
  std::string Cli(size_t i, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"redis-cli", "-p", Port(i)});
    const Ended ended = Run(std::move(arguments));
    EXPECT_EQ(ended.code, 0) << ended.output;
    return ended.output;
  }
};

TEST_F(RedisClientsTest, RedisCliSpeaksBothVersionsAndScans) {
  if (!Installed("redis-cli")) GTEST_SKIP() << "redis-tools is not installed";
  EXPECT_EQ(Cli(0, {"SET", "cli.a", "some text"}), "OK\n");
  EXPECT_EQ(Cli(1, {"-3", "GET", "cli.a"}), "some text\n");
  EXPECT_EQ(Cli(0, {"-3", "CONFIG", "GET", "appendonly"}), "appendonly no\n");
  for (int i = 0; i < 30; ++i) Cli(0, {"SET", "cli.many." + std::to_string(i), "x"});
  const std::string scanned = Cli(1, {"--scan", "--pattern", "cli.many.*"});
  EXPECT_EQ(std::count(scanned.begin(), scanned.end(), '\n'), 30) << scanned;
}

TEST_F(RedisClientsTest, RedisBenchmarkRunsToItsEnd) {
  if (!Installed("redis-benchmark")) GTEST_SKIP() << "redis-tools is not installed";
  for (const char* pipeline : {"1", "16"}) {
    const Ended ended =
        Run({"redis-benchmark", "-p", Port(0), "-t", "ping,set,get,incr,mset,hset,zadd", "-n",
             "2000", "-c", "20", "-r", "1000", "-P", pipeline, "-q"});
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_FALSE(ended.says("Error")) << ended.output;
    for (const char* test :
         {"PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "HSET", "ZADD", "MSET (10 keys)"}) {
      EXPECT_TRUE(ended.says(std::string(test) + ": ")) << test << ended.output;
    }
  }
}

TEST_F(RedisClientsTest, PythonsRedisDoesAllItsWork) {
  if (std::system("/usr/bin/python3 -c 'import redis' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3-redis is not installed";
  }
  const Ended ended =
      Run({"/usr/bin/python3", FARLEAF_TESTS "/redis_check.py", addresses[0], addresses[1]});
  EXPECT_EQ(ended.code, 0) << ended.output;
}

TEST_F(RedisClientsTest, RedisItselfAnswersAsTheTablesSay) {
  if (!Installed("redis-server")) GTEST_SKIP() << "redis-server is not installed";
  const std::string address = FreeAddress();
  const std::string url = "redis://" + address;
  ChildProcess redis({"redis-server", "--port", address.substr(address.rfind(':') + 1), "--bind",
                      "127.0.0.1", "--save", "", "--appendonly", "no"},
                     cluster.File("redis"));
  const std::string port = address.substr(address.rfind(':') + 1);
  while (redis.running() && !Run({"redis-cli", "-p", port, "PING"}).says("PONG")) {
  }
  for (const auto& table :
       {test::RedisServerTable(), test::RedisStringTable(), test::RedisCollectionTable()}) {
    test::TextClient real(url);
    for (const auto& [request, answer] : table) {
      const std::string answered = real.AskRedis(request);
      EXPECT_TRUE(test::Matches(answer, answered)) << request << answered;
    }
    EXPECT_EQ(real.AskRedis("FLUSHALL\r\n"), "+OK\r\n");
  }
}

TEST_F(RedisClientsTest, LostMemoryServerIsNamedInTheAnswer) {
  test::TextClient client(url(0));
  std::string sets, gets;
  for (int i = 0; i < 3'000; ++i) {
    const std::string key = "lost" + std::to_string(i);
    sets += "SET " + key + " " + std::string(400, 'x') + "\r\n";
    gets += "GET " + key + "\r\n";
  }
  client.AskRedis(sets);
  ExpectLostMemoryServerNamed([&] { return client.AskRedis(gets); }, "-ERR ", "$400\r\nx");
}

TEST_F(RedisClientsTest, OptionsAreCheckedAndTheReadyFileNamesTheAddress) {
  ExpectRefused({"--redis-listen", "0.0.0.0:0"}, "not a loopback address");
  ExpectRefused({"--redis-value-bytes-max", "1GiB"}, "out of range");
  ExpectReadyFileNamesTheAddress();
}

}  // namespace
}  // namespace farleaf
