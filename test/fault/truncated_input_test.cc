// Clients whose stream ends in the middle of a request, wherever that is: what was whole is answered, then they are told,
// and counted apart from those that the server cut off. Each is a client of the other of two compute servers on one pool
// than the one before.
#include <gtest/gtest.h>

#include "server/metrics/metrics_text.h"
#include "test/support/native_peer.h"
#include "test/support/native_under_test.h"
#include "test/support/record_dialect.h"
#include "test/support/text_client.h"

namespace farleaf::test {
namespace {

using Protocol = RecordDialect::Protocol;
namespace protocol = client::protocol;

const std::string kTold = "the stream ended in the middle of a request";

struct TruncatedInputTest : TwoOnOnePool {
  void SetUp() override {
    TwoOnOnePool::SetUp();
    ListenForRecords();
    options.memcached.limits.value_bytes_max = 500;
    options.redis.limits.value_bytes_max = 500;
    StartServer();
  }
  /// When all connections are closed.
  server::NativeServer::ConnectionCounts Counts() {
    AwaitOpen(0);
    return Connections();
  }
  /// What is answered to the first `bytes` of a stream that ends there.
  std::string AnswerTo(const RecordDialect& dialect, const std::string& stream, size_t bytes) {
    const size_t i = asked_++;
    TextClient client(dialect.redis() ? redis_url(i) : memcached_url(i));
    client.Send(std::string_view(stream).substr(0, bytes));
    client.HalfClose();
    return client.ReceiveAll();
  }

 private:
  size_t asked_ = 0;
};

// A set, a get, a value that is larger than the server takes, and is skipped, and a get.
TEST_F(TruncatedInputTest, AtEachByteOfRequestsOfMemcachedAndRedis) {
  for (const Protocol each : {Protocol::kMemcached, Protocol::kRedis}) {
    const RecordDialect dialect{each};
    const std::string value(20, 'v');
    const std::pair<std::string, std::string> requests[] = {
        {dialect.Set("k", value), dialect.stored()},
        {dialect.Get("k"), dialect.Found("k", value)},
        {dialect.Set("l", std::string(501, 'l')),
         dialect.redis() ? "-ERR an argument of 501 bytes; redis_value_bytes_max is 500\r\n"
                         : "SERVER_ERROR object too large for cache\r\n"},
        {dialect.Get("l"), dialect.absent()}};
    std::string stream, whole;
    uint64_t truncated = Counts().truncated;
    for (const auto& [request, answer] : requests) {
      for (size_t bytes = 1; bytes < request.size(); ++bytes) {
        // In the value that is skipped no byte is another case.
        if (bytes > 80 && bytes + 20 < request.size()) continue;
        const std::string told = AnswerTo(dialect, stream + request, stream.size() + bytes);
        // memcached's values are refused by their line, and skipped.
        const bool refused = !dialect.redis() && request.size() > 500 && bytes > request.find('\n');
        EXPECT_EQ(told, whole + (refused ? answer : "") + dialect.truncated()) << bytes;
        ++truncated;
      }
      stream += request;
      whole += answer;
      EXPECT_EQ(AnswerTo(dialect, stream, stream.size()), whole);
    }
    EXPECT_EQ(Counts().truncated, truncated);
  }
  EXPECT_EQ(Counts().refused, 0u);
}

TEST_F(TruncatedInputTest, NothingIsTruncatedBehindAQuit) {
  for (const Protocol each : {Protocol::kMemcached, Protocol::kRedis}) {
    const RecordDialect dialect{each};
    const std::string stream = dialect.ping() + dialect.quit() + dialect.HalfASet("k");
    EXPECT_EQ(AnswerTo(dialect, stream, stream.size()), dialect.pong() + dialect.farewell());
  }
  EXPECT_EQ(Counts().truncated, 0u);
}

TEST_F(TruncatedInputTest, AtEachByteOfTheNativeHelloAndABatch) {
  std::string hello, batch;
  protocol::AppendClientHello({}, &hello);
  protocol::Request request;
  request.id = 77;
  request.opcode = protocol::Opcode::kListTrees;
  protocol::AppendBatch(1, NativePeer::kView, request, &batch);
  constexpr size_t kIdEnds = protocol::kBatchHeaderBytes + 4 + 8;
  uint64_t truncated = 0;
  for (const std::string& url : {tcp_url(0), unix_url(1)}) {
    for (size_t bytes = 1; bytes < hello.size(); ++bytes, ++truncated) {
      NativePeer peer(url);
      peer.Send(hello.substr(0, bytes));
      peer.EndSending();
      const auto answer = peer.ReceiveHello();
      EXPECT_EQ(answer.code, StatusCode::kCorruption);
      EXPECT_EQ(answer.message, kTold);
      EXPECT_EQ(peer.Receive(), std::nullopt);
    }
    for (size_t bytes = 0; bytes < batch.size(); ++bytes) {
      NativePeer peer(url);
      // Behind one that is whole, and is answered.
      peer.Send(hello + batch + batch.substr(0, bytes));
      peer.EndSending();
      EXPECT_EQ(peer.ReceiveHello().code, StatusCode::kOk);
      auto body = peer.Receive();
      protocol::Response response;
      ASSERT_TRUE(body && protocol::ParseResponse(AsBytes(*body), &response).ok()) << bytes;
      EXPECT_EQ(response.code, StatusCode::kOk);
      if (bytes > 0) {
        ++truncated;
        body = peer.Receive();
        ASSERT_TRUE(body && protocol::ParseResponse(AsBytes(*body), &response).ok()) << bytes;
        EXPECT_EQ(response.code, StatusCode::kCorruption);
        EXPECT_EQ(response.message, kTold);
        EXPECT_EQ(response.id, bytes < kIdEnds ? 0u : 77u);
      }
      EXPECT_EQ(peer.Receive(), std::nullopt);
    }
  }
  EXPECT_EQ(Counts().truncated, truncated);
  EXPECT_EQ(Counts().refused, 0u);
}

TEST_F(TruncatedInputTest, IsCountedApartFromWhatTheServerRefuses) {
  const RecordDialect redis{Protocol::kRedis};
  const std::string half = redis.HalfASet("k");
  for (size_t i = 0; i < servers(); ++i) AnswerTo(redis, half, half.size());
  for (size_t i = 0; i < servers(); ++i) AnswerTo(redis, "*x\r\n", 4);
  const auto counts = Counts();
  EXPECT_EQ(counts.truncated, 2u);
  EXPECT_EQ(counts.refused, 2u);
  server::MetricsText metrics;
  server->AppendMetrics(&metrics);
  const std::string text = metrics.ToString();
  EXPECT_NE(text.find("\nfarleaf_connections_truncated_total 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nfarleaf_connections_refused_total 1\n"), std::string::npos) << text;
  EXPECT_NE(server->StatsText().find("connections.truncated 1\n"), std::string::npos);
}

}  // namespace
}  // namespace farleaf::test
