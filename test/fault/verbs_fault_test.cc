// The verbs fabric when something breaks under load, in one machine: memory servers that are killed, compute
// servers that are cut off. Every batch ends in bounded time with a clear error, what was reported done was
// done, and nobody else is disturbed.
#include <gtest/gtest.h>

#include "dsm/bootstrap/open_directory.h"
#include "dsm/bootstrap/open_fabric.h"
#include "test/support/process.h"
#include "test/support/raw_verbs.h"
#include "test/support/test_scale.h"
#include "test/support/verb_load.h"

namespace farleaf::dsm {
namespace {

// ---- a memory server is killed

struct VerbsKillTest : VerbsTest {};

TEST_F(VerbsKillTest, AMemoryServerKilledUnderLoadIsNamedAndTheOtherServesOn) {
  ProcessCluster cluster({.fabric = "verbs"});
  cluster.StartMemoryServers();
  const MonotonicClock clock;
  auto directory = OpenDirectory(cluster.bootstrap_url());
  ASSERT_TRUE(directory.ok()) << directory.status();
  auto fabric = OpenFabric(**directory, {.servers_min = 2}, &clock);
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  constexpr uint64_t kWord = 40 << 20;  // in no use
  VerbLoad killed(**fabric, clock, 1, kWord), other(**fabric, clock, 0, kWord);
  killed.AwaitMoreDone();
  other.AwaitMoreDone();

  cluster.KillMemoryServer(1);
  const uint64_t noticed_ms = killed.AwaitMoreFailed();
  Tell("32 batches in flight to a killed server have failed after", noticed_ms,
       killed.last_failure());
  EXPECT_LT(noticed_ms, kSoonMs);
  EXPECT_EQ(killed.last_failure().code(), StatusCode::kUnavailable) << killed.last_failure();
  EXPECT_TRUE(Names(killed.last_failure(), "memory server 1 lost")) << killed.last_failure();
  other.AwaitMoreDone();
  EXPECT_EQ(other.failed(), 0u) << other.last_failure();

  // Empty, and so not the old one.
  cluster.StartMemoryServer(1);
  ASSERT_TRUE(cluster.memory_server(1).WaitForOutput(" serves "))
      << cluster.memory_server(1).Output();
  EXPECT_TRUE(Eventually([&] {
    return Names(killed.last_failure(),
                 "memory server 1 lost (restarted with another incarnation)");
  })) << killed.last_failure();
  killed.Stop();
  other.Stop();
  EXPECT_LT(std::max(killed.longest_ms(), other.longest_ms()), kSoonMs);
  TestClient reader(**fabric, clock);
  other.ExpectWord(reader.ReadWord(0, kWord));
  EXPECT_EQ(other.failed(), 0u);
}

// ---- a compute server is cut off

struct VerbsCutOffTest : VerbsTest {
  static std::unique_ptr<VerbsFabric> Member(VerbsPool& pool, MemberIdentity member) {
    auto fabric = pool.Connect();
    Status known = fabric->Identify(member);
    FARLEAF_CHECK(known.ok(), known);
    return fabric;
  }
};

TEST_F(VerbsCutOffTest, UnderLoadItIsToldInTimeAndNobodyElseIsDisturbed) {
  VerbsPool pool;
  const auto cut = Member(pool, {5, 3}), other = Member(pool, {6, 3});
  std::deque<VerbLoad> loads;
  for (uint64_t i = 0; i < 3; ++i) loads.emplace_back(*cut, pool.clock(), 0, 4096 + i * 8);
  VerbLoad undisturbed(*other, pool.clock(), 0, 8192);
  for (VerbLoad& load : loads) load.AwaitMoreDone();
  undisturbed.AwaitMoreDone();
  const uint64_t begin_ns = pool.clock().NowNs();
  Status status = pool.agent().CutOff({5, 3});
  ASSERT_TRUE(status.ok()) << status;
  std::vector<uint64_t> words;
  for (uint64_t i = 0; i < 3; ++i) words.push_back(pool.WordAt(4096 + i * 8));
  for (VerbLoad& load : loads) {
    EXPECT_TRUE(Eventually([&] { return load.fenced() >= 1'000; })) << load.last_failure();
  }
  Tell("a thousand batches of each thread have ended with",
       (pool.clock().NowNs() - begin_ns) / kNsPerMs, loads[0].last_failure());
  undisturbed.AwaitMoreDone();
  for (uint64_t i = 0; i < 3; ++i) {
    loads[i].Stop();
    EXPECT_EQ(pool.WordAt(4096 + i * 8), words[i]);
    EXPECT_EQ(loads[i].failed(), loads[i].fenced()) << loads[i].last_failure();
    loads[i].ExpectWord(words[i]);
  }
  undisturbed.Stop();
  EXPECT_EQ(undisturbed.failed(), 0u) << undisturbed.last_failure();
  EXPECT_EQ(pool.WordAt(8192), undisturbed.done());
  TestClient again(*cut, pool.clock());
  uint64_t word = 0;
  Batch batch(0);
  batch.ReadWord(4096, &word);
  EXPECT_EQ(again.Run(batch).code(), StatusCode::kFenced) << batch.status();
}

// A cut does not depend on what the one that is cut off does or hears.
TEST_F(VerbsCutOffTest, WhoeverDoesNotListenIsCutOffToo) {
  VerbsPool pool;
  Hello hello;
  hello.cluster = "tested";
  hello.nonce = 77;
  hello.member = {5, 3};
  RawVerbsClient cut(pool.address());
  const RemoteRegion region = cut.Join(hello);
  std::fill(cut.local().begin(), cut.local().end(), std::byte{0xee});
  ASSERT_EQ(cut.Run(IBV_WR_RDMA_WRITE, region.address + 4096, region.key), "success");
  Status status = pool.agent().CutOff({5, 3});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(pool.agent().connections(), 0u);
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ}) {
    EXPECT_NE(cut.Run(opcode, region.address + 8192, region.key), "success");
  }
  EXPECT_EQ(pool.WordAt(8192), 0u);
  hello.nonce = 78;
  EXPECT_EQ(RawVerbsClient(pool.address()).Refusal(EncodeConnectData(hello)).code(),
            StatusCode::kFenced);
}

// A storm of connections against a row of cuts: no connection of a member survives its cut.
TEST_F(VerbsCutOffTest, NoConnectionSlipsThroughACut) {
  VerbsPool pool;
  constexpr int kThreads = 3;
  const uint64_t rounds = test::Amount{20, 60, 400};
  for (uint64_t round = 1; round <= rounds; ++round) {
    const MemberIdentity member{5, round};
    const auto fabric = Member(pool, member);
    std::atomic<bool> cut{false};
    std::atomic<uint64_t> opened{0}, slipped{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (bool told = false; !told;) {
          const bool after = cut;
          TestClient client(*fabric, pool.clock());
          ++opened;
          uint64_t word = round;
          Batch batch(0);
          batch.WriteWord(4096, &word);
          const Status status = client.Run(batch);
          slipped += after && status.ok();
          told = status.code() == StatusCode::kFenced;
        }
      });
    }
    EXPECT_TRUE(Eventually([&] { return opened > round % 5; }));
    Status status = pool.agent().CutOff(member);
    cut = true;
    EXPECT_TRUE(status.ok()) << status;
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(slipped, 0u) << "round " << round;
    ASSERT_EQ(pool.agent().connections(), 0u) << "round " << round;
  }
}

}  // namespace
}  // namespace farleaf::dsm
