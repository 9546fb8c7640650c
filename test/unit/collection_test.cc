// Collections whose changes ended half-way, as where a compute server dies: what is read is right at once, and what was
// left is gone when nobody can be at it any more.
#include <gtest/gtest.h>

#include <cmath>

#include "server/records/sorted_set.h"
#include "test/support/record_sweeps.h"
#include "test/support/redis_peer.h"

namespace farleaf::test {
namespace {

struct CollectionTest : ::testing::Test {
  MonotonicClock clock;
  MapTreeHost host{&clock};
  std::unique_ptr<dsm::Worker> worker = std::move(*host.OpenWorker());
  RedisPeer peer{worker.get(), {}};
  const server::CollectionStore collections{&peer.store()};
  RecordSweeps sweeps{worker.get()};

  std::string Ask(std::string_view request) { return peer.Ask(request); }
  /// From its `calls`-th call of the tree on, nothing of the request is done. Whether there was such a call.
  bool AskAndDie(std::string_view request, uint64_t calls) {
    uint64_t called = 0;
    peer.index().set_before([&called, calls](dsm::OpContext&) -> dsm::Task<Status> {
      co_return called++ < calls ? Status::Ok() : Status::Unavailable("the server is dead");
    });
    Ask(request);
    peer.index().set_before(nullptr);
    return called > calls;
  }
  /// As somebody may have left it who is none of ours, or a disk.
  void Put(const std::string& tree_key, const std::string& value) {
    dsm::FabricCounts counts;
    dsm::OpContext op{*worker, counts};
    ASSERT_TRUE(worker->Run(peer.index().Put(op, tree_key, value)).ok());
  }
  /// All entries of this kind.
  void Damage(server::EntryKind kind, const std::string& value) {
    for (const auto& [key, stored] : peer.index().Content()) {
      const auto entry = server::ParseMemberKey(key);
      if (entry && entry->kind == kind) Put(key, value);
    }
  }
  void Sweep() { sweeps.Sweep(peer.store()); }
  void WaitAndSweep() { sweeps.WaitAndSweep(peer.store(), &peer.wall()); }
};

TEST_F(CollectionTest, ScoreThatIsNotTheMembersIsInvisibleAndGoesLater) {
  Ask("ZADD z 1 a\r\nZADD z 2 b\r\n");
  const size_t whole = peer.index().size();
  // After its claim of score 9: two reads, and the claim.
  ASSERT_TRUE(AskAndDie("ZADD z 9 a\r\n", 3));
  EXPECT_EQ(peer.index().size(), whole + 1);
  const std::string both = "*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n";
  EXPECT_EQ(Ask("ZRANGE z 0 -1 WITHSCORES\r\nZCOUNT z 9 9\r\nZCARD z\r\n"), both + ":0\r\n:2\r\n");
  Sweep();
  EXPECT_EQ(peer.index().size(), whole + 1) << "it may be somebody's who is about to set the score";
  WaitAndSweep();
  EXPECT_EQ(peer.index().size(), whole);
  EXPECT_EQ(Ask("ZRANGE z 0 -1 WITHSCORES\r\n"), both);
}

TEST_F(CollectionTest, EveryPlaceToDieInAChangeOfASortedSet) {
  for (const std::string_view change :
       {"ZADD z 2 a\r\n", "ZADD z 2 new\r\n", "ZREM z a\r\n", "ZADD y 1 a\r\n"}) {
    for (uint64_t calls = 0;; ++calls) {
      Ask("FLUSHALL\r\n");
      WaitAndSweep();
      ASSERT_EQ(peer.index().size(), 0u);
      Ask("ZADD z 1 a 1 b\r\n");
      const bool died = AskAndDie(change, calls);
      // What the members say, and what the scores say, are the same.
      for (const char* key : {"z", "y"}) {
        std::string expected;
        size_t members = 0;
        for (const char* member : {"a", "b", "new"}) {
          const std::string score = Ask(Request({"ZSCORE", key, member}));
          if (score == "$-1\r\n") continue;
          ++members;
          EXPECT_NE(Ask(Request({"ZRANGE", key, "-inf", "+inf", "BYSCORE", "WITHSCORES"}))
                        .find("$" + std::to_string(std::string(member).size()) + "\r\n" + member +
                              "\r\n" + score),
                    std::string::npos)
              << change << calls;
        }
        const std::string count = ":" + std::to_string(members) + "\r\n";
        EXPECT_EQ(Ask(Request({"ZCARD", key})) + Ask(Request({"ZCOUNT", key, "-inf", "+inf"})),
                  count + count)
            << change << calls;
      }
      // And nothing is lost, or left for ever.
      Ask("ZADD z 7 a\r\nZREM z a b new\r\nZREM y a\r\n");
      WaitAndSweep();
      EXPECT_EQ(peer.index().size(), 0u) << change << calls;
      EXPECT_EQ(Ask("EXISTS z y\r\n"), ":0\r\n");
      if (!died) break;
    }
  }
}

TEST_F(CollectionTest, EveryPlaceToDieInAChangeOfAHash) {
  for (const std::string_view change :
       {"HSET h a 2\r\n", "HSET h new 2\r\n", "HDEL h a\r\n", "HSET g a 1\r\n", "DEL h\r\n"}) {
    for (uint64_t calls = 0;; ++calls) {
      Ask("FLUSHALL\r\n");
      WaitAndSweep();
      ASSERT_EQ(peer.index().size(), 0u);
      Ask("HSET h a 1 b 1\r\n");
      const bool died = AskAndDie(change, calls);
      for (const char* key : {"h", "g"}) {
        int64_t fields = 0;
        for (const char* field : {"a", "b", "new"})
          fields += Ask(Request({"HEXISTS", key, field})) == ":1\r\n";
        EXPECT_EQ(Ask(Request({"HLEN", key})), ":" + std::to_string(fields) + "\r\n")
            << change << calls;
        if (fields == 0) continue;
        EXPECT_EQ(Ask(Request({"EXISTS", key})), ":1\r\n") << change << calls;
      }
      Ask("HDEL h a b new\r\nHDEL g a\r\n");
      WaitAndSweep();
      EXPECT_EQ(peer.index().size(), 0u) << change << calls;
      if (!died) break;
    }
  }
}

TEST_F(CollectionTest, MembersOfAGenerationThatIsGoneAreInvisibleAndGoAtTheNextTurn) {
  Ask("HSET h a 1 b 2\r\nSET h string\r\nDEL h\r\nHSET h c 3\r\n");
  EXPECT_EQ(Ask("HGETALL h\r\nHGET h a\r\n"), "*2\r\n$1\r\nc\r\n$1\r\n3\r\n$-1\r\n");
  EXPECT_EQ(peer.index().size(), 4u);
  Sweep();
  EXPECT_EQ(peer.index().size(), 2u) << "a head and a field";
}

TEST_F(CollectionTest, MemberKeysComeApartAsTheyWere) {
  using server::EntryKind;
  const std::string key("a\0\xff\0b", 5), rest("\0x", 2);
  const auto parsed =
      server::ParseMemberKey(server::MemberPrefix(key, 77, EntryKind::kScore) + rest);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->collection, key);
  EXPECT_EQ(parsed->generation, 77u);
  EXPECT_EQ(parsed->kind, EntryKind::kScore);
  const std::string whole = server::MemberPrefix("k", 1, EntryKind::kField);
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(server::ParseMemberKey(std::string_view(whole).substr(0, bytes))) << bytes;
  }
  double last = -HUGE_VAL;
  for (const double score : {-1e300, -2.0, -1.0, -0.5, 0.0, 1e-300, 1.0, 1.5, 1e300, HUGE_VAL}) {
    EXPECT_LT(server::ScoreBytes(last), server::ScoreBytes(score));
    EXPECT_EQ(*server::ParseScore(server::ScoreBytes(score)), score);
    last = score;
  }
  EXPECT_EQ(server::ScoreBytes(-0.0), server::ScoreBytes(0.0));
}

