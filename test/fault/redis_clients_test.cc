// Unmodified clients of Redis against two compute servers of one pool; and Redis itself, which shows that the
// tables of the protocol's tests ask for nothing that it does not do.
#include <fmt/format.h>

#include <sstream>

#include "test/fault/record_clients.h"
#include "test/support/redis_expiry_table.h"
#include "test/support/redis_table.h"
#include "test/support/test_certificates.h"

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
  EXPECT_EQ(Cli(0, {"HSET", "cli.h", "f", "1", "g", "2"}), "2\n");
  EXPECT_EQ(Cli(1, {"HGETALL", "cli.h"}), "f\n1\ng\n2\n");
  EXPECT_EQ(Cli(1, {"-3", "HGETALL", "cli.h"}), "f 1\ng 2\n");
  EXPECT_EQ(Cli(0, {"-3", "ZADD", "cli.z", "1.5", "a", "2", "b"}), "2\n");
  EXPECT_EQ(Cli(1, {"-3", "ZRANGE", "cli.z", "0", "-1", "WITHSCORES"}), "a\n1.5\nb\n2\n");
  for (int i = 0; i < 30; ++i) Cli(0, {"SET", "cli.many." + std::to_string(i), "x"});
  const std::string scanned = Cli(1, {"--scan", "--pattern", "cli.many.*"});
  EXPECT_EQ(std::count(scanned.begin(), scanned.end(), '\n'), 30) << scanned;
}

TEST_F(RedisClientsTest, RedisBenchmarkRunsToItsEndAtBothServersAtOnce) {
  if (!Installed("redis-benchmark")) GTEST_SKIP() << "redis-tools is not installed";
  for (const char* pipeline : {"1", "16"}) {
    const auto command = [&](size_t i) -> std::vector<std::string> {
      return {"redis-benchmark",
              "-p",
              Port(i),
              "-t",
              "ping,set,get,incr,mset,hset,zadd",
              "-n",
              "2000",
              "-c",
              "20",
              "-r",
              "1000",
              "-P",
              pipeline,
              "-q"};
    };
    for (const Ended& ended : RunAtAll(command)) {
      EXPECT_EQ(ended.code, 0) << ended.output;
      EXPECT_FALSE(ended.says("Error")) << ended.output;
      for (const char* test :
           {"PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", "HSET", "ZADD", "MSET (10 keys)"}) {
        EXPECT_TRUE(ended.says(std::string(test) + ": ")) << test << ended.output;
      }
    }
  }
  // It counts up keys counter:000000000000 and so on: no count of either run is lost.
  std::string gets;
  for (int i = 0; i < 1'000; ++i) gets += fmt::format("GET counter:{:012}\r\n", i);
  test::TextClient client(url(1));
  std::istringstream lines(client.AskRedis(gets));
  uint64_t sum = 0;
  for (std::string length, value; std::getline(lines, length);) {
    if (length != "$-1\r" && std::getline(lines, value)) sum += std::stoull(value);
  }
  EXPECT_EQ(sum, 2 * 2 * 2'000u);
}

// Beside the others, to whose clients it shows the same keys.
TEST_F(RedisClientsTest, ClientsWithAPasswordAndTlsAreLetIn) {
  if (!Installed("redis-cli")) GTEST_SKIP() << "redis-tools is not installed";
  if (!test::CanMakeCertificates()) GTEST_SKIP() << "openssl is not installed";
  const std::string passwords = cluster.File("passwords"), address = FreeAddress();
  const std::filesystem::path folder = std::filesystem::path(passwords).parent_path();
  const auto ours = test::MakeCertificate(folder, "ours"),
             others = test::MakeCertificate(folder, "others");
  std::ofstream(passwords) << "secret\n";
  std::filesystem::permissions(passwords, std::filesystem::perms(0600));
  const auto server =
      cluster.StartComputeServer({listen_flag(), address, "--password-file", passwords,
                                  "--tls-certificate", ours.certificate, "--tls-key", ours.key});
  const std::string port = address.substr(address.rfind(':') + 1);
  const auto ask = [&](const std::string& ca, const std::string& password) {
    return Run({"redis-cli", "-p", port, "--tls", "--cacert", ca, "--no-auth-warning", "-a",
                password, "GET", "cli.tls"});
  };
  EXPECT_EQ(Cli(0, {"SET", "cli.tls", "some text"}), "OK\n");
  const bool has_tls = Run({"redis-cli", "--help"}).says("--tls ");
  if (has_tls) {
    EXPECT_EQ(ask(ours.certificate, "secret").output, "some text\n");
    const Ended guessing = ask(ours.certificate, "guess");
    EXPECT_TRUE(guessing.says("WRONGPASS")) << guessing.output;
    EXPECT_FALSE(guessing.says("some text")) << guessing.output;
    const Ended distrusting = ask(others.certificate, "secret");
    EXPECT_TRUE(distrusting.says("certificate verify failed")) << distrusting.output;
  }
  if (std::system("/usr/bin/python3 -c 'import redis' 2>/dev/null") != 0) return;
  const Ended python = Run({"/usr/bin/python3", "-c",
                            "import redis, sys\n"
                            "host, port, ca = sys.argv[1:]\n"
                            "r = redis.Redis(host, int(port), password='secret', ssl=True, "
                            "ssl_ca_certs=ca, socket_timeout=60)\n"
                            "assert r.ping() and r.get('cli.tls') == b'some text'\n"
                            "assert r.set('cli.tls', 'by python')\n",
                            "127.0.0.1", port, ours.certificate});
  EXPECT_EQ(python.code, 0) << python.output;
  EXPECT_EQ(Cli(1, {"GET", "cli.tls"}), "by python\n");
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
  test::TextClient real(url);
  const auto [before, behind] = test::RedisExpiredTable();
  for (const auto& [request, answer] : before) EXPECT_EQ(real.AskRedis(request), answer) << request;
  // The last one has the same time to live as the others.
  const std::string last = "EXISTS t." + std::to_string(before.size() - 1) + "\r\n";
  while (redis.running() && real.AskRedis(last) != ":0\r\n") {
  }
  for (const auto& [request, answer] : behind) EXPECT_EQ(real.AskRedis(request), answer) << request;
  // What Redis has and Farleaf does not serve is refused by its name, and why.
  std::istringstream names(real.AskRedis("COMMAND LIST\r\n"));
  test::TextClient client(this->url(0));
  int served = 0, refused = 0;
  for (std::string name; std::getline(names, name);) {
    if (name.empty() || name[0] == '*' || name[0] == '$') continue;
    name.pop_back();  // the carriage return
    if (name == "quit" || name.find('|') != std::string::npos) continue;
    const std::string answer = client.AskRedis(name + "\r\n");
    const bool says_why =
        answer.starts_with("-ERR command '" + name + "' is not supported by this server: ");
    EXPECT_FALSE(answer.starts_with("-ERR unknown command")) << name << " " << answer;
    ++(says_why ? refused : served);
  }
  EXPECT_GT(served, 70);
  EXPECT_GT(refused, 100);
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
