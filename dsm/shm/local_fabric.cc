#include "dsm/shm/local_fabric.h"

namespace farleaf::dsm {

Result<std::unique_ptr<LocalFabric>> LocalFabric::Create(const Options& options) {
  std::unique_ptr<LocalFabric> fabric(new LocalFabric);
  for (uint32_t i = 0; i < options.servers; ++i) {
    const auto server = static_cast<ServerId>(i);
    auto layout = RegionLayout::For(server, options.region_bytes, options.chunk_bytes);
    if (!layout.ok()) return layout.status();
    layout->incarnation = 1;  // a local server never restarts
    auto region = MemoryRegion::Create({options.region_bytes, options.hugepages, ""});
    if (!region.ok()) return region.status();
    FormatRegion(*layout, region->bytes());
    fabric->regions_.push_back(std::move(*region));
    fabric->infos_.push_back({server, options.region_bytes, layout->incarnation});
    fabric->table_->Add(server, fabric->regions_.back().bytes());
  }
  return fabric;
}

}  // namespace farleaf::dsm
