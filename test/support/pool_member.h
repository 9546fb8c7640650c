// PoolMember: one compute server of a test, with one thread, and the calls that it makes.
//
// Thread rule: as Worker; `pool` may be shared by other workers.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "dsm/allocator.h"
#include "dsm/pool.h"
#include "test/support/shared_fabric.h"

namespace farleaf::dsm {

inline Task<Status> WriteOneWord(OpContext& op, GlobalAddress address, uint64_t word) {
  Batch batch(address.server());
  batch.WriteWord(address.offset(), &word);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  co_return status;
}

struct PoolMember {
  PoolMember(LocalFabric* servers, const Clock* clock, AllocatorOptions options = {},
             SharedFabric::Options fabric = {}) {
    auto joined =
        Pool::Join(std::make_unique<SharedFabric>(servers, fabric), {.allocator = options}, clock);
    EXPECT_TRUE(joined.ok()) << joined.status();
    pool = std::move(*joined);
    worker = std::move(*pool->OpenWorker());
  }

  Allocator& allocator() { return pool->allocator(); }
  OpContext op() { return {*worker, counts}; }
  Result<PageGrant> TryAllocate(PageClass page_class, ServerId preferred = 0) {
    OpContext context = op();
    auto grant = worker->Run(allocator().Allocate(context, page_class, preferred));
    if (grant.ok()) allocator().NoteWritten(page_class, grant->address);  // as far as tests care
    return grant;
  }
  PageGrant Allocate(PageClass page_class, ServerId preferred = 0) {
    auto grant = TryAllocate(page_class, preferred);
    EXPECT_TRUE(grant.ok()) << grant.status();
    return grant.ok() ? *grant : PageGrant{};
  }
  /// Every page of the class that the pool still has.
  std::vector<PageGrant> AllocateAll(PageClass page_class) {
    std::vector<PageGrant> grants;
    for (;;) {
      auto grant = TryAllocate(page_class);
      if (!grant.ok()) {
        EXPECT_EQ(grant.status().code(), StatusCode::kResourceExhausted) << grant.status();
        return grants;
      }
      grants.push_back(*grant);
    }
  }
  uint64_t free_word() const {
    return LockWord{.state = LockWord::State::kFreePage,
                    .owner = pool->self().id,
                    .incarnation = pool->self().short_incarnation()}
        .Encode();
  }
  void Retire(PageClass page_class, PageGrant grant) {
    WriteWord(grant.address + LockWordOffset(page_class), free_word());
    allocator().Retire(pool->clock(), page_class, grant);
  }
  void WriteWord(GlobalAddress address, uint64_t word) {
    OpContext context = op();
    Status status = worker->Run(WriteOneWord(context, address, word));
    EXPECT_TRUE(status.ok()) << status;
  }
  Status Trim() {
    OpContext context = op();
    return worker->Run(allocator().Trim(context));
  }
  Result<GlobalAddress> AllocateExtent(uint64_t bytes, ServerId preferred = 0) {
    OpContext context = op();
    return worker->Run(allocator().AllocateExtent(context, bytes, preferred));
  }
  Status FreeExtent(GlobalAddress address, uint64_t bytes) {
    OpContext context = op();
    return worker->Run(allocator().FreeExtent(context, address, bytes));
  }
  Result<GlobalAddress> RedoArea(ServerId server) {
    OpContext context = op();
    return worker->Run(allocator().RedoArea(context, server));
  }
  void Leave() {
    Status status = pool->Leave();
    EXPECT_TRUE(status.ok()) << status;
  }

  std::unique_ptr<Pool> pool;
  FabricCounts counts;
  std::unique_ptr<Worker> worker;  // destroyed before the pool
};

}  // namespace farleaf::dsm
