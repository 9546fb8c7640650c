// What an LSM store keeps of its device when all that it held is gone.
#pragma once

#include <cstddef>

#include "index/lsm/state.h"

namespace farleaf::index::lsm {

/// Both logs have a tail, what is prepared behind it, and what is written.
inline constexpr size_t kLogSegmentsLeft = 2 * 4;

/// Each run of each level may have a table, besides.
inline constexpr size_t kSegmentsLeft = kLogSegmentsLeft + 2 * kLevelsMax;

}  // namespace farleaf::index::lsm
