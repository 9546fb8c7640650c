// INFO of Redis' protocol at servers: which sections are told, and that their figures are true.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <thread>
#include <vector>

#include "test/support/record_servers.h"
#include "test/support/text_client.h"

namespace farleaf::test {
namespace {

using RedisInfoTest = RecordServersTest;
INSTANTIATE_TEST_SUITE_P(All, RedisInfoTest, kAllRecordServers, RecordServersName);

/// The headings of an answer to INFO, in their order.
std::vector<std::string> Headings(const std::string& info) {
  std::vector<std::string> headings;
  for (size_t at = info.find("# "); at != std::string::npos; at = info.find("# ", at)) {
    const size_t end = info.find("\r\n", at);
    headings.push_back(info.substr(at + 2, end - at - 2));
    at = end;
  }
  return headings;
}

/// The number behind `name`; it is there.
uint64_t Figure(const std::string& info, const std::string& name) {
  const size_t at = info.find("\n" + name + ":");
  EXPECT_NE(at, std::string::npos) << name << info;
  return at == std::string::npos ? 0 : std::stoull(info.substr(at + name.size() + 2));
}

TEST_P(RedisInfoTest, SectionsComeOnceInTheirOrderHoweverTheyAreAskedFor) {
  const auto all = Start();
  TextClient client(all->redis_url(0));
  using Names = std::vector<std::string>;
  const Names every = {"Server",      "Clients", "Memory",  "Stats",
                       "Replication", "Cluster", "Keyspace"};
  for (const char* request : {"INFO\r\n", "INFO all\r\n", "INFO DEFAULT\r\n", "INFO everything\r\n",
                              "INFO memory all stats everything\r\n"}) {
    EXPECT_EQ(Headings(client.AskRedis(request)), every) << request;
  }
  EXPECT_EQ(Headings(client.AskRedis("INFO Keyspace\r\n")), Names{"Keyspace"});
  EXPECT_EQ(Headings(client.AskRedis("INFO keyspace MEMORY nonsense server memory\r\n")),
            (Names{"Server", "Memory", "Keyspace"}));
  EXPECT_EQ(client.AskRedis("INFO nonsense\r\n"), "$0\r\n\r\n");
}

TEST_P(RedisInfoTest, MemoryIsWhatTheProcessHas) {
  const auto all = Start();
  TextClient client(all->redis_url(0));
  const std::string before = client.AskRedis("INFO memory\r\n");
  EXPECT_LE(Figure(before, "used_memory"), Figure(before, "used_memory_rss"));
  EXPECT_LT(Figure(before, "used_memory_rss"), Figure(before, "total_system_memory"));
  EXPECT_EQ(Figure(before, "maxmemory"), 0u);
  EXPECT_NE(before.find("\r\nmaxmemory_human:0B\r\n"), std::string::npos) << before;
  EXPECT_NE(before.find("\r\nmaxmemory_policy:noeviction\r\n"), std::string::npos) << before;
  // The server is in this process: of it and all else, most of what is taken here is there.
  constexpr size_t kTaken = 64 << 20;
  for (const int sharing : {MAP_PRIVATE, MAP_SHARED}) {
    void* const taken = ::mmap(nullptr, kTaken, PROT_READ | PROT_WRITE,
                               sharing | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    ASSERT_NE(taken, MAP_FAILED);
    const std::string info = client.AskRedis("INFO memory\r\n");
    EXPECT_GT(Figure(info, "used_memory_rss"), Figure(before, "used_memory_rss") + kTaken / 2);
    if (sharing == MAP_PRIVATE) {
      EXPECT_GT(Figure(info, "used_memory"), Figure(before, "used_memory") + kTaken / 2);
    } else {
      EXPECT_LT(Figure(info, "used_memory"), Figure(before, "used_memory") + kTaken / 2);
    }
    ::munmap(taken, kTaken);
  }
}

// What a sweep has met, once it has come by all of it; before that there is no figure.
TEST_P(RedisInfoTest, KeyspaceTellsWhatTheSweepHasMet) {
  server::NativeServerOptions options;
  options.expiry_sweep_s = 1;
  const auto all = Start(options);
  TextClient client(all->redis_url(0));
  EXPECT_EQ(client.AskRedis("SET gone x PX 1\r\nSET a x\r\nSET b x EX 1000\r\nHSET h f v g w\r\n"
                            "ZADD z 1 m\r\nEXPIRE z 1000\r\n"),
            "+OK\r\n+OK\r\n+OK\r\n:2\r\n:1\r\n:1\r\n");
  all->wall.AdvanceNs(kNsPerSecond);
  const uint64_t end_ns = all->clock.NowNs() + 60 * kNsPerSecond;
  std::string info;
  while (
      info.find("farleaf_swept_keys:4\r\nfarleaf_swept_expires:2\r\nfarleaf_swept_seconds_ago:") ==
      std::string::npos) {
    ASSERT_LT(all->clock.NowNs(), end_ns) << info;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    info = client.AskRedis("INFO keyspace\r\n");
  }
  EXPECT_EQ(info.find("db0:"), std::string::npos) << info;
}

TEST_P(RedisInfoTest, KeyspaceHasNoFigureWhereThereIsNoSweep) {
  server::NativeServerOptions options;
  options.expiry_sweep_s = 0;
  const auto all = Start(options);
  TextClient client(all->redis_url(0));
  EXPECT_EQ(client.AskRedis("SET a x\r\nINFO keyspace\r\n"), "+OK\r\n$12\r\n# Keyspace\r\n\r\n");
}

}  // namespace
}  // namespace farleaf::test
