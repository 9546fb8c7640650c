// Each command of memcached's protocol, and what it has changed as the other of two compute servers on one pool tells it.
#include <gtest/gtest.h>

#include "server/records/keyspace.h"
#include "test/support/memcached_peer.h"
#include "test/support/memcached_table.h"
#include "test/support/record_members.h"

namespace farleaf::test {
namespace {

struct MemcachedMembersTest : ::testing::Test {
  RecordMembers members{RecordMembersKind::kTwoOnOnePool};

  /// All there is to be asked about the keys that this member sees.
  std::string AllAt(size_t i) {
    MemcachedPeer peer(members.worker(i), {}, members.tree(i));
    std::string all;
    for (const index::KeyValue& row : members.Records(i)) {
      if (row.key[0] == server::kUserKeySpace) {
        all += peer.Ask("me " + row.key.substr(1) + "\r\ngets " + row.key.substr(1) + "\r\n");
      }
    }
    return all;
  }
};

TEST_F(MemcachedMembersTest, BothTellTheSameBehindEachRowOfTheTables) {
  const size_t changes = ExpectBothTellTheSame<MemcachedPeer, server::memcached::Limits>(
      &members, {ClassicTable(), MetaTable(), OwnTable()}, "flush_all\r\n",
      [this](size_t i) { return AllAt(i); });
  EXPECT_GT(changes, 30u);
}

}  // namespace
}  // namespace farleaf::test
