// Compute servers that die, or are silent for longer than their lease: memory servers cut them off by
// themselves, and whoever lives joins again.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "test/support/process_client.h"
#include "test/support/put_load.h"

namespace farleaf {
namespace {

// Short for a test, long for a process that only has to be scheduled.
constexpr int kShortLeaseMs = 2'000;

struct LeaseTest : ::testing::TestWithParam<std::string> {
  static bool kills() { return GetParam() == "shm"; }
  static ClusterOptions Options(int lease_ms) {
    return {.fabric = GetParam(), .chunk = "64KiB", .lease_ms = lease_ms};
  }
  template <typename Condition>
  static bool WaitUntil(const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }
  /// Whether both memory servers say that they have cut `id` off, as farleafctl shows it.
  static bool IsFenced(ProcessCluster& cluster, const std::string& id) {
    const Ended members =
        cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "members", "--json"});
    EXPECT_EQ(members.code, 0) << members.output;
    for (const auto& member : nlohmann::json::parse(members.output)) {
      if (std::to_string(member["id"].get<int>()) == id) return member["fenced_by"].size() == 2;
    }
    return false;
  }
  static std::unique_ptr<client::Client> Connect(const ComputeServerProcess& server) {
    return ConnectTo(server, 10'000);
  }
};

TEST_P(LeaseTest, AComputeServerThatIsKilledIsFencedByEveryMemoryServer) {
  // On shm the end of a process is seen, so that its lease need not run out.
  ProcessCluster cluster(Options(kills() ? 600'000 : kShortLeaseMs));
  cluster.StartMemoryServers();
  ComputeServerProcess dead = cluster.StartComputeServer();
  auto client = Connect(dead);
  client::Tree tree = CreateTree(*client);
  ASSERT_TRUE(tree.Put("k", "v").ok());
  EXPECT_FALSE(IsFenced(cluster, dead.Id()));
  dead.process->Signal(SIGKILL);
  EXPECT_EQ(cluster.WaitFor(*dead.process).code, kKilled);
  EXPECT_TRUE(WaitUntil([&] { return IsFenced(cluster, dead.Id()); }))
      << cluster.memory_server(0).Output();
  const Ended members = cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "members"});
  EXPECT_TRUE(members.says("fenced by memory server 0, 1")) << members.output;
  const std::string why = kills() ? "the process of " + dead.Name() +
                                        " (incarnation 1) has ended without leaving the pool"
                                  : dead.Name() + " (incarnation 1) has not renewed its lease for";
  for (const int server : {0, 1}) {
    const std::string log = cluster.memory_server(server).Output();
    EXPECT_NE(log.find(why), std::string::npos) << log;
  }
  ComputeServerProcess successor = cluster.StartComputeServer({}, dead.address);
  EXPECT_NE(successor.Name(), dead.Name());
  auto value = Connect(successor)->OpenTree("tested")->Get("k");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, "v");
}

