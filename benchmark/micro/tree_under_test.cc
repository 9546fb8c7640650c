#include "benchmark/micro/tree_under_test.h"

#include <string_view>
#include <utility>

#include "benchmark/micro/pieces.h"
#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/bootstrap/open_fabric.h"
#include "dsm/shm/local_fabric.h"
#include "index/blink/catalog.h"

namespace farleaf::micro {

namespace {

dsm::Task<Status> Load(dsm::OpContext& op, index::BlinkTree& tree, uint64_t keys) {
  char key[8], value[8];
  for (uint64_t i = 0; i < keys; ++i) {
    StoreBig64(key, KeyOf(i));
    StoreBig64(value, i);
    auto inserted = co_await tree.Insert(op, {key, 8}, {value, 8});
    if (!inserted.ok()) co_return inserted.status();
    FARLEAF_CHECK(*inserted, i);
  }
  co_return Status::Ok();
}

Result<std::unique_ptr<dsm::Fabric>> OpenServers(const TreeUnderTestOptions& options,
                                                 const Clock* clock) {
  if (!options.bootstrap.empty()) {
    return dsm::OpenFabric(options.bootstrap, dsm::OpenFabricOptions{}, clock);
  }
  // 64 bytes a key are twice what the leaves need.
  const uint64_t region_bytes = RoundUp((uint64_t{32} << 20) + options.keys * 32, 1 << 20);
  auto fabric = dsm::LocalFabric::Create({.servers = 2, .region_bytes = region_bytes});
  if (!fabric.ok()) return fabric.status();
  return std::unique_ptr<dsm::Fabric>(std::move(*fabric));
}

}  // namespace

TreeUnderTest::TreeUnderTest(const TreeUnderTestOptions& options)
    : keys_(options.keys),
      leaf_layout_(options.leaf_layout == index::LeafLayout::kSorted ? "sorted" : "parted") {
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
  const index::Geometry geometry =
      index::Geometry::DefaultOf(index::Layout::kFixed8, options.leaf_layout);
  auto info = worker_->Run(index::CreateTree(op, *pool_, "micro_" + leaf_layout_, geometry));
  FARLEAF_CHECK(info.ok(), info.status());
  tree_.emplace(pool_.get(), std::move(*info), index::TreeOptions{});
  const uint64_t begin_ns = ThreadCpuNs();
  const Status loaded = worker_->Run(Load(op, *tree_, keys_));
  FARLEAF_CHECK(loaded.ok(), loaded);
  load_ns_per_key_ = static_cast<double>(ThreadCpuNs() - begin_ns) / static_cast<double>(keys_);
}

}  // namespace farleaf::micro
