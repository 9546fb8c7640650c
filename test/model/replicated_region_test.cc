// A region of three simulated nodes: its primary dies or is deposed while it is stalled, its backups die, their links part, at any moment, while clients write and
// backups are filled; of each client's operations a prefix is at whoever is promoted, and all that were acknowledged. At quiet moments copies are compared with
// the primary. Each backup is read all the time, and what is read is a prefix as well: with all that was acknowledged when the backup's clock, which is no
// other node's, showed the proved stamp.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "index/lsm/log_buffer.h"
#include "index/lsm/log_record.h"
#include "index/lsm/store.h"
#include "index/lsm/table_check.h"
#include "server/replication/backup_region.h"
#include "server/replication/replica_set.h"
#include "test/support/prefix_client.h"
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
using index::lsm::StoreState;
using index::storage::SegmentId;
using test::PrefixModel;
using test::SimNode;

constexpr size_t kNodes = 3;
constexpr size_t kLivesMax = 8;
constexpr size_t kClients = 3;

/// What the membership knows of the region.
struct View {
  uint64_t epoch = 0;  ///< grows with each primary
  std::set<NodeId> members;
};

/// Of one primary, until another one has its place.
class PrimaryViews final : public ViewKeeper {
 public:
  PrimaryViews(View* view, Random* random) : view_(view), random_(random), epoch_(view->epoch) {}
  dsm::Task<Result<std::vector<NodeId>>> Exclude(Worker& worker, NodeId node) override {
    co_await worker.Sleep(random_->Below(kNsPerMs));
    if (view_->epoch != epoch_) co_return Status::Fenced("another node is the primary");
    view_->members.erase(node);
    co_return std::vector<NodeId>(view_->members.begin(), view_->members.end());
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

/// A node's own: another one than the world's.
class OwnClock final : public Clock {
 public:
  OwnClock(const Clock* world, uint64_t ahead_ns) : world_(*world), ahead_ns_(ahead_ns) {}
  uint64_t NowNs() const override { return world_.NowNs() + ahead_ns_; }
  uint64_t ahead_ns() const { return ahead_ns_; }

 private:
  const Clock& world_;
  const uint64_t ahead_ns_;
};

class ReplicatedRegion {
 public:
  explicit ReplicatedRegion(uint64_t seed)
      : random_(seed),
        layout_(*AreaLayout::For({.slots = 4, .payload_bytes = 64 << 10, .log_buffers = 12})),
        world_({.seed = random_.Next(),
                .servers = kNodes * kLivesMax,
                .region_bytes = SimNode::kArea + layout_.bytes()}) {
    options_.durability = random_.OneIn(2)   ? Durability::kSynced
                          : random_.OneIn(2) ? Durability::kReplicated
                                             : Durability::kLocal;
    if (random_.OneIn(2)) options_.flush_memtable_ms = 10 + random_.Below(50);
    for (Node& node : nodes_) {
      node.clock = std::make_unique<OwnClock>(&world_.clock(), random_.Below(1000 * kNsPerSecond));
    }
    for (NodeId id = 1; id <= kNodes; ++id) Start(id);
    Become(1);
  }
  ~ReplicatedRegion() {
    for (Node& node : nodes_) {
      if (node.sim) Crash(node);
    }
  }

  void Run(int rounds) {
    ReadyBackups();
    AwaitJoined();
    for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      Round();
    }
  }
  uint64_t acknowledged = 0, acknowledged_locally = 0, promotions = 0, joins = 0, backups_lost = 0,
           parted_excluded = 0, joins_refused = 0, joins_failed = 0, compared = 0, deposed = 0,
           restarts = 0, read = 0, read_behind = 0;

 private:
  struct Node {
    NodeId id = 0;
    size_t lives = 0;
    SimNode::Disks disks;          ///< while it is down
    std::unique_ptr<SimNode> sim;  ///< null: it is down
    // A backup:
    std::unique_ptr<BackupRegion> backup;
    bool serving = false;
    std::unique_ptr<OwnClock> clock;
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
        &world_, SimNode::Options{server, random_.Next(), std::move(started.disks)});
    started.disks = {};
  }

