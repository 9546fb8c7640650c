#include "test/support/pool_hosts.h"

#include <utility>

#include "dsm/base/check.h"

namespace farleaf::test {

PoolHosts::PoolHosts(size_t count, uint64_t defer_seed, uint64_t region_bytes)
    : memory_(dsm::FabricKind::kLocal,
              {.servers = 2, .region_bytes = region_bytes, .chunk_bytes = dsm::kChunkBytesMin}) {
  for (uint64_t i = 0; i < count; ++i) {
    dsm::SharedFabric::Options deferring;
    if (defer_seed != 0) deferring.defer_seed = defer_seed + i * 1000;
    auto pool = dsm::Pool::Join(memory_.Connect(deferring), {.seed = i + 1}, &memory_.clock());
    FARLEAF_CHECK(pool.ok(), pool.status());
    pools_.push_back(std::move(*pool));
    // On a slow machine thousands of operations may be in front of one.
    const index::TreeOptions patient{.lock_wait_ms = 60'000};
    hosts_.push_back(std::make_unique<server::PoolTreeHost>(pools_.back().get(), "test:", patient));
  }
}

PoolHosts::~PoolHosts() = default;

}  // namespace farleaf::test
