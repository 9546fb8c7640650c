// RecordHouse: what a server does for the records beside its clients' commands, whatever their protocols: what
// has expired is swept away, and a flush that was asked for with a delay is done when it is due.
//
// Thread rule: one thread ticks it; the counts may be read by any.
#pragma once

#include <atomic>
#include <cstdint>

#include "server/frontend/serving_thread.h"
#include "server/records/keyspace.h"
#include "server/records/member_sweep.h"
#include "server/records/record_walk.h"

namespace farleaf::server {

class RecordHouse {
 public:
  struct Options {
    uint64_t turn_s;    ///< what a turn of the sweep takes at least
    uint64_t piece_ms;  ///< what each piece of a walk may take, and each command
  };
  struct Counts {
    std::atomic<uint64_t> turns{0}, records{0}, expired{0}, members{0};
    /// Of the last turn that missed nothing: ExpirySweep::Met, and when it ended by the worker's clock. 0: there was
    /// none.
    std::atomic<uint64_t> keys{0}, expiring{0}, met_ns{0};
  };

  /// `keyspace` outlives it.
  RecordHouse(Keyspace* keyspace, Options options);

  /// To be called about once a second; does its work beside the thread's connections.
  void Tick(ServingThread& thread);
  const Counts& counts() const { return counts_; }

 private:
  dsm::Task<void> Keep(ServingThread& thread);
  void Publish(uint64_t now_ns);

  Keyspace* const keyspace_;
  const Options options_;
  ExpirySweep sweep_;
  MemberSweep members_;
  bool keeping_ = false;
  Counts counts_;
};

/// For a walk on the thread's worker, which ends when the thread stops.
WalkContext WalkOn(ServingThread& thread, dsm::FabricCounts& counts, uint64_t piece_ms);

}  // namespace farleaf::server