  void Crash(Node& crashed) {
    crashed.disks = crashed.sim->Crash();
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
    const BackupRegion::Reads reads{
        .cache_bytes = 1 << 20, .wall = &world_.clock(), .clock = on.clock.get()};
    const BackupRegion::Deps deps{.storage = &on.sim->storage(),
                                  .area = on.sim->area(layout_),
                                  .layout = layout_,
                                  .reads = reads,
                                  .checks = &check_memory_};
    auto opened = co_await BackupRegion::Open(worker, deps);
    EXPECT_TRUE(opened.ok()) << opened.status();
    if (opened.ok()) on.backup = std::move(*opened);
  }
  dsm::Task<void> Serve(Worker& worker, Node& on) {
    on.serving = true;
    co_await on.backup->Serve(worker);
    on.serving = false;
  }
  /// What is in the backup's tables, again and again.
  dsm::Task<void> Read(Worker& worker, Node& on) {
    const auto reader = on.backup->reader();
    while (on.serving) {
      co_await worker.Sleep(random_.Below((stop_ ? 1000 : 10) * kNsPerMs));
      if (!on.serving) co_return;
      const std::optional<uint64_t> proved_ns = on.backup->proved_ns();
      if (!proved_ns) continue;
      std::array<size_t, kClients> least;
      for (size_t i = 0; i < kClients; ++i) {
        least[i] = AcknowledgedBefore(i, *proved_ns - on.clock->ahead_ns());
      }
      std::vector<KeyValue> rows;
      dsm::FabricCounts counts;
      OpContext op{worker, counts};
      const ScanRange all{.start = {}};
      Status scanned = co_await reader->Scan(op, all, &rows);
      if (scanned.code() == StatusCode::kUnavailable) continue;
      EXPECT_TRUE(scanned.ok()) << scanned;
      for (size_t i = 0; i < kClients; ++i) CheckRead(i, rows, least[i]);
      ++read;
    }
  }
  /// How many of the client's operations were.
  size_t AcknowledgedBefore(size_t client, uint64_t world_ns) const {
    const auto& all = acknowledged_[client];
    const auto end = std::ranges::lower_bound(all, world_ns, {}, &Acknowledged::at_ns);
    return end == all.begin() ? 0 : (end - 1)->count;
  }
  void CheckRead(size_t client, const std::vector<KeyValue>& rows, size_t least) {
    const PrefixModel& model = models_[client];
    const auto most = model.MostThatMake(PrefixModel::ContentOf(client, rows), least);
    EXPECT_TRUE(most) << "client " << client << ": what a backup has is no prefix of "
                      << model.operations.size() << " operations with the first " << least;
    read_behind += most && *most < model.durable;
  }
  /// Lets the primary in, whoever it is.
  dsm::Task<void> Expect(Worker&, Node& on, std::shared_ptr<bool> expects) {
    on.token = random_.Next() | 1;
    co_await on.backup->Expect(on.token);
    *expects = true;
  }

  // ---- The primary

  void Become(NodeId id) {
    primary_ = id;
    ++view_.epoch;
    view_.members = {id};
    Node& on = node(id);
    on.views = std::make_unique<PrimaryViews>(&view_, &random_);
    on.replicas = std::make_unique<ReplicaSet>(
        on.views.get(), IndexMode::kSend, [this, epoch = view_.epoch]() -> Status {
          if (view_.epoch == epoch) return Status::Ok();
          return Status::Unavailable("another node may be the primary");
        });
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
    behind.Spawn(KeepJoining(behind, on));
    behind.Spawn(RunStamps(behind, *on.replicas));
  }

