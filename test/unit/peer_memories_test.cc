// Of each node a process writes to the memory of its latest life, and knows no other.
#include "server/cluster/peer_memories.h"

#include <gtest/gtest.h>

#include "test/support/fabric_under_test.h"
#include "test/support/peers_under_test.h"

namespace farleaf::server::cluster {
namespace {

using dsm::ServerEndpoint;
using dsm::ServerId;

struct PeerMemoriesTest : ::testing::Test {
  dsm::PeersUnderTest peers{dsm::FabricKind::kTcp};
  PeerMemories memories{&peers.fabric()};
  dsm::TestClient client{peers.fabric(), peers.clock()};

  Status Read(ServerId server) {
    uint64_t word = 0;
    dsm::Batch batch(server);
    batch.ReadWord(dsm::PeersUnderTest::kA, &word);
    return client.Run(batch);
  }
  static bool WasRemoved(const Status& status) {
    return status.code() == StatusCode::kUnavailable &&
           status.message().find("was removed") != std::string::npos;
  }
};

TEST_F(PeerMemoriesTest, ALifeThatIsOverIsKnownNoMore) {
  const ServerEndpoint other = peers.Begin(1), first = peers.Begin(0);
  ASSERT_TRUE(memories.Add({2, 1}, other).ok());
  ASSERT_TRUE(memories.Add({1, 2}, first).ok());
  EXPECT_TRUE(Read(first.server).ok());
  peers.End(0);
  const ServerEndpoint second = peers.Begin(0);
  ASSERT_NE(second.server, first.server);
  ASSERT_TRUE(memories.Add({1, 3}, second).ok());
  EXPECT_TRUE(Read(second.server).ok());
  const Status gone = Read(first.server);
  EXPECT_TRUE(WasRemoved(gone)) << gone;
  EXPECT_TRUE(Read(other.server).ok());
}

TEST_F(PeerMemoriesTest, TheSameLifeIsAddedForEachRegion) {
  const ServerEndpoint memory = peers.Begin(0);
  for (int region = 0; region < 3; ++region) {
    ASSERT_TRUE(memories.Add({1, 7}, memory).ok());
    EXPECT_TRUE(Read(memory.server).ok());
  }
}

TEST_F(PeerMemoriesTest, AnEarlierLifeIsRefusedAndTheLaterOneStays) {
  const ServerEndpoint memory = peers.Begin(0);
  ASSERT_TRUE(memories.Add({1, 7}, memory).ok());
  ServerEndpoint earlier = memory;
  earlier.server = static_cast<ServerId>(memory.server + 100);
  EXPECT_EQ(memories.Add({1, 6}, earlier).ToString(),
            "unavailable: node 1: its life 6 is over: life 7 is known");
  EXPECT_TRUE(Read(memory.server).ok());
}

// Behind 65,000 lives.
TEST_F(PeerMemoriesTest, AnIdThatComesBackIsOfWhoHasItNow) {
  const ServerEndpoint first = peers.Begin(0);
  ASSERT_TRUE(memories.Add({1, 7}, first).ok());
  ServerEndpoint other = peers.Begin(1);
  other.server = first.server;
  const Status added = memories.Add({2, 65'007}, other);
  ASSERT_TRUE(added.ok()) << added;
  // What node 1 had is not its any more: its next life takes nothing away.
  peers.End(0);
  ASSERT_TRUE(memories.Add({1, 65'008}, peers.Begin(0)).ok());
  EXPECT_FALSE(WasRemoved(Read(first.server)));
  // Another life at the same address: connections hold to the one of before.
  ASSERT_TRUE(memories.Add({2, 130'007}, other).ok());
  EXPECT_FALSE(WasRemoved(Read(first.server)));
}

TEST_F(PeerMemoriesTest, WhatCannotBeAddedEndsNothing) {
  const ServerEndpoint memory = peers.Begin(0);
  ASSERT_TRUE(memories.Add({1, 7}, memory).ok());
  ServerEndpoint wrong = memory;
  wrong.server = static_cast<ServerId>(memory.server + 100);
  wrong.endpoint = "shm:/somewhere";
  EXPECT_EQ(memories.Add({1, 8}, wrong).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Read(memory.server).ok());
  // Nor does it count as a life that is known.
  EXPECT_TRUE(memories.Add({1, 7}, memory).ok());
}

}  // namespace
}  // namespace farleaf::server::cluster
