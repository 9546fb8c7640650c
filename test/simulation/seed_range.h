// RunSeeds: a range of seeds, several at a time, each in a child process, so that one which dies
// (a failed check) is named and the others go on.
//
// Thread rule: one thread, before any other was started.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace farleaf::simulation {

struct SeedRange {
  uint64_t first = 1;
  uint64_t last = 1;
};

struct SeedFailure {
  uint64_t seed = 0;
  std::string what;
};

/// `run` is called in child processes, for every seed once, and tells what failed (empty: nothing);
/// `end` once in each child, behind its last seed. Returns the failures, at most `failures_max`, after
/// which no further seeds are begun.
std::vector<SeedFailure> RunSeeds(SeedRange range, uint32_t jobs, size_t failures_max,
                                  const std::function<std::string(uint64_t seed)>& run,
                                  const std::function<void(uint32_t job)>& end);

}  // namespace farleaf::simulation
