#include "test/simulation/idle_members.h"

namespace farleaf::simulation {

namespace {

constexpr uint64_t kUpkeepNs = kNsPerSecond;
constexpr uint64_t kLastUpkeepPauseNs = 10 * kNsPerMs;

dsm::Task<void> KeepUpIdly(dsm::Worker& worker, index::BlinkTree& tree, const bool* busy,
                           uint64_t give_up_ns, std::string* failure) {
  dsm::FabricCounts counts;
  for (;;) {
    co_await worker.Sleep(kUpkeepNs / 2 + worker.random().Below(kUpkeepNs));
    dsm::OpContext op{worker, counts};
    Status kept = co_await tree.Upkeep(op);
    if (kept.ok() && !*busy) co_return;
    if (worker.clock().NowNs() < give_up_ns) continue;
    if (!kept.ok()) *failure += "upkeep: " + kept.ToString() + "\n";
    co_return;
  }
}

dsm::Task<void> KeepUpToTheEnd(dsm::Worker& worker, index::BlinkTree& tree, uint64_t ns_max) {
  dsm::FabricCounts counts;
  const uint64_t end_ns = worker.clock().NowNs() + ns_max;
  Status kept = Status::Unavailable("not tried");
  while (!kept.ok() && worker.clock().NowNs() < end_ns) {
    dsm::OpContext op{worker, counts};
    kept = co_await tree.Upkeep(op);
    if (!kept.ok()) co_await worker.Sleep(kLastUpkeepPauseNs);
  }
}

}  // namespace

void KeepUp(std::vector<ComputeServer>& compute_servers, const bool* busy, uint64_t patience_ns,
            std::string* failure) {
  for (ComputeServer& each : compute_servers) {
    if (each.gone()) continue;
    for (auto& worker : each.workers) {
      const uint64_t give_up_ns = worker->clock().NowNs() + patience_ns;
      worker->Spawn(KeepUpIdly(*worker, *each.tree, busy, give_up_ns, failure));
    }
  }
}

Status StopAndLeave(SimulatedPool& pool, ComputeServer& compute_server, uint64_t upkeep_ns_max) {
  for (auto& worker : compute_server.workers) {
    worker->Spawn(KeepUpToTheEnd(*worker, *compute_server.tree, upkeep_ns_max));
  }
  pool.world().RunWhileBusy(pool.world().now_ns() + 3'600 * kNsPerSecond);
  Status left = compute_server.pool->Leave();
  compute_server.left = left.ok();
  return left;
}

}  // namespace farleaf::simulation
