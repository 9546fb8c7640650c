// ClusterEngine: an engine whose trees are in regions that several nodes keep together: each an LSM store in a directory of this machine,
// copied to those of others while it is written.
//
// Any node serves any key (cluster_tree_host.h), whichever regions it is the primary of. When the session with the membership is over, the
// engine is `fenced`, and the next one begins another life of the node.
//
// Threads: the control worker's, with the regions' parts, the master and the channels; the stores'; and those of the session, of the memory's agent and of the
// links to other nodes.
// Thread rule: that of Engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dsm/area_allocator.h"
#include "dsm/base/clock.h"
#include "dsm/registered_memory.h"
#include "dsm/transport.h"
#include "server/cluster/cluster_tree_host.h"
#include "server/cluster/master.h"
#include "server/cluster/node_regions.h"
#include "server/cluster/peer_memories.h"
#include "server/cluster/region_files.h"
#include "server/engine.h"
#include "server/lsm/lsm_engine.h"
#include "server/membership/zookeeper_membership.h"

namespace farleaf::server {

/// How nodes reach one another's memory.
enum class PeerFabric : uint8_t { kTcp, kVerbs };

struct ClusterOptions {
  std::string membership;  ///< zookeeper://HOST:PORT[,...]/CLUSTER; empty: no cluster
  uint32_t node = 0;       ///< 1..4095, unlike all others of the cluster
  PeerFabric peer_fabric = PeerFabric::kTcp;  ///< of all nodes
  std::string peer_rdma_device;  ///< kVerbs; DEVICE[:PORT[:GID INDEX]]; empty: that of peer_listen
  std::string peer_listen = "127.0.0.1:0";  ///< where others reach this node's memory
  std::string peer_advertise;               ///< what they are told; empty: as it listens
  std::string
      advertise;  ///< HOST:PORT of the native protocol, for clients and nodes; empty: as it listens
  uint32_t replicas = 2;      ///< of each region, the primary included
  uint32_t min_in_sync = 1;   ///< of these, to have a write before it is acknowledged
  uint32_t regions_max = 32;  ///< that this node is a backup of, at any time in one life
  uint32_t session_timeout_ms = 2'000;
  uint32_t log_buffers =
      16;  ///< of 2 MiB, of each backup; LsmOptions::log_buffers_max and 6 at least
  uint32_t copy_staleness_ms = 10'000;  ///< that backups' tables are kept to; 0: nobody reads them
  uint64_t copy_cache_bytes = uint64_t{32} << 20;  ///< of each backup's blocks that are read
  uint64_t leave_ms = 10'000;  ///< what Leave grants the others to take over, and to be filled
  std::string password;        ///< that other nodes' native protocol asks for, as this one's does
};

class ClusterEngine final : public Engine {
 public:
  /// Asked now and then while it waits: whether nobody wants the engine any more.
  using Unwanted = std::function<bool()>;
  /// Takes part in the cluster, as far as clients of this process are concerned; others hear of it with Serves. Unavailable: the membership does not
  /// answer, which it names. Else as LsmEngine::Open of the directory, in which each region has one of its own.
  static Result<std::unique_ptr<ClusterEngine>> Open(const ClusterOptions& cluster,
                                                     const LsmEngineOptions& lsm, uint64_t seed,
                                                     const Clock* clock, Unwanted unwanted);
  /// Leaves what is there in order, unless its life is over; but nobody is waited for.
  ~ClusterEngine() override;

  TreeHost& host() override { return *host_; }
  /// Announces the node, once its last life's session has expired. AlreadyExists: another process is this node.
  Status Serves(const std::vector<std::string>& urls) override;
  Status fenced() const override;
  Status Health() const override;
  void AppendMetrics(MetricsText* out) const override;
  std::string Describe() const override;
  void Leave(const Hurried& hurried) override;
  Status Close(const Hurried& hurried) override;

 private:
  ClusterEngine(const ClusterOptions& cluster, const LsmEngineOptions& lsm, uint64_t seed,
                const Clock* clock, Unwanted unwanted)
      : cluster_(cluster), lsm_(lsm), seed_(seed), clock_(clock), unwanted_(std::move(unwanted)) {}
  Status Join();
  dsm::Task<Status> BeginLife(dsm::Worker& worker);
  Status OpenFabric();
  Status OpenMemory();
  void MakeParts();
  dsm::Task<Status> Announce(std::string url);
  cluster::RegionDeps RegionDepsOf(cluster::RegionId region, cluster::RegionGates* gates);
  dsm::Task<void> RunRegions();
  void AppendCheckMetrics(MetricsText* out) const;
  void AppendCopyMetrics(const std::vector<cluster::Route>& routes, MetricsText* out) const;
  /// Until nothing is served here any more: true; or nobody takes it, or until `until_ns`.
  bool HandOver(uint64_t until_ns, const Hurried& hurried);
  /// Until no region would miss this node's copy (leaving.h), or until `until_ns`: true. False: it has come to serve one.
  bool StayWhileMissed(uint64_t until_ns, const Hurried& hurried);
  void EndControl();
  Result<std::unique_ptr<dsm::Worker>> OpenWorker();
  std::string Name() const { return "node " + std::to_string(cluster_.node); }

  const ClusterOptions cluster_;
  const LsmEngineOptions lsm_;
  const uint64_t seed_;
  const Clock* const clock_;
  const Unwanted unwanted_;
  const WallClock wall_;
  uint64_t life_ = 0;
  std::atomic<uint64_t> workers_{0};
  std::atomic<bool> regions_ended_{false};
  mutable std::mutex mutex_;  // guards ended_
  Status ended_;              // why the regions' part has
  // In this order: each stands on those before it.
  dsm::EpochDomain epochs_;
  index::lsm::CheckMemory check_memory_{index::lsm::kNodeCheckBuffers};
  std::unique_ptr<membership::ZookeeperMembership> session_;
  std::unique_ptr<dsm::RegisteredMemory> memory_;
  std::unique_ptr<dsm::AreaAllocator> areas_;
  std::unique_ptr<dsm::Fabric> fabric_;
  std::optional<cluster::PeerMemories> peer_memories_;
  std::unique_ptr<dsm::Worker> control_;  // of control_thread_
  std::unique_ptr<dsm::Worker> worker_;   // of the thread that opens and closes
  std::unique_ptr<cluster::RegionFiles> files_;
  std::unique_ptr<cluster::Master> master_;
  std::unique_ptr<cluster::NodeRegions> regions_;
  std::unique_ptr<cluster::ClusterTreeHost> host_;
  mutable std::mutex observer_mutex_;  // guards observer_
  std::unique_ptr<dsm::Worker> observer_;
  std::thread control_thread_;
};

}  // namespace farleaf::server
