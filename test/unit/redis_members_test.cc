// Each command of Redis' protocol, and what it has changed as the other of two compute servers on one pool tells it.
#include <gtest/gtest.h>

#include "server/records/keyspace.h"
#include "test/support/record_members.h"
#include "test/support/redis_peer.h"
#include "test/support/redis_table.h"

namespace farleaf::test {
namespace {

struct RedisMembersTest : ::testing::Test {
  RecordMembers members{RecordMembersKind::kTwoOnOnePool};

  /// All there is to be asked about the keys that this member sees.
  std::string AllAt(size_t i) {
    RedisPeer peer(members.worker(i), {}, members.tree(i));
    std::string all = peer.Ask("RANGE - +\r\n");
    for (const index::KeyValue& row : members.Records(i)) {
      if (row.key[0] != server::kUserKeySpace) continue;
      const std::string key = row.key.substr(1);
      for (const auto& question :
           {Request({"TYPE", key}), Request({"PEXPIRETIME", key}), Request({"GET", key}),
            Request({"HGETALL", key}), Request({"ZRANGE", key, "0", "-1", "WITHSCORES"})}) {
        all += peer.Ask(question);
      }
    }
    return all;
  }
};

TEST_F(RedisMembersTest, BothTellTheSameBehindEachRowOfTheTables) {
  const size_t changes = ExpectBothTellTheSame<RedisPeer, server::redis::Limits>(
      &members, {RedisStringTable(), RedisCollectionTable(), RedisOwnTable()}, "FLUSHALL\r\n",
      [this](size_t i) { return AllAt(i); });
  EXPECT_GT(changes, 80u);
}

}  // namespace
}  // namespace farleaf::test
