// How often a server's threads ask the system for sockets' events: with nothing to do they wait, and the more comes at a
// time, the fewer calls a request takes.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "test/support/native_under_test.h"

namespace farleaf::server {
namespace {

struct EventCallsTest : test::OneOverMaps {
  void SetUp() override {
    OneOverMaps::SetUp();
    options.threads = 1;
    host.Add("t");
  }
  /// What `count` has become when it has reached `least`, or patience has ended.
  template <typename Count>
  NativeServer::ConnectionCounts Await(Count count, uint64_t least) const {
    const uint64_t end_ns = clock.NowNs() + test::kPatienceMs * kNsPerMs;
    while (server->Connections().*count < least && clock.NowNs() < end_ns) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return server->Connections();
  }
  /// It waits three times, once a second, and polls no more than a few times for each.
  void ExpectIdle() const {
    constexpr auto kWaits = &NativeServer::ConnectionCounts::event_waits;
    const auto before = Await(kWaits, server->Connections().event_waits + 1);
    const auto after = Await(kWaits, before.event_waits + 3);
    EXPECT_GE(after.event_waits, before.event_waits + 3);
    EXPECT_LE(after.event_polls - before.event_polls,
              10 * (after.event_waits - before.event_waits));
  }
};

struct EventCallsOfRequestsTest : EventCallsTest, ::testing::WithParamInterface<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(SocketPollUs, EventCallsOfRequestsTest,
                         ::testing::Values(0, NativeServerOptions{}.socket_poll_us));

TEST_P(EventCallsOfRequestsTest, ThoseThatComeTogetherTakeFewerEach) {
  constexpr uint64_t kTogether = 1'000, kTimes = 20;
  options.socket_poll_us = GetParam();
  StartServer();
  // A look for nothing is bounded by time: how many there are says nothing.
  const auto calls = [&] {
    const auto counts = server->Connections();
    return counts.event_waits + (GetParam() == 0 ? counts.event_polls : 0);
  };
  for (const std::string& url : {tcp_url(), unix_url()}) {
    auto session = ConnectSession(url);
    auto tree = session->OpenTree("t");
    ASSERT_TRUE(tree.ok()) << tree.status();
    uint64_t answered = 0;
    const auto get = [&] {
      tree->GetAsync("absent", [&](Result<client::Value> value) { answered += value.ok(); });
    };
    const auto await = [&] {
      while (session->pending() > 0) session->Poll(1'000);
    };
    const uint64_t before = calls();
    for (uint64_t i = 0; i < kTogether; ++i) {
      get();
      await();
    }
    const uint64_t one_by_one = calls() - before;
    for (uint64_t time = 0; time < kTimes; ++time) {
      for (uint64_t i = 0; i < kTogether; ++i) get();
      await();
    }
    const uint64_t together = calls() - before - one_by_one;
    EXPECT_EQ(answered, kTogether * (kTimes + 1));
    if (GetParam() == 0) {
      EXPECT_GE(one_by_one, kTogether / 2) << "most are waited for";
    }
    EXPECT_LT(together, kTogether * kTimes / 4) << url;
  }
}

// However slow the machine is, no wait is long here, and nothing is looked for in vain: the thread's timer comes each
// second.
TEST_F(EventCallsTest, ALoadedThreadPollsAndDoesNotWait) {
  options.socket_poll_us = test::kPatienceMs * 1'000;
  StartServer();
  for (const std::string& url : {tcp_url(), unix_url()}) {
    const auto session = ConnectSession(url);
    for (uint32_t i = 0; i < 2 * SocketPoll::kShortWaits; ++i) ASSERT_TRUE(session->Ping().ok());
    const auto before = server->Connections();
    constexpr uint64_t kRequests = 1'000;
    for (uint64_t i = 0; i < kRequests; ++i) ASSERT_TRUE(session->Ping().ok());
    const auto after = server->Connections();
    EXPECT_LE(after.event_waits, before.event_waits + kRequests / 10) << url;
    EXPECT_GE(after.event_polls, before.event_polls + kRequests) << url;
  }
}

TEST_F(EventCallsTest, AnIdleThreadDoesNotPoll) {
  StartServer();
  const auto session = ConnectSession(tcp_url());
  ASSERT_TRUE(session->Ping().ok());
  ExpectIdle();
}

TEST_F(EventCallsTest, AThreadThatWasLoadedWaitsWhenItIsIdle) {
  options.socket_poll_us = 20'000;
  StartServer();
  const auto session = ConnectSession(tcp_url());
  // Until it looks for most of a hundred requests, rather than to be woken.
  const uint64_t end_ns = clock.NowNs() + test::kPatienceMs * kNsPerMs;
  bool loaded = false;
  while (!loaded && clock.NowNs() < end_ns) {
    const auto before = server->Connections();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(session->Ping().ok());
    loaded = server->Connections().event_waits < before.event_waits + 50;
  }
  EXPECT_TRUE(loaded);
  ExpectIdle();
}

}  // namespace
}  // namespace farleaf::server
