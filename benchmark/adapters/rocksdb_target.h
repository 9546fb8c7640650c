// The targets `rocksdb:` and `blobdb:`: RocksDB in this process, with values in place or in blob files.
//
// Its calls block: a thread has one operation at a time.
//
// Thread rule: see benchmark/ycsb/target.h.
#pragma once

#include <memory>

#include "benchmark/adapters/store_options.h"
#include "benchmark/ycsb/target.h"

namespace farleaf::ycsb {

/// Whether this binary has it.
bool HasRocksDb();

/// AlreadyExists or NotFound if the directory holds a store, or none, against `options.create_tree`; Unimplemented if
/// this binary was built without RocksDB.
Result<std::unique_ptr<Target>> OpenRocksDbTarget(const StoreOptions& store,
                                                  const TargetOptions& options, const Clock* clock);

}  // namespace farleaf::ycsb
