// What is planned fails no request: regions are split and moved, and all nodes restarted one after another, while
// clients write and read; and copies are read that may be stale.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/cluster/routed_index.h"
#include "test/fault/process_cluster_fixture.h"

namespace farleaf {
namespace {

using server::membership::RegionEntry;

/// Looks at the regions' entries all the time: when a region had a single node in sync, for certain.
class AloneWatch {
 public:
  struct Alone {
    RegionEntry region;
    uint64_t from_ns, to_ns;
  };
  explicit AloneWatch(std::string membership)
      : thread_([this, membership = std::move(membership)] { Run(membership); }) {}
  ~AloneWatch() { (void)Stop(); }
  /// Of at least some time.
  std::vector<Alone> Stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
    return std::exchange(alone_, {});
  }

 private:
  void Run(const std::string& membership) {
    auto session = server::membership::ZookeeperMembership::Open(
        membership, {.session_timeout_ms = 20'000}, &clock_);
    ASSERT_TRUE(session.ok()) << session.status();
    dsm::EpochDomain epochs;
    dsm::Worker worker({std::make_unique<dsm::NullTransport>(), &epochs, &clock_, 1, 2});
    server::membership::RegionStore store(session->get());
    std::map<server::membership::RegionId, Alone> seen;
    const auto end = [this](const Alone& last) {
      if (last.region.in_sync.size() == 1 && last.to_ns > last.from_ns) alone_.push_back(last);
    };
    while (!stopping_) {
      const uint64_t begun_ns = clock_.NowNs();
      const auto map = worker.Run(store.Read(worker));
      const uint64_t read_ns = clock_.NowNs();
      if (!map.ok()) continue;  // it was changed meanwhile
      for (const RegionEntry& region : map->regions()) {
        const auto [it, is_new] = seen.try_emplace(region.id, Alone{region, read_ns, read_ns});
        if (is_new) continue;
        Alone& last = it->second;
        if (last.region.view == region.view) {
          last.to_ns = begun_ns;
        } else {
          end(std::exchange(last, Alone{region, read_ns, read_ns}));
        }
      }
    }
    for (const auto& [id, last] : seen) end(last);
  }

  const MonotonicClock clock_;
  std::atomic<bool> stopping_{false};
  std::vector<Alone> alone_;  // the thread's, until it has ended
  std::thread thread_;
};

/// Nothing that is planned waits for a session to end, so these are long: a machine that stands still for seconds
/// ends none, of which a request might fail.
class PlannedChangeTest : public ProcessClusterTest {
 protected:
  PlannedChangeTest() { session_ms_ = 20'000; }
  /// No longer than a node waits for somebody who serves: else it would have been refused.
  static void ExpectNoneFailed(Load& load) {
    const uint64_t longest_ns = load.TakeLongestNs();
    std::printf("%lu writes acknowledged, longest wait %.2f s\n", load.acknowledged(),
                Seconds(longest_ns));
    EXPECT_EQ(load.failed(), 0u) << load.first_failure();
    EXPECT_LT(longest_ns, server::cluster::RoutingOptions().wait_ms * kNsPerMs);
    EXPECT_GT(load.acknowledged(), 100u);
  }
};

/// By how many nodes are to have a write. A hand-over and a split leave one in sync until another one was looked
/// through: with two, writes wait for that.
class RegionChangeTest : public PlannedChangeTest,
                         public ::testing::WithParamInterface<const char*> {
 protected:
  RegionChangeTest() { min_in_sync_ = GetParam(); }
  bool asks_two() const { return min_in_sync_ == "2"; }
  /// Of writes that were begun and acknowledged while one node alone was in sync: none, if two are to have them.
  void ExpectWaited(const std::vector<AloneWatch::Alone>& alone,
                    const std::vector<Load::Written>& writes) const {
    uint64_t alone_ns = 0, written = 0;
    for (const AloneWatch::Alone& each : alone) {
      alone_ns += each.to_ns - each.from_ns;
      written += static_cast<uint64_t>(std::ranges::count_if(writes, [&each](const auto& write) {
        return each.region.Covers(write.key) && write.begun_ns > each.from_ns &&
               write.ended_ns < each.to_ns;
      }));
    }
    std::printf("%zu times one was alone in sync, %.2f s together: %lu writes meanwhile\n",
                alone.size(), Seconds(alone_ns), written);
    EXPECT_GT(alone.size(), 0u);
    EXPECT_TRUE(!asks_two() || written == 0);
  }
};
INSTANTIATE_TEST_SUITE_P(InSync, RegionChangeTest, ::testing::Values("1", "2"),
                         [](const auto& each) { return std::string("AtLeast") + each.param; });

/// By how many nodes are to have a write.
class PlannedRestartTest : public PlannedChangeTest,
                           public ::testing::WithParamInterface<const char*> {
 protected:
  PlannedRestartTest() { min_in_sync_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(InSync, PlannedRestartTest, ::testing::Values("1", "2"),
                         [](const auto& each) { return std::string("AtLeast") + each.param; });

TEST_P(RegionChangeTest, RegionsAreSplitAndMovedAndNoRequestFails) {
  AloneWatch watch(membership());
  Load load(Url());
  load.KeepWrites();
  Sleep(300);
  (void)load.TakeLongestNs();
  for (int i = 0; i < 4 && !HasFailure(); ++i) {
    const std::vector<RegionEntry> regions = Regions();
    ASSERT_FALSE(regions.empty());
    const RegionEntry& region = regions[random_.Below(regions.size())];
    const NodeId to = static_cast<NodeId>(region.primary % kNodes + 1);
    Ctl({"move", std::to_string(static_cast<uint32_t>(region.id)), std::to_string(to)});
    Sleep(200);
  }
  Ctl({"split", "--key", "b", "--at", "d"});
  Sleep(200);
  Ctl({"split", "--key", "z", "--at", "w"});
  AwaitWhole();
  Sleep(300);
  load.Stop();
  EXPECT_EQ(Regions().size(), 5u);
  ExpectNoneFailed(load);
  ExpectWaited(watch.Stop(), load.TakeWrites());
}

TEST_P(PlannedRestartTest, AllNodesAreRestartedOneAfterAnotherAndNoRequestFails) {
  Load load(Url());
  Sleep(300);
  (void)load.TakeLongestNs();
  const uint64_t times = test::Amount{1, 1, 10};
  for (uint64_t i = 0; i < times * kNodes && !HasFailure(); ++i) {
    const size_t node = i % kNodes;
    SCOPED_TRACE("node " + std::to_string(node + 1));
    nodes_[node]->Signal(SIGTERM);
    EXPECT_EQ(cluster_.WaitFor(*nodes_[node]).code, 0) << nodes_[node]->Output();
    Start(node);
    AwaitWhole();
  }
  Sleep(300);
  load.Stop();
  ExpectNoneFailed(load);
}

// No session ends meanwhile.
TEST_F(PlannedChangeTest, ABackupAnswersReadsThatMayBeStaleAlsoWhileNobodyServes) {
  constexpr uint32_t kStoppedMs = 1'500;
  const std::string key = "key0";
  const size_t primary = PrimaryOf(key);
  ASSERT_LT(primary, kNodes);
  const size_t backup = (primary + 1) % kNodes;
  client::Options options;
  options.deadline_ms = 20'000;
  auto client = client::Client::Connect("farleaf://" + addresses_[backup], options);
  ASSERT_TRUE(client.ok()) << client.status();
  auto tree = (*client)->OpenTree("tested");
  ASSERT_TRUE(tree.ok()) << tree.status();
  ASSERT_TRUE(tree->Put(key, "1").ok());
  // Within half a second it is flushed, as --copy-staleness-ms asks for. Until then a copy does not have it; the primary answers while there is none.
  uint32_t staleness_ms = 0;
  const client::CallOptions stale{.max_staleness_ms = 60'000, .staleness_ms = &staleness_ms};
  client::Value value;
  for (uint64_t begun_ns = clock_.NowNs(); !value || staleness_ms == 0;) {
    auto got = tree->Get(key, stale);
    ASSERT_TRUE(got.ok()) << got.status();
    value = *got;
    ASSERT_LT(clock_.NowNs() - begun_ns, kPatienceMs * kNsPerMs);
  }
  EXPECT_EQ(*value, "1");
  // The primary can answer nothing; the copy grows older.
  nodes_[primary]->Signal(SIGSTOP);
  const uint64_t stopped_ns = clock_.NowNs();
  for (uint32_t oldest_ms = 0; oldest_ms < kStoppedMs; oldest_ms = staleness_ms) {
    ASSERT_LT(clock_.NowNs() - stopped_ns, kPatienceMs * kNsPerMs);
    auto rows = tree->Scan({.start = key, .limit = 1}, stale);
    ASSERT_TRUE(rows.ok()) << rows.status();
    ASSERT_EQ(rows->size(), 1u);
    EXPECT_EQ(rows->front().value, "1");
  }
  nodes_[primary]->Signal(SIGCONT);
  // On a slow machine its lease has ended meanwhile: of what it is asked then it may not know whether it is done.
  auto put = tree->Put(key, "2");
  if (put.status().code() == StatusCode::kUnknown) put = tree->Put(key, "2");
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(**tree->Get(key), "2");
}

}  // namespace
}  // namespace farleaf
