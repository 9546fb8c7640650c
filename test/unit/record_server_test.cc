// What holds of memcached's and of Redis' protocol alike, at servers: one over a map, and two compute servers on one
// pool.
#include <gtest/gtest.h>

#include <tuple>

#include "test/support/record_dialect.h"
#include "test/support/record_servers.h"
#include "test/support/test_scale.h"
#include "test/support/text_client.h"

namespace farleaf::test {
namespace {

using server::NativeServerOptions;
using Protocol = RecordDialect::Protocol;

struct RecordServerTest : ::testing::TestWithParam<std::tuple<RecordServersKind, Protocol>> {
  const RecordDialect dialect{std::get<1>(GetParam())};
  std::unique_ptr<RecordServers> all;

  void Start(const NativeServerOptions& options = {}) {
    all = StartRecordServers(std::get<0>(GetParam()), options);
  }
  TextClient Connect(size_t i) const {
    return TextClient(dialect.redis() ? all->redis_url(i) : all->memcached_url(i));
  }
};
INSTANTIATE_TEST_SUITE_P(All, RecordServerTest,
                         ::testing::Combine(kAllRecordServers,
                                            ::testing::Values(Protocol::kMemcached,
                                                              Protocol::kRedis)),
                         [](const auto& kind) {
                           return RecordDialect{std::get<1>(kind.param)}.name() +
                                  RecordServersNameOf(std::get<0>(kind.param));
                         });

TEST_P(RecordServerTest, HalfClosedConnectionGetsAllItsAnswers) {
  Start();
  TextClient client = Connect(0), other = Connect(1);
  std::string requests, answers;
  for (int i = 0; i < 500; ++i) {
    requests += dialect.Set("h", "x") + dialect.Get("h");
    answers += dialect.stored() + dialect.Found("h", "x");
  }
  client.Send(requests + dialect.HalfASet("half"));
  client.HalfClose();
  EXPECT_EQ(client.ReceiveAll(), answers + dialect.truncated());
  EXPECT_EQ(dialect.Ask(other, dialect.Get("half")), dialect.absent());
}

TEST_P(RecordServerTest, ConnectionsBeyondTheLimitAreToldAndClosed) {
  NativeServerOptions options;
  options.connections_max = 2;
  Start(options);
  TextClient first = Connect(0), second = Connect(0);
  EXPECT_EQ(dialect.Ask(first, dialect.ping()), dialect.pong());
  EXPECT_EQ(dialect.Ask(second, dialect.ping()), dialect.pong());
  TextClient third = Connect(0);
  EXPECT_EQ(third.ReceiveAll(), dialect.too_many());
  EXPECT_EQ(dialect.Ask(first, dialect.ping()), dialect.pong());
}

TEST_P(RecordServerTest, OthersAreServedWhileOneDoesNotRead) {
  NativeServerOptions options;
  options.threads = 1;
  options.memcached.limits.out_bytes_max = options.redis.limits.out_bytes_max = 64 << 10;
  Start(options);
  TextClient slow = Connect(0), other = Connect(0);
  const std::string value(50'000, 'v');
  EXPECT_EQ(dialect.Ask(slow, dialect.Set("k", value)), dialect.stored());
  const uint64_t gets =
      test::Amount{600, 2'000};  // 30 or 100 MB of answers, which no buffer of a socket takes
  for (uint64_t i = 0; i < gets; ++i) slow.Send(dialect.Get("k"));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(dialect.Ask(other, dialect.ping()), dialect.pong());
  slow.Send(dialect.quit());
  EXPECT_EQ(slow.ReceiveAll().size(),
            gets * dialect.Found("k", value).size() + dialect.farewell().size());
}

TEST_P(RecordServerTest, StopAnswersWhatWasSentAndEndsSlowReadersToo) {
  NativeServerOptions options;
  options.drain_ms = 300;
  Start(options);
  TextClient idle = Connect(0), slow = Connect(0);
  EXPECT_EQ(dialect.Ask(slow, dialect.Set("k", std::string(100'000, 'v'))), dialect.stored());
  for (int i = 0; i < 1'000; ++i) slow.Send(dialect.Get("k"));
  EXPECT_EQ(dialect.Ask(idle, dialect.ping()), dialect.pong());
  for (const auto& server : all->servers) server->Stop();
  EXPECT_EQ(idle.ReceiveAll(), "");
}

}  // namespace
}  // namespace farleaf::test
