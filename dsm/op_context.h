// OpContext: what travels with one operation through every coroutine that serves it.
//
// Thread rule: lives in the outermost frame of the operation, on its worker's thread.
#pragma once

#include <cstdint>

#include "dsm/base/durability.h"
#include "dsm/fabric_counts.h"
#include "dsm/worker.h"

namespace farleaf::dsm {

struct OpContext {
  Worker& worker;
  FabricCounts& counts;               ///< charged with everything this operation causes
  uint64_t deadline_ns = UINT64_MAX;  ///< on worker.clock(); every wait ends there
  /// Of reads: they may be answered by a copy that is no older than this; 0: they see all that was acknowledged.
  uint64_t max_staleness_ns = 0;
  /// How old what was read may be, of the oldest copy that was.
  uint64_t staleness_ns = 0;
  WriteDurability durability = WriteDurability::kOfStore;  ///< of writes, at least

  FramePool* frame_pool() const { return worker.frame_pool(); }
  bool expired() const {
    return deadline_ns != UINT64_MAX && worker.clock().NowNs() >= deadline_ns;
  }
};

}  // namespace farleaf::dsm
