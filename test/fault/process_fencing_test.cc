// Compute servers and tools that an operator cuts off with farleafctl in the middle of their work: they
// end, or fail every request, with a reason, and the pool serves the others.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "test/support/process_client.h"
#include "test/support/put_load.h"

namespace farleaf {
namespace {

/// Of what waits for a page that a process locked which is no more.
constexpr uint64_t kLockedDeadlineMs = 1'000;

struct FencingTest : ::testing::TestWithParam<std::string> {
  // Chunks are small, so that even a small tree lies on both memory servers. Without leases nobody
  // finds out by itself that it was cut off.
  ProcessCluster cluster{{.fabric = GetParam(), .chunk = "64KiB", .lease_ms = 0}};

  void SetUp() override { cluster.StartMemoryServers(); }
  /// Whether to be cut off is to be killed.
  bool kills() const { return GetParam() == "shm"; }

  Ended Control(std::vector<std::string> arguments) {
    return cluster.Control(std::move(arguments));
  }
  std::string LiveIds() {
    const Ended members = Control({"members", "--json"});
    EXPECT_EQ(members.code, 0) << members.output;
    std::string ids;
    for (const auto& member : nlohmann::json::parse(members.output)) {
      ids += (ids.empty() ? "" : ",") + std::to_string(member["id"].get<int>());
    }
    return ids;
  }
  void CutOff(const std::string& id) {
    const Ended cut = Control({"cut-off", id});
    EXPECT_EQ(cut.code, 0) << cut.output;
    for (const std::string server : {"0", "1"}) {
      EXPECT_TRUE(cut.says("memory server " + server + ": compute server " + id +
                           " (incarnation 1) " + "is cut off\n"))
          << cut.output;
      EXPECT_TRUE(cluster.memory_server(std::stoi(server))
                      .WaitForOutput("memory server " + server + " cuts off compute server " + id))
          << cluster.memory_server(std::stoi(server)).Output();
    }
  }
  /// Who is cut off and lives tells of it at once.
  std::unique_ptr<client::Client> Connect(const ComputeServerProcess& server) const {
    return ConnectTo(server, kills() ? kLockedDeadlineMs : kPatienceMs);
  }
};

bool Says(const Status& status, std::string_view text) {
  return status.message().find(text) != std::string_view::npos;
}

TEST_P(FencingTest, AComputeServerIsCutOffUnderLoadAndTheOthersServe) {
  ComputeServerProcess cut = cluster.StartComputeServer();
  ComputeServerProcess other = cluster.StartComputeServer();
  auto client = Connect(cut), other_client = Connect(other);
  client::Tree tree = CreateTree(*client);
  auto other_tree = other_client->OpenTree("tested");
  ASSERT_TRUE(other_tree.ok()) << other_tree.status();
  PutLoad load(tree);
  ASSERT_TRUE(load.WaitForAcknowledged(4'000)) << cut.process->Output();
  CutOff(cut.Id());
  ASSERT_TRUE(load.WaitForFailed());
  const auto at_the_cut = PutLoad::GetAll(*other_tree);
  if (kills()) {
    EXPECT_EQ(cluster.WaitFor(*cut.process, kPatienceMs).code, kKilled);
  } else {
    // It goes on serving, and says each time why it cannot.
    ASSERT_TRUE(load.WaitForFailed(load.failed() + 200));
    const auto refused = tree.Get(PutLoad::KeyName(0), {.deadline_ms = 30'000});
    EXPECT_EQ(refused.status().code(), StatusCode::kFenced) << refused.status();
    EXPECT_TRUE(
        Says(refused.status(), cut.Name() + " (incarnation 1) was cut off by memory server"))
        << refused.status();
  }
  load.Stop();
  if (!kills()) {
    for (const Status& failure : load.failures()) {
      EXPECT_TRUE(Says(failure, " was cut off by memory server ")) << failure;
    }
    cut.process->Signal(SIGTERM);
    const Ended ended = cluster.WaitFor(*cut.process, kPatienceMs);
    EXPECT_EQ(ended.code, 1) << ended.output;
    EXPECT_TRUE(ended.says("the pool was not left in good order: ")) << ended.output;
    EXPECT_TRUE(ended.says(" was cut off by memory server ")) << ended.output;
  }
  // All is as it was at the cut, and can be written; what the one cut off had locked is taken over.
  const auto values = PutLoad::GetAll(*other_tree);
  for (int i = 0; i < PutLoad::kAllKeys; ++i) {
    const auto& value = values[static_cast<size_t>(i)];
    const auto& before = at_the_cut[static_cast<size_t>(i)];
    ASSERT_TRUE(value.ok() && before.ok()) << value.status() << before.status();
    EXPECT_EQ(*value, *before) << PutLoad::KeyName(i);
    EXPECT_TRUE(load.MayHold(i, *value)) << load.Describe(i) << ", read " << value->value_or("-");
  }
  std::vector<std::future<Result<bool>>> puts;
  for (int i = 0; i < PutLoad::kAllKeys; ++i) {
    puts.push_back(other_tree->PutAsync(PutLoad::KeyName(i), PutLoad::ValueOf(1'000'000),
                                        {.deadline_ms = 30'000}));
  }
  for (auto& put : puts) {
    const auto outcome = put.get();
    EXPECT_TRUE(outcome.ok()) << outcome.status();
  }
  // Its successor is another compute server, and is let in.
  ComputeServerProcess successor = cluster.StartComputeServer({}, cut.address);
  EXPECT_NE(successor.Name(), cut.Name());
  auto successor_client = Connect(successor);
  const auto trees = successor_client->ListTrees();
  EXPECT_TRUE(trees.ok()) << trees.status();
  for (ComputeServerProcess* each : {&other, &successor}) {
    each->process->Signal(SIGTERM);
    const Ended ended = cluster.WaitFor(*each->process, kPatienceMs);
    EXPECT_EQ(ended.code, 0) << ended.output;
  }
  // Its id stays taken until it is recovered; then nothing is locked, held or lost.
  const Ended recovered = cluster.RecoverMember(cut.Id());
  EXPECT_EQ(recovered.code, 0) << recovered.output;
  EXPECT_EQ(LiveIds(), "");
  const Ended check = Control({"check"});
  EXPECT_EQ(check.code, 0) << check.output;
  cluster.StopMemoryServers();
}

TEST_P(FencingTest, AStoppedComputeServerIsCutOffAndFindsOutWhenItGoesOn) {
  ComputeServerProcess cut = cluster.StartComputeServer();
  auto client = Connect(cut);
  client::Tree tree = CreateTree(*client);
  PutLoad load(tree);
  ASSERT_TRUE(load.WaitForAcknowledged(1'000)) << cut.process->Output();
  cut.process->Signal(SIGSTOP);
  CutOff(cut.Id());
  EXPECT_EQ(cut.process->running(), !kills());
  cut.process->Signal(SIGCONT);
  ASSERT_TRUE(load.WaitForFailed());
  load.Stop();
  if (kills()) {
    EXPECT_EQ(cluster.WaitFor(*cut.process, kPatienceMs).code, kKilled);
  } else {
    const auto refused = tree.Put("k", "v", {.deadline_ms = 30'000});
    EXPECT_EQ(refused.status().code(), StatusCode::kFenced) << refused.status();
  }
  cluster.StopMemoryServers();
}

TEST_P(FencingTest, YcsbThatIsCutOffEndsWithTheReason) {
  auto ycsb =
      cluster.Start("ycsb", {"--target", cluster.pool_target(), "-P",
                             std::string(FARLEAF_WORKLOADS) + "/workloada", "--phase", "load,run",
                             "-p", "recordcount=20000", "-p", "operationcount=1000000000", "-p",
                             "farleaf.keys=fixed8", "--threads", "2", "--in-flight", "8"});
  ASSERT_TRUE(ycsb->WaitForOutput("# phase load")) << ycsb->Output();
  const std::string id = LiveIds();
  CutOff(id);
  const Ended ended = cluster.WaitFor(*ycsb, kPatienceMs);
  EXPECT_EQ(ended.code, kills() ? kKilled : 1) << ended.output;
  if (!kills()) {
    EXPECT_TRUE(
        ended.says("compute server " + id + " (incarnation 1) was cut off by memory server"))
        << ended.output;
  }
  const Ended trees = Control({"trees"});
  EXPECT_EQ(trees.code, 0) << trees.output;
  cluster.StopMemoryServers();
}

TEST_P(FencingTest, ControlListsAndCutsOffThroughPoolAndServer) {
  ComputeServerProcess server = cluster.StartComputeServer();
  const std::string id = server.Id();
  EXPECT_EQ(Control({"members"}).output,
            "  id  incarnation  state\n   " + id + "            1  live\n");
  const Ended json = cluster.Run("farleafctl", {"--server", server.url(), "members", "--json"});
  EXPECT_EQ(json.output, "[{\"id\": " + id +
                             ", \"incarnation\": 1, \"live\": true, \"fenced_by\": [], "
                             "\"watched_by\": [], \"silent_at\": []}]\n");
  // Nobody is harmed by what concerns others.
  EXPECT_EQ(Control({"cut-off", "0"}).code, 2);
  EXPECT_EQ(Control({"cut-off", "4096"}).code, 2);
  EXPECT_EQ(Control({"cut-off", "ten"}).code, 2);
  EXPECT_EQ(Control({"cut-off"}).code, 2);
  EXPECT_EQ(Control({"cut-off", id, "--incarnation", "0"}).code, 2);
  const Ended never = Control({"cut-off", "4000"});
  EXPECT_EQ(never.code, 3) << never.output;
  EXPECT_TRUE(never.says("compute server 4000 was never in this pool")) << never.output;
  EXPECT_EQ(Control({"cut-off", "4000", "--incarnation", "7"}).code, 0);
  auto client = Connect(server);
  EXPECT_TRUE(client->ListTrees().ok());
  // Through its own server, and twice.
  for (int time = 0; time < 2; ++time) {
    const Ended cut =
        time == 0 ? cluster.Run("farleafctl", {"--server", server.url(), "--json", "cut-off", id})
                  : Control({"--json", "cut-off", id});
    EXPECT_EQ(cut.code, 0) << cut.output;
    const auto told = nlohmann::json::parse(cut.output);
    EXPECT_EQ(told["incarnation"], 1);
    ASSERT_EQ(told["memory_servers"].size(), 2u);
    for (const auto& each : told["memory_servers"]) EXPECT_EQ(each["cut_off"], true);
  }
  EXPECT_FALSE(client->ListTrees().ok());
  cluster.StopMemoryServers();
}

INSTANTIATE_TEST_SUITE_P(Fabric, FencingTest, ::testing::ValuesIn(dsm::ProcessFabricNames()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace farleaf
