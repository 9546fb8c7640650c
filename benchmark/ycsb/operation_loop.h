// The loop that runs a source's operations on an index, as a coroutine of a worker.
//
// Thread rule: the worker's thread.
#pragma once

#include "benchmark/ycsb/target.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/range_index.h"

namespace farleaf::ycsb {

struct OperationLoop {
  index::RangeIndex& index;
  dsm::Worker& worker;
  OperationSource& source;
  /// UPDATE and INSERT store in any case, and look at nothing.
  bool blind_writes = false;
};
/// One operation after another, until the source has no more.
dsm::Task<void> RunOperations(OperationLoop loop);
/// Until `due_ns`, or the source has been stopped.
dsm::Task<void> WaitUntilDue(dsm::Worker& worker, OperationSource& source, uint64_t due_ns);

/// Until the operation may begin, or the source has been stopped.
dsm::Task<void> WaitUntilUnblocked(dsm::Worker& worker, const OperationSource& source,
                                   const Operation& operation);

}  // namespace farleaf::ycsb
