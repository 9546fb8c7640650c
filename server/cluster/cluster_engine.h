// ClusterEngine: an engine whose trees are in a region that several nodes keep together: an LSM store in a directory of this machine, copied to
// those of others while it is written.
//
// Open takes part in the cluster, and returns when this node is the primary: until then it is a backup or spare, and serves no client. When another one
// is the primary in its place, or the session with the membership is over, the engine is `fenced`, and the next one begins another life of the node.
//
// Threads: the control worker's, with the region's part, the master and the channels; the store's; and those of the session and of the memory's agent.
// Thread rule: that of Engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "dsm/base/clock.h"
#include "dsm/registered_memory.h"
#include "dsm/tcp/tcp_fabric.h"
#include "index/lsm/background.h"
#include "index/storage/file_storage.h"
#include "server/cluster/master.h"
#include "server/cluster/region_node.h"
#include "server/engine.h"
#include "server/lsm/lsm_engine.h"
#include "server/lsm/lsm_tree_host.h"
#include "server/membership/zookeeper_membership.h"

namespace farleaf::server {

struct ClusterOptions {
  std::string membership;  ///< zookeeper://HOST:PORT[,...]/CLUSTER; empty: no cluster
  uint32_t node = 0;       ///< 1..4095, unlike all others of the cluster
  std::string peer_listen = "127.0.0.1:0";  ///< where others reach this node's memory
  std::string peer_advertise;               ///< what they are told; empty: as it listens
  uint32_t replicas = 2;                    ///< of the region, the primary included
  uint32_t session_timeout_ms = 2'000;
  uint32_t log_buffers =
      16;  ///< of 2 MiB, of each backup; LsmOptions::log_buffers_max and 6 at least
};

class ClusterEngine final : public Engine {
 public:
  /// Asked now and then while it waits: whether nobody wants the engine any more.
  using Unwanted = std::function<bool()>;
  /// As LsmEngine::Open of the directory. Unavailable: `unwanted`, or the membership does not answer, which it names.
  static Result<std::unique_ptr<ClusterEngine>> Open(const ClusterOptions& cluster,
                                                     const LsmEngineOptions& lsm, uint64_t seed,
                                                     const Clock* clock, const Unwanted& unwanted);
  /// As if the process had crashed, if Close did not come before.
  ~ClusterEngine() override;

  TreeHost& host() override { return *host_; }
  Status fenced() const override;
  Status Health() const override;
  void AppendMetrics(MetricsText* out) const override;
  std::string Describe() const override;
  Status Close(const Hurried& hurried) override;

 private:
  ClusterEngine(const ClusterOptions& cluster, const LsmEngineOptions& lsm, uint64_t seed,
                const Clock* clock)
      : cluster_(cluster), lsm_(lsm), seed_(seed), clock_(clock) {}
  Status Join();
  dsm::Task<Status> BeginLife();
  Status OpenMemory();
  dsm::Task<Status> Announce();
  cluster::RegionNode::Deps RegionDeps();
  dsm::Task<Status> MakeStore(dsm::Worker& worker);
  dsm::Task<Result<std::unique_ptr<index::lsm::LsmStore>>> OpenStore(dsm::Worker& worker,
                                                                     index::lsm::Mirror* mirror);
  Status AwaitPrimary(const Unwanted& unwanted);
  dsm::Task<void> RunRegion();
  void EndControl();
  Result<std::unique_ptr<dsm::Worker>> OpenWorker();
  std::string Name() const { return "node " + std::to_string(cluster_.node); }

  const ClusterOptions cluster_;
  const LsmEngineOptions lsm_;
  const uint64_t seed_;
  const Clock* const clock_;
  const WallClock wall_;
  uint64_t life_ = 0;
  std::atomic<uint64_t> workers_{0};
  std::atomic<bool> region_ended_{false};
  mutable std::mutex mutex_;  // guards ended_
  Status ended_;              // why the region's part has
  // In this order: each stands on those before it.
  dsm::EpochDomain epochs_;
  std::unique_ptr<index::storage::FileStorage> storage_;
  std::unique_ptr<membership::ZookeeperMembership> session_;
  std::unique_ptr<dsm::RegisteredMemory> memory_;
  std::unique_ptr<dsm::TcpFabric> fabric_;
  std::unique_ptr<dsm::Worker> control_;  // of control_thread_
  std::unique_ptr<dsm::Worker> worker_;   // of the thread that opens and closes
  std::unique_ptr<cluster::Master> master_;
  std::unique_ptr<cluster::RegionNode> region_;
  std::unique_ptr<index::lsm::Background> background_;
  std::unique_ptr<LsmTreeHost> host_;
  std::thread control_thread_;
};

}  // namespace farleaf::server
