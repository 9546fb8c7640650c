// Limits and ends: full pools, values that are too large, interrupted runs, and what is left behind
// when everything has stopped.
#include <gtest/gtest.h>

#include "client/client.h"
#include "dsm/bootstrap/open_directory.h"
#include "test/support/process.h"

namespace farleaf {
namespace {

client::Tree CreateTree(client::Client& client, const std::string& name) {
  client::TreeSpec spec;
  spec.name = name;
  spec.layout = client::TreeLayout::kBytes;
  auto tree = client.CreateTree(spec);
  FARLEAF_CHECK(tree.ok(), tree.status());
  return *tree;
}

// ---- a full pool ---------------------------------------------------------------------------------

struct FullPoolTest : ::testing::TestWithParam<std::string> {
  ProcessCluster cluster{{.fabric = GetParam(), .region = "4MiB", .chunk = "64KiB"}};
  void SetUp() override { cluster.StartMemoryServers(); }
  void TearDown() override {
    const Ended check = cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "check"});
    EXPECT_EQ(check.code, 0) << check.output;
    cluster.StopMemoryServers();
  }
  static void ExpectNamesTheServers(const std::string& text) {
    for (const char* part : {"the pool is full", "memory server 0: ", "memory server 1: "}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
};

TEST_P(FullPoolTest, IsNamedByYcsbAndStillReadRight) {
  std::vector<std::string> flags{"--target", cluster.pool_target(), "-p", "farleaf.keys=bytes",
                                 "-p",       "fieldcount=1",        "-p", "fieldlength=100",
                                 "-p",       "operationcount=2000", "-p", "readproportion=0.5",
                                 "-p",       "updateproportion=0.5"};
  auto load = flags;
  load.insert(load.end(), {"--phase", "load", "-p", "recordcount=1000000"});
  const Ended loaded = cluster.Run("ycsb", load);
  EXPECT_EQ(loaded.code, 1) << loaded.output;
  ExpectNamesTheServers(loaded.output);
  // In a region of 4 MiB there is room for more than these; an update of a value that is inline needs no more room.
  flags.insert(flags.end(), {"--phase", "run", "-p", "recordcount=5000"});
  const Ended run = cluster.Run("ycsb", flags);
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(run.says("[READ], Return=OK")) << run.output;
}

TEST_P(FullPoolTest, IsToldToClientsAndHasRoomAgainAfterDeletes) {
  ComputeServerProcess server = cluster.StartComputeServer();
  auto connected = client::Client::Connect(server.url());
  ASSERT_TRUE(connected.ok()) << connected.status();
  client::Tree tree = CreateTree(**connected, "t");
  const auto value_of = [](int i) { return std::to_string(i) + std::string(20'000, 'v'); };
  int stored = 0;
  for (;; ++stored) {
    ASSERT_LT(stored, 1'000) << "a pool of 8 MiB took 20 MB";
    const auto put = tree.Put("key" + std::to_string(stored), value_of(stored));
    if (put.ok()) continue;
    EXPECT_EQ(put.status().code(), StatusCode::kResourceExhausted) << put.status();
    ExpectNamesTheServers(std::string(put.status().message()));
    break;
  }
  EXPECT_GT(stored, 200);
  for (int i = 0; i < stored; ++i) {
    const auto value = tree.Get("key" + std::to_string(i));
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(*value, value_of(i)) << i;
  }
  EXPECT_FALSE(tree.Get("key" + std::to_string(stored))->has_value());
  for (int i = 0; i < stored; i += 2) {
    const auto deleted = tree.Delete("key" + std::to_string(i));
    ASSERT_TRUE(deleted.ok()) << deleted.status();
    EXPECT_TRUE(*deleted);
  }
  for (int i = 0; i < stored / 4; ++i) {
    const auto put = tree.Put("new" + std::to_string(i), value_of(i));
    ASSERT_TRUE(put.ok()) << i << ": " << put.status();
  }
  server.process->Signal(SIGTERM);
  const Ended ended = cluster.WaitFor(*server.process);
  EXPECT_EQ(ended.code, 0) << ended.output;
}

INSTANTIATE_TEST_SUITE_P(Fabric, FullPoolTest, ::testing::ValuesIn(dsm::ProcessFabricNames()),
                         [](const auto& each) { return each.param; });

// ---- values --------------------------------------------------------------------------------------

TEST(LimitsTest, ValuesUpTo16MiBAreStoredAndLargerOnesRefused) {
  ProcessCluster cluster({.memory_servers = 1, .region = "128MiB"});
  cluster.StartMemoryServers();
  ComputeServerProcess server = cluster.StartComputeServer();
  auto connected = client::Client::Connect(server.url());
  ASSERT_TRUE(connected.ok()) << connected.status();
  client::Tree tree = CreateTree(**connected, "t");
  const client::CallOptions patient{.deadline_ms = 60'000};
  const std::string largest(16 << 20, 'x');
  const auto put = tree.Put("k", largest, patient);
  ASSERT_TRUE(put.ok()) << put.status();
  const auto read = tree.Get("k", patient);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(*read == largest);
  const auto refused = tree.Put("k", largest + "x", patient);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << refused.status();
  EXPECT_NE(refused.status().message().find("16777217"), std::string::npos) << refused.status();
  EXPECT_NE(refused.status().message().find("16777216"), std::string::npos) << refused.status();
  const auto long_key = tree.Put(std::string(1025, 'k'), "v");
  EXPECT_EQ(long_key.status().code(), StatusCode::kInvalidArgument) << long_key.status();
  EXPECT_NE(long_key.status().message().find("1024"), std::string::npos) << long_key.status();
  EXPECT_TRUE(tree.Put("l", "v").ok());
}

// ---- ends ----------------------------------------------------------------------------------------

TEST(EndTest, NothingIsLeftBehind) {
  for (const std::string& fabric : dsm::ProcessFabricNames()) {
    ProcessCluster cluster({.fabric = fabric, .bootstrap = Bootstrap::kMemcached});
    cluster.StartMemoryServers();
    const std::string client_socket = cluster.File("clients.sock");
    ComputeServerProcess server = cluster.StartComputeServer({"--unix-socket", client_socket});
    auto directory = dsm::OpenDirectory(cluster.bootstrap_url());
    ASSERT_TRUE(directory.ok()) << directory.status();
    EXPECT_EQ((*directory)->List()->size(), 2u);
    EXPECT_TRUE(std::filesystem::exists(client_socket));
    const auto connected = client::Client::Connect("farleaf+unix:" + client_socket);
    ASSERT_TRUE(connected.ok()) << connected.status();
    // An idle client keeps no server from its end.
    server.process->Signal(SIGINT);
    const Ended ended = cluster.WaitFor(*server.process);
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_FALSE(std::filesystem::exists(client_socket));
    cluster.StopMemoryServers();
    EXPECT_FALSE(std::filesystem::exists(cluster.socket(0)));
    EXPECT_FALSE(std::filesystem::exists(cluster.socket(1)));
    EXPECT_TRUE((*directory)->List()->empty());
  }
}

struct InterruptTest : ::testing::TestWithParam<int> {};

TEST_P(InterruptTest, YcsbPrintsTheResultsSoFarAndExitsWith130) {
  ProcessCluster cluster({});
  cluster.StartMemoryServers();
  auto ycsb = cluster.Start("ycsb", {"--target",
                                     cluster.pool_target(),
                                     "-p",
                                     "recordcount=2000",
                                     "-p",
                                     "operationcount=1000000000",
                                     "-p",
                                     "readproportion=0.5",
                                     "-p",
                                     "updateproportion=0.5",
                                     "-p",
                                     "farleaf.keys=fixed8",
                                     "--phase",
                                     "load,run",
                                     "--threads",
                                     "2",
                                     "--in-flight",
                                     "4",
                                     "--status-interval",
                                     "0.1",
                                     "--json",
                                     cluster.File("result.json")});
  ASSERT_TRUE(ycsb->WaitForOutput("ycsb: run ")) << ycsb->Output();  // its progress
  ycsb->Signal(GetParam());
  const Ended ended = cluster.WaitFor(*ycsb);
  EXPECT_EQ(ended.code, 130) << ended.output;
  EXPECT_TRUE(ended.says("# phase run")) << ended.output;
  EXPECT_TRUE(ended.says("[OVERALL], Interrupted, 1")) << ended.output;
  EXPECT_TRUE(ended.says("[READ], RoundTrips/op, 1.0")) << ended.output;
  const auto overall = cluster.Json("result.json")["phases"]["run"]["overall"];
  EXPECT_EQ(overall["interrupted"], true);
  EXPECT_EQ(overall["failed"], false);
  EXPECT_GT(overall["count"].get<uint64_t>(), 0u);
  // It left the pool in good order.
  const Ended check = cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "check"});
  EXPECT_EQ(check.code, 0) << check.output;
  cluster.StopMemoryServers();
}

INSTANTIATE_TEST_SUITE_P(Signal, InterruptTest, ::testing::Values(SIGTERM, SIGINT),
                         [](const auto& each) {
                           return std::string(each.param == SIGTERM ? "SIGTERM" : "SIGINT");
                         });

}  // namespace
}  // namespace farleaf
