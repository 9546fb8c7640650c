// What is particular to the service in this process: time is virtual, so that leases are held against the truth, over many seeds.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dsm/sim/sim_world.h"
#include "server/membership/election.h"
#include "test/support/membership_under_test.h"
#include "test/support/test_scale.h"

namespace farleaf::server::membership {
namespace {

constexpr uint64_t kTimeoutMs = 1'000;
constexpr uint64_t kTimeoutNs = kTimeoutMs * kNsPerMs;

InProcessOptions Draw(uint64_t seed, Random& random) {
  return {.seed = seed,
          .session_timeout_ms = kTimeoutMs,
          .delay_ns_max = random.Below(kTimeoutNs / 8),
          .service_clock_ahead_ppm = static_cast<uint32_t>(random.Below(120'000))};
}

/// Parts and heals sessions, and lets the service go and come back, at drawn times.
dsm::Task<void> MakeFaults(dsm::Worker& worker, InProcessUnderTest& test, Random& random,
                           uint64_t until_ns) {
  while (worker.clock().NowNs() < until_ns) {
    co_await worker.Sleep(random.Below(kTimeoutNs / 2));
    Membership& session = *test.sessions()[random.Below(test.sessions().size())];
    switch (random.Below(6)) {
      case 0:
      case 1:
        test.Part(session);
        break;
      case 2:
      case 3:
        test.Heal(session);
        break;
      case 4:
        test.GoAway();
        break;
      case 5:
        test.ComeBack();
        break;
    }
  }
  test.ComeBack();
}

TEST(InProcessMembershipTest, ALeaseNeverOutlivesTheSession) {
  uint64_t with_lease = 0, expired = 0;
  for (uint64_t seed = 1; seed <= test::Amount{40, 200, 5'000}; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    InProcessUnderTest test(Draw(seed, random));
    for (int i = 0; i < 4; ++i) test.Open();
    test.worker().Spawn(MakeFaults(test.worker(), test, random, 20 * kTimeoutNs));
    test.Until([&] {
      for (const auto& session : test.sessions()) {
        const bool has_lease = test.clock().NowNs() < session->lease_until_ns();
        const bool is_held = test.service().Holds(*session);
        FARLEAF_CHECK(!has_lease || is_held, "a lease lies; seed", seed, test.clock().NowNs());
        with_lease += has_lease;
        expired += !is_held;
      }
      return test.clock().NowNs() > 20 * kTimeoutNs;
    });
  }
  EXPECT_GT(with_lease, 10'000u);
  EXPECT_GT(expired, 10'000u);
}

TEST(InProcessMembershipTest, WithoutFaultsALeaseNeverLapses) {
  for (uint64_t seed = 1; seed <= test::Amount{10, 50, 1'000}; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    InProcessUnderTest test(Draw(seed, random));
    InProcessMembership& session = test.Open();
    test.Until([&] {
      FARLEAF_CHECK(test.clock().NowNs() < session.lease_until_ns(), seed);
      return test.clock().NowNs() > 20 * kTimeoutNs;
    });
    EXPECT_EQ(session.state(), SessionState::kConnected);
  }
}

/// A candidate that stands again whenever it is not the master, until its session is over.
dsm::Task<void> Reign(dsm::Worker& worker, Election& election, uint64_t until_ns) {
  while (worker.clock().NowNs() < until_ns) {
    Status status = co_await election.BecomeMaster(worker, kTimeoutNs);
    if (status.ok()) {
      status = co_await election.AwaitLoss(worker, worker.random().Below(3 * kTimeoutNs));
      if (status.code() == StatusCode::kDeadlineExceeded) {
        status = co_await election.Resign(worker);
      }
    }
    if (status.code() == StatusCode::kFenced) co_return;
    co_await worker.Sleep(kTimeoutNs / 16);
  }
}

TEST(InProcessMembershipTest, NeverAreTwoMasters) {
  const uint64_t seeds = test::Amount{40, 200, 5'000};
  uint64_t reigns = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    InProcessUnderTest test(Draw(seed, random));
    std::vector<std::unique_ptr<Election>> elections;
    for (int i = 0; i < 5; ++i) {
      elections.push_back(std::make_unique<Election>(&test.Open(), &test.clock(), "/master",
                                                     "node " + std::to_string(i)));
    }
    const uint64_t until_ns = 20 * kTimeoutNs;
    for (auto& election : elections) {
      test.worker().Spawn(Reign(test.worker(), *election, until_ns));
    }
    test.worker().Spawn(MakeFaults(test.worker(), test, random, until_ns));
    const Election* last = nullptr;
    test.Until([&] {
      size_t masters = 0;
      for (const auto& election : elections) {
        if (!election->IsMaster()) continue;
        ++masters;
        reigns += std::exchange(last, election.get()) != election.get();
      }
      FARLEAF_CHECK(masters <= 1, "two masters; seed", seed, test.clock().NowNs());
      return test.clock().NowNs() > until_ns;
    });
    for (const auto& session : test.sessions()) test.Heal(*session);
    for (const auto& session : test.sessions()) {
      EXPECT_TRUE(test.Run(session->Close(test.worker())).ok());
    }
    test.Until([&] { return test.worker().spawned() == 0; });
  }
  EXPECT_GT(reigns, seeds);
}

dsm::Task<void> StandOnce(dsm::Worker& worker, Election& election, int* masters) {
  const Status status = co_await election.BecomeMaster(worker, 100 * kTimeoutNs);
  *masters += status.ok();
}

TEST(InProcessMembershipTest, TheEndOfOneCandidateWakesOneOther) {
  InProcessUnderTest test({.session_timeout_ms = kTimeoutMs});
  std::vector<std::unique_ptr<Election>> elections;
  int masters = 0;
  for (int i = 0; i < 10; ++i) {
    elections.push_back(std::make_unique<Election>(&test.Open(), &test.clock(), "/master",
                                                   "node " + std::to_string(i)));
    test.worker().Spawn(StandOnce(test.worker(), *elections.back(), &masters));
  }
  test.Until([&] { return masters == 1; });
  EXPECT_EQ(test.service().notices_sent(), 0u);
  for (int i = 0; i < 9; ++i) {
    EXPECT_TRUE(test.Run(elections[i]->Resign(test.worker())).ok());
    test.Until([&] { return masters == i + 2; });
    EXPECT_EQ(test.service().notices_sent(), static_cast<uint64_t>(i + 1));
  }
}

/// A process of a simulated world, with a session.
struct SimulatedNode {
  SimulatedNode(dsm::SimWorld& world, InProcessService& service)
      : world_(world), fabric(world.NewFabric()), session(std::move(*service.Open())) {
    auto transport = fabric->OpenTransport();
    FARLEAF_CHECK(transport.ok(), transport.status());
    worker = std::make_unique<dsm::Worker>(
        dsm::Worker::Deps{std::move(*transport), &epochs, &world.clock(), 1, 1});
    world.AddThread(fabric->process(), worker.get());
    worker->Spawn(session->KeepAlive(*worker));
  }
  ~SimulatedNode() {
    world_.RemoveThread(worker.get());
    worker->Abandon();
  }

  dsm::SimWorld& world_;
  std::unique_ptr<dsm::SimFabric> fabric;
  dsm::EpochDomain epochs;
  std::unique_ptr<InProcessMembership> session;
  std::unique_ptr<dsm::Worker> worker;
};

TEST(InProcessMembershipTest, InASimulatedWorldACrashedMasterIsFollowed) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    dsm::SimWorld world({.seed = seed, .servers = 1});
    InProcessService service(
        &world.clock(), {.seed = seed, .session_timeout_ms = kTimeoutMs, .delay_ns_max = kNsPerMs});
    SimulatedNode first(world, service), second(world, service);
    Election old(first.session.get(), &world.clock(), "/master", "first");
    Election young(second.session.get(), &world.clock(), "/master", "second");
    int masters = 0;
    first.worker->Spawn(StandOnce(*first.worker, old, &masters));
    world.RunWhileBusy(world.now_ns() + kTimeoutNs);
    ASSERT_TRUE(old.IsMaster());
    second.worker->Spawn(StandOnce(*second.worker, young, &masters));
    world.RunWhileBusy(world.now_ns() + 3 * kTimeoutNs);
    EXPECT_TRUE(old.IsMaster());
    EXPECT_FALSE(young.IsMaster());
    world.CrashProcess(first.fabric->process());
    world.RunWhileBusy(world.now_ns() + 2 * kTimeoutNs);
    EXPECT_FALSE(old.IsMaster());
    EXPECT_TRUE(young.IsMaster());
    EXPECT_FALSE(service.Holds(*first.session));
    EXPECT_TRUE(service.Holds(*second.session));
  }
}

TEST(InProcessMembershipTest, TheSameSeedGivesTheSameRun) {
  const auto run = [](uint64_t seed) {
    Random random(seed);
    InProcessUnderTest test(Draw(seed, random));
    for (int i = 0; i < 3; ++i) test.Open();
    test.worker().Spawn(MakeFaults(test.worker(), test, random, 10 * kTimeoutNs));
    uint64_t hash = 0;
    test.Until([&] {
      for (const auto& session : test.sessions()) hash = Mix64(hash ^ session->lease_until_ns());
      hash = Mix64(hash ^ test.clock().NowNs());
      return test.clock().NowNs() > 10 * kTimeoutNs;
    });
    return hash;
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

}  // namespace
}  // namespace farleaf::server::membership
