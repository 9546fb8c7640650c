// Leases in the simulation: memory servers look at lease words, and compute servers renew them, in
// virtual time, on a network that delays, parts and breaks.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "dsm/base/log.h"
#include "dsm/pool.h"
#include "dsm/sim/sim_world.h"

namespace farleaf::dsm {
namespace {

constexpr uint32_t kLeaseMs = 400;
constexpr uint64_t kSeeds = 20;

/// A compute server that does nothing but renew.
struct Member {
  Member(SimWorld& world, uint64_t seed) : world_(world) {
    auto fabric = world.NewFabric();
    process = fabric->process();
    auto joined =
        Pool::Join(std::move(fabric), {.renewal = PoolOptions::Renewal::kCaller, .seed = seed},
                   &world.clock());
    FARLEAF_CHECK(joined.ok(), joined.status());
    pool = std::move(*joined);
    auto opened = pool->OpenWorker();
    FARLEAF_CHECK(opened.ok(), opened.status());
    renewing = std::move(*opened);
    world.AddThread(process, renewing.get(), SimWorld::ThreadRole::kBackground);
    renewing->Spawn(pool->RenewLeases(*renewing));
  }
  ~Member() {
    // A renewal may be in flight: only a crash lets go of what lies in its frame.
    if (!world_.has_crashed(process)) world_.CrashProcess(process);
    pool->Abandon();
    renewing->Abandon();
  }
  MemberIdentity self() const { return pool->self(); }

  SimWorld& world_;
  uint32_t process;
  std::unique_ptr<Pool> pool;
  std::unique_ptr<Worker> renewing;
};

class SimLease : public ::testing::TestWithParam<uint64_t> {
 protected:
  SimWorld world{{.seed = GetParam(), .servers = 2, .lease_ms = kLeaseMs}};
  // Members last: they are gone before the world.
  std::unique_ptr<Pool> onlooker = JoinAsOnlooker();
  std::unique_ptr<Worker> timer = OpenTimer();
  std::vector<std::unique_ptr<Member>> members;

  static void SetUpTestSuite() { spdlog::set_level(spdlog::level::err); }  // or lines a cut
  static void TearDownTestSuite() { spdlog::set_level(spdlog::level::info); }
  void SetUp() override {
    for (uint64_t i = 0; i < 3; ++i) members.push_back(std::make_unique<Member>(world, i));
  }
  void TearDown() override {
    members.clear();
    world.RemoveThread(timer.get());
  }

  std::unique_ptr<Pool> JoinAsOnlooker() {
    auto joined =
        Pool::Join(world.NewFabric(), {.role = PoolOptions::Role::kObserver}, &world.clock());
    FARLEAF_CHECK(joined.ok(), joined.status());
    return std::move(*joined);
  }
  std::unique_ptr<Worker> OpenTimer() {
    auto opened = onlooker->OpenWorker();
    FARLEAF_CHECK(opened.ok(), opened.status());
    world.AddThread(0, opened->get());
    return std::move(*opened);
  }
  static Task<void> Sleep(Worker& worker, uint64_t ns) { co_await worker.Sleep(ns); }
  void Pass(uint64_t ms) {
    timer->Spawn(Sleep(*timer, ms * kNsPerMs));
    const auto end = world.RunWhileBusy(world.now_ns() + 2 * ms * kNsPerMs);
    ASSERT_EQ(end, SimWorld::RunEnd::kIdle);
  }
  uint64_t Word(ServerId server, uint64_t offset) {
    uint64_t word;
    std::memcpy(&word, world.region_bytes(server).data() + offset, 8);
    return word;
  }
  /// "01": which memory servers have cut the member off, by their fence words.
  std::string FencedBy(const MemberIdentity& member) {
    std::string servers;
    for (const ServerId server : {ServerId{0}, ServerId{1}}) {
      if (Word(server, FenceWordOffset(member.id)) == member.incarnation) {
        servers += std::to_string(server);
      }
    }
    return servers;
  }
  void ExpectUnharmed(size_t first) {
    for (size_t i = first; i < members.size(); ++i) {
      EXPECT_EQ(FencedBy(members[i]->self()), "") << i;
      EXPECT_TRUE(members[i]->pool->fenced().ok()) << members[i]->pool->fenced();
    }
  }
};

TEST_P(SimLease, WhoeverRenewsIsNeverCutOff) {
  for (int second = 0; second < 10; ++second) {
    Pass(1'000);
    for (const auto& member : members) world.DropConnections(member->process, second % 2);
  }
  ExpectUnharmed(0);
}

TEST_P(SimLease, WhoeverIsSilentIsCutOffAndFindsOutWhenItGoesOn) {
  world.StallProcess(members[0]->process, world.now_ns() + 3 * kLeaseMs * kNsPerMs);
  Pass(2 * kLeaseMs);
  EXPECT_EQ(FencedBy(members[0]->self()), "01");
  EXPECT_TRUE(members[0]->pool->fenced().ok()) << "it does not know yet";
  Pass(10 * kLeaseMs);
  EXPECT_EQ(members[0]->pool->fenced().code(), StatusCode::kFenced);
  ExpectUnharmed(1);
}

TEST_P(SimLease, WhoeverIsPartedFromOneMemoryServerIsCutOffByThatOneAlone) {
  world.Partition(members[0]->process, 1);
  Pass(4 * kLeaseMs);
  EXPECT_EQ(FencedBy(members[0]->self()), "1");
  world.Heal(members[0]->process, 1);
  // It hears of it, and renews nowhere any more.
  Pass(10 * kLeaseMs);
  EXPECT_EQ(members[0]->pool->fenced().code(), StatusCode::kFenced);
  EXPECT_EQ(FencedBy(members[0]->self()), "01");
  ExpectUnharmed(1);
}

TEST_P(SimLease, AMemoryServerThatStoodStillCutsNobodyOff) {
  for (int time = 0; time < 3; ++time) {
    world.StallServer(0);
    Pass(3 * kLeaseMs);
    world.ResumeServer(0);
    Pass(3 * kLeaseMs);
  }
  ExpectUnharmed(0);
}

TEST_P(SimLease, ACrashedProcessIsCutOffAndASuccessorIsNot) {
  const MemberIdentity dead = members[0]->self();
  world.CrashProcess(members[0]->process);
  members.erase(members.begin());
  Pass(3 * kLeaseMs);
  EXPECT_EQ(FencedBy(dead), "01");
  members.push_back(std::make_unique<Member>(world, 9));
  Pass(3 * kLeaseMs);
  EXPECT_EQ(FencedBy(dead), "01");
  ExpectUnharmed(0);
}

TEST_P(SimLease, WhoeverLeavesIsNotCutOff) {
  Member& leaving = *members[0];
  leaving.pool->StopRenewing();
  Pass(kLeaseMs / 2);  // renewals are a quarter of a lease apart
  ASSERT_EQ(leaving.renewing->spawned(), 0u);
  Status left = leaving.pool->Leave();
  EXPECT_TRUE(left.ok()) << left;
  Pass(3 * kLeaseMs);
  EXPECT_EQ(FencedBy(leaving.self()), "");
  EXPECT_EQ(Word(0, LeaseWordOffset(leaving.self().id)), 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SimLease, ::testing::Range<uint64_t>(1, kSeeds + 1));

}  // namespace
}  // namespace farleaf::dsm
