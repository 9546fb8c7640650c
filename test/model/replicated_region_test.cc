// A region of three simulated nodes: its primary dies, its backups die, their links part, at any moment, while clients write; of each client's operations a
// prefix is at whoever is promoted, and all that were acknowledged.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "index/lsm/store.h"
#include "server/replication/backup_region.h"
#include "server/replication/replica_set.h"
#include "test/support/prefix_model.h"
#include "test/support/sim_node.h"
#include "test/support/test_scale.h"
#include "test/support/tiny_store.h"

namespace farleaf::server::replication {
namespace {

using dsm::SimWorld;
using dsm::Worker;
using index::KeyValue;
using index::OpContext;
using index::ScanRange;
using index::lsm::Durability;
using index::lsm::LsmOptions;
using index::lsm::LsmStore;
using test::Operation;
using test::PrefixModel;
using test::SimNode;

constexpr size_t kNodes = 3;
constexpr size_t kLivesMax = 8;
constexpr size_t kClients = 3;
constexpr uint64_t kKeysEach = 40;

std::string KeyOf(size_t client, uint64_t number) {
  return "c" + std::to_string(client) + "k" + std::to_string(100 + number);
}

/// Said by its first bytes; the rest follows from them.
std::string ValueOf(uint64_t operation, size_t bytes) {
  std::string value = std::to_string(operation) + "/";
  while (value.size() < bytes) value += static_cast<char>('a' + (operation + value.size()) % 23);
  return value;
}

/// What the membership knows of the region.
struct View {
  uint64_t epoch = 0;  ///< grows with each primary
  std::set<NodeId> members;
};

/// Of one primary, until another one has its place.
class PrimaryViews final : public ViewKeeper {
 public:
  PrimaryViews(View* view, Random* random) : view_(view), random_(random), epoch_(view->epoch) {}
  dsm::Task<Status> Exclude(Worker& worker, NodeId node) override {
    co_await worker.Sleep(random_->Below(kNsPerMs));
    if (view_->epoch != epoch_) co_return Status::Fenced("another node is the primary");
    view_->members.erase(node);
    co_return Status::Ok();
  }
  dsm::Task<Status> Include(Worker& worker, NodeId node) override {
    co_await worker.Sleep(random_->Below(kNsPerMs));
    if (view_->epoch != epoch_) co_return Status::Fenced("another node is the primary");
    view_->members.insert(node);
    co_return Status::Ok();
  }

 private:
  View* const view_;
  Random* const random_;
  const uint64_t epoch_;
};

class ReplicatedRegion {
 public:
  explicit ReplicatedRegion(uint64_t seed)
      : random_(seed),
        layout_(*AreaLayout::For({.slots = 4, .payload_bytes = 64 << 10, .log_buffers = 12})),
        world_({.seed = random_.Next(),
                .servers = kNodes * kLivesMax,
                .region_bytes = SimNode::kArea + layout_.bytes()}) {
    options_.durability = random_.OneIn(2) ? Durability::kSynced : Durability::kReplicated;
    for (NodeId id = 1; id <= kNodes; ++id) Start(id);
    Become(1);
  }
  ~ReplicatedRegion() {
    for (Node& node : nodes_) {
      if (node.sim) Crash(node);
    }
  }

  void Run(int rounds) {
    JoinAll();
    for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      Round();
    }
  }
  uint64_t acknowledged = 0, promotions = 0, joins = 0, backups_lost = 0, parted_excluded = 0,
           joins_refused = 0;

 private:
  struct Node {
    NodeId id = 0;
    size_t lives = 0;
    index::storage::SimImage image;  ///< while it is down
    std::unique_ptr<SimNode> sim;    ///< null: it is down
    // A backup:
    std::unique_ptr<BackupRegion> backup;
    bool serving = false;
    uint64_t token = 0;
    // The primary. The set outlives the store.
    std::unique_ptr<PrimaryViews> views;
    std::unique_ptr<ReplicaSet> replicas;
    std::unique_ptr<LsmStore> store;
  };
  Node& node(NodeId id) { return nodes_[id - 1]; }
  bool Failed() const { return ::testing::Test::HasFailure(); }

  /// Runs a task on the node to its end, as the clients' worker: the world waits for it.
  void RunOn(Node& on, dsm::Task<void> task) {
    on.sim->clients().Spawn(std::move(task));
    const auto end = world_.RunWhileBusy(world_.now_ns() + 600 * kNsPerSecond);
    ASSERT_EQ(end, SimWorld::RunEnd::kIdle) << "nothing goes on";
  }

