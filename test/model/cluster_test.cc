// A cluster of simulated nodes with a membership in the simulation, that keeps a region together by itself while nodes crash and come back, lose the
// membership, each other, or their turn: whoever serves has all that was acknowledged, nobody else acknowledges anything, and in the
// end there are as many replicas as are wanted.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "index/lsm/store.h"
#include "server/cluster/master.h"
#include "server/cluster/region_node.h"
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
constexpr RegionId kRegion{1};

class Cluster {
 public:
  explicit Cluster(uint64_t seed)
      : random_(seed),
        layout_(*AreaLayout::For({.slots = 4, .payload_bytes = 64 << 10, .log_buffers = 12})),
        world_({.seed = random_.Next(),
                .servers = kNodes * kLivesMax,
                .region_bytes = SimNode::kArea + layout_.bytes()}),
        service_(&world_.clock(), {.seed = random_.Next(),
                                   .session_timeout_ms = kTimeoutMs,
                                   .delay_ns_max = 2 * kNsPerMs}) {
    driver_fabric_ = world_.NewFabric();
    driver_ = std::make_unique<Worker>(
        Worker::Deps{.transport = std::move(*driver_fabric_->OpenTransport()),
                     .epochs = &driver_epochs_,
                     .clock = &world_.clock()});
    world_.AddThread(driver_fabric_->process(), driver_.get());
    options_.durability = random_.OneIn(3) ? Durability::kSynced : Durability::kReplicated;
    for (NodeId id = 1; id <= kNodes; ++id) Start(id);
  }
  ~Cluster() {
    for (Node& node : nodes_) {
      if (node.sim) Crash(node);
    }
    world_.RemoveThread(driver_.get());
    driver_->Abandon();
  }

  void Run(int rounds) {
    AwaitWhole();
    for (int round = 0; round < rounds && !Failed(); ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      Fault();
      if (!Failed()) AwaitWhole();
    }
  }
  uint64_t acknowledged = 0, promotions = 0, crashes = 0, lives_over = 0;
  uint64_t alone_crashes = 0;
  uint64_t seen_unacknowledged = 0;  ///< by reads, of what was not answered to its writer yet
  uint64_t served_again_ns_max = 0, whole_again_ns_max = 0;

