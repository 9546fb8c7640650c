// A cluster of simulated nodes with a membership in the simulation, that keeps regions together by itself while nodes
// crash and come back or do not, one or all at once, lose the membership, each other, or their turn, and while
// regions are split and handed over: whoever serves has all that was acknowledged, nobody else acknowledges anything,
// no request fails because of what was planned, and in the end there are as many replicas as are wanted.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "test/support/cluster_under_test.h"
#include "test/support/test_scale.h"

namespace farleaf::server::cluster {
namespace {

class ClusterHistory : public ClusterUnderTest {
 public:
  explicit ClusterHistory(uint64_t seed) : ClusterUnderTest(OptionsOf(seed)) {
    clients().SetSyncing(random().OneIn(2));
  }

  void Run(uint64_t rounds) {
    AwaitWhole();
    for (uint64_t round = 0; round < rounds && !Failed(); ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      if (random().OneIn(2)) ReturnAll();
      if (random().OneIn(2)) Plan();
      if (!Failed() && random().OneIn(4)) AwaitWhole();
      Fault();
      if (!Failed()) AwaitWhole();
    }
  }

  uint64_t splits = 0,
           handed_over = 0;    ///< that were wished for while all was whole, and came true
  uint64_t crashed_alone = 0;  ///< by CrashAlone

 private:
  NodeId DrawNode() { return static_cast<NodeId>(1 + random().Below(cluster().nodes().size())); }
  RegionEntry DrawRegion() { return cluster().map()[random().Below(cluster().map().size())]; }
  /// Where the region may be split.
  static std::vector<std::string> CutsOf(const RegionEntry& region) {
    std::vector<std::string> keys;
    for (size_t client = 1; client < ClusterClients::kCount; ++client) {
      const std::string key = ClusterClients::FirstKeyOf(client);
      if (region.Covers(key) && key != region.start) keys.push_back(key);
    }
    return keys;
  }

  // ---- What is planned

  /// All is whole: a region is split, or handed over to another node, and no request fails.
  void Plan() {
    const uint64_t now_ns = cluster().now_ns();
    if (now_ns < faults_until_ns_) cluster().RunFor(faults_until_ns_ - now_ns);
    AwaitWhole();
    if (Failed()) return;
    const RegionEntry region = DrawRegion();
    const std::vector<std::string> keys = CutsOf(region);
    const bool split = !keys.empty() && random().OneIn(2);
    RegionEntry wished = region;
    if (split) {
      wished.split_at = keys[random().Below(keys.size())];
    } else {
      wished.successor = DrawNode();
      if (wished.successor == region.primary || !cluster().node(wished.successor).sim) return;
    }
    const size_t regions = cluster().map().size();
    const uint64_t moves = MovesOf(region.id);
    const auto is_done = [&] {
      return split ? cluster().map().size() > regions : MovesOf(region.id) > moves;
    };
    bool made = false;
    cluster().Wish(wished, &made);
    clients().SetCalm(true);
    for (int slice = 0; slice < 200 && !Failed(); ++slice) {
      RunTended(50);
      if (made && is_done() && IsWhole()) break;
    }
    clients().SetCalm(false);
    if (!made) return;  // somebody else had changed the entry
    EXPECT_TRUE(IsWhole()) << cluster().Describe();
    EXPECT_TRUE(is_done()) << cluster().Describe();
    ++(split ? splits : handed_over);
  }
  uint64_t MovesOf(RegionId id) {
    const RegionEntry* const entry = cluster().EntryOf(id);
    return entry == nullptr ? 0 : entry->moves;
  }

  // ---- Faults

