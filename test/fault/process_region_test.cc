// farleafctl region, as a process, with a real ZooKeeper: what it prints, writes and ends with. The nodes are sessions of the test, which do nothing by
// themselves.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/epoch.h"
#include "dsm/null_transport.h"
#include "server/cluster/founding.h"
#include "server/cluster/leaving.h"
#include "server/membership/region_store.h"
#include "server/membership/zookeeper_membership.h"
#include "test/support/process_client.h"
#include "test/support/zookeeper_under_test.h"

namespace farleaf {
namespace {

using server::membership::NodeId;
using server::membership::RegionEntry;
using server::membership::RegionId;
using server::membership::RegionStore;
using server::membership::Watch;
using server::membership::ZookeeperMembership;

class ProcessRegionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!ZookeeperUnderTest::IsInstalled()) GTEST_SKIP() << "ZooKeeper is not installed";
    std::filesystem::create_directory(cluster_.File("zookeeper"));
    zookeeper_.emplace(cluster_.File("zookeeper"), 500);
    url_ = "zookeeper://" + zookeeper_->address() + "/tested";
    auto opened = ZookeeperMembership::Open(url_, {}, &clock_);
    ASSERT_TRUE(opened.ok()) << opened.status();
    session_ = std::move(*opened);
    store_.emplace(session_.get());
    ASSERT_TRUE(Do(store_->Prepare(worker_)).ok());
  }
  void TearDown() override {
    if (!session_) return;
    EXPECT_TRUE(Do(session_->Close(worker_)).ok());
  }

  template <typename T>
  T Do(dsm::Task<T> task) {
    return worker_.Run(std::move(task));
  }
  Ended Region(std::vector<std::string> flags) {
    std::vector<std::string> all = {"region", "--cluster", url_};
    all.insert(all.end(), flags.begin(), flags.end());
    return cluster_.Run("farleafctl", all);
  }
  /// Two regions, cut at \x00\x01m, both on node 1.
  void Found() {
    std::vector<RegionEntry> regions(2);
    for (RegionEntry& region : regions) {
      region.id = *Do(store_->NextRegion(worker_));
      region.primary = 1;
      region.in_sync = {1};
    }
    regions[0].end = regions[1].start = std::string("\0\1m", 3);
    auto founded = Do(store_->Found(worker_, regions, {}));
    ASSERT_TRUE(founded.ok()) << founded.status();
    for (const NodeId id : {1, 2}) {
      const server::membership::NodeEntry node{id, 4, {"farleaf://host:7400"}, "host:7500"};
      ASSERT_TRUE(Do(store_->Announce(worker_, node)).ok());
    }
  }
  RegionEntry Entry(uint32_t id) {
    auto stored = Do(store_->Get(worker_, RegionId{id}, Watch::kNothing));
    EXPECT_TRUE(stored.ok()) << stored.status();
    return stored.ok() ? stored->region : RegionEntry();
  }

  ProcessCluster cluster_{{.memory_servers = 0}};
  std::optional<ZookeeperUnderTest> zookeeper_;
  std::string url_;
  MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  dsm::Worker worker_{{std::make_unique<dsm::NullTransport>(), &epochs_, &clock_, 1, 1}};
  std::unique_ptr<ZookeeperMembership> session_;
  std::optional<RegionStore> store_;
};

TEST_F(ProcessRegionTest, TheFirstMapIsCutBeforeThereIsOne) {
  Ended ended = Region({"list"});
  EXPECT_EQ(ended.code, 3) << ended.output;
  EXPECT_TRUE(ended.says("there is no map of regions yet")) << ended.output;
  ended = Region({"create", "\\x00\\x02", "\\x00\\x01m"});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_TRUE(ended.says("founds 3 regions")) << ended.output;
  auto entry = Do(session_->Get(worker_, server::cluster::kFoundingPath, Watch::kNothing));
  ASSERT_TRUE(entry.ok()) << entry.status();
  auto keys = server::cluster::ParseFounding(AsBytes(entry->bytes));
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(*keys, (std::vector<std::string>{std::string("\0\1m", 3), std::string("\0\2", 2)}));
  ended = Region({"create", "a"});  // in its place
  EXPECT_EQ(ended.code, 0) << ended.output;
  Found();
  ended = Region({"create", "b"});
  EXPECT_EQ(ended.code, 1) << ended.output;
  EXPECT_TRUE(ended.says("use region split")) << ended.output;
}

TEST_F(ProcessRegionTest, RegionsAreListedAndWishesAreWritten) {
  Found();
  ASSERT_TRUE(Do(server::cluster::AnnounceLeaving(worker_, *session_, 2)).ok());
  Ended ended = Region({"list"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_TRUE(ended.says(R"("\x00\x01m"  -)")) << ended.output;
  EXPECT_TRUE(ended.says("leaving  4")) << ended.output;
  ended = Region({"list", "--json"});
  const auto json = nlohmann::json::parse(ended.output, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << ended.output;
  EXPECT_EQ(json["regions"][1]["start"], R"(\x00\x01m)");
  EXPECT_EQ(json["nodes"][0]["primaries"], 2);

  ended = Region({"split", "--key", "\\x00\\x01z", "--at", "\\x00\\x01t", "--no-wait"});
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(Entry(2).split_at, std::string("\0\1t", 3));
  ended = Region({"split", "2", "--at", "\\x00\\x01u"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(ended.says(R"(is to be split at "\x00\x01t" already, by node 1)")) << ended.output;
  ended = Region({"split", "1", "--at", "\\x00\\x01a", "--deadline-ms", "4000"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(ended.says("region 1 is not split yet by its primary, node 1")) << ended.output;
  EXPECT_EQ(Region({"split", "1", "--at", "\\x00\\x01z"}).code, 2);
  EXPECT_EQ(Region({"split", "--at", "\\x00\\x01z"}).code, 2);

  ended = Region({"move", "1", "2", "--no-wait"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(ended.says("node 2 is leaving")) << ended.output;
  ended = Region({"move", "1", "3"});
  EXPECT_EQ(ended.code, 3);
  EXPECT_TRUE(ended.says("node 3 is not there; there are 1, 2")) << ended.output;
  EXPECT_EQ(Region({"move", "8", "1"}).code, 3);
  ended = Region({"assign", "1", "1"});  // where it is
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_EQ(Entry(1).assigned, std::vector<NodeId>{1});
  EXPECT_EQ(Region({"assign", "1", "--anywhere"}).code, 0);
  EXPECT_TRUE(Entry(1).assigned.empty());
  EXPECT_EQ(Region({"assign", "1"}).code, 2);
}

TEST_F(ProcessRegionTest, AMembershipThatIsNotReachedIsNamed) {
  const Ended ended = cluster_.Run(
      "farleafctl",
      {"region", "list", "--cluster", "zookeeper://127.0.0.1:1/tested", "--deadline-ms", "300"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(ended.says("zookeeper://127.0.0.1:1/tested")) << ended.output;
  EXPECT_EQ(cluster_.Run("farleafctl", {"region", "list", "--cluster", "somewhere"}).code, 2);
  EXPECT_EQ(cluster_.Run("farleafctl", {"region", "list"}).code, 2);
}

}  // namespace
}  // namespace farleaf
