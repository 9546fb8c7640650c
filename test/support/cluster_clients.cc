#include "test/support/cluster_clients.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "test/support/prefix_client.h"

namespace farleaf::server::cluster {

using dsm::Worker;
using index::KeyValue;
using index::OpContext;
using index::ScanRange;
using index::lsm::Durability;
using index::lsm::LsmStore;
using test::PrefixModel;

namespace {

/// What all keys begin with in a store: a tree's number (index/prefixed_index.h).
constexpr std::string_view kTree = "tt";

void RemoveTree(std::vector<KeyValue>* rows) {
  for (KeyValue& row : *rows) row.key.erase(0, kTree.size());
}

}  // namespace

ClusterClients::Counts& ClusterClients::Counts::operator+=(const Counts& more) {
  acknowledged += more.acknowledged;
  acknowledged_alone += more.acknowledged_alone;
  taken_back += more.taken_back;
  openings += more.openings;
  waited_for_copies += more.waited_for_copies;
  reads += more.reads;
  seen_unacknowledged += more.seen_unacknowledged;
  copy_reads += more.copy_reads;
  copy_reads_behind += more.copy_reads_behind;
  copy_staleness_ns_max = std::max(copy_staleness_ns_max, more.copy_staleness_ns_max);
  alone_crashes += more.alone_crashes;
  crashes_of_all += more.crashes_of_all;
  return *this;
}

// ---- What a crash may take

void ClusterClients::NoteLost(const SimulatedCluster::Node& lost) {
  if (!lost.regions) return;
  lost.regions->ForEach([this, &lost](const RegionNode& region) {
    const RegionEntry* const entry = cluster_.EntryOf(region.region());
    const bool alone = SimulatedCluster::IsAlone(region);
    if (lost.life_over && region.primary() == nullptr) saved_.insert({lost.id, region.region()});
    const auto has = [&](NodeId id) {
      if (saved_.contains({id, region.region()})) return true;
      const SimulatedCluster::Node& node = cluster_.node(id);
      return id != lost.id && node.sim && !node.life_over && node.regions;
    };
    if (!alone && entry != nullptr && std::ranges::any_of(entry->in_sync, has)) return;
    ++(alone ? counts_.alone_crashes : counts_.crashes_of_all);
    for (size_t client = 0; client < kCount; ++client) {
      if (entry != nullptr && !entry->Covers(FirstKeyOf(client))) continue;
      TakeBack(client);
    }
  });
}

void ClusterClients::NoteAllLost() {
  for (size_t client = 0; client < kCount; ++client) TakeBack(client);
}

void ClusterClients::TakeBack(size_t client) {
  size_t& durable = models_[client].durable;
  taken_from_[client] = std::max(taken_from_[client], durable);
  durable = on_disk_[client];
  std::erase_if(acknowledged_at_[client],
                [&](const Acknowledged& each) { return each.count > on_disk_[client]; });
}

void ClusterClients::NoteOnDisk(size_t client, size_t count) {
  on_disk_[client] = std::max(on_disk_[client], count);
}

// ---- Clients

void ClusterClients::Tend() {
  for (SimulatedCluster::Node& each : cluster_.nodes()) {
    if (!each.sim || !each.regions || each.life_over) continue;
    const dsm::ServerId life = each.sim->server();
    Worker& worker = each.sim->clients();
    if (reading_.insert(life).second) worker.Spawn(ReadCopies(worker, *each.regions));
    each.regions->ForEach([&](const RegionNode& region) {
      StoreUse use = each.regions->Use(region.region());
      if (use.served() == nullptr) return;
      const uint64_t opening = use.served()->opening;
      if (std::exchange(tended_[{life, region.region()}], opening) == opening) return;
      ++counts_.openings;
      worker.Spawn(Serve(worker, use.gate(), opening, std::nullopt));
    });
  }
}

bool ClusterClients::IsTended(RegionId region) {
  SimulatedCluster::Node* const primary = cluster_.PrimaryOf(region);
  if (primary == nullptr) return false;
  const auto at = tended_.find({primary->sim->server(), region});
  return at != tended_.end() && at->second == primary->regions->Use(region).served()->opening;
}

/// `only`: this client's part of it.
dsm::Task<void> ClusterClients::Serve(Worker& worker, StoreGate* gate, uint64_t opening,
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
  RemoveTree(&rows);
  for (size_t client = 0; client < kCount; ++client) {
    if (!served.Covers(FirstKeyOf(client)) || serving_[client] > epoch) continue;
    if (only && *only != client) continue;
    models_[client].Check(client, rows);
    ++checked_[client];
    const size_t there = models_[client].durable, before = std::exchange(taken_from_[client], 0);
    counts_.taken_back += before - std::min(before, there);
    serving_[client] = epoch;
    served_by_[client] = {gate, opening};
    worker.Spawn(Write(worker, gate, opening, client, epoch));
  }
}

/// Its lease may run again, if nobody has taken its place.
dsm::Task<void> ClusterClients::ServeAgain(Worker& worker, StoreGate* gate, uint64_t opening,
                                           std::optional<size_t> only) {
  co_await worker.Sleep(100 * kNsPerMs);
  co_await Serve(worker, gate, opening, only);
}

/// While the store is open, and of this epoch: until another one is served in its place.
dsm::Task<void> ClusterClients::Write(Worker& worker, StoreGate* gate, uint64_t opening,
                                      size_t client, uint64_t epoch) {
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
    const bool store_syncs = cluster_.options().store.durability == Durability::kSynced;
    const bool synced = store_syncs || (syncing_ && random_.OneIn(8));
    if (synced && !store_syncs) op.durability = WriteDurability::kSynced;
    const Prefixes before = DurableIn(*use.served());
    const bool alone = cluster_.IsAlone(store);
    Status written =
        co_await test::WriteOperation(op, store, client, std::move(operation), std::string(kTree));
    if (!written.ok()) {
      NoteFailed(client, count, written, epoch);
      worker.Spawn(ServeAgain(worker, gate, opening, client));
      co_return;
    }
    // Whoever was deposed acknowledges nothing, however late it wakes.
    EXPECT_EQ(serving_[client], epoch) << "a deposed primary has acknowledged a write";
    if (serving_[client] != epoch) co_return;
    NoteAcknowledged(client, count);
    const bool acknowledged_alone = alone && cluster_.IsAlone(store);
    counts_.acknowledged_alone += acknowledged_alone;
    if (synced || acknowledged_alone) NoteOnDisk(client, count);
    for (size_t i = 0; synced && i < kCount; ++i) NoteOnDisk(i, before[i]);
    EXPECT_TRUE(cluster_.options().min_in_sync == 1 || cluster_.HasCopies(store))
        << "acknowledged by one node, and no other";
    if (random_.OneIn(3)) co_await Read(worker, store, served_by_[client]);
    if (random_.OneIn(20)) store.FlushSoon();
    co_await worker.Sleep(random_.Below(4 * kNsPerMs));
  }
}

