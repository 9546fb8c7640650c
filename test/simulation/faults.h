// Faults: lets the faults of a FaultPlan come over a simulated pool while clients run.
//
// Thread rule: one thread; outlives the run of the world.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "test/simulation/run_plan.h"
#include "test/simulation/workload.h"

namespace farleaf::simulation {

class Faults {
 public:
  /// Operations of `clients` that a crash leaves without an answer are recorded as such.
  Faults(SimulatedPool* pool, std::deque<Client>* clients, const FaultPlan& plan, uint64_t seed);
  Faults(const Faults&) = delete;

  /// No further faults begin.
  void Stop() { stopped_ = true; }
  uint64_t crashes() const { return crashes_; }
  /// Sooner or later each memory server finds out that a compute server is dead, and cuts it off. Returns
  /// when the last one does.
  uint64_t CutOffLater(const ComputeServer& compute_server);

 private:
  void Next(Fault fault, uint64_t gap_ns);
  void Strike(Fault fault);
  void Drop(uint32_t process, dsm::ServerId server);
  void Stall(uint32_t process, dsm::ServerId server);
  void Part(uint32_t process, dsm::ServerId server);
  void Crash(ComputeServer& compute_server);
  /// Another compute server recovers it, some time after all memory servers know, if clients still run.
  void RecoverLater(dsm::MemberIdentity dead, uint64_t known_ns);
  void LoseServer(dsm::ServerId server);
  ComputeServer& AnyComputeServer();
  dsm::SimWorld& world() { return pool_->world(); }

  SimulatedPool* pool_;
  std::deque<Client>* clients_;
  const FaultPlan plan_;
  Random random_;
  std::set<std::pair<uint32_t, dsm::ServerId>> parted_;
  uint64_t crashes_ = 0;
  bool stalled_ = false;
  bool lost_one_ = false;
  bool stopped_ = false;
};

}  // namespace farleaf::simulation
