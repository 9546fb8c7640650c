#include "test/simulation/tree_run.h"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "dsm/base/bytes.h"
#include "test/simulation/simulated_pool.h"
#include "test/support/history.h"
#include "test/support/linearizability.h"

namespace farleaf::simulation {

namespace {

using index::Geometry;
using index::OpContext;
using test::RecordingClient;

/// The shape of a run, drawn from its seed.
struct Shape {
  SimulatedPool::Options pool;
  bool fixed8 = false;
  uint64_t clients = 4;  ///< coroutines of each worker
  uint64_t operations = 30;
  uint64_t keys = 60;
  uint64_t scan_percent = 3;
  /// Inserts and deletes prevail in turn, for so many operations of a client each; 0: never.
  uint64_t phase = 0;

  explicit Shape(Random& random) {
    fixed8 = random.OneIn(2);
    pool.geometry = fixed8 ? Geometry::Fixed8(256) : Geometry{index::Layout::kBytes, 256, 36, 24};
    pool.tree.cache = random.OneIn(8) ? index::CacheMode::kNone : index::CacheMode::kSearchLayer;
    pool.tree.hop_threshold = static_cast<uint32_t>(1 + random.Below(4));
    if (random.OneIn(2)) {
      pool.tree.merge_below = 0.45;
      pool.tree.merge_up_to = 0.9;
    }
    pool.allocator.grace_ms = 0;  // pages are reused at once: nothing may rely on the grace period
    pool.allocator.local_free_pages_max = static_cast<uint32_t>(4 << random.Below(8));
    pool.compute_servers = static_cast<uint32_t>(2 + random.Below(3));
    pool.workers = static_cast<uint32_t>(1 + random.Below(2));
    clients = 1 + random.Below(4);
    operations = 400 / (pool.compute_servers * pool.workers * clients) + 10;
    keys = uint64_t{4} << random.Below(7);
    scan_percent = random.Below(8);
    phase = random.OneIn(2) ? 5 + random.Below(30) : 0;
    pool.world.servers = static_cast<uint32_t>(1 + random.Below(3));
    pool.world.region_bytes = uint64_t{4} << 20;
    pool.world.seed = random.Next();
  }
};

/// What a client coroutine needs; outlives it.
struct Client {
  RecordingClient recorder;
  Random random;
  std::string name;  ///< in the values it writes
  const Shape* shape;
  bool may_fail;
  uint64_t deadline_ns = 0;  ///< of each operation; 0: none
  uint32_t process = 0;
  uint64_t failed = 0, expired = 0;
  uint64_t longest_ns = 0;
  std::string failure;
};

std::string KeyOf(const Shape& shape, uint64_t number) {
  std::string key(8, '\0');
  StoreBig64(key.data(), number * 3);
  return shape.fixed8 ? key : "key/" + std::to_string(number % 7) + "/" + std::to_string(number);
}

/// Never the same twice: whoever reads it knows who wrote it.
std::string UniqueValue(Client& client, uint64_t i) {
  std::string value = client.name + std::to_string(i);
  if (client.shape->fixed8) {
    value.resize(8, '.');
  } else if (client.random.OneIn(6)) {
    value.resize(client.shape->pool.geometry.inline_value_bytes_max + 10, '.');
  }
  return value;
}

test::ScanRecord RandomScan(Client& client) {
  test::ScanRecord scan;
  const Shape& shape = *client.shape;
  if (!client.random.OneIn(4)) scan.start = KeyOf(shape, client.random.Below(shape.keys));
  if (!client.random.OneIn(4)) scan.end = KeyOf(shape, client.random.Below(shape.keys));
  if (client.random.OneIn(2)) scan.limit = 1 + client.random.Below(20);
  if (client.random.OneIn(2)) scan.direction = index::ScanDirection::kReverse;
  return scan;
}

index::Task<Status> RunOperation(OpContext& op, Client& client, uint64_t number) {
  const Shape& shape = *client.shape;
  const std::string key = KeyOf(shape, client.random.Below(shape.keys));
  const std::string value = UniqueValue(client, number);
  RecordingClient& recorder = client.recorder;
  Status status;
  if (client.random.Below(100) < shape.scan_percent) {
    status = co_await recorder.Scan(op, RandomScan(client));
    co_return status;
  }
  uint64_t dice = client.random.Below(100);
  if (shape.phase > 0 && dice >= 40) dice = number / shape.phase % 2 == 0 ? 41 : 81;
  if (dice < 33) {
    status = co_await recorder.Get(op, key);
  } else if (dice < 40) {
    std::vector<std::string> keys{key, KeyOf(shape, client.random.Below(3))};
    status = co_await recorder.MultiGet(op, std::move(keys));
  } else if (dice < 55) {
    status = co_await recorder.Insert(op, key, value);
  } else if (dice < 68) {
    status = co_await recorder.Put(op, key, value);
  } else if (dice < 76) {
    status = co_await recorder.Update(op, key, value);
  } else if (dice < 90) {
    status = co_await recorder.Delete(op, key);
  } else if (shape.fixed8) {  // values of 8 bytes cannot be appended to
    status = co_await recorder.DeleteIf(op, key, value);
  } else {
    const auto change = client.random.OneIn(2) ? RecordingClient::Change::kAppend
                                               : RecordingClient::Change::kAppendOrDelete;
    status = co_await recorder.Modify(op, key, value, change);
  }
  co_return status;
}

index::Task<void> RunClient(dsm::Worker& worker, Client& client) {
  dsm::FabricCounts counts;
  for (uint64_t i = 0; i < client.shape->operations; ++i) {
    OpContext op{worker, counts};
    const uint64_t begun_ns = worker.clock().NowNs();
    if (client.deadline_ns > 0) op.deadline_ns = begun_ns + client.deadline_ns;
    Status status = co_await RunOperation(op, client, i);
    client.longest_ns = std::max(client.longest_ns, worker.clock().NowNs() - begun_ns);
    client.expired += status.code() == StatusCode::kDeadlineExceeded;
    if (status.ok()) continue;
    if (!client.may_fail) {
      client.failure = status.ToString();
      co_return;
    }
    ++client.failed;
  }
}

/// Gets of all keys and a scan, when nothing else goes on and connections are whole again.
index::Task<void> ReadEverything(dsm::Worker& worker, Client& client) {
  dsm::FabricCounts counts;
  OpContext op{worker, counts};
  co_await worker.Sleep(10 * kNsPerSecond);
  const auto set_deadline = [&] {
    if (client.may_fail) op.deadline_ns = worker.clock().NowNs() + client.deadline_ns;
  };
  for (uint64_t key = 0; key < client.shape->keys; ++key) {
    set_deadline();
    Status got = co_await client.recorder.Get(op, KeyOf(*client.shape, key));
    if (!got.ok() && !client.may_fail)
      client.failure += "a get at the end: " + got.ToString() + "\n";
  }
  set_deadline();
  Status scanned = co_await client.recorder.Scan(op, test::ScanRecord());
  if (!scanned.ok() && !client.may_fail)
    client.failure += "the scan at the end: " + scanned.ToString() + "\n";
}

/// Whether all that was begun under such faults comes to an end. Behind a partition that outlasts the
/// timeouts, and where a memory server or a compute server is lost, pages stay locked or half written, and
/// the answers alone are checked.
bool LeavesPoolWhole(FaultMix mix) {
  return mix != FaultMix::kPartitions && mix != FaultMix::kLostServers && mix != FaultMix::kCrashes;
}

/// Where pages may stay locked, operations end by a deadline of their own.
constexpr uint64_t kDeadlineNs = 50 * kNsPerMs;
/// What one may take in all: a publication, also one that a read sets right, goes on behind the deadline,
/// and waits for each parent.
constexpr uint64_t kLockWaitMs = 100;
constexpr uint64_t kOperationNsMax = kDeadlineNs + 20 * kLockWaitMs * kNsPerMs;

/// Lets faults of one mix come while clients run.
class Faults {
 public:
  Faults(SimulatedPool* pool, std::deque<Client>* clients, FaultMix mix, uint64_t seed)
      : pool_(pool), clients_(clients), mix_(mix), random_(seed) {
    if (mix_ == FaultMix::kNone) return;
    gap_ns_ = uint64_t{50'000} << random_.Below(6);  // from many in a run to one
    if (mix_ == FaultMix::kPartitions) gap_ns_ *= 4;
    Next();
  }
  void Stop() { stopped_ = true; }
  uint64_t crashes() const { return crashes_; }

 private:
  void Next() {
    dsm::SimWorld& world = pool_->world();
    world.At(world.now_ns() + 1 + random_.Below(2 * gap_ns_), [this] {
      if (stopped_) return;
      Strike();
      Next();
    });
  }
  void Strike() {
    dsm::SimWorld& world = pool_->world();
    auto& compute_servers = pool_->compute_servers();
    const uint32_t process = compute_servers[random_.Below(compute_servers.size())].process;
    const auto server = static_cast<dsm::ServerId>(random_.Below(world.servers()));
    const uint64_t length_ns = random_.Below(uint64_t{1'000} << random_.Below(11));
    if (mix_ == FaultMix::kDrops) {
      // What a broken connection leaves open is resolved by a few round trips over the next one: the
      // tree gives up if that breaks several times in a row.
      uint64_t& next_ns = next_drop_ns_[{process, server}];
      if (world.now_ns() < next_ns) return;
      next_ns = world.now_ns() + kQuietNs;
      world.DropConnections(process, server);
    } else if (mix_ == FaultMix::kPartitions) {
      Part(process, server);
    } else if (mix_ == FaultMix::kLostServers) {
      LoseServer(server);
    } else if (mix_ == FaultMix::kCrashes) {
      Crash(compute_servers[random_.Below(compute_servers.size())]);
    } else if (random_.OneIn(2)) {
      world.StallProcess(process, world.now_ns() + length_ns);
    } else if (!stalled_) {
      stalled_ = true;
      world.StallServer(server);
      world.At(world.now_ns() + length_ns, [this, server] {
        stalled_ = false;
        pool_->world().ResumeServer(server);
      });
    }
  }

  void Part(uint32_t process, dsm::ServerId server) {
    if (!parted_.insert({process, server}).second) return;
    dsm::SimWorld& world = pool_->world();
    world.Partition(process, server);
    const uint64_t length_ns = random_.Below(uint64_t{1'000'000} << random_.Below(14));
    world.At(world.now_ns() + length_ns, [this, process, server] {
      parted_.erase({process, server});
      pool_->world().Heal(process, server);
    });
  }
  void Crash(ComputeServer& compute_server) {
    if (compute_server.crashed || crashes_ + 1 == pool_->compute_servers().size()) return;
    ++crashes_;
    pool_->Crash(compute_server);
    for (Client& client : *clients_) {
      if (client.process == compute_server.process) client.recorder.Abandon();
    }
  }
  void LoseServer(dsm::ServerId server) {
    dsm::SimWorld& world = pool_->world();
    stopped_ = true;  // one is enough
    world.CrashServer(server);
    if (random_.OneIn(2)) return;
    world.At(world.now_ns() + random_.Below(kNsPerSecond),
             [this, server] { pool_->world().RestartServer(server); });
  }
  static constexpr uint64_t kQuietNs = 2 * kNsPerMs;

  SimulatedPool* pool_;
  std::deque<Client>* clients_;
  const FaultMix mix_;
  std::map<std::pair<uint32_t, dsm::ServerId>, uint64_t> next_drop_ns_;
  std::set<std::pair<uint32_t, dsm::ServerId>> parted_;
  Random random_;
  uint64_t gap_ns_ = 0;
  uint64_t crashes_ = 0;
  bool stalled_ = false;
  bool stopped_ = false;
};

void AddStats(SimulatedPool& pool, TreeRunResult* result) {
  for (ComputeServer& compute_server : pool.compute_servers()) {
    const index::TreeStats& stats = compute_server.tree->stats();
    result->splits += stats.splits;
    result->merges += stats.merges;
    result->roots_grown += stats.roots_grown;
    result->roots_shrunk += stats.roots_shrunk;
    result->hops += stats.hops;
    result->torn_reads += stats.torn_reads;
    result->lock_conflicts += stats.lock_conflicts;
    result->handovers += stats.handovers;
    result->separators_completed += stats.separators_completed;
  }
}

/// What an operation that failed may leave behind, until a scan after its compute server's end: pages that
/// are given up since their state is unknown, and separators that name the dead right half of a merge,
/// which leads on to the left one.
bool MayBeLeftBehind(index::FindingKind kind) {
  return kind == index::FindingKind::kLeak || kind == index::FindingKind::kSeparator;
}

/// Deadlines hold where connections stay whole: behind a partition a round trip may take as long as the
/// timeouts of the link.
std::string CheckDurations(const Client& client, FaultMix mix) {
  if (mix != FaultMix::kCrashes) return "";
  if (client.longest_ns <= kOperationNsMax) return "";
  return "client " + client.name + ": an operation with a deadline of " +
         std::to_string(kDeadlineNs) + " ns took " + std::to_string(client.longest_ns) + " ns\n";
}

void CheckPages(SimulatedPool& pool, FaultMix mix, TreeRunResult* result) {
  if (mix != FaultMix::kDrops) {
    result->failure += pool.LeaveAndCheck();
    return;
  }
  auto report = pool.Check();
  if (!report.ok()) {
    result->failure += report.status().ToString();
    return;
  }
  for (const index::Finding& finding : report->findings.described()) {
    result->left_behind += MayBeLeftBehind(finding.kind);
    if (!MayBeLeftBehind(finding.kind)) result->failure = Describe(*report);
  }
}

}  // namespace

Result<FaultMix> ParseFaultMix(std::string_view name) {
  for (size_t i = 0; i < std::size(kFaultMixNames); ++i) {
    if (kFaultMixNames[i] == name) return static_cast<FaultMix>(i);
  }
  return Status::InvalidArgument("no faults are named '" + std::string(name) +
                                 "': none, drops, stalls, partitions, lost_servers, crashes");
}

void TreeRunResult::Add(const TreeRunResult& other) {
  events += other.events;
  operations += other.operations;
  failed_operations += other.failed_operations;
  expired_operations += other.expired_operations;
  crashes += other.crashes;
  longest_ns = std::max(longest_ns, other.longest_ns);
  virtual_ns += other.virtual_ns;
  left_behind += other.left_behind;
  splits += other.splits;
  merges += other.merges;
  roots_grown += other.roots_grown;
  roots_shrunk += other.roots_shrunk;
  hops += other.hops;
  torn_reads += other.torn_reads;
  lock_conflicts += other.lock_conflicts;
  handovers += other.handovers;
  separators_completed += other.separators_completed;
}

TreeRunResult RunTree(const TreeRunOptions& options) {
  constexpr uint64_t kVirtualNsMax = 3'600 * kNsPerSecond;
  TreeRunResult result;
  Random random(options.seed);
  Shape shape(random);
  shape.pool.world.trace = options.trace;
  if (!LeavesPoolWhole(options.faults)) shape.pool.tree.lock_wait_ms = kLockWaitMs;
  SimulatedPool pool(shape.pool);
  dsm::SimWorld& world = pool.world();
  test::HistoryClock clock;
  std::deque<Client> clients;
  Faults faults(&pool, &clients, options.faults, random.Next());
  for (ComputeServer& compute_server : pool.compute_servers()) {
    for (auto& worker : compute_server.workers) {
      for (uint64_t i = 0; i < shape.clients; ++i) {
        const size_t number = clients.size();
        const std::string name{static_cast<char>('A' + number / 26 % 26),
                               static_cast<char>('a' + number % 26), '-'};
        clients.push_back({RecordingClient(compute_server.tree.get(), &clock),
                           Random(random.Next()), name, &shape, options.faults != FaultMix::kNone});
        clients.back().process = compute_server.process;
        if (!LeavesPoolWhole(options.faults)) clients.back().deadline_ns = kDeadlineNs;
        worker->Spawn(RunClient(*worker, clients.back()));
      }
    }
  }
  const auto end = world.RunWhileBusy(world.now_ns() + kVirtualNsMax);
  faults.Stop();
  FARLEAF_CHECK(end == dsm::SimWorld::RunEnd::kIdle, "clients do not come to an end", options.seed);
  size_t survivor = 0;
  while (pool.compute_servers()[survivor].crashed) ++survivor;
  Client reader{RecordingClient(pool.compute_servers()[survivor].tree.get(), &clock),
                Random(random.Next()), "", &shape, !LeavesPoolWhole(options.faults)};
  reader.deadline_ns = kDeadlineNs;
  pool.worker(survivor).Run(ReadEverything(pool.worker(survivor), reader));
  clients.push_back(std::move(reader));

  test::History history;
  for (Client& client : clients) {
    if (!client.failure.empty()) result.failure += client.failure + "\n";
    result.failure += CheckDurations(client, options.faults);
    result.failed_operations += client.failed;
    result.expired_operations += client.expired;
    result.longest_ns = std::max(result.longest_ns, client.longest_ns);
    history.Add(std::move(client.recorder.history()));
  }
  result.operations = history.operations.size() + history.scans.size();
  if (const auto order = test::CheckLinearizable(history); !order) result.failure += order.why;
  if (const auto scans = test::CheckScans(history); !scans) result.failure += scans.why;
  AddStats(pool, &result);
  if (result.failure.empty() && LeavesPoolWhole(options.faults)) {
    CheckPages(pool, options.faults, &result);
  }
  result.crashes = faults.crashes();
  result.trace_hash = world.trace().hash();
  result.events = world.events();
  result.virtual_ns = world.now_ns();
  return result;
}

}  // namespace farleaf::simulation