ClusterClients::Prefixes ClusterClients::DurableIn(const ServedStore& served) const {
  Prefixes durable{};
  for (size_t client = 0; client < kCount; ++client) {
    if (served.Covers(FirstKeyOf(client))) durable[client] = models_[client].durable;
  }
  return durable;
}

void ClusterClients::NoteAcknowledged(size_t client, size_t count) {
  models_[client].durable = std::max(models_[client].durable, count);
  acknowledged_at_[client].push_back({count, cluster_.now_ns()});
  ++counts_.acknowledged;
  ++acknowledged_[client];
}

// What failed may have been committed: that is looked at.
void ClusterClients::NoteFailed(size_t client, size_t count, const Status& written,
                                uint64_t epoch) {
  const bool waits = written.code() == StatusCode::kUnavailable &&
                     written.message().find("--min-in-sync") != std::string::npos;
  EXPECT_TRUE(!waits || cluster_.options().min_in_sync > 1) << written;
  EXPECT_FALSE(calm_ && !waits) << "a request has failed, and nothing else had: " << written;
  counts_.waited_for_copies += waits;
  // Nothing was done: whoever looks does not find it.
  PrefixModel& model = models_[client];
  const bool is_last = serving_[client] == epoch && model.operations.size() == count;
  if (waits && is_last) model.operations.pop_back();
}