  dsm::Task<void> RunStamps(Worker& worker, ReplicaSet& replicas) {
    const uint64_t every_ns = 1 + random_.Below(20 * kNsPerMs);
    for (;;) {
      co_await worker.Sleep(every_ns);
      co_await replicas.Stamp(worker);
    }
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
    for (size_t client = 0; client < kClients; ++client) models_[client].Check(client, rows);
    for (const KeyValue& row : rows) {
      std::string value;
      auto found = co_await store.Get(op, row.key, &value);
      EXPECT_TRUE(found.ok() && *found && value == row.value) << row.key;
    }
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

  /// Whoever is up and no member becomes one, whatever else goes on.
  dsm::Task<void> KeepJoining(Worker& worker, Node& primary) {
    for (;;) {
      co_await worker.Sleep(1 + random_.Below(5 * kNsPerMs));
      for (Node& backup : nodes_) {
        if (!backup.serving || backup.id == primary.id) continue;
        if (view_.members.contains(backup.id)) continue;
        const auto expects = std::make_shared<bool>(false);
        const size_t life = backup.lives;
        Worker& there = backup.sim->background();
        there.Spawn(Expect(there, backup, expects));
        while (!*expects && backup.lives == life && backup.sim) co_await worker.Sleep(kNsPerMs);
        if (!*expects) continue;
        // On the worker that the channel stays on.
        Status joined;
        co_await Join(worker, primary, backup, &joined);
        const bool refused = joined.code() == StatusCode::kUnavailable;
        ++(joined.ok() ? joins : refused ? joins_refused : joins_failed);
        if (!joined.ok()) co_await worker.Sleep(20 * kNsPerMs);
      }
    }
  }

  /// Each that is up, but the primary, serves.
  void ReadyBackups() {
    for (Node& backup : nodes_) {
      if (Failed()) return;
      if (!backup.sim) Start(backup.id);
      if (backup.id == primary_ || backup.serving) continue;
      RunOn(backup, OpenBackup(backup.sim->clients(), backup));
      if (!backup.backup) return;
      backup.sim->background().Spawn(Serve(backup.sim->background(), backup));
      backup.sim->background().Spawn(Read(backup.sim->background(), backup));
    }
  }

  void AwaitJoined() {
    for (int i = 0; i < 1000 && view_.members.size() < kNodes; ++i) {
      RunOn(node(primary_), Pause(node(primary_).sim->clients(), 100 * kNsPerMs));
    }
    EXPECT_EQ(view_.members.size(), kNodes) << "somebody does not become a member";
    if (!Failed()) CompareAll();
  }
  dsm::Task<void> Pause(Worker& worker, uint64_t ns) { co_await worker.Sleep(ns); }

  // ---- Copies beside the primary

  /// By segment, of tables what they hold, of logs all records from the front.
  using Content = std::map<SegmentId, std::string>;

  dsm::Task<void> ReadSegment(Worker& worker, index::storage::Storage& disk, SegmentId id,
                              std::string* bytes) {
    index::lsm::AlignedBytes memory(index::storage::kSegmentBytes);
    index::storage::Io io{index::storage::IoKind::kRead, id, 0, memory.span()};
    Status carried = co_await disk.Run(worker, {&io, 1});
    if (carried.ok()) bytes->assign(AsChars(memory.span()));
  }
  dsm::Task<void> ReadAll(Worker& worker, index::storage::Storage& disk, StoreState state,
                          Content* content) {
    for (const auto& [place, run] : state.runs()) {
      for (const auto& each : run->tables) {
        for (size_t i = 0; i < each.table.segments.size(); ++i) {
          std::string& bytes = (*content)[each.table.segments[i]];
          co_await ReadSegment(worker, disk, each.table.segments[i], &bytes);
          bytes.resize(std::min<size_t>(bytes.size(), TableBytesIn(each.table, i)));
        }
      }
    }
    std::vector<SegmentId> logs = state.recovery_log;
    for (const auto& [id, garbage] : state.value_log) logs.push_back(id);
    for (const SegmentId id : logs) {
      std::string& bytes = (*content)[id];
      co_await ReadSegment(worker, disk, id, &bytes);
      const uint32_t seed = index::lsm::SegmentSeed(state.epoch, id);
      uint32_t end = 0;
      while (const auto record =
                 index::lsm::ParseLogRecord(seed, end, AsBytes(bytes).subspan(end))) {
        end += record->bytes();
      }
      const size_t block =
          std::min<size_t>(bytes.size(), RoundUp(end, index::storage::kBlockBytes));
      const bool clean = end == 0 || bytes.find_first_not_of('\0', end) >= block;
      EXPECT_TRUE(clean) << "segment " << Number(id) << " has something behind its last record";
      bytes.resize(end);
    }
  }
  dsm::Task<void> TakeState(Worker& worker, LsmStore& store, StoreState* state) {
    while (!store.Quiet()) co_await worker.Sleep(10 * kNsPerMs);
    co_await worker.Sleep(3 * kNsPerSecond);  // what is in the logs is written by then
    *state = co_await store.State(worker);
  }
  /// REQUIRES: no client writes.
  void CompareAll() {
    Node& primary = node(primary_);
    StoreState state;
    RunOn(primary, TakeState(primary.sim->clients(), *primary.store, &state));
    if (Failed()) return;
    Content expected;
    RunOn(primary, ReadAll(primary.sim->clients(), primary.sim->storage(), state, &expected));
    for (const NodeId id : view_.members) {
      if (id == primary_) continue;
      SCOPED_TRACE("node " + std::to_string(id));
      Node& backup = node(id);
      const index::lsm::StoreCopy& copy = backup.backup->copy();
      EXPECT_EQ(copy.phase(), index::lsm::StoreCopy::Phase::kFollowing);
      EXPECT_EQ(copy.state().AsEdit().Encode(), state.AsEdit().Encode());
      if (options_.flush_memtable_ms != 0) {
        const std::optional<uint64_t> staleness_ns = backup.backup->staleness_ns();
        EXPECT_TRUE(staleness_ns && *staleness_ns < kNsPerSecond) << staleness_ns.value_or(0);
      }
      Content there;
      RunOn(backup, ReadAll(backup.sim->clients(), backup.sim->storage(), state, &there));
      for (const auto& [segment, bytes] : expected) {
        if (copy.is_open(segment)) continue;  // in a buffer: looked at when it is promoted
        EXPECT_TRUE(there[segment] == bytes)
            << "segment " << Number(segment) << " is another one: of " << bytes.size() << " bytes, "
            << there[segment].size() << " are there";
        ++compared;
      }
    }
  }

  // ---- Clients

  dsm::Task<void> Write(Worker& worker, LsmStore& store, size_t client) {
    PrefixModel& model = models_[client];
    const uint64_t epoch = view_.epoch;
    while (!stop_ && view_.epoch == epoch) {
      test::Operation operation = test::DrawOperation(random_, model.operations.size());
      model.operations.push_back(operation);
      const size_t count = model.operations.size();
      dsm::FabricCounts counts;
      OpContext op{worker, counts};
      if (random_.OneIn(4)) {
        op.durability = static_cast<WriteDurability>(1 + random_.Below(kWriteDurabilityMax));
      }
      const bool safe =
          options_.durability != Durability::kLocal || op.durability != WriteDurability::kOfStore;
      Status written = co_await test::WriteOperation(op, store, client, std::move(operation));
      // What failed may have been committed: nothing is known of it until somebody is promoted.
      if (!written.ok()) co_return;
      if (!safe) {
        ++acknowledged_locally;
        continue;
      }
      if (view_.epoch != epoch) {
        // It was at all members before one of them was promoted, or the deposed primary has lied.
        late_[client] = std::max(late_[client], count);
        co_return;
      }
      model.durable = count;
      acknowledged_[client].push_back({count, world_.now_ns()});
      ++acknowledged;
      if (random_.OneIn(2)) co_await worker.Sleep(random_.Below(2 * kNsPerMs));
    }
  }
  dsm::Task<void> FlushNowAndThen(Worker& worker, LsmStore& store) {
    const uint64_t epoch = view_.epoch;
    while (!stop_ && view_.epoch == epoch) {
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
    const bool others = view_.members.size() > 1;
    // Alone it has to come back with its disk, which has what was acknowledged only if that was synced.
    const bool may_die = others || options_.durability == Durability::kSynced;
    if (may_die && random_.OneIn(2)) {
      last_primary_ = primary.sim->identity();
      if (!others) {
        Crash(primary);
        Start(primary_);
        ++restarts;
        CutOffLastPrimary();
        Become(primary_);
      } else if (random_.OneIn(3)) {
        Depose();
      } else {
        Crash(primary);
        Promote();
      }
    } else {
      LoseBackups();
    }
    if (Failed()) return;
    stop_ = true;
    ReadyBackups();
    if (!Failed() && random_.OneIn(2)) AwaitJoined();
  }

  void LoseBackups() {
    LoseBackup();
    if (random_.OneIn(3)) LoseBackup();
    (void)world_.RunWhileBusy(world_.now_ns() + random_.Below(200 * kNsPerMs));
    // Each client goes on, without it or with it.
    const uint64_t before = acknowledged;
    for (int i = 0; i < 600 && acknowledged <= before + kClients; ++i) {
      (void)world_.RunWhileBusy(world_.now_ns() + 100 * kNsPerMs);
    }
    EXPECT_GT(acknowledged, before + kClients);
    stop_ = true;
    ASSERT_EQ(world_.RunWhileBusy(world_.now_ns() + 600 * kNsPerSecond), SimWorld::RunEnd::kIdle);
    for (const NodeId lost : lost_) {
      const bool crashed = !node(lost).sim;
      EXPECT_FALSE(crashed && view_.members.contains(lost));
      if (!crashed) parted_excluded += !view_.members.contains(lost);
    }
    lost_.clear();
    (void)world_.RunWhileBusy(std::max(heals_ns_, world_.now_ns()) + kNsPerMs);
  }

  void LoseBackup() {
    std::vector<NodeId> up;
    for (const Node& each : nodes_) {
      if (each.sim && each.id != primary_ && !lost_.contains(each.id)) up.push_back(each.id);
    }
    if (up.empty()) return;
    const NodeId lost = up[random_.Below(up.size())];
    lost_.insert(lost);
    Node& backup = node(lost);
    ++backups_lost;
    if (random_.OneIn(2)) {
      Crash(backup);
      return;
    }
    world_.Partition(node(primary_).sim->process(), backup.sim->server());
    const uint32_t process = node(primary_).sim->process();
    const dsm::ServerId server = backup.sim->server();
    const uint64_t heals_ns = world_.now_ns() + random_.Below(8 * kNsPerSecond);
    heals_ns_ = std::max(heals_ns_, heals_ns);
    world_.At(heals_ns, [this, process, server] {
      if (!world_.has_crashed(process)) world_.Heal(process, server);
    });
  }

  void CutOffLastPrimary() {
    for (Node& each : nodes_) {
      if (each.sim) world_.CutOffAt(each.sim->server(), last_primary_);
    }
  }

  /// The primary stands still, loses its place, and wakes.
  void Depose() {
    Node& old = node(primary_);
    ++deposed;
    world_.StallProcess(old.sim->process(), world_.now_ns() + random_.Below(2 * kNsPerSecond));
    if (random_.OneIn(2)) (void)world_.RunWhileBusy(world_.now_ns() + random_.Below(kNsPerSecond));
    if (view_.members.size() < 2) return;  // it has woken, and is alone
    late_ = {};
    Promote();
    if (Failed()) return;
    (void)world_.RunWhileBusy(world_.now_ns() + 3 * kNsPerSecond);
    for (size_t client = 0; client < kClients; ++client) {
      EXPECT_LE(late_[client], models_[client].durable)
          << "client " << client << ": a deposed primary has acknowledged what is lost";
    }
    Crash(old);
  }

  void Promote() {
    std::vector<NodeId> candidates;
    for (const NodeId id : view_.members) {
      if (id != primary_) candidates.push_back(id);
    }
    ASSERT_FALSE(candidates.empty());
    ++view_.epoch;
    const NodeId next = candidates[random_.Below(candidates.size())];
    Node& promoted = node(next);
    CutOffLastPrimary();
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
  index::lsm::CheckMemory check_memory_{2};  // not enough for all: some is read back
  std::array<Node, kNodes> nodes_;
  View view_;
  NodeId primary_ = 0;
  std::set<NodeId> lost_;
  uint64_t heals_ns_ = 0;
  dsm::MemberIdentity last_primary_;
  std::array<PrefixModel, kClients> models_;
  struct Acknowledged {
    size_t count = 0;    ///< so many operations
    uint64_t at_ns = 0;  ///< of the world
  };
  std::array<std::vector<Acknowledged>, kClients> acknowledged_;  // ascending in both
  std::array<size_t, kClients> late_{};  // acknowledged by a primary that was deposed meanwhile
  bool stop_ = false;
};

TEST(ReplicatedRegionTest, WhoeverIsPromotedHasAllThatWasAcknowledged) {
  const uint64_t seeds = test::Amount{1, 8, 500};
  const char* const only = std::getenv("FARLEAF_TEST_SEED");
  const uint64_t first = only ? std::stoull(only) : 1;
  std::map<std::string, uint64_t> sums;
  for (uint64_t seed = first; seed < first + (only ? 1 : seeds); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ReplicatedRegion region(seed);
    region.Run(4);
    sums["acknowledged"] += region.acknowledged;
    sums["promotions"] += region.promotions;
    sums["of them deposed while stalled"] += region.deposed;
    sums["restarts of a primary alone"] += region.restarts;
    sums["backups filled"] += region.joins;
    sums["fillings refused for a while"] += region.joins_refused;
    sums["fillings that failed"] += region.joins_failed;
    sums["backups lost"] += region.backups_lost;
    sums["of them parted and excluded"] += region.parted_excluded;
    sums["segments compared"] += region.compared;
    sums["acknowledged, of `local`"] += region.acknowledged_locally;
    sums["reads of backups"] += region.read;
    sums["of them behind in a client's operations"] += region.read_behind;
    if (HasFailure()) break;
  }
  for (const auto& [what, count] : sums) std::printf("%s: %lu\n", what.c_str(), count);
  if (only) return;
  EXPECT_GT(sums["acknowledged"], seeds * 10);
  EXPECT_GT(sums["promotions"], seeds / 2);
  EXPECT_GT(sums["segments compared"], seeds);
  EXPECT_GT(sums["reads of backups"], seeds * 10);
}

}  // namespace
}  // namespace farleaf::server::replication
