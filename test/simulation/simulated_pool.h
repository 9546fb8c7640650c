// SimulatedPool: a pool of memory servers in a simulated world, and compute servers that have one tree of
// it open, each as a process of its own.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/pool.h"
#include "dsm/sim/sim_world.h"
#include "index/blink/catalog.h"
#include "index/blink/check.h"
#include "index/blink/tree.h"

namespace farleaf::simulation {

/// A line for each finding.
std::string Describe(const index::CheckReport& report);

/// One compute server.
struct ComputeServer {
  uint32_t process = 0;
  std::unique_ptr<dsm::Pool> pool;
  std::unique_ptr<index::BlinkTree> tree;
  std::vector<std::unique_ptr<dsm::Worker>> workers;
  bool crashed = false;
  bool left = false;  ///< the pool, in good order
  bool gone() const { return crashed || left; }
};

/// What has become of the recoveries of dead compute servers.
struct RecoveryTally {
  uint64_t done_beside = 0;  ///< while the workload ran
  uint64_t claims_taken_over = 0;
  std::string failure;
};

class SimulatedPool {
 public:
  struct Options {
    dsm::SimWorld::Options world;
    index::Geometry geometry = index::Geometry::Fixed8(256);
    index::TreeOptions tree;
    dsm::AllocatorOptions allocator;
    /// For how many leaves of a memory server at a time; 0: as many as there are.
    uint64_t redo_slots = 0;
    uint32_t compute_servers = 3;
    uint32_t workers = 2;  ///< of each
  };
  /// Joins all compute servers, before any fault.
  explicit SimulatedPool(const Options& options);
  ~SimulatedPool();
  SimulatedPool(const SimulatedPool&) = delete;

  dsm::SimWorld& world() { return world_; }
  std::vector<ComputeServer>& compute_servers() { return compute_servers_; }
  dsm::Worker& worker(size_t compute_server) {
    return *compute_servers_[compute_server].workers[0];
  }

  /// Runs `task` on a worker to its end; the rest of the world goes on.
  template <typename T>
  T Run(dsm::Worker& worker, dsm::Task<T> task) {
    return worker.Run(std::move(task));
  }
  /// The compute server is gone at once; what was its is destroyed with the pool, or by LeaveAndCheck.
  void Crash(ComputeServer& compute_server);
  /// `by` returns all that `dead`, which every memory server has cut off, has left. What is wrong.
  std::string Recover(ComputeServer& by, dsm::MemberIdentity dead);
  /// `by` begins to do so, beside whatever else it does.
  void BeginRecovery(ComputeServer& by, dsm::MemberIdentity dead);
  const RecoveryTally& recoveries() const { return recoveries_; }
  /// What CheckPool, run by an observer, finds.
  Result<index::CheckReport> Check();
  /// All leave. Those that cannot do so in good order, since connections broke, are cut off, and recovered
  /// by one that has just joined; their number. Then nothing may be held in anybody's name, and every page
  /// be in the tree, in a list, or where it can be carved. What is wrong.
  std::string LeaveAndCheck(uint64_t* left_in_disorder);

 private:
  void Join();
  void KeepRedoSlots(dsm::Pool& pool);
  std::string RecoverAtTheEnd(const std::vector<dsm::MemberIdentity>& members);
  void Remove(ComputeServer& compute_server);
  void DestroyCrashed(ComputeServer& compute_server);

  const Options options_;
  dsm::SimWorld world_;
  RecoveryTally recoveries_;
  std::vector<ComputeServer> compute_servers_;
  bool has_tree_ = false;  ///< the first to join makes it
};

}  // namespace farleaf::simulation
