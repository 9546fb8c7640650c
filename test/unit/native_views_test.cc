// Native servers whose view changes: what they have not begun of batches of an old one is refused, and clients follow.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "test/support/native_under_test.h"
#include "test/support/test_scale.h"

namespace farleaf::server {
namespace {

using client::ConditionOutcome;
using test::KeyOf;

/// Two compute servers on one pool, whose verbs end late, so that views change under operations.
struct NativeViewsTest : test::TwoRuledOnOnePool {
  NativeViewsTest() : TwoRuledOnOnePool(5) {}
};

/// Whose verbs end at once: each operation ends before the next one begins, so that a test sees in which order they began.
struct NativeViewsInOrderTest : test::TwoRuledOnOnePool {};

/// Changes a view again and again, until it ends: each time behind an operation under the one before,
/// as `*operations` counts them, for on a slow machine views that change by the clock let none through.
class ViewChanger {
 public:
  ViewChanger(std::function<void(uint32_t)> set_view, const std::atomic<uint64_t>* operations)
      : thread_([this, set_view = std::move(set_view), operations] {
          uint64_t seen = 0;
          for (uint32_t view = 2; !stop_;) {
            if (const uint64_t now = *operations; now != seen) {
              seen = now;
              set_view(view++);
            }
            std::this_thread::sleep_for(std::chrono::microseconds(200));
          }
        }) {}
  ~ViewChanger() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// Each operation succeeds only behind the one that was started before it, and only once.
TEST_F(NativeViewsInOrderTest, ViewChangesUnderLoadKeepTheOrderAndRepeatNothing) {
  StartServer();
  Add("t");
  for (const std::string& url : all_urls()) {
    auto session = ConnectSession(url);
    auto tree = *session->OpenTree("t");
    ASSERT_TRUE(tree.Put("chain", "0").ok());
    constexpr uint64_t kLinks = 10'000;
    std::atomic<uint64_t> done{0}, failed{0};
    ViewChanger changer([this](uint32_t view) { SetView(view); }, &done);
    for (uint64_t i = 0; i < kLinks; ++i) {
      tree.CompareAndSetAsync(
          "chain", std::to_string(i), std::to_string(i + 1),
          [&](Result<client::CompareAndSetResult> result) {
            (result.ok() && *result == ConditionOutcome::kDone ? done : failed)++;
          });
      if (i % 16 == 0) session->Poll(0);
    }
    while (session->pending() > 0) session->Poll(1'000);
    EXPECT_EQ(done, kLinks);
    EXPECT_EQ(failed, 0u);
    EXPECT_EQ(**tree.Get("chain"), std::to_string(kLinks));
  }
}

TEST_F(NativeViewsTest, ViewChangesUnderManyClientsLoseNothingAndRepeatNothing) {
  // Fewer than a batch has: servers pause within batches, and views change there.
  options.connection.in_flight_max = 8;
  StartServer();
  Add("t");
  constexpr uint64_t kThreads = 4, kCounters = 10;
  const uint64_t kEach = test::Amount{600, 3'000};
  std::atomic<uint64_t> done{0}, failed{0};
  {
    ViewChanger changer([this](uint32_t view) { SetView(view); }, &done);
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        auto session = ConnectSession(t < 2 ? tcp_url(t) : unix_url(t));
        auto tree = *session->OpenTree("t");
        for (uint64_t i = 0; i < kEach; ++i) {
          tree.AddAsync(KeyOf(i % kCounters), 1, 0, [&](Result<int64_t> sum) {
            ++(sum.ok() ? done : failed);
            EXPECT_TRUE(sum.ok() || failed > 1) << sum.status();
          });
          if (i % 32 == 0) session->Poll(0);
        }
        while (session->pending() > 0) session->Poll(1'000);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(failed, 0u);
  const auto content = Content("t");
  ASSERT_EQ(content.size(), kCounters);
  for (const auto& [key, value] : content) {
    EXPECT_EQ(value, client::CounterValue(kThreads * kEach / kCounters)) << key;
  }
}

// The view changes while a server has begun two of a batch and has no room for the others.
TEST_F(NativeViewsTest, WhatAPauseHasKeptOfABatchIsDoneOnceByTheNewView) {
  options.connection.in_flight_max = 2;
  StartServer();
  Add("t");
  for (size_t i = 0; i < servers(); ++i) {
    auto session = ConnectSession(tcp_url(i));
    auto tree = *session->OpenTree("t");
    std::atomic<int> begun{0};
    std::atomic<bool> released{false};
    ruled[i].set_before(
        [&](index::OpContext& op) { return test::HoldUntilReleased(op, &begun, &released); });
    constexpr int64_t kAdds = 5;
    std::vector<int64_t> sums;
    for (int64_t add = 0; add < kAdds; ++add) {
      tree.AddAsync(KeyOf(i), 1, 0,
                    [&](Result<int64_t> sum) { sums.push_back(sum.ok() ? *sum : -1); });
    }
    session->Flush();
    while (begun < 2) std::this_thread::yield();
    SetView(2 + static_cast<uint32_t>(i));
    released = true;
    while (session->pending() > 0) session->Poll(1'000);
    std::sort(sums.begin(), sums.end());
    EXPECT_EQ(sums, (std::vector<int64_t>{1, 2, 3, 4, 5}));
    EXPECT_EQ(begun, kAdds);
    ruled[i].set_before({});
  }
  EXPECT_EQ(Content("t").size(), 2u);
}

TEST_F(NativeViewsTest, ViewChangeIsFollowedWithoutTheCallersKnowledge) {
  StartServer();
  Add("t");
  auto session = ConnectSession(tcp_url(0)), others = ConnectSession(tcp_url(1));
  auto tree = *session->OpenTree("t"), there = *others->OpenTree("t");
  ASSERT_TRUE(tree.Put("k", "1").ok());
  EXPECT_EQ(**there.Get("k"), "1");
  SetView(9);
  EXPECT_FALSE(*tree.Put("k", "2"));
  EXPECT_EQ(**there.Get("k"), "2");
}

}  // namespace
}  // namespace farleaf::server