/// What somebody has seen stays, as if it had been acknowledged to him who wrote it.
dsm::Task<void> ClusterClients::Read(Worker& worker, LsmStore& store,
                                     std::pair<StoreGate*, uint64_t> by) {
  const size_t client = random_.Below(kCount);
  if (served_by_[client] != by) co_return;
  const uint64_t epoch = serving_[client];
  dsm::FabricCounts counts;
  OpContext op{worker, counts};
  const uint64_t number = random_.Below(test::kPrefixKeysEach);
  const std::string key = std::string(kTree) + test::KeyOf(client, number);
  std::optional<std::string> seen;
  const bool alone = cluster_.IsAlone(store);
  const size_t there = models_[client].durable;
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
  if (serving_[client] != epoch) co_return;
  PrefixModel& model = models_[client];
  ++counts_.reads;
  EXPECT_TRUE(model.Explains(number, seen, there))
      << "client " << client << ", key " << number << ": a read behind " << there
      << " operations, ended with " << model.operations.size() << " begun, has seen "
      << (seen ? "the value of " + seen->substr(0, seen->find('/')) : "nothing");
  if (!seen) co_return;
  const size_t count = std::stoull(*seen) + 1;
  counts_.seen_unacknowledged += count > model.durable;
  model.durable = std::max(model.durable, count);
  if (alone && cluster_.IsAlone(store)) NoteOnDisk(client, count);
}

// ---- Copies

/// What is in the tables of the node's copies, again and again: of each client a prefix, with all that was
/// acknowledged when it is said to be of.
dsm::Task<void> ClusterClients::ReadCopies(Worker& worker, NodeRegions& regions) {
  for (;;) {
    co_await worker.Sleep(random_.Below(200 * kNsPerMs));
    const auto table = regions.Now();
    if (table == nullptr) continue;
    const RegionId region = table->routes[random_.Below(table->routes.size())].region;
    const CopyUse use = regions.UseCopy(region);
    if (use.served() == nullptr) continue;
    const std::optional<uint64_t> staleness_ns = use.served()->staleness_ns();
    if (!staleness_ns) continue;
    const uint64_t proved_ns = cluster_.now_ns() - *staleness_ns;
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
    RemoveTree(&rows);
    for (size_t client = 0; client < kCount; ++client) {
      if (use.served()->Covers(FirstKeyOf(client))) CheckCopy(client, rows, proved_ns);
    }
    counts_.copy_staleness_ns_max = std::max(counts_.copy_staleness_ns_max, *staleness_ns);
  }
}

void ClusterClients::CheckCopy(size_t client, const std::vector<KeyValue>& rows,
                               uint64_t proved_ns) {
  const PrefixModel& model = models_[client];
  size_t least = 0;
  for (const Acknowledged& each : acknowledged_at_[client]) {
    if (each.at_ns < proved_ns) least = std::max(least, each.count);
  }
  const auto most = model.MostThatMake(PrefixModel::ContentOf(client, rows), least);
  EXPECT_TRUE(most) << "client " << client << ": what a copy has is no prefix of "
                    << model.operations.size() << " operations with the first " << least;
  ++counts_.copy_reads;
  counts_.copy_reads_behind += most && *most < model.durable;
}

}  // namespace farleaf::server::cluster
