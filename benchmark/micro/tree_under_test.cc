#include "benchmark/micro/tree_under_test.h"

#include <utility>
#include <vector>

#include "benchmark/micro/pieces.h"
#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/random.h"
#include "dsm/bootstrap/open_fabric.h"
#include "dsm/shm/local_fabric.h"
#include "index/blink/catalog.h"

namespace farleaf::micro {

namespace {

/// What a tree's name and its table say of it.
std::string NameOf(const TreeUnderTestOptions& options) {
  if (options.layout == index::Layout::kBytes) return "bytes";
  return options.leaf_layout == index::LeafLayout::kSorted ? "sorted" : "parted";
}

index::Geometry GeometryOf(const TreeUnderTestOptions& options) {
  if (options.layout == index::Layout::kBytes) {
    return index::Geometry::DefaultOf(index::Layout::kBytes, index::LeafLayout::kSorted);
  }
  if (options.leaf_layout == index::LeafLayout::kParted && options.leaf_parts != 0) {
    return index::Geometry::Parted(static_cast<uint32_t>(options.leaf_parts));
  }
  return index::Geometry::DefaultOf(index::Layout::kFixed8, options.leaf_layout);
}

/// Of a key in a memory server's region, with room to spare.
uint64_t RegionBytesPerKey(const TreeUnderTestOptions& options) {
  if (options.layout == index::Layout::kFixed8) return 64;  // twice what the leaves need
  const uint64_t entry = 10 + kByteKeyBytes;
  if (options.value_bytes <= GeometryOf(options).inline_value_bytes_max) {
    return (entry + options.value_bytes) * 2;
  }
  return (entry + 24) * 2 + (16 + options.value_bytes) * 5 / 4 + 64;
}

Result<std::unique_ptr<dsm::Fabric>> OpenServers(const TreeUnderTestOptions& options,
                                                 const Clock* clock) {
  if (!options.bootstrap.empty()) {
    return dsm::OpenFabric(options.bootstrap, dsm::OpenFabricOptions{}, clock);
  }
  const uint64_t region_bytes = RoundUp(
      (uint64_t{48} << 20) + options.keys * RegionBytesPerKey(options) / 2, uint64_t{1} << 20);
  auto fabric = dsm::LocalFabric::Create({.servers = 2, .region_bytes = region_bytes});
  if (!fabric.ok()) return fabric.status();
  return std::unique_ptr<dsm::Fabric>(std::move(*fabric));
}

}  // namespace

TreeUnderTest::TreeUnderTest(const TreeUnderTestOptions& options)
    : options_(options), leaf_layout_(NameOf(options)) {
  auto fabric = OpenServers(options, &clock_);
  FARLEAF_CHECK(fabric.ok(), fabric.status());
  fabric_ = (*fabric)->name();
  auto pool = dsm::Pool::Join(std::move(*fabric), dsm::PoolOptions{}, &clock_);
  FARLEAF_CHECK(pool.ok(), pool.status());
  pool_ = std::move(*pool);
  auto worker = pool_->OpenWorker();
  FARLEAF_CHECK(worker.ok(), worker.status());
  worker_ = std::move(*worker);
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker_, counts};
  auto info =
      worker_->Run(index::CreateTree(op, *pool_, "micro_" + leaf_layout_, GeometryOf(options)));
  FARLEAF_CHECK(info.ok(), info.status());
  index::TreeOptions tree_options;
  tree_options.in_place = options.in_place;
  tree_.emplace(pool_.get(), std::move(*info), tree_options);
  const uint64_t begin_ns = ThreadCpuNs();
  const Status loaded = worker_->Run(Load(op));
  FARLEAF_CHECK(loaded.ok(), loaded);
  load_ns_per_key_ =
      static_cast<double>(ThreadCpuNs() - begin_ns) / static_cast<double>(options.keys);
  if (fixed8()) return;
  const Status scanned = worker_->Run(ScanAll(op));
  FARLEAF_CHECK(scanned.ok(), scanned);
}

void TreeUnderTest::FillKey(uint64_t number, std::span<char> key) const {
  StoreBig64(key.data(), KeyOf(number));
  for (size_t at = 8; at < key.size(); at += 8) StoreBig64(&key[at], Mix64(number + at));
}

dsm::Task<Status> TreeUnderTest::Load(dsm::OpContext& op) {
  std::string key(key_bytes(), '\0'), value(value_bytes(), 'v');
  for (uint64_t i = 0; i < options_.keys; ++i) {
    FillKey(i, key);
    StoreBig64(value.data(), i);
    auto inserted = co_await tree_->Insert(op, key, value);
    if (!inserted.ok()) co_return inserted.status();
    FARLEAF_CHECK(*inserted, i);
  }
  co_return Status::Ok();
}

dsm::Task<Status> TreeUnderTest::ScanAll(dsm::OpContext& op) {
  constexpr uint64_t kPageRows = 1000;
  std::string from;
  std::vector<index::KeyValue> rows;
  uint64_t seen = 0;
  do {
    Status status = co_await tree_->Scan(op, {.start = from, .limit = kPageRows}, &rows);
    if (!status.ok()) co_return status;
    seen += rows.size();
    if (!rows.empty()) from = rows.back().key + '\0';
  } while (rows.size() == kPageRows);
  FARLEAF_CHECK(seen == options_.keys, seen);
  co_return Status::Ok();
}

}  // namespace farleaf::micro
