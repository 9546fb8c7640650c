// SimNode: one life of a simulated node that replicates regions: a process of a SimWorld with a disk and registered memory.
//
// A node that comes back is another SimNode: with the image of its disk, and another memory server's id, since its memory is new.
//
// Thread rule: that of the world, which outlives it.
#pragma once

#include <memory>
#include <utility>

#include "dsm/sim/sim_world.h"
#include "index/storage/sim_storage.h"
#include "server/replication/area_layout.h"

namespace farleaf::test {

class SimNode {
 public:
  struct Options {
    dsm::ServerId server = 0;  ///< of its memory
    uint64_t seed = 1;
    index::storage::SimImage image;
  };
  SimNode(dsm::SimWorld* world, Options options)
      : world_(world),
        server_(options.server),
        fabric_(world->NewFabric()),
        identity_{static_cast<dsm::MemberId>(options.server + 1), 1},
        storage_({.seed = options.seed}, std::move(options.image)) {
    const Status identified = fabric_->Identify(identity_);
    FARLEAF_CHECK(identified.ok(), identified);
    for (auto* worker : {&background_, &clients_}) *worker = OpenWorker(++options.seed);
    world->AddThread(process(), background_.get(), dsm::SimWorld::ThreadRole::kBackground);
    world->AddThread(process(), clients_.get(), dsm::SimWorld::ThreadRole::kWorks);
  }
  ~SimNode() {
    for (auto* worker : {background_.get(), clients_.get()}) world_->RemoveThread(worker);
  }
  SimNode(const SimNode&) = delete;

  uint32_t process() const { return fabric_->process(); }
  dsm::ServerId server() const { return server_; }
  const dsm::MemberIdentity& identity() const { return identity_; }
  dsm::Worker& background() { return *background_; }
  /// Which the world waits for (RunWhileBusy).
  dsm::Worker& clients() { return *clients_; }
  dsm::EpochDomain& epochs() { return epochs_; }
  index::storage::SimStorage& storage() { return storage_; }
  /// Where its area begins in its memory: behind the tables of the region.
  static constexpr uint64_t kArea = uint64_t{1} << 20;
  std::span<std::byte> area(const server::replication::AreaLayout& layout) {
    return world_->region_bytes(server_).subspan(kArea, layout.bytes());
  }

  /// All that it runs ends where it stands; what is left of its disk. What else it has is to be abandoned by its owner before
  /// AbandonWorkers.
  index::storage::SimImage Crash() {
    world_->CrashProcess(process());
    world_->CrashServer(server_);
    world_->RestartServer(server_);  // empty, for fabrics to come: whoever knew the old one gets no further
    return storage_.Crash();
  }
  void AbandonWorkers() {
    background_->Abandon();
    clients_->Abandon();
  }

 private:
  std::unique_ptr<dsm::Worker> OpenWorker(uint64_t seed) {
    auto transport = fabric_->OpenTransport();
    FARLEAF_CHECK(transport.ok(), transport.status());
    return std::make_unique<dsm::Worker>(dsm::Worker::Deps{.transport = std::move(*transport),
                                                           .epochs = &epochs_,
                                                           .clock = &world_->clock(),
                                                           .seed = seed});
  }

  dsm::SimWorld* const world_;
  const dsm::ServerId server_;
  const std::unique_ptr<dsm::SimFabric> fabric_;
  const dsm::MemberIdentity identity_;
  dsm::EpochDomain epochs_;
  index::storage::SimStorage storage_;
  std::unique_ptr<dsm::Worker> background_, clients_;
};

}  // namespace farleaf::test
