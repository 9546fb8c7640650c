// CrashingMember: a compute server with a tree that dies at a verb of the test's choice, and RegionSnapshot, by which the
// pool is as it was before the next one dies.
//
// Thread rule: one thread.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "dsm/pool.h"
#include "index/blink/catalog.h"
#include "index/blink/tree.h"
#include "test/support/crashing_fabric.h"

namespace farleaf::test {

struct CrashingMember {
  struct Options {
    index::Geometry geometry;
    index::TreeOptions tree;
    dsm::CrashMemory memory = dsm::CrashMemory::kByVerbs;
  };
  /// The tree "crash" is opened, or made, and its search layer read.
  CrashingMember(dsm::LocalFabric* servers, ManualClock* clock, const Options& options,
                 bool creates) {
    plan.memory = options.memory;
    auto joined =
        dsm::Pool::Join(std::make_unique<dsm::CrashingFabric>(servers, clock, &plan),
                        {.allocator = {.grace_ms = 0, .local_free_pages_max = 16}}, clock);
    FARLEAF_CHECK(joined.ok(), joined.status());
    pool = std::move(*joined);
    worker = std::move(*pool->OpenWorker());
    dsm::OpContext op = Op();
    auto info = worker->Run(creates ? index::CreateTree(op, *pool, "crash", options.geometry)
                                    : index::OpenTree(op, *pool, "crash"));
    FARLEAF_CHECK(info.ok(), info.status());
    tree = std::make_unique<index::BlinkTree>(pool.get(), *info, options.tree);
    dsm::OpContext warm = Op();
    Status warmed = worker->Run(tree->WarmCache(warm));
    FARLEAF_CHECK(warmed.ok(), warmed);
  }
  ~CrashingMember() {
    if (plan.dead) pool->Abandon();
  }
  CrashingMember(const CrashingMember&) = delete;

  dsm::OpContext Op() { return dsm::OpContext{*worker, counts}; }
  /// With nothing in hand. REQUIRES: no operation is running.
  void Leave() {
    tree.reset();
    worker.reset();
    FARLEAF_CHECK(pool->Leave().ok());
  }
  /// It is dead from here on, and its memory servers have confirmed that.
  dsm::MemberIdentity Die(dsm::LocalFabric& servers) {
    plan.dead = true;
    dsm::CrashingFabric::Fence(servers, pool->self());
    return pool->self();
  }

  dsm::CrashPlan plan;
  dsm::FabricCounts counts;
  std::unique_ptr<dsm::Pool> pool;
  std::unique_ptr<dsm::Worker> worker;
  std::unique_ptr<index::BlinkTree> tree;  // destroyed first
};

class RegionSnapshot {
 public:
  explicit RegionSnapshot(dsm::LocalFabric* servers) : servers_(servers) {
    for (const dsm::RegionInfo& info : servers_->regions()) {
      const auto bytes = servers_->region_bytes(info.server);
      saved_.emplace_back(bytes.begin(), bytes.end());
    }
  }
  void Restore() {
    for (const dsm::RegionInfo& info : servers_->regions()) {
      const auto& saved = saved_[info.server];
      std::memcpy(servers_->region_bytes(info.server).data(), saved.data(), saved.size());
    }
  }

 private:
  dsm::LocalFabric* const servers_;
  std::vector<std::vector<std::byte>> saved_;
};

}  // namespace farleaf::test
