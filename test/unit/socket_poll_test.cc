// When a server's thread looks at its sockets instead of blocking: by times and counts alone.
#include "server/frontend/socket_poll.h"

#include <gtest/gtest.h>

#include "dsm/base/clock.h"

namespace farleaf::server {
namespace {

constexpr uint64_t kPollNs = 30'000;
constexpr uint64_t kShortNs = SocketPoll::kShortWaitTimes * kPollNs;
constexpr uint64_t kLongNs = kShortNs + 1;

struct SocketPollTest : ::testing::Test {
  SocketPoll poll{kPollNs};
  uint64_t now_ns = 1'000'000;

  /// Something comes after so long, and is dealt with. Returns whether the thread looked until it came.
  bool WaitFor(uint64_t ns) {
    bool looked = poll.Looks(now_ns);
    now_ns += ns;
    looked = looked && poll.Looks(now_ns);
    poll.Arrived(now_ns);
    now_ns += 5'000;
    return looked;
  }
  void Load() {
    for (uint32_t i = 0; i < SocketPoll::kShortWaits; ++i) EXPECT_FALSE(WaitFor(kShortNs)) << i;
  }
};

TEST_F(SocketPollTest, AThreadIsLoadedBehindSoManyShortWaitsInARow) {
  Load();
  EXPECT_TRUE(WaitFor(0));
}

TEST_F(SocketPollTest, ALongWaitAmongThemBeginsTheCountAnew) {
  for (uint32_t i = 1; i < SocketPoll::kShortWaits; ++i) EXPECT_FALSE(WaitFor(kShortNs));
  EXPECT_FALSE(WaitFor(kLongNs));
  Load();
  EXPECT_TRUE(WaitFor(0));
}

TEST_F(SocketPollTest, WhatComesInTimeKeepsItLooking) {
  Load();
  for (int i = 0; i < 1'000; ++i) EXPECT_TRUE(WaitFor(kPollNs - 1)) << i;
}

TEST_F(SocketPollTest, HavingLookedInVainItBlocksUntilItIsLoadedAnew) {
  Load();
  EXPECT_TRUE(poll.Looks(now_ns));
  EXPECT_TRUE(poll.Looks(now_ns + kPollNs - 1));
  EXPECT_FALSE(poll.Looks(now_ns + kPollNs));
  EXPECT_FALSE(poll.Looks(now_ns + kPollNs));
  now_ns += kPollNs;
  poll.Arrived(now_ns);  // a short wait, too
  for (uint32_t i = 1; i < SocketPoll::kShortWaits; ++i) EXPECT_FALSE(WaitFor(kShortNs)) << i;
  EXPECT_TRUE(WaitFor(0));
}

TEST_F(SocketPollTest, AnIdleOneNeverLooks) {
  for (int i = 0; i < 1'000; ++i) EXPECT_FALSE(WaitFor(kLongNs)) << i;
}

TEST_F(SocketPollTest, WhatComesWhileThereIsWorkIsNoWait) {
  for (uint32_t i = 0; i < SocketPoll::kShortWaits; ++i) poll.Arrived(now_ns += kNsPerSecond);
  EXPECT_TRUE(poll.Looks(now_ns));
}

TEST_F(SocketPollTest, WithNoTimeForItItNeverLooks) {
  SocketPoll off(0);
  EXPECT_FALSE(off.on());
  for (uint32_t i = 0; i < SocketPoll::kShortWaits + 1; ++i) {
    EXPECT_FALSE(off.Looks(now_ns));
    off.Arrived(now_ns);
  }
}

}  // namespace
}  // namespace farleaf::server
