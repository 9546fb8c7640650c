// Native servers whose view changes: what they have not begun of batches of an old one is refused, and clients follow.

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "test/support/native_under_test.h"
#include "test/support/test_scale.h"
#include "test/support/viewed_host.h"

namespace farleaf::server {
namespace {

using client::ConditionOutcome;
using test::KeyOf;

/// Where each operation ends before the next one begins, so that a test sees in which order they began.
struct NativeViewsInOrderTest : test::OneOverMaps {};

/// Two compute servers on one pool, whose verbs end late, so that views change under operations.
struct NativeViewsTest : test::NativeUnderTest {
  test::PoolHosts pool{2, 5};
  test::ViewedHost viewed[2]{test::ViewedHost(&pool.host(0)), test::ViewedHost(&pool.host(1))};

  size_t servers() const override { return 2; }
  TreeHost& served(size_t i) override { return viewed[i % 2]; }
  void SetUp() override {
    NativeUnderTest::SetUp();
    StartServer();
    Add("t");
  }
  void SetView(uint32_t view) {
    for (test::ViewedHost& each : viewed) each.set_view(view);
  }
};

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
    ViewChanger changer([this](uint32_t view) { host.set_view(view); }, &done);
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

TEST_F(NativeViewsTest, ViewChangeIsFollowedWithoutTheCallersKnowledge) {
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
