// farleafctl's status, top and slow-log: what an operator sees of servers under load.
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "test/support/process.h"
#include "test/support/process_client.h"
#include "test/support/pseudo_terminal.h"
#include "test/support/text_client.h"

namespace farleaf {
namespace {

using Json = nlohmann::json;

/// Gets and puts for as long as it lives.
class Load {
 public:
  explicit Load(const ComputeServerProcess& server)
      : client_(ConnectTo(server, kPatienceMs)), tree_(CreateTree(*client_)), thread_([this] {
          for (int i = 0; !stop_.load(); ++i) {
            const std::string key = std::to_string(i % 1000);
            EXPECT_TRUE(tree_.Put(key, "value").ok());
            EXPECT_TRUE(tree_.Get(key).ok());
          }
        }) {}
  ~Load() {
    stop_.store(true);
    thread_.join();
  }

 private:
  std::unique_ptr<client::Client> client_;
  client::Tree tree_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

struct WatchProcessTest : ::testing::Test {
  ProcessCluster cluster{{}};

  void SetUp() override { cluster.StartMemoryServers(); }
  static const Json* RateOf(const Json& rates, const std::string& operation) {
    for (const Json& rate : rates) {
      if (rate["operation"] == operation) return &rate;
    }
    return nullptr;
  }
};

TEST_F(WatchProcessTest, StatusIsOneScreenOfThePoolAndTheServer) {
  const auto server = cluster.StartComputeServer();
  const Load load(server);
  const Ended text = cluster.Run("farleafctl", {"--server", server.url(), "status"});
  EXPECT_EQ(text.code, 0) << text.output;
  for (const char* part : {"memory servers\n", "64MiB", "compute servers\n", "live", "trees\n",
                           "tested", "connections", "trips/op", "get", "put", "cache: "}) {
    EXPECT_TRUE(text.says(part)) << part << "\n" << text.output;
  }
  const Ended ended = cluster.Run("farleafctl", {"--server", server.url(), "--json", "status"});
  const Json json = Json::parse(ended.output, nullptr, false);
  ASSERT_TRUE(json.is_object()) << ended.output;
  ASSERT_EQ(json["memory_servers"].size(), 2u);
  EXPECT_GT(json["memory_servers"][0]["used"].get<double>(), 0);
  EXPECT_EQ(json["compute_servers"].size(), 1u);
  EXPECT_EQ(json["trees"][0]["name"], "tested");
  EXPECT_GE(json["server"]["connections.open"].get<int>(), 2);
  const Json* const gets = RateOf(json["server"]["rates"], "get");
  ASSERT_NE(gets, nullptr) << ended.output;
  EXPECT_GT((*gets)["per_s"].get<double>(), 0);
  EXPECT_GE((*gets)["round_trips_each"].get<double>(), 1);
  EXPECT_LE((*gets)["p50_us"].get<double>(), (*gets)["p99_us"].get<double>());
  EXPECT_GE(json["server"]["cache"]["hits"].get<uint64_t>(), (*gets)["count"].get<uint64_t>() / 2);
  EXPECT_GT(json["server"]["cache"]["bytes"].get<uint64_t>(), 0u);

  const Ended pool = cluster.Control({"status", "--json"});
  EXPECT_EQ(pool.code, 0) << pool.output;
  EXPECT_FALSE(Json::parse(pool.output, nullptr, false).contains("server")) << pool.output;
}

TEST_F(WatchProcessTest, TopShowsEachServerAndTurnsOnlyOnceWhereItIsTold) {
  const auto busy = cluster.StartComputeServer(), idle = cluster.StartComputeServer();
  const Load load(busy);
  const Ended ended =
      cluster.Run("farleafctl", {"--server", busy.url(), "--server", idle.url(), "top", "--once",
                                 "--json", "--interval-ms", "1500"});
  const Json json = Json::parse(ended.output, nullptr, false);
  ASSERT_TRUE(json.is_array() && json.size() == 2) << ended.output;
  EXPECT_EQ(json[0]["server"], busy.url());
  ASSERT_NE(RateOf(json[0]["rates"], "put"), nullptr) << ended.output;
  EXPECT_EQ((*RateOf(json[0]["rates"], "put"))["failed"], 0);
  EXPECT_EQ(RateOf(json[1]["rates"], "put"), nullptr) << ended.output;
  EXPECT_GT(json[0]["cache"]["hits"].get<uint64_t>(), 0u) << ended.output;
  EXPECT_EQ(json[1]["cache"]["hits"].get<uint64_t>(), 0u) << ended.output;
  const Ended table =
      cluster.Run("farleafctl", {"--server", busy.url(), "top", "--once", "--interval-ms", "1500"});
  EXPECT_EQ(table.code, 0);
  EXPECT_TRUE(table.says("operations/s") && table.says("cache: ")) << table.output;
  EXPECT_FALSE(table.says("\x1b")) << table.output;  // it is no terminal
  EXPECT_EQ(cluster.Control({"top"}).code, 2);
}

TEST_F(WatchProcessTest, TopEndsInGoodOrderAtSigint) {
  const auto server = cluster.StartComputeServer();
  auto top = cluster.Start("farleafctl", {"--server", server.url(), "top", "--interval-ms", "50"});
  ASSERT_TRUE(top->WaitForOutput("q ends it")) << top->Output();
  top->Signal(SIGINT);
  EXPECT_EQ(cluster.WaitFor(*top).code, 0);
}

constexpr std::string_view kCleared = "\x1b[H\x1b[J", kCursorShown = "\x1b[?25h";

/// How many have been drawn on a terminal.
int Tables(const std::string& drawn) {
  int tables = 0;
  for (size_t at = 0; (at = drawn.find(kCleared, at)) != std::string::npos; ++at) ++tables;
  return tables;
}
/// Whether the last one is whole, and tells of gets and puts.
bool EndsWithATable(const std::string& drawn) {
  if (Tables(drawn) == 0 || !drawn.ends_with("q ends it\r\n")) return false;
  const std::string table = drawn.substr(drawn.rfind(kCleared));
  for (const char* part : {"farleaf://", "operations/s", "trips/op", "get", "put"}) {
    if (table.find(part) == std::string::npos) return false;
  }
  return true;
}

TEST_F(WatchProcessTest, TopOnATerminalIsDrawnAnewUntilItEndsAndLeavesTheTerminalAsItWas) {
  const auto server = cluster.StartComputeServer();
  const Load load(server);
  for (const bool by_key : {true, false}) {
    test::PseudoTerminal terminal;
    const termios before = terminal.modes();
    ChildProcess top(
        {ProgramPath("farleafctl"), "--server", server.url(), "top", "--interval-ms", "50"},
        terminal.path(), terminal.path());
    EXPECT_TRUE(terminal.WaitForDrawn(EndsWithATable)) << terminal.drawn();
    EXPECT_EQ(terminal.modes().c_lflag & (ICANON | ECHO), 0u) << "keys come as they are pressed";
    terminal.Press('x');  // does nothing
    EXPECT_TRUE(terminal.WaitForDrawn([seen = Tables(terminal.drawn())](const std::string& drawn) {
      return Tables(drawn) >= seen + 3;
    })) << terminal.drawn();
    if (by_key) {
      terminal.Press('q');
    } else {
      top.Signal(SIGINT);
    }
    EXPECT_EQ(top.Wait(), 0);
    EXPECT_TRUE(terminal.WaitForDrawn([](const std::string& drawn) {
      return drawn.ends_with(kCursorShown);
    })) << terminal.drawn();
    EXPECT_TRUE(test::SameModes(terminal.modes(), before));
  }
}

TEST_F(WatchProcessTest, TheSlowLogHasWhatTookLong) {
  // With a bound of a microsecond every request is slow.
  const auto server = cluster.StartComputeServer({"--slow-log-us", "1", "--slow-log-entries", "5"});
  const auto client = ConnectTo(server, kPatienceMs);
  auto tree = CreateTree(*client);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(tree.Put("key \n" + std::to_string(i), "v").ok());
  const Ended ended = cluster.Run("farleafctl", {"--server", server.url(), "--json", "slow-log"});
  const Json json = Json::parse(ended.output, nullptr, false);
  ASSERT_TRUE(json.is_array() && json.size() == 5) << ended.output;
  EXPECT_EQ(json[0]["key"], "key \\x0a19");
  EXPECT_EQ(json[4]["key"], "key \\x0a15");
  EXPECT_EQ(json[0]["command"], "put");
  EXPECT_EQ(json[0]["protocol"], "native");
  EXPECT_GE(json[0]["round_trips"].get<int>(), 2);
  EXPECT_GT(json[0]["id"].get<int>(), json[1]["id"].get<int>());
  EXPECT_NE(json[0]["client"].get<std::string>().find("127.0.0.1"), std::string::npos);
  const Ended text = cluster.Run("farleafctl", {"--server", server.url(), "slow-log"});
  EXPECT_TRUE(text.says("key \\x0a17")) << text.output;
  EXPECT_EQ(cluster.Control({"slow-log"}).code, 2);
}

TEST_F(WatchProcessTest, TheSlowLogHasCommandsOfAllProtocols) {
  const std::string memcached = FreeAddress(), redis = FreeAddress();
  const auto server = cluster.StartComputeServer(
      {"--slow-log-us", "1", "--memcached-listen", memcached, "--redis-listen", redis});
  test::TextClient text("memcached://" + memcached), resp("redis://" + redis);
  EXPECT_EQ(text.Ask("set a 0 0 1\r\nx\r\nget b\r\n"), "STORED\r\nEND\r\n");
  EXPECT_EQ(resp.AskRedis("SET c 1\r\nGET d\r\n"), "+OK\r\n$-1\r\n");
  const Ended ended = cluster.Run("farleafctl", {"--server", server.url(), "--json", "slow-log"});
  const Json json = Json::parse(ended.output, nullptr, false);
  ASSERT_TRUE(json.is_array()) << ended.output;
  std::set<std::string> seen;
  for (const Json& each : json) {
    seen.insert(each["protocol"].get<std::string>() + " " + each["command"].get<std::string>() +
                " " + each["key"].get<std::string>());
  }
  for (const char* wanted : {"memcached set a", "memcached get b", "redis set c", "redis get d"}) {
    EXPECT_TRUE(seen.contains(wanted)) << wanted << "\n" << ended.output;
  }
}

TEST_F(WatchProcessTest, LogsAreJsonWhereThatIsAskedFor) {
  const auto server = cluster.StartComputeServer({"--log-format", "json"});
  std::istringstream lines(server.process->Output());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json json = Json::parse(line, nullptr, false);
    EXPECT_TRUE(json.is_object() && json.contains("time_ms") && json["level"].is_string()) << line;
  }
  EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace farleaf
