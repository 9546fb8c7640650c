// NodeRegions: all regions of a node, for one life of it: a RegionNode for each, and the table of who serves which keys.
//
// Thread rule: Run and what it calls: the control worker; the rest by any thread. What it is given outlives it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

#include "server/cluster/region_node.h"
#include "server/cluster/region_routes.h"
#include "server/membership/region_store.h"

namespace farleaf::server::cluster {

class NodeRegions final : public RegionRoutes {
 public:
  using Worker = dsm::Worker;
  struct Deps {
    membership::Membership* session = nullptr;
    NodeId self = membership::kNoNode;
    /// What the part in that region stands on.
    std::function<RegionDeps(RegionId region, RegionGates* gates)> deps_of;
    /// Directories of regions that are not in the map go: of splits that were cut off.
    std::function<Status(const membership::RegionMap& map)> remove_others;
    /// The timeout of the nodes' sessions: for so long behind its end a life may be announced.
    uint64_t session_ns = 0;
    /// How often copies of what this node is the primary of are told how old they are (RegionPrimary::StampCopies); 0: never.
    uint64_t stamp_ns = 0;
  };
  explicit NodeRegions(Deps deps);
  ~NodeRegions() override;

  /// Leaves what an earlier life of this node was, by cases in README.md. AlreadyExists: to be called again: that life
  /// is announced still (its lease may run, and nobody cuts off who is announced (RegionBackup), so that nobody may be
  /// named in its place yet), or others are, of whom it is not sure that they live. REQUIRES: before the node is
  /// announced.
  dsm::Task<Status> LeaveOldLife(Worker& worker);
  /// Until Stop, and then until all regions have been left in order (what was not says the Status); or until this life is over: Fenced.
  dsm::Task<Status> Run(Worker& worker);
  void Stop() { stopping_.store(true); }
  /// The process is gone.
  void Abandon();

  NodeId self() const override { return deps_.self; }
  std::shared_ptr<const RouteTable> Now() const override { return table_.load(); }
  StoreUse Use(RegionId region) override;
  CopyUse UseCopy(RegionId region) override;
  /// The number of regions that this node is the primary of, and serves.
  size_t primaries() const;
  /// Whether one of these has a backup that holds all.
  bool has_backups() const;
  /// Of each region, in the order of ids. The parts stay until this is destroyed.
  void ForEach(const std::function<void(const RegionNode& node)>& look) const;

 private:
  struct Part {
    RegionGates gates;
    std::unique_ptr<RegionNode> node;
    bool running = false;
  };
  dsm::Task<Status> LeaveOldLife(Worker& worker, RegionId region,
                                 const std::vector<membership::NodeEntry>& nodes);
  dsm::Task<Status> Look(Worker& worker);
  dsm::Task<void> RunPart(Worker& worker, Part* part);
  dsm::Task<void> RunStamps(Worker& worker);
  Part* PartOf(RegionId region);
  static std::shared_ptr<const RouteTable> TableOf(const membership::RegionMap& map,
                                                   const std::vector<membership::NodeEntry>& nodes);

  const Deps deps_;
  membership::RegionStore regions_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::shared_ptr<const RouteTable>> table_{nullptr};
  std::optional<uint64_t> unannounced_since_ns_;  // the earlier life
  bool removed_others_ = false, stamping_ = false;
  Status ended_;  // what a part has ended with that was not Ok: Fenced before all else
  mutable std::shared_mutex mutex_;  // guards which parts there are; each stays
  std::map<RegionId, std::unique_ptr<Part>> parts_;
};

}  // namespace farleaf::server::cluster
