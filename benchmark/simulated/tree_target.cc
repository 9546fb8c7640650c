#include "benchmark/simulated/tree_target.h"

#include <utility>

#include "benchmark/ycsb/operation_loop.h"
#include "benchmark/ycsb/pool_target.h"

namespace farleaf::ycsb {

using dsm::FabricCounts;
using dsm::OpContext;

Status SimulatedTreeTarget::Open() {
  for (uint64_t i = 0; i < world().model().compute_servers; ++i) {
    auto joined = std::make_unique<ComputeServer>();
    FARLEAF_RETURN_IF_ERROR(Join(joined.get()));
    compute_servers_.push_back(std::move(joined));
  }
  return Status::Ok();
}

Status SimulatedTreeTarget::Join(ComputeServer* joined) {
  dsm::PoolOptions pool_options;
  pool_options.seed = options_.seed + compute_servers_.size();
  auto pool = dsm::Pool::Join(world().NewFabric(), pool_options, &world().clock());
  if (!pool.ok()) return pool.status();
  joined->pool = std::move(*pool);
  auto worker = joined->pool->OpenWorker();
  if (!worker.ok()) return worker.status();
  joined->worker = std::move(*worker);
  FabricCounts counts;
  OpContext op{*joined->worker, counts};
  auto info = joined->worker->Run(CreateOrOpenTree(op, *joined->pool, options_));
  if (!info.ok()) return info.status();
  joined->tree.emplace(joined->pool.get(), std::move(*info), TreeOptionsOf(options_));
  return Status::Ok();
}

Result<std::unique_ptr<dsm::Worker>> SimulatedTreeTarget::OpenWorker(uint32_t compute_server) {
  return compute_servers_[compute_server]->pool->OpenWorker();
}

dsm::Task<void> SimulatedTreeTarget::RunOn(dsm::Worker& worker, uint32_t compute_server,
                                           OperationSource& source) {
  return RunOperations({*compute_servers_[compute_server]->tree, worker, source});
}

Status SimulatedTreeTarget::WarmCaches() {
  if (!options_.cache) return Status::Ok();
  for (const auto& one : compute_servers_) {
    FabricCounts counts;
    OpContext op{*one->worker, counts};
    FARLEAF_RETURN_IF_ERROR(one->worker->Run(one->tree->WarmCache(op)));
  }
  return Status::Ok();
}

Result<uint64_t> SimulatedTreeTarget::PoolBytesUsed() {
  ComputeServer& first = *compute_servers_.front();
  FabricCounts counts;
  OpContext op{*first.worker, counts};
  return first.worker->Run(SumChunks(op, first.pool->layouts()));
}

Status SimulatedTreeTarget::Close() {
  CloseWorkers();
  Status status;
  for (const auto& one : compute_servers_) {
    one->tree.reset();
    one->worker.reset();
    Status left = one->pool->Leave();
    if (status.ok()) status = std::move(left);
  }
  return status;
}

}  // namespace farleaf::ycsb
