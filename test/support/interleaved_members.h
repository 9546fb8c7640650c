// InterleavedMembers: several compute servers of one pool on one thread, under a seed that decides
// what happens next (test/support/interleaving_fabric.h), and a clock that moves with each turn: a
// wait of seconds takes no time, and a run repeats exactly.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/pool.h"
#include "index/blink/catalog.h"
#include "index/blink/tree.h"
#include "test/support/interleaving_fabric.h"
#include "test/support/shared_fabric.h"

namespace farleaf::index {

struct Member {
  std::unique_ptr<dsm::Pool> pool;
  std::unique_ptr<BlinkTree> tree;
  std::vector<std::unique_ptr<dsm::Worker>> workers;
};

/// Drives workers of several members on this thread until all that they were given is done.
class InterleavedMembers {
 public:
  struct Options {
    uint64_t seed = 1;
    Geometry geometry = Geometry::Fixed8(256);
    TreeOptions tree;
    size_t members = 3;
    uint32_t servers = 2;
    uint64_t region_bytes = uint64_t{8} << 20;
    uint64_t grace_ms = 0;  ///< pages are reused at once: nothing may rely on the grace period
    uint32_t local_free_pages_max = 512;
    dsm::BatchFault fail = nullptr;
  };

  explicit InterleavedMembers(const Options& options) : options_(options), random_(options.seed) {
    auto servers = dsm::LocalFabric::Create({.servers = options.servers,
                                             .region_bytes = options.region_bytes,
                                             .chunk_bytes = dsm::kChunkBytesMin,
                                             .hugepages = dsm::Hugepages::kNever});
    FARLEAF_CHECK(servers.ok(), servers.status());
    servers_ = std::move(*servers);
    setup_ = Join(std::make_unique<dsm::SharedFabric>(servers_.get()));
    dsm::FabricCounts counts;
    OpContext op{*setup_.workers[0], counts};
    auto info =
        setup_.workers[0]->Run(CreateTree(op, *setup_.pool, "interleaved", options.geometry));
    FARLEAF_CHECK(info.ok(), info.status());
    info_ = *info;
    setup_.tree = std::make_unique<BlinkTree>(setup_.pool.get(), info_, options.tree);
    for (size_t i = 0; i < options.members; ++i) {
      members_.push_back(Join(std::make_unique<dsm::SharedFabric>(servers_.get())));
      // Joined at once; from here on its workers' batches take their time.
      members_.back().workers.clear();
      for (int k = 0; k < 2; ++k) {
        members_.back().workers.push_back(NewSlowWorker(*members_.back().pool));
      }
      members_.back().tree =
          std::make_unique<BlinkTree>(members_.back().pool.get(), info_, options.tree);
    }
  }

  std::vector<Member>& members() { return members_; }
  Member& setup() { return setup_; }
  dsm::LocalFabric& servers() { return *servers_; }
  ManualClock& clock() { return clock_; }
  Random& random() { return random_; }

  void RunAll() {
    std::vector<dsm::Worker*> workers;
    for (Member& member : members_) {
      for (auto& worker : member.workers) workers.push_back(worker.get());
    }
    for (dsm::Worker* worker : workers) worker->GoOnline();
    const auto busy = [&] {
      for (dsm::Worker* worker : workers) {
        if (worker->spawned() > 0) return true;
      }
      return false;
    };
    for (uint64_t turn = 1; turn % 64 != 0 || busy(); ++turn) {
      workers[random_.Below(workers.size())]->RunOnce(dsm::Worker::Idle::kReturn);
      clock_.AdvanceNs(random_.Below(600));
    }
    for (dsm::Worker* worker : workers) worker->GoOffline();
  }
  /// On the setup member, whose verbs complete at once.
  template <typename T>
  T RunSetup(Task<T> task) {
    return RunOn(*setup_.workers[0], std::move(task));
  }
  /// Only sleeps need the clock.
  template <typename T>
  T RunOn(dsm::Worker& worker, Task<T> task) {
    worker.GoOnline();
    task.Start();
    while (!task.done()) {
      worker.RunOnce(dsm::Worker::Idle::kReturn);
      clock_.AdvanceNs(1'000);
    }
    worker.GoOffline();
    return task.TakeResult();
  }

  /// A worker of a pool whose batches take their time.
  std::unique_ptr<dsm::Worker> NewSlowWorker(dsm::Pool& pool) {
    dsm::InterleavingFabric fabric(servers_.get(), &random_, options_.fail);
    return std::make_unique<dsm::Worker>(
        dsm::Worker::Deps{.transport = std::move(*fabric.OpenTransport()),
                          .epochs = &pool.epochs(),
                          .clock = &clock_,
                          .seed = random_.Next()});
  }
  /// A member whose batches complete at once, without a tree object yet.
  Member Join(dsm::PoolOptions::Role role = dsm::PoolOptions::Role::kMember) {
    return Join(std::make_unique<dsm::SharedFabric>(servers_.get()), role);
  }
  const TreeInfo& info() const { return info_; }

 private:
  Member Join(std::unique_ptr<dsm::Fabric> fabric,
              dsm::PoolOptions::Role role = dsm::PoolOptions::Role::kMember) {
    Member member;
    auto pool =
        dsm::Pool::Join(std::move(fabric),
                        {.role = role,
                         .seed = random_.Next(),
                         .allocator = {.grace_ms = options_.grace_ms,
                                       .local_free_pages_max = options_.local_free_pages_max}},
                        &clock_);
    FARLEAF_CHECK(pool.ok(), pool.status());
    member.pool = std::move(*pool);
    member.workers.push_back(std::move(*member.pool->OpenWorker()));
    return member;
  }

  Options options_;
  Random random_;
  ManualClock clock_;
  std::unique_ptr<dsm::LocalFabric> servers_;
  Member setup_;
  TreeInfo info_;
  std::vector<Member> members_;  // destroyed before the memory servers
};

}  // namespace farleaf::index
