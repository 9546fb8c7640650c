// How often the threads of two compute servers on one pool ask the system for sockets' events: with nothing to do they
// wait, and the more comes at a time, the fewer calls a request takes.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "test/support/native_under_test.h"

namespace farleaf::server {
namespace {

struct EventCallsTest : test::TwoOnOnePool {
  void SetUp() override {
    TwoOnOnePool::SetUp();
    options.threads = 1;
    Add("t");
  }
  NativeServer::ConnectionCounts CountsOf(size_t i) const { return at(i).Connections(); }
  /// What the i-th server's waits have become when they have reached `least`, or patience has ended.
  NativeServer::ConnectionCounts AwaitWaits(size_t i, uint64_t least) const {
    const uint64_t end_ns = clock.NowNs() + test::kPatienceMs * kNsPerMs;
    while (CountsOf(i).event_waits < least && clock.NowNs() < end_ns) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return CountsOf(i);
  }
  /// Each waits three times, once a second, and polls no more than a few times for each.
  void ExpectIdle() const {
    NativeServer::ConnectionCounts before[2];
    for (size_t i : {0, 1}) before[i] = AwaitWaits(i, CountsOf(i).event_waits + 1);
    for (size_t i : {0, 1}) {
      const auto after = AwaitWaits(i, before[i].event_waits + 3);
      EXPECT_GE(after.event_waits, before[i].event_waits + 3);
      EXPECT_LE(after.event_polls - before[i].event_polls,
                10 * (after.event_waits - before[i].event_waits));
    }
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
    const auto counts = Connections();
    return counts.event_waits + (GetParam() == 0 ? counts.event_polls : 0);
  };
  for (const std::string& url : {tcp_url(0), unix_url(1)}) {
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
  for (size_t i : {0, 1}) {
    const std::string& url = i == 0 ? tcp_url(i) : unix_url(i);
    const auto session = ConnectSession(url);
    for (uint32_t p = 0; p < 2 * SocketPoll::kShortWaits; ++p) ASSERT_TRUE(session->Ping().ok());
    const auto before = CountsOf(i);
    constexpr uint64_t kRequests = 1'000;
    for (uint64_t p = 0; p < kRequests; ++p) ASSERT_TRUE(session->Ping().ok());
    const auto after = CountsOf(i);
    EXPECT_LE(after.event_waits, before.event_waits + kRequests / 10) << url;
    EXPECT_GE(after.event_polls, before.event_polls + kRequests) << url;
    slot(i)->Stop();  // or it would look for the other's time, too
  }
}

TEST_F(EventCallsTest, AnIdleThreadDoesNotPoll) {
  StartServer();
  const auto session = ConnectSession(tcp_url(0)), others = ConnectSession(tcp_url(1));
  ASSERT_TRUE(session->Ping().ok());
  ASSERT_TRUE(others->Ping().ok());
  ExpectIdle();
}

TEST_F(EventCallsTest, AThreadThatWasLoadedWaitsWhenItIsIdle) {
  options.socket_poll_us = 20'000;
  StartServer();
  const auto session = ConnectSession(tcp_url(0)), others = ConnectSession(tcp_url(1));
  for (size_t i : {0, 1}) {
    // Until it looks for most of a hundred requests, rather than to be woken.
    const uint64_t end_ns = clock.NowNs() + test::kPatienceMs * kNsPerMs;
    bool loaded = false;
    while (!loaded && clock.NowNs() < end_ns) {
      const auto before = CountsOf(i);
      for (int p = 0; p < 100; ++p) ASSERT_TRUE((i == 0 ? session : others)->Ping().ok());
      loaded = CountsOf(i).event_waits < before.event_waits + 50;
    }
    EXPECT_TRUE(loaded);
  }
  ExpectIdle();
}

}  // namespace
}  // namespace farleaf::server
