// Native servers whose view changes: batches of an old one are refused whole, and clients follow.

#include <atomic>
#include <chrono>
#include <thread>

#include "test/support/native_under_test.h"

namespace farleaf::server {
namespace {

using client::ConditionOutcome;
using test::KeyOf;

struct NativeViewsTest : test::NativeUnderTest {};

/// Changes a host's view again and again, until it ends: each time behind an operation under the one before,
/// as `*operations` counts them, for on a slow machine views that change by the clock let none through.
class ViewChanger {
 public:
  ViewChanger(test::MapTreeHost* host, const std::atomic<uint64_t>* operations)
      : thread_([this, host, operations] {
          uint64_t seen = 0;
          for (uint32_t view = 2; !stop_;) {
            if (const uint64_t now = *operations; now != seen) {
              seen = now;
              host->set_view(view++);
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
TEST_F(NativeViewsTest, ViewChangesUnderLoadKeepTheOrderAndRepeatNothing) {
  StartServer();
  host.Add("t");
  for (const std::string& url : all_urls()) {
    auto session = ConnectSession(url);
    auto tree = *session->OpenTree("t");
    ASSERT_TRUE(tree.Put("chain", "0").ok());
    constexpr uint64_t kLinks = 10'000;
    std::atomic<uint64_t> done{0}, failed{0};
    ViewChanger changer(&host, &done);
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

index::Task<Status> SleepNowAndThen(index::OpContext& op, std::atomic<uint64_t>* calls) {
  if (calls->fetch_add(1) % 7 == 0) co_await op.worker.Sleep(100'000);
  co_return Status::Ok();
}

TEST_F(NativeViewsTest, ViewChangesUnderManyClientsLoseNothingAndRepeatNothing) {
  StartServer();
  auto& index = host.Add("t");
  std::atomic<uint64_t> calls{0};
  index.set_before([&](index::OpContext& op) { return SleepNowAndThen(op, &calls); });
  constexpr uint64_t kThreads = 3, kEach = 4'000, kCounters = 10;
  std::atomic<uint64_t> failed{0};
  {
    ViewChanger changer(&host, &calls);
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        auto session = ConnectSession(t % 2 ? tcp_url() : unix_url());
        auto tree = *session->OpenTree("t");
        for (uint64_t i = 0; i < kEach; ++i) {
          tree.AddAsync(KeyOf(i % kCounters), 1, 0,
                        [&](Result<int64_t> sum) { failed += !sum.ok(); });
          if (i % 32 == 0) session->Poll(0);
        }
        while (session->pending() > 0) session->Poll(1'000);
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_EQ(failed, 0u);
  const auto content = index.Content();
  ASSERT_EQ(content.size(), kCounters);
  for (const auto& [key, value] : content) {
    EXPECT_EQ(value, client::CounterValue(kThreads * kEach / kCounters)) << key;
  }
}

TEST_F(NativeViewsTest, ViewChangeIsFollowedWithoutTheCallersKnowledge) {
  StartServer();
  host.Add("t");
  auto session = ConnectSession(tcp_url());
  auto tree = *session->OpenTree("t");
  ASSERT_TRUE(tree.Put("k", "1").ok());
  host.set_view(9);
  EXPECT_FALSE(*tree.Put("k", "2"));
  EXPECT_EQ(**tree.Get("k"), "2");
}

}  // namespace
}  // namespace farleaf::server