TEST_P(LeaseTest, WhatADeadComputeServerHadLockedAndBegunIsTakenOver) {
  // Long enough that the one that lives is never late, however busy the machine is.
  ProcessCluster cluster(Options(kills() ? 600'000 : 3 * kShortLeaseMs));
  cluster.StartMemoryServers();
  ComputeServerProcess dead = cluster.StartComputeServer(), other = cluster.StartComputeServer();
  auto client = Connect(dead), other_client = Connect(other);
  client::Tree tree = CreateTree(*client);
  auto other_tree = other_client->OpenTree("tested");
  ASSERT_TRUE(other_tree.ok()) << other_tree.status();
  PutLoad load(tree);
  ASSERT_TRUE(load.WaitForAcknowledged(4'000)) << dead.process->Output();
  dead.process->Signal(SIGKILL);
  EXPECT_EQ(cluster.WaitFor(*dead.process).code, kKilled);
  ASSERT_TRUE(load.WaitForFailed());
  load.Stop();
  const auto values = PutLoad::GetAll(*other_tree);
  for (int i = 0; i < PutLoad::kAllKeys; ++i) {
    const auto& value = values[static_cast<size_t>(i)];
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(load.MayHold(i, *value)) << load.Describe(i) << ", read " << value->value_or("-");
  }
  std::vector<std::future<Result<bool>>> puts;
  for (int i = 0; i < PutLoad::kAllKeys; ++i) {
    puts.push_back(other_tree->PutAsync(PutLoad::KeyName(i), PutLoad::ValueOf(1'000'000),
                                        {.deadline_ms = kPatienceMs}));
  }
  for (auto& put : puts) {
    const auto outcome = put.get();
    EXPECT_TRUE(outcome.ok()) << outcome.status();
  }
  const Ended check = cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "check"});
  EXPECT_EQ(check.code, 0) << check.output;
}

TEST_P(LeaseTest, AMemoryServerThatWasStoppedForLongerThanTheLeaseCutsNobodyOff) {
  if (kills()) GTEST_SKIP() << "its memory serves, and words move, while it is stopped";
  ProcessCluster cluster(Options(kShortLeaseMs));
  cluster.StartMemoryServers();
  ComputeServerProcess server = cluster.StartComputeServer();
  cluster.memory_server(0).Signal(SIGSTOP);
  // Which a renewal says when it has waited for longer than the lease.
  EXPECT_TRUE(server.process->WaitForOutput("cannot renew its lease of"))
      << server.process->Output();
  cluster.memory_server(0).Signal(SIGCONT);
  EXPECT_TRUE(server.process->WaitForOutput("renews its lease at memory server 0 again"))
      << server.process->Output();
  const Ended members = cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "members"});
  EXPECT_FALSE(members.says("fenced")) << members.output << cluster.memory_server(0).Output();
  auto client = Connect(server);
  client::Tree tree = CreateTree(*client);
  EXPECT_TRUE(tree.Put("k", "v").ok());
  server.process->Signal(SIGTERM);
  const Ended ended = cluster.WaitFor(*server.process);
  EXPECT_EQ(ended.code, 0) << ended.output;
}

TEST_P(LeaseTest, AComputeServerThatLeavesIsNotFenced) {
  ProcessCluster cluster(Options(600'000));
  cluster.StartMemoryServers();
  ComputeServerProcess server = cluster.StartComputeServer();
  server.process->Signal(SIGTERM);
  EXPECT_EQ(cluster.WaitFor(*server.process).code, 0);
  const Ended members =
      cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "members", "--all"});
  EXPECT_TRUE(members.says("left")) << members.output;
  const std::string log = cluster.memory_server(0).Output();
  EXPECT_EQ(log.find("cuts off"), std::string::npos) << log;
  cluster.StopMemoryServers();
}

TEST_P(LeaseTest, AComputeServerThatWasStoppedForLongerThanItsLeaseJoinsAgainAndServes) {
  ProcessCluster cluster(Options(kShortLeaseMs));
  cluster.StartMemoryServers();
  ComputeServerProcess server = cluster.StartComputeServer();
  const std::string first_id = server.Id();
  auto client = Connect(server);
  client::Tree tree = CreateTree(*client);
  ASSERT_TRUE(tree.Put("k", "v").ok());
  const auto state = [&] {
    return cluster
        .Run("farleafctl", {"--pool", cluster.bootstrap_url(), "members", "--watch-ms", "1100"})
        .output;
  };
  EXPECT_TRUE(WaitUntil([&] { return state().ends_with(" live\n"); })) << state();
  server.process->Signal(SIGSTOP);
  // Silent first, unless this machine looks too late for that.
  const std::string silent = state();
  EXPECT_TRUE(silent.find("live, silent at memory server ") != std::string::npos ||
              silent.find("fenced by memory server") != std::string::npos)
      << silent;
  EXPECT_TRUE(WaitUntil([&] { return IsFenced(cluster, first_id); }))
      << cluster.memory_server(0).Output();
  if (kills()) {
    EXPECT_EQ(cluster.WaitFor(*server.process).code, kKilled);
    return;
  }
  server.process->Signal(SIGCONT);
  EXPECT_TRUE(
      server.process->WaitForOutput("dropping everything and joining again, since fenced: "))
      << server.process->Output();
  // The very same client: its connection was closed, and it connects again.
  Status last;
  EXPECT_TRUE(WaitUntil([&] {
    auto written = tree.Put("k2", "v2");
    last = written.status();
    return written.ok();
  })) << last
      << server.process->Output();
  for (const auto& [key, expected] : {std::pair("k", "v"), std::pair("k2", "v2")}) {
    Result<client::Value> value = Status::Unavailable("not asked");
    EXPECT_TRUE(WaitUntil([&] {
      value = tree.Get(key);
      return value.ok();
    })) << value.status();
    EXPECT_EQ(**value, expected);
  }
  EXPECT_TRUE(IsFenced(cluster, first_id));
  server.process->Signal(SIGTERM);
  const Ended ended = cluster.WaitFor(*server.process);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(ended.says("left the pool")) << ended.output;
}

