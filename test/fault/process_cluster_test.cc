// Nodes of a cluster are killed at random, or for good, parted from each other, or stopped and continued behind the
// others' backs, and the membership is away, while clients write and read. Nothing that was acknowledged is lost, and
// nothing old is answered.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <future>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "test/fault/process_cluster_fixture.h"

namespace farleaf {
namespace {

/// How long requests waited at most behind each kill, by what the killed node was to the region of their keys; and
/// the nodes, until all was whole again.
class KillWaits {
 public:
  void Note(const std::string& what, double seconds) { waits_s_[what].push_back(seconds); }
  void Print() {
    std::printf("%-52s %6s %8s %8s %8s\n", "seconds behind the loss of", "times", "median", "90 %",
                "longest");
    for (auto& [what, waits_s] : waits_s_) {
      std::ranges::sort(waits_s);
      const auto share = [&waits_s](double of_all) {
        return waits_s[static_cast<size_t>(of_all * static_cast<double>(waits_s.size() - 1))];
      };
      std::printf("%-52s %6zu %8.2f %8.2f %8.2f\n", what.c_str(), waits_s.size(), share(0.5),
                  share(0.9), waits_s.back());
    }
  }

 private:
  std::map<std::string, std::vector<double>> waits_s_;
};

class KilledClusterTest : public ProcessClusterTest {
 protected:
  void KillAtRandom(uint64_t kills);
  void NoteWaits(NodeId killed, NodeId master, const std::vector<RegionEntry>& regions, Load& load);

