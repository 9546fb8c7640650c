#include "test/simulation/tree_run.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "test/simulation/faults.h"
#include "test/simulation/idle_members.h"
#include "test/simulation/workload.h"
#include "test/support/linearizability.h"

namespace farleaf::simulation {

namespace {

using test::RecordingClient;

/// Where a memory server or the way to it is gone for longer, operations end by a deadline of their own; a
/// publication, also one that a read sets right, goes on behind it, and waits for each parent.
constexpr uint64_t kDeadlineNs = 50 * kNsPerMs;
constexpr uint64_t kLockWaitMs = 100;

/// Of who wants what an idle member may have locked: partitions of up to 8 s heal first, and connections are
/// restored.
constexpr uint64_t kIdlePatienceNs = 60 * kNsPerSecond;
bool HasDeadlines(const FaultSet& set) {
  return set.Has(Fault::kPartitions) || set.losing_memory();
}

/// Deals with all locks that broken connections have left to `tree` on `worker`.
index::Task<void> SettleLocks(dsm::Worker& worker, index::BlinkTree& tree, std::string* failure) {
  dsm::FabricCounts counts;
  index::OpContext op{worker, counts};
  Status settled = co_await tree.SettleLocks(op);
  if (!settled.ok()) *failure += "locks at the end: " + settled.ToString() + "\n";
}

class TreeRun {
 public:
  TreeRun(const RunPlan& plan, uint64_t seed, const dsm::SimTrace::Sink& trace)
      : plan_(plan),
        set_(FaultsOf(plan, seed).set),
        random_(seed),
        shape_(Drawn(plan, trace, set_, random_)),
        pool_(shape_.pool) {}

  TreeRunResult Run(uint64_t seed) {
    if (shape_.preload > 0) {
      Client& first = AddClient(pool_.compute_servers()[0], "P-");
      pool_.worker(0).Run(Preload(pool_.worker(0), first));
    }
    for (ComputeServer& compute_server : pool_.compute_servers()) {
      for (auto& worker : compute_server.workers) {
        for (uint64_t i = 0; i < shape_.clients; ++i) {
          const size_t number = clients_.size();
          Client& client = AddClient(compute_server, {static_cast<char>('A' + number / 26 % 26),
                                                      static_cast<char>('a' + number % 26), '-'});
          client.may_fail = set_.operations_may_fail();
          if (HasDeadlines(set_)) client.deadline_ns = kDeadlineNs;
          worker->Spawn(RunClient(*worker, client));
        }
      }
    }
    faults_.emplace(&pool_, &clients_, FaultsOf(plan_, seed), random_.Next());
    constexpr uint64_t kVirtualNsMax = 3'600 * kNsPerSecond;
    const auto end = pool_.world().RunWhileBusy(pool_.world().now_ns() + kVirtualNsMax);
    faults_->Stop();
    FARLEAF_CHECK(end == dsm::SimWorld::RunEnd::kIdle, "clients do not come to an end", seed);
    if (set_.leaves_pool_whole() && set_.operations_may_fail()) {
      if (random_.OneIn(2)) StopOne();
      WriteBesideIdleMembers();
    }
    result_.crashes = faults_->crashes();
    if (set_.leaves_pool_whole()) Settle();
    ReadAtTheEnd();
    CheckHistory();
    AddStats();
    if (result_.failure.empty() && set_.leaves_pool_whole()) CheckPages();
    result_.trace_hash = pool_.world().trace().hash();
    result_.events = pool_.world().events();
    result_.virtual_ns = pool_.world().now_ns();
    return std::move(result_);
  }

 private:
  static Shape Drawn(const RunPlan& plan, const dsm::SimTrace::Sink& trace, const FaultSet& set,
                     Random& random) {
    Shape shape(plan, random);
    shape.pool.world.trace = trace;
    if (HasDeadlines(set)) shape.pool.tree.lock_wait_ms = kLockWaitMs;
    return shape;
  }

  Client& AddClient(ComputeServer& compute_server, std::string name) {
    clients_.push_back({.recorder = RecordingClient(compute_server.tree.get(), &clock_),
                        .random = Random(random_.Next()),
                        .name = std::move(name),
                        .shape = &shape_,
                        .world = &pool_.world(),
                        .process = compute_server.process});
    return clients_.back();
  }

  size_t Survivor() {
    size_t survivor = 0;
    while (pool_.compute_servers()[survivor].gone()) ++survivor;
    return survivor;
  }

  /// A compute server stops while connections may still be broken. Where it cannot leave the pool its process
  /// ends as it is, and its lease runs out: the pool is whole all the same.
  void StopOne() {
    auto& all = pool_.compute_servers();
    ComputeServer& one = all[random_.Below(all.size())];
    const auto alive =
        std::count_if(all.begin(), all.end(), [](auto& each) { return !each.gone(); });
    if (one.gone() || alive < 2) return;
    ++result_.stops;
    // For as long as the program does; or it is ended in the hard way, which leaving must notice.
    const uint64_t upkeep_ns_max = random_.OneIn(2) ? 2 * kNsPerSecond : 0;
    if (StopAndLeave(pool_, one, upkeep_ns_max).ok()) {
      if (!one.pool->unresolved_locks().empty()) result_.failure += "it left with locks in hand\n";
      return;
    }
    result_.stops_refused += !one.pool->unresolved_locks().empty();
    pool_.Crash(one);
    faults_->CutOffLater(one);
  }

