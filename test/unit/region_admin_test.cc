// What an operator wishes of regions, over a membership in this process, with a real master and nodes that act as entries ask them to; and what he is shown.
#include "server/control/region_admin.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/cluster/founding.h"
#include "server/control/region_text.h"
#include "test/support/acting_nodes.h"

namespace farleaf::server {
namespace {

using cluster::ActingNodes;
using cluster::Contains;
using membership::kNoNode;
using membership::NodeId;
using membership::RegionEntry;
using membership::RegionId;
using Nodes = std::vector<NodeId>;
using Regions = std::vector<RegionEntry>;

class RegionAdminTest : public ::testing::Test {
 protected:
  RegionAdmin Admin(uint64_t wait_ms = 60'000) {
    return RegionAdmin({&nodes.eye(), &nodes.clock(), wait_ms,
                        [this](std::string_view missing) { told.emplace_back(missing); }});
  }
  Status Create(std::vector<std::string> keys) {
    RegionAdmin admin = Admin();
    return nodes.Run(admin.Create(nodes.worker(), std::move(keys)));
  }
  Result<RegionId> Split(uint32_t id, const std::string& key, const std::string& at,
                         RegionWait wait = RegionWait::kUntilDone) {
    RegionAdmin admin = Admin();
    return nodes.Run(admin.Split(nodes.worker(), RegionId{id}, key, at, wait));
  }
  Status Move(uint32_t id, NodeId node, uint64_t wait_ms = 60'000,
              RegionWait wait = RegionWait::kUntilDone) {
    RegionAdmin admin = Admin(wait_ms);
    return nodes.Run(admin.Move(nodes.worker(), RegionId{id}, node, wait));
  }
  Status Assign(uint32_t id, Nodes to, RegionWait wait = RegionWait::kUntilDone) {
    RegionAdmin admin = Admin();
    return nodes.Run(admin.Assign(nodes.worker(), RegionId{id}, std::move(to), wait));
  }
  Result<RegionListing> List() {
    RegionAdmin admin = Admin();
    return nodes.Run(admin.List(nodes.worker()));
  }
  RegionEntry Region(uint32_t id) {
    for (const RegionEntry& region : nodes.Regions()) {
      if (region.id == RegionId{id}) return region;
    }
    return {};
  }
  void StartNodes(NodeId count) {
    for (NodeId id = 1; id <= count; ++id) nodes.Start(id);
    ASSERT_TRUE(nodes.Comes([](const Regions& regions) {
      return !regions.empty() && std::ranges::all_of(regions, [](const RegionEntry& region) {
        return region.in_sync.size() == 2 && region.filling.empty() && region.successor == kNoNode;
      });
    }));
  }
  static size_t PrimariesOf(const Regions& regions, NodeId node) {
    return static_cast<size_t>(std::ranges::count(regions, node, &RegionEntry::primary));
  }

