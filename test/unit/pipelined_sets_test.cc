// Sets that a client of memcached or Redis sends without waiting, at a server whose store syncs what it acknowledges.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "test/support/lsm_trees.h"
#include "test/support/record_dialect.h"
#include "test/support/record_servers.h"
#include "test/support/text_client.h"

namespace farleaf::test {
namespace {

using Protocol = RecordDialect::Protocol;

class SyncedServer final : public RecordServers {
 public:
  SyncedServer() {
    server::NativeServerOptions options;
    options.threads = 1;
    Serve(&trees_.host(), std::move(options));
  }
  ~SyncedServer() override { servers.clear(); }
  uint64_t syncs() { return trees_.store().storage().counts().syncs; }

 private:
  static LsmHost::Options Options() {
    LsmHost::Options options{LsmHost::SmallStore()};
    options.store.durability = index::lsm::Durability::kSynced;
    return options;
  }
  LsmTrees trees_{Options()};
};

struct PipelinedSetsTest : ::testing::TestWithParam<Protocol> {
  const RecordDialect dialect{GetParam()};
  SyncedServer server;
  TextClient client{dialect.redis() ? server.redis_url(0) : server.memcached_url(0)};
};
INSTANTIATE_TEST_SUITE_P(Protocols, PipelinedSetsTest,
                         ::testing::Values(Protocol::kMemcached, Protocol::kRedis),
                         [](const auto& kind) { return RecordDialect{kind.param}.name(); });

TEST_P(PipelinedSetsTest, AreSyncedTogether) {
  constexpr int kSets = 60;
  ASSERT_EQ(dialect.Ask(client, dialect.Set("k", "0")), dialect.stored());
  uint64_t fewest = UINT64_MAX;
  for (int round = 0; round < 20; ++round) {  // one of them arrives in one piece, or in a few
    std::string requests, answers;
    for (int i = 0; i < kSets; ++i) {
      // Each third is of a key that the one before has.
      requests += dialect.Set("k" + std::to_string(i - (i % 3 == 2)), std::to_string(i));
      answers += dialect.stored();
    }
    requests += dialect.Get("k1") + dialect.Get("k0");
    answers += dialect.Found("k1", "2") + dialect.Found("k0", "0");
    const uint64_t before = server.syncs();
    ASSERT_EQ(dialect.Ask(client, requests), answers);
    fewest = std::min(fewest, server.syncs() - before);
  }
  EXPECT_LE(fewest, 4u) << "of " << kSets << " sets that were sent at once";
}

}  // namespace
}  // namespace farleaf::test
