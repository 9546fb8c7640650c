#include "benchmark/micro/tree_under_test.h"

#include <string_view>

#include "benchmark/micro/pieces.h"
#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
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

}  // namespace

TreeUnderTest::TreeUnderTest(uint64_t keys) : keys_(keys) {
  // 64 bytes a key are twice what the leaves need.
  const uint64_t region_bytes = RoundUp((uint64_t{32} << 20) + keys * 32, 1 << 20);
  auto fabric = dsm::LocalFabric::Create({.servers = 2, .region_bytes = region_bytes});
  FARLEAF_CHECK(fabric.ok(), fabric.status());
  auto pool = dsm::Pool::Join(std::move(*fabric), dsm::PoolOptions{}, &clock_);
  FARLEAF_CHECK(pool.ok(), pool.status());
  pool_ = std::move(*pool);
  auto worker = pool_->OpenWorker();
  FARLEAF_CHECK(worker.ok(), worker.status());
  worker_ = std::move(*worker);
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker_, counts};
  auto info = worker_->Run(index::CreateTree(op, *pool_, "micro", index::Geometry::Parted()));
  FARLEAF_CHECK(info.ok(), info.status());
  tree_.emplace(pool_.get(), std::move(*info), index::TreeOptions{});
  const Status loaded = worker_->Run(Load(op, *tree_, keys));
  FARLEAF_CHECK(loaded.ok(), loaded);
}

}  // namespace farleaf::micro
