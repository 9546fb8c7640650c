// What targets that hold an LSM store in this process have in common: its options, and what is told of it.
//
// Thread rule: as its functions say.
#pragma once

#include <nlohmann/json.hpp>

#include "benchmark/adapters/store_options.h"
#include "index/lsm/options.h"
#include "index/lsm/store.h"
#include "index/storage/storage.h"

namespace farleaf::ycsb {

/// Durability by `sync`.
index::lsm::LsmOptions LsmOptionsOf(const StoreOptions& store);

/// A new store's epoch hangs on it. Not the run's seed: bytes that another store has left in segments of the same numbers would be
/// records of this one.
uint64_t DrawStoreSeed();

/// Since it was opened. On a worker that is online.
void DescribeLsmStore(const index::lsm::LsmStore& store,
                      const index::storage::StorageCounts& counts, nlohmann::ordered_json* json);

}  // namespace farleaf::ycsb