 private:
  struct Node {
    NodeId id = 0;
    size_t lives = 0;
    index::storage::SimImage image;  ///< while it is down
    std::unique_ptr<SimNode> sim;    ///< null: it is down
    std::unique_ptr<InProcessMembership> session;
    std::unique_ptr<Master> master;
    std::unique_ptr<RegionNode> region;
    bool announced = false;
    bool life_over = false;  ///< Run has ended with Fenced
    bool tended = false;     ///< its clients have been started
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
        &world_, SimNode::Options{server, random_.Next(), std::move(started.image)});
    started.image = {};
    started.announced = started.life_over = started.tended = false;
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
    Status ended = co_await on.region->Run(worker);
    on.master->Stop();
    on.life_over = true;
    EXPECT_EQ(ended.code(), StatusCode::kFenced) << ended;
  }

  dsm::Task<Status> Prepare(Worker& worker, Node& on, membership::RegionStore& regions) {
    Status status = co_await regions.Prepare(worker);
    if (status.ok()) status = co_await membership::CreatePath(worker, *on.session, kOffersPath);
    if (status.ok()) status = co_await membership::CreatePath(worker, *on.session, "/master");
    if (!status.ok()) co_return status;
    // The simulation's fabrics name a node's life by its memory server.
    on.region = std::make_unique<RegionNode>(RegionDeps(on));
    status = co_await on.region->LeaveOldLife(worker);
    if (!status.ok()) co_return status;
    membership::NodeEntry entry{.id = on.id,
                                .incarnation = on.sim->server() + uint64_t{1},
                                .native_endpoints = {},
                                .fabric_endpoint = "sim"};
    for (int tries = 0;; ++tries) {
      status = co_await regions.Announce(worker, entry);
      // Its last life's session has not expired yet.
      if (status.code() != StatusCode::kAlreadyExists) break;
      co_await worker.Sleep(100 * kNsPerMs);
    }
    on.announced = status.ok();
    co_return status;
  }

  RegionNode::Deps RegionDeps(Node& on) {
    RegionNode::Deps deps;
    deps.session = on.session.get();
    deps.clock = &world_.clock();
    deps.region = kRegion;
    deps.self = {on.id, on.sim->server() + uint64_t{1}};
    deps.storage = &on.sim->storage();
    deps.server = on.sim->server();
    deps.area = on.sim->area(layout_);
    deps.area_offset = SimNode::kArea;
    deps.layout = layout_;
    deps.cut_off = [this, &on](const dsm::MemberIdentity& life) {
      // As it is known to the fabrics: SimNode::identity.
      world_.CutOffAt(on.sim->server(), {static_cast<dsm::MemberId>(life.incarnation), 1});
      return Status::Ok();
    };
    deps.add_peer = [](const dsm::ServerEndpoint&) { return Status::Ok(); };
    deps.open_store = [this, &on](Worker& worker, index::lsm::Mirror* mirror) {
      return OpenStore(worker, on, mirror);
    };
    deps.serve = [this, &on](LsmStore* store) {
      Worker& behind = on.sim->background();
      behind.Spawn(store->RunLogs(behind));
      behind.Spawn(store->RunLogFlushes(behind));
      behind.Spawn(store->RunFlushes(behind));
      behind.Spawn(store->RunCollection(behind));
      behind.Spawn(store->RunReclaim(behind));
      behind.Spawn(store->RunCompactions(behind));
      store->CompactEagerly(random_.OneIn(2));
      return Status::Ok();
    };
    deps.seed = random_.Next();
    return deps;
  }

  dsm::Task<Status> MakeStore(Worker& worker, Node& on) {
    const LsmStore::Deps deps{&on.sim->storage(), &on.sim->epochs(), &world_.clock(), 1};
    LsmOptions options = options_;
    options.durability = Durability::kSynced;
    auto made = co_await LsmStore::Open(worker, deps, options, LsmStore::IfMissing::kCreate);
    if (!made.ok()) co_return made.status();
    Status closed = co_await (*made)->Close(worker);
    co_return closed;
  }
  dsm::Task<Result<std::unique_ptr<LsmStore>>> OpenStore(Worker& worker, Node& on,
                                                         index::lsm::Mirror* mirror) {
    const LsmStore::Deps deps{&on.sim->storage(), &on.sim->epochs(), &world_.clock(), 1, mirror};
    auto opened = co_await LsmStore::Open(worker, deps, options_, LsmStore::IfMissing::kFail);
    co_return opened;
  }

  void Crash(Node& crashed) {
    // Who is alone in sync takes with him what is in memory only (`replicated`): all of it was acknowledged by one.
    const bool alone = crashed.region && crashed.region->store() != nullptr &&
                       crashed.region->replicas().members().empty();
    if (alone && options_.durability == Durability::kReplicated) {
      ++alone_crashes;
      for (PrefixModel& model : models_) model.durable = 0;
    }
    crashed.image = crashed.sim->Crash();
    if (crashed.region) crashed.region->Abandon();
    crashed.sim->AbandonWorkers();
    crashed.region = nullptr;
    crashed.master = nullptr;
    crashed.session = nullptr;
    crashed.sim = nullptr;
  }

  // ---- Clients

  /// Of each node that has come to serve: what it has is looked at, and then it gets clients. A life that is over ends, and another one
  /// begins.
  void Tend() {
    for (Node& each : nodes_) {
      if (!each.sim || Failed()) continue;
      if (each.life_over) {
        ++lives_over;
        Crash(each);
        Start(each.id);
        continue;
      }
      if (!each.region || each.region->store() == nullptr || each.tended) continue;
      each.tended = true;
      ++promotions;
      const uint64_t epoch = ++epoch_;
      Worker& worker = each.sim->clients();
      worker.Spawn(Serve(worker, *each.region->store(), epoch));
    }
  }

  dsm::Task<void> Serve(Worker& worker, LsmStore& store, uint64_t epoch) {
    std::vector<KeyValue> rows;
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    const ScanRange all{.start = {}};
    Status scanned = co_await store.Scan(op, all, &rows);
    if (!scanned.ok()) co_return;  // it serves no more
    for (size_t client = 0; client < kClients; ++client) models_[client].Check(client, rows);
    serving_ = epoch;
    for (size_t client = 0; client < kClients; ++client) {
      worker.Spawn(Write(worker, store, client, epoch));
    }
    while (serving_ == epoch) {
      co_await worker.Sleep(random_.Below(40 * kNsPerMs));
      store.FlushSoon();
    }
  }

  dsm::Task<void> Write(Worker& worker, LsmStore& store, size_t client, uint64_t epoch) {
    PrefixModel& model = models_[client];
    while (serving_ == epoch) {
      test::Operation operation = test::DrawOperation(random_, model.operations.size());
      model.operations.push_back(operation);
      const size_t count = model.operations.size();
      dsm::FabricCounts counts;
      OpContext op{worker, counts};
      Status written = co_await test::WriteOperation(op, store, client, std::move(operation));
      if (written.ok()) {
        // Whoever was deposed acknowledges nothing, however late it wakes.
        EXPECT_EQ(serving_, epoch) << "a deposed primary has acknowledged a write";
        if (serving_ != epoch) co_return;
        model.durable = std::max(model.durable, count);
        ++acknowledged;
      }
      // What failed may have been committed: nothing is known of it until somebody else serves.
      if (!written.ok()) co_return;
      if (random_.OneIn(3)) co_await Read(worker, store, epoch);
      co_await worker.Sleep(random_.Below(4 * kNsPerMs));
    }
  }

  /// What somebody has seen stays, as if it had been acknowledged to him who wrote it.
  dsm::Task<void> Read(Worker& worker, LsmStore& store, uint64_t epoch) {
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    const size_t client = random_.Below(kClients);
    const std::string key = test::KeyOf(client, random_.Below(test::kPrefixKeysEach));
    std::optional<std::string> seen;
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
    EXPECT_EQ(serving_, epoch) << "a deposed primary has answered a read";
    if (!seen || serving_ != epoch) co_return;
    PrefixModel& model = models_[client];
    const size_t count = std::stoull(*seen) + 1;
    seen_unacknowledged += count > model.durable;
    model.durable = std::max(model.durable, count);
  }

  // ---- Faults

  Node* Primary() {
    for (Node& each : nodes_) {
      if (each.sim && !each.life_over && each.region && each.region->store() != nullptr) {
        return &each;
      }
    }
    return nullptr;
  }
  bool IsWhole() {
    Node* const primary = Primary();
    if (primary == nullptr || !primary->tended || serving_ != epoch_) return false;
    for (Node& each : nodes_) {
      if (!each.sim) return false;
    }
    return primary->region->replicas().members().size() == kNodes - 1;
  }

  /// Nodes that are down come back, and all find each other again.
  void AwaitWhole() {
    const uint64_t begun_ns = world_.now_ns();
    bool served = false;
    const uint64_t before = acknowledged;
    for (int slice = 0; slice < 1200 && !Failed(); ++slice) {
      for (Node& each : nodes_) {
        if (!each.sim) Start(each.id);
      }
      Tend();
      RunFor(50 * kNsPerMs);
      if (!served && acknowledged > before) {
        served = true;
        served_again_ns_max = std::max(served_again_ns_max, world_.now_ns() - begun_ns);
      }
      if (IsWhole() && acknowledged > before + kClients) {
        whole_again_ns_max = std::max(whole_again_ns_max, world_.now_ns() - begun_ns);
        return;
      }
    }
    ADD_FAILURE() << "the region is not whole again after a minute: "
                  << (Primary()
                          ? "node " + std::to_string(Primary()->id) + " serves with " +
                                ::testing::PrintToString(Primary()->region->replicas().members())
                          : std::string("nobody serves"));
  }

  void Fault() {
    RunFor(random_.Below(300 * kNsPerMs));
    const size_t faults = random_.OneIn(4) ? 2 : 1;
    for (size_t i = 0; i < faults && !Failed(); ++i) {
      OneFault();
      for (uint64_t ms = random_.Below(3'000); ms > 50; ms -= 50) {
        Tend();
        RunFor(50 * kNsPerMs);
      }
    }
  }

  void OneFault() {
    Node* const primary = Primary();
    Node* hit = &nodes_[random_.Below(kNodes)];
    if (primary != nullptr && random_.OneIn(2)) hit = primary;
    if (!hit->sim) return;
    const uint64_t until_ns = world_.now_ns() + random_.Below(4 * kNsPerSecond);
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
  const AreaLayout layout_;
  SimWorld world_;
  std::unique_ptr<dsm::SimFabric> driver_fabric_;
  dsm::EpochDomain driver_epochs_;
  std::unique_ptr<Worker> driver_;  // of whoever looks on
  InProcessService service_;
  LsmOptions options_ = test::TinyStore();
  std::array<Node, kNodes> nodes_;
  std::array<PrefixModel, kClients> models_;
  uint64_t epoch_ = 0;    // of who has come to serve last
  uint64_t serving_ = 0;  // whose clients write
};

TEST(ClusterTest, KeepsARegionTogether) {
  const uint64_t seeds = test::Amount{2, 10, 1000};
  uint64_t acknowledged = 0, promotions = 0, crashes = 0, lives_over = 0, served = 0, whole = 0,
           alone = 0, seen = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Cluster cluster(seed);
    cluster.Run(5);
    acknowledged += cluster.acknowledged;
    promotions += cluster.promotions;
    crashes += cluster.crashes;
    lives_over += cluster.lives_over;
    seen += cluster.seen_unacknowledged;
    alone += cluster.alone_crashes;
    served = std::max(served, cluster.served_again_ns_max);
    whole = std::max(whole, cluster.whole_again_ns_max);
    if (HasFailure()) break;
  }
  std::printf(
      "%lu seeds: %lu acknowledged, %lu seen before, %lu times somebody came to serve, %lu "
      "crashes (%lu of who was alone in sync), %lu lives that "
      "were over; served again within %.2f s at most, whole again within %.2f s\n",
      seeds, acknowledged, seen, promotions, crashes, alone, lives_over,
      static_cast<double>(served) / 1e9, static_cast<double>(whole) / 1e9);
  EXPECT_GT(acknowledged, seeds * 10);
  EXPECT_GT(promotions, seeds);
  if (seeds < 10) return;
  EXPECT_GT(lives_over, 0u);
  EXPECT_GT(seen, 0u);
}

}  // namespace
}  // namespace farleaf::server::cluster
