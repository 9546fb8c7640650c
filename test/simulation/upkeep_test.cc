// Locks whose taking or release got lost with a connection, of a member that has nothing else to do: its
// upkeep lets them go, so that others need not wait for ever; and it does not leave the pool before.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "dsm/base/bytes.h"
#include "dsm/base/log.h"
#include "test/simulation/simulated_pool.h"

namespace farleaf::simulation {
namespace {

constexpr uint64_t kSeeds = 40;
constexpr uint64_t kKeys = 20;
constexpr uint64_t kLockWaitMs = 100;
constexpr uint64_t kUpkeepNs = kNsPerSecond;  // as compute servers do it

std::string Key(uint64_t number) {
  std::string key(8, '\0');
  StoreBig64(key.data(), number);
  return key;
}

/// Two compute servers, and a lock of the first that it has lost sight of, while it is parted from the memory
/// server.
class LostLock {
 public:
  explicit LostLock(uint64_t seed) : pool_(OptionsFor(seed)) {
    EXPECT_TRUE(PutAllKeys(0).ok());
    // The moment of the break is drawn, too: until one leaves a lock.
    for (uint64_t time = 0; time < 1'000 && unresolved() == 0; ++time) {
      EXPECT_TRUE(Put(idle(), 0, 1, 10 * kNsPerSecond).ok());  // it is connected again
      idle().workers[0]->Spawn(PutSome(*idle().workers[0], *idle().tree));
      const uint64_t now_ns = world().now_ns();
      world().RunWhileBusy(now_ns + 1 + world().random().Below(40 * kNsPerUs));
      world().Partition(idle().process, 0);
      world().RunWhileBusy();
      if (unresolved() == 0) world().Heal(idle().process, 0);
    }
    FARLEAF_CHECK(unresolved() > 0, seed);
  }

  ComputeServer& idle() { return pool_.compute_servers()[0]; }
  ComputeServer& other() { return pool_.compute_servers()[1]; }
  dsm::SimWorld& world() { return pool_.world(); }
  SimulatedPool& pool() { return pool_; }
  size_t unresolved() { return idle().pool->unresolved_locks().size(); }
  void Heal() { world().Heal(idle().process, 0); }

  /// Puts keys [first, last), each until it succeeds or `wait_ns` are over; the rest of the world goes on.
  /// The first failure.
  Status Put(ComputeServer& by, uint64_t first, uint64_t last, uint64_t wait_ns) {
    Status all;
    by.workers[0]->Spawn(PutEach(*by.workers[0], *by.tree, first, last, wait_ns, &all));
    world().RunWhileBusy();
    return all;
  }
  Status PutAllKeys(uint64_t wait_ns) { return Put(other(), 0, kKeys, wait_ns); }
  Status Upkeep(size_t worker) {
    dsm::FabricCounts counts;
    dsm::OpContext op{*idle().workers[worker], counts};
    return idle().workers[worker]->Run(idle().tree->Upkeep(op));
  }
  void Sleep() { idle().workers[0]->Run(SleepOn(*idle().workers[0])); }
  /// As a compute server does while nobody asks it for anything.
  void KeepUpBeside(uint64_t times) {
    for (auto& worker : idle().workers) worker->Spawn(KeepUp(*worker, *idle().tree, times));
  }

 private:
  static SimulatedPool::Options OptionsFor(uint64_t seed) {
    SimulatedPool::Options options;
    options.world.seed = seed;
    options.world.servers = 1;
    options.tree.lock_wait_ms = kLockWaitMs;
    options.compute_servers = 2;
    options.workers = 2;
    return options;
  }
  static dsm::Task<void> SleepOn(dsm::Worker& worker) { co_await worker.Sleep(kUpkeepNs); }
  static dsm::Task<void> PutSome(dsm::Worker& worker, index::BlinkTree& tree) {
    dsm::FabricCounts counts;
    for (uint64_t i = 0; i < 3; ++i) {
      dsm::OpContext op{worker, counts};
      [[maybe_unused]] auto put = co_await tree.Put(op, Key(worker.random().Below(kKeys)), Key(2));
    }
  }
  static dsm::Task<void> PutEach(dsm::Worker& worker, index::BlinkTree& tree, uint64_t first,
                                 uint64_t last, uint64_t wait_ns, Status* failure) {
    dsm::FabricCounts counts;
    for (uint64_t key = first; key < last; ++key) {
      const uint64_t end_ns = worker.clock().NowNs() + wait_ns;
      Status status = Status::Unavailable("not tried");
      while (!status.ok()) {
        dsm::OpContext op{worker, counts};
        auto put = co_await tree.Put(op, Key(key), Key(1));
        status = put.status();
        if (status.ok() || worker.clock().NowNs() >= end_ns) break;
        co_await worker.Sleep(10 * kNsPerMs);  // it may have failed at once
      }
      if (failure->ok()) *failure = std::move(status);
    }
  }
  static dsm::Task<void> KeepUp(dsm::Worker& worker, index::BlinkTree& tree, uint64_t times) {
    dsm::FabricCounts counts;
    for (uint64_t i = 0; i < times; ++i) {
      co_await worker.Sleep(kUpkeepNs);
      dsm::OpContext op{worker, counts};
      [[maybe_unused]] Status kept = co_await tree.Upkeep(op);
    }
  }

