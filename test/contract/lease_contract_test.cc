// Leases, on every fabric: whoever stops renewing its lease word is cut off, whoever renews or has left
// is not. Memory servers look at a clock of the test's. On shm the one that is cut off would be this
// very process: test/contract/shm_fencing_test.cc has processes of its own.
#include <gtest/gtest.h>

#include <thread>

#include "dsm/lease_enforcer.h"
#include "dsm/pool.h"
#include "test/support/fabric_under_test.h"

namespace farleaf::dsm {
namespace {

constexpr uint64_t kWatchedWord = uint64_t{1} << 20;
constexpr uint32_t kLeaseMs = 200;

class LeaseContract : public ::testing::TestWithParam<FabricKind> {
 protected:
  FabricUnderTest cluster{GetParam(), {.lease_ms = kLeaseMs}};
  ManualClock server_clock;
  LeaseEnforcer enforcer{cluster.LeasesOf(0, &server_clock)};

  std::unique_ptr<Fabric> NewMember(MemberIdentity member) {
    auto fabric = cluster.Connect();
    Status known = fabric->Identify(member);
    EXPECT_TRUE(known.ok()) << known;
    return fabric;
  }
  /// Time passes at memory server 0, which looks eight times in a lease.
  void Pass(int looks) {
    for (int i = 0; i < looks; ++i) {
      server_clock.AdvanceNs(kLeaseMs * kNsPerMs / 8);
      enforcer.Look();
    }
  }
};

TEST_P(LeaseContract, WhoeverStopsRenewingIsCutOffAfterTheLeaseAndWhoeverRenewsIsNot) {
  auto silent = NewMember({5, 3}), renewing = NewMember({6, 1}), left = NewMember({7, 1});
  TestClient silent_client(*silent, cluster.clock());
  TestClient renewing_client(*renewing, cluster.clock()), left_client(*left, cluster.clock());
  TestClient observer(cluster.fabric(), cluster.clock());
  silent_client.WriteWord(0, LeaseWordOffset(5), LeaseWord{3, 1}.Encode());
  left_client.WriteWord(0, LeaseWordOffset(7), LeaseWord{1, 1}.Encode());
  Pass(4);
  left_client.WriteWord(0, LeaseWordOffset(7), 0);
  for (uint16_t count = 1; count < 30; ++count) {
    renewing_client.WriteWord(0, LeaseWordOffset(6), LeaseWord{1, count}.Encode());
    Pass(2);
    // 4 + 2 looks are 5 intervals since the word was first seen, of the 8 that a lease has.
    EXPECT_EQ(observer.ReadWord(0, FenceWordOffset(5)), count < 3 ? 0u : 3u) << count;
  }
  uint64_t word = 9;
  Batch batch(0);
  batch.WriteWord(kWatchedWord, &word);
  EXPECT_EQ(silent_client.Run(batch).code(), StatusCode::kFenced);
  EXPECT_EQ(observer.ReadWord(0, kWatchedWord), 0u);
  for (const MemberId id : {MemberId{6}, MemberId{7}}) {
    EXPECT_EQ(observer.ReadWord(0, FenceWordOffset(id)), 0u) << id;
  }
  renewing_client.WriteWord(0, kWatchedWord, 1);
  left_client.WriteWord(0, kWatchedWord, 2);
  // The other memory server has not looked.
  EXPECT_EQ(observer.ReadWord(1, FenceWordOffset(5)), 0u);
  silent_client.WriteWord(1, kWatchedWord, 3);
}

TEST_P(LeaseContract, APoolIsWatchedWhileItIsJoinedAndNotAfterIt) {
  auto pool = Pool::Join(cluster.Connect(), {}, &cluster.clock());
  ASSERT_TRUE(pool.ok()) << pool.status();
  auto onlooker =
      Pool::Join(cluster.Connect(), {.role = PoolOptions::Role::kObserver}, &cluster.clock());
  ASSERT_TRUE(onlooker.ok()) << onlooker.status();
  EXPECT_EQ((*pool)->layouts()[1].lease_ms, kLeaseMs);
  const MemberIdentity self = (*pool)->self();
  TestClient observer(cluster.fabric(), cluster.clock());
  for (const ServerId server : {ServerId{0}, ServerId{1}}) {
    const auto lease = LeaseWord::Decode(observer.ReadWord(server, LeaseWordOffset(self.id)));
    EXPECT_EQ(lease.incarnation, self.incarnation);
  }
  Status left = (*pool)->Leave();
  EXPECT_TRUE(left.ok()) << left;
  for (const ServerId server : {ServerId{0}, ServerId{1}}) {
    EXPECT_EQ(observer.ReadWord(server, LeaseWordOffset(self.id)), 0u);
  }
  Pass(100);
  EXPECT_EQ(observer.ReadWord(0, FenceWordOffset(self.id)), 0u);
  EXPECT_TRUE((*pool)->fenced().ok());
}

TEST_P(LeaseContract, APoolRenewsByItselfAndFindsOutThatItWasCutOff) {
  if (GetParam() == FabricKind::kSim) GTEST_SKIP() << "virtual time stands still";
  auto pool = Pool::Join(cluster.Connect(), {}, &cluster.clock());
  ASSERT_TRUE(pool.ok()) << pool.status();
  const MemberIdentity self = (*pool)->self();
  TestClient observer(cluster.fabric(), cluster.clock());
  const uint64_t deadline_ns = cluster.clock().NowNs() + 60 * kNsPerSecond;
  const auto lease = [&](ServerId server) {
    return observer.ReadWord(server, LeaseWordOffset(self.id));
  };
  // However long this machine takes to renew, the memory server waits for it.
  for (int renewals = 0; renewals < 3; ++renewals) {
    const uint64_t before = lease(0), other_before = lease(1);
    while (lease(0) == before || lease(1) == other_before) {
      ASSERT_LT(cluster.clock().NowNs(), deadline_ns);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    Pass(4);
  }
  EXPECT_EQ(observer.ReadWord(0, FenceWordOffset(self.id)), 0u);
  EXPECT_TRUE((*pool)->fenced().ok());
  Status cut = cluster.fabric().CutOff(1, self);
  ASSERT_TRUE(cut.ok()) << cut;
  while ((*pool)->fenced().ok()) {
    ASSERT_LT(cluster.clock().NowNs(), deadline_ns);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ((*pool)->fenced().code(), StatusCode::kFenced);
  EXPECT_EQ((*pool)->Leave().ToString(), (*pool)->fenced().ToString());
  // Nobody renews any more where it was not cut off, so that it is, too.
  EXPECT_NE(lease(0), 0u);
  Pass(10);
  EXPECT_EQ(observer.ReadWord(0, FenceWordOffset(self.id)), self.incarnation);
}

std::vector<FabricKind> FabricsThatRevoke() {
  std::vector<FabricKind> kinds = AllFabrics();
  std::erase(kinds, FabricKind::kShm);
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Fabrics, LeaseContract, ::testing::ValuesIn(FabricsThatRevoke()),
                         [](const auto& kind) { return FabricKindName(kind.param); });

}  // namespace
}  // namespace farleaf::dsm
