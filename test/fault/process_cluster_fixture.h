// ProcessClusterTest: a cluster of three compute_server processes and a ZooKeeper, with several regions, of which each
// node serves as many.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dsm/base/random.h"
#include "dsm/epoch.h"
#include "dsm/null_transport.h"
#include "server/membership/region_store.h"
#include "server/membership/zookeeper_membership.h"
#include "test/fault/cluster_load.h"
#include "test/support/namespaces_under_test.h"
#include "test/support/process_client.h"
#include "test/support/test_scale.h"
#include "test/support/zookeeper_under_test.h"

namespace farleaf {

class ProcessClusterTest : public ::testing::Test {
 public:
  static constexpr size_t kNodes = 3;

 protected:
  using NodeId = server::membership::NodeId;
  using RegionEntry = server::membership::RegionEntry;
  using Load = test::ClusterLoad;
  /// A machine that does much else keeps processes silent for a second; the long form is for the figures.
  static inline const uint64_t kSessionMs = test::Amount{3'000, 3'000, 1'000};

  void SetUp() override;
  /// Says what the nodes said, where something is not as it should be.
  void TearDown() override;
  void OpenSession();

  std::string membership() const { return "zookeeper://" + zookeeper_->address() + "/tested"; }
  /// What `farleafctl region …` prints.
  std::string Ctl(std::vector<std::string> arguments);
  /// `durability`: of all that is acknowledged.
  void Start(size_t node, const char* durability = "replicated");
  void Kill(size_t node);
  /// All nodes, for clients.
  std::string Url() const;
  std::vector<RegionEntry> Regions();
  size_t PrimaryOf(std::string_view key);
  /// kNoNode: there is none now.
  NodeId Master();
  /// All regions have their replicas, and nothing is wished for.
  void AwaitWhole();
  /// Whole, and no node with two primaries, or replicas, more than another one: nothing is handed over or moved any
  /// more by itself.
  void AwaitBalanced();
  void AwaitProgress(const Load& load, uint64_t more = 10);
  void Sleep(uint64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
  static double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

  const MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  dsm::Worker worker_{{std::make_unique<dsm::NullTransport>(), &epochs_, &clock_, 1, 1}};
  ProcessCluster cluster_{{.memory_servers = 0}};
  std::optional<NamespacesUnderTest> network_;  ///< nullopt: all nodes are on loopback
  bool on_rdma_ = false;                        ///< they write to one another's memory by RDMA
  std::vector<std::string> cuts_ = {"i", "r"};  ///< the first keys of regions but the first
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

}  // namespace farleaf
