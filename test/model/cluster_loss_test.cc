// What is left when nodes of a simulated cluster are lost in a way that a test has chosen.
#include <gtest/gtest.h>

#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "test/support/cluster_under_test.h"
#include "test/support/test_scale.h"

namespace farleaf::server::cluster {
namespace {

using index::lsm::Durability;
using Node = ClusterUnderTest::Node;

/// All but one node crash while nobody writes, and some time later that one, too. Of the region that it served all
/// the time nothing is lost.
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

// ---- A spare

SimulatedCluster::Options WithSpare(uint64_t seed) {
  struct Shape {
    size_t nodes;
    uint32_t replicas, min_in_sync;
  };
  constexpr Shape kShapes[] = {{4, 3, 1}, {4, 3, 2}, {3, 2, 1}};
  const Shape& shape = kShapes[seed % std::size(kShapes)];
  SimulatedCluster::Options options = ClusterUnderTest::OptionsOf(seed);
  options.nodes = shape.nodes;
  options.replicas = shape.replicas;
  options.min_in_sync = shape.min_in_sync;
  return options;
}

/// One region of a cluster with one node more than replicas.
class SpareUnderTest {
 public:
  explicit SpareUnderTest(const SimulatedCluster::Options& options) : tested_(options) {
    tested_.AwaitWhole();
    tested_.RunTended(500);
    region_ = cluster().map().front();
    for (Node& each : cluster().nodes()) {
      const bool backup = Contains(region_.in_sync, each.id) && each.id != region_.primary;
      if (backup) lost_ = each.id;
      if (!Contains(region_.in_sync, each.id)) spare_ = each.id;
    }
  }

  /// A backup is lost for good, and nobody does anything about it: the spare has to be filled, though its disk is
  /// slow, while all that clients ask for is done.
  void LoseBackup() {
    index::storage::SimStorage& disk =
        cluster().node(spare_).sim->storage(static_cast<uint32_t>(region_.id));
    ASSERT_TRUE(disk.ListFiles()->empty()) << "it has had a replica before";
    disk.SetSlowness(10);
    const uint64_t openings = clients().counts().openings;
    clients().SetCalm(true);
    tested_.Crash(cluster().node(lost_));
    for (uint64_t ms = 0; ms < kPatienceMs && !IsReplaced() && !tested_.Failed(); ms += kLookMs) {
      const uint64_t before = clients().counts().acknowledged;
      tested_.RunTended(kLookMs);
      if (Contains(Entry().filling, spare_)) {
        written_meanwhile_ += clients().counts().acknowledged - before;
      }
    }
    tested_.RunTended(300);
    clients().SetCalm(false);
    disk.SetSlowness(1);
    std::vector<NodeId> expected = region_.in_sync;
    Erase(&expected, lost_);
    Insert(&expected, spare_);
    EXPECT_EQ(Entry().in_sync, expected) << cluster().Describe();
    EXPECT_TRUE(tested_.IsWhole()) << cluster().Describe();
    EXPECT_EQ(Entry().primary, region_.primary);
    EXPECT_EQ(clients().counts().openings, openings) << "it was not served all the time";
  }

  /// All that had a replica before are lost, and the spare lives on.
  void LoseAllButTheSpare() {
    for (Node& each : cluster().nodes()) {
      if (each.sim && each.id != spare_) tested_.Crash(each);
    }
    EXPECT_EQ(clients().counts().crashes_of_all, 0u) << "something acknowledged was not asked for";
    AwaitSpare();
  }
  /// All are lost at once, and only the spare comes back: at once, when all seem to be there still.
  void LosePowerButForTheSpare() {
    tested_.LosePower();
    cluster().Start(spare_);
    AwaitSpare();
  }

  ClusterClients& clients() { return tested_.clients(); }
  uint64_t written_meanwhile() const { return written_meanwhile_; }

 private:
  static constexpr uint64_t kPatienceMs = 20'000, kLookMs = 5;

  SimulatedCluster& cluster() { return tested_.cluster(); }
  const RegionEntry& Entry() { return *cluster().EntryOf(region_.id); }
  bool IsReplaced() { return Contains(Entry().in_sync, spare_) && tested_.IsWhole(); }
  /// It serves, and what it has was looked at for each client; then the others come back.
  void AwaitSpare() {
    std::array<uint64_t, ClusterClients::kCount> before;
    for (size_t i = 0; i < before.size(); ++i) before[i] = clients().checked(i);
    const auto is_checked = [&] {
      for (size_t i = 0; i < before.size(); ++i) {
        if (clients().checked(i) == before[i]) return false;
      }
      return true;
    };
    for (uint64_t ms = 0; ms < kPatienceMs && !is_checked() && !tested_.Failed(); ms += kLookMs) {
      tested_.RunTended(kLookMs);
    }
    EXPECT_TRUE(is_checked()) << cluster().Describe();
    EXPECT_EQ(cluster().PrimaryOf(region_.id), &cluster().node(spare_)) << cluster().Describe();
    clients().SetPaused(false);
    tested_.AwaitWhole();
  }

