// The tree on simulated compute servers: each is a member of the pool and has the tree open, with a cache
// of its own.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "benchmark/simulated/simulated_target.h"
#include "dsm/pool.h"
#include "index/blink/tree.h"

namespace farleaf::ycsb {

class SimulatedTreeTarget final : public SimulatedTarget {
 public:
  SimulatedTreeTarget(std::unique_ptr<dsm::ModelWorld> world, std::string model_file,
                      const TargetOptions& options)
      : SimulatedTarget(std::move(world), std::move(model_file), options.seed), options_(options) {}

  /// All compute servers join; the first one creates the tree.
  Status Open();
  Result<uint64_t> PoolBytesUsed() override;
  Status Close() override;

 protected:
  Result<std::unique_ptr<dsm::Worker>> OpenWorker(uint32_t compute_server) override;
  dsm::Task<void> RunOn(dsm::Worker& worker, uint32_t compute_server,
                        OperationSource& source) override;
  double operation_ns(OpKind) const override { return world().model().operation_ns; }
  Status WarmCaches() override;
  std::string program() const override { return options_.cache ? "tree" : "tree, no cache"; }

 private:
  using SimulatedTarget::world;
  struct ComputeServer {
    // In this order: the tree and the worker stand on the pool.
    std::unique_ptr<dsm::Pool> pool;
    std::unique_ptr<dsm::Worker> worker;  ///< outside of timed phases
    std::optional<index::BlinkTree> tree;
  };
  Status Join(ComputeServer* joined);

  const TargetOptions options_;
  std::vector<std::unique_ptr<ComputeServer>> compute_servers_;
};

}  // namespace farleaf::ycsb
