// SimNode: one life of a simulated node that replicates regions: a process of a SimWorld with a disk for each region, and registered memory.
//
// A node that comes back is another SimNode: with the images of its disks, and another memory server's id, since its memory is new.
//
// Thread rule: that of the world, which outlives it.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "dsm/sim/sim_world.h"
#include "index/storage/sim_storage.h"
#include "server/replication/area_layout.h"

namespace farleaf::test {

class SimNode {
 public:
  /// What is on them, by region.
  using Disks = std::map<uint32_t, index::storage::SimImage>;
  struct Options {
    dsm::ServerId server = 0;  ///< of its memory
    uint64_t seed = 1;
    Disks disks;
  };
  SimNode(dsm::SimWorld* world, Options options)
      : world_(world),
        server_(options.server),
        fabric_(world->NewFabric()),
        identity_{static_cast<dsm::MemberId>(options.server + 1), 1},
        seed_(options.seed) {
    for (auto& [region, image] : options.disks) OpenDisk(region, std::move(image));
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
  /// Empty, if there is none yet.
  index::storage::SimStorage& storage(uint32_t region = 1) {
    const auto at = storages_.find(region);
    return at != storages_.end() ? *at->second : OpenDisk(region, {});
  }
  /// Where its area begins in its memory: behind the tables of the region.
  static constexpr uint64_t kArea = uint64_t{1} << 20;
  std::span<std::byte> area(const server::replication::AreaLayout& layout) {
    return world_->region_bytes(server_).subspan(kArea, layout.bytes());
  }

  /// All that it runs ends where it stands; what is left of its disk. What else it has is to be abandoned by its owner before
  /// AbandonWorkers.
  Disks Crash() {
    world_->CrashProcess(process());
    world_->CrashServer(server_);
    world_->RestartServer(
        server_);  // empty, for fabrics to come: whoever knew the old one gets no further
    Disks disks;
    for (const auto& [region, storage] : storages_) disks[region] = storage->Crash();
    return disks;
  }
  void AbandonWorkers() {
    background_->Abandon();
    clients_->Abandon();
  }

 private:
  index::storage::SimStorage& OpenDisk(uint32_t region, index::storage::SimImage image) {
    auto& opened = storages_[region];
    opened = std::make_unique<index::storage::SimStorage>(
        index::storage::SimStorageOptions{.seed = seed_ + region}, std::move(image));
    return *opened;
  }
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
  const uint64_t seed_;
  std::map<uint32_t, std::unique_ptr<index::storage::SimStorage>> storages_;
  std::unique_ptr<dsm::Worker> background_, clients_;
};

}  // namespace farleaf::test