  ClusterUnderTest tested_;
  RegionEntry region_;  // as it was before
  NodeId spare_ = membership::kNoNode, lost_ = membership::kNoNode;
  uint64_t written_meanwhile_ = 0;  // while the spare was filled
};

TEST(ClusterLossTest, ASpareIsFilledInThePlaceOfALostBackupAndHoldsAllThatIsAcknowledged) {
  uint64_t written_meanwhile = 0;
  for (uint64_t seed = 1; seed <= test::Amount{3, 12, 120} && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SpareUnderTest tested(WithSpare(seed));
    if (!HasFailure()) tested.LoseBackup();
    if (!HasFailure()) tested.LoseAllButTheSpare();
    written_meanwhile += tested.written_meanwhile();
  }
  std::printf("%lu writes acknowledged while spares were filled\n", written_meanwhile);
  EXPECT_GT(written_meanwhile, 0u);
}

// Nobody writes meanwhile, so that nothing is synced any more when it has been filled.
TEST(ClusterLossTest, ASpareThatWasJustFilledHasOnItsDiskWhatWasSyncedBefore) {
  for (uint64_t seed = 1; seed <= test::Amount{3, 6, 120} && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedCluster::Options options = WithSpare(seed);
    options.store.durability = Durability::kSynced;
    SpareUnderTest tested(options);
    tested.clients().SetPaused(true);
    if (!HasFailure()) tested.LoseBackup();
    if (!HasFailure()) tested.LosePowerButForTheSpare();
  }
}

// ---- A power loss

/// All that is acknowledged by now is in tables.
void FlushAll(ClusterUnderTest& tested) {
  tested.clients().SetPaused(true);
  tested.RunFor(100);
  for (const RegionEntry& region : tested.cluster().map()) {
    Node* const primary = tested.cluster().PrimaryOf(region.id);
    ASSERT_NE(primary, nullptr);
    const StoreUse use = primary->regions->Use(region.id);
    use.served()->store->FlushSoon();
  }
  tested.RunFor(1'000);
  for (size_t client = 0; client < ClusterClients::kCount; ++client) {
    tested.clients().NoteOnDisk(client);
  }
  tested.clients().SetPaused(false);
}

SimulatedCluster::Options OptionsOf(uint64_t seed, Durability durability) {
  SimulatedCluster::Options options = ClusterUnderTest::OptionsOf(seed);
  options.store.durability = durability;
  return options;
}

/// All nodes are lost at once, while clients write, and come back: one of them first, which may have given up to wait
/// for the others by then.
void LosePowerUnderLoad(ClusterUnderTest& tested) {
  tested.RunTended(tested.random().Below(500));
  tested.LosePower();
  tested.RunFor(tested.random().Below(2 * SimulatedCluster::kSessionMs));
  const auto first = 1 + tested.random().Below(tested.cluster().nodes().size());
  tested.cluster().Start(static_cast<NodeId>(first));
  tested.RunTended(tested.random().Below(8 * SimulatedCluster::kSessionMs));
  tested.AwaitWhole();
}

TEST(ClusterLossTest, APowerLossOfAllNodesTakesNothingThatIsSynced) {
  for (uint64_t seed = 1; seed <= test::Amount{2, 8, 100} && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ClusterUnderTest tested(OptionsOf(seed, Durability::kSynced));
    tested.AwaitWhole();
    for (int i = 0; i < 3 && !HasFailure(); ++i) LosePowerUnderLoad(tested);
  }
}

TEST(ClusterLossTest, APowerLossOfAllNodesTakesOfReplicatedWritesThoseOfTheLastMemtableOnly) {
  uint64_t acknowledged = 0, taken_back = 0;
  for (uint64_t seed = 1; seed <= test::Amount{2, 8, 100} && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ClusterUnderTest tested(OptionsOf(seed, Durability::kReplicated));
    tested.clients().SetSyncing(false);
    tested.AwaitWhole();
    for (int i = 0; i < 3 && !HasFailure(); ++i) {
      tested.RunTended(tested.random().Below(500));
      FlushAll(tested);
      LosePowerUnderLoad(tested);
    }
    acknowledged += tested.clients().counts().acknowledged;
    taken_back += tested.clients().counts().taken_back;
  }
  std::printf("%lu of %lu acknowledged writes were taken back\n", taken_back, acknowledged);
  EXPECT_GT(taken_back, 0u) << "disks have lost nothing";
}

}  // namespace
}  // namespace farleaf::server::cluster
