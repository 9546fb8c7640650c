// A compute server dies at a verb, or in the middle of a WRITE, of each kind of change of a sorted set or a hash; another
// one that has been at the same collections all along finds them right at once: each score that it meets is the
// member's, and each member is met. What was left goes when nobody can be at it any more.
#include <gtest/gtest.h>

#include <map>

#include "test/support/crashing_member.h"
#include "test/support/options_off.h"
#include "test/support/record_sweeps.h"
#include "test/support/redis_peer.h"

namespace farleaf::test {
namespace {

/// A compute server that speaks Redis' protocol.
struct RedisMember {
  RedisMember(dsm::LocalFabric* servers, ManualClock* clock, const CrashingMember::Options& options,
              bool creates)
      : member(servers, clock, options, creates),
        peer(std::make_unique<RedisPeer>(member.worker.get(), server::redis::Limits(),
                                         member.tree.get())) {}

  std::string Ask(std::string_view request) {
    const size_t before = peer->received().size();
    peer->Send(&request, SIZE_MAX);
    while (peer->connection().in_flight() > 0) member.worker->RunOnce(dsm::Worker::Idle::kBlock);
    peer->Receive(SIZE_MAX);
    return peer->received().substr(before);
  }

  CrashingMember member;
  std::unique_ptr<RedisPeer> peer;  // destroyed first
};

std::string Bulk(const std::string& text) {
  return "$" + std::to_string(text.size()) + "\r\n" + text + "\r\n";
}

class CollectionCrashTest : public ::testing::TestWithParam<OptionsCase> {
 protected:
  CollectionCrashTest() {
    RedisMember builder(servers_.get(), &clock_, options_, true);
    builder.Ask("ZADD z 1 a 2 b\r\nHSET h a 1 b 1\r\n");
    builder.peer.reset();
    builder.member.Leave();
    snapshot_.emplace(servers_.get());
  }
  /// The change dies at that verb. Whether it did not come to its end before.
  bool Die(std::string_view change, uint64_t verb, uint64_t tear_seed) {
    RedisMember victim(servers_.get(), &clock_, options_, false);
    victim.member.plan.verbs_left = verb;
    victim.member.plan.tear_seed = tear_seed;
    victim.Ask(change);
    const bool died = victim.member.plan.dead;
    victim.member.Die(*servers_);
    return died;
  }
  /// By score, of those that have one.
  static void ExpectSortedSet(RedisMember& survivor, const std::string& key) {
    std::multimap<double, std::pair<std::string, std::string>> members;
    for (const std::string member : {"a", "b", "new"}) {
      const std::string score = survivor.Ask("ZSCORE " + key + " " + member + "\r\n");
      if (score != "$-1\r\n") {
        members.insert({std::stod(score.substr(score.find('\n') + 1)), {member, score}});
      }
    }
    std::string range = "*" + std::to_string(2 * members.size()) + "\r\n";
    for (const auto& [score, member] : members) range += Bulk(member.first) + member.second;
    const std::string count = ":" + std::to_string(members.size()) + "\r\n";
    EXPECT_EQ(survivor.Ask("ZRANGE " + key + " 0 -1 WITHSCORES\r\n"), range);
    EXPECT_EQ(survivor.Ask("ZRANGEBYSCORE " + key + " -inf +inf WITHSCORES\r\n"), range);
    EXPECT_EQ(survivor.Ask("ZCARD " + key + "\r\nZCOUNT " + key + " -inf +inf\r\n"), count + count);
  }
  static void ExpectHash(RedisMember& survivor, const std::string& key) {
    std::string all, head;
    int fields = 0;
    for (const std::string field : {"a", "b", "new"}) {
      const std::string value = survivor.Ask("HGET " + key + " " + field + "\r\n");
      if (value == "$-1\r\n") continue;
      all += Bulk(field) + value;
      ++fields;
    }
    EXPECT_EQ(
        survivor.Ask("HGETALL " + key + "\r\nHLEN " + key + "\r\n"),
        "*" + std::to_string(2 * fields) + "\r\n" + all + ":" + std::to_string(fields) + "\r\n");
  }
  /// All that is in the tree.
  static size_t Rows(RedisMember& survivor) {
    std::vector<index::KeyValue> rows;
    dsm::OpContext op = survivor.member.Op();
    EXPECT_TRUE(survivor.member.worker->Run(survivor.member.tree->Scan(op, {}, &rows)).ok());
    return rows.size();
  }
  /// Dies at each verb of the change, one after the other, ahead of it and in the middle of it. Returns how many there are.
  uint64_t DieAtEachVerb(std::string_view change, std::string_view unchanged,
                         std::string_view answer) {
    for (uint64_t verb = 0;; ++verb) {
      const bool died = DieAndLookAt(change, verb, 0, unchanged, answer);
      if (!died || HasFailure()) return verb;
      DieAndLookAt(change, verb, 77 + verb, unchanged, answer);
    }
  }
  bool DieAndLookAt(std::string_view change, uint64_t verb, uint64_t tear_seed,
                    std::string_view unchanged, std::string_view answer) {
    SCOPED_TRACE(std::string(change) + "verb " + std::to_string(verb) + ", tear seed " +
                 std::to_string(tear_seed));
    snapshot_->Restore();
    RedisMember survivor(servers_.get(), &clock_, options_, false);
    EXPECT_EQ(survivor.Ask("ZCARD z\r\nHLEN h\r\n"), ":2\r\n:2\r\n");
    const bool died = Die(change, verb, tear_seed);
    for (const char* key : {"z", "y"}) ExpectSortedSet(survivor, key);
    for (const char* key : {"h", "g"}) ExpectHash(survivor, key);
    EXPECT_EQ(survivor.Ask(unchanged), answer);
    // A change in doubt takes effect when its leaf is next written to: behind this ZADD, if it is a DEL.
    survivor.Ask("ZADD z 8 a\r\n");
    // Whoever comes next is not in the way of what was left, and nothing of it stays.
    EXPECT_EQ(survivor.Ask("ZADD z 7 a\r\nZSCORE z a\r\n").substr(4), "$1\r\n7\r\n");
    EXPECT_EQ(survivor.Ask("HSET h a 7\r\nHGET h a\r\n").substr(4), "$1\r\n7\r\n");
    survivor.Ask("ZREM z a b new\r\nZREM y a b new\r\nHDEL h a b new\r\nHDEL g a b new\r\n");
    RecordSweeps sweeps(survivor.member.worker.get());
    sweeps.WaitAndSweep(survivor.peer->store(), &survivor.peer->wall());
    EXPECT_EQ(survivor.Ask("EXISTS z y h g\r\n"), ":0\r\n");
    EXPECT_EQ(Rows(survivor), 0u);
    survivor.peer.reset();
    survivor.member.Die(*servers_);
    return died;
  }

