// What compute servers do when nobody asks them for anything: the trees' upkeep, once a second; and how they
// stop: with upkeep for a while, and by leaving the pool, if that is not refused. As server/ does it.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "test/simulation/simulated_pool.h"

namespace farleaf::simulation {

/// All of `compute_servers` that are not gone keep their tree up, on each worker, until `*busy` is false and
/// nothing is left to do, or for `patience_ns`: then `failure` gets a line. They run when the world does.
void KeepUp(std::vector<ComputeServer>& compute_servers, const bool* busy, uint64_t patience_ns,
            std::string* failure);

/// Its upkeep to the end, or for so long; then it leaves the pool. Not Ok: it has not.
Status StopAndLeave(SimulatedPool& pool, ComputeServer& compute_server, uint64_t upkeep_ns_max);

}  // namespace farleaf::simulation
