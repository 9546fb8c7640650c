// Unmodified clients of memcached against two compute servers of one pool; and memcached itself, which shows that
// the tables of the protocol's tests ask for nothing that it does not do.
#include "test/fault/record_clients.h"
#include "test/support/memcached_table.h"

namespace farleaf {
namespace {

struct MemcachedClientsTest : RecordClientsTest {
  MemcachedClientsTest() : RecordClientsTest("memcached") {}
  static size_t CountOf(const std::string& text, std::string_view what) {
    size_t count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
      ++count;
    return count;
  }
};

TEST_F(MemcachedClientsTest, LibmemcachedsConformanceProgramPasses) {
  if (!Installed("memccapable")) GTEST_SKIP() << "libmemcached-tools is not installed";
  for (size_t i : {0, 1}) {
    const Ended ended = Run({"memccapable", "-h", Host(i), "-p", Port(i), "-a"});
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_TRUE(ended.says("All tests passed")) << ended.output;
    EXPECT_EQ(CountOf(ended.output, "[pass]"), 27u) << ended.output;
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
    const auto loads = RunAtAll([&](size_t i) -> std::vector<std::string> {
      return {"memcslap",           "--servers=" + addresses[i],
              "--concurrency=2",    "--execute-number=500",
              "--initial-load=500", "--test=" + std::string(test)};
    });
    for (const Ended& load : loads) EXPECT_EQ(load.code, 0) << load.output;
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
  test::TextClient client(url(0));
  std::string sets, gets;
  for (int i = 0; i < 3'000; ++i) {
    const std::string key = "lost" + std::to_string(i);
    sets += "set " + key + " 0 0 400 noreply\r\n" + std::string(400, 'x') + "\r\n";
    gets += "get " + key + "\r\n";
  }
  EXPECT_EQ(client.Ask(sets), "");
  ExpectLostMemoryServerNamed([&] { return client.Ask(gets); }, "SERVER_ERROR ", "VALUE lost");
}

TEST_F(MemcachedClientsTest, OptionsAreCheckedAndTheReadyFileNamesTheAddress) {
  ExpectRefused({"--memcached-listen", "0.0.0.0:0"}, "not a loopback address");
  ExpectRefused({"--memcached-value-bytes-max", "1GiB"}, "out of range");
  ExpectRefused({"--record-tree", ""}, "a name has");
  ExpectReadyFileNamesTheAddress();
}

}  // namespace
}  // namespace farleaf
