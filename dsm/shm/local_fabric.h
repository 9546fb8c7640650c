// LocalFabric: memory servers inside this process, for `local:` targets, embedded use and tests. The
// verbs are those of the shm fabric.
//
// Thread rule: thread-safe after Create.
#pragma once

#include <memory>
#include <vector>

#include "dsm/region_layout.h"
#include "dsm/shm/memory_region.h"
#include "dsm/shm/shm_transport.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

class LocalFabric final : public Fabric {
 public:
  struct Options {
    uint32_t servers = 1;
    uint64_t region_bytes = uint64_t{256} << 20;  ///< of each server
    uint64_t chunk_bytes = kChunkBytesDefault;
    Hugepages hugepages = Hugepages::kIfAvailable;
  };
  static Result<std::unique_ptr<LocalFabric>> Create(const Options& options);

  std::string_view name() const override { return "local"; }
  std::span<const RegionInfo> regions() const override { return infos_; }
  Result<std::unique_ptr<Transport>> OpenTransport() override {
    return std::unique_ptr<Transport>(std::make_unique<ShmTransport>(table_));
  }
  /// As if the memory server had died: every later verb on it fails.
  void KillServer(ServerId server) { table_->MarkLost(server); }
  std::span<std::byte> region_bytes(ServerId server) { return regions_[server].bytes(); }

 private:
  LocalFabric() = default;
  std::vector<MemoryRegion> regions_;
  std::vector<RegionInfo> infos_;
  std::shared_ptr<ShmRegionTable> table_ = std::make_shared<ShmRegionTable>();
};

}  // namespace farleaf::dsm
