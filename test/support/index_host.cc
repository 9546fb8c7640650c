#include "test/support/index_host.h"

#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/region_layout.h"
#include "index/blink/catalog.h"

namespace farleaf::test {

void PrintTo(const IndexKind& kind, std::ostream* out) { *out << kind.name; }

MapHost::MapHost(MapIndex::Limits limits)
    : fabric_(std::move(*dsm::LocalFabric::Create(
          {.servers = 1, .region_bytes = 4 << 20, .hugepages = dsm::Hugepages::kNever}))),
      map_(limits) {}

std::unique_ptr<dsm::Worker> MapHost::OpenWorker(size_t) {
  auto transport = fabric_->OpenTransport();
  FARLEAF_CHECK(transport.ok(), transport.status());
  return std::make_unique<dsm::Worker>(
      dsm::Worker::Deps{std::move(*transport), &epochs_, &clock_, 1});
}

TreeMembers::TreeMembers(Options options)
    : servers_(options.fabric, {.servers = options.servers,
                                .region_bytes = options.region_bytes,
                                .chunk_bytes = dsm::kChunkBytesMin}) {
  for (size_t i = 0; i < options.members; ++i) {
    dsm::SharedFabric::Options deferring;
    if (options.defer_seed != 0) deferring.defer_seed = options.defer_seed + i * 1000;
    auto pool = dsm::Pool::Join(servers_.Connect(deferring), {.seed = i + 1}, &clock());
    FARLEAF_CHECK(pool.ok(), pool.status());
    members_.push_back({std::move(*pool), nullptr});
    Open(options, i);
  }
}

TreeMembers::~TreeMembers() = default;

std::unique_ptr<dsm::Worker> TreeMembers::OpenWorker(size_t member) {
  auto worker = members_[member].pool->OpenWorker();
  FARLEAF_CHECK(worker.ok(), worker.status());
  return std::move(*worker);
}

size_t TreeMembers::ChunksInUse() {
  size_t used = 0;
  for (const dsm::RegionLayout& layout : pool(0).layouts()) {
    const std::byte* table = servers_.region_bytes(layout.server).data() + dsm::kChunkTableOffset;
    for (uint64_t chunk = 0; chunk < layout.chunk_count; ++chunk) {
      const auto word = dsm::ChunkWord::Decode(LoadLittle<uint64_t>(table + 8 * chunk));
      used += word.kind != dsm::ChunkKind::kUnused && word.kind != dsm::ChunkKind::kRedo;
    }
  }
  return used;
}

void TreeMembers::Open(const Options& options, size_t i) {
  auto worker = OpenWorker(i);
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker, counts};
  dsm::Pool& pool = *members_[i].pool;
  auto info = worker->Run(i == 0 ? index::CreateTree(op, pool, "tree", options.geometry)
                                 : index::OpenTree(op, pool, "tree"));
  FARLEAF_CHECK(info.ok(), info.status());
  members_[i].tree = std::make_unique<index::BlinkTree>(&pool, *info, options.tree);
}

IndexKind MapKind(std::string name, bool fixed8) {
  MapIndex::Limits limits{fixed8, fixed8 ? size_t{8} : size_t{1024},
                          fixed8 ? size_t{8} : size_t{200'000}};
  return {std::move(name),        fixed8,
          limits.key_bytes_max,   64,
          limits.value_bytes_max, [limits] { return std::make_unique<MapHost>(limits); }};
}

IndexKind TreeKind(std::string name, TreeMembers::Options options) {
  const bool fixed8 = options.geometry.layout == index::Layout::kFixed8;
  return {std::move(name),
          fixed8,
          options.geometry.key_bytes_max,
          options.geometry.inline_value_bytes_max,
          fixed8 ? size_t{8} : size_t{200'000},
          [options] { return std::make_unique<TreeMembers>(options); }};
}

std::vector<IndexKind> MapAndTreeKinds() {
  using index::Geometry;
  const Geometry small_bytes{index::Layout::kBytes, 256, 256, 36, 24};
  const Geometry medium_bytes{index::Layout::kBytes, 512, 512, 60, 40};
  const index::TreeOptions without_shortcuts = Without(OptionSet::Shortcuts());
  const index::TreeOptions all_off = Without(OptionSet::All());
  std::vector<IndexKind> kinds{
      MapKind("MapFixed8", true),
      MapKind("MapBytes", false),
      TreeKind("TreeFixed8", {.geometry = Geometry::Fixed8(256)}),
      TreeKind("TreeFixed8LargeLeaves", {.geometry = Geometry::Fixed8(2048, 1024)}),
      TreeKind("TreeParted", {.geometry = Geometry::Parted(4, 256)}),
      TreeKind("TreePartedLargeLeaves", {.geometry = Geometry::Parted()}),
      TreeKind("TreePartedLateVerbs", {.geometry = Geometry::Parted(4, 256), .defer_seed = 1}),
      TreeKind("TreePartedUncached",
               {.geometry = Geometry::Parted(4, 256), .tree = {.cache = index::CacheMode::kNone}}),
      TreeKind("TreePartedWithoutShortcuts",
               {.geometry = Geometry::Parted(4, 256), .tree = without_shortcuts, .defer_seed = 3}),
      TreeKind("TreePartedAllOff", {.geometry = Geometry::Parted(4, 256), .tree = all_off}),
      TreeKind("TreeFixed8LateVerbs", {.geometry = Geometry::Fixed8(256), .defer_seed = 1}),
      TreeKind("TreeFixed8Uncached",
               {.geometry = Geometry::Fixed8(256), .tree = {.cache = index::CacheMode::kNone}}),
      TreeKind("TreeFixed8WithoutShortcuts",
               {.geometry = Geometry::Fixed8(256), .tree = without_shortcuts, .defer_seed = 9}),
      TreeKind("TreeFixed8AllOff", {.geometry = Geometry::Fixed8(256), .tree = all_off}),
      TreeKind("TreeBytes", {.geometry = small_bytes}),
      TreeKind("TreeBytesLateVerbs", {.geometry = medium_bytes, .defer_seed = 7}),
      TreeKind("TreeBytesWithoutShortcuts",
               {.geometry = small_bytes, .tree = without_shortcuts, .defer_seed = 5}),
      TreeKind("TreeBytesAllOff", {.geometry = small_bytes, .tree = all_off}),
      TreeKind("TreeBytesLargeKeys", {.geometry = Geometry::Bytes()})};
  for (const dsm::FabricKind fabric : dsm::ProcessFabrics()) {
    const std::string name = dsm::FabricKindName(fabric);
    kinds.push_back(
        TreeKind("TreeParted_" + name, {.geometry = Geometry::Parted(4, 256), .fabric = fabric}));
    kinds.push_back(TreeKind("TreeBytes_" + name, {.geometry = small_bytes, .fabric = fabric}));
    kinds.push_back(TreeKind(
        "TreePartedWithoutShortcuts_" + name,
        {.geometry = Geometry::Parted(4, 256), .tree = without_shortcuts, .fabric = fabric}));
  }
  return kinds;
}

}  // namespace farleaf::test
