// Targets `sim:MODEL-FILE[?region=SIZE&chunk=SIZE]`: memory and compute servers in virtual time, by the
// cost model of a file (dsm/sim/model_world.h). What runs there is the tree, or a verb program.
//
// The pool begins empty; at the beginning of a timed phase every compute server's cache is warm.
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark/ycsb/simulation.h"
#include "benchmark/ycsb/target.h"
#include "dsm/sim/model_world.h"
#include "dsm/task.h"

namespace farleaf::ycsb {

/// `text`: what stands behind `sim:`.
Result<std::unique_ptr<Target>> OpenSimulatedTarget(std::string_view text,
                                                    const TargetOptions& options);

/// What the simulated targets have in common: threads, their turns, and what they cost.
class SimulatedTarget : public Target, public Simulation {
 public:
  SimulatedTarget(std::unique_ptr<dsm::ModelWorld> world, std::string model_file, uint64_t seed);

  Result<std::unique_ptr<Session>> OpenSession() override;
  bool counts_fabric() const override { return true; }
  Simulation* simulation() override { return this; }

  const Clock& clock() const override { return world_->clock(); }
  uint64_t cpu_ns() const override { return world_->cpu_ps() / 1'000; }
  uint64_t events() const override { return world_->events(); }
  Status Run(std::span<OperationSource* const> sources, uint64_t in_flight, Pace pace,
             const std::function<void()>& now_and_then) override;
  nlohmann::ordered_json Describe() override;
  const dsm::ModelWorld& world() const { return *world_; }

 protected:
  virtual Result<std::unique_ptr<dsm::Worker>> OpenWorker(uint32_t compute_server) = 0;
  /// Runs operations of thread `thread`'s source to its end.
  virtual dsm::Task<void> RunOn(dsm::Worker& worker, uint32_t compute_server,
                                OperationSource& source) = 0;
  /// CPU time of an operation beside its batches.
  virtual double operation_ns(OpKind kind) const = 0;
  /// Before a timed phase, in free mode.
  virtual Status WarmCaches() = 0;
  virtual std::string program() const = 0;  ///< "tree", or the verb program's name
  /// REQUIRES: nothing runs. For Close.
  void CloseWorkers();
  dsm::ModelWorld& world() { return *world_; }

 private:
  class PricedSource;
  struct Thread {
    uint32_t compute_server;
    std::unique_ptr<dsm::Worker> worker;
  };
  Status OpenThreads(size_t count);

  std::unique_ptr<dsm::ModelWorld> world_;
  const std::string model_file_;
  Random random_;
  std::vector<Thread> threads_;  // thread i is the world's thread i
  // At the last Describe:
  uint64_t described_ps_ = 0, described_cpu_ps_ = 0;
  std::vector<dsm::ModelNetwork::Busy> described_;
};

}  // namespace farleaf::ycsb
