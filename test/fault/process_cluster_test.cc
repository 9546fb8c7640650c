// A cluster of three compute_server processes and a ZooKeeper: the one that serves is killed, again and again, or stopped and continued behind its
// back, while clients write; another one serves within seconds, with all that was acknowledged.
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "dsm/base/random.h"
#include "test/support/process_client.h"
#include "test/support/test_scale.h"
#include "test/support/zookeeper_under_test.h"

namespace farleaf {
namespace {

constexpr size_t kNodes = 3;
constexpr uint64_t kKeys = 500;
/// A machine that does much else keeps processes silent for a second; the long form is for the figures.
const uint64_t kSessionMs = test::Amount{3'000, 3'000, 1'000};

class ProcessClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!ZookeeperUnderTest::IsInstalled()) GTEST_SKIP() << "ZooKeeper is not installed";
    std::filesystem::create_directory(cluster_.File("zookeeper"));
    zookeeper_.emplace(cluster_.File("zookeeper"), 200);
    for (size_t node = 0; node < kNodes; ++node) {
      addresses_[node] = FreeAddress();
      Start(node);
    }
  }

  void Start(size_t node) {
    const std::string number = std::to_string(node + 1);
    nodes_[node] =
        cluster_.Start("compute_server", {"--engine",
                                          "lsm",
                                          "--data-dir",
                                          cluster_.File("store" + number),
                                          "--listen",
                                          addresses_[node],
                                          "--trees",
                                          "tested:bytes",
                                          "--cluster",
                                          "zookeeper://" + zookeeper_->address() + "/tested",
                                          "--node",
                                          number,
                                          "--replicas",
                                          "3",
                                          "--session-timeout-ms",
                                          std::to_string(kSessionMs),
                                          "--durability",
                                          "replicated",
                                          "--lsm-memtable-bytes",
                                          "1MiB",
                                          "--lsm-cache-bytes",
                                          "4MiB"});
  }
  bool Runs(size_t node) const { return nodes_[node] != nullptr; }

