// Compute servers killed with SIGKILL at random moments under workload a, with deletes: nothing that was
// acknowledged is lost, nobody else waits for longer than a bound, the pool stays whole, and what the
// dead held comes back.
//
// The bound: a dead owner's lock is taken over by whoever waits for it when the page's memory server has
// confirmed the fence: at once on shm, where the end of a process is seen, else when the lease has run
// out (lease_ms, and a fifth of it until the memory server looks). The recovery of a page is a few round
// trips. The test's bound has room for a busy machine besides.
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "test/support/mixed_load.h"
#include "test/support/process_client.h"
#include "test/support/test_scale.h"

namespace farleaf {
namespace {

constexpr int kLeaseMs = 3'000;
constexpr uint64_t kBoundMs = 20'000;
// Of operations sent to the victim: its client tries to reach it again for as long.
constexpr uint64_t kVictimDeadlineMs = 4'000;
constexpr int kPatienceMs = 60'000;

struct KillTest : ::testing::TestWithParam<std::string> {
  ProcessCluster cluster{{.fabric = GetParam(), .chunk = "64KiB", .lease_ms = kLeaseMs}};

  void SetUp() override { cluster.StartMemoryServers(); }

  static std::unique_ptr<client::Client> Connect(const ComputeServerProcess& server) {
    return ConnectTo(server, kBoundMs);
  }
  static client::Tree Open(client::Client& client) {
    auto tree = client.OpenTree("tested");
    FARLEAF_CHECK(tree.ok(), tree.status());
    return *tree;
  }
};

TEST_P(KillTest, WhatWasAcknowledgedSurvivesAndNobodyElseWaitsForLong) {
  const uint64_t rounds = test::Amount{1, 2, 100};
  Random random(20'261);
  SCOPED_TRACE("seed 20261");
  ComputeServerProcess survivor = cluster.StartComputeServer();
  auto survivor_client = Connect(survivor);
  client::Tree tree = CreateTree(*survivor_client);
  MixedLoad others({.seed = random.Next(), .owner = 0, .deadline_ms = kBoundMs});
  MixedLoad killed({.seed = random.Next(), .owner = 1, .deadline_ms = kVictimDeadlineMs});

  uint64_t round = 0;
  for (; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    ComputeServerProcess victim = cluster.StartComputeServer();
    const std::string id = victim.Id();
    auto victim_client = Connect(victim);
    others.Start(tree, MixedLoad::OnFailure::kGoOn);
    killed.Start(Open(*victim_client), MixedLoad::OnFailure::kEnd);
    const uint64_t kill_at = killed.acknowledged() + 200 + random.Below(4'000);
    while (killed.running() && killed.acknowledged() < kill_at) std::this_thread::yield();
    EXPECT_TRUE(killed.running());
    victim.process->Signal(SIGKILL);
    ASSERT_EQ(cluster.WaitFor(*victim.process).code, 128 + SIGKILL);
    while (killed.running()) std::this_thread::yield();
    killed.Stop();
    EXPECT_FALSE(killed.TakeFailures().empty());
    // The others go on beside what is recovered, and write to every leaf that the dead had locked.
    killed.ReadAll(tree);
    killed.WriteAll(tree);
    killed.ReadAll(tree);
    others.Stop();
    for (MixedLoad* load : {&others, &killed}) {
      for (const Status& failure : load->TakeFailures()) ADD_FAILURE() << failure;
    }
    EXPECT_EQ(others.wrong() + killed.wrong(), "");

    const Ended recovered = cluster.RecoverMember(id);
    ASSERT_EQ(recovered.code, 0) << recovered.output;
    const Ended check = cluster.Control({"check"});
    EXPECT_EQ(check.code, 0) << check.output;
  }
  EXPECT_LE(others.longest_wait_ms(), kBoundMs);
  std::printf("%s: %llu kills, %llu operations acknowledged, the longest wait of others %llu ms\n",
              GetParam().c_str(), static_cast<unsigned long long>(round),
              static_cast<unsigned long long>(others.acknowledged() + killed.acknowledged()),
              static_cast<unsigned long long>(others.longest_wait_ms()));
  survivor.process->Signal(SIGTERM);
  const Ended ended = cluster.WaitFor(*survivor.process, kPatienceMs);
  EXPECT_EQ(ended.code, 0) << ended.output;
  cluster.StopMemoryServers();
}

INSTANTIATE_TEST_SUITE_P(Fabric, KillTest, ::testing::ValuesIn(dsm::ProcessFabricNames()),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace farleaf
