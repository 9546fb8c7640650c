// Unmodified clients of memcached against two compute servers of one pool; and memcached itself, which shows that
// the tables of the protocol's tests ask for nothing that it does not do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "test/support/memcached_table.h"
#include "test/support/process.h"
#include "test/support/text_client.h"

namespace farleaf {
namespace {

struct MemcachedClientsTest : ::testing::Test {
  ProcessCluster cluster{{.fabric = "shm", .region = "128MiB"}};
  std::vector<std::string> addresses;
  std::vector<ComputeServerProcess> servers;
  int runs = 0;

  void SetUp() override {
    cluster.StartMemoryServers();
    for (int i = 0; i < 2; ++i) {
      addresses.push_back(FreeAddress());
      servers.push_back(cluster.StartComputeServer({"--memcached-listen", addresses.back()}));
    }
  }
  Ended Run(std::vector<std::string> command) {
    ChildProcess process(std::move(command), cluster.File("client" + std::to_string(runs++)));
    return cluster.WaitFor(process, 120'000);
  }
  static bool Installed(const std::string& program) {
    return std::system(("command -v " + program + " >/dev/null").c_str()) == 0;
  }
  std::string Host(size_t i) const { return addresses[i].substr(0, addresses[i].rfind(':')); }
  std::string Port(size_t i) const { return addresses[i].substr(addresses[i].rfind(':') + 1); }
};

TEST_F(MemcachedClientsTest, LibmemcachedsConformanceProgramPasses) {
  if (!Installed("memccapable")) GTEST_SKIP() << "libmemcached-tools is not installed";
  for (size_t i : {0, 1}) {
    const Ended ended = Run({"memccapable", "-h", Host(i), "-p", Port(i), "-a"});
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_TRUE(ended.says("All tests passed")) << ended.output;
  }
}

TEST_F(MemcachedClientsTest, LibmemcachedsToolsMoveWhatTheyAreGiven) {
  if (!Installed("memccp")) GTEST_SKIP() << "libmemcached-tools is not installed";
  const std::string file = cluster.File("moved"), text = "some text\n";
  std::ofstream(file) << text;
  EXPECT_EQ(Run({"memccp", "--servers=" + addresses[0], file}).code, 0);
  const Ended printed = Run({"memccat", "--servers=" + addresses[1], "moved"});
  EXPECT_EQ(printed.code, 0);
  EXPECT_TRUE(printed.says(text)) << printed.output;
  for (const char* test : {"set", "get", "mget"}) {
    const Ended load =
        Run({"memcslap", "--servers=" + addresses[0], "--concurrency=2", "--execute-number=500",
             "--initial-load=500", "--test=" + std::string(test)});
    EXPECT_EQ(load.code, 0) << load.output;
  }
}

TEST_F(MemcachedClientsTest, PymemcacheDoesAllItsWork) {
  if (std::system("/usr/bin/python3 -c 'import pymemcache' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3-pymemcache is not installed";
  }
  const Ended ended =
      Run({"/usr/bin/python3", FARLEAF_TESTS "/pymemcache_check.py", addresses[0], addresses[1]});
  EXPECT_EQ(ended.code, 0) << ended.output;
}

TEST_F(MemcachedClientsTest, MemcachedItselfAnswersAsTheTablesSay) {
  MemcachedUnderTest memcached(cluster.File("memcached"));
  const Ended version = Run({"memcached", "--version"});
  for (const auto& table : {test::ClassicTable(), test::MetaTable()}) {
    test::TextClient real("memcached://" + memcached.address());
    for (const auto& [request, answer] : table) {
      const std::string answered = real.Ask(request);
      EXPECT_TRUE(test::Matches(answer, answered)) << version.output << request << answered;
    }
    EXPECT_EQ(real.Ask("flush_all\r\n"), "OK\r\n");
  }
}

TEST_F(MemcachedClientsTest, LostMemoryServerIsNamedInTheAnswer) {
  test::TextClient client("memcached://" + addresses[0]);
  std::string sets, gets;
  for (int i = 0; i < 3'000; ++i) {
    const std::string key = "lost" + std::to_string(i);
    sets += "set " + key + " 0 0 400 noreply\r\n" + std::string(400, 'x') + "\r\n";
    gets += "get " + key + "\r\n";
  }
  EXPECT_EQ(client.Ask(sets), "");
  cluster.KillMemoryServer(1);
  // On shared memory its pages are there until the compute server hears of its end.
  const std::string named = "SERVER_ERROR unavailable: memory server 1";
  const MonotonicClock clock;
  const uint64_t end_ns = clock.NowNs() + 60 * kNsPerSecond;
  std::string answers = client.Ask(gets);
  while (answers.find(named) == std::string::npos && clock.NowNs() < end_ns)
    answers = client.Ask(gets);
  EXPECT_NE(answers.find(named), std::string::npos)
      << answers.substr(std::min(answers.find("SERVER_ERROR"), answers.size()), 300);
  EXPECT_NE(answers.find("VALUE lost"), std::string::npos) << "the other's keys are served";
}

TEST_F(MemcachedClientsTest, OptionsAreCheckedAndTheReadyFileNamesTheAddress) {
  const auto refused = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--bootstrap", cluster.bootstrap_url()});
    const Ended ended = cluster.Run("compute_server", std::move(flags));
    EXPECT_EQ(ended.code, 2) << ended.output;
    return ended;
  };
  EXPECT_TRUE(refused({"--memcached-listen", "0.0.0.0:0"}).says("not a loopback address"));
  EXPECT_TRUE(refused({"--memcached-value-bytes-max", "1GiB"}).says("out of range"));
  EXPECT_TRUE(refused({"--record-tree", ""}).says("a name has"));
  const std::string ready = cluster.File("ready"), address = FreeAddress();
  const auto server =
      cluster.StartComputeServer({"--ready-file", ready, "--memcached-listen", address});
  ASSERT_TRUE(server.process->WaitForOutput("serving memcached://" + address));
  std::string line, all;
  std::ifstream file;
  while (server.process->running() && !file.is_open()) file.open(ready);
  while (std::getline(file, line)) all += line + "\n";
  EXPECT_NE(all.find("\nmemcached://" + address + "\n"), std::string::npos) << all;
}

}  // namespace
}  // namespace farleaf
