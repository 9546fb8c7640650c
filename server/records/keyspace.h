// Keyspace: what all threads of a compute server share of the records that clients of every protocol see.
//
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "server/records/record_store.h"

namespace farleaf::server {

struct Keyspace {
  Keyspace(index::RangeIndex* tree, const Clock* wall) : store(tree, wall) {}

  const RecordStore store;
  /// When all is to be deleted, since 1970; 0: no flush waits. The latest one replaces the others.
  std::atomic<uint64_t> flush_at_ms{0};
};

}  // namespace farleaf::server