/// A second zero, no number, and of another size.
const std::string kDamagedScores[] = {"\x7f" + std::string(7, '\xff'), std::string(8, '\xff'),
                                      "\xbf\xf0"};

// Rather than to wait for a score to become what it can never be.
TEST_F(CollectionTest, DamagedScoreIsTold) {
  for (const std::string& damaged : kDamagedScores) {
    EXPECT_EQ(server::ParseScore(damaged).status().code(), StatusCode::kCorruption);
    Ask("FLUSHALL\r\n");
    Ask("ZADD z 1 a\r\n");
    Damage(server::EntryKind::kMember, damaged);
    for (const char* command : {"ZADD z 2 a\r\n", "ZADD z 0 a\r\n", "ZINCRBY z 1 a\r\n",
                                "ZSCORE z a\r\n", "ZSCAN z 0\r\n", "ZREM z a\r\n"}) {
      const std::string answer = Ask(command);
      EXPECT_NE(answer.find("a member's score"), std::string::npos) << command << answer;
    }
  }
}

TEST_F(CollectionTest, SweepGoesOnBehindWhatIsDamaged) {
  Ask("HSET a f 1\r\nHSET z f 1\r\nSET z string\r\n");
  Put(std::string(1, server::kUserKeySpace) + "a", "no record");
  const size_t before = peer.index().size();
  Sweep();
  EXPECT_EQ(peer.index().size(), before - 1) << "the field of z is gone";
}

}  // namespace
}  // namespace farleaf::test
