// VerbLoop: keeps operations of one verb in flight on one thread, and times each.
//
// An operation costs one reading of the time stamp counter: the end of one is the beginning of the
// next in its place, as in perftest. So a latency holds everything: filling the batch, posting it,
// and noticing its completion.
//
// Thread rule: a loop belongs to one thread; `stop` may be set by any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "benchmark/micro/verb_options.h"
#include "dsm/address.h"
#include "dsm/base/histogram.h"
#include "dsm/base/result.h"
#include "dsm/pool.h"
#include "dsm/transport.h"

namespace farleaf::micro {

/// Ticks of the processor's time stamp counter.
inline uint64_t NowTicks() { return __builtin_ia32_rdtsc(); }

/// What the operations are. The target is [address, address + span_bytes).
struct VerbPlan {
  dsm::VerbKind verb = dsm::VerbKind::kRead;
  uint64_t bytes = 8;
  uint32_t batch = 1;
  uint32_t in_flight = 1;
  Place place = Place::kRandom;
  Idle idle = Idle::kWait;
  uint64_t seed = 1;
  dsm::GlobalAddress address;
  uint64_t span_bytes = 0;
};

class VerbLoop {
 public:
  virtual ~VerbLoop() = default;
  /// Posts until `operations` were posted, `stop` is set or one fails, and completes all of them.
  /// The Status is the first failure; `ticks` gets the latency of each one that succeeded.
  virtual Status Run(uint64_t operations, const std::atomic<bool>& stop, Histogram* ticks) = 0;
};

/// Post and Poll on a Transport of its own. `fabric` outlives the loop.
Result<std::unique_ptr<VerbLoop>> OpenTransportLoop(dsm::Fabric& fabric, const VerbPlan& plan);
/// One coroutine for each operation in flight, on a Worker. `pool` outlives the loop.
Result<std::unique_ptr<VerbLoop>> OpenWorkerLoop(dsm::Pool& pool, const VerbPlan& plan);

}  // namespace farleaf::micro