  void Start(NodeId id) {
    Node& started = node(id);
    started.id = id;
    const auto server = static_cast<dsm::ServerId>((id - 1) * kLivesMax + started.lives++);
    started.sim = std::make_unique<SimNode>(
        &world_, SimNode::Options{server, random_.Next(), std::move(started.image)});
    started.image = {};
  }

  void Crash(Node& crashed) {
    crashed.image = crashed.sim->Crash();
    if (crashed.replicas) crashed.replicas->Abandon();
    if (crashed.store) crashed.store->Abandon();
    crashed.sim->AbandonWorkers();
    crashed.store = nullptr;
    crashed.replicas = nullptr;
    crashed.backup = nullptr;
    crashed.serving = false;
    crashed.sim = nullptr;
  }

  // ---- A backup

  dsm::Task<void> OpenBackup(Worker& worker, Node& on) {
    auto opened = co_await BackupRegion::Open(
        worker, {.storage = &on.sim->storage(), .area = on.sim->area(layout_), .layout = layout_});
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) on.backup = std::move(*opened);
  }
  dsm::Task<void> Serve(Worker& worker, Node& on) {
    on.serving = true;
    co_await on.backup->Serve(worker);
    on.serving = false;
  }
  /// Lets the primary in, whoever it is.
  dsm::Task<void> Expect(Worker&, Node& on) {
    on.token = random_.Next() | 1;
    co_await on.backup->Expect(on.token);
  }

  // ---- The primary

  void Become(NodeId id) {
    primary_ = id;
    ++view_.epoch;
    view_.members = {id};
    Node& on = node(id);
    on.views = std::make_unique<PrimaryViews>(&view_, &random_);
    on.replicas = std::make_unique<ReplicaSet>(on.views.get(), [] { return Status::Ok(); });
    RunOn(on, OpenStore(on.sim->clients(), on));
    if (!on.store) return;
    Worker& behind = on.sim->background();
    behind.Spawn(on.store->RunLogs(behind));
    behind.Spawn(on.store->RunLogFlushes(behind));
    behind.Spawn(on.store->RunFlushes(behind));
    behind.Spawn(on.store->RunCollection(behind));
    behind.Spawn(on.store->RunReclaim(behind));
    behind.Spawn(on.store->RunCompactions(behind));
    on.store->CompactEagerly(random_.OneIn(2));
  }

  dsm::Task<void> OpenStore(Worker& worker, Node& on) {
    const LsmStore::Deps deps{&on.sim->storage(), &on.sim->epochs(), &world_.clock(), 1,
                              on.replicas.get()};
    auto opened = co_await LsmStore::Open(worker, deps, options_, LsmStore::IfMissing::kCreate);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (!opened.ok()) co_return;
    on.store = std::move(*opened);
    on.replicas->set_store(on.store.get());
    co_await CheckAll(worker, *on.store);
  }

  dsm::Task<void> CheckAll(Worker& worker, LsmStore& store) {
    std::vector<KeyValue> rows;
    dsm::FabricCounts counts;
    OpContext op{worker, counts};
    const ScanRange all{.start = {}};
    Status scanned = co_await store.Scan(op, all, &rows);
    EXPECT_TRUE(scanned.ok()) << scanned;
    if (!scanned.ok()) co_return;
    for (size_t client = 0; client < kClients; ++client) CheckClient(client, rows);
    for (const KeyValue& row : rows) {
      std::string value;
      auto found = co_await store.Get(op, row.key, &value);
      EXPECT_TRUE(found.ok() && *found && value == row.value) << row.key;
    }
  }

  void CheckClient(size_t client, const std::vector<KeyValue>& rows) {
    PrefixModel& model = models_[client];
    const std::string prefix = "c" + std::to_string(client) + "k";
    PrefixModel::Content there;
    for (const KeyValue& row : rows) {
      if (row.key.starts_with(prefix)) {
        there[std::stoull(row.key.substr(prefix.size())) - 100] = row.value;
      }
    }
    const std::optional<size_t> count = model.MostThatMake(there);
    EXPECT_TRUE(count) << "client " << client << ": of " << model.operations.size()
                       << " operations, of which " << model.durable
                       << " were acknowledged, what is there is no prefix";
    if (!count) return;
    model.operations.resize(*count);
    model.durable = *count;
  }

