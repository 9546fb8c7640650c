// The target `replicated:`: this project's store with backups, all in this process, over the tcp fabric on loopback: the primary in
// DIR/primary, backups in DIR/backup1, …, each with threads of its own (backup_node.h).
//
// Which backups there are is fixed: one that is lost fails the run.
//
// Thread rule: see benchmark/ycsb/target.h.
#pragma once

#include <memory>

#include "benchmark/adapters/store_options.h"
#include "benchmark/ycsb/target.h"

namespace farleaf::ycsb {

/// AlreadyExists or NotFound if the directory holds a store, or none, against `options.create_tree`.
Result<std::unique_ptr<Target>> OpenReplicatedTarget(const StoreOptions& store,
                                                     const TargetOptions& options,
                                                     const Clock* clock);

}  // namespace farleaf::ycsb
