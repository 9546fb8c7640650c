// What the nodes of a cluster tell of replication in their metrics is what they have done.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "test/fault/process_cluster_fixture.h"
#include "test/support/metrics_page.h"
#include "test/support/prometheus_check.h"
#include "test/support/text_client.h"

namespace farleaf {
namespace {

using test::ExpectWellFormed;
using test::Sample;

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

}  // namespace
}  // namespace farleaf
