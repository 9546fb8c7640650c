// The target `lsm:`: this project's own store in this process (index/lsm), on files.
//
// Thread rule: see benchmark/ycsb/target.h.
#pragma once

#include <memory>

#include "benchmark/adapters/store_options.h"
#include "benchmark/ycsb/target.h"

namespace farleaf::ycsb {

/// AlreadyExists or NotFound if the directory holds a store, or none, against `options.create_tree`.
Result<std::unique_ptr<Target>> OpenLsmTarget(const StoreOptions& store,
                                              const TargetOptions& options, const Clock* clock);

}  // namespace farleaf::ycsb
