// The clients of a run: coroutines that do what a WorkloadPlan says, one operation after the other, and record
// what they were answered.
//
// Thread rule: one thread; a Client and the Shape outlive the coroutines that use them.
#pragma once

#include <cstdint>
#include <string>

#include "dsm/base/random.h"
#include "dsm/worker.h"
#include "test/simulation/run_plan.h"
#include "test/simulation/simulated_pool.h"
#include "test/support/history.h"

namespace farleaf::simulation {

/// The shape of one run, drawn from its seed.
struct Shape {
  Shape(const RunPlan& plan, Random& random);

  SimulatedPool::Options pool;
  WorkloadPlan workload;
  bool fixed8 = false;
  bool uneven = false;      ///< keys stand in groups, far apart: hard to place in parted leaves
  uint64_t clients = 0;     ///< of each worker
  uint64_t operations = 0;  ///< of each client
  uint64_t preload = 0;
  uint64_t phase = 0;
  // Keys 0 .. keys - 1 are in use; choice "window" moves: it inserts at the end, and deletes from
  // first_key on.
  uint64_t first_key = 0, keys = 0;
};

/// What a client coroutine needs.
struct Client {
  test::RecordingClient recorder;
  Random random;
  std::string name;  ///< in the values it writes
  Shape* shape;
  dsm::SimWorld* world;
  uint32_t process = 0;
  bool may_fail = false;
  uint64_t deadline_ns = 0;  ///< of each operation; 0: none
  uint64_t failed = 0, expired = 0;
  uint64_t longest_ns = 0;
  std::string failure;
};

std::string KeyOf(const Shape& shape, uint64_t number);

/// Stores the first keys, before others begin.
index::Task<void> Preload(dsm::Worker& worker, Client& client);
index::Task<void> RunClient(dsm::Worker& worker, Client& client);
/// Puts of all keys (or a few hundred of them), each until it succeeds or `give_up_ns` is reached on the clock: then
/// a failure of the client.
index::Task<void> WriteEverything(dsm::Worker& worker, Client& client, uint64_t give_up_ns);
/// Gets of all keys and a scan, when nothing else goes on and connections are whole again.
index::Task<void> ReadEverything(dsm::Worker& worker, Client& client);

}  // namespace farleaf::simulation
