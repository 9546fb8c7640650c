// The client's quickstart, farleafctl and the compute server's options, as someone at a shell meets
// them.
#include <gtest/gtest.h>

#include <fstream>

#include "client/client.h"
#include "test/support/process.h"

namespace farleaf {
namespace {

struct ProcessClientTest : ::testing::Test {
  ProcessCluster cluster{{.fabric = "shm"}};
  void SetUp() override { cluster.StartMemoryServers(); }
};

TEST_F(ProcessClientTest, QuickstartRunsAndPrintsWhatItStored) {
  const auto server = cluster.StartComputeServer();
  for (int round = 0; round < 2; ++round) {  // the second finds its tree
    const Ended quickstart = cluster.Run("quickstart", {server.url()});
    EXPECT_EQ(quickstart.code, 0) << quickstart.output;
    EXPECT_EQ(quickstart.output, "alice has 100\nalice = 100\nbob = 50\n");
  }
  const Ended nobody = cluster.Run("quickstart", {"farleaf://" + FreeAddress()});
  EXPECT_EQ(nobody.code, 1);
  EXPECT_TRUE(nobody.says("Connection refused")) << nobody.output;
}

// The same commands against the server and against the pool beneath it.
TEST_F(ProcessClientTest, ControlSeesTheSameThroughServerAndPool) {
  const auto server = cluster.StartComputeServer();
  const std::vector<std::vector<std::string>> doors = {{"--server", server.url()},
                                                       {"--pool", cluster.bootstrap_url()}};
  const auto run = [&](size_t door, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), doors[door].begin(), doors[door].end());
    return cluster.Run("farleafctl", arguments);
  };
  EXPECT_EQ(run(0, {"create-tree", "words"}).code, 0);
  EXPECT_EQ(run(1, {"create-tree", "numbers", "--layout", "fixed8"}).code, 0);
  EXPECT_EQ(run(0, {"put", "--tree", "words", "k", "a\\x00b"}).output, "inserted\n");
  EXPECT_EQ(run(1, {"put", "--tree", "words", "l", "2"}).output, "inserted\n");
  EXPECT_EQ(run(0, {"put", "--tree", "numbers", "10", "1"}).output, "inserted\n");
  EXPECT_EQ(run(1, {"put", "--tree", "numbers", "9", "2"}).output, "inserted\n");
  for (size_t door : {0, 1}) {
    EXPECT_EQ(run(door, {"get", "--tree", "words", "k"}).output, "a\\x00b\n");
    EXPECT_EQ(run(door, {"scan", "--tree", "words"}).output, "k\ta\\x00b\nl\t2\n");
    EXPECT_EQ(run(door, {"scan", "--tree", "numbers", "--reverse"}).output, "10\t1\n9\t2\n");
    EXPECT_EQ(run(door, {"scan", "--tree", "numbers", "--start", "10", "--json"}).output,
              "[{\"key\": 10, \"value\": 1}]\n");
    EXPECT_EQ(run(door, {"get", "--tree", "words", "absent"}).code, 3);
    EXPECT_EQ(run(door, {"get", "--tree", "numbers", "ten"}).code, 2);
    EXPECT_EQ(run(door, {"get", "--tree", "none", "k"}).code, 3);
    EXPECT_EQ(run(door, {"create-tree", "words"}).code, 1);
    EXPECT_TRUE(run(door, {"trees"}).says("fixed8"));
    EXPECT_EQ(run(door, {"status"}).code, 0);
  }
  EXPECT_EQ(run(0, {"delete", "--tree", "words", "k"}).output, "deleted\n");
  EXPECT_EQ(run(1, {"delete", "--tree", "words", "k"}).code, 3);
  EXPECT_EQ(run(1, {"check"}).code, 0);
  EXPECT_EQ(run(0, {"check"}).code, 0);
  EXPECT_TRUE(run(0, {"check"}).says("no errors"));
  EXPECT_EQ(cluster.Run("farleafctl", {"trees"}).code, 2);
  EXPECT_EQ(cluster.Run("farleafctl", {"sing"}).code, 2);
}

TEST_F(ProcessClientTest, ComputeServerRefusesWrongOptions) {
  struct Case {
    std::vector<std::string> flags;
    std::string_view message;
  };
  const std::vector<Case> cases = {
      {{"--listen", "0.0.0.0:0"}, "not a loopback address"},
      {{"--listen", "127.0.0.1"}, "no port"},
      {{"--trees", "accounts"}, "NAME:LAYOUT is wanted"},
      {{"--trees", "accounts:columns"}, "NAME:LAYOUT is wanted"},
      {{"--threads", "0"}, "threads"},
      {{"--hop-threshold", "65"}, "hop"},
      {{"--unix-socket", std::string(200, 'x')}, "200 bytes"},
  };
  for (const Case& each : cases) {
    std::vector<std::string> flags = {"--bootstrap", cluster.bootstrap_url()};
    flags.insert(flags.end(), each.flags.begin(), each.flags.end());
    const Ended ended = cluster.Run("compute_server", flags);
    EXPECT_EQ(ended.code, 2) << ended.output;
    EXPECT_TRUE(ended.says(each.message)) << ended.output;
  }
}

TEST_F(ProcessClientTest, ReadyFileTellsWhereClientsConnect) {
  const std::string ready = cluster.File("ready");
  {
    auto server = cluster.StartComputeServer({"--ready-file", ready, "--trees", "t:bytes"});
    // Written right behind the log line that the fixture waited for.
    std::ifstream file;
    while (server.process->running() && !file.is_open()) file.open(ready);
    std::string pid, url;
    std::getline(file, pid);
    std::getline(file, url);
    EXPECT_EQ(pid, std::to_string(server.process->pid()));
    EXPECT_EQ(url, server.url());
    const auto client = client::Client::Connect(url);
    ASSERT_TRUE(client.ok()) << client.status();
    EXPECT_EQ((*client)->ListTrees()->size(), 1u);
    server.process->Signal(SIGTERM);
    const Ended ended = cluster.WaitFor(*server.process);
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_TRUE(ended.says("left the pool")) << ended.output;
  }
  EXPECT_FALSE(std::ifstream(ready).is_open());
}

}  // namespace
}  // namespace farleaf
