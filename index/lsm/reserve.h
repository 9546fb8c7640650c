// How much of the device a store keeps for those who make room on it when it is full (README.md, A full device, has the argument).
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "index/lsm/options.h"
#include "index/lsm/version.h"

namespace farleaf::index::lsm {

/// For deletes and moved values, until a flush gives back what they have taken of the recovery log.
inline constexpr uint64_t kReserveOfLogs = 6;

/// What one flush and one merge of what is there may need at a time. `recovery_segments`: of the recovery log that exist.
storage::ReserveSizes ReserveOf(const Version& version, uint64_t recovery_segments,
                                const LsmOptions& options);

/// Leaves of the sources of a merge into level 1 the oldest fresh runs, of which no more is there than of the largest one.
void KeepOldest(const Version& version, std::vector<RunPlace>* sources);

}  // namespace farleaf::index::lsm
