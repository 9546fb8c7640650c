// The verbs fabric on a machine without an RDMA device: each program says so, with the remedy, and ends.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "test/support/process.h"

namespace farleaf {
namespace {

bool MachineHasRdmaDevice() {
  std::error_code none;
  return std::filesystem::directory_iterator("/sys/class/infiniband", none) !=
         std::filesystem::directory_iterator();
}

struct WithoutRdmaTest : ::testing::Test {
  void SetUp() override {
    if (MachineHasRdmaDevice()) GTEST_SKIP() << "this machine has an RDMA device";
  }
  static void ExpectSays(const Ended& ended, const std::vector<std::string>& says) {
    for (const std::string& text : says) {
      EXPECT_TRUE(ended.says(text)) << "says nothing of " << text << ":\n" << ended.output;
    }
  }
};

TEST_F(WithoutRdmaTest, AMemoryServerEndsWithTheRemedy) {
  ProcessCluster cluster({.bootstrap = Bootstrap::kMemcached, .memory_servers = 1});
  auto run = [&cluster](std::vector<std::string> more) {
    more.insert(more.begin(), {"--bootstrap", cluster.bootstrap_url(), "--id", "0", "--size",
                               "16MiB", "--fabric", "verbs"});
    return cluster.Run("memory_server", more);
  };
  const Ended any = run({"--listen", "127.0.0.1:0"});
  EXPECT_TRUE(any.code == 1 || any.code == 2) << any.code << any.output;
  ExpectSays(any, {"RDMA device", "ibv_devices", "tcp"});
  const Ended chosen = run({"--listen", "0.0.0.0:0", "--insecure", "--rdma-device", "mlx5_0:1:3"});
  EXPECT_TRUE(chosen.code == 1 || chosen.code == 2) << chosen.code << chosen.output;
  ExpectSays(chosen, {"RDMA device", "ibv_devices", "tcp"});
  const Ended wrong = run({"--rdma-device", "mlx5_0:one"});
  EXPECT_EQ(wrong.code, 2) << wrong.output;
  ExpectSays(wrong, {"rdma_device", "'mlx5_0:one'", "DEVICE[:PORT[:GID INDEX]]"});
  // Nothing was announced, and the id is free for a fabric that this machine has.
  cluster.StartMemoryServers();
  cluster.StopMemoryServers();
}

TEST_F(WithoutRdmaTest, ClientsOfAPoolOnVerbsEndWithTheRemedy) {
  ProcessCluster cluster({.memory_servers = 1});
  std::ofstream(cluster.File("far")) << "cluster tested\n0 verbs:127.0.0.1:7471\n";
  const std::string far = "file:" + cluster.File("far");
  const std::vector<Ended> refused{
      cluster.Run("compute_server",
                  {"--bootstrap", far, "--listen", "127.0.0.1:0", "--join-wait-ms", "500"}),
      cluster.Run("ycsb", {"--target", "pool:" + far, "-p", "recordcount=1", "--phase", "load"}),
      cluster.Run("farleafctl", {"--pool", far, "--deadline-ms", "500", "status"})};
  for (const Ended& each : refused) {
    EXPECT_TRUE(each.code == 1 || each.code == 2) << each.code << each.output;
    ExpectSays(each, {"RDMA device", "ibv_devices", "tcp"});
    EXPECT_FALSE(each.says("gave up after")) << "no waiting mends that:\n" << each.output;
  }
}

}  // namespace
}  // namespace farleaf