  ManualClock clock_;
  const CrashingMember::Options options_{index::Geometry::Bytes(), Without(GetParam().off)};
  std::unique_ptr<dsm::LocalFabric> servers_ =
      std::move(*dsm::LocalFabric::Create({.servers = 2,
                                           .region_bytes = uint64_t{3} << 20,
                                           .chunk_bytes = dsm::kChunkBytesMin,
                                           .hugepages = dsm::Hugepages::kNever}));
  std::optional<RegionSnapshot> snapshot_;
};

TEST_P(CollectionCrashTest, AtEachVerbOfAChangeOfASortedSet) {
  const std::string b = "ZSCORE z b\r\n", two = "$1\r\n2\r\n";
  // Head, score; claim, exchange, disclaim.
  EXPECT_GT(DieAtEachVerb("ZADD z 9 a\r\n", b, two), 10u);
  EXPECT_GT(DieAtEachVerb("ZADD z 9 new\r\n", b, two), 10u);
  EXPECT_GT(DieAtEachVerb("ZADD y 1 a\r\n", b, two), 10u);
  EXPECT_GT(DieAtEachVerb("ZINCRBY z 3 a\r\n", b, two), 10u);
  EXPECT_GT(DieAtEachVerb("ZREM z a\r\n", b, two), 10u);
  EXPECT_GT(DieAtEachVerb("ZADD z 9 a 8 new\r\n", b, two), 20u);
  EXPECT_GT(DieAtEachVerb("ZADD y 9 a 8 b 7 new\r\n", b, two), 20u);
  EXPECT_GT(DieAtEachVerb("EXPIRE z 100\r\n", b, two), 3u);
  EXPECT_GT(DieAtEachVerb("DEL z\r\n", "HGET h b\r\n", "$1\r\n1\r\n"), 3u);
}

TEST_P(CollectionCrashTest, AtEachVerbOfAChangeOfAHash) {
  const std::string b = "HGET h b\r\n", one = "$1\r\n1\r\n";
  EXPECT_GT(DieAtEachVerb("HSET h a 2\r\n", b, one), 3u);
  EXPECT_GT(DieAtEachVerb("HSET h new 2\r\n", b, one), 10u);
  EXPECT_GT(DieAtEachVerb("HSET g a 1\r\n", b, one), 10u);
  EXPECT_GT(DieAtEachVerb("HSET h a 2 new 3\r\n", b, one), 10u);
  EXPECT_GT(DieAtEachVerb("HSET g a 2 b 3 new 4\r\n", b, one), 20u);
  EXPECT_GT(DieAtEachVerb("HINCRBY h a 5\r\n", b, one), 3u);
  EXPECT_GT(DieAtEachVerb("HINCRBY h new 5\r\n", b, one), 10u);
  EXPECT_GT(DieAtEachVerb("HSETNX h new 2\r\n", b, one), 10u);
  EXPECT_GT(DieAtEachVerb("HSETNX g a 2\r\n", b, one), 10u);
  EXPECT_GT(DieAtEachVerb("EXPIRE h 100\r\n", b, one), 3u);
  EXPECT_GT(DieAtEachVerb("HDEL h a\r\n", b, one), 5u);
}

INSTANTIATE_TEST_SUITE_P(Options, CollectionCrashTest, ::testing::ValuesIn(AllOnAndAllOff()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace farleaf::test