  /// Opens a channel to the backup, and fills it.
  dsm::Task<void> Join(Worker& worker, Node& primary, Node& backup, Status* joined) {
    dsm::FabricCounts counts;
    const ChannelAddress address{backup.sim->server(), SimNode::kArea, backup.token};
    const ChannelOptions options{.backup = "node " + std::to_string(backup.id)};
    auto channel = co_await Channel::Open(worker, address, options, counts);
    if (!channel.ok()) {
      *joined = channel.status();
      co_return;
    }
    const auto port = std::make_shared<ChannelPort>(std::move(*channel));
    worker.Spawn(ChannelPort::Run(worker, port));
    const auto link = std::make_shared<BackupLink>(backup.id, port);
    *joined = co_await primary.replicas->Add(worker, link);
  }

  /// Whoever is up and no member becomes one.
  void JoinAll() {
    Node& primary = node(primary_);
    for (Node& backup : nodes_) {
      if (Failed()) return;
      if (!backup.sim || backup.id == primary_ || view_.members.contains(backup.id)) continue;
      if (!backup.backup) {
        RunOn(backup, OpenBackup(backup.sim->clients(), backup));
        if (!backup.backup) return;
      }
      RunOn(backup, Expect(backup.sim->clients(), backup));
      if (!backup.serving) {
        backup.sim->background().Spawn(Serve(backup.sim->background(), backup));
      }
      Status joined;
      for (int tries = 0; tries < 100; ++tries) {
        // On the worker that the channel stays on.
        primary.sim->background().Spawn(
            Noted(Join(primary.sim->background(), primary, backup, &joined)));
        RunOn(primary, Await(primary.sim->clients()));
        if (joined.code() != StatusCode::kUnavailable) break;
        ++joins_refused;
        RunOn(primary, Pause(primary.sim->clients()));
        RunOn(backup, Expect(backup.sim->clients(), backup));
      }
      EXPECT_TRUE(joined.ok()) << joined;
      ++joins;
    }
  }
  dsm::Task<void> Noted(dsm::Task<void> task) {
    noted_ = false;
    co_await task;
    noted_ = true;
  }
  dsm::Task<void> Await(Worker& worker) {
    while (!noted_) co_await worker.Sleep(100 * kNsPerUs);
  }

  dsm::Task<void> Pause(Worker& worker) { co_await worker.Sleep(100 * kNsPerMs); }

  // ---- Clients

