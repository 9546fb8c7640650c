// What the others see when one process dies: memory servers killed under load, compute servers
// stopped, killed and started again under load.
#include <gtest/gtest.h>

#include <future>

#include "test/support/process_client.h"
#include "test/support/put_load.h"

namespace farleaf {
namespace {

// Of the load: what a page that is locked by the dead costs it.
constexpr uint64_t kDeadlineMs = 1'000;

std::string WorkloadFile(char letter) {
  return std::string(FARLEAF_WORKLOADS) + "/workload" + letter;
}

struct FaultTest : ::testing::TestWithParam<std::string> {
  // Chunks are small, so that even a small tree lies on both memory servers.
  ProcessCluster cluster{{.fabric = GetParam(), .chunk = "64KiB"}};

  void SetUp() override { cluster.StartMemoryServers(); }

  static std::unique_ptr<client::Client> Connect(const ComputeServerProcess& server) {
    return ConnectTo(server, kDeadlineMs);
  }
};

// ---- memory servers ------------------------------------------------------------------------------

TEST_P(FaultTest, AMemoryServerKilledDuringYcsbIsNamedByIt) {
  auto ycsb = cluster.Start(
      "ycsb", {"--target", cluster.pool_target(), "-P", WorkloadFile('a'), "--phase", "load,run",
               "-p", "recordcount=20000", "-p", "operationcount=1000000000", "-p",
               "farleaf.keys=fixed8", "--threads", "2", "--in-flight", "8"});
  ASSERT_TRUE(ycsb->WaitForOutput("# phase load")) << ycsb->Output();
  cluster.KillMemoryServer(1);
  const Ended ended = cluster.WaitFor(*ycsb, kPatienceMs);
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_TRUE(ended.says("ycsb: run: ")) << ended.output;
  EXPECT_TRUE(ended.says("memory server 1 lost")) << ended.output;
  cluster.StopMemoryServers();
}

TEST_P(FaultTest, AMemoryServerKilledUnderAComputeServerIsNamedToItsClients) {
  ComputeServerProcess server = cluster.StartComputeServer();
  auto client = ConnectTo(server, kPatienceMs);  // a loss is told at once
  client::Tree tree = CreateTree(*client);
  PutLoad load(tree);
  ASSERT_TRUE(load.WaitForAcknowledged(2'000)) << server.process->Output();
  cluster.KillMemoryServer(1);
  ASSERT_TRUE(load.WaitForFailed());
  load.Stop();
  for (const Status& failure : load.failures()) {
    EXPECT_NE(failure.message().find("memory server 1 lost"), std::string::npos) << failure;
  }
  int right = 0, lost = 0;
  const auto values = PutLoad::GetAll(tree);
  for (int i = 0; i < PutLoad::kAllKeys; ++i) {
    const auto& value = values[static_cast<size_t>(i)];
    if (value.ok()) {
      ++right;
      EXPECT_TRUE(load.MayHold(i, *value)) << load.Describe(i) << ", read " << **value;
    } else {
      ++lost;
      EXPECT_EQ(value.status().code(), StatusCode::kUnavailable) << value.status();
      EXPECT_NE(value.status().message().find("memory server 1 lost"), std::string::npos)
          << value.status();
    }
  }
  EXPECT_GT(lost, 0);
  EXPECT_GT(right, 0);
  const Status ping = client->Ping();
  EXPECT_TRUE(ping.ok()) << ping;
  const auto trees = client->ListTrees();
  ASSERT_TRUE(trees.ok()) << trees.status();
  EXPECT_EQ(trees->size(), 1u);
  server.process->Signal(SIGTERM);
  const Ended ended = cluster.WaitFor(*server.process, kPatienceMs);
  // The pool cannot be left in good order: it is no more in good order.
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_TRUE(ended.says("the pool was not left in good order: ")) << ended.output;
  EXPECT_TRUE(ended.says("memory server 1 lost")) << ended.output;
  cluster.StopMemoryServers();
}

TEST_P(FaultTest, ARestartedMemoryServerIsNotTakenForTheOldOne) {
  ComputeServerProcess server = cluster.StartComputeServer();
  auto client = Connect(server);
  client::Tree tree = CreateTree(*client);
  {
    PutLoad load(tree);
    ASSERT_TRUE(load.WaitForAcknowledged(2'000)) << server.process->Output();
  }
  cluster.KillMemoryServer(1);
  cluster.StartMemoryServer(1);
  ASSERT_TRUE(cluster.memory_server(1).WaitForOutput(" serves "));
  // On shm the compute server reads the old memory until its watcher has noticed the death.
  int lost = 0;
  const MonotonicClock clock;
  const uint64_t patience_end_ns = clock.NowNs() + kPatienceMs * kNsPerMs;
  while (lost == 0 && clock.NowNs() < patience_end_ns) {
    for (const auto& value : PutLoad::GetAll(tree)) {
      if (value.ok()) {
        EXPECT_TRUE(value->has_value()) << "not found, though it was put";
        continue;
      }
      ++lost;
      EXPECT_NE(value.status().message().find("memory server 1 lost"), std::string::npos)
          << value.status();
    }
  }
  EXPECT_GT(lost, 0);
  // Nor by those who come later.
  const Ended late = cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "trees"});
  EXPECT_EQ(late.code, 1) << late.output;
  EXPECT_TRUE(late.says("memory server 1")) << late.output;
  EXPECT_TRUE(late.says("incarnation")) << late.output;
}

// ---- compute servers -----------------------------------------------------------------------------

TEST_P(FaultTest, AComputeServerStoppedUnderLoadAnswersOrFailsEachRequest) {
  ComputeServerProcess server = cluster.StartComputeServer();
  auto client = Connect(server);
  client::Tree tree = CreateTree(*client);
  PutLoad load(tree);
  ASSERT_TRUE(load.WaitForAcknowledged(2'000)) << server.process->Output();
  server.process->Signal(SIGTERM);
  const Ended ended = cluster.WaitFor(*server.process, kPatienceMs);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(ended.says("left the pool")) << ended.output;
  ASSERT_TRUE(load.WaitForFailed());
  load.Stop();
  for (const Status& failure : load.failures()) {
    if (failure.code() == StatusCode::kDeadlineExceeded) continue;  // it was never sent
    EXPECT_TRUE(failure.code() == StatusCode::kUnknown ||
                failure.code() == StatusCode::kUnavailable)
        << failure;
    EXPECT_NE(failure.message().find(server.address), std::string::npos) << failure;
  }
  // Another one finds all that was acknowledged, no lock that was left behind, and a whole tree.
  ComputeServerProcess second = cluster.StartComputeServer();
  auto second_client = ConnectTo(second, kPatienceMs);
  auto opened = second_client->OpenTree("tested");
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto values = PutLoad::GetAll(*opened);
  for (int i = 0; i < PutLoad::kAllKeys; ++i) {
    const auto& value = values[static_cast<size_t>(i)];
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(load.MayHold(i, *value)) << load.Describe(i) << ", read " << value->value_or("-");
    const auto put = opened->Put(PutLoad::KeyName(i), PutLoad::ValueOf(0));
    EXPECT_TRUE(put.ok()) << put.status();
  }
  second.process->Signal(SIGTERM);
  EXPECT_EQ(cluster.WaitFor(*second.process).code, 0);
  const Ended check = cluster.Run("farleafctl", {"--pool", cluster.bootstrap_url(), "check"});
  EXPECT_EQ(check.code, 0) << check.output;
  cluster.StopMemoryServers();
}

TEST_P(FaultTest, AComputeServerKilledAndRestartedUnderLoadLosesNothingAcknowledged) {
  ComputeServerProcess first = cluster.StartComputeServer();
  auto client = Connect(first);
  client::Tree tree = CreateTree(*client);
  PutLoad load(tree);
  ASSERT_TRUE(load.WaitForAcknowledged(4'000)) << first.process->Output();
  first.process->Signal(SIGKILL);
  ASSERT_EQ(cluster.WaitFor(*first.process).code, 128 + SIGKILL);
  const std::string dead = first.Name(), id = first.Id();
  ComputeServerProcess second = cluster.StartComputeServer({}, first.address);
  EXPECT_NE(second.Name(), dead);
  // The same client goes on by itself: a round of puts and more.
  ASSERT_TRUE(load.WaitForAcknowledged(2'000))
      << second.process->Output() << load.DescribeFailures();
  load.Stop();
  // Leases are long here: it is cut off by hand. (On shm its end was seen.)
  const Ended cut = cluster.Control({"cut-off", id});
  EXPECT_EQ(cut.code, 0) << cut.output;
  const Ended recovered = cluster.RecoverMember(id);
  EXPECT_EQ(recovered.code, 0) << recovered.output;
  const auto values = PutLoad::GetAll(tree);
  for (int i = 0; i < PutLoad::kAllKeys; ++i) {
    const auto& value = values[static_cast<size_t>(i)];
    ASSERT_TRUE(value.ok()) << value.status();
    EXPECT_TRUE(load.MayHold(i, *value)) << load.Describe(i) << ", read " << value->value_or("-");
  }
  std::vector<std::future<Result<bool>>> puts;
  for (int i = 0; i < PutLoad::kAllKeys; ++i) {
    puts.push_back(
        tree.PutAsync(PutLoad::KeyName(i), PutLoad::ValueOf(1'000'000), {.deadline_ms = 30'000}));
  }
  for (auto& put : puts) {
    const auto outcome = put.get();
    EXPECT_TRUE(outcome.ok()) << outcome.status();
  }
  const Ended check = cluster.Control({"check"});
  EXPECT_EQ(check.code, 0) << check.output;
  second.process->Signal(SIGTERM);
  const Ended ended = cluster.WaitFor(*second.process, kPatienceMs);
  EXPECT_EQ(ended.code, 0) << ended.output;
  cluster.StopMemoryServers();
}

INSTANTIATE_TEST_SUITE_P(Fabric, FaultTest, ::testing::ValuesIn(dsm::ProcessFabricNames()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace farleaf