  ActingNodes nodes{{.replicas = 2}};
  std::vector<std::string> told;
};

TEST_F(RegionAdminTest, TheFirstMapIsCutAtTheKeysAndSpreads) {
  EXPECT_EQ(List().status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(Create({"x"}).ok());
  ASSERT_TRUE(Create({"m", "c", std::string("\0t", 2)}).ok());  // in its place
  StartNodes(3);
  ASSERT_TRUE(nodes.Comes([](const Regions& regions) {
    std::vector<size_t> primaries, replicas;
    for (NodeId node = 1; node <= 3; ++node) {
      primaries.push_back(PrimariesOf(regions, node));
      replicas.push_back(static_cast<size_t>(std::ranges::count_if(
          regions, [node](const RegionEntry& region) { return Contains(region.in_sync, node); })));
    }
    std::ranges::sort(primaries);
    std::ranges::sort(replicas);
    return primaries == std::vector<size_t>{1, 1, 2} && replicas == std::vector<size_t>{2, 3, 3};
  }));
  const auto listing = List();
  ASSERT_TRUE(listing.ok()) << listing.status();
  std::vector<std::string> starts;
  std::vector<RegionId> ids;
  for (const RegionEntry& region : listing->regions) {
    starts.push_back(region.start);
    ids.push_back(region.id);
  }
  EXPECT_EQ(starts, (std::vector<std::string>{"", std::string("\0t", 2), "c", "m"}));
  EXPECT_EQ(nodes.stores, ids);
  EXPECT_FALSE(nodes.made_behind_the_map);
  auto founding = nodes.Run(
      nodes.eye().Get(nodes.worker(), cluster::kFoundingPath, membership::Watch::kNothing));
  EXPECT_EQ(founding.status().code(), StatusCode::kNotFound);
  const Status again = Create({"q"});
  EXPECT_EQ(again.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(again.message().find("use region split"), std::string::npos);
}

TEST_F(RegionAdminTest, KeysThatComeWhileTheMapIsFoundedCutIt) {
  RegionAdmin admin = Admin();
  nodes.with_a_store = [&](dsm::Worker& on) { return admin.Create(on, {"m"}); };
  StartNodes(2);
  EXPECT_EQ(nodes.Regions().size(), 2u);
  EXPECT_EQ(nodes.stores, (std::vector<RegionId>{RegionId{1}, RegionId{1}, RegionId{2}}));
}

TEST_F(RegionAdminTest, WithoutKeysThereIsOneRegion) {
  StartNodes(2);
  ASSERT_EQ(nodes.Regions().size(), 1u);
  EXPECT_EQ(nodes.Regions()[0].start, "");
  EXPECT_EQ(nodes.Regions()[0].end, "");
}

TEST_F(RegionAdminTest, KeysThatCutNothingAreRefused) {
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {}, {""}, {"a", "a"}, {std::string(4097, 'a')}, std::vector<std::string>(1'001, "a")}) {
    EXPECT_EQ(Create(keys).code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(RegionAdminTest, FoundingIsReadAsItWasWrittenAndDamageIsFound) {
  const std::vector<std::string> keys = {"a", std::string("b\0", 2), std::string(4096, 'z')};
  const std::string bytes = cluster::EncodeFounding(keys);
  const auto parse = [](std::string_view text) {
    return cluster::ParseFounding({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  };
  auto parsed = parse(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, keys);
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string damaged = bytes;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    EXPECT_EQ(parse(damaged).status().code(), StatusCode::kCorruption) << i;
    EXPECT_EQ(parse(bytes.substr(0, i)).status().code(), StatusCode::kCorruption) << i;
  }
}

TEST_F(RegionAdminTest, ARegionIsSplitByIdAndByKey) {
  StartNodes(2);
  auto right = Split(1, "", "m");
  ASSERT_TRUE(right.ok()) << right.status();
  auto list = List();
  EXPECT_EQ(list->regions[1].start, "m");
  EXPECT_EQ(list->regions[1].id, *right);
  right = Split(0, "z", "q");
  ASSERT_TRUE(right.ok()) << right.status();
  list = List();
  ASSERT_EQ(list->regions.size(), 3u);
  EXPECT_EQ(list->regions[2].start, "q");
  EXPECT_EQ(list->regions[2].id, *right);
}

TEST_F(RegionAdminTest, ASplitThatMakesNoSenseIsRefused) {
  StartNodes(2);
  ASSERT_TRUE(Split(1, "", "m").ok());
  const auto error = [](const Result<RegionId>& result) { return result.status().ToString(); };
  EXPECT_EQ(error(Split(9, "", "m")), "not found: there is no region 9; there are 1, 2");
  EXPECT_EQ(error(Split(1, "", "q\n")),
            "invalid argument: key \"q\\x0a\" is not of region 1, which has \"\" to \"m\": it is "
            "of region 2");
  EXPECT_EQ(error(Split(2, "", "m")), "invalid argument: region 2 begins at \"m\" already");
  EXPECT_EQ(error(Split(1, "", "")), "invalid argument: region 1 begins at \"\" already");
  nodes.Pause(true);
  ASSERT_TRUE(Split(2, "", "t", RegionWait::kNo).ok());
  EXPECT_EQ(Region(2).split_at, "t");
  EXPECT_EQ(Split(2, "", "s").status().code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(Split(2, "", "t", RegionWait::kNo).ok());  // is wished already
}

TEST_F(RegionAdminTest, ARegionMovesToABackupAndToANodeWithoutACopy) {
  StartNodes(3);
  const RegionEntry before = Region(1);
  for (NodeId node = 1; node <= 3; ++node) {
    if (node == before.primary || !Contains(before.in_sync, node)) continue;
    ASSERT_TRUE(Move(1, node).ok());
    EXPECT_EQ(Region(1).primary, node);
  }
  for (NodeId node = 1; node <= 3; ++node) {
    if (Contains(before.in_sync, node)) continue;
    told.clear();
    const Status moved = Move(1, node);
    ASSERT_TRUE(moved.ok()) << moved;
    EXPECT_EQ(Region(1).primary, node);
    EXPECT_FALSE(told.empty());
  }
  // What is too many leaves.
  EXPECT_TRUE(nodes.Comes([](const Regions& regions) {
    return regions[0].in_sync.size() == 2 && regions[0].filling.empty();
  }));
}

TEST_F(RegionAdminTest, AMoveThatCannotBeIsRefusedOrEndsWithWhatIsMissing) {
  StartNodes(3);
  EXPECT_EQ(Move(1, 9).ToString(), "not found: node 9 is not there; there are 1, 2, 3");
  EXPECT_EQ(Move(7, 2).code(), StatusCode::kNotFound);
  nodes.Pause(true);
  const RegionEntry before = Region(1);
  const NodeId spare = Contains(before.in_sync, 2) ? 3 : 2;
  const Status late = Move(1, spare, 3'000);
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late.message(), "not done after 3 s, and still wished: node " + std::to_string(spare) +
                                " is being filled by node " + std::to_string(before.primary));
  EXPECT_EQ(Region(1).successor, spare);
  // To stay where it is takes the wish back, and what was filled for it leaves.
  ASSERT_TRUE(Move(1, before.primary).ok());
  EXPECT_EQ(Region(1).successor, kNoNode);
}

TEST_F(RegionAdminTest, AMoveEndsWhenItsNodeIsGone) {
  StartNodes(3);
  nodes.Pause(true);
  const NodeId spare = Contains(Region(1).in_sync, 2) ? 3 : 2;
  ASSERT_TRUE(Move(1, spare, 1'000, RegionWait::kNo).ok());
  nodes.Stop(spare);
  EXPECT_TRUE(nodes.Comes([](const Regions& regions) {
    return regions[0].successor == kNoNode && regions[0].filling.empty();
  }));
}

TEST_F(RegionAdminTest, AnAssignedRegionIsOnJustThoseNodes) {
  StartNodes(4);
  for (const Nodes& to : std::vector<Nodes>{{3, 4}, {1, 2}, {4}, {1, 2, 3}}) {
    const Status assigned = Assign(1, to);
    ASSERT_TRUE(assigned.ok()) << assigned;
    EXPECT_EQ(Region(1).in_sync, to);
    EXPECT_TRUE(Contains(to, Region(1).primary));
  }
  EXPECT_EQ(Move(1, 4).ToString(),
            "invalid argument: region 1 is assigned to nodes 1, 2, 3: use region assign");
  ASSERT_TRUE(Assign(1, {}).ok());
  EXPECT_TRUE(Region(1).assigned.empty());
  EXPECT_TRUE(nodes.Comes([](const Regions& regions) { return regions[0].in_sync.size() == 2; }));
  EXPECT_EQ(Assign(1, {1, 8}).code(), StatusCode::kNotFound);
  EXPECT_TRUE(Region(1).assigned.empty());
}

TEST_F(RegionAdminTest, WhoLeavesIsPrimaryOfNothingAndKeepsItsCopies) {
  ASSERT_TRUE(Create({"c", "m", "t"}).ok());
  StartNodes(3);
  ASSERT_TRUE(nodes.Comes([](const Regions& regions) { return PrimariesOf(regions, 2) > 0; }));
  nodes.Leave(2);
  ASSERT_TRUE(nodes.Comes([](const Regions& regions) {
    return PrimariesOf(regions, 2) == 0 &&
           std::ranges::any_of(
               regions, [](const RegionEntry& region) { return Contains(region.in_sync, 2); });
  }));
  EXPECT_EQ(List()->leaving, Nodes{2});
  EXPECT_EQ(Move(1, 2).ToString(), "unavailable: node 2 is leaving");
  nodes.Stop(2);
  ASSERT_TRUE(nodes.Comes([](const Regions& regions) {
    return std::ranges::all_of(regions, [](const RegionEntry& region) {
      return region.in_sync == Nodes{1, 3};
    });
  }));
  EXPECT_TRUE(List()->leaving.empty());
  nodes.Start(2);  // and is given its part again
  EXPECT_TRUE(nodes.Comes([](const Regions& regions) { return PrimariesOf(regions, 2) == 1; }));
}

TEST_F(RegionAdminTest, AMasterThatEndsIsFollowedByAnother) {
  StartNodes(3);
  nodes.Stop(1);  // the first that stood
  EXPECT_TRUE(nodes.Comes([](const Regions& regions) {
    return regions[0].in_sync == Nodes{2, 3} && regions[0].filling.empty();
  }));
  ASSERT_TRUE(Split(1, "", "m").ok());
}

TEST(RegionTextTest, ATableHasWhatThereIs) {
  RegionListing listing{.map_version = 7};
  RegionEntry left;
  left.id = RegionId{12};
  left.view = 3;
  left.primary = 1;
  left.in_sync = {1, 2};
  left.filling = {3};
  left.end = std::string("\0\1m\\", 4);
  left.successor = 2;
  left.assigned = {2, 3};
  left.split_at = "c";
  RegionEntry right;
  right.id = RegionId{3};
  right.view = 1;
  right.state = membership::RegionState::kHeadless;
  right.in_sync = {9};
  right.start = left.end;
  listing.regions = {left, right};
  listing.nodes = {{1, 5, {"farleaf://a:1", "farleaf://a:2"}, "a:7"}, {2, 6, {}, ""}};
  listing.leaving = {2};
  EXPECT_EQ(RegionsText(listing),
            R"(region  first key      end            view  primary  in sync  filling  successor  )"
            R"(assigned  split at
12      ""             "\x00\x01m\\"  3     1        1,2      3        2          2,3       "c"
3       "\x00\x01m\\"  -              1     -        9        -        -          -         -

node  state    incarnation  primaries  in sync  filling  clients                      memory
1     there    5            1          1        0        farleaf://a:1,farleaf://a:2  a:7
2     leaving  6            0          1        0        -                            -
3     gone     -            0          0        1        -                            -
9     gone     -            0          1        0        -                            -
)");
  const auto json = nlohmann::json::parse(RegionsJson(listing));
  EXPECT_EQ(json["map_version"], 7);
  EXPECT_EQ(json["regions"][0]["id"], 12);
  EXPECT_EQ(json["regions"][0]["start"], "");
  EXPECT_EQ(json["regions"][0]["end"], "\\x00\\x01m\\\\");
  EXPECT_EQ(json["regions"][0]["in_sync"], (std::vector<int>{1, 2}));
  EXPECT_EQ(json["regions"][0]["successor"], 2);
  EXPECT_EQ(json["regions"][0]["split_at"], "c");
  EXPECT_TRUE(json["regions"][1]["primary"].is_null());
  EXPECT_TRUE(json["regions"][1]["end"].is_null());
  EXPECT_EQ(json["nodes"][1]["state"], "leaving");
  EXPECT_EQ(json["nodes"][0]["native_endpoints"][1], "farleaf://a:2");
}

}  // namespace
}  // namespace farleaf::server
