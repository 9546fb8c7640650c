// Clients of a ring that are killed: processes, in the midst of what they do.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "test/support/await.h"
#include "test/support/mixed_load.h"
#include "test/support/process.h"
#include "test/support/process_client.h"

namespace farleaf {
namespace {

struct RingProcessTest : ::testing::Test {
  ProcessCluster cluster{{.memory_servers = 1}};
  const std::string socket = cluster.File("native.sock"), ring_url = "farleaf+ring:" + socket;

  static client::Options Patient() {
    client::Options options;
    options.deadline_ms = options.connect_timeout_ms = kPatienceMs;
    return options;
  }
  std::unique_ptr<ChildProcess> StartScans() {
    return cluster.Start(
        "ycsb",
        {"--target", ring_url, "--in-flight", "16", "-p", "farleaf.keys=bytes", "-p",
         "recordcount=1000", "-p", "operationcount=100000000", "-p", "readproportion=0", "-p",
         "updateproportion=0.5", "-p", "scanproportion=0.5", "-p", "farleaf.allow_errors=true"});
  }
  /// Rings that the server has mapped.
  static size_t RingsOf(const ChildProcess& server) {
    std::ifstream maps("/proc/" + std::to_string(server.pid()) + "/maps");
    size_t rings = 0;
    for (std::string line; std::getline(maps, line);) {
      rings += line.find("farleaf-ring") != std::string::npos;
    }
    return rings;
  }
  static uint64_t Counter(client::Client& client, const std::string& name) {
    const auto text = client.ServerStats();
    FARLEAF_CHECK(text.ok(), text.status());
    const size_t at = ("\n" + *text).find("\n" + name + " ");
    return at == std::string::npos ? 0 : std::stoull(text->substr(at + name.size() + 1));
  }
  template <typename Condition>
  static bool Await(Condition condition) {
    return test::Await(condition, kPatienceMs);
  }
};

TEST_F(RingProcessTest, KilledClientsLeaveTheServerToOthersAndTheirRingsComeBack) {
  constexpr int kRounds = 4;
  cluster.StartMemoryServers();
  const auto server = cluster.StartComputeServer({"--unix-socket", socket});
  const Ended loaded =
      cluster.Run("ycsb", {"--target", ring_url, "--phase", "load", "-p", "farleaf.keys=bytes",
                           "-p", "recordcount=1000", "-p", "farleaf.operation_timeout_ms=60000"});
  ASSERT_EQ(loaded.code, 0) << loaded.output;
  const auto other = *client::Client::Connect(ring_url, Patient());
  const auto tree = CreateTree(*other);
  MixedLoad load({.owners = 1, .keys = 200, .deadline_ms = kPatienceMs});
  load.Start(tree, MixedLoad::OnFailure::kEnd);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t scans = Counter(*other, "scan.count");
    const auto one = StartScans(), two = StartScans();
    ASSERT_TRUE(Await([&] { return RingsOf(*server.process) == 3; })) << one->Output();
    ASSERT_TRUE(Await([&] { return Counter(*other, "scan.count") > scans + 20; })) << one->Output();
    one->Signal(SIGKILL);
    two->Signal(SIGKILL);
    EXPECT_EQ(one->Wait(), 128 + SIGKILL);
    EXPECT_EQ(two->Wait(), 128 + SIGKILL);
    EXPECT_TRUE(Await([&] { return RingsOf(*server.process) == 1; }));
    EXPECT_TRUE(Await([&] { return Counter(*other, "connections.open") == 1; }));
    const uint64_t before = load.acknowledged();
    EXPECT_TRUE(Await([&] { return load.acknowledged() > before + 100; })) << "others are served";
  }
  load.Stop();
  EXPECT_EQ(load.wrong(), "");
  for (const Status& failure : load.TakeFailures()) ADD_FAILURE() << failure;
}

}  // namespace
}  // namespace farleaf
