// compute_server --engine lsm as a process: what it promises of its directory across ends of every kind, and to whom it
// refuses what.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "test/support/engine_process.h"
#include "test/support/metrics_page.h"
#include "test/support/put_load.h"
#include "test/support/small_device.h"
#include "test/support/text_client.h"

namespace farleaf {
namespace {

struct EngineProcessTest : test::EngineProcess {
  void ExpectRefused(std::vector<std::string> more, std::vector<std::string> said) {
    const Ended ended = cluster.Run("compute_server", Flags(std::move(more), "127.0.0.1:0"));
    EXPECT_NE(ended.code, 0);
    EXPECT_NE(ended.code, Ended::kStillRunning);
    for (const std::string& text : said) EXPECT_TRUE(ended.says(text)) << ended.output;
  }
  static std::set<std::string> NamesBelow(const std::filesystem::path& path) {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      names.insert(entry.path().string());
    }
    return names;
  }
};

TEST_F(EngineProcessTest, AShutdownUnderLoadLosesNothingAndTheNextStartReplaysNothing) {
  ComputeServerProcess server = StartServer();
  auto client =
      ConnectTo(server, 4'000);  // for so long it tries to reach the server that has ended
  PutLoad load(CreateTree(*client));
  EXPECT_TRUE(load.WaitForAcknowledged(3'000));
  const Ended ended = Terminate(server);
  load.Stop();
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(ended.says("closed the store in")) << ended.output;
  ComputeServerProcess again = StartServer();
  EXPECT_TRUE(again.process->WaitForOutput(" 0.0 MiB of changes replayed"))
      << again.process->Output();
  auto reader = ConnectTo(again, kPatienceMs);
  const auto values = PutLoad::GetAll(Open(*reader));
  for (int i = 0; i < PutLoad::kAllKeys; ++i) {
    const auto& value = values[static_cast<size_t>(i)];
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(load.MayHold(i, *value)) << load.Describe(i) << " has " << value->value_or("none");
  }
  EXPECT_EQ(Terminate(again).code, 0);
}

TEST_F(EngineProcessTest, EveryFrontEndServesItAndItsStatisticsAreTold) {
  const std::string socket = cluster.File("s");
  ComputeServerProcess server = StartServer(
      {"--unix-socket", socket, "--metrics-listen", "127.0.0.1:0", "--trees", "numbers:fixed8"});
  for (const std::string& url :
       {server.url(), "farleaf+unix:" + socket, "farleaf+ring:" + socket}) {
    client::Options options;
    options.deadline_ms = kPatienceMs;
    auto client = client::Client::Connect(url, options);
    ASSERT_TRUE(client.ok()) << client.status();
    auto numbers = (*client)->OpenTree("numbers");
    ASSERT_TRUE(numbers.ok()) << numbers.status();
    EXPECT_TRUE(numbers->Put(client::Fixed8Key(1), client::Fixed8Key(2)).ok());
    EXPECT_EQ(**numbers->Get(client::Fixed8Key(1)), client::Fixed8Key(2));
  }
  test::TextClient memcached_client("memcached://" + memcached), redis_client("redis://" + redis);
  EXPECT_EQ(memcached_client.Ask("set a 0 0 1\r\nx\r\n"), "STORED\r\n");
  EXPECT_EQ(redis_client.AskRedis("GET a\r\n"), "$1\r\nx\r\n");
  EXPECT_EQ(redis_client.AskRedis("HSET h f v\r\n"), ":1\r\n");

  const std::string metrics = test::MetricsUrl(*server.process);
  EXPECT_EQ(test::HttpGet(metrics, "/health").status, 200);
  const std::string page = test::HttpGet(metrics, "/metrics").body;
  for (const char* sample : {"\nfarleaf_lsm_writing 1\n", "\nfarleaf_healthy 1\n",
                             "\nfarleaf_lsm_level_bytes{level=\"1\"} "}) {
    EXPECT_NE(page.find(sample), std::string::npos) << page;
  }
  const Ended status = cluster.Run("farleafctl", {"--server", server.url(), "status"});
  EXPECT_EQ(status.code, 0) << status.output;
  EXPECT_TRUE(status.says("store on its disk") && status.says("engine lsm")) << status.output;
  const Ended members = cluster.Run("farleafctl", {"--server", server.url(), "members"});
  EXPECT_TRUE(members.says("is in no pool")) << members.output;
  EXPECT_EQ(Terminate(server).code, 0);
}

TEST_F(EngineProcessTest, DirectoriesThatAreNotItsOwnAreRefused) {
  {
    ComputeServerProcess server = StartServer();
    const std::string pid = std::to_string(server.process->pid());
    // On addresses of its own, so that they are not what is in the way.
    const Ended second = cluster.Run(
        "compute_server", {"--engine", "lsm", "--data-dir", directory, "--listen", "127.0.0.1:0"});
    EXPECT_EQ(second.code, 1);
    EXPECT_TRUE(second.says(directory + " is open in process " + pid)) << second.output;
    EXPECT_EQ(Terminate(server).code, 0);
  }
  std::filesystem::create_directory(cluster.File("other"));
  std::ofstream(cluster.File("other/notes.txt")) << "somebody's";
  ExpectRefused({"--data-dir", cluster.File("other")},
                {"has other files (notes.txt)", "give an empty directory"});
  EXPECT_FALSE(std::filesystem::exists(cluster.File("other/LOCK")));
  ExpectRefused({"--data-dir", cluster.File("other/notes.txt")}, {"notes.txt is no directory"});
  ExpectRefused({"--data-dir", cluster.File("none/below")}, {"none/below", "No such file"});
  const std::filesystem::path other = cluster.File("other");
  for (const char* folder : {"segments/2024", "segments/empty", "free"}) {
    std::filesystem::create_directories(other / folder);
  }
  for (const char* file : {"segments/2024/a.ts", "free/movie.mp4", "draft.new"}) {
    std::ofstream(other / file) << "somebody's";
  }
  // Each of these is enough to tell that it is no store.
  for (const char* name : {"notes.txt", "draft.new", "segments", "free"}) {
    const auto before = NamesBelow(other);
    ExpectRefused({"--data-dir", other}, {"has other files ("});
    EXPECT_EQ(NamesBelow(other), before) << name;
    std::filesystem::remove_all(other / name);
  }
  std::ofstream(directory + "/CURRENT", std::ios::trunc) << "nonsense";
  ExpectRefused({}, {"data_dir " + directory, "CURRENT"});
  ExpectRefused({"--bootstrap", "file:pool"},
                {"--bootstrap (key bootstrap) is for --engine blink"});
}

TEST_F(EngineProcessTest, WritesToAFullDiskAreRefusedAndReadsGoOn) {
  ComputeServerProcess server =
      StartServer({"--lsm-bytes-max", "68MiB", "--metrics-listen", "127.0.0.1:0"});
  auto client = ConnectTo(server, kPatienceMs);
  client::Tree tree = CreateTree(*client);
  const auto value_of = [](int i) { return std::to_string(i) + std::string(50'000, 'v'); };
  int stored = 0;
  for (;; ++stored) {
    ASSERT_LT(stored, 3'000) << "68 MiB took 150 MB";
    const auto put = tree.Put("key" + std::to_string(stored), value_of(stored));
    if (put.ok()) continue;
    EXPECT_EQ(put.status().code(), StatusCode::kResourceExhausted) << put.status();
    EXPECT_NE(put.status().message().find("the limit of 71303168"), std::string::npos)
        << put.status();
    break;
  }
  EXPECT_GT(stored, 100);
  const std::vector<int> some = {0, stored / 2, stored - 1};
  for (const int i : some) {
    const auto value = tree.Get("key" + std::to_string(i));
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(*value == value_of(i)) << i;
  }
  test::TextClient text("memcached://" + memcached);
  std::string answer;
  const std::string set = "set a 0 0 50000\r\n" + std::string(50'000, 'x') + "\r\n";
  for (int i = 0; i < 100 && !answer.starts_with("SERVER_ERROR"); ++i) answer = text.Ask(set);
  EXPECT_TRUE(answer.starts_with("SERVER_ERROR resource exhausted")) << answer;
  EXPECT_EQ(text.Ask("get none\r\n"), "END\r\n");
  const auto deleted = tree.Delete("key0");
  EXPECT_TRUE(deleted.ok()) << deleted.status();
  const std::string metrics = test::MetricsUrl(*server.process);
  test::HttpAnswer health;
  do {  // the test's timeout bounds it
    health = test::HttpGet(metrics, "/health");
  } while (health.status == 200);
  EXPECT_EQ(health.status, 503);
  EXPECT_NE(health.body.find("the limit of 71303168"), std::string::npos) << health.body;
  const Ended status = cluster.Run("farleafctl", {"--server", server.url(), "status"});
  EXPECT_TRUE(status.says("writing: failed: resource exhausted")) << status.output;
  const Ended ended = Terminate(server);
  EXPECT_EQ(ended.code, 0) << ended.output;
  // With room again all is there, and writes are taken.
  ComputeServerProcess again = StartServer({"--lsm-bytes-max", "256MiB"});
  auto reader = ConnectTo(again, kPatienceMs);
  client::Tree same = Open(*reader);
  for (int i = 0; i < stored; ++i) {
    const auto value = same.Get("key" + std::to_string(i));
    ASSERT_TRUE(value.ok()) << value.status();
    if (i == 0) {
      EXPECT_FALSE(value->has_value());
    } else {
      EXPECT_TRUE(*value == value_of(i)) << i;
    }
  }
  EXPECT_TRUE(same.Put("more", value_of(0)).ok());
  EXPECT_EQ(Terminate(again).code, 0);
}

TEST_F(EngineProcessTest, ADeviceThatIsReallyFullTakesWritesAgainWhenThereIsRoom) {
  test::SmallDevice device(160);
  if (!device.mounted()) GTEST_SKIP() << "mounting a file system is not allowed here";
  const std::string others = device.path() + "/others";  // whose room it will be
  std::ofstream(others) << std::string(48 << 20, 'o');
  ComputeServerProcess server = StartServer({"--data-dir", device.path() + "/store"});
  auto client = ConnectTo(server, kPatienceMs);
  client::Tree tree = CreateTree(*client);
  const auto value_of = [](int i) { return std::to_string(i) + std::string(50'000, 'v'); };
  int stored = 0;
  for (int round = 0; round < 2; ++round) {
    // Of those that are refused now and then while segments come free nothing may be there.
    int refused = 0;
    for (; refused < 5; ++refused) {
      Result<bool> put = tree.Put("key" + std::to_string(stored), value_of(stored));
      for (; put.ok(); put = tree.Put("key" + std::to_string(stored), value_of(stored))) {
        ASSERT_LT(++stored, 4'000) << "160 MiB took 200 MB";
      }
      EXPECT_EQ(put.status().code(), StatusCode::kResourceExhausted) << put.status();
      EXPECT_NE(put.status().message().find("no space left"), std::string::npos) << put.status();
    }
    EXPECT_GT(stored, 300);
    for (int i = 0; i < stored; i += 50) {
      const auto value = tree.Get("key" + std::to_string(i));
      ASSERT_TRUE(value.ok()) << value.status();
      ASSERT_TRUE(*value == value_of(i)) << i;
    }
    if (round == 1) break;
    const int full = stored;
    std::filesystem::remove(others);
    // The test's timeout bounds it.
    while (stored < full + 100) {
      stored += tree.Put("key" + std::to_string(stored), value_of(stored)).ok();
    }
  }
  EXPECT_EQ(Terminate(server).code, 0) << server.process->Output();
  ComputeServerProcess again = StartServer({"--data-dir", device.path() + "/store"});
  auto reader = ConnectTo(again, kPatienceMs);
  client::Tree same = Open(*reader);
  for (int i = 0; i < stored; ++i) {
    const auto value = same.Get("key" + std::to_string(i));
    ASSERT_TRUE(value.ok()) << value.status();
    ASSERT_TRUE(*value == value_of(i)) << i;
  }
  EXPECT_EQ(Terminate(again).code, 0);
}

TEST_F(EngineProcessTest, ToolsLookIntoItsDirectoryCheckAndCopyIt) {
  const std::string copy = cluster.File("checkpoint"), restored = cluster.File("restored");
  const auto lsm = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "lsm");
    return cluster.Run("farleafctl", std::move(arguments));
  };
  {
    ComputeServerProcess server = StartServer();
    auto client = ConnectTo(server, kPatienceMs);
    client::Tree tree = CreateTree(*client);
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(tree.Put("key" + std::to_string(i), std::string(1'000, 'v')).ok());
    }
    const Ended refused = lsm({"check", directory});
    EXPECT_EQ(refused.code, 1);
    EXPECT_TRUE(refused.says("open in process " + std::to_string(server.process->pid()) +
                             ": stop it, and ask again"))
        << refused.output;
    EXPECT_EQ(Terminate(server).code, 0);
  }
  const Ended sound = lsm({"check", directory});
  EXPECT_EQ(sound.code, 0) << sound.output;
  EXPECT_TRUE(sound.says("100 values of which 100 are named") && sound.says("sound"))
      << sound.output;
  const Ended stats = lsm({"stats", directory});
  EXPECT_EQ(stats.code, 0) << stats.output;
  EXPECT_TRUE(stats.says("fresh") && stats.says("space amplification")) << stats.output;
  const auto json = nlohmann::json::parse(lsm({"--json", "stats", directory}).output);
  EXPECT_GT(json["value_log"]["live_bytes"], 100'000);
  EXPECT_TRUE(stats.says("a get looks into at most")) << stats.output;
  EXPECT_EQ(json["runs_per_get_max"], json["levels"].size());
  EXPECT_TRUE(json["written"].contains("amplification"));
  const Ended row = lsm({"dump", directory, "--start", "\\x00\\x02key42", "--limit", "1"});
  EXPECT_EQ(row.code, 0);
  EXPECT_EQ(row.output.find("key42\tvvv"), std::string("\\x00\\x02").size()) << row.output;
  const Ended entry =
      lsm({"dump", directory, "--tables", "--start", "\\x00\\x02key42", "--limit", "1"});
  EXPECT_TRUE(entry.says("pointer\tsegment")) << entry.output;

  EXPECT_EQ(lsm({"checkpoint", directory, copy}).code, 0);
  EXPECT_EQ(lsm({"checkpoint", directory, copy}).code, 2);  // it is not empty
  EXPECT_EQ(lsm({"restore", copy, restored}).code, 0);
  const std::string segment = json["manifest"]["file"];
  std::fstream manifest(directory + "/" + segment, std::ios::in | std::ios::out);
  manifest.seekp(50);
  manifest.put('!');
  manifest.close();
  const Ended damaged = lsm({"check", directory});
  EXPECT_EQ(damaged.code, 1);
  EXPECT_TRUE(damaged.says("fault: " + directory + "/" + segment + " at offset")) << damaged.output;
  EXPECT_EQ(lsm({"check", cluster.File("none")}).code, 2);
  EXPECT_EQ(lsm({"check"}).code, 2);
  ComputeServerProcess again = StartServer({"--data-dir", restored});
  auto client = ConnectTo(again, kPatienceMs);
  const auto value = Open(*client).Get("key42");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, std::string(1'000, 'v'));
  EXPECT_EQ(Terminate(again).code, 0);
}

}  // namespace
}  // namespace farleaf