TEST_P(LeaseTest, AComputeServerThatAnOperatorCutsOffJoinsAgain) {
  if (kills()) GTEST_SKIP() << "it is killed";
  ProcessCluster cluster(Options(600'000));
  cluster.StartMemoryServers();
  const std::string ready_file = cluster.File("ready");
  ComputeServerProcess server = cluster.StartComputeServer({"--ready-file", ready_file});
  const std::string first_id = server.Id();
  const Ended cut =
      cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "cut-off", first_id});
  EXPECT_EQ(cut.code, 0) << cut.output;
  ASSERT_TRUE(server.process->WaitForOutput("joining again")) << server.process->Output();
  EXPECT_TRUE(WaitUntil([&] { return std::ifstream(ready_file).good(); }))
      << server.process->Output();
  auto client = Connect(server);
  (void)CreateTree(*client);
  const Ended status = cluster.Run("farleafctl", {"--server", server.url(), "--json", "stats"});
  EXPECT_TRUE(status.says("\"pool.joins\": \"") && !status.says("\"pool.joins\": \"1\""))
      << status.output;
  // While a memory server is missing it cannot join, and still ends when it is asked to.
  const Ended members =
      cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "members", "--json"});
  std::string second_id;
  for (const auto& member : nlohmann::json::parse(members.output)) {
    if (member["fenced_by"].empty()) second_id = std::to_string(member["id"].get<int>());
  }
  ASSERT_FALSE(second_id.empty()) << members.output;
  EXPECT_EQ(
      cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "cut-off", second_id}).code, 0);
  cluster.KillMemoryServer(1);
  ASSERT_TRUE(server.process->WaitForOutput("to join: ")) << server.process->Output();
  server.process->Signal(SIGTERM);
  const Ended ended = cluster.WaitFor(*server.process);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_FALSE(ended.says("left the pool")) << ended.output;
}

TEST_P(LeaseTest, YcsbThatWasSilentEndsWithTheReason) {
  ProcessCluster cluster(Options(kShortLeaseMs));
  cluster.StartMemoryServers();
  auto ycsb =
      cluster.Start("ycsb", {"--target", cluster.pool_target(), "-P",
                             std::string(FARLEAF_WORKLOADS) + "/workloada", "--phase", "load,run",
                             "-p", "recordcount=20000", "-p", "operationcount=1000000000", "-p",
                             "farleaf.keys=fixed8", "--threads", "2", "--in-flight", "8"});
  ASSERT_TRUE(ycsb->WaitForOutput("# phase load")) << ycsb->Output();
  ycsb->Signal(SIGSTOP);
  EXPECT_TRUE(WaitUntil([&] { return IsFenced(cluster, "1"); }))
      << cluster.memory_server(0).Output();
  ycsb->Signal(SIGCONT);
  const Ended ended = cluster.WaitFor(*ycsb, kPatienceMs);
  EXPECT_EQ(ended.code, kills() ? kKilled : 1) << ended.output;
  EXPECT_EQ(ended.says("compute server 1 (incarnation 1) was cut off by memory server"), !kills())
      << ended.output;
}

INSTANTIATE_TEST_SUITE_P(Fabric, LeaseTest, ::testing::ValuesIn(dsm::ProcessFabricNames()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace farleaf
