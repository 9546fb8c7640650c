// What a connection of each protocol holds of its server's memory, at most: four times the sum that server/README.md
// names, at two compute servers on one pool, half of the connections at each. Each has the worst peers: some ask for far more than that and do not read it, the others send all of a large
// request but its end.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

#include "test/support/allocated_bytes.h"
#include "test/support/native_peer.h"
#include "test/support/record_dialect.h"

namespace farleaf::test {
namespace {

using Protocol = RecordDialect::Protocol;

constexpr size_t kBlock = 64 << 10;
// The options that the sums are of.
constexpr size_t kOutMax = 128 << 10, kValueMax = 64 << 10, kLineMax = 8 << 10, kInFlightMax = 4;
constexpr size_t kRequestMax = 80 << 10, kReplyMax = 64 << 10;
/// Of what is asked for; `kGets` of them are more than four times any of the sums and what the kernel takes of them.
constexpr size_t kValue = 4'000, kGets = 8'000;
constexpr size_t kKeysTogetherMax = 256;
constexpr uint64_t kConnections = 16;

struct ConnectionMemoryTest : TwoOnOnePool {
  void SetUp() override {
    TwoOnOnePool::SetUp();
    if (!AllocatedBytes()) GTEST_SKIP() << "a sanitizer's allocator";
    Add("t");
    ListenForRecords();
    options.connection = {
        .in_flight_max = kInFlightMax, .out_bytes_max = kOutMax, .value_bytes_max = kValueMax};
    options.memcached.limits = {
        .line_bytes_max = kLineMax, .value_bytes_max = kValueMax, .out_bytes_max = kOutMax};
    options.redis.limits.value_bytes_max = kValueMax;
    options.redis.limits.request_bytes_max = kRequestMax;
    options.redis.limits.reply_bytes_max = kReplyMax;
    options.redis.limits.out_bytes_max = kOutMax;
    StartServer();
    const RecordDialect redis{Protocol::kRedis};
    TextClient writer(redis_url());
    ASSERT_EQ(redis.Ask(writer, redis.Set("v", std::string(kValue, 'v'))), redis.stored());
    // At both, so that their caches have what they keep.
    for (size_t i = 0; i < servers(); ++i) {
      const auto connected = Connect(tcp_url(i));
      auto tree = connected->OpenTree("t");
      ASSERT_TRUE(tree.ok()) << tree.status();
      ASSERT_TRUE(tree->Put("v", std::string(kValue, 'v')).ok());
    }
  }
  /// Connections that are made and used by `connect`, at the server of its argument, hold about `least` or more, once they all have come so far, and
  /// never more than four times `sum`.
  template <typename Connection>
  void ExpectHeld(size_t least, size_t sum, const std::function<Connection(size_t)>& connect) {
    constexpr uint64_t kMoreMs = 300;
    ASSERT_TRUE(AwaitOpen(0));  // those that have filled it are gone
    const size_t before = *AllocatedBytes();
    std::vector<Connection> connections;
    for (uint64_t i = 0; i < kConnections; ++i) connections.push_back(connect(i));
    const uint64_t end_ns = clock.NowNs() + kPatienceMs * kNsPerMs;
    size_t most = 0;
    // And for a while behind that: whatever the server still takes.
    for (uint64_t enough_ns = 0; clock.NowNs() < end_ns;) {
      most = std::max(most, *AllocatedBytes());
      if (most >= before + kConnections * least / 2 && enough_ns == 0) enough_ns = clock.NowNs();
      if (enough_ns != 0 && clock.NowNs() > enough_ns + kMoreMs * kNsPerMs) break;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    ASSERT_GT(most, before);
    const size_t each = (most - before) / kConnections;
    RecordProperty("bytes of each", std::to_string(each) + " of " + std::to_string(4 * sum));
    EXPECT_GE(each, least / 2);
    EXPECT_LE(each, 4 * sum);
    ExpectServing();
  }
  const std::string& url(const RecordDialect& dialect, size_t i) const {
    return dialect.redis() ? redis_url(i) : memcached_url(i);
  }
  void ExpectHeldForASlowReader(const RecordDialect& dialect, size_t sum) {
    std::string absent, gets;
    for (size_t i = 0; i < 4 * kKeysTogetherMax; ++i) absent += dialect.Get("n");
    for (size_t i = 0; i < kGets; ++i) gets += dialect.Get("v");
    ExpectHeld<std::unique_ptr<TextClient>>(kOutMax, sum, [&](size_t i) {
      auto peer = std::make_unique<TextClient>(url(dialect, i));
      // Of what is not there very many are read at once.
      EXPECT_EQ(dialect.Ask(*peer, absent).size(), 4 * kKeysTogetherMax * dialect.absent().size());
      peer->Send(gets);
      return peer;
    });
  }
  void ExpectHeldForALargeRequest(const RecordDialect& dialect, size_t sum) {
    const std::string set = dialect.Set("k", std::string(kValueMax, 'k'));
    ExpectHeld<std::unique_ptr<TextClient>>(kValueMax, sum, [&](size_t i) {
      auto peer = std::make_unique<TextClient>(url(dialect, i));
      peer->Send(std::string_view(set).substr(0, set.size() - 1));
      return peer;
    });
  }
  void ExpectHeldNatively(size_t least, client::protocol::Request request, size_t times,
                          size_t cut) {
    constexpr size_t kSum = kOutMax + 2 * kValueMax + (1 << 20) + kInFlightMax * (kBlock + kValue);
    ExpectHeld<std::unique_ptr<NativePeer>>(least, kSum, [&](size_t i) {
      auto peer = std::make_unique<NativePeer>(tcp_url(i));
      request.tree = peer->Open("t");
      std::string frames;
      for (size_t each = 0; each < times; ++each) {
        client::protocol::AppendBatch(0, NativePeer::kView, request, &frames);
      }
      peer->Send(std::string_view(frames).substr(0, frames.size() - cut));
      return peer;
    });
  }
};

constexpr size_t kMemcachedSum =
    kBlock + kLineMax + kValueMax + kOutMax + kKeysTogetherMax * kValue;
constexpr size_t kRedisSum =
    kBlock + kRequestMax + 3 * 48 + kOutMax + kReplyMax + kKeysTogetherMax * kValue;

TEST_F(ConnectionMemoryTest, OfMemcachedsSlowReaderIsBounded) {
  ExpectHeldForASlowReader({Protocol::kMemcached}, kMemcachedSum);
}
TEST_F(ConnectionMemoryTest, OfMemcachedsLargeRequestIsBounded) {
  ExpectHeldForALargeRequest({Protocol::kMemcached}, kMemcachedSum);
}
TEST_F(ConnectionMemoryTest, OfRedisSlowReaderIsBounded) {
  ExpectHeldForASlowReader({Protocol::kRedis}, kRedisSum);
}
TEST_F(ConnectionMemoryTest, OfRedisLargeRequestIsBounded) {
  ExpectHeldForALargeRequest({Protocol::kRedis}, kRedisSum);
}
TEST_F(ConnectionMemoryTest, OfANativeSlowReaderIsBounded) {
  client::protocol::Request get;
  get.opcode = client::protocol::Opcode::kGet;
  get.key = "v";
  ExpectHeldNatively(kOutMax / 2, get, kGets, 0);
}
TEST_F(ConnectionMemoryTest, OfANativeLargeRequestIsBounded) {
  const std::string value(kValueMax, 'k');
  client::protocol::Request put;
  put.opcode = client::protocol::Opcode::kPut;
  put.key = "k";
  put.value = value;
  ExpectHeldNatively(kValueMax, put, 1, 1);
}

}  // namespace
}  // namespace farleaf::test