  void Fault() {
    cluster().RunFor(random().Below(300 * kNsPerMs));
    const size_t faults = random().OneIn(4) ? 2 : 1;
    for (size_t i = 0; i < faults && !Failed(); ++i) {
      if (random().OneIn(4)) PlanInFault();
      if (random().OneIn(4)) {
        LosePower();
        if (MayKeepDown() && random().OneIn(2)) KeepDown(cluster().node(DrawNode()));
      } else if (random().OneIn(3)) {
        CrashAlone();
      } else {
        OneFault();
      }
      RunTended(random().Below(3'000));
    }
  }

  /// Something is wished for, and nothing is waited for.
  void PlanInFault() {
    RegionEntry wished = DrawRegion();
    wished.successor = DrawNode();
    for (const std::string& key : CutsOf(wished)) {
      if (random().OneIn(2)) wished.split_at = key;
    }
    cluster().Wish(wished, &made_in_fault_);
    cluster().RunFor(random().Below(60 * kNsPerMs));
  }

  /// Who comes to serve begins with nobody else in sync, and is crashed when it has acknowledged something.
  void CrashAlone() {
    PlanInFault();
    const uint64_t before = clients().counts().acknowledged_alone;
    for (int slice = 0; slice < 600 && !Failed(); ++slice) {
      RunTended(5);
      for (Node& each : cluster().nodes()) {
        bool alone = false;
        if (!each.sim || !each.regions || each.life_over) continue;
        each.regions->ForEach(
            [&](const RegionNode& region) { alone |= SimulatedCluster::IsAlone(region); });
        const bool has_acknowledged = clients().counts().acknowledged_alone > before;
        if (!alone || !has_acknowledged || random().OneIn(2)) continue;
        ++crashed_alone;
        Crash(each);
        return;
      }
    }
  }

  void OneFault() {
    Node* const primary = cluster().PrimaryOf(DrawRegion().id);
    Node* hit = &cluster().node(DrawNode());
    if (primary != nullptr && random().OneIn(2)) hit = primary;
    if (!hit->sim) return;
    const uint64_t until_ns = cluster().now_ns() + random().Below(4 * kNsPerSecond);
    faults_until_ns_ =
        std::max(faults_until_ns_, until_ns + SimulatedCluster::kSessionMs * kNsPerMs);
    switch (random().Below(4)) {
      case 0:
        Crash(*hit);
        if (MayKeepDown()) KeepDown(*hit);
        return;
      case 1:
        LoseMembership(*hit, until_ns);
        return;
      case 2:  // it stands still
        cluster().world().StallProcess(hit->sim->process(), until_ns);
        return;
      case 3:
        LoseSightOf(*hit, cluster().node(DrawNode()), until_ns);
        return;
    }
  }
  void LoseMembership(Node& hit, uint64_t until_ns) {
    if (!hit.session) return;
    cluster().service().Part(*hit.session);
    cluster().world().At(until_ns, [this, &hit, life = hit.lives] {
      if (hit.sim && hit.lives == life) cluster().service().Heal(*hit.session);
    });
  }
  void LoseSightOf(Node& hit, Node& other, uint64_t until_ns) {
    if (!other.sim || &other == &hit) return;
    dsm::SimWorld& world = cluster().world();
    const uint32_t process = hit.sim->process();
    const dsm::ServerId server = other.sim->server();
    world.Partition(process, server);
    world.At(until_ns, [&world, process, server] {
      if (!world.has_crashed(process)) world.Heal(process, server);
    });
  }

  uint64_t faults_until_ns_ = 0;
  bool made_in_fault_ = false;
};

/// Parts of the seeds, for several cores.
class ClusterHistories : public ::testing::TestWithParam<uint64_t> {};
constexpr uint64_t kParts = 4;

/// Of several histories.
struct Totals {
  ClusterClients::Counts clients;
  ClusterUnderTest::Counts cluster;
  uint64_t refused_begins = 0, splits = 0, handed_over = 0, crashed_alone = 0;

  void Add(ClusterHistory& history) {
    clients += history.clients().counts();
    cluster += history.counts();
    for (const auto& node : history.cluster().nodes()) refused_begins += node.refused_begins;
    splits += history.splits;
    handed_over += history.handed_over;
    crashed_alone += history.crashed_alone;
  }
  void Print(uint64_t seeds) const {
    std::printf(
        "%lu seeds: %lu acknowledged, %lu seen before, %lu reads, %lu times somebody came to "
        "serve, %lu "
        "crashes (%lu times of who was alone, %lu times of all that had all, %lu times a node was "
        "not started again), %lu power losses of all, which took %lu back; %lu lives that were "
        "over, %lu splits, %lu times a region was handed over; served again within %.2f s at most, "
        "whole again within %.2f s\n%lu reads of copies, %lu of them behind; %.2f s old at most\n",
        seeds, clients.acknowledged, clients.seen_unacknowledged, clients.reads, clients.openings,
        cluster.crashes, clients.alone_crashes, clients.crashes_of_all, cluster.kept_down,
        cluster.power_losses, clients.taken_back, cluster.lives_over, splits, handed_over,
        Seconds(cluster.served_again_ns_max), Seconds(cluster.whole_again_ns_max),
        clients.copy_reads, clients.copy_reads_behind, Seconds(clients.copy_staleness_ns_max));
  }
  static double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }
};

TEST_P(ClusterHistories, KeepsRegionsTogether) {
  const uint64_t seeds = test::Amount{4, 52, 1000} / kParts, rounds = test::Amount{2, 2, 5};
  Totals totals;
  for (uint64_t i = 1; i <= seeds && !HasFailure(); ++i) {
    const uint64_t seed = GetParam() * seeds + i;
    SCOPED_TRACE("seed " + std::to_string(seed));
    ClusterHistory history(seed);
    history.Run(rounds);
    totals.Add(history);
  }
  totals.Print(seeds);
  EXPECT_GT(totals.clients.acknowledged, seeds * 10);
  EXPECT_GT(totals.clients.reads, seeds);
  EXPECT_GT(totals.clients.copy_reads, seeds * 10);
  EXPECT_GT(totals.clients.copy_reads_behind, 0u);
  if (seeds < 10) return;  // a single one may lose backups only
  EXPECT_GT(totals.clients.openings, seeds);
  EXPECT_GT(totals.cluster.lives_over, 0u);
  EXPECT_GT(totals.splits, 0u);
  EXPECT_GT(totals.handed_over, 0u);
  EXPECT_GT(totals.clients.seen_unacknowledged, 0u);
  EXPECT_GT(totals.refused_begins, 0u);
  EXPECT_GT(totals.clients.waited_for_copies, 0u);
  EXPECT_GT(totals.clients.alone_crashes, 0u);
  EXPECT_GT(totals.crashed_alone, 0u);
  EXPECT_GT(totals.cluster.kept_down, 0u);
  EXPECT_GT(totals.cluster.power_losses, 0u);
}
INSTANTIATE_TEST_SUITE_P(Parts, ClusterHistories, ::testing::Range(uint64_t{0}, kParts));

}  // namespace
}  // namespace farleaf::server::cluster
