// SimulatedCluster: nodes of a cluster in virtual time, each with a disk for each region, registered memory and a
// session with a membership in the simulation, which keep regions together by what a compute server runs for that
// (NodeRegions, Master).
//
// A node that crashes does so as a machine: its disks keep what was synced, and any part of the rest. It comes back
// as another life, with these disks and another memory server. Nothing starts a node but Start, and nobody writes to
// a store but whoever uses this.
//
// Thread rule: one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/random.h"
#include "index/lsm/store.h"
#include "server/cluster/master.h"
#include "server/cluster/node_regions.h"
#include "server/membership/in_process_membership.h"
#include "server/replication/area_layout.h"
#include "test/support/sim_node.h"

namespace farleaf::server::cluster {

class SimulatedCluster {
 public:
  static constexpr uint64_t kSessionMs = 1'000;
  static constexpr size_t kLivesMax = 16;      ///< of each node
  static constexpr uint32_t kLogBuffers = 12;  ///< of each backup
  struct Options {
    uint64_t seed = 1;
    size_t nodes = 3;
    uint32_t replicas = 3;  ///< of each region, its primary included
    uint32_t min_in_sync = 1;
    size_t regions_max = 1;
    uint64_t stamp_ns = 50 * kNsPerMs;  ///< NodeRegions::Deps
    index::lsm::LsmOptions store;
  };
  struct Node {
    NodeId id = 0;
    size_t lives = 0;
    uint64_t refused_begins = 0;         ///< of lives, before the last one's session had expired
    test::SimNode::Disks disks;          ///< while it is down
    std::unique_ptr<test::SimNode> sim;  ///< null: it is down
    std::unique_ptr<membership::InProcessMembership> session;
    std::unique_ptr<Master> master;
    std::unique_ptr<dsm::AreaAllocator> areas;
    std::unique_ptr<NodeRegions> regions;
    bool life_over = false;              ///< Run has ended with Fenced
    std::map<RegionId, size_t> running;  ///< of what runs in the background of the store
  };

  /// All nodes are started.
  explicit SimulatedCluster(const Options& options);
  ~SimulatedCluster();
  SimulatedCluster(const SimulatedCluster&) = delete;

  const Options& options() const { return options_; }
  dsm::SimWorld& world() { return world_; }
  uint64_t now_ns() const { return world_.now_ns(); }
  membership::InProcessService& service() { return service_; }
  std::vector<Node>& nodes() { return nodes_; }
  Node& node(NodeId id) { return nodes_[id - 1]; }

  void RunFor(uint64_t ns);
  /// REQUIRES: it is down.
  void Start(NodeId id);
  /// REQUIRES: it is not down.
  void Crash(Node& crashed);

  /// As it was a moment ago; empty: there is none yet.
  const std::vector<RegionEntry>& map() const { return map_; }
  /// null: not in the map.
  const RegionEntry* EntryOf(RegionId region) const;
  /// Writes it in the region's place, if that has not changed meanwhile: `made` becomes true.
  void Wish(RegionEntry wished, bool* made);
  /// Who serves it; null: nobody.
  Node* PrimaryOf(RegionId region);
  /// To whom its primary writes; nullopt: nobody serves it.
  std::optional<size_t> BackupsOf(RegionId region);
  /// All regions have as many replicas as they should, and nothing is wished for.
  bool IsWhole();
  std::string Describe();

  /// Whether it is the primary, and writes to nobody else.
  static bool IsAlone(const RegionNode& region);
  /// Whether the store's primary writes to nobody else.
  bool IsAlone(const index::lsm::LsmStore& store);
  /// Whether somebody beside the store's primary is in the view.
  bool HasCopies(const index::lsm::LsmStore& store);

 private:
  using Worker = dsm::Worker;
  dsm::Task<void> Pause(uint64_t ns) { co_await driver_->Sleep(ns); }
  dsm::Task<void> WatchMap();
  dsm::Task<void> ChangeView(RegionEntry wished, bool* made);
  dsm::Task<void> Live(Worker& worker, Node& on);
  dsm::Task<Status> Prepare(Worker& worker, Node& on);
  RegionDeps DepsOf(Node& on, RegionId region, RegionGates* gates);
  NodeMemory MemoryOf(Node& on, uint32_t region);
  Status BeginBackground(Node& on, RegionId region, index::lsm::LsmStore& store);
  dsm::Task<void> EndBackground(Worker& worker, Node& on, RegionId region);
  dsm::Task<Status> MakeStore(Worker& worker, Node& on);
  dsm::Task<Result<std::unique_ptr<index::lsm::LsmStore>>> OpenStore(Worker& worker, Node& on,
                                                                     uint32_t region,
                                                                     index::lsm::Mirror* mirror);
  const RegionPrimary* PrimaryWith(const index::lsm::LsmStore& store);

  const Options options_;
  Random random_;
  const replication::AreaLayout layout_;
  dsm::SimWorld world_;
  std::unique_ptr<dsm::SimFabric> driver_fabric_;
  dsm::EpochDomain driver_epochs_;
  std::unique_ptr<Worker> driver_;  // of whoever looks on
  membership::InProcessService service_;
  index::lsm::CheckMemory check_memory_{2};  // not enough for all: some is read back
  std::vector<Node> nodes_;                  // by id, from 1; never resized
  std::vector<RegionEntry> map_;
  std::map<std::pair<NodeId, RegionId>, index::lsm::LsmStore*> stores_;  // that are or were open
  std::unique_ptr<membership::InProcessMembership> driver_session_;
};

}  // namespace farleaf::server::cluster