  /// Nobody is asked for anything any more but one, who writes all keys: whatever others have lost sight of
  /// does not keep it waiting for ever.
  void WriteBesideIdleMembers() {
    const size_t survivor = Survivor();
    Client& writer = AddClient(pool_.compute_servers()[survivor], "W-");
    if (HasDeadlines(set_)) writer.deadline_ns = kDeadlineNs;
    dsm::Worker& worker = pool_.worker(survivor);
    bool busy = true;
    worker.Spawn(Write(worker, writer, &busy));
    KeepUp(pool_.compute_servers(), &busy, 2 * kIdlePatienceNs, &result_.failure);
    const auto end = pool_.world().RunWhileBusy(pool_.world().now_ns() + 600 * kNsPerSecond);
    if (end != dsm::SimWorld::RunEnd::kIdle)
      result_.failure += "idle members do not come to rest\n";
  }
  static index::Task<void> Write(dsm::Worker& worker, Client& writer, bool* busy) {
    const uint64_t give_up_ns = worker.clock().NowNs() + kIdlePatienceNs;
    co_await WriteEverything(worker, writer, give_up_ns);
    *busy = false;
  }

  /// What was left locked, by who is alive and by who is dead, is dealt with.
  void Settle() {
    const auto sleep = [](dsm::Worker& worker) -> index::Task<void> {
      co_await worker.Sleep(20 * kNsPerSecond);
    };
    const size_t survivor = Survivor();
    pool_.worker(survivor).Run(sleep(pool_.worker(survivor)));  // all is healed and cut off by then
    for (ComputeServer& compute_server : pool_.compute_servers()) {
      if (compute_server.gone()) continue;
      for (auto& worker : compute_server.workers) {
        worker->Spawn(SettleLocks(*worker, *compute_server.tree, &result_.failure));
      }
    }
    const auto resolved = pool_.world().RunWhileBusy(pool_.world().now_ns() + 600 * kNsPerSecond);
    if (resolved != dsm::SimWorld::RunEnd::kIdle) result_.failure += "locks are not resolved\n";
    for (ComputeServer& dead : pool_.compute_servers()) {
      if (dead.crashed)
        result_.failure += pool_.Recover(pool_.compute_servers()[survivor], dead.pool->self());
    }
  }

  void ReadAtTheEnd() {
    const size_t survivor = Survivor();
    Client& reader = AddClient(pool_.compute_servers()[survivor], "");
    if (!set_.leaves_pool_whole()) {
      reader.may_fail = true;
      reader.deadline_ns = kDeadlineNs;
    }
    pool_.worker(survivor).Run(ReadEverything(pool_.worker(survivor), reader));
  }

  /// Deadlines hold where connections stay whole: behind a partition, or when a server stands still, a round
  /// trip may take as long as the timeouts of the link.
  void CheckDuration(const Client& client) {
    if (set_.Has(Fault::kPartitions)) return;
    const uint64_t allowed_ms = HasDeadlines(set_) ? 40 * kLockWaitMs + kDeadlineNs / kNsPerMs
                                                   : plan_.checks.operation_ms_max;
    const uint64_t allowed_ns = allowed_ms * kNsPerMs;
    if (client.longest_ns <= allowed_ns) return;
    result_.failure += "client " + client.name + ": an operation took " +
                       std::to_string(client.longest_ns) + " ns, allowed are " +
                       std::to_string(allowed_ns) + "\n";
  }

  void CheckHistory() {
    test::History history;
    for (Client& client : clients_) {
      if (!client.failure.empty()) result_.failure += client.failure + "\n";
      CheckDuration(client);
      result_.failed_operations += client.failed;
      result_.expired_operations += client.expired;
      result_.longest_ns = std::max(result_.longest_ns, client.longest_ns);
      history.Add(std::move(client.recorder.history()));
    }
    result_.operations = history.operations.size() + history.scans.size();
    if (const auto order = test::CheckLinearizable(history); !order) result_.failure += order.why;
    if (const auto scans = test::CheckScans(history); !scans) result_.failure += scans.why;
  }

  void AddStats() {
    for (ComputeServer& compute_server : pool_.compute_servers()) {
      result_.probes.AddTree(compute_server.tree->stats());
    }
    result_.probes.AddRun(RunProbe::kRecoveredBeside, pool_.recoveries().done_beside);
    result_.probes.AddRun(RunProbe::kClaimTakenOver, pool_.recoveries().claims_taken_over);
    if (!set_.operations_may_fail()) result_.failure += pool_.recoveries().failure;
    result_.probes.EndRun();
  }

  void CheckPages() { result_.failure += pool_.LeaveAndCheck(&result_.left_in_disorder); }

  const RunPlan& plan_;
  const FaultSet set_;
  Random random_;
  Shape shape_;
  std::deque<Client> clients_;
  test::HistoryClock clock_;
  TreeRunResult result_;
  std::optional<Faults> faults_;
  SimulatedPool pool_;  // destroyed first: what its world holds refers to clients and faults
};

}  // namespace

void TreeRunResult::Add(const TreeRunResult& other) {
  events += other.events;
  operations += other.operations;
  failed_operations += other.failed_operations;
  expired_operations += other.expired_operations;
  crashes += other.crashes;
  stops += other.stops;
  stops_refused += other.stops_refused;
  longest_ns = std::max(longest_ns, other.longest_ns);
  virtual_ns += other.virtual_ns;
  left_in_disorder += other.left_in_disorder;
  probes.Add(other.probes);
}

const FaultPlan& FaultsOf(const RunPlan& plan, uint64_t seed) {
  return plan.faults[seed % plan.faults.size()];
}

TreeRunResult RunTree(const RunPlan& plan, uint64_t seed, const dsm::SimTrace::Sink& trace) {
  return TreeRun(plan, seed, trace).Run(seed);
}

}  // namespace farleaf::simulation
