// 2,000 connections of all protocols at once, at two compute servers on one pool, and all faults at once among them: slow readers, sockets that are half closed,
// garbage, requests that are too large or cut short, and a tenth that is killed at random under load. All others get right
// answers, each fault is told or served as it is due, and the server's memory stays as it was.
#include <gtest/gtest.h>

#include "test/support/allocated_bytes.h"
#include "test/support/load_round.h"
#include "test/support/open_files.h"
#include "test/support/test_scale.h"

namespace farleaf::test {
namespace {

using Protocol = RecordDialect::Protocol;

const uint64_t kLoadConnections = Amount{400, 2'000};

struct FrontEndLoadTest : TwoOnOnePool {
  FrontEndLoadTest() : TwoOnOnePool(uint64_t{128} << 20) {}
  void SetUp() override {
    TwoOnOnePool::SetUp();
    if (!MayOpenFiles(2 * kLoadConnections + 1'000)) GTEST_SKIP() << "needs 5,000 open files";
    Add("t");
    ListenForRecords();
    options.connection.value_bytes_max = kFaultyValueMax;
    options.memcached.limits.value_bytes_max = options.redis.limits.value_bytes_max =
        kFaultyValueMax;
    options.connection.out_bytes_max = options.memcached.limits.out_bytes_max =
        options.redis.limits.out_bytes_max = 64 << 10;
    StartServer();
    const RecordDialect redis{Protocol::kRedis};
    TextClient writer(redis_url());
    ASSERT_EQ(redis.Ask(writer, redis.Set("large", kLargeValue)), redis.stored());
    const auto connected = Connect(tcp_url(1));
    auto tree = connected->OpenTree("t");
    ASSERT_TRUE(tree.ok()) << tree.status();
    ASSERT_TRUE(tree->Put("large", kLargeValue).ok());
  }
  void RunRound(uint64_t round, Random& random) {
    const auto before = Connections();
    LoadRound load({.connections = kLoadConnections,
                    .round = round,
                    .half_closing_every = 5,
                    .killed_one_in = 10,
                    // Six that follow one another are of all protocols.
                    .urls_of = [this](uint64_t i) { return front_ends(i / 6); }});
    ASSERT_TRUE(AwaitOpen(kLoadConnections)) << Connections().open;
    load.Begin(random);
    EXPECT_GT(load.killed(), kLoadConnections / 20);
    load.End();
    ASSERT_TRUE(AwaitOpen(0)) << Connections().open;
    const auto after = Connections();
    EXPECT_EQ(after.refused - before.refused, load.garbage());
    // And those that were killed in the middle of one.
    EXPECT_GE(after.truncated - before.truncated, load.truncated());
    EXPECT_LE(after.truncated - before.truncated, load.truncated() + load.killed());
  }
};

TEST_F(FrontEndLoadTest, TwoThousandConnectionsWithAllFaultsAtOnce) {
  constexpr uint64_t kSeed = 43, kRounds = 3, kWarmRounds = 2;
  // 2 KiB of each connection. Workers keep the frames of their busiest moment (dsm/frame_pool.h), whenever that is.
  constexpr size_t kGrowthMax = 4 << 20;
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  std::optional<size_t> warm;
  for (uint64_t round = 0; round < kRounds; ++round) {
    RunRound(round, random);
    if (HasFatalFailure()) return;
    if (round + 1 == kWarmRounds) warm = AllocatedBytes();
  }
  if (warm) {
    EXPECT_LT(*AllocatedBytes(), *warm + kGrowthMax);
  }
  ExpectServing();
}

}  // namespace
}  // namespace farleaf::test
