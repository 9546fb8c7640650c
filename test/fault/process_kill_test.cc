// Compute servers killed with SIGKILL at random moments under workload a, with deletes: nothing that was
// acknowledged is lost, nobody else waits for longer than a bound, the pool stays whole, and what the
// dead held comes back (kill_bounds.h).
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "test/fault/kill_bounds.h"
#include "test/support/mixed_load.h"
#include "test/support/process_client.h"
#include "test/support/test_scale.h"

namespace farleaf {
namespace {

// Of operations sent to the victim: its client tries to reach it again for as long.
constexpr uint64_t kVictimDeadlineMs = 4'000;

struct KillCase {
  std::string name;
  std::string fabric;
  client::TreeSpec tree = TestedTree();
  std::vector<std::string> flags = {};  ///< of compute servers
  test::Amount rounds{1, 1, 25};
};

/// Each of a compute server's flags that turn an option of its trees off.
std::vector<std::string> AllOff() {
  return {"--cache",
          "none",
          "--share-reads",
          "off",
          "--combine-writes",
          "off",
          "--hand-over",
          "off",
          "--value-hint-bytes",
          "0",
          "--value-list-bytes",
          "0",
          "--in-place",
          "off",
          "--scan-leaves-max",
          "1",
          "--placement",
          "hashed",
          "--small-write-backs",
          "off",
          "--back-off",
          "off",
          "--learn-splits",
          "off"};
}

std::vector<KillCase> KillCases() {
  std::vector<KillCase> cases;
  for (const std::string& fabric : dsm::ProcessFabricNames()) {
    cases.push_back({fabric, fabric, TestedTree(), {}, {1, 2, 100}});
  }
  const auto parted = TestedFixed8(client::LeafLayout::kParted),
             sorted = TestedFixed8(client::LeafLayout::kSorted);
  cases.push_back({"shm_parted", "shm", parted});
  cases.push_back({"shm_parted_all_off", "shm", parted, AllOff()});
  cases.push_back({"tcp_sorted_all_off", "tcp", sorted, AllOff()});
  cases.push_back({"tcp_bytes_all_off", "tcp", TestedTree(), AllOff()});
  return cases;
}

struct KillTest : ::testing::TestWithParam<KillCase> {
  ProcessCluster cluster{{.fabric = GetParam().fabric, .chunk = "64KiB", .lease_ms = kLeaseMs}};

  void SetUp() override { cluster.StartMemoryServers(); }
  ComputeServerProcess StartComputeServer() { return cluster.StartComputeServer(GetParam().flags); }

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
  const uint64_t rounds = GetParam().rounds;
  const client::TreeLayout layout = GetParam().tree.layout;
  Random random(20'261);
  SCOPED_TRACE("seed 20261");
  ComputeServerProcess survivor = StartComputeServer();
  auto survivor_client = Connect(survivor);
  client::Tree tree = CreateTree(*survivor_client, GetParam().tree);
  MixedLoad others({.seed = random.Next(), .owner = 0, .deadline_ms = kBoundMs, .layout = layout});
  MixedLoad killed(
      {.seed = random.Next(), .owner = 1, .deadline_ms = kVictimDeadlineMs, .layout = layout});

  uint64_t round = 0;
  for (; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    ComputeServerProcess victim = StartComputeServer();
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
    killed.ReadAll(tree, kBoundMs);
    killed.WriteAll(tree, kBoundMs);
    killed.ReadAll(tree, kBoundMs);
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
              GetParam().name.c_str(), static_cast<unsigned long long>(round),
              static_cast<unsigned long long>(others.acknowledged() + killed.acknowledged()),
              static_cast<unsigned long long>(others.longest_wait_ms()));
  survivor.process->Signal(SIGTERM);
  const Ended ended = cluster.WaitFor(*survivor.process, kPatienceMs);
  EXPECT_EQ(ended.code, 0) << ended.output;
  cluster.StopMemoryServers();
}

INSTANTIATE_TEST_SUITE_P(Fabric, KillTest, ::testing::ValuesIn(KillCases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace farleaf
