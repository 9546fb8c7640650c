// PoolHosts: compute servers without their front ends: the trees of one pool, as each of several servers has them, with
// a pool and caches of its own.
//
// Thread rule: PoolTreeHost's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "server/pool_tree_host.h"
#include "test/support/fabric_under_test.h"
#include "test/support/shared_fabric.h"

namespace farleaf::test {

class PoolHosts {
 public:
  static constexpr uint64_t kRegionBytes = uint64_t{32} << 20;

  /// `defer_seed`: not 0: verbs suspend, and end in any order. `region_bytes`: of each of two memory servers.
  explicit PoolHosts(size_t count, uint64_t defer_seed = 0, uint64_t region_bytes = kRegionBytes);
  ~PoolHosts();
  dsm::Pool& pool(size_t i) { return *pools_[i]; }
  server::PoolTreeHost& host(size_t i) { return *hosts_[i]; }

 private:
  dsm::FabricUnderTest memory_;
  std::vector<std::unique_ptr<dsm::Pool>> pools_;
  std::vector<std::unique_ptr<server::PoolTreeHost>> hosts_;  // destroyed first
};

}  // namespace farleaf::test
