// ClusterUnderTest: a SimulatedCluster and its clients. What crashes is noted, a life that is over is followed by
// another one, and it is waited for until all is whole again.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "test/support/cluster_clients.h"
#include "test/support/simulated_cluster.h"
#include "test/support/tiny_store.h"

namespace farleaf::server::cluster {

class ClusterUnderTest {
 public:
  using Node = SimulatedCluster::Node;
  struct Counts {
    uint64_t crashes = 0, lives_over = 0;
    uint64_t kept_down = 0, power_losses = 0;
    uint64_t served_again_ns_max = 0, whole_again_ns_max = 0;

    Counts& operator+=(const Counts& more) {
      crashes += more.crashes;
      lives_over += more.lives_over;
      kept_down += more.kept_down;
      power_losses += more.power_losses;
      served_again_ns_max = std::max(served_again_ns_max, more.served_again_ns_max);
      whole_again_ns_max = std::max(whole_again_ns_max, more.whole_again_ns_max);
      return *this;
    }
  };

  explicit ClusterUnderTest(const SimulatedCluster::Options& options)
      : random_(options.seed + 1), cluster_(options), clients_(&cluster_, random_.Next()) {}

  /// What a seed makes of a cluster.
  static SimulatedCluster::Options OptionsOf(uint64_t seed) {
    using index::lsm::Durability;
    Random random(seed);
    SimulatedCluster::Options options;
    options.seed = random.Next();
    // With a spare: a node that has no replica of a region.
    if (seed % 4 == 1) options.nodes = 4;
    if (seed % 4 == 3) options.replicas = 2;
    options.min_in_sync = seed % 3 == 0 ? 2 : 1;
    options.regions_max = ClusterClients::kCount;
    options.store = test::TinyStore();
    options.store.durability = random.OneIn(3) ? Durability::kSynced : Durability::kReplicated;
    if (random.OneIn(2)) options.store.flush_memtable_ms = 10 + random.Below(200);
    options.stamp_ns = (1 + random.Below(60)) * kNsPerMs;
    return options;
  }

  Random& random() { return random_; }
  SimulatedCluster& cluster() { return cluster_; }
  ClusterClients& clients() { return clients_; }
  const Counts& counts() const { return counts_; }
  static bool Failed() { return ::testing::Test::HasFailure(); }

  void Crash(Node& node) {
    ++counts_.crashes;
    End(node);
  }
  /// All nodes that run crash at once, and their disks lose what was not synced.
  void LosePower() {
    ++counts_.power_losses;
    clients_.NoteAllLost();
    for (Node& each : cluster_.nodes()) {
      if (each.sim) cluster_.Crash(each);
    }
  }
  /// It is down, and no AwaitWhole starts it until ReturnAll, unless nobody else has a region.
  void KeepDown(const Node& node) {
    ++counts_.kept_down;
    kept_down_.insert(node.id);
  }
  void ReturnAll() { kept_down_.clear(); }
  /// So many nodes may be kept down that each region can still have its replicas.
  bool MayKeepDown() const {
    const SimulatedCluster::Options& options = cluster_.options();
    return kept_down_.size() + options.replicas < options.nodes;
  }
  void RunFor(uint64_t ms) { cluster_.RunFor(ms * kNsPerMs); }
  /// The same, and what comes up meanwhile is tended.
  void RunTended(uint64_t ms) {
    for (uint64_t left = ms; left > 0 && !Failed(); left -= std::min(left, kSliceMs)) {
      Tend();
      RunFor(std::min(left, kSliceMs));
    }
  }
  void Tend() {
    for (Node& each : cluster_.nodes()) {
      if (!each.sim || !each.life_over) continue;
      ++counts_.lives_over;
      End(each);
      cluster_.Start(each.id);
    }
    clients_.Tend();
  }
  bool IsWhole() {
    return cluster_.IsWhole() &&
           std::ranges::all_of(cluster_.map(), [this](const RegionEntry& region) {
             return clients_.IsTended(region.id);
           });
  }
  /// Nodes that are down come back, one after another, until all regions have their replicas, and all clients get on.
  void AwaitWhole() {
    const uint64_t begun_ns = cluster_.now_ns();
    std::array<uint64_t, ClusterClients::kCount> before;
    for (size_t i = 0; i < before.size(); ++i) before[i] = clients_.acknowledged(i);
    const auto get_on = [&](uint64_t more) {
      for (size_t i = 0; i < before.size(); ++i) {
        if (clients_.acknowledged(i) < before[i] + more) return false;
      }
      return true;
    };
    bool served = false;
    for (uint64_t ms = 0; ms < kWholeMsMax && !Failed(); ms += kSliceMs) {
      for (Node& each : cluster_.nodes()) {
        if (!each.sim && !StaysDown(each.id) && random_.OneIn(3)) cluster_.Start(each.id);
      }
      RunTended(kSliceMs);
      const uint64_t took_ns = cluster_.now_ns() - begun_ns;
      if (!served && get_on(1)) {
        served = true;
        counts_.served_again_ns_max = std::max(counts_.served_again_ns_max, took_ns);
      }
      if (!IsWhole() || !get_on(2)) continue;
      clients_.ForgetSaved();
      counts_.whole_again_ns_max = std::max(counts_.whole_again_ns_max, took_ns);
      return;
    }
    ADD_FAILURE() << "the regions are not whole again after a minute: " << cluster_.Describe();
  }

 private:
  static constexpr uint64_t kSliceMs = 50, kWholeMsMax = 60'000;

  bool StaysDown(NodeId node) const {
    if (!kept_down_.contains(node)) return false;
    const auto is_down = [this](NodeId id) { return kept_down_.contains(id); };
    return std::ranges::none_of(cluster_.map(), [&](const RegionEntry& region) {
      return std::ranges::all_of(region.in_sync, is_down);
    });
  }
  void End(Node& node) {
    clients_.NoteLost(node);
    cluster_.Crash(node);
  }

  Random random_;
  SimulatedCluster cluster_;
  ClusterClients clients_;
  Counts counts_;
  std::set<NodeId> kept_down_;
};

}  // namespace farleaf::server::cluster