  /// Whoever serves, as a client; tried for as long as it makes sense.
  std::unique_ptr<client::Client> Connect(size_t* serving) {
    const MonotonicClock clock;
    const uint64_t begun_ns = clock.NowNs();
    while (clock.NowNs() - begun_ns < kPatienceMs * kNsPerMs) {
      for (size_t node = 0; node < kNodes; ++node) {
        if (!Runs(node) || node == stopped_) continue;
        client::Options options;
        options.connect_timeout_ms = 300;
        options.deadline_ms = 5'000;
        auto connected = client::Client::Connect("farleaf://" + addresses_[node], options);
        if (!connected.ok()) continue;
        *serving = node;
        return std::move(*connected);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return nullptr;
  }

  /// All that was acknowledged is there, and nothing that was never written.
  void Check(client::Client& client) {
    auto tree = client.OpenTree("tested");
    ASSERT_TRUE(tree.ok()) << tree.status();
    for (auto& [key, known] : written_) {
      auto value = tree->Get(key);
      ASSERT_TRUE(value.ok()) << value.status();
      const uint64_t there = *value ? std::stoull(**value) : 0;
      EXPECT_GE(there, known.acknowledged) << key;
      EXPECT_LE(there, known.tried) << key;
      known.acknowledged = known.tried = there;
    }
  }
  /// Until a write fails, or there were so many.
  void Write(client::Client& client, uint64_t writes) {
    auto tree = client.OpenTree("tested");
    if (!tree.ok()) return;
    for (uint64_t i = 0; i < writes; ++i) {
      const std::string key = "key" + std::to_string(random_.Below(kKeys));
      Known& known = written_[key];
      const uint64_t number = ++known.tried;
      std::string value = std::to_string(number) + " ";
      value.resize(random_.OneIn(3) ? 2'000 : 60, 'x');
      if (!tree->Put(key, value).ok()) return;
      known.acknowledged = number;
      ++acknowledged_;
    }
  }
  /// Waits until the node that serves has both others as backups, so that its end loses nothing.
  void AwaitBackups(size_t serving) {
    for (size_t node = 0; node < kNodes; ++node) {
      if (node == serving) continue;
      EXPECT_TRUE(nodes_[serving]->WaitForOutput("node " + std::to_string(node + 1) +
                                                 " is a backup, filled"))
          << nodes_[serving]->Output();
    }
  }

  struct Known {
    uint64_t tried = 0, acknowledged = 0;
  };
  ProcessCluster cluster_{{.memory_servers = 0}};
  std::optional<ZookeeperUnderTest> zookeeper_;
  std::array<std::unique_ptr<ChildProcess>, kNodes> nodes_;
  std::array<std::string, kNodes> addresses_;
  std::map<std::string, Known> written_;
  Random random_{1};
  uint64_t acknowledged_ = 0;
  size_t stopped_ = kNodes;
};

TEST_F(ProcessClusterTest, WhoServesIsKilledAndNothingAcknowledgedIsLost) {
  const uint64_t kills = test::Amount{2, 3, 100};
  const MonotonicClock clock;
  uint64_t longest_ns = 0;
  size_t serving = kNodes;
  for (uint64_t kill = 0; kill <= kills && !HasFailure(); ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    auto client = Connect(&serving);
    ASSERT_NE(client, nullptr) << "nobody serves";
    Check(*client);
    if (kill == kills) break;
    AwaitBackups(serving);
    Write(*client, 300 + random_.Below(1'000));
    // In the middle of writes of another thread.
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(random_.Below(50)));
      nodes_[serving]->Signal(SIGKILL);
    });
    Write(*client, 100'000);
    killer.join();
    (void)cluster_.WaitFor(*nodes_[serving]);
    nodes_[serving] = nullptr;
    client.reset();
    // It comes back once somebody else serves.
    const uint64_t begun_ns = clock.NowNs();
    auto next = Connect(&serving);
    ASSERT_NE(next, nullptr);
    longest_ns = std::max(longest_ns, clock.NowNs() - begun_ns);
    for (size_t node = 0; node < kNodes; ++node) {
      if (!Runs(node)) Start(node);
    }
  }
  std::printf("%lu kills, %lu writes acknowledged, served again within %.2f s at most\n", kills,
              acknowledged_, static_cast<double>(longest_ns) / 1e9);
  EXPECT_GT(acknowledged_, kills * 300);
}

TEST_F(ProcessClusterTest, WhoIsStoppedAndContinuedAcknowledgesAndAnswersNothing) {
  size_t old = kNodes, serving = kNodes;
  auto client = Connect(&old);
  ASSERT_NE(client, nullptr);
  AwaitBackups(old);
  Write(*client, 500);
  auto stale = client->OpenTree("tested");
  ASSERT_TRUE(stale.ok()) << stale.status();
  nodes_[old]->Signal(SIGSTOP);
  stopped_ = old;
  auto next = Connect(&serving);
  ASSERT_NE(next, nullptr);
  ASSERT_NE(serving, old);
  Check(*next);
  auto tree = next->OpenTree("tested");
  ASSERT_TRUE(tree.ok()) << tree.status();
  ASSERT_TRUE(tree->Put("key0", "1000000 of the new one").ok());
  // What waits at the old one when it goes on, and what comes then, it neither does nor answers from what it has.
  uint64_t refused = 0;
  std::thread asking([&] {
    for (int i = 0; i < 20; ++i) {
      auto value = stale->Get("key0");
      refused += !value.ok();
      if (value.ok()) {
        EXPECT_TRUE(*value && (**value).starts_with("1000000")) << "an old value was answered";
      }
      EXPECT_FALSE(stale->Put("key1", "2000000 of the old one").ok());
    }
  });
  nodes_[old]->Signal(SIGCONT);
  asking.join();
  EXPECT_GT(refused, 0u);
  auto value = tree->Get("key1");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_FALSE(*value && (**value).starts_with("2000000")) << "a deposed primary has written";
}

}  // namespace
}  // namespace farleaf
