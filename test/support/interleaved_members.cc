#include "test/support/interleaved_members.h"

#include <utility>

#include "dsm/base/check.h"
#include "index/blink/catalog.h"

namespace farleaf::index {

InterleavedMembers::InterleavedMembers(const Options& options)
    : options_(options), random_(options.seed) {
  auto servers = dsm::LocalFabric::Create({.servers = options.servers,
                                           .region_bytes = options.region_bytes,
                                           .chunk_bytes = dsm::kChunkBytesMin,
                                           .hugepages = dsm::Hugepages::kNever});
  FARLEAF_CHECK(servers.ok(), servers.status());
  servers_ = std::move(*servers);
  setup_ = Join(std::make_unique<dsm::SharedFabric>(servers_.get()));
  dsm::FabricCounts counts;
  OpContext op{*setup_.workers[0], counts};
  auto info = setup_.workers[0]->Run(CreateTree(op, *setup_.pool, "interleaved", options.geometry));
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

InterleavedMembers::~InterleavedMembers() = default;

void InterleavedMembers::RunAll() {
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

std::unique_ptr<dsm::Worker> InterleavedMembers::NewSlowWorker(dsm::Pool& pool) {
  dsm::InterleavingFabric fabric(servers_.get(), &random_, options_.fail);
  return std::make_unique<dsm::Worker>(
      dsm::Worker::Deps{.transport = std::move(*fabric.OpenTransport()),
                        .epochs = &pool.epochs(),
                        .clock = &clock_,
                        .seed = random_.Next()});
}

Member InterleavedMembers::Join(dsm::PoolOptions::Role role) {
  return Join(std::make_unique<dsm::SharedFabric>(servers_.get()), role);
}

Member InterleavedMembers::Join(std::unique_ptr<dsm::Fabric> fabric, dsm::PoolOptions::Role role) {
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

}  // namespace farleaf::index
