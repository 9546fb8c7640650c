#include "test/fault/process_cluster_fixture.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <map>
#include <thread>

#include "server/membership/election.h"

namespace farleaf {

namespace {

/// Of all nodes, by id.
bool IsEven(const std::map<server::membership::NodeId, size_t>& counts) {
  const auto [least, most] =
      std::ranges::minmax_element(counts, {}, [](const auto& each) { return each.second; });
  return counts.size() == ProcessClusterTest::kNodes && most->second - least->second <= 1;
}

}  // namespace

void ProcessClusterTest::SetUp() {
  if (!ZookeeperUnderTest::IsInstalled()) GTEST_SKIP() << "ZooKeeper is not installed";
  std::filesystem::create_directory(cluster_.File("zookeeper"));
  const std::string host =
      network_ ? network_->AddressOf(NamespacesUnderTest::kService) : "127.0.0.1";
  zookeeper_.emplace(cluster_.File("zookeeper"), 200, host);
  std::vector<std::string> create = cuts_;
  create.insert(create.begin(), "create");
  Ctl(std::move(create));
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

void ProcessClusterTest::TearDown() {
  for (size_t node = 0; node < kNodes && HasFailure(); ++node) {
    if (!nodes_[node]) continue;
    std::printf("---- node %zu\n%s%s", node + 1, logs_[node].c_str(),
                nodes_[node]->Output().c_str());
  }
}

void ProcessClusterTest::OpenSession() {
  session_ = nullptr;
  auto session = server::membership::ZookeeperMembership::Open(
      membership(), {.session_timeout_ms = 20'000}, &clock_);
  ASSERT_TRUE(session.ok()) << session.status();
  session_ = std::move(*session);
}

std::string ProcessClusterTest::Ctl(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"region", "--cluster", membership()});
  const Ended ended = cluster_.Run("farleafctl", arguments);
  EXPECT_EQ(ended.code, 0) << ended.output;
  return ended.output;
}

void ProcessClusterTest::Start(size_t node, const char* durability) {
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
    flags.insert(flags.end(), {"--peer-fabric", "verbs", "--peer-listen", dsm::ListenHost() + ":0",
                               "--insecure", "--regions-max", "4"});
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

void ProcessClusterTest::Kill(size_t node) {
  nodes_[node]->Signal(SIGKILL);
  (void)cluster_.WaitFor(*nodes_[node]);
}

std::string ProcessClusterTest::Url() const {
  std::string url = "farleaf://";
  for (const std::string& address : addresses_) {
    if (url.back() != '/') url += ",";
    url += address;
  }
  return url;
}

std::vector<server::membership::RegionEntry> ProcessClusterTest::Regions() {
  server::membership::RegionStore store(session_.get());
  auto map = worker_.Run(store.Read(worker_));
  return map.ok() ? map->regions() : std::vector<RegionEntry>();
}

size_t ProcessClusterTest::PrimaryOf(std::string_view key) {
  for (const RegionEntry& region : Regions()) {
    if (region.Covers(key) && region.primary != 0) return region.primary - 1;
  }
  return kNodes;
}

// Its name there is NODE/LIFE.
server::membership::NodeId ProcessClusterTest::Master() {
  server::membership::Election election(session_.get(), &clock_, "/master", "onlooker");
  const auto name = worker_.Run(election.Master(worker_));
  NodeId master = server::membership::kNoNode;
  if (name.ok() && *name)
    std::from_chars((*name)->data(), (*name)->data() + (*name)->size(), master);
  return master;
}

void ProcessClusterTest::AwaitWhole() {
  const uint64_t begun_ns = clock_.NowNs();
  const auto whole = [this](const RegionEntry& region) {
    return region.in_sync.size() == replicas_ && region.filling.empty() && region.successor == 0 &&
           region.split_at.empty();
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

// Who has just been handed a region over takes itself alone a moment later.
void ProcessClusterTest::AwaitBalanced() {
  constexpr uint64_t kMomentMs = 300;
  const uint64_t begun_ns = clock_.NowNs();
  for (bool balanced = false; !balanced && !HasFailure();) {
    AwaitWhole();
    const std::vector<RegionEntry> regions = Regions();
    std::map<NodeId, size_t> primaries, replicas;
    for (const RegionEntry& region : regions) {
      ++primaries[region.primary];
      for (const NodeId node : region.in_sync) ++replicas[node];
    }
    balanced = IsEven(primaries) && IsEven(replicas);
    ASSERT_LT(clock_.NowNs() - begun_ns, kPatienceMs * kNsPerMs) << "not balanced";
    Sleep(balanced ? kMomentMs : 20);
    balanced = balanced && Regions() == regions;
  }
}

void ProcessClusterTest::AwaitProgress(const Load& load, uint64_t more) {
  const uint64_t before = load.acknowledged(), begun_ns = clock_.NowNs();
  while (load.acknowledged() < before + more) {
    ASSERT_LT(clock_.NowNs() - begun_ns, kPatienceMs * kNsPerMs) << load.first_failure();
    Sleep(20);
  }
}

}  // namespace farleaf
