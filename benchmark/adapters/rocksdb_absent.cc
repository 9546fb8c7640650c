// Instead of rocksdb_target.cc, where librocksdb-dev is not installed.
#include "benchmark/adapters/rocksdb_target.h"

namespace farleaf::ycsb {

bool HasRocksDb() { return false; }

Result<std::unique_ptr<Target>> OpenRocksDbTarget(const StoreOptions& /*store*/,
                                                  const TargetOptions& /*options*/,
                                                  const Clock* /*clock*/) {
  return Status::Unimplemented(
      "this ycsb was built without RocksDB: install librocksdb-dev and build again");
}

}  // namespace farleaf::ycsb
