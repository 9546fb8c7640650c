#include "benchmark/micro/verb_target.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "dsm/bootstrap/open_fabric.h"
#include "dsm/op_context.h"
#include "dsm/worker.h"

namespace farleaf::micro {

namespace {

using dsm::Batch;
using dsm::FabricCounts;
using dsm::GlobalAddress;
using dsm::OpContext;
using dsm::Task;

constexpr uint64_t kPieceBytes = 1 << 20;
constexpr uint64_t kSetUpNs = 60 * kNsPerSecond;  // to take or to give back

Task<Status> Clear(OpContext& op, GlobalAddress address, uint64_t bytes) {
  const std::vector<std::byte> zeros(std::min(bytes, kPieceBytes));
  for (uint64_t done = 0; done < bytes; done += zeros.size()) {
    Batch batch(address.server());
    batch.Write(address.offset() + done,
                std::span(zeros).first(std::min<uint64_t>(zeros.size(), bytes - done)));
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
  }
  co_return Status::Ok();
}

Task<Result<uint64_t>> Sum(OpContext& op, GlobalAddress address, uint64_t bytes) {
  std::vector<uint64_t> words(std::min(bytes, kPieceBytes) / 8);
  uint64_t sum = 0;
  for (uint64_t done = 0; done < bytes; done += words.size() * 8) {
    const auto piece = std::span(words).first(std::min(words.size(), (bytes - done) / 8));
    Batch batch(address.server());
    batch.Read(address.offset() + done, std::as_writable_bytes(piece));
    Status status = co_await op.worker.RoundTrip(batch, op.counts);
    if (!status.ok()) co_return status;
    sum = std::accumulate(piece.begin(), piece.end(), sum);
  }
  co_return sum;
}

}  // namespace

Result<std::unique_ptr<VerbTarget>> VerbTarget::Open(const VerbTargetOptions& options,
                                                     const Clock* clock) {
  dsm::OpenFabricOptions fabric_options;
  fabric_options.servers_min = options.servers_min;
  auto fabric = dsm::OpenFabric(options.bootstrap, fabric_options, clock);
  if (!fabric.ok()) return fabric.status();
  dsm::Fabric* const opened = fabric->get();
  if (options.server >= opened->regions().size()) {
    return Status::InvalidArgument(
        "memory server " + std::to_string(options.server) + " is not in the pool, which has " +
        std::to_string(opened->regions().size()) + "; --memory-servers-min waits for more");
  }
  auto pool = dsm::Pool::Join(std::move(*fabric), dsm::PoolOptions{}, clock);
  if (!pool.ok()) return pool.status();
  std::unique_ptr<VerbTarget> target(new VerbTarget(std::move(*pool), opened, options.span_bytes));
  FARLEAF_RETURN_IF_ERROR(target->Take(options.server));
  return target;
}

Status VerbTarget::Take(dsm::ServerId server) {
  auto worker = pool_->OpenWorker();
  if (!worker.ok()) return worker.status();
  worker_ = std::move(*worker);
  FabricCounts counts;
  OpContext op{*worker_, counts, worker_->clock().NowNs() + kSetUpNs};
  auto extent = worker_->Run(pool_->allocator().AllocateExtent(op, span_bytes_, server));
  if (!extent.ok()) return extent.status();
  address_ = *extent;
  if (address_.server() != server) {
    FARLEAF_RETURN_IF_ERROR(Close(Memory::kGiveBack));
    return Status::ResourceExhausted("memory server " + std::to_string(server) + " has no " +
                                     std::to_string(span_bytes_) +
                                     " bytes of free chunks in a row; give a smaller --span or "
                                     "another --server");
  }
  Status cleared = worker_->Run(Clear(op, address_, span_bytes_));
  if (cleared.ok()) return cleared;
  // The first failure is the one to tell; a server that is lost takes nothing back either.
  const bool may_land = cleared.code() == StatusCode::kUnknown;
  Status closed = Close(may_land ? Memory::kKeep : Memory::kGiveBack);
  return closed.ok() ? cleared : cleared.WithContext("the target could not be given back");
}

Result<uint64_t> VerbTarget::SumWords() {
  FabricCounts counts;
  OpContext op{*worker_, counts};
  return worker_->Run(Sum(op, address_, span_bytes_));
}

Status VerbTarget::Close(Memory memory) {
  FabricCounts counts;
  OpContext op{*worker_, counts, worker_->clock().NowNs() + kSetUpNs};
  Status freed = Status::Ok();
  if (memory == Memory::kGiveBack) {
    freed = worker_->Run(pool_->allocator().FreeExtent(op, address_, span_bytes_));
  }
  worker_.reset();
  Status left = pool_->Leave();
  return freed.ok() ? left : freed;
}

}  // namespace farleaf::micro