  Operation NewOperation(uint64_t number) {
    Operation operation;
    for (uint64_t n = random_.OneIn(5) ? 3 : 1; n > 0; --n) {
      const size_t bytes = random_.OneIn(2)    ? 30
                           : random_.OneIn(10) ? random_.Below(100'000)
                                               : random_.Below(1000);
      auto& change = operation.changes[random_.Below(kKeysEach)];
      change = random_.OneIn(5) ? std::nullopt : std::optional(ValueOf(number, bytes));
    }
    return operation;
  }

  dsm::Task<void> Write(Worker& worker, LsmStore& store, size_t client) {
    PrefixModel& model = models_[client];
    while (!stop_) {
      Operation operation = NewOperation(model.operations.size());
      model.operations.push_back(operation);
      const size_t count = model.operations.size();
      dsm::FabricCounts counts;
      OpContext op{worker, counts};
      std::vector<std::string> keys;
      for (const auto& [key, value] : operation.changes) keys.push_back(KeyOf(client, key));
      std::vector<index::lsm::Change> changes;
      size_t i = 0;
      for (const auto& [key, value] : operation.changes) {
        index::lsm::Change change{
            .kind = value ? index::lsm::ChangeKind::kPut : index::lsm::ChangeKind::kDelete,
            .key = keys[i++]};
        if (value) change.value = *value;
        changes.push_back(change);
      }
      Status written = co_await store.Write(op, changes);
      // What failed may have been committed: nothing is known of it until somebody is promoted.
      if (!written.ok()) co_return;
      model.durable = count;
      ++acknowledged;
      if (random_.OneIn(2)) co_await worker.Sleep(random_.Below(2 * kNsPerMs));
    }
  }
  dsm::Task<void> FlushNowAndThen(Worker& worker, LsmStore& store) {
    while (!stop_) {
      co_await worker.Sleep(random_.Below(20 * kNsPerMs));
      store.FlushSoon();
    }
  }

  // ---- Faults

  void Round() {
    Node& primary = node(primary_);
    Worker& worker = primary.sim->clients();
    stop_ = false;
    for (size_t client = 0; client < kClients; ++client) {
      worker.Spawn(Write(worker, *primary.store, client));
    }
    worker.Spawn(FlushNowAndThen(worker, *primary.store));
    const uint64_t fault_ns = world_.now_ns() + random_.Below(400 * kNsPerMs);
    (void)world_.RunWhileBusy(fault_ns);
    if (Failed()) return;
    const bool primary_dies = random_.OneIn(2);
    if (primary_dies) {
      last_primary_ = primary.sim->identity();
      Crash(primary);
      Promote();
    } else {
      LoseBackup();
      (void)world_.RunWhileBusy(world_.now_ns() + random_.Below(200 * kNsPerMs));
      // Each client goes on, without it or with it.
      const uint64_t before = acknowledged;
      for (int i = 0; i < 600 && acknowledged <= before + kClients; ++i) {
        (void)world_.RunWhileBusy(world_.now_ns() + 100 * kNsPerMs);
      }
      EXPECT_GT(acknowledged, before + kClients);
      stop_ = true;
      ASSERT_EQ(world_.RunWhileBusy(world_.now_ns() + 600 * kNsPerSecond), SimWorld::RunEnd::kIdle);
      const bool crashed = !node(lost_).sim;
      EXPECT_FALSE(crashed && view_.members.contains(lost_));
      if (!crashed) parted_excluded += !view_.members.contains(lost_);
      if (!crashed) (void)world_.RunWhileBusy(heals_ns_ + kNsPerMs);
    }
    if (Failed()) return;
    for (Node& each : nodes_) {
      if (!each.sim) Start(each.id);
    }
    JoinAll();
  }

  void LoseBackup() {
    lost_ = primary_;
    while (lost_ == primary_) lost_ = static_cast<NodeId>(1 + random_.Below(kNodes));
    Node& backup = node(lost_);
    ++backups_lost;
    if (random_.OneIn(2)) {
      Crash(backup);
      return;
    }
    world_.Partition(node(primary_).sim->process(), backup.sim->server());
    const uint32_t process = node(primary_).sim->process();
    const dsm::ServerId server = backup.sim->server();
    heals_ns_ = world_.now_ns() + random_.Below(8 * kNsPerSecond);
    world_.At(heals_ns_, [this, process, server] {
      if (!world_.has_crashed(process)) world_.Heal(process, server);
    });
  }

  void Promote() {
    std::vector<NodeId> candidates;
    for (const NodeId id : view_.members) {
      if (id != primary_) candidates.push_back(id);
    }
    ASSERT_FALSE(candidates.empty());
    const NodeId next = candidates[random_.Below(candidates.size())];
    Node& promoted = node(next);
    for (Node& each : nodes_) {
      if (each.sim) world_.CutOffAt(each.sim->server(), last_primary_);
    }
    promoted.backup->Stop();
    RunOn(promoted, PromoteBackup(promoted.sim->clients(), promoted));
    if (Failed()) return;
    promoted.backup = nullptr;
    Become(next);
    ++promotions;
  }
  dsm::Task<void> PromoteBackup(Worker& worker, Node& on) {
    while (on.serving) co_await worker.Sleep(kNsPerMs);
    EXPECT_EQ(on.backup->phase(), index::lsm::StoreCopy::Phase::kFollowing);
    Status promoted = co_await on.backup->Promote(worker);
    EXPECT_TRUE(promoted.ok()) << promoted;
  }

  Random random_;
  const AreaLayout layout_;
  SimWorld world_;
  LsmOptions options_ = test::TinyStore();
  std::array<Node, kNodes> nodes_;
  View view_;
  NodeId primary_ = 0, lost_ = 0;
  uint64_t heals_ns_ = 0;
  dsm::MemberIdentity last_primary_;
  std::array<PrefixModel, kClients> models_;
  bool stop_ = false, noted_ = false;
};

TEST(ReplicatedRegionTest, WhoeverIsPromotedHasAllThatWasAcknowledged) {
  const uint64_t seeds = test::Amount{3, 20, 500};
  uint64_t acknowledged = 0, promotions = 0, joins = 0, lost = 0, parted = 0, refused = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ReplicatedRegion region(seed);
    region.Run(4);
    acknowledged += region.acknowledged;
    promotions += region.promotions;
    joins += region.joins;
    lost += region.backups_lost;
    parted += region.parted_excluded;
    refused += region.joins_refused;
    if (HasFailure()) break;
  }
  std::printf(
      "%lu seeds: %lu acknowledged, %lu promotions, %lu backups filled, %lu lost, of them %lu as "
      "their link was "
      "parted, %lu refused for a while\n",
      seeds, acknowledged, promotions, joins, lost, parted, refused);
  EXPECT_GT(acknowledged, seeds * 10);
  EXPECT_GT(promotions, seeds / 2);
}

}  // namespace
}  // namespace farleaf::server::replication