  SimulatedPool pool_;
};

class UpkeepTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  static void SetUpTestSuite() { spdlog::set_level(spdlog::level::err); }  // or lines a cut
  static void TearDownTestSuite() { spdlog::set_level(spdlog::level::info); }
};

TEST(IdleMemberTest, WithoutUpkeepOthersWaitInVain) {
  uint64_t in_vain = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    LostLock lost(seed);
    lost.Heal();
    const Status put = lost.PutAllKeys(3 * kNsPerSecond);
    EXPECT_TRUE(put.ok() || put.code() == StatusCode::kDeadlineExceeded) << put;
    in_vain += !put.ok();
  }
  EXPECT_GT(in_vain, kSeeds / 4) << "or the other tests show nothing";
}

TEST_P(UpkeepTest, AnIdleMembersLockDoesNotKeepOthersWaitingForEver) {
  LostLock lost(GetParam());
  lost.Heal();
  lost.KeepUpBeside(10);
  const Status put = lost.PutAllKeys(5 * kNsPerSecond);
  EXPECT_TRUE(put.ok()) << put;
  EXPECT_EQ(lost.unresolved(), 0u);
  EXPECT_EQ(lost.pool().LeaveAndCheck(nullptr), "");
}

TEST_P(UpkeepTest, UpkeepTellsWhatItCannotDoYet) {
  LostLock lost(GetParam());
  const Status parted = lost.Upkeep(0);
  EXPECT_EQ(parted.code(), StatusCode::kUnavailable) << parted;
  EXPECT_NE(parted.message().find("are not let go yet"), std::string::npos) << parted;
  lost.Heal();
  Status kept = parted;
  for (int time = 0; time < 10 && !kept.ok(); ++time) {
    lost.Sleep();
    kept = lost.Upkeep(0);
  }
  EXPECT_TRUE(kept.ok()) << kept;
  EXPECT_EQ(lost.unresolved(), 0u);
}

TEST_P(UpkeepTest, WhatMayLandYetIsForTheWorkerThatPostedIt) {
  LostLock lost(GetParam());
  const bool bound = lost.idle().pool->unresolved_locks().CountFor(
                         lost.idle().tree->info().id, lost.idle().workers[1]->number()) == 0;
  lost.Heal();
  const Status kept = lost.Upkeep(1);
  if (bound) {
    EXPECT_TRUE(kept.ok()) << "there is nothing that it could do: " << kept;
    EXPECT_GT(lost.unresolved(), 0u);
  }
  lost.KeepUpBeside(5);
  lost.world().RunWhileBusy();
  EXPECT_EQ(lost.unresolved(), 0u);
  const Status put = lost.PutAllKeys(0);
  EXPECT_TRUE(put.ok()) << put;
}

TEST_P(UpkeepTest, AMemberDoesNotLeaveBeforeAndWhenItIsCutOffOthersTakeOver) {
  LostLock lost(GetParam());
  lost.Heal();
  const Status refused = lost.idle().pool->Leave();
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable) << refused;
  EXPECT_NE(refused.message().find(" does not leave: "), std::string::npos) << refused;
  // Its process ends as it is; its lease runs out.
  const dsm::MemberIdentity self = lost.idle().pool->self();
  lost.pool().Crash(lost.idle());
  lost.world().CutOffAt(0, self);
  const Status put = lost.PutAllKeys(0);
  EXPECT_TRUE(put.ok()) << put;
  EXPECT_EQ(lost.pool().Recover(lost.other(), self), "");
  EXPECT_EQ(lost.pool().LeaveAndCheck(nullptr), "");
}

INSTANTIATE_TEST_SUITE_P(Seeds, UpkeepTest, ::testing::Range<uint64_t>(1, kSeeds + 1));

}  // namespace
}  // namespace farleaf::simulation
