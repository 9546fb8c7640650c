// Many connections at two compute servers on one pool, most of them doing nothing, some of them dying.
#include <gtest/gtest.h>

#include <ctime>
#include <thread>

#include "dsm/base/random.h"
#include "test/support/native_under_test.h"
#include "test/support/open_files.h"
#include "test/support/test_scale.h"

namespace farleaf::server {
namespace {

using client::Session;
using client::SessionTree;
using client::Value;

uint64_t ProcessCpuNs() {
  timespec now;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

struct Connected {
  std::unique_ptr<Session> session;
  std::unique_ptr<SessionTree> tree;
};

using NativeLoadTest = test::TwoOnOnePool;

// 2,000 connections at once, each used; a tenth of them is lost at random with requests in flight; all others
// get right answers; and with nothing to do the servers take next to no processor time.
TEST_F(NativeLoadTest, TwoThousandConnectionsATenthDiesTheOthersAreServedAndIdleCostsNothing) {
  if (!test::MayOpenFiles(5'000)) GTEST_SKIP() << "needs 5,000 open files";
  constexpr uint64_t kSeed = 31;
  const uint64_t kConnections = test::Amount{400, 2'000};
  SCOPED_TRACE(kSeed);
  Random random(kSeed);
  Add("t");
  StartServer();
  std::vector<Connected> all(kConnections);
  for (uint64_t i = 0; i < kConnections; ++i) {
    all[i].session = ConnectSession(tcp_url(i));
    auto tree = all[i].session->OpenTree("t");
    ASSERT_TRUE(tree.ok()) << tree.status();
    all[i].tree = std::make_unique<SessionTree>(std::move(*tree));
  }
  EXPECT_EQ(Connections().open, kConnections);
  uint64_t right = 0, living = 0;
  for (uint64_t i = 0; i < kConnections; ++i) {
    for (int n = 0; n < 3; ++n) {
      all[i].tree->PutAsync(std::to_string(i), std::to_string(i), [](Result<bool>) {});
    }
    all[i].session->Flush();
    if (random.OneIn(10)) all[i] = Connected();
  }
  const auto answer_all = [&all] {
    for (Connected& each : all) {
      while (each.session && each.session->pending() > 0) each.session->Poll(1'000);
    }
  };
  answer_all();
  for (uint64_t i = 0; i < kConnections; ++i) {
    if (!all[i].session) continue;
    ++living;
    all[i].tree->GetAsync(std::to_string(i), [&, i](Result<Value> value) {
      right += value.ok() && *value == std::to_string(i);
    });
    all[i].session->Flush();
  }
  answer_all();
  EXPECT_EQ(right, living);
  EXPECT_TRUE(AwaitOpen(living)) << Connections().open;
  const uint64_t cpu_ns = ProcessCpuNs();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_LT(ProcessCpuNs() - cpu_ns, kNsPerSecond / 5) << "of 2 s";
}

}  // namespace
}  // namespace farleaf::server
