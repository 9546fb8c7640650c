// What is left when nodes of a simulated cluster are lost in a way that a test has chosen.
#include <gtest/gtest.h>

#include <string>

#include "test/support/cluster_under_test.h"

namespace farleaf::server::cluster {
namespace {

using Node = ClusterUnderTest::Node;

/// All but one node crash while nobody writes, and some time later that one, too. Of the region that it served all the time nothing is lost.
void LoseOneAfterAnother(ClusterUnderTest& tested) {
  SimulatedCluster& cluster = tested.cluster();
  ClusterClients& clients = tested.clients();
  tested.AwaitWhole();
  tested.RunTended(500);
  clients.SetPaused(true);
  tested.RunFor(100);
  const RegionEntry region = cluster.map().front();
  Node* const primary = cluster.PrimaryOf(region.id);
  ASSERT_NE(primary, nullptr);
  for (Node& each : cluster.nodes()) {
    if (each.sim && &each != primary) tested.Crash(each);
  }
  tested.RunTended(4 * SimulatedCluster::kSessionMs);
  ASSERT_TRUE(primary->sim && primary->regions && !primary->life_over);
  for (size_t client = 0; client < ClusterClients::kCount; ++client) {
    if (region.Covers(ClusterClients::FirstKeyOf(client))) clients.NoteOnDisk(client);
  }
  tested.Crash(*primary);
  clients.SetPaused(false);
  tested.AwaitWhole();
}

TEST(ClusterLossTest, WhoIsLeftAlonePutsOnTheDiskWhatOthersHad) {
  uint64_t alone = 0;
  for (uint64_t seed = 1; seed <= 6 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ClusterUnderTest tested(ClusterUnderTest::OptionsOf(seed));
    LoseOneAfterAnother(tested);
    EXPECT_EQ(tested.clients().counts().crashes_of_all, 0u);
    alone += tested.clients().counts().alone_crashes;
  }
  EXPECT_GT(alone, 0u);
}

}  // namespace
}  // namespace farleaf::server::cluster
