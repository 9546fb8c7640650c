// MapTarget: a std::map behind the loop that real targets run their operations with.
//
// Thread rule: a Target's; the map is thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "benchmark/ycsb/target.h"
#include "dsm/shm/local_fabric.h"
#include "test/support/map_index.h"

namespace farleaf::ycsb {

class MapTarget final : public IndexTarget {
 public:
  MapTarget(test::MapIndex* map, const Clock* clock)
      : map_(map),
        clock_(clock),
        fabric_(std::move(*dsm::LocalFabric::Create({.servers = 1, .region_bytes = 4 << 20}))) {}
  Result<uint64_t> PoolBytesUsed() override { return uint64_t{0}; }
  Status Close() override { return Status::Ok(); }

 protected:
  index::RangeIndex& index() override { return *map_; }
  Result<std::unique_ptr<dsm::Worker>> OpenWorker() override {
    return std::make_unique<dsm::Worker>(dsm::Worker::Deps{
        .transport = std::move(*fabric_->OpenTransport()), .epochs = &epochs_, .clock = clock_});
  }

 private:
  test::MapIndex* map_;
  const Clock* clock_;
  dsm::EpochDomain epochs_;
  std::unique_ptr<dsm::LocalFabric> fabric_;
};

}  // namespace farleaf::ycsb
