// What servers cost with nothing to do: the processor time of the shipped programs, as the kernel counts it.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "test/support/process.h"
#include "test/support/process_client.h"
#include "test/support/text_client.h"

namespace farleaf {
namespace {

/// User and system time of all its threads so far.
double CpuSeconds(const ChildProcess& process) {
  std::ifstream file("/proc/" + std::to_string(process.pid()) + "/stat");
  std::string text;
  std::getline(file, text);
  // Behind the program's name, in parentheses: state is the first field, utime the 12th, stime the 13th.
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  uint64_t user = 0, kernel = 0;
  fields >> user >> kernel;
  EXPECT_TRUE(fields.good()) << text;
  return static_cast<double>(user + kernel) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

struct IdleProcessTest : ::testing::TestWithParam<std::string> {
  static constexpr int kSeconds = 4;
  static constexpr double kShareMax = 0.05;  // of one core, all upkeep, leases and timers included

  /// With all of them idle for some seconds.
  static void ExpectIdle(
      const std::vector<std::pair<std::string, const ChildProcess*>>& processes) {
    // What is left to be done behind the last request is done within two seconds.
    std::this_thread::sleep_for(std::chrono::seconds(3));
    std::vector<double> before;
    for (const auto& [name, process] : processes) before.push_back(CpuSeconds(*process));
    std::this_thread::sleep_for(std::chrono::seconds(kSeconds));
    for (size_t i = 0; i < processes.size(); ++i) {
      const double spent = CpuSeconds(*processes[i].second) - before[i];
      EXPECT_LT(spent, kShareMax * kSeconds) << processes[i].first;
      ::testing::Test::RecordProperty(processes[i].first + " ms", static_cast<int>(spent * 1'000));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Fabrics, IdleProcessTest, ::testing::Values("shm", "tcp"),
                         [](const auto& fabric) { return fabric.param; });

// All front ends, clients that are connected and were served, a ring among them.
TEST_P(IdleProcessTest, ServersThatHaveServedTakeNextToNoProcessorTime) {
  ProcessCluster cluster({.fabric = GetParam(), .lease_ms = 3'000});
  cluster.StartMemoryServers();
  const std::string memcached = FreeAddress(), redis = FreeAddress(),
                    socket = cluster.File("native.sock");
  const auto server = cluster.StartComputeServer(
      {"--memcached-listen", memcached, "--redis-listen", redis, "--unix-socket", socket});
  const auto client = ConnectTo(server, kPatienceMs);
  client::Options patient;
  patient.deadline_ms = patient.connect_timeout_ms = kPatienceMs;
  auto ring = client::Session::Connect("farleaf+ring:" + socket, patient);
  ASSERT_TRUE(ring.ok() && (*ring)->Ping().ok()) << ring.status();
  auto tree = CreateTree(*client);
  for (int i = 0; i < 2'000; ++i) ASSERT_TRUE(tree.Put(std::to_string(i), "value").ok());
  test::TextClient text("memcached://" + memcached), resp("redis://" + redis);
  EXPECT_EQ(text.Ask("set a 0 0 1\r\nx\r\n"), "STORED\r\n");
  EXPECT_EQ(resp.AskRedis("GET a\r\n"), "$1\r\nx\r\n");
  ExpectIdle({{"compute server", server.process.get()},
              {"memory server 0", &cluster.memory_server(0)},
              {"memory server 1", &cluster.memory_server(1)}});
  EXPECT_EQ(resp.AskRedis("GET a\r\n"), "$1\r\nx\r\n");
}

}  // namespace
}  // namespace farleaf
