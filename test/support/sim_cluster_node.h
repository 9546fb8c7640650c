// SimClusterNode: a simulated node of a cluster, over all its lives: a SimNode (sim_node.h) with a session of a simulated membership, and what a
// compute server has of `server/cluster`: its regions and the master. Begins of stores, and promotions, fail now and then, and are to be tried again.
//
// Thread rule: that of the world. What it is given outlives it.
#pragma once

#include <map>
#include <memory>

#include "dsm/area_allocator.h"
#include "dsm/base/random.h"
#include "index/lsm/store.h"
#include "server/cluster/master.h"
#include "server/cluster/node_regions.h"
#include "server/membership/in_process_membership.h"
#include "test/support/sim_node.h"

namespace farleaf::test {

class SimClusterNode {
 public:
  using Worker = dsm::Worker;
  using NodeId = server::cluster::NodeId;
  using RegionId = server::cluster::RegionId;
  struct Deps {
    dsm::SimWorld* world = nullptr;
    server::membership::InProcessService* service = nullptr;
    Random* random = nullptr;
    const index::lsm::LsmOptions* store = nullptr;  ///< of all regions
    server::replication::AreaLayout layout;
    size_t regions_max = 1;
    size_t lives_max = 1;  ///< each has a memory server of its own, from (id - 1) * lives_max
    uint32_t replicas = 1;
  };
  SimClusterNode(Deps deps, NodeId id) : deps_(deps), id_(id) {}
  SimClusterNode(const SimClusterNode&) = delete;

  /// Another life. REQUIRES: it is down.
  void Start();
  /// All that it runs ends where it stands.
  void Crash();

  NodeId id() const { return id_; }
  bool is_up() const { return sim_ != nullptr; }
  /// It was fenced: only another life does anything.
  bool life_over() const { return life_over_; }
  size_t lives() const { return lives_; }
  /// Begins of lives before the last one's session had expired.
  uint64_t refused_begins() const { return refused_begins_; }
  // REQUIRES: it is up.
  SimNode& sim() { return *sim_; }
  server::membership::InProcessMembership& session() { return *session_; }
  /// null: it has not come so far.
  server::cluster::NodeRegions* regions() const { return regions_.get(); }

 private:
  dsm::Task<void> Live(Worker& worker);
  dsm::Task<Status> Announce(Worker& worker);
  server::cluster::RegionDeps DepsOf(RegionId region, server::cluster::RegionGate* gate);
  void BeginBackground(RegionId region, index::lsm::LsmStore& store);
  dsm::Task<void> EndBackground(Worker& worker, RegionId region);
  dsm::Task<Status> MakeStore(Worker& worker, RegionId region);
  dsm::Task<Result<std::unique_ptr<index::lsm::LsmStore>>> OpenStore(Worker& worker,
                                                                     RegionId region,
                                                                     index::lsm::Mirror* mirror);
  index::storage::SimStorage& DiskOf(RegionId region) {
    return sim_->storage(static_cast<uint32_t>(region));
  }

  const Deps deps_;
  const NodeId id_;
  size_t lives_ = 0;
  uint64_t refused_begins_ = 0;
  bool life_over_ = false;
  SimNode::Disks disks_;          // while it is down
  std::unique_ptr<SimNode> sim_;  // null: it is down
  std::unique_ptr<server::membership::InProcessMembership> session_;
  std::unique_ptr<server::cluster::Master> master_;
  std::unique_ptr<dsm::AreaAllocator> areas_;
  std::unique_ptr<server::cluster::NodeRegions> regions_;
  struct Background {
    index::lsm::LsmStore* store = nullptr;
    size_t running = 0;
  };
  std::map<RegionId, Background> backgrounds_;
};

}  // namespace farleaf::test
