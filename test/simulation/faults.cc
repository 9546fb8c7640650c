#include "test/simulation/faults.h"

#include <algorithm>
#include <bit>

namespace farleaf::simulation {

Faults::Faults(SimulatedPool* pool, std::deque<Client>* clients, const FaultPlan& plan,
               uint64_t seed)
    : pool_(pool), clients_(clients), plan_(plan), random_(seed) {
  for (const Fault fault : plan.set.faults()) {
    // From many in a run to one.
    const auto steps = static_cast<uint64_t>(std::bit_width(plan.gap_us.high / plan.gap_us.low));
    uint64_t gap_ns = (plan.gap_us.low << random_.Below(steps)) * kNsPerUs;
    if (fault == Fault::kPartitions) gap_ns *= 4;
    Next(fault, gap_ns);
  }
}

void Faults::Next(Fault fault, uint64_t gap_ns) {
  world().At(world().now_ns() + 1 + random_.Below(2 * gap_ns), [this, fault, gap_ns] {
    if (stopped_) return;
    Strike(fault);
    Next(fault, gap_ns);
  });
}

ComputeServer& Faults::AnyComputeServer() {
  auto& all = pool_->compute_servers();
  return all[random_.Below(all.size())];
}

void Faults::Strike(Fault fault) {
  ComputeServer& compute_server = AnyComputeServer();
  const uint32_t process = compute_server.process;
  const auto server = static_cast<dsm::ServerId>(random_.Below(world().servers()));
  switch (fault) {
    case Fault::kDrops:
      return Drop(process, server);
    case Fault::kStalls:
      return Stall(process, server);
    case Fault::kPartitions:
      return Part(process, server);
    case Fault::kCrashes:
    case Fault::kCrashesAgain:
    case Fault::kRecoveries:
      return Crash(compute_server);
    case Fault::kLostServers:
    case Fault::kRestarts:
      return LoseServer(server);
  }
}

void Faults::Drop(uint32_t process, dsm::ServerId server) {
  world().DropConnections(process, server);
}

void Faults::Stall(uint32_t process, dsm::ServerId server) {
  const uint64_t length_ns = random_.Below(uint64_t{1'000} << random_.Below(11));
  if (random_.OneIn(2)) {
    world().StallProcess(process, world().now_ns() + length_ns);
  } else if (!stalled_) {
    stalled_ = true;
    world().StallServer(server);
    world().At(world().now_ns() + length_ns, [this, server] {
      stalled_ = false;
      world().ResumeServer(server);
    });
  }
}

void Faults::Part(uint32_t process, dsm::ServerId server) {
  if (!parted_.insert({process, server}).second) return;
  world().Partition(process, server);
  const uint64_t length_ns = random_.Below(uint64_t{1'000'000} << random_.Below(14));
  world().At(world().now_ns() + length_ns, [this, process, server] {
    parted_.erase({process, server});
    world().Heal(process, server);
  });
}

void Faults::Crash(ComputeServer& compute_server) {
  if (compute_server.crashed || crashes_ + 1 >= pool_->compute_servers().size()) return;
  ++crashes_;
  pool_->Crash(compute_server);
  for (Client& client : *clients_) {
    if (client.process == compute_server.process) client.recorder.Abandon();
  }
  const uint64_t known_ns = CutOffLater(compute_server);
  if (plan_.set.Has(Fault::kRecoveries)) RecoverLater(compute_server.pool->self(), known_ns);
  if (!plan_.set.Has(Fault::kCrashesAgain) || random_.OneIn(3)) return;
  // Whoever comes across the dead one's locks takes them over from here on.
  world().At(known_ns + random_.Below(uint64_t{1'000} << random_.Below(10)), [this] {
    if (!stopped_) Crash(AnyComputeServer());
  });
}

void Faults::RecoverLater(dsm::MemberIdentity dead, uint64_t known_ns) {
  world().At(known_ns + random_.Below(uint64_t{1'000} << random_.Below(10)), [this, dead] {
    if (stopped_) return;  // it is recovered at the end
    ComputeServer* by = &AnyComputeServer();
    while (by->crashed) by = &AnyComputeServer();
    pool_->BeginRecovery(*by, dead);
    if (!plan_.set.Has(Fault::kCrashesAgain) || random_.OneIn(2)) return;
    // It dies at it.
    world().At(world().now_ns() + random_.Below(uint64_t{10'000} << random_.Below(10)), [this, by] {
      if (!stopped_) Crash(*by);
    });
  });
}

uint64_t Faults::CutOffLater(const ComputeServer& compute_server) {
  const dsm::MemberIdentity member = compute_server.pool->self();
  uint64_t last_ns = 0;
  for (uint32_t server = 0; server < world().servers(); ++server) {
    const uint64_t at_ns = world().now_ns() + random_.Below(uint64_t{10'000} << random_.Below(10));
    last_ns = std::max(last_ns, at_ns);
    world().At(at_ns, [this, server, member] {
      const auto id = static_cast<dsm::ServerId>(server);
      if (world().is_running(id)) world().CutOffAt(id, member);
    });
  }
  return last_ns;
}

void Faults::LoseServer(dsm::ServerId server) {
  if (lost_one_) return;  // one is enough
  lost_one_ = true;
  if (stalled_) return;
  world().CrashServer(server);
  if (!plan_.set.Has(Fault::kRestarts)) return;
  world().At(world().now_ns() + random_.Below(kNsPerSecond),
             [this, server] { world().RestartServer(server); });
}

}  // namespace farleaf::simulation
