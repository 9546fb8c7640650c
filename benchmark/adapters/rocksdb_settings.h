// RocksDB as an experienced user would set it up for a load that it has not seen, within the given budgets.
//
// Thread rule: pure functions.
#pragma once

#include <rocksdb/options.h>

#include "benchmark/adapters/store_options.h"

namespace farleaf::ycsb {

/// `create`: the directory must hold no store, else it must hold one.
rocksdb::Options RocksDbOptions(const StoreOptions& store, bool create);
rocksdb::ReadOptions RocksDbScanOptions(const StoreOptions& store);
rocksdb::WriteOptions RocksDbWriteOptions(const StoreOptions& store);

}  // namespace farleaf::ycsb
