#include "test/support/sim_cluster_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "server/cluster/held.h"
#include "server/cluster/offer.h"
#include "server/membership/counters.h"

namespace farleaf::test {

using dsm::Task;
using index::lsm::LsmOptions;
using index::lsm::LsmStore;
using server::cluster::Master;
using server::cluster::NodeRegions;
using server::cluster::RegionDeps;
using server::cluster::RegionGate;

namespace {

constexpr uint64_t kAnnounceRetryNs = 100 * kNsPerMs;

/// All of a disk, to one where there is nothing.
Task<Status> CopyDisk(dsm::Worker& worker, index::storage::Storage& from,
                      index::storage::Storage& to) {
  using index::storage::Io;
  using index::storage::IoKind;
  const auto segments = from.List();
  if (!segments.ok()) co_return segments.status();
  index::lsm::AlignedBytes memory(index::storage::kSegmentBytes);
  for (const index::storage::SegmentId id : *segments) {
    Status status = co_await to.Create(worker, id, {});
    Io io{IoKind::kRead, id, 0, memory.span()};
    if (status.ok()) status = co_await from.Run(worker, {&io, 1});
    io.kind = IoKind::kWrite;
    if (status.ok()) status = co_await to.Run(worker, {&io, 1});
    Io sync{IoKind::kSync, id};
    if (status.ok()) status = co_await to.Run(worker, {&sync, 1});
    if (!status.ok()) co_return status;
  }
  auto files = from.ListFiles();
  if (!files.ok()) co_return files.status();
  std::ranges::sort(*files, std::greater<>());  // MANIFEST-…, then CURRENT
  for (const std::string& name : *files) {
    auto bytes = co_await from.ReadFile(worker, name);
    if (!bytes.ok()) co_return bytes.status();
    Status status = co_await to.ReplaceFile(worker, name, std::move(*bytes));
    if (!status.ok()) co_return status;
  }
  co_return Status::Ok();
}

Task<void> Counted(Task<void> task, size_t* running) {
  ++*running;
  co_await std::move(task);
  --*running;
}

}  // namespace

void SimClusterNode::Start() {
  ASSERT_LT(lives_, deps_.lives_max);
  const auto server = static_cast<dsm::ServerId>((id_ - 1) * deps_.lives_max + lives_++);
  sim_ = std::make_unique<SimNode>(
      deps_.world, SimNode::Options{server, deps_.random->Next(), std::exchange(disks_, {})});
  life_over_ = false;
  backgrounds_.clear();
  areas_ = std::make_unique<dsm::AreaAllocator>(
      dsm::Area{SimNode::kArea, deps_.regions_max * deps_.layout.bytes()});
  auto session = deps_.service->Open();
  ASSERT_TRUE(session.ok()) << session.status();
  session_ = std::move(*session);
  Worker& worker = sim_->background();
  worker.Spawn(session_->KeepAlive(worker));
  worker.Spawn(Live(worker));
}

void SimClusterNode::Crash() {
  disks_ = sim_->Crash();
  if (regions_) regions_->Abandon();
  sim_->AbandonWorkers();
  regions_ = nullptr;
  master_ = nullptr;
  session_ = nullptr;
  sim_ = nullptr;
}

Task<void> SimClusterNode::Live(Worker& worker) {
  Status announced = co_await Announce(worker);
  if (!announced.ok()) {
    life_over_ = true;
    co_return;
  }
  Master::Deps master;
  master.session = session_.get();
  master.clock = &deps_.world->clock();
  master.self = id_;
  master.name = std::to_string(id_) + "/" + std::to_string(sim_->server());
  master.make_store = [this](Worker& on, RegionId region) { return MakeStore(on, region); };
  master_ = std::make_unique<Master>(
      std::move(master),
      server::cluster::MasterOptions{.replicas = deps_.replicas, .headless_wait_ms = 3'000});
  worker.Spawn(master_->Run(worker));
  Status ended = co_await regions_->Run(worker);
  master_->Stop();
  life_over_ = true;
  EXPECT_EQ(ended.code(), StatusCode::kFenced) << ended;
}

Task<Status> SimClusterNode::Announce(Worker& worker) {
  namespace membership = server::membership;
  membership::RegionStore store(session_.get());
  Status status = co_await store.Prepare(worker);
  for (const char* path : {server::cluster::kOffersPath, server::cluster::kHeldPath, "/master"}) {
    if (status.ok()) status = co_await membership::CreatePath(worker, *session_, path);
  }
  if (!status.ok()) co_return status;
  NodeRegions::Deps deps;
  deps.session = session_.get();
  deps.self = id_;
  deps.deps_of = [this](RegionId region, RegionGate* gate) { return DepsOf(region, gate); };
  deps.remove_others = [](const membership::RegionMap&) { return Status::Ok(); };
  regions_ = std::make_unique<NodeRegions>(std::move(deps));
  membership::NodeEntry entry{.id = id_,
                              .incarnation = sim_->server() + uint64_t{1},
                              .native_endpoints = {},
                              .fabric_endpoint = "sim"};
  for (;;) {
    status = co_await regions_->LeaveOldLife(worker);
    refused_begins_ += status.code() == StatusCode::kAlreadyExists;
    if (status.ok()) status = co_await store.Announce(worker, entry);
    // Its last life's session has not expired yet.
    if (status.code() != StatusCode::kAlreadyExists) co_return status;
    co_await worker.Sleep(kAnnounceRetryNs);
  }
}

RegionDeps SimClusterNode::DepsOf(RegionId region, RegionGate* gate) {
  RegionDeps deps;
  deps.session = session_.get();
  deps.clock = &deps_.world->clock();
  deps.region = region;
  deps.self = {id_, sim_->server() + uint64_t{1}};
  deps.memory.server = sim_->server();
  deps.memory.layout = deps_.layout;
  deps.memory.areas = areas_.get();
  deps.memory.bytes = [this](dsm::Area area) {
    return deps_.world->region_bytes(sim_->server()).subspan(area.offset, area.bytes);
  };
  deps.memory.cut_off = [this, region](const dsm::MemberIdentity& life) {
    // Then it is promoted, if its life goes on; or filled.
    if (session_->state() != server::membership::SessionState::kExpired &&
        deps_.random->OneIn(4)) {
      DiskOf(region).FailIo(1);
    }
    // The simulation's fabrics name a node's life by its memory server: SimNode::identity.
    deps_.world->CutOffAt(sim_->server(), {static_cast<dsm::MemberId>(life.incarnation), 1});
    return Status::Ok();
  };
  deps.gate = gate;
  deps.add_peer = [](const dsm::ServerEndpoint&) { return Status::Ok(); };
  deps.storage = [this, region]() -> Result<index::storage::Storage*> { return &DiskOf(region); };
  deps.open_store = [this, region](Worker& worker, index::lsm::Mirror* mirror) {
    return OpenStore(worker, region, mirror);
  };
  deps.begin_background = [this, region](LsmStore* store) {
    if (deps_.random->OneIn(8)) return Status::ResourceExhausted("no thread is left");
    BeginBackground(region, *store);
    return Status::Ok();
  };
  deps.end_background = [this, region](Worker& worker) { return EndBackground(worker, region); };
  deps.copy_store = [this, region](Worker& worker, RegionId to) {
    return CopyDisk(worker, DiskOf(region), DiskOf(to));
  };
  deps.remove = [] { return Status::Ok(); };
  deps.seed = deps_.random->Next();
  return deps;
}

void SimClusterNode::BeginBackground(RegionId region, LsmStore& store) {
  Worker& behind = sim_->background();
  Background& background = backgrounds_[region];
  background.store = &store;
  behind.Spawn(Counted(store.RunLogs(behind), &background.running));
  behind.Spawn(Counted(store.RunLogFlushes(behind), &background.running));
  behind.Spawn(Counted(store.RunFlushes(behind), &background.running));
  behind.Spawn(Counted(store.RunCollection(behind), &background.running));
  behind.Spawn(Counted(store.RunReclaim(behind), &background.running));
  behind.Spawn(Counted(store.RunCompactions(behind), &background.running));
  store.CompactEagerly(deps_.random->OneIn(2));
}

Task<void> SimClusterNode::EndBackground(Worker& worker, RegionId region) {
  backgrounds_[region].store->Stop();
  while (backgrounds_[region].running > 0) co_await worker.Sleep(kNsPerMs);
}

Task<Status> SimClusterNode::MakeStore(Worker& worker, RegionId region) {
  const LsmStore::Deps deps{&DiskOf(region), &sim_->epochs(), &deps_.world->clock(), 1};
  LsmOptions options = *deps_.store;
  options.durability = index::lsm::Durability::kSynced;
  auto made = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kCreate);
  if (!made.ok()) co_return made.status();
  Status closed = co_await (*made)->Close(worker);
  co_return closed;
}

Task<Result<std::unique_ptr<LsmStore>>> SimClusterNode::OpenStore(Worker& worker, RegionId region,
                                                                  index::lsm::Mirror* mirror) {
  const LsmStore::Deps deps{&DiskOf(region), &sim_->epochs(), &deps_.world->clock(), 1, mirror};
  auto opened = co_await LsmStore::Open(worker, deps, *deps_.store, LsmStore::IfMissing::kFail);
  co_return opened;
}

}  // namespace farleaf::test
