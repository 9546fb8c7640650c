#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/frontend/command_stats.h"
#include "server/frontend/operation_stats.h"
#include "server/metrics/http_listener.h"
#include "server/metrics/metrics_text.h"
#include "server/metrics/process_metrics.h"
#include "test/support/http_get.h"

namespace farleaf::server {
namespace {

using test::HttpAnswer;
using test::HttpGet;
using test::HttpSend;

TEST(MetricsTextTest, FamiliesHaveTheirSamplesTogetherWhoeverAddsThem) {
  MetricsText text;
  text.Gauge("b", "Help of b.", {}, 1.5);
  text.Counter("a_total", "Help of a.", {{"x", "1"}}, 2);
  text.Gauge("b", "Help of b.", {{"x", "y"}, {"z", "w"}}, 3);
  EXPECT_EQ(text.ToString(),
            "# HELP a_total Help of a.\n# TYPE a_total counter\na_total{x=\"1\"} 2\n"
            "# HELP b Help of b.\n# TYPE b gauge\nb 1.5\nb{x=\"y\",z=\"w\"} 3\n");
}

TEST(MetricsTextTest, LabelsAreEscaped) {
  MetricsText text;
  text.Gauge("a", "Help.", {{"tree", "quote \" backslash \\ line\nend"}}, 0);
  EXPECT_NE(text.ToString().find("a{tree=\"quote \\\" backslash \\\\ line\\nend\"} 0\n"),
            std::string::npos)
      << text.ToString();
}

TEST(MetricsTextTest, AHistogramIsCumulativeAndEndsWithAll) {
  MetricsText text;
  text.Histogram("h", "Help.", {{"x", "1"}}, {{{0.001, 2}, {0.002, 3}}, 5, 0.25});
  EXPECT_EQ(text.ToString(),
            "# HELP h Help.\n# TYPE h histogram\nh_bucket{x=\"1\",le=\"0.001\"} 2\n"
            "h_bucket{x=\"1\",le=\"0.002\"} 3\nh_bucket{x=\"1\",le=\"+Inf\"} 5\n"
            "h_sum{x=\"1\"} 0.25\nh_count{x=\"1\"} 5\n");
}

TEST(CommandStatsTest, LatenciesFallBelowTheirBounds) {
  EXPECT_EQ(LatencyBucketOf(0), 0u);
  EXPECT_EQ(LatencyBucketOf(999), 0u);
  EXPECT_EQ(LatencyBucketOf(1'000), 1u);
  EXPECT_EQ(LatencyBucketOf(1'999), 1u);
  EXPECT_EQ(LatencyBucketOf(2'000), 2u);
  EXPECT_EQ(LatencyBucketOf(16'777'216'000), kLatencyBounds);
  EXPECT_EQ(LatencyBucketOf(UINT64_MAX), kLatencyBounds);
  for (size_t i = 0; i < kLatencyBounds; ++i) {
    EXPECT_EQ(LatencyBucketOf(LatencyBoundUs(i) * 1'000 - 1), i);
  }
}

TEST(CommandStatsTest, WhatEndsTogetherIsCountedEachAndSpentOnce) {
  CommandStats stats(2);
  dsm::FabricCounts spent;
  spent.round_trips = 3;
  spent.reads = 4;
  spent.bytes_read = 500;
  stats.Record(1, CommandStats::Outcome::kOk, 1'500, spent, 7);
  stats.Record(1, CommandStats::Outcome::kFailed, 10, {});
  const CommandCounts counts = stats.Counts(1);
  EXPECT_EQ(counts.count, 8u);
  EXPECT_EQ(counts.failed, 1u);
  EXPECT_EQ(counts.spent, spent);
  EXPECT_EQ(counts.latency_ns, 7 * 1'500u + 10);
  EXPECT_EQ(counts.latencies[0], 1u);
  EXPECT_EQ(counts.latencies[1], 7u);
  EXPECT_EQ(stats.Counts(0).count, 0u);
}

TEST(OperationStatsTest, BucketsHoldWhatTheFineHistogramHolds) {
  OperationStats stats;
  uint64_t sum_us = 0;
  for (uint64_t us = 1; us < 40'000'000; us = us * 3 / 2 + 1) {
    sum_us += us;
    stats.Record({client::protocol::Opcode::kGet, StatusCode::kOk, us * 1'000, {}});
  }
  std::string text;
  stats.AppendTo(&text);
  const auto value = [&](const std::string& name) {
    const size_t at = text.find("get." + name + " ");
    return at == std::string::npos ? UINT64_MAX : std::stoull(text.substr(at + 5 + name.size()));
  };
  for (const uint64_t bound : {uint64_t{2}, uint64_t{64}, uint64_t{1} << 20, uint64_t{1} << 24}) {
    uint64_t below = 0;
    for (uint64_t us = 1; us < bound; us = us * 3 / 2 + 1) ++below;
    EXPECT_EQ(value("latency_us.below." + std::to_string(bound)), below) << bound << "\n" << text;
  }
}

// ---- Over HTTP

struct HttpListenerTest : ::testing::Test {
  std::atomic<int> made{0};
  std::unique_ptr<HttpListener> listener;

  void SetUp() override {
    HttpListener::Pages pages;
    pages["/one"] = [this] { return HttpPage{.body = "page " + std::to_string(++made)}; };
    pages["/sick"] = [] { return HttpPage{.status = 503, .body = "since"}; };
    auto started = HttpListener::Start("127.0.0.1:0", std::move(pages));
    ASSERT_TRUE(started.ok()) << started.status();
    listener = std::move(*started);
  }
  const std::string& url() const { return listener->url(); }
};

TEST_F(HttpListenerTest, PagesAreMadeWhenTheyAreAskedFor) {
  EXPECT_EQ(HttpGet(url(), "/one").body, "page 1");
  const HttpAnswer again = HttpGet(url(), "/one?ignored=1");
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(again.body, "page 2");
  EXPECT_NE(again.head.find("Content-Type: text/plain; charset=utf-8"), std::string::npos);
  EXPECT_EQ(HttpGet(url(), "/sick").status, 503);
}

TEST_F(HttpListenerTest, WhatIsNotThereIsSaidSo) {
  const HttpAnswer nowhere = HttpGet(url(), "/");
  EXPECT_EQ(nowhere.status, 404);
  EXPECT_EQ(nowhere.body, "here are /one /sick\n");
  EXPECT_EQ(HttpSend(url(), "DELETE /one HTTP/1.1\r\nConnection: close\r\n\r\n").status, 405);
  EXPECT_EQ(made.load(), 0);
}

TEST_F(HttpListenerTest, AHeadHasNoBody) {
  const HttpAnswer head = HttpSend(url(), "HEAD /one HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.body, "");
  EXPECT_NE(head.head.find("Content-Length: 6"), std::string::npos) << head.head;
}

TEST_F(HttpListenerTest, AConnectionIsKeptForMoreRequests) {
  test::TextClient client(url());
  for (int i = 1; i <= 3; ++i) {
    client.Send("GET /one HTTP/1.1\r\nHost: x\r\n\r\n");
    const std::string page = "page " + std::to_string(i);
    EXPECT_TRUE(client.ReceiveUntil(page).ends_with(page));
  }
}

TEST_F(HttpListenerTest, PipelinedRequestsAreAnsweredInTheirOrder) {
  test::TextClient client(url());
  client.Send("GET /one HTTP/1.1\r\n\r\nGET /one HTTP/1.1\r\nConnection: close\r\n\r\n");
  const std::string answers = client.ReceiveAll();
  EXPECT_LT(answers.find("page 1"), answers.find("page 2")) << answers;
}

TEST_F(HttpListenerTest, GarbageAndHeadsWithoutEndAreCutOff) {
  EXPECT_EQ(HttpSend(url(), "\x16\x03\x01 hello\r\n\r\n").status, 0);
  EXPECT_EQ(HttpSend(url(), "GET /one HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello").status, 0);
  const std::string long_head(64 << 10, 'x');
  EXPECT_EQ(HttpSend(url(), "GET /one HTTP/1.1\r\nX: " + long_head + "\r\n\r\n").status, 431);
  EXPECT_EQ(HttpGet(url(), "/one").body, "page 1");
}

TEST_F(HttpListenerTest, ManyMayWatchAtOnceAndLeaveWhenTheyLike) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this, i] {
      for (int j = 0; j < 50; ++j) {
        if (i % 2 == 0) {
          EXPECT_EQ(HttpGet(url(), "/sick").body, "since");
        } else {
          test::TextClient(url()).Send("GET /si");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HttpListenerAddressTest, AnAddressThatIsTakenIsRefused) {
  auto first = HttpListener::Start("127.0.0.1:0", {});
  ASSERT_TRUE(first.ok()) << first.status();
  const std::string address = (*first)->url().substr(std::string("http://").size());
  EXPECT_EQ(HttpListener::Start(address, {}).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(HttpListener::Start("nonsense", {}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace farleaf::server
