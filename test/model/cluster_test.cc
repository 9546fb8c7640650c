// A cluster of simulated nodes with a membership in the simulation, that keeps regions together by itself while nodes crash and come back, lose the
// membership, each other, or their turn, and while regions are split and handed over: whoever serves has all that was acknowledged, nobody else acknowledges
// anything, no request fails because of what was planned, and in the end there are as many replicas as are wanted.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "index/lsm/store.h"
#include "server/cluster/held.h"
#include "server/cluster/master.h"
#include "server/cluster/node_regions.h"
#include "server/membership/counters.h"
#include "server/membership/in_process_membership.h"
#include "test/support/prefix_client.h"
#include "test/support/sim_node.h"
#include "test/support/test_scale.h"
#include "test/support/tiny_store.h"

namespace farleaf::server::cluster {
namespace {

using dsm::SimWorld;
using dsm::Worker;
using index::KeyValue;
using index::OpContext;
using index::ScanRange;
using index::lsm::Durability;
using index::lsm::LsmOptions;
using index::lsm::LsmStore;
using membership::InProcessMembership;
using membership::InProcessService;
using replication::AreaLayout;
using test::PrefixModel;
using test::SimNode;

constexpr size_t kNodes = 3;
constexpr size_t kLivesMax = 10;
constexpr size_t kClients = 3;
constexpr uint64_t kTimeoutMs = 1'000;
constexpr size_t kRegionsMax = kClients;
/// What all keys begin with in a store: a tree's number (index/prefixed_index.h).
constexpr const char* kTree = "tt";

/// Where a region may be split: clients' keys are not parted.
std::string FirstKeyOf(size_t client) { return test::KeyPrefixOf(client); }

/// All of a disk, to one where there is nothing.
dsm::Task<Status> CopyDisk(Worker& worker, index::storage::Storage& from,
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

class Cluster {
 public:
  explicit Cluster(uint64_t seed)
      : random_(seed),
        min_in_sync_(seed % 3 == 0 ? 2 : 1),
        layout_(*AreaLayout::For({.slots = 4, .payload_bytes = 64 << 10, .log_buffers = 12})),
        world_({.seed = random_.Next(),
                .servers = kNodes * kLivesMax,
                .region_bytes = SimNode::kArea + kRegionsMax * layout_.bytes()}),
        service_(&world_.clock(), {.seed = random_.Next(),
                                   .session_timeout_ms = kTimeoutMs,
                                   .delay_ns_max = 2 * kNsPerMs}) {
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
    options_.durability = random_.OneIn(3) ? Durability::kSynced : Durability::kReplicated;
    if (random_.OneIn(2)) options_.flush_memtable_ms = 10 + random_.Below(200);
    stamp_ns_ = (1 + random_.Below(60)) * kNsPerMs;
    for (NodeId id = 1; id <= kNodes; ++id) Start(id);
  }
  ~Cluster() {
    for (Node& node : nodes_) {
      if (node.sim) Crash(node);
    }
    world_.RemoveThread(driver_.get());
    driver_->Abandon();
  }

  void Run(uint64_t rounds) {
    AwaitWhole();
    for (uint64_t round = 0; round < rounds && !Failed(); ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      if (random_.OneIn(2)) Plan();
      if (!Failed() && random_.OneIn(4)) AwaitWhole();
      Fault();
      if (!Failed()) AwaitWhole();
    }
  }
  /// All but one node crash while nobody writes, and some time later that one, too. Of the region that it served all the time nothing is lost.
  void LoseOneAfterAnother() {
    AwaitWhole();
    for (int slice = 0; slice < 10 && !Failed(); ++slice) {
      Tend();
      RunFor(50 * kNsPerMs);
    }
    paused_ = true;
    RunFor(100 * kNsPerMs);
    const RegionEntry region = map_.front();
    Node* const primary = PrimaryOf(region.id);
    ASSERT_NE(primary, nullptr);
    for (Node& each : nodes_) {
      if (each.sim && &each != primary) Crash(each);
    }
    for (uint64_t ms = 0; ms < 4 * kTimeoutMs && !Failed(); ms += 50) {
      Tend();
      RunFor(50 * kNsPerMs);
    }
    ASSERT_TRUE(primary->sim && primary->regions && !primary->life_over);
    for (size_t client = 0; client < kClients; ++client) {
      if (region.Covers(FirstKeyOf(client))) NoteOnDisk(client, models_[client].durable);
    }
    Crash(*primary);
    paused_ = false;
    AwaitWhole();
  }

  uint64_t acknowledged = 0, promotions = 0, crashes = 0, lives_over = 0;
  uint64_t splits = 0,
           handed_over = 0;        ///< that were wished for while all was whole, and came true
  uint64_t alone_crashes = 0;      ///< of a region's only node in sync
  uint64_t crashed_alone = 0;      ///< of these, by CrashAlone
  uint64_t crashes_of_all = 0;     ///< of the last of several that were, one after another too fast
  uint64_t waited_for_copies = 0;  ///< writes that were not begun, too few being in sync
  uint64_t refused_begins = 0;     ///< of lives, before the last one's session had expired
  uint64_t copy_reads = 0, copy_reads_behind = 0;
  uint64_t copy_staleness_ns_max = 0;
  uint64_t seen_unacknowledged = 0;  ///< by reads, of what was not answered to its writer yet
  uint64_t served_again_ns_max = 0, whole_again_ns_max = 0;

 private:
  struct Node {
    NodeId id = 0;
    size_t lives = 0;
    SimNode::Disks disks;          ///< while it is down
    std::unique_ptr<SimNode> sim;  ///< null: it is down
    std::unique_ptr<InProcessMembership> session;
    std::unique_ptr<Master> master;
    std::unique_ptr<dsm::AreaAllocator> areas;
    std::unique_ptr<NodeRegions> regions;
    bool life_over = false;               ///< Run has ended with Fenced
    std::map<RegionId, size_t> running;   ///< of what runs in the background of the store
    std::map<RegionId, uint64_t> tended;  ///< the opening whose clients have been started
  };
  Node& node(NodeId id) { return nodes_[id - 1]; }
  void RunFor(uint64_t ns) {
    driver_->Spawn(Pause(ns));  // so that the world has something to wait for
    (void)world_.RunWhileBusy(world_.now_ns() + ns);
  }
  dsm::Task<void> Pause(uint64_t ns) { co_await driver_->Sleep(ns); }
  static bool Failed() { return ::testing::Test::HasFailure(); }

  void Start(NodeId id) {
    Node& started = node(id);
    started.id = id;
    ASSERT_LT(started.lives, kLivesMax);
    const auto server = static_cast<dsm::ServerId>((id - 1) * kLivesMax + started.lives++);
    started.sim = std::make_unique<SimNode>(
        &world_, SimNode::Options{server, random_.Next(), std::move(started.disks)});
    started.disks = {};
    started.life_over = false;
    started.running.clear();
    started.tended.clear();
    started.areas = std::make_unique<dsm::AreaAllocator>(
        dsm::Area{SimNode::kArea, kRegionsMax * layout_.bytes()});
    auto session = service_.Open();
    ASSERT_TRUE(session.ok()) << session.status();
    started.session = std::move(*session);
    Worker& worker = started.sim->background();
    worker.Spawn(started.session->KeepAlive(worker));
    worker.Spawn(Live(worker, started));
  }

  dsm::Task<void> Live(Worker& worker, Node& on) {
    membership::RegionStore regions(on.session.get());
    Status prepared = co_await Prepare(worker, on, regions);
    if (!prepared.ok()) {
      on.life_over = true;
      co_return;
    }
    Master::Deps master;
    master.session = on.session.get();
    master.clock = &world_.clock();
    master.self = on.id;
    master.name = std::to_string(on.id) + "/" + std::to_string(on.sim->server());
    master.make_store = [this, &on](Worker& on_worker, RegionId) {
      return MakeStore(on_worker, on);
    };
    on.master = std::make_unique<Master>(
        std::move(master), MasterOptions{.replicas = kNodes, .headless_wait_ms = 3'000});
    worker.Spawn(on.master->Run(worker));
    Status ended = co_await on.regions->Run(worker);
    on.master->Stop();
    on.life_over = true;
    EXPECT_EQ(ended.code(), StatusCode::kFenced) << ended;
  }

  dsm::Task<Status> Prepare(Worker& worker, Node& on, membership::RegionStore& regions) {
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
    deps.stamp_ns = stamp_ns_;
    on.regions = std::make_unique<NodeRegions>(std::move(deps));
    on.sim->clients().Spawn(ReadCopies(on.sim->clients(), *on.regions));
    membership::NodeEntry entry{.id = on.id,
                                .incarnation = on.sim->server() + uint64_t{1},
                                .native_endpoints = {},
                                .fabric_endpoint = "sim"};
    for (int tries = 0;; ++tries) {
      status = co_await on.regions->LeaveOldLife(worker);
      refused_begins += status.code() == StatusCode::kAlreadyExists;
      if (status.ok()) status = co_await regions.Announce(worker, entry);
      // Its last life's session has not expired yet.
      if (status.code() != StatusCode::kAlreadyExists) break;
      co_await worker.Sleep(100 * kNsPerMs);
    }
    co_return status;
  }

  RegionDeps DepsOf(Node& on, RegionId region, RegionGates* gates) {
    const auto number = static_cast<uint32_t>(region);
    RegionDeps deps;
    deps.session = on.session.get();
    deps.clock = &world_.clock();
    deps.region = region;
    deps.self = {on.id, on.sim->server() + uint64_t{1}};
    deps.memory.server = on.sim->server();
    deps.memory.layout = layout_;
    deps.memory.areas = on.areas.get();
    deps.memory.bytes = [this, &on](dsm::Area area) {
      return world_.region_bytes(on.sim->server()).subspan(area.offset, area.bytes);
    };
    deps.memory.cut_off = [this, &on, number](const dsm::MemberIdentity& life) {
      // Then it is promoted, if its life goes on; or filled.
      if (on.session->state() != membership::SessionState::kExpired && random_.OneIn(4)) {
        on.sim->storage(number).FailIo(1);
      }
      // As it is known to the fabrics: SimNode::identity.
      world_.CutOffAt(on.sim->server(), {static_cast<dsm::MemberId>(life.incarnation), 1});
      return Status::Ok();
    };
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
      if (random_.OneIn(8)) return Status::ResourceExhausted("no thread is left");
      BeginBackground(on, region, *store);
      return Status::Ok();
    };
    deps.end_background = [this, &on, region](Worker& worker) {
      return EndBackground(worker, on, region);
    };
    deps.copy_store = [&on, number](Worker& worker, RegionId to) {
      return CopyDisk(worker, on.sim->storage(number), on.sim->storage(static_cast<uint32_t>(to)));
    };
    deps.remove = [] { return Status::Ok(); };
    deps.min_in_sync = min_in_sync_;
    deps.seed = random_.Next();
    return deps;
  }

  void BeginBackground(Node& on, RegionId region, LsmStore& store) {
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
  }
  static dsm::Task<void> Counted(dsm::Task<void> task, size_t* running) {
    ++*running;
    co_await std::move(task);
    --*running;
  }
  dsm::Task<void> EndBackground(Worker& worker, Node& on, RegionId region) {
    stores_[{on.id, region}]->Stop();
    while (on.running[region] > 0) co_await worker.Sleep(kNsPerMs);
  }

  dsm::Task<Status> MakeStore(Worker& worker, Node& on) {
    const LsmStore::Deps deps{&on.sim->storage(1), &on.sim->epochs(), &world_.clock(), 1};
    LsmOptions options = options_;
    options.durability = Durability::kSynced;
    auto made = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kCreate);
    if (!made.ok()) co_return made.status();
    Status closed = co_await (*made)->Close(worker);
    co_return closed;
  }
  dsm::Task<Result<std::unique_ptr<LsmStore>>> OpenStore(Worker& worker, Node& on, uint32_t region,
                                                         index::lsm::Mirror* mirror) {
    const LsmStore::Deps deps{&on.sim->storage(region), &on.sim->epochs(), &world_.clock(), 1,
                              mirror};
    auto opened = co_await LsmStore::Open(worker, deps, options_, LsmStore::IfMissing::kFail);
    co_return opened;
  }

  /// What a node had in memory only (`replicated`) goes with its life; but a backup whose life ends without a crash has saved it. Nothing acknowledged is to be
  /// there again that nobody else in sync has, but for what is on the disk of who was alone.
  void NoteLost(Node& lost) {
    lost.regions->ForEach([this, &lost](const RegionNode& region) {
      const auto entry = std::ranges::find(map_, region.region(), &RegionEntry::id);
      const bool alone = IsAlone(region);
      if (lost.life_over && region.primary() == nullptr) saved_.insert({lost.id, region.region()});
      const auto has = [&](NodeId id) {
        if (saved_.contains({id, region.region()})) return true;
        return id != lost.id && node(id).sim && !node(id).life_over && node(id).regions;
      };
      if (!alone && entry != map_.end() && std::ranges::any_of(entry->in_sync, has)) return;
      ++(alone ? alone_crashes : crashes_of_all);
      for (size_t client = 0; client < kClients; ++client) {
        if (entry != map_.end() && !entry->Covers(FirstKeyOf(client))) continue;
        if (!alone) on_disk_[client] = 0;
        models_[client].durable = on_disk_[client];
        std::erase_if(acknowledged_at_[client],
                      [&](const Acknowledged& each) { return each.count > on_disk_[client]; });
      }
    });
  }
  /// What a primary acknowledges while nobody else is in sync is on its disk, with all before it.
  void NoteOnDisk(size_t client, size_t count) {
    on_disk_[client] = std::max(on_disk_[client], count);
  }
  /// Whether its primary writes to nobody else.
  bool IsAlone(const LsmStore& store) {
    const RegionPrimary* const primary = PrimaryWith(store);
    return primary != nullptr && primary->serves() && primary->replicas().members().empty();
  }
  /// Whether somebody else is in the view.
  bool HasCopies(const LsmStore& store) {
    const RegionPrimary* const primary = PrimaryWith(store);
    return primary != nullptr && primary->replicas().has_copies();
  }
  const RegionPrimary* PrimaryWith(const LsmStore& store) {
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

  void Crash(Node& crashed) {
    if (crashed.regions && options_.durability == Durability::kReplicated) NoteLost(crashed);
    crashed.disks = crashed.sim->Crash();
    if (crashed.regions) crashed.regions->Abandon();
    crashed.sim->AbandonWorkers();
    crashed.regions = nullptr;
    crashed.master = nullptr;
    crashed.session = nullptr;
    crashed.sim = nullptr;
  }

  // ---- Clients

  /// Of each store that has come to be served: what it has is looked at, and then its clients write to it. A life that is over ends, and
  /// another one begins.
  void Tend() {
    for (Node& each : nodes_) {
      if (!each.sim || Failed()) continue;
      if (each.life_over) {
        ++lives_over;
        Crash(each);
        Start(each.id);
        continue;
      }
      if (!each.regions) continue;
      each.regions->ForEach([this, &each](const RegionNode& region) {
        StoreUse use = each.regions->Use(region.region());
        if (use.served() == nullptr) return;
        const uint64_t opening = use.served()->opening;
        if (std::exchange(each.tended[region.region()], opening) == opening) return;
        ++promotions;
        Worker& worker = each.sim->clients();
        worker.Spawn(Serve(worker, use.gate(), opening, std::nullopt));
      });
    }
  }

  /// `only`: this client's part of it.
  dsm::Task<void> Serve(Worker& worker, Gate<ServedStore>* gate, uint64_t opening,
                        std::optional<size_t> only) {
    const uint64_t epoch = ++epoch_;
    const StoreUse use(gate);
    if (use.served() == nullptr || use.served()->opening != opening) co_return;
    std::vector<KeyValue> rows;
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    const ServedStore& served = *use.served();
    const ScanRange all{.start = {}};
    Status scanned = co_await served.store->Scan(op, all, &rows);
    if (!scanned.ok()) {
      worker.Spawn(ServeAgain(worker, gate, opening, only));
      co_return;
    }
    for (KeyValue& row : rows) row.key.erase(0, std::string_view(kTree).size());
    for (size_t client = 0; client < kClients; ++client) {
      if (!served.Covers(FirstKeyOf(client)) || serving_[client] > epoch) continue;
      if (only && *only != client) continue;
      models_[client].Check(client, rows);
      serving_[client] = epoch;
      served_by_[client] = {gate, opening};
      worker.Spawn(Write(worker, gate, opening, client, epoch));
    }
  }
  /// Its lease may run again, if nobody has taken its place.
  dsm::Task<void> ServeAgain(Worker& worker, Gate<ServedStore>* gate, uint64_t opening,
                             std::optional<size_t> only) {
    co_await worker.Sleep(100 * kNsPerMs);
    co_await Serve(worker, gate, opening, only);
  }

  /// While the store is open, and of this epoch: until another one is served in its place.
  dsm::Task<void> Write(Worker& worker, Gate<ServedStore>* gate, uint64_t opening, size_t client,
                        uint64_t epoch) {
    PrefixModel& model = models_[client];
    while (serving_[client] == epoch) {
      if (paused_) {
        co_await worker.Sleep(kNsPerMs);
        continue;
      }
      const StoreUse use(gate);
      if (use.served() == nullptr || use.served()->opening != opening) co_return;
      LsmStore& store = *use.served()->store;
      test::Operation operation = test::DrawOperation(random_, model.operations.size());
      model.operations.push_back(operation);
      const size_t count = model.operations.size();
      dsm::FabricCounts counts;
      OpContext op{worker, counts};
      const bool alone = IsAlone(store);
      Status written =
          co_await test::WriteOperation(op, store, client, std::move(operation), kTree);
      if (written.ok()) {
        // Whoever was deposed acknowledges nothing, however late it wakes.
        EXPECT_EQ(serving_[client], epoch) << "a deposed primary has acknowledged a write";
        if (serving_[client] != epoch) co_return;
        model.durable = std::max(model.durable, count);
        acknowledged_at_[client].push_back({count, world_.now_ns()});
        if (alone && IsAlone(store)) NoteOnDisk(client, count);
        EXPECT_TRUE(min_in_sync_ == 1 || HasCopies(store))
            << "acknowledged by one node, and no other";
        ++acknowledged;
        ++acknowledged_[client];
      } else {
        // What failed may have been committed: that is looked at.
        const bool waits = written.code() == StatusCode::kUnavailable &&
                           written.message().find("--min-in-sync") != std::string::npos;
        EXPECT_TRUE(!waits || min_in_sync_ > 1) << written;
        waited_for_copies += waits;
        // Nothing was done: whoever looks does not find it.
        const bool is_last = serving_[client] == epoch && model.operations.size() == count;
        if (waits && is_last) model.operations.pop_back();
        EXPECT_FALSE(calm_ && !waits) << "a request has failed, and nothing else had: " << written;
        worker.Spawn(ServeAgain(worker, gate, opening, client));
        co_return;
      }
      if (random_.OneIn(3)) co_await Read(worker, store, served_by_[client]);
      if (random_.OneIn(20)) store.FlushSoon();
      co_await worker.Sleep(random_.Below(4 * kNsPerMs));
    }
  }

  /// What somebody has seen stays, as if it had been acknowledged to him who wrote it.
  dsm::Task<void> Read(Worker& worker, LsmStore& store,
                       std::pair<Gate<ServedStore>*, uint64_t> by) {
    const size_t client = random_.Below(kClients);
    if (served_by_[client] != by) co_return;
    const uint64_t epoch = serving_[client];
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    const std::string key = kTree + test::KeyOf(client, random_.Below(test::kPrefixKeysEach));
    std::optional<std::string> seen;
    const bool alone = IsAlone(store);
    if (random_.OneIn(4)) {
      std::vector<KeyValue> rows;
      const ScanRange range{.start = key, .limit = 1};
      Status scanned = co_await store.Scan(op, range, &rows);
      if (!scanned.ok()) co_return;
      if (!rows.empty() && rows[0].key == key) seen = rows[0].value;
    } else {
      std::string value;
      auto found = co_await store.Get(op, key, &value);
      if (!found.ok()) co_return;
      if (*found) seen = value;
    }
    EXPECT_EQ(serving_[client], epoch) << "a deposed primary has answered a read";
    if (!seen || serving_[client] != epoch) co_return;
    PrefixModel& model = models_[client];
    const size_t count = std::stoull(*seen) + 1;
    seen_unacknowledged += count > model.durable;
    model.durable = std::max(model.durable, count);
    if (alone && IsAlone(store)) NoteOnDisk(client, count);
  }

  /// What is in the tables of the node's copies, again and again: of each client a prefix, with all that was acknowledged when it is said to be of.
  dsm::Task<void> ReadCopies(Worker& worker, NodeRegions& regions) {
    for (;;) {
      co_await worker.Sleep(random_.Below(200 * kNsPerMs));
      const auto table = regions.Now();
      if (table == nullptr) continue;
      const RegionId region = table->routes[random_.Below(table->routes.size())].region;
      const CopyUse use = regions.UseCopy(region);
      if (use.served() == nullptr) continue;
      const std::optional<uint64_t> staleness_ns = use.served()->staleness_ns();
      if (!staleness_ns) continue;
      const uint64_t proved_ns = world_.now_ns() - *staleness_ns;
      std::vector<KeyValue> rows;
      dsm::FabricCounts counts;
      OpContext op{worker, counts};
      const ScanRange all{.start = {}};
      Status scanned = co_await use.served()->reader->Scan(op, all, &rows);
      // What is read may be gone, or the disk may fail.
      if (!scanned.ok()) {
        EXPECT_TRUE(scanned.code() == StatusCode::kUnavailable ||
                    scanned.code() == StatusCode::kIoError)
            << scanned;
        continue;
      }
      for (KeyValue& row : rows) row.key.erase(0, std::string_view(kTree).size());
      for (size_t client = 0; client < kClients; ++client) {
        if (use.served()->Covers(FirstKeyOf(client))) CheckCopy(client, rows, proved_ns);
      }
      copy_staleness_ns_max = std::max(copy_staleness_ns_max, *staleness_ns);
    }
  }
  void CheckCopy(size_t client, const std::vector<KeyValue>& rows, uint64_t proved_ns) {
    const PrefixModel& model = models_[client];
    size_t least = 0;
    for (const Acknowledged& each : acknowledged_at_[client]) {
      if (each.at_ns < proved_ns) least = std::max(least, each.count);
    }
    const auto most = model.MostThatMake(PrefixModel::ContentOf(client, rows), least);
    EXPECT_TRUE(most) << "client " << client << ": what a copy has is no prefix of "
                      << model.operations.size() << " operations with the first " << least;
    ++copy_reads;
    copy_reads_behind += most && *most < model.durable;
  }

  // ---- What is known of the regions

  dsm::Task<void> WatchMap() {
    membership::RegionStore store(driver_session_.get());
    for (;;) {
      auto map = co_await store.Read(*driver_);
      if (map.ok()) map_ = map->regions();
      co_await driver_->Sleep(20 * kNsPerMs);
    }
  }
  Node* PrimaryOf(RegionId region) {
    for (Node& each : nodes_) {
      if (!each.sim || each.life_over || !each.regions) continue;
      if (each.regions->Use(region).served() != nullptr) return &each;
    }
    return nullptr;
  }
  /// Members beside the primary; nullopt: nobody serves it, or its clients have not been started.
  std::optional<size_t> BackupsOf(RegionId region) {
    Node* const primary = PrimaryOf(region);
    if (primary == nullptr) return std::nullopt;
    if (primary->tended[region] != primary->regions->Use(region).served()->opening) {
      return std::nullopt;
    }
    std::optional<size_t> backups;
    primary->regions->ForEach([&backups, region](const RegionNode& each) {
      if (each.region() == region && each.primary() != nullptr) {
        backups = each.primary()->replicas().members().size();
      }
    });
    return backups;
  }
  bool IsWhole() {
    if (map_.empty()) return false;
    for (Node& each : nodes_) {
      if (!each.sim) return false;
    }
    return std::ranges::all_of(map_, [this](const RegionEntry& region) {
      return BackupsOf(region.id) == kNodes - 1 && region.successor == membership::kNoNode &&
             region.split_at.empty();
    });
  }
  std::string Describe() {
    std::string text;
    for (const RegionEntry& region : map_) {
      Node* const primary = PrimaryOf(region.id);
      const auto backups = BackupsOf(region.id);
      text += NameOf(region.id) + ": " +
              (primary ? "node " + std::to_string(primary->id) + " serves" : "nobody serves") +
              ", backups " + (backups ? std::to_string(*backups) : "?") + "; ";
    }
    return text;
  }

  /// Nodes that are down come back, and all find each other again.
  void AwaitWhole() {
    const uint64_t begun_ns = world_.now_ns();
    bool served = false;
    const auto before = acknowledged_;
    const auto go_on = [&](uint64_t more) {
      for (size_t client = 0; client < kClients; ++client) {
        if (acknowledged_[client] < before[client] + more) return false;
      }
      return true;
    };
    for (int slice = 0; slice < 1200 && !Failed(); ++slice) {
      for (Node& each : nodes_) {
        if (!each.sim) Start(each.id);
      }
      Tend();
      RunFor(50 * kNsPerMs);
      if (!served && go_on(1)) {
        served = true;
        served_again_ns_max = std::max(served_again_ns_max, world_.now_ns() - begun_ns);
      }
      if (IsWhole() && go_on(2)) {
        saved_.clear();
        whole_again_ns_max = std::max(whole_again_ns_max, world_.now_ns() - begun_ns);
        return;
      }
    }
    ADD_FAILURE() << "the regions are not whole again after a minute: " << Describe();
  }

  // ---- What is planned

  /// All is whole: a region is split, or handed over to another node, and no request fails.
  void Plan() {
    if (world_.now_ns() < faults_until_ns_) RunFor(faults_until_ns_ - world_.now_ns());
    AwaitWhole();
    if (Failed()) return;
    const RegionEntry region = map_[random_.Below(map_.size())];
    std::vector<std::string> keys;
    for (size_t client = 1; client < kClients; ++client) {
      const std::string key = FirstKeyOf(client);
      if (region.Covers(key) && key != region.start) keys.push_back(key);
    }
    const bool split = !keys.empty() && random_.OneIn(2);
    RegionEntry wished = region;
    if (split) {
      wished.split_at = keys[random_.Below(keys.size())];
    } else {
      wished.successor = static_cast<NodeId>(1 + random_.Below(kNodes));
      if (wished.successor == region.primary) return;
    }
    const size_t regions = map_.size();
    const uint64_t moves = MovesOf(region.id);
    bool made = false;
    driver_->Spawn(Wish(wished, &made));
    calm_ = true;
    for (int slice = 0; slice < 200 && !Failed(); ++slice) {
      Tend();
      RunFor(50 * kNsPerMs);
      const bool done = split ? map_.size() > regions : MovesOf(region.id) > moves;
      if (made && done && IsWhole()) break;
    }
    calm_ = false;
    if (!made) return;  // somebody else had changed the entry
    EXPECT_TRUE(IsWhole()) << Describe();
    if (split) {
      splits += map_.size() > regions;
      EXPECT_EQ(map_.size(), regions + 1);
    } else {
      handed_over += MovesOf(region.id) > moves;
      EXPECT_GT(MovesOf(region.id), moves);
    }
  }
  uint64_t MovesOf(RegionId id) {
    const auto at = std::ranges::find(map_, id, &RegionEntry::id);
    return at == map_.end() ? 0 : at->moves;
  }
  dsm::Task<void> Wish(RegionEntry wished, bool* made) {
    membership::RegionStore store(driver_session_.get());
    auto seen = co_await store.Get(*driver_, wished.id, membership::Watch::kNothing);
    if (!seen.ok() || seen->region.view != wished.view) co_return;
    auto changed = co_await store.ChangeView(*driver_, std::move(*seen), std::move(wished));
    *made = changed.ok();
  }

  // ---- Faults

  void Fault() {
    RunFor(random_.Below(300 * kNsPerMs));
    const size_t faults = random_.OneIn(4) ? 2 : 1;
    for (size_t i = 0; i < faults && !Failed(); ++i) {
      if (random_.OneIn(4)) PlanInFault();
      if (random_.OneIn(3)) {
        CrashAlone();
      } else {
        OneFault();
      }
      for (uint64_t ms = random_.Below(3'000); ms > 50; ms -= 50) {
        Tend();
        RunFor(50 * kNsPerMs);
      }
    }
  }

  /// Something is wished for, and nothing is waited for.
  void PlanInFault() {
    RegionEntry wished = map_[random_.Below(map_.size())];
    wished.successor = static_cast<NodeId>(1 + random_.Below(kNodes));
    for (size_t client = 1; client < kClients; ++client) {
      const std::string key = FirstKeyOf(client);
      if (random_.OneIn(2) && wished.Covers(key) && key != wished.start) wished.split_at = key;
    }
    driver_->Spawn(Wish(wished, &made_in_fault_));
    RunFor(random_.Below(60 * kNsPerMs));
  }

  /// Who comes to serve begins with nobody else in sync, and is crashed when it has acknowledged something.
  void CrashAlone() {
    PlanInFault();
    const std::array<size_t, kClients> before = on_disk_;
    for (int slice = 0; slice < 600 && !Failed(); ++slice) {
      Tend();
      RunFor(5 * kNsPerMs);
      for (Node& each : nodes_) {
        bool alone = false;
        if (!each.sim || !each.regions || each.life_over) continue;
        each.regions->ForEach([&](const RegionNode& region) { alone |= IsAlone(region); });
        if (!alone || on_disk_ == before || random_.OneIn(2)) continue;
        ++crashes;
        ++crashed_alone;
        Crash(each);
        return;
      }
    }
  }
  static bool IsAlone(const RegionNode& region) {
    const RegionPrimary* const primary = region.primary();
    return primary != nullptr && primary->serves() && primary->replicas().members().empty();
  }

  void OneFault() {
    Node* const primary = PrimaryOf(map_[random_.Below(map_.size())].id);
    Node* hit = &nodes_[random_.Below(kNodes)];
    if (primary != nullptr && random_.OneIn(2)) hit = primary;
    if (!hit->sim) return;
    const uint64_t until_ns = world_.now_ns() + random_.Below(4 * kNsPerSecond);
    faults_until_ns_ = std::max(faults_until_ns_, until_ns + kTimeoutMs * kNsPerMs);
    switch (random_.Below(4)) {
      case 0:
        ++crashes;
        Crash(*hit);
        return;
      case 1: {  // it loses the membership
        if (!hit->session) return;
        service_.Part(*hit->session);
        const NodeId id = hit->id;
        const size_t life = hit->lives;
        world_.At(until_ns, [this, id, life] {
          if (node(id).sim && node(id).lives == life) service_.Heal(*node(id).session);
        });
        return;
      }
      case 2:  // it stands still
        world_.StallProcess(hit->sim->process(), until_ns);
        return;
      case 3: {  // it does not reach another one
        Node& other = nodes_[random_.Below(kNodes)];
        if (!other.sim || &other == hit) return;
        const uint32_t process = hit->sim->process();
        const dsm::ServerId server = other.sim->server();
        world_.Partition(process, server);
        world_.At(until_ns, [this, process, server] {
          if (!world_.has_crashed(process)) world_.Heal(process, server);
        });
        return;
      }
    }
  }

  Random random_;
  const uint32_t min_in_sync_;
  const AreaLayout layout_;
  SimWorld world_;
  std::unique_ptr<dsm::SimFabric> driver_fabric_;
  dsm::EpochDomain driver_epochs_;
  std::unique_ptr<Worker> driver_;  // of whoever looks on
  InProcessService service_;
  LsmOptions options_ = test::TinyStore();
  index::lsm::CheckMemory check_memory_{2};  // not enough for all: some is read back
  std::array<Node, kNodes> nodes_;
  std::array<PrefixModel, kClients> models_;
  bool paused_ = false;                     ///< nobody writes or reads
  std::array<size_t, kClients> on_disk_{};  ///< of their operations: on the disk of who was alone
  std::array<uint64_t, kClients> acknowledged_{};
  struct Acknowledged {
    size_t count = 0;  ///< so many operations
    uint64_t at_ns = 0;
  };
  std::array<std::vector<Acknowledged>, kClients> acknowledged_at_;
  uint64_t stamp_ns_ = 0;
  uint64_t epoch_ = 0;                        // of the store that has come to be served last
  std::array<uint64_t, kClients> serving_{};  // to whose store each client writes
  std::array<std::pair<Gate<ServedStore>*, uint64_t>, kClients> served_by_{};  // which that is
  uint64_t faults_until_ns_ = 0;
  bool calm_ = false;  // nothing fails that nobody has planned
  bool made_in_fault_ = false;
  std::vector<RegionEntry> map_;
  std::set<std::pair<NodeId, RegionId>> saved_;              // since all was whole
  std::map<std::pair<NodeId, RegionId>, LsmStore*> stores_;  // that are or were open
  std::unique_ptr<InProcessMembership> driver_session_;
};

TEST(ClusterTest, WhoIsLeftAlonePutsOnTheDiskWhatOthersHad) {
  uint64_t alone = 0;
  for (uint64_t seed = 1; seed <= 6 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster cluster(seed);
    cluster.LoseOneAfterAnother();
    EXPECT_EQ(cluster.crashes_of_all, 0u);
    alone += cluster.alone_crashes;
  }
  EXPECT_GT(alone, 0u);
}

/// Parts of the seeds, for several cores.
class ClusterHistories : public ::testing::TestWithParam<uint64_t> {};
constexpr uint64_t kParts = 4;

TEST_P(ClusterHistories, KeepsRegionsTogether) {
  const uint64_t seeds = test::Amount{4, 52, 1000} / kParts, rounds = test::Amount{2, 2, 5};
  uint64_t acknowledged = 0, promotions = 0, crashes = 0, lives_over = 0, served = 0, whole = 0,
           alone = 0, crashed_alone = 0, all = 0, seen = 0, refused = 0, splits = 0,
           handed_over = 0, copy_reads = 0, behind = 0, staleness = 0, waited = 0;
  for (uint64_t i = 1; i <= seeds; ++i) {
    const uint64_t seed = GetParam() * seeds + i;
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster cluster(seed);
    cluster.Run(rounds);
    acknowledged += cluster.acknowledged;
    promotions += cluster.promotions;
    crashes += cluster.crashes;
    lives_over += cluster.lives_over;
    seen += cluster.seen_unacknowledged;
    refused += cluster.refused_begins;
    waited += cluster.waited_for_copies;
    splits += cluster.splits;
    handed_over += cluster.handed_over;
    alone += cluster.alone_crashes;
    crashed_alone += cluster.crashed_alone;
    all += cluster.crashes_of_all;
    copy_reads += cluster.copy_reads;
    behind += cluster.copy_reads_behind;
    staleness = std::max(staleness, cluster.copy_staleness_ns_max);
    served = std::max(served, cluster.served_again_ns_max);
    whole = std::max(whole, cluster.whole_again_ns_max);
    if (HasFailure()) break;
  }
  std::printf(
      "%lu seeds: %lu acknowledged, %lu seen before, %lu times somebody came to serve, %lu "
      "crashes (%lu times of who was alone, %lu times of all that had all), %lu lives that "
      "were over, %lu splits, %lu times a region was handed over; served again within %.2f s at "
      "most, whole again "
      "within %.2f s\n%lu reads of copies, %lu of them behind; %.2f s old at most\n",
      seeds, acknowledged, seen, promotions, crashes, alone, all, lives_over, splits, handed_over,
      static_cast<double>(served) / 1e9, static_cast<double>(whole) / 1e9, copy_reads, behind,
      static_cast<double>(staleness) / 1e9);
  EXPECT_GT(acknowledged, seeds * 10);
  EXPECT_GT(copy_reads, seeds * 10);
  EXPECT_GT(behind, 0u);
  if (seeds < 10) return;  // a single one may lose backups only
  EXPECT_GT(promotions, seeds);
  EXPECT_GT(lives_over, 0u);
  EXPECT_GT(splits, 0u);
  EXPECT_GT(handed_over, 0u);
  EXPECT_GT(seen, 0u);
  EXPECT_GT(refused, 0u);
  EXPECT_GT(waited, 0u);
  EXPECT_GT(alone, 0u);
  EXPECT_GT(crashed_alone, 0u);
}
INSTANTIATE_TEST_SUITE_P(Parts, ClusterHistories, ::testing::Range(uint64_t{0}, kParts));

}  // namespace
}  // namespace farleaf::server::cluster
