// LinkTable and KnownServers, with links of which the test says when they end.
#include "dsm/link_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace farleaf::dsm {
namespace {

struct ScriptedLink {
  ScriptedLink(KnownServers::Server s, int* count) : known(std::move(s)), alive(count) { ++*alive; }
  ~ScriptedLink() { --*alive; }
  ScriptedLink(const ScriptedLink&) = delete;

  const KnownServer& server() const { return *known; }
  size_t Poll() { return polled++, 1; }
  void Retire() { retired = true; }
  bool ended() const { return retired && in_flight == 0; }
  void HoldBack() { held = true; }
  bool held_back() const { return held; }
  void Release() { held = false; }

  const KnownServers::Server known;
  int* alive;
  int polled = 0, in_flight = 0;
  bool retired = false, held = false;
};

struct LinkTableTest : ::testing::Test {
  std::shared_ptr<KnownServers> known = std::make_shared<KnownServers>();
  int alive = 0;
  LinkTable<std::unique_ptr<ScriptedLink>> links{known};

  void Add(ServerId server, uint64_t incarnation = 0, const std::string& endpoint = "tcp:there") {
    Status status =
        known->Add({server, endpoint, 0, incarnation}, {}, KnownServer::Connects::kAtFirstPost);
    EXPECT_TRUE(status.ok()) << status;
  }
  void Learn() {
    links.Learn([this](KnownServers::Server server) {
      return std::make_unique<ScriptedLink>(std::move(server), &alive);
    });
  }
};

TEST_F(LinkTableTest, ThereIsSomethingToLearnAfterEachChangeOnly) {
  EXPECT_FALSE(links.stale());
  Add(3);
  EXPECT_TRUE(links.stale());
  EXPECT_EQ(links.Find(3), nullptr);
  Learn();
  EXPECT_FALSE(links.stale());
  EXPECT_NE(links.Find(3), nullptr);
  Add(3);
  EXPECT_FALSE(links.stale());
  known->Remove(4);
  EXPECT_FALSE(links.stale());
  known->Remove(3);
  EXPECT_TRUE(links.stale());
}

TEST_F(LinkTableTest, LinksToWhatIsStillKnownStay) {
  Add(3);
  Add(65535);
  Learn();
  ScriptedLink* const stays = links.Find(3);
  known->Remove(65535);
  Add(7);
  Learn();
  EXPECT_EQ(links.Find(3), stays);
  EXPECT_FALSE(stays->retired);
  EXPECT_EQ(links.Find(65535), nullptr);
  EXPECT_NE(links.Find(7), nullptr);
}

TEST_F(LinkTableTest, ARetiredLinkIsPolledUntilItHasEndedAndThenFreed) {
  Add(3);
  Learn();
  ScriptedLink* const link = links.Find(3);
  link->in_flight = 1;
  known->Remove(3);
  Learn();
  EXPECT_TRUE(link->retired);
  EXPECT_EQ(links.Poll(), 1u);
  EXPECT_EQ(alive, 1);
  link->in_flight = 0;
  EXPECT_EQ(links.Poll(), 1u);  // what it completed at its end counts
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(links.Poll(), 0u);
}

TEST_F(LinkTableTest, ANewLinkIsHeldBackUntilEveryOlderOneToItsServerHasEnded) {
  Add(3);
  Add(4);
  Learn();
  ScriptedLink* const first = links.Find(3);
  first->in_flight = 1;
  known->Remove(3);
  Add(3);
  Learn();
  ScriptedLink* const second = links.Find(3);
  ASSERT_NE(second, first);
  EXPECT_TRUE(second->held);
  EXPECT_FALSE(links.Find(4)->held);
  known->Remove(3);  // the second sent nothing
  Add(3);
  Learn();
  ScriptedLink* const third = links.Find(3);
  links.Poll();
  EXPECT_EQ(alive, 3);  // the first, the third, and server 4's
  EXPECT_TRUE(third->held);
  first->in_flight = 0;
  links.Poll();
  EXPECT_FALSE(third->held);
  EXPECT_EQ(alive, 2);
}

TEST_F(LinkTableTest, AnotherIncarnationAtTheSameAddressIsAnotherLife) {
  Add(3, 100);
  Learn();
  ScriptedLink* const first = links.Find(3);
  Add(3, 100);
  EXPECT_FALSE(links.stale());
  Add(3, 101);
  Learn();
  EXPECT_TRUE(first->retired);
  EXPECT_NE(links.Find(3), first);
  EXPECT_EQ(links.Find(3)->server().incarnation(), 101u);
}

TEST_F(LinkTableTest, AnUnsettledLifeIsSettledOnce) {
  Add(3);
  const KnownServers::Server server = known->Find(3);
  EXPECT_TRUE(server->Settle(100));
  EXPECT_FALSE(server->Settle(101));
  EXPECT_TRUE(server->Settle(100));
  EXPECT_EQ(server->incarnation(), 100u);
  Add(3, 100);
  EXPECT_EQ(known->Find(3), server);
}

TEST_F(LinkTableTest, AnIdIsKnownAtOneAddress) {
  Add(3, 1, "tcp:here");
  const Status status = known->Add({3, "tcp:there", 0, 1}, {}, KnownServer::Connects::kAtFirstPost);
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists) << status;
  known->Remove(3);
  Add(3, 1, "tcp:there");
}

// A relaxed load of the generation is enough, once it is known by other means that there is something.
TEST_F(LinkTableTest, WhoIsToldOfAServerLearnsOfIt) {
  std::atomic<int> told{-1};
  std::thread adds([&] {
    for (int i = 0; i < 2'000; ++i) {
      Add(static_cast<ServerId>(i));
      if (i > 0) known->Remove(static_cast<ServerId>(i - 1));
      told.store(i, std::memory_order_release);
    }
  });
  for (int seen = -1; seen < 1'999;) {
    seen = told.load(std::memory_order_acquire);
    if (links.stale()) Learn();
    for (int i = 0; i < seen; ++i) ASSERT_EQ(links.Find(static_cast<ServerId>(i)), nullptr) << i;
    links.Poll();
  }
  adds.join();
  EXPECT_NE(links.Find(1'999), nullptr);
  EXPECT_EQ(alive, 1);
}

}  // namespace
}  // namespace farleaf::dsm
