// A cluster of three compute_server processes and a ZooKeeper, with several regions: nodes are killed at random, or
// for good, parted from each other, or stopped and continued behind the others' backs, or restarted one after
// another, and regions are split and moved, while clients write and read. Nothing that was acknowledged is lost,
// nothing old is answered; and no request fails because of what was planned.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "dsm/base/random.h"
#include "dsm/epoch.h"
#include "dsm/null_transport.h"
#include "server/cluster/routed_index.h"
#include "server/membership/region_store.h"
#include "server/membership/zookeeper_membership.h"
#include "test/support/metrics_page.h"
#include "test/support/namespaces_under_test.h"
#include "test/support/process_client.h"
#include "test/support/prometheus_check.h"
#include "test/support/test_scale.h"
#include "test/support/text_client.h"
#include "test/support/zookeeper_under_test.h"

namespace farleaf {
namespace {

using server::membership::NodeId;
using server::membership::RegionEntry;
using test::ExpectWellFormed;
using test::Sample;

constexpr size_t kNodes = 3;
constexpr size_t kClients = 3;
constexpr uint64_t kKeysEach = 10;  ///< of each first letter
/// A machine that does much else keeps processes silent for a second; the long form is for the figures.
const uint64_t kSessionMs = test::Amount{3'000, 3'000, 1'000};

/// Clients that write, each its own keys, and read all: what one reads is at least what was acknowledged, or seen by anybody, before it asked, and nothing
/// that was not begun to be written by then. Of reads that may be stale: before as long ago as the answer says.
class Load {
 public:
  explicit Load(std::string url, uint64_t deadline_ms = 30'000)
      : url_(std::move(url)), deadline_ms_(deadline_ms) {
    for (size_t i = 0; i < kClients; ++i) threads_.emplace_back([this, i] { Run(i); });
  }
  ~Load() { Stop(); }
  void Stop() {
    stopping_ = true;
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  uint64_t acknowledged() const { return acknowledged_; }
  /// Answers of copies that were not quite of now.
  uint64_t stale_reads() const { return stale_reads_; }
  uint64_t failed() const { return failed_; }
  std::string first_failure() const {
    std::lock_guard lock(mutex_);
    return first_failure_;
  }
  /// Of a write that was acknowledged.
  struct Written {
    std::string key;
    uint64_t begun_ns, ended_ns;
  };
  /// From here on `TakeWrites` has them all.
  void KeepWrites() { keeps_writes_ = true; }
  std::vector<Written> TakeWrites() {
    std::lock_guard lock(mutex_);
    return std::exchange(writes_, {});
  }
  /// Since the last call: how long a client waited at most for one of its operations.
  uint64_t TakeLongestNs() { return longest_ns_.exchange(0); }

 private:
  struct Known {
    uint64_t tried = 0;                     ///< numbers that were begun to be written
    uint64_t least = 0;                     ///< acknowledged, or seen
    std::map<uint64_t, uint64_t> least_at;  ///< by the time at which it came to be that
    void Least(uint64_t number, uint64_t now_ns) {
      if (number > least) least_at[now_ns] = least = number;
    }
    uint64_t LeastBefore(uint64_t time_ns) const {
      const auto behind = least_at.lower_bound(time_ns);
      return behind == least_at.begin() ? 0 : std::prev(behind)->second;
    }
  };

  void Run(size_t number) {
    client::Options options;
    options.connect_timeout_ms = 2'000;
    options.deadline_ms = deadline_ms_;
    auto client = client::Client::Connect(url_, options);
    ASSERT_TRUE(client.ok()) << client.status();
    auto tree = (*client)->OpenTree("tested");
    ASSERT_TRUE(tree.ok()) << tree.status();
    Random random(number + 1);
    while (!stopping_ && !::testing::Test::HasFailure()) {
      const uint64_t begun_ns = clock_.NowNs();
      if (random.OneIn(4)) {
        ReadStale(*tree, DrawKey(random, random.Below(kClients)));
      } else if (random.OneIn(2)) {
        Read(*tree, DrawKey(random, random.Below(kClients)));
      } else {
        Write(*tree, DrawKey(random, number), random.OneIn(5) ? 2'000 : 60);
      }
      const uint64_t took_ns = clock_.NowNs() - begun_ns;
      uint64_t longest_ns = longest_ns_;
      while (took_ns > longest_ns && !longest_ns_.compare_exchange_weak(longest_ns, took_ns)) {
      }
    }
    // All that there is in the end.
    for (char first = 'a'; first <= 'z'; ++first) {
      for (uint64_t i = 0; i < kKeysEach; ++i) Read(*tree, KeyOf(first, number, i));
    }
  }
  /// From a to z: the regions are parted among these.
  static std::string KeyOf(char first, size_t client, uint64_t i) {
    return std::string(1, first) + std::to_string(client) + "-" + std::to_string(i);
  }
  static std::string DrawKey(Random& random, size_t client) {
    const char first = static_cast<char>('a' + random.Below(26));
    return KeyOf(first, client, random.Below(kKeysEach));
  }
  void Write(client::Tree& tree, const std::string& key, size_t bytes) {
    uint64_t number = 0;
    {
      std::lock_guard lock(mutex_);
      number = ++keys_[key].tried;
    }
    std::string value = std::to_string(number) + " ";
    value.resize(std::max(bytes, value.size()), 'x');
    const uint64_t begun_ns = clock_.NowNs();
    const auto put = tree.Put(key, value);
    const uint64_t ended_ns = clock_.NowNs();
    if (!put.ok()) return Fail("put of " + key + ": " + put.status().ToString());
    std::lock_guard lock(mutex_);
    keys_[key].Least(number, ended_ns);
    if (keeps_writes_) writes_.push_back({key, begun_ns, ended_ns});
    ++acknowledged_;
  }
  static uint64_t NumberOf(const client::Value& value) { return value ? std::stoull(*value) : 0; }
  void Read(client::Tree& tree, const std::string& key) {
    uint64_t least = 0;
    {
      std::lock_guard lock(mutex_);
      least = keys_[key].least;
    }
    const auto value = tree.Get(key);
    if (!value.ok()) return Fail("get of " + key + ": " + value.status().ToString());
    const uint64_t there = NumberOf(*value);
    std::lock_guard lock(mutex_);
    EXPECT_GE(there, least) << key << ": lost, or old";
    EXPECT_LE(there, keys_[key].tried) << key;
    keys_[key].Least(there, clock_.NowNs());
  }
  void ReadStale(client::Tree& tree, const std::string& key) {
    const uint64_t begun_ns = clock_.NowNs();
    uint32_t staleness_ms = 0;
    const auto value = tree.Get(key, {.max_staleness_ms = 60'000, .staleness_ms = &staleness_ms});
    if (!value.ok()) return Fail("stale get of " + key + ": " + value.status().ToString());
    const uint64_t there = NumberOf(*value), staleness_ns = staleness_ms * kNsPerMs;
    std::lock_guard lock(mutex_);
    const Known& known = keys_[key];
    EXPECT_GE(there, known.LeastBefore(begun_ns - std::min(begun_ns, staleness_ns)))
        << key << ": lost, or older than " << staleness_ms << " ms";
    EXPECT_LE(there, known.tried) << key;
    stale_reads_ += staleness_ms > 0;
  }
  void Fail(const std::string& what) {
    if (failed_++ > 0) return;
    std::lock_guard lock(mutex_);
    first_failure_ = what;
  }

  const std::string url_;
  const uint64_t deadline_ms_;
  const MonotonicClock clock_;
  std::atomic<bool> stopping_{false}, keeps_writes_{false};
  std::atomic<uint64_t> acknowledged_{0}, failed_{0}, longest_ns_{0}, stale_reads_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::map<std::string, Known> keys_;
  std::vector<Written> writes_;
  std::string first_failure_;
  std::vector<std::thread> threads_;
};

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

class ProcessClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!ZookeeperUnderTest::IsInstalled()) GTEST_SKIP() << "ZooKeeper is not installed";
    std::filesystem::create_directory(cluster_.File("zookeeper"));
    const std::string host =
        network_ ? network_->AddressOf(NamespacesUnderTest::kService) : "127.0.0.1";
    zookeeper_.emplace(cluster_.File("zookeeper"), 200, host);
    Ctl({"create", "i", "r"});
    for (size_t node = 0; node < kNodes; ++node) {
      addresses_[node] = network_ ? network_->AddressOf(node + 1) + ":7400" : FreeAddress();
      Start(node);
    }
    for (size_t node = 0; node < kNodes; ++node) {
      ASSERT_TRUE(nodes_[node]->WaitForOutput("serving")) << nodes_[node]->Output();
    }
    OpenSession();
    AwaitBalanced();
  }
  /// What the nodes said, where something is not as it should be.
  void TearDown() override {
    for (size_t node = 0; node < kNodes && HasFailure(); ++node) {
      if (!nodes_[node]) continue;
      std::printf("---- node %zu\n%s%s", node + 1, logs_[node].c_str(),
                  nodes_[node]->Output().c_str());
    }
  }
  void OpenSession() {
    session_ = nullptr;
    auto session = server::membership::ZookeeperMembership::Open(
        membership(), {.session_timeout_ms = 20'000}, &clock_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = std::move(*session);
  }

  std::string membership() const { return "zookeeper://" + zookeeper_->address() + "/tested"; }
  /// What `farleafctl region …` prints.
  std::string Ctl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"region", "--cluster", membership()});
    const Ended ended = cluster_.Run("farleafctl", arguments);
    EXPECT_EQ(ended.code, 0) << ended.output;
    return ended.output;
  }
  /// `durability`: of all that is acknowledged.
  void Start(size_t node, const char* durability = "replicated") {
    const std::string number = std::to_string(node + 1);
    std::vector<std::string> flags = {"--engine",
                                      "lsm",
                                      "--data-dir",
                                      cluster_.File("store" + number),
                                      "--listen",
                                      addresses_[node],
                                      "--trees",
                                      "tested:bytes",
                                      "--cluster",
                                      membership(),
                                      "--node",
                                      number,
                                      "--replicas",
                                      std::to_string(replicas_),
                                      "--session-timeout-ms",
                                      std::to_string(session_ms_),
                                      "--durability",
                                      durability,
                                      "--min-in-sync",
                                      min_in_sync_,
                                      "--copy-staleness-ms",
                                      "500",
                                      "--lsm-memtable-bytes",
                                      "1MiB",
                                      "--lsm-cache-bytes",
                                      "4MiB"};
    if (on_rdma_) {
      flags.insert(flags.end(), {"--peer-fabric", "verbs", "--peer-listen",
                                 dsm::ListenHost() + ":0", "--insecure", "--regions-max", "4"});
    }
    if (tells_metrics_) flags.insert(flags.end(), {"--metrics-listen", "127.0.0.1:0"});
    if (!redis_[node].empty()) flags.insert(flags.end(), {"--redis-listen", redis_[node]});
    std::vector<std::string> prefix;
    if (network_) {
      const std::string peer = network_->AddressOf(node + 1) + ":7500";
      flags.insert(flags.end(), {"--peer-listen", peer, "--insecure"});
      prefix = network_->Prefix(node + 1);
    }
    if (nodes_[node]) logs_[node] += nodes_[node]->Output() + "---- started again\n";
    nodes_[node] = cluster_.Start("compute_server", std::move(flags), prefix);
  }
  /// All nodes, for clients.
  std::string Url() const {
    std::string url = "farleaf://";
    for (const std::string& address : addresses_) {
      if (url.back() != '/') url += ",";
      url += address;
    }
    return url;
  }
  std::vector<RegionEntry> Regions() {
    server::membership::RegionStore store(session_.get());
    auto map = worker_.Run(store.Read(worker_));
    return map.ok() ? map->regions() : std::vector<RegionEntry>();
  }
  size_t PrimaryOf(std::string_view key) {
    for (const RegionEntry& region : Regions()) {
      if (region.Covers(key) && region.primary != 0) return region.primary - 1;
    }
    return kNodes;
  }
  /// All regions have their replicas, and nothing is wished for.
  void AwaitWhole() {
    const uint64_t begun_ns = clock_.NowNs();
    const auto whole = [this](const RegionEntry& region) {
      return region.in_sync.size() == replicas_ && region.filling.empty() &&
             region.successor == 0 && region.split_at.empty();
    };
    std::vector<RegionEntry> regions;
    while (clock_.NowNs() - begun_ns < kPatienceMs * kNsPerMs) {
      regions = Regions();
      if (!regions.empty() && std::ranges::all_of(regions, whole)) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    std::string text;
    for (const RegionEntry& region : regions) {
      text += "region " + std::to_string(static_cast<uint32_t>(region.id)) + ": primary " +
              std::to_string(region.primary) + ", in sync " +
              ::testing::PrintToString(region.in_sync) + ", filling " +
              ::testing::PrintToString(region.filling) + "; ";
    }
    ADD_FAILURE() << "not whole again: " << text;
  }
  /// Whole, and each node the primary of one region, and with as many replicas: nothing is handed over or moved any
  /// more by itself.
  void AwaitBalanced() {
    const uint64_t begun_ns = clock_.NowNs();
    for (bool balanced = false; !balanced && !HasFailure();) {
      AwaitWhole();
      std::set<NodeId> primaries;
      std::map<NodeId, size_t> replicas;
      for (const RegionEntry& region : Regions()) {
        primaries.insert(region.primary);
        for (const NodeId node : region.in_sync) ++replicas[node];
      }
      balanced = primaries.size() == kNodes && std::ranges::all_of(replicas, [this](auto& each) {
                   return each.second == replicas_;
                 });
      ASSERT_LT(clock_.NowNs() - begun_ns, kPatienceMs * kNsPerMs) << "not balanced";
      if (!balanced) Sleep(20);
    }
  }
  void Kill(size_t node) {
    nodes_[node]->Signal(SIGKILL);
    (void)cluster_.WaitFor(*nodes_[node]);
  }
  void AwaitProgress(const Load& load, uint64_t more = 10) {
    const uint64_t before = load.acknowledged(), begun_ns = clock_.NowNs();
    while (load.acknowledged() < before + more) {
      ASSERT_LT(clock_.NowNs() - begun_ns, kPatienceMs * kNsPerMs) << load.first_failure();
      Sleep(20);
    }
  }
  void KillAtRandom(uint64_t kills);
  void Sleep(uint64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
  static double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

  const MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  dsm::Worker worker_{{std::make_unique<dsm::NullTransport>(), &epochs_, &clock_, 1, 1}};
  ProcessCluster cluster_{{.memory_servers = 0}};
  std::optional<NamespacesUnderTest> network_;  ///< nullopt: all nodes are on loopback
  bool on_rdma_ = false;                        ///< they write to one another's memory by RDMA
  size_t replicas_ = kNodes;                    ///< of each region
  std::string min_in_sync_ = "1";
  bool tells_metrics_ = false;
  std::array<std::string, kNodes> redis_;  ///< addresses for its clients; empty: none
  uint64_t session_ms_ = kSessionMs;       ///< of the nodes with the membership
  std::optional<ZookeeperUnderTest> zookeeper_;
  std::unique_ptr<server::membership::ZookeeperMembership> session_;
  std::array<std::unique_ptr<ChildProcess>, kNodes> nodes_;
  std::array<std::string, kNodes> addresses_;
  std::array<std::string, kNodes> logs_;  ///< of their lives before the last
  Random random_{1};
};

void ProcessClusterTest::KillAtRandom(uint64_t kills) {
  Load load(Url());
  std::vector<double> waits_s;
  for (uint64_t kill = 0; kill < kills && !HasFailure(); ++kill) {
    SCOPED_TRACE("kill " + std::to_string(kill));
    Sleep(300 + random_.Below(500));
    (void)load.TakeLongestNs();
    const size_t node = random_.Below(kNodes);
    Kill(node);
    // It comes back at once, or when others serve in its place.
    if (random_.OneIn(2)) Sleep(2 * kSessionMs);
    Start(node);
    AwaitWhole();
    waits_s.push_back(Seconds(load.TakeLongestNs()));
  }
  load.Stop();
  std::ranges::sort(waits_s);
  const auto share = [&waits_s](double of_all) {
    return waits_s[static_cast<size_t>(of_all * static_cast<double>(waits_s.size() - 1))];
  };
  std::printf(
      "%lu kills, %lu writes acknowledged, %lu stale reads, %lu requests failed (the first: %s)\n"
      "longest wait of a request behind a kill: median %.2f s, 90 %% %.2f s, longest %.2f s\n",
      kills, load.acknowledged(), load.stale_reads(), load.failed(), load.first_failure().c_str(),
      share(0.5), share(0.9), waits_s.back());
  EXPECT_GT(load.acknowledged(), kills * 100);
  EXPECT_GT(load.stale_reads(), 0u);
}

TEST_F(ProcessClusterTest, NodesAreKilledAtRandomAndNothingAcknowledgedIsLost) {
  KillAtRandom(test::Amount{2, 3, 20});
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

/// Who ends as planned ends its session, so nothing waits for that; and no other one ends meanwhile.
class WatchedClusterTest : public ProcessClusterTest {
 protected:
  static constexpr size_t kLarge = 48, kSmall = 200;                   ///< values of each region
  static constexpr uint64_t kLargeBytes = 64 << 10, kSmallBytes = 60;  ///< of each
  static constexpr uint64_t kSegmentBytes = 2 << 20;                   ///< of the log of values

  WatchedClusterTest() {
    session_ms_ = 20'000;
    tells_metrics_ = true;
    for (std::string& address : redis_) address = FreeAddress();
  }
  std::string UrlOf(size_t node) const { return test::MetricsUrl(*nodes_[node]); }
  std::string PageOf(size_t node) const { return test::HttpGet(UrlOf(node), "/metrics").body; }
  static double Of(const std::string& page, const std::string& name, const RegionEntry& region) {
    const std::string number = std::to_string(static_cast<uint32_t>(region.id));
    return Sample(page, "farleaf_" + name + "{region=\"" + number + "\"}");
  }
  static double Of(const std::string& page, const std::string& name) {
    return Sample(page, "farleaf_" + name);
  }
  /// Until a node's page has it so.
  template <typename Holds>
  void AwaitPage(size_t node, const std::string& what, const Holds& holds) {
    std::string page = PageOf(node);
    for (const uint64_t begun_ns = clock_.NowNs(); !holds(page); page = PageOf(node)) {
      ASSERT_LT(clock_.NowNs() - begun_ns, kPatienceMs * kNsPerMs)
          << what << " no: " << page.substr(page.find("farleaf_cluster_"));
      Sleep(20);
    }
  }
  /// The same to each region.
  void WriteToAll(client::Tree& tree, const std::vector<RegionEntry>& regions) {
    for (const RegionEntry& region : regions) {
      const std::string first = FirstKeyOf(region);
      ASSERT_TRUE(tree.Put(first, "first").ok());
      for (size_t i = 0; i < kLarge + kSmall; ++i) {
        const std::string value(i < kLarge ? kLargeBytes : kSmallBytes, 'x');
        const auto put = tree.Put(first + std::to_string(i), value, {.deadline_ms = kPatienceMs});
        ASSERT_TRUE(put.ok()) << put.status();
      }
    }
  }
  /// Two of three nodes ask the third.
  void ExpectForwardsCounted() {
    double forwarded = 0, connections = 0;
    for (size_t node = 0; node < kNodes; ++node) {
      test::TextClient redis("redis://" + redis_[node]);
      EXPECT_EQ(redis.AskRedis("SET key value\r\nGET key\r\n"), "+OK\r\n$5\r\nvalue\r\n");
      const std::string page = PageOf(node);
      forwarded += Of(page, "cluster_forwarded_total");
      connections += Of(page, "cluster_forward_connections_total");
      EXPECT_EQ(Of(page, "cluster_forward_unreachable_total"), 0);
    }
    EXPECT_GE(forwarded, 2 * (kNodes - 1));
    EXPECT_GE(connections, kNodes - 1);
  }
  /// One of each region from each of its copies.
  void ExpectStaleReadsCounted(const std::vector<RegionEntry>& regions) {
    for (size_t node = 0; node < kNodes; ++node) {
      auto client = client::Client::Connect("farleaf://" + addresses_[node], {});
      ASSERT_TRUE(client.ok()) << client.status();
      auto tree = (*client)->OpenTree("tested");
      ASSERT_TRUE(tree.ok()) << tree.status();
      for (const RegionEntry& region : regions) {
        if (region.primary == node + 1) continue;
        const double before = Of(PageOf(node), "copy_reads_total", region);
        const auto got = tree->Get(FirstKeyOf(region), {.max_staleness_ms = 60'000});
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_TRUE(got->has_value());
        EXPECT_EQ(Of(PageOf(node), "copy_reads_total", region), before + 1);
      }
    }
  }
  static std::string FirstKeyOf(const RegionEntry& region) {
    return (region.start.empty() ? "a" : region.start) + "0";
  }
  /// Who leaves comes back with nothing: the regions whose primary stays throughout, one or both of the others', tell what that has cost.
  void ExpectFillCounted(const std::vector<RegionEntry>& regions) {
    const NodeId leaving = regions[0].primary;
    const size_t left = leaving - 1u;
    std::map<server::membership::RegionId, double> before;
    for (const RegionEntry& region : regions) {
      before[region.id] = Of(PageOf(region.primary - 1u), "replication_fill_bytes_total", region);
    }
    nodes_[left]->Signal(SIGTERM);
    EXPECT_EQ(cluster_.WaitFor(*nodes_[left]).code, 0) << nodes_[left]->Output();
    for (const RegionEntry& region : regions) {
      if (region.primary == leaving) continue;
      AwaitPage(region.primary - 1u, "the loss is seen", [&region](const std::string& page) {
        return Of(page, "replication_backups", region) == kNodes - 2;
      });
    }
    std::filesystem::remove_all(cluster_.File("store" + std::to_string(leaving)));
    Start(left);
    ASSERT_NO_FATAL_FAILURE(AwaitBalanced());
    size_t stayed = 0;
    for (const RegionEntry& region : Regions()) {
      const auto was = std::ranges::find(regions, region.id, &RegionEntry::id);
      ASSERT_NE(was, regions.end());
      if (region.primary != was->primary || region.primary == leaving) continue;
      ++stayed;
      const std::string page = PageOf(region.primary - 1u);
      EXPECT_EQ(Of(page, "replication_backups", region), kNodes - 1);
      EXPECT_EQ(Of(page, "replication_excluded_total", region), 1);
      const double filled = Of(page, "replication_fill_bytes_total", region) - before.at(region.id);
      EXPECT_GE(filled, kSegmentBytes);
      EXPECT_LT(filled, 2 * (kLarge * kLargeBytes + kSmall * kSmallBytes));
    }
    EXPECT_GE(stayed, 1u);
  }
  void ExpectWritesCounted(const std::vector<RegionEntry>& regions) {
    constexpr double kBytes = kLarge * kLargeBytes + kSmall * kSmallBytes, kBackups = kNodes - 1;
    for (const RegionEntry& region : regions) {
      SCOPED_TRACE("region " + std::to_string(static_cast<uint32_t>(region.id)));
      const std::string page = PageOf(region.primary - 1u);
      const double user_bytes = Of(page, "lsm_user_bytes_total", region),
                   log_bytes = Of(page, "replication_log_bytes_total", region),
                   table_bytes = Of(page, "replication_table_bytes_total", region);
      EXPECT_EQ(Of(page, "replication_backups", region), kBackups);
      EXPECT_GT(user_bytes, kBytes) << "keys count, too";
      EXPECT_LT(user_bytes, 1.1 * kBytes);
      EXPECT_GE(log_bytes, kBackups * user_bytes);
      EXPECT_LT(log_bytes, kBackups * 1.3 * user_bytes);
      // Large values are not in the tables.
      EXPECT_GE(table_bytes, kBackups * kSmall * kSmallBytes);
      EXPECT_LT(table_bytes, kBackups * kBytes / 4);
      // Puts come one after another, each with a round trip of its own.
      EXPECT_GE(Of(page, "replication_appends_total", region), kLarge + kSmall);
      EXPECT_GT(Of(page, "replication_messages_total", region), 0);
      EXPECT_EQ(Of(page, "replication_excluded_total", region), 0);
    }
  }
  void ExpectRolesTold(const std::vector<RegionEntry>& regions) {
    double masters = 0;
    for (size_t node = 0; node < kNodes; ++node) {
      SCOPED_TRACE("node " + std::to_string(node + 1));
      const std::string page = PageOf(node);
      EXPECT_EQ(Of(page, "cluster_primaries"), 1);
      EXPECT_EQ(Of(page, "cluster_backups"), kNodes - 1);
      EXPECT_GT(Of(page, "cluster_view"), 0);
      EXPECT_EQ(Of(page, "cluster_forward_unreachable_total"), 0);
      EXPECT_GT(Of(page, "copy_checked_bytes_total"), 0);
      masters += Of(page, "cluster_master");
      for (const RegionEntry& region : regions) {
        const bool serves = region.primary == node + 1;
        EXPECT_EQ(Of(page, "replication_backups", region) < 0, !serves);
        EXPECT_EQ(Of(page, "copy_staleness_seconds", region) < 0, serves);
      }
    }
    EXPECT_EQ(masters, 1);
  }
};

TEST_F(WatchedClusterTest, EachNodeTellsWhatItHasReplicatedFilledForwardedAndReadOfCopies) {
  const std::vector<RegionEntry> regions = Regions();
  auto client = client::Client::Connect(Url(), {});
  ASSERT_TRUE(client.ok()) << client.status();
  auto tree = (*client)->OpenTree("tested");
  ASSERT_TRUE(tree.ok()) << tree.status();
  ASSERT_NO_FATAL_FAILURE(WriteToAll(*tree, regions));
  for (const RegionEntry& region : regions) {
    AwaitPage(region.primary - 1u, "its tables are shipped", [&region](const std::string& page) {
      return Of(page, "replication_table_bytes_total", region) >=
             (kNodes - 1) * kSmall * kSmallBytes;
    });
    for (size_t node = 0; node < kNodes; ++node) {
      if (region.primary == node + 1) continue;
      AwaitPage(node, "its copy is read", [&region](const std::string& page) {
        const double staleness_s = Of(page, "copy_staleness_seconds", region);
        return staleness_s > 0 && staleness_s < 60;
      });
    }
  }
  ExpectWritesCounted(regions);
  ExpectRolesTold(regions);
  ExpectForwardsCounted();
  ASSERT_NO_FATAL_FAILURE(ExpectStaleReadsCounted(regions));
  ASSERT_NO_FATAL_FAILURE(ExpectFillCounted(regions));
  for (size_t node = 0; node < kNodes; ++node) {
    ExpectWellFormed(cluster_, UrlOf(node),
                     {"farleaf_replication_backups",
                      "farleaf_replication_appends",
                      "farleaf_replication_log_bytes",
                      "farleaf_replication_table_bytes",
                      "farleaf_replication_fill_bytes",
                      "farleaf_replication_messages",
                      "farleaf_replication_excluded",
                      "farleaf_cluster_primaries",
                      "farleaf_cluster_backups",
                      "farleaf_cluster_master",
                      "farleaf_cluster_view",
                      "farleaf_cluster_forwarded",
                      "farleaf_cluster_forward_connections",
                      "farleaf_cluster_forward_unreachable",
                      "farleaf_copy_staleness_seconds",
                      "farleaf_copy_reads",
                      "farleaf_copy_reads_begun_again",
                      "farleaf_copy_check_buffers_free",
                      "farleaf_copy_checked_bytes",
                      "farleaf_copy_read_back_bytes",
                      "farleaf_copy_checking_seconds"});
  }
}

/// Nodes that write to one another's memory by RDMA.
class VerbsClusterTest : public ProcessClusterTest {
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
class NetworkClusterTest : public ProcessClusterTest {
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

/// With one to be in sync: server/cluster/README.md, Not there yet, says what two would fail.
TEST_F(PlannedChangeTest, AllNodesAreRestartedOneAfterAnotherAndNoRequestFails) {
  Load load(Url());
  Sleep(300);
  (void)load.TakeLongestNs();
  for (size_t node = 0; node < kNodes && !HasFailure(); ++node) {
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