  KillWaits waits_;
};

void KilledClusterTest::NoteWaits(NodeId killed, NodeId master,
                                  const std::vector<RegionEntry>& regions, Load& load) {
  const auto longest_ns = load.TakeLongestByLetter();
  for (const RegionEntry& region : regions) {
    uint64_t region_ns = 0;
    for (size_t i = 0; i < Load::kLetters; ++i) {
      const std::string key(1, static_cast<char>(Load::kFirst + i));
      if (region.Covers(key)) region_ns = std::max(region_ns, longest_ns[i]);
    }
    std::string what = region.primary == killed ? "the region's primary" : "one of its backups";
    if (master == killed) what += ", which was the master";
    waits_.Note(what, Seconds(region_ns));
  }
}

void KilledClusterTest::KillAtRandom(uint64_t kills) {
  Load load(Url());
  for (uint64_t kill = 0; kill < kills && !HasFailure(); ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    Sleep(300 + random_.Below(500));
    const size_t node = random_.Below(kNodes);
    (void)load.TakeLongestByLetter();
    Kill(node);
    // The membership has not missed it yet. What it was before may have been handed over a moment ago.
    const NodeId master = Master();
    const std::vector<RegionEntry> regions = Regions();
    // It comes back at once, or when others serve in its place.
    if (random_.OneIn(2)) Sleep(2 * kSessionMs);
    const uint64_t started_ns = clock_.NowNs();
    Start(node);
    AwaitWhole();
    waits_.Note("a node, from its start to all replicas", Seconds(clock_.NowNs() - started_ns));
    NoteWaits(static_cast<NodeId>(node + 1), master, regions, load);
  }
  load.Stop();
  std::printf(
      "%lu kills, %lu writes acknowledged, %lu stale reads, %lu requests failed (the first: %s)\n",
      kills, load.acknowledged(), load.stale_reads(), load.failed(), load.first_failure().c_str());
  waits_.Print();
  EXPECT_GT(load.acknowledged(), kills * 100);
  EXPECT_GT(load.stale_reads(), 0u);
}

TEST_F(KilledClusterTest, NodesAreKilledAtRandomAndNothingAcknowledgedIsLost) {
  KillAtRandom(test::Amount{2, 3, 20});
}

/// A region for each first letter of the keys: each node is the primary of eight or nine, and a backup of all others.
struct ManyRegionsTest : KilledClusterTest {
  ManyRegionsTest() {
    cuts_.clear();
    for (char first = Load::kFirst + 1; first <= Load::kLast; ++first) cuts_.emplace_back(1, first);
  }
};

TEST_F(ManyRegionsTest, NodesAreKilledAtRandomAndNothingAcknowledgedIsLost) {
  ASSERT_EQ(Regions().size(), Load::kLetters);
  KillAtRandom(test::Amount{1, 1, 20});
  AwaitBalanced();
}

struct TwoInSyncTest : ProcessClusterTest {
  TwoInSyncTest() { min_in_sync_ = "2"; }
};

TEST_F(TwoInSyncTest, WhoIsLeftAloneIsReadAndWrittenToWhenAnotherIsBack) {
  const std::string key = "key0";
  const size_t primary = PrimaryOf(key);
  ASSERT_LT(primary, kNodes);
  auto client = client::Client::Connect("farleaf://" + addresses_[primary], {});
  ASSERT_TRUE(client.ok()) << client.status();
  auto tree = (*client)->OpenTree("tested");
  ASSERT_TRUE(tree.ok()) << tree.status();
  ASSERT_TRUE(tree->Put(key, "1").ok());
  for (size_t node = 0; node < kNodes; ++node) {
    if (node != primary) Kill(node);
  }
  // The first one may have begun before its loss is seen: then it is in doubt. None begins behind that, and whoever asks hears why.
  Status refused = tree->Put(key, "2", {.deadline_ms = 20'000}).status();
  if (refused.code() == StatusCode::kUnknown) {
    refused = tree->Put(key, "2", {.deadline_ms = 20'000}).status();
  }
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable) << refused;
  EXPECT_NE(refused.ToString().find("1 of the 2"), std::string::npos) << refused;
  const auto read = tree->Get(key, {.deadline_ms = 20'000});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_TRUE(read->has_value());
  Start((primary + 1) % kNodes);
  const uint64_t begun_ns = clock_.NowNs();
  Status put;
  do {  // each waits for ten seconds
    put = tree->Put(key, "3", {.deadline_ms = 20'000}).status();
  } while (!put.ok() && clock_.NowNs() - begun_ns < kPatienceMs * kNsPerMs);
  EXPECT_TRUE(put.ok()) << put;
}

/// Each region has a node that keeps nothing of it.
class SpareNodeTest : public ProcessClusterTest {
 protected:
  SpareNodeTest() { replicas_ = 2; }

  bool HasDirectory(NodeId node, const RegionEntry& region) {
    std::string number = std::to_string(static_cast<uint32_t>(region.id));
    number.insert(0, 10 - number.size(), '0');
    return std::filesystem::exists(cluster_.File("store" + std::to_string(node)) + "/region-" +
                                   number);
  }
  /// Until `farleafctl region list` says that all regions are served and whole at these nodes, and nowhere else.
  void AwaitListedAt(const std::set<NodeId>& nodes) {
    std::string listed;
    const auto is_there = [&nodes](const nlohmann::json& region) {
      return region["state"] == "serving" && region["in_sync"] == nlohmann::json(nodes) &&
             region["filling"].empty();
    };
    for (const uint64_t begun_ns = clock_.NowNs();
         clock_.NowNs() - begun_ns < kPatienceMs * kNsPerMs && !HasFailure(); Sleep(200)) {
      listed = Ctl({"list", "--json"});
      const auto json = nlohmann::json::parse(listed, nullptr, false);
      ASSERT_FALSE(json.is_discarded()) << listed;
      if (std::ranges::all_of(json["regions"], is_there)) return;
    }
    FAIL() << listed;
  }
};

TEST_F(SpareNodeTest, ASpareIsFilledInThePlaceOfAKilledNodeAndHoldsAllThatIsAcknowledged) {
  RegionEntry region;
  NodeId spare = 0;
  for (const RegionEntry& each : Regions()) {
    for (NodeId node = 1; node <= kNodes; ++node) {
      if (HasDirectory(node, each)) continue;
      region = each;
      spare = node;
    }
  }
  ASSERT_NE(spare, 0) << "each node has had each region";
  const NodeId lost = region.in_sync[region.in_sync[0] == region.primary ? 1 : 0];
  Load load(Url());
  AwaitProgress(load, 100);
  Kill(lost - 1);
  ASSERT_NO_FATAL_FAILURE(AwaitListedAt({region.primary, spare}));
  AwaitProgress(load, 100);
  Kill(region.primary - 1);
  ASSERT_NO_FATAL_FAILURE(AwaitListedAt({spare}));
  AwaitProgress(load, 100);
  load.Stop();
  EXPECT_EQ(PrimaryOf(region.start), spare - 1u);
  std::printf("%lu writes acknowledged, %lu requests failed (the first: %s), longest wait %.2f s\n",
              load.acknowledged(), load.failed(), load.first_failure().c_str(),
              Seconds(load.TakeLongestNs()));
}

/// Nodes that write to one another's memory by RDMA.
class VerbsClusterTest : public KilledClusterTest {
 protected:
  void SetUp() override {
    if (!dsm::HasRdma()) {
      GTEST_SKIP() << "no RDMA device for the tests: scripts/rdma_vm.sh runs this program with one";
    }
    on_rdma_ = true;
    ProcessClusterTest::SetUp();
  }
};

TEST_F(VerbsClusterTest, NodesAreKilledAtRandomAndNothingAcknowledgedIsLost) {
  KillAtRandom(test::Amount{2, 3, 20});
}

TEST_F(VerbsClusterTest, ABackupsProcessorHasNoPartInWhatIsAcknowledged) {
  const std::string key = "key0";
  const size_t primary = PrimaryOf(key);
  ASSERT_LT(primary, kNodes);
  client::Options options;
  options.deadline_ms = 20'000;
  auto client = client::Client::Connect("farleaf://" + addresses_[primary], options);
  ASSERT_TRUE(client.ok()) << client.status();
  auto tree = (*client)->OpenTree("tested");
  ASSERT_TRUE(tree.ok()) << tree.status();
  // All threads' links to the backups are open: of who logs (a put may stand in another thread's group), and of who flushes.
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(tree->Put(key, "0").ok());
    Sleep(50);
  }
  for (size_t node = 0; node < kNodes; ++node) {
    if (node != primary) nodes_[node]->Signal(SIGSTOP);
  }
  for (int i = 1; i <= 20; ++i) {
    auto put = tree->Put(key, std::to_string(i));
    ASSERT_TRUE(put.ok()) << put.status();
  }
  for (const RegionEntry& region : Regions()) {
    EXPECT_EQ(region.in_sync.size(), kNodes) << "their sessions ended before";
  }
  // Both have it: one of them serves.
  nodes_[primary]->Signal(SIGKILL);
  for (size_t node = 0; node < kNodes; ++node) {
    if (node != primary) nodes_[node]->Signal(SIGCONT);
  }
  (void)cluster_.WaitFor(*nodes_[primary]);
  client = client::Client::Connect("farleaf://" + addresses_[(primary + 1) % kNodes], options);
  ASSERT_TRUE(client.ok()) << client.status();
  tree = (*client)->OpenTree("tested");
  ASSERT_TRUE(tree.ok()) << tree.status();
  const auto value = tree->Get(key);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_TRUE(*value && **value == "20");
}

/// Each node in a network namespace of its own.
class NetworkClusterTest : public KilledClusterTest {
 protected:
  void SetUp() override {
    if (!NamespacesUnderTest::IsPossible()) {
      GTEST_SKIP() << "network namespaces take root, and a kernel that has them";
    }
    network_.emplace(kNodes);
    ProcessClusterTest::SetUp();
  }
};

TEST_F(NetworkClusterTest, NodesAreKilledAtRandomAndNothingAcknowledgedIsLost) {
  KillAtRandom(test::Amount{1, 1, 100});
}

TEST_F(NetworkClusterTest, NodesAreKilledAndPartedAtRandomAndNothingAcknowledgedIsLost) {
  const uint64_t rounds = test::Amount{2, 5, 150};
  Load load(Url(), 10'000);
  uint64_t kills = 0, parted = 0, alone = 0, longest_ns = 0;
  for (uint64_t round = 0; round < rounds && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    Sleep(300 + random_.Below(500));
    (void)load.TakeLongestNs();
    const size_t node = 1 + random_.Below(kNodes);
    const uint64_t fault = round == 0 ? 1 : random_.Below(5);
    if (fault == 0) {  // from the membership
      ++alone;
      network_->Part(node, NamespacesUnderTest::kService);
      Sleep(random_.Below(2 * kSessionMs));
      network_->Heal(node, NamespacesUnderTest::kService);
    } else if (fault == 1) {  // from another node
      ++parted;
      const size_t other = node % kNodes + 1;
      network_->Part(node, other);
      network_->Part(other, node);
      Sleep(random_.Below(2 * kSessionMs));
      network_->Heal(node, other);
      network_->Heal(other, node);
    } else {
      ++kills;
      Kill(node - 1);
      if (random_.OneIn(2)) Sleep(2 * kSessionMs);
      Start(node - 1);
    }
    AwaitWhole();
    AwaitProgress(load);
    longest_ns = std::max(longest_ns, load.TakeLongestNs());
  }
  load.Stop();
  std::printf(
      "%lu kills, %lu pairs parted, %lu times parted from the membership: %lu writes acknowledged, "
      "%lu "
      "requests failed (the first: %s), longest wait %.2f s\n",
      kills, parted, alone, load.acknowledged(), load.failed(), load.first_failure().c_str(),
      Seconds(longest_ns));
}

TEST_F(ProcessClusterTest, TheMembershipIsAwayForAWhileAndNothingAcknowledgedIsLost) {
  Load load(Url());
  for (const uint64_t away_ms : {kSessionMs / 4, 2 * kSessionMs}) {
    SCOPED_TRACE("away for " + std::to_string(away_ms) + " ms");
    Sleep(500);
    zookeeper_->Kill();
    Sleep(away_ms);
    zookeeper_->Start();
    // The session of this test may be over as well.
    OpenSession();
    AwaitWhole();
    AwaitProgress(load);
  }
  load.Stop();
  std::printf("%lu writes acknowledged, %lu requests failed (the first: %s), longest wait %.2f s\n",
              load.acknowledged(), load.failed(), load.first_failure().c_str(),
              Seconds(load.TakeLongestNs()));
}

TEST_F(ProcessClusterTest, AllNodesAreKilledAtOnceAndNothingSyncedIsLost) {
  for (size_t node = 0; node < kNodes; ++node) {
    nodes_[node]->Signal(SIGTERM);
    (void)cluster_.WaitFor(*nodes_[node]);
    Start(node, "synced");
  }
  AwaitWhole();
  Load load(Url());
  const uint64_t times = test::Amount{1, 2, 20};
  for (uint64_t i = 0; i < times && !HasFailure(); ++i) {
    AwaitProgress(load, 20);
    Sleep(300);
    for (auto& node : nodes_) node->Signal(SIGKILL);
    for (size_t node = 0; node < kNodes; ++node) {
      (void)cluster_.WaitFor(*nodes_[node]);
      Start(node, "synced");
    }
    AwaitWhole();
  }
  AwaitProgress(load, 20);
  load.Stop();
  std::printf("%lu writes acknowledged, %lu requests failed (the first: %s), longest wait %.2f s\n",
              load.acknowledged(), load.failed(), load.first_failure().c_str(),
              Seconds(load.TakeLongestNs()));
}

TEST_F(ProcessClusterTest, AllNodesEndWhileTheMembershipIsAwayAndNothingAcknowledgedIsLost) {
  Load load(Url());
  Sleep(500);
  zookeeper_->Kill();
  for (auto& node : nodes_) node->Signal(SIGTERM);
  for (size_t node = 0; node < kNodes; ++node) {
    EXPECT_NE(cluster_.WaitFor(*nodes_[node]).code, Ended::kStillRunning) << nodes_[node]->Output();
  }
  zookeeper_->Start();
  OpenSession();
  for (size_t node = 0; node < kNodes; ++node) Start(node);
  AwaitWhole();
  AwaitProgress(load);
  load.Stop();
  std::printf("%lu writes acknowledged, %lu requests failed (the first: %s)\n", load.acknowledged(),
              load.failed(), load.first_failure().c_str());
}

/// A machine that stands still for seconds ends no session of the nodes, so that nothing is to change by itself.
struct LongSessionTest : ProcessClusterTest {
  LongSessionTest() { session_ms_ = 20'000; }
};

TEST_F(LongSessionTest, AnotherProcessOfANodesNumberEndsAndTheNodeGoesOnAsItWas) {
  const std::vector<RegionEntry> before = Regions();
  Load load(Url());
  const auto other = cluster_.Start(
      "compute_server", {"--engine", "lsm", "--data-dir", cluster_.File("other"), "--listen",
                         "127.0.0.1:0", "--trees", "tested:bytes", "--cluster", membership(),
                         "--node", "1", "--session-timeout-ms", std::to_string(kSessionMs)});
  const Ended ended = cluster_.WaitFor(*other);
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_NE(ended.output.find("is there already"), std::string::npos) << ended.output;
  Sleep(500);  // in which the master would have decided something
  load.Stop();
  const std::vector<RegionEntry> after = Regions();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].view, before[i].view) << "something was decided of it";
    EXPECT_EQ(after[i].primary, before[i].primary);
    EXPECT_EQ(after[i].in_sync, before[i].in_sync);
  }
  EXPECT_EQ(load.failed(), 0u) << load.first_failure();
}

TEST_F(ProcessClusterTest, WhoIsStoppedAndContinuedAnswersNothingOldAndLosesNothing) {
  const std::string key = "key0";
  const size_t old = PrimaryOf(key);
  ASSERT_LT(old, kNodes);
  client::Options options;
  options.deadline_ms = 20'000;
  auto stale_client = client::Client::Connect("farleaf://" + addresses_[old], options);
  ASSERT_TRUE(stale_client.ok()) << stale_client.status();
  auto stale = (*stale_client)->OpenTree("tested");
  ASSERT_TRUE(stale.ok()) << stale.status();
  ASSERT_TRUE(stale->Put(key, "1").ok());
  AwaitWhole();  // who has just been handed the region over is alone in sync before it serves
  nodes_[old]->Signal(SIGSTOP);
  const size_t other = (old + 1) % kNodes;
  auto client = client::Client::Connect("farleaf://" + addresses_[other], options);
  ASSERT_TRUE(client.ok()) << client.status();
  auto tree = (*client)->OpenTree("tested");
  ASSERT_TRUE(tree.ok()) << tree.status();
  // It waits for the session's end. On a slow machine others end as well: then it may not know whether it is done.
  auto put = tree->Put(key, "2");
  for (const uint64_t begun_ns = clock_.NowNs();
       !put.ok() && clock_.NowNs() - begun_ns < kPatienceMs * kNsPerMs;) {
    ASSERT_TRUE(put.status().code() == StatusCode::kUnknown ||
                put.status().code() == StatusCode::kUnavailable)
        << put.status();
    put = tree->Put(key, "2");
  }
  ASSERT_TRUE(put.ok()) << put.status();
  // What waits at the old one when it goes on it neither does by itself nor answers from what it has: it asks who serves by now, or fails.
  std::vector<std::future<Result<client::Value>>> reads;
  for (int i = 0; i < 20; ++i) reads.push_back(stale->GetAsync(key));
  auto write = stale->PutAsync("key1", "of the stale one");
  nodes_[old]->Signal(SIGCONT);
  for (auto& read : reads) {
    const auto value = read.get();
    if (!value.ok()) continue;
    EXPECT_TRUE(*value && **value == "2") << "an old value was answered";
  }
  const auto written = write.get();
  auto there = tree->Get("key1");
  ASSERT_TRUE(there.ok()) << there.status();
  if (written.ok()) {
    EXPECT_TRUE(*there && **there == "of the stale one") << "acknowledged, and not there";
  }
}

}  // namespace
}  // namespace farleaf
