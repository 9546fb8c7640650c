#include "test/support/simulated_cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "server/cluster/held.h"
#include "server/cluster/offer.h"
#include "server/membership/counters.h"

namespace farleaf::server::cluster {

using index::lsm::Durability;
using index::lsm::LsmOptions;
using index::lsm::LsmStore;
using replication::AreaLayout;
using test::SimNode;

namespace {

/// All of a disk, to one where there is nothing.
dsm::Task<Status> CopyDisk(dsm::Worker& worker, index::storage::Storage& from,
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

dsm::Task<void> Counted(dsm::Task<void> task, size_t* running) {
  ++*running;
  co_await std::move(task);
  --*running;
}

}  // namespace

SimulatedCluster::SimulatedCluster(const Options& options)
    : options_(options),
      random_(options.seed),
      layout_(
          *AreaLayout::For({.slots = 4, .payload_bytes = 64 << 10, .log_buffers = kLogBuffers})),
      world_({.seed = random_.Next(),
              .servers = static_cast<uint32_t>(options.nodes * kLivesMax),
              .region_bytes = SimNode::kArea + options.regions_max * layout_.bytes()}),
      service_(
          &world_.clock(),
          {.seed = random_.Next(), .session_timeout_ms = kSessionMs, .delay_ns_max = 2 * kNsPerMs}),
      nodes_(options.nodes) {
  driver_fabric_ = world_.NewFabric();
  driver_ = std::make_unique<Worker>(
      Worker::Deps{.transport = std::move(*driver_fabric_->OpenTransport()),
                   .epochs = &driver_epochs_,
                   .clock = &world_.clock()});
  world_.AddThread(driver_fabric_->process(), driver_.get());
  auto session = service_.Open();
  FARLEAF_CHECK(session.ok(), session.status());
  driver_session_ = std::move(*session);
  driver_->Spawn(driver_session_->KeepAlive(*driver_));
  driver_->Spawn(WatchMap());
  for (NodeId id = 1; id <= nodes_.size(); ++id) Start(id);
}

SimulatedCluster::~SimulatedCluster() {
  for (Node& node : nodes_) {
    if (node.sim) Crash(node);
  }
  world_.RemoveThread(driver_.get());
  driver_->Abandon();
}

void SimulatedCluster::RunFor(uint64_t ns) {
  driver_->Spawn(Pause(ns));  // so that the world has something to wait for
  (void)world_.RunWhileBusy(world_.now_ns() + ns);
}

// ---- A node's life

void SimulatedCluster::Start(NodeId id) {
  Node& started = node(id);
  started.id = id;
  FARLEAF_CHECK(!started.sim && started.lives < kLivesMax, id, started.lives);
  const auto server = static_cast<dsm::ServerId>((id - 1) * kLivesMax + started.lives++);
  started.sim = std::make_unique<SimNode>(
      &world_, SimNode::Options{server, random_.Next(), std::move(started.disks)});
  started.disks = {};
  started.life_over = false;
  started.running.clear();
  started.areas = std::make_unique<dsm::AreaAllocator>(
      dsm::Area{SimNode::kArea, options_.regions_max * layout_.bytes()});
  auto session = service_.Open();
  FARLEAF_CHECK(session.ok(), session.status());
  started.session = std::move(*session);
  Worker& worker = started.sim->background();
  worker.Spawn(started.session->KeepAlive(worker));
  worker.Spawn(Live(worker, started));
}

void SimulatedCluster::Crash(Node& crashed) {
  crashed.disks = crashed.sim->Crash();
  if (crashed.regions) crashed.regions->Abandon();
  crashed.sim->AbandonWorkers();
  crashed.regions = nullptr;
  crashed.master = nullptr;
  crashed.session = nullptr;
  crashed.sim = nullptr;
}

dsm::Task<void> SimulatedCluster::Live(Worker& worker, Node& on) {
  Status prepared = co_await Prepare(worker, on);
  if (!prepared.ok()) {
    on.life_over = true;
    co_return;
  }
  Master::Deps master;
  master.session = on.session.get();
  master.clock = &world_.clock();
  master.self = on.id;
  master.name = std::to_string(on.id) + "/" + std::to_string(on.sim->server());
  master.make_store = [this, &on](Worker& on_worker, RegionId) { return MakeStore(on_worker, on); };
  on.master = std::make_unique<Master>(
      std::move(master), MasterOptions{.replicas = options_.replicas, .headless_wait_ms = 3'000});
  worker.Spawn(on.master->Run(worker));
  Status ended = co_await on.regions->Run(worker);
  on.master->Stop();
  on.life_over = true;
  EXPECT_EQ(ended.code(), StatusCode::kFenced) << ended;
}

dsm::Task<Status> SimulatedCluster::Prepare(Worker& worker, Node& on) {
  membership::RegionStore regions(on.session.get());
  Status status = co_await regions.Prepare(worker);
  if (status.ok()) status = co_await membership::CreatePath(worker, *on.session, kOffersPath);
  if (status.ok()) status = co_await membership::CreatePath(worker, *on.session, kHeldPath);
  if (status.ok()) status = co_await membership::CreatePath(worker, *on.session, "/master");
  if (!status.ok()) co_return status;
  // The simulation's fabrics name a node's life by its memory server.
  NodeRegions::Deps deps;
  deps.session = on.session.get();
  deps.self = on.id;
  deps.deps_of = [this, &on](RegionId region, RegionGates* gates) {
    return DepsOf(on, region, gates);
  };
  deps.remove_others = [](const membership::RegionMap&) { return Status::Ok(); };
  deps.session_ns = kSessionMs * kNsPerMs;
  deps.stamp_ns = options_.stamp_ns;
  on.regions = std::make_unique<NodeRegions>(std::move(deps));
  membership::NodeEntry entry{.id = on.id,
                              .incarnation = on.sim->server() + uint64_t{1},
                              .native_endpoints = {},
                              .fabric_endpoint = "sim"};
  for (;;) {
    status = co_await on.regions->LeaveOldLife(worker);
    on.refused_begins += status.code() == StatusCode::kAlreadyExists;
    if (status.ok()) status = co_await regions.Announce(worker, entry);
    // Its last life's session has not expired yet.
    if (status.code() != StatusCode::kAlreadyExists) break;
    co_await worker.Sleep(100 * kNsPerMs);
  }
  co_return status;
}

// ---- What its parts in regions stand on

NodeMemory SimulatedCluster::MemoryOf(Node& on, uint32_t region) {
  NodeMemory memory;
  memory.server = on.sim->server();
  memory.layout = layout_;
  memory.areas = on.areas.get();
  memory.bytes = [this, &on](dsm::Area area) {
    return world_.region_bytes(on.sim->server()).subspan(area.offset, area.bytes);
  };
  memory.cut_off = [this, &on, region](const dsm::MemberIdentity& life) {
    // Then it is promoted, if its life goes on; or filled.
    if (on.session->state() != membership::SessionState::kExpired && random_.OneIn(4)) {
      on.sim->storage(region).FailIo(1);
    }
    // As it is known to the fabrics: SimNode::identity.
    world_.CutOffAt(on.sim->server(), {static_cast<dsm::MemberId>(life.incarnation), 1});
    return Status::Ok();
  };
  return memory;
}

RegionDeps SimulatedCluster::DepsOf(Node& on, RegionId region, RegionGates* gates) {
  const auto number = static_cast<uint32_t>(region);
  RegionDeps deps;
  deps.session = on.session.get();
  deps.clock = &world_.clock();
  deps.region = region;
  deps.self = {on.id, on.sim->server() + uint64_t{1}};
  deps.memory = MemoryOf(on, number);
  deps.gates = gates;
  deps.reads = {.cache_bytes = 1 << 20, .wall = &world_.clock(), .clock = &world_.clock()};
  deps.checks = &check_memory_;
  deps.add_peer = [](const dsm::MemberIdentity&, const dsm::ServerEndpoint&) {
    return Status::Ok();
  };
  deps.storage = [&on, number]() -> Result<index::storage::Storage*> {
    return &on.sim->storage(number);
  };
  deps.open_store = [this, &on, number](Worker& worker, index::lsm::Mirror* mirror) {
    return OpenStore(worker, on, number, mirror);
  };
  deps.begin_background = [this, &on, region](LsmStore* store) {
    return BeginBackground(on, region, *store);
  };
  deps.end_background = [this, &on, region](Worker& worker) {
    return EndBackground(worker, on, region);
  };
  deps.copy_store = [&on, number](Worker& worker, RegionId to) {
    return CopyDisk(worker, on.sim->storage(number), on.sim->storage(static_cast<uint32_t>(to)));
  };
  deps.remove = [] { return Status::Ok(); };
  deps.min_in_sync = options_.min_in_sync;
  deps.seed = random_.Next();
  return deps;
}

Status SimulatedCluster::BeginBackground(Node& on, RegionId region, LsmStore& store) {
  if (random_.OneIn(8)) return Status::ResourceExhausted("no thread is left");
  Worker& behind = on.sim->background();
  stores_[{on.id, region}] = &store;
  size_t& running = on.running[region];
  behind.Spawn(Counted(store.RunLogs(behind), &running));
  behind.Spawn(Counted(store.RunLogFlushes(behind), &running));
  behind.Spawn(Counted(store.RunFlushes(behind), &running));
  behind.Spawn(Counted(store.RunCollection(behind), &running));
  behind.Spawn(Counted(store.RunReclaim(behind), &running));
  behind.Spawn(Counted(store.RunCompactions(behind), &running));
  store.CompactEagerly(random_.OneIn(2));
  return Status::Ok();
}

dsm::Task<void> SimulatedCluster::EndBackground(Worker& worker, Node& on, RegionId region) {
  stores_[{on.id, region}]->Stop();
  while (on.running[region] > 0) co_await worker.Sleep(kNsPerMs);
}

dsm::Task<Status> SimulatedCluster::MakeStore(Worker& worker, Node& on) {
  const LsmStore::Deps deps{&on.sim->storage(1), &on.sim->epochs(), &world_.clock(), 1};
  LsmOptions options = options_.store;
  options.durability = Durability::kSynced;
  auto made = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kCreate);
  if (!made.ok()) co_return made.status();
  Status closed = co_await (*made)->Close(worker);
  co_return closed;
}

dsm::Task<Result<std::unique_ptr<LsmStore>>> SimulatedCluster::OpenStore(
    Worker& worker, Node& on, uint32_t region, index::lsm::Mirror* mirror) {
  const LsmStore::Deps deps{&on.sim->storage(region), &on.sim->epochs(), &world_.clock(), 1,
                            mirror};
  auto opened = co_await LsmStore::Open(worker, deps, options_.store, LsmStore::IfMissing::kFail);
  co_return opened;
}

// ---- What is known of the regions

dsm::Task<void> SimulatedCluster::WatchMap() {
  membership::RegionStore store(driver_session_.get());
  for (;;) {
    auto map = co_await store.Read(*driver_);
    if (map.ok()) map_ = map->regions();
    co_await driver_->Sleep(20 * kNsPerMs);
  }
}

const RegionEntry* SimulatedCluster::EntryOf(RegionId region) const {
  const auto at = std::ranges::find(map_, region, &RegionEntry::id);
  return at == map_.end() ? nullptr : &*at;
}

void SimulatedCluster::Wish(RegionEntry wished, bool* made) {
  driver_->Spawn(ChangeView(std::move(wished), made));
}

dsm::Task<void> SimulatedCluster::ChangeView(RegionEntry wished, bool* made) {
  membership::RegionStore store(driver_session_.get());
  auto seen = co_await store.Get(*driver_, wished.id, membership::Watch::kNothing);
  if (!seen.ok() || seen->region.view != wished.view) co_return;
  auto changed = co_await store.ChangeView(*driver_, std::move(*seen), std::move(wished));
  *made = changed.ok();
}

SimulatedCluster::Node* SimulatedCluster::PrimaryOf(RegionId region) {
  for (Node& each : nodes_) {
    if (!each.sim || each.life_over || !each.regions) continue;
    if (each.regions->Use(region).served() != nullptr) return &each;
  }
  return nullptr;
}

std::optional<size_t> SimulatedCluster::BackupsOf(RegionId region) {
  Node* const primary = PrimaryOf(region);
  if (primary == nullptr) return std::nullopt;
  std::optional<size_t> backups;
  primary->regions->ForEach([&backups, region](const RegionNode& each) {
    if (each.region() == region && each.primary() != nullptr) {
      backups = each.primary()->replicas().members().size();
    }
  });
  return backups;
}

bool SimulatedCluster::IsWhole() {
  return !map_.empty() && std::ranges::all_of(map_, [this](const RegionEntry& region) {
    return BackupsOf(region.id) == options_.replicas - 1 &&
           region.successor == membership::kNoNode && region.split_at.empty();
  });
}

std::string SimulatedCluster::Describe() {
  std::string text;
  for (const RegionEntry& region : map_) {
    Node* const primary = PrimaryOf(region.id);
    const auto backups = BackupsOf(region.id);
    text += NameOf(region.id) + ": " +
            (primary ? "node " + std::to_string(primary->id) + " serves" : "nobody serves") +
            ", backups " + (backups ? std::to_string(*backups) : "?") + ", in sync " +
            ::testing::PrintToString(region.in_sync) + ", filling " +
            ::testing::PrintToString(region.filling) + "; ";
  }
  return text;
}

bool SimulatedCluster::IsAlone(const RegionNode& region) {
  const RegionPrimary* const primary = region.primary();
  return primary != nullptr && primary->serves() && primary->replicas().members().empty();
}

bool SimulatedCluster::IsAlone(const LsmStore& store) {
  const RegionPrimary* const primary = PrimaryWith(store);
  return primary != nullptr && primary->serves() && primary->replicas().members().empty();
}

bool SimulatedCluster::HasCopies(const LsmStore& store) {
  const RegionPrimary* const primary = PrimaryWith(store);
  return primary != nullptr && primary->replicas().has_copies();
}

const RegionPrimary* SimulatedCluster::PrimaryWith(const LsmStore& store) {
  const RegionPrimary* found = nullptr;
  for (const Node& each : nodes_) {
    if (!each.sim || !each.regions) continue;
    each.regions->ForEach([&](const RegionNode& region) {
      const RegionPrimary* const primary = region.primary();
      if (primary != nullptr && primary->store() == &store) found = primary;
    });
  }
  return found;
}

}  // namespace farleaf::server::cluster
