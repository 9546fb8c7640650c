// Placement: its rules one by one, and random clusters to which its decisions are applied until there are none: nodes die, come and leave, and it always
// comes to a stand, evenly.
#include "server/cluster/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "dsm/base/random.h"
#include "server/cluster/leaving.h"
#include "server/cluster/region_views.h"
#include "test/support/test_scale.h"

namespace farleaf::server::cluster {
namespace {

using membership::CheckRegionEntry;
using membership::kMembersMax;
using membership::kNoNode;
using membership::RegionState;
using Nodes = std::vector<NodeId>;

RegionEntry NewRegion(uint32_t id, NodeId primary, Nodes in_sync, Nodes filling = {}) {
  RegionEntry region;
  region.id = RegionId{id};
  region.view = 1;
  region.primary = primary;
  region.in_sync = std::move(in_sync);
  region.filling = std::move(filling);
  if (primary == kNoNode) region.state = RegionState::kHeadless;
  return region;
}

Placement NewPlacement(const Nodes& nodes, uint32_t replicas, std::vector<RegionEntry> regions) {
  Placement seen;
  for (const NodeId id : nodes) seen.nodes.push_back({id, 1, {}, "there"});
  seen.replicas = replicas;
  seen.regions = std::move(regions);
  return seen;
}

/// The only decision.
RegionEntry Decision(const Placement& seen) {
  const std::vector<RegionEntry> changed = Place(seen);
  EXPECT_EQ(changed.size(), 1u);
  return changed.empty() ? RegionEntry() : changed.front();
}

TEST(PlacementTest, OfThoseInSyncTheOneWithTheFewestPrimariesIsPromoted) {
  // 9 is gone; 1 serves two regions, 2 and 3 one each.
  const Placement seen = NewPlacement(
      {1, 2, 3}, 1,
      {NewRegion(1, 1, {1}), NewRegion(2, 1, {1}), NewRegion(3, 2, {2}), NewRegion(4, 3, {3}),
       NewRegion(5, 9, {1, 2, 3, 9}), NewRegion(6, 9, {1, 2, 3, 9}), NewRegion(7, 9, {1, 3, 9})});
  const std::vector<RegionEntry> changed = Place(seen);
  ASSERT_EQ(changed.size(), 3u);
  EXPECT_EQ(changed[0].primary, 2);  // the smaller id of two
  EXPECT_EQ(changed[1].primary, 3);  // 2 has got one
  EXPECT_EQ(changed[2].primary, 1);  // all have two
  for (const RegionEntry& region : changed) EXPECT_EQ(region.in_sync, Nodes{region.primary});
}

TEST(PlacementTest, TheRestOfThoseInSyncStaySoUntilWhoIsPromotedHasBegun) {
  const RegionEntry next =
      Decision(NewPlacement({1, 2, 3}, 3, {NewRegion(1, 9, {2, 3, 9}, {1, 8})}));
  EXPECT_EQ(next.primary, 2);
  EXPECT_EQ(next.in_sync, (Nodes{2, 3}));
  EXPECT_EQ(next.filling, Nodes{1});
}

TEST(PlacementTest, AHeadlessRegionWaitsForTheRest) {
  Placement seen = NewPlacement({4}, 2, {NewRegion(1, 9, {8, 9})});
  const RegionEntry headless = Decision(seen);
  EXPECT_EQ(headless.state, RegionState::kHeadless);
  EXPECT_EQ(headless.primary, kNoNode);
  EXPECT_EQ(headless.in_sync, (Nodes{8, 9}));
  seen = NewPlacement({4, 8}, 2, {headless});
  seen.held = {{RegionId{1}, 8, 1, {3, 70}}};
  EXPECT_TRUE(Place(seen).empty());
  seen.waited = {RegionId{2}};
  EXPECT_TRUE(Place(seen).empty());
  seen.waited = {RegionId{1}};
  EXPECT_EQ(Decision(seen).primary, 8);
  seen.held.clear();  // not even who is there has told
  EXPECT_TRUE(Place(seen).empty());
}

TEST(PlacementTest, OfAHeadlessRegionWhoHoldsMostIsNamedOnceAllHaveTold) {
  const RegionEntry headless = NewRegion(1, kNoNode, {7, 8, 9});
  Placement seen = NewPlacement({7, 8, 9}, 3, {headless});
  seen.held = {
      {RegionId{1}, 7, 1, {3, 900}}, {RegionId{1}, 9, 1, {4, 80}}, {RegionId{2}, 8, 1, {9, 9}}};
  EXPECT_TRUE(Place(seen).empty());
  seen.held.push_back({RegionId{1}, 8, 1, {4, 81}});
  const RegionEntry next = Decision(seen);
  EXPECT_EQ(next.primary, 8);  // the last epoch, and the last sequence of that
  EXPECT_EQ(next.in_sync, Nodes{8});
  EXPECT_EQ(next.filling, (Nodes{7, 9}));
  // A copy that cannot be read is not waited for; but nobody begins with one.
  seen.held[3].through = {};
  EXPECT_EQ(Decision(seen).primary, 9);
  for (Held& held : seen.held) held.through = {};
  EXPECT_TRUE(Place(seen).empty());
  // Who was alone in sync has all, whatever that is.
  EXPECT_EQ(Decision(NewPlacement({7, 8}, 1, {NewRegion(1, kNoNode, {8})})).primary, 8);
}

TEST(PlacementTest, TheNodeWithTheFewestReplicasIsFilled) {
  Placement seen = NewPlacement(
      {1, 2, 3, 4}, 2, {NewRegion(1, 1, {1, 2}), NewRegion(2, 2, {2, 3}), NewRegion(3, 1, {1})});
  seen.nodes.push_back({5, 1, {}, ""});  // has no memory to give
  EXPECT_EQ(Decision(seen).filling, Nodes{4});
  seen.leaving = {4};
  EXPECT_EQ(Decision(seen).filling, Nodes{3});
  seen.nodes.resize(1);  // 1 alone is there
  for (const RegionEntry& region : Place(seen)) EXPECT_TRUE(region.filling.empty());
}

TEST(PlacementTest, SeveralFillsOfOneLookAreSpread) {
  std::vector<RegionEntry> regions;
  for (uint32_t id = 1; id <= 6; ++id) regions.push_back(NewRegion(id, 1, {1}));
  std::map<NodeId, int> fills;
  for (const RegionEntry& region : Place(NewPlacement({1, 2, 3, 4}, 2, regions))) {
    ASSERT_EQ(region.filling.size(), 1u);
    ++fills[region.filling.front()];
  }
  EXPECT_EQ(fills, (std::map<NodeId, int>{{2, 2}, {3, 2}, {4, 2}}));
}

TEST(PlacementTest, AnAssignmentFillsOneAfterTheOtherAndThenTakesOut) {
  Placement seen = NewPlacement({1, 2, 3, 4}, 2, {NewRegion(1, 1, {1, 2}, {})});
  seen.regions[0].assigned = {3, 4};
  seen.regions[0] = Decision(seen);
  EXPECT_EQ(seen.regions[0].filling, Nodes{3});
  EXPECT_TRUE(Place(seen).empty());
  seen.regions[0].filling = {};
  seen.regions[0].in_sync = {1, 2, 3};
  seen.regions[0] = Decision(seen);
  EXPECT_EQ(seen.regions[0].filling, Nodes{4});
  EXPECT_EQ(seen.regions[0].in_sync, (Nodes{1, 2, 3}));
  seen.regions[0].filling = {};
  seen.regions[0].in_sync = {1, 2, 3, 4};
  seen.regions[0] = Decision(seen);
  EXPECT_EQ(seen.regions[0].in_sync, (Nodes{1, 3, 4}));  // not the primary
  EXPECT_EQ(seen.regions[0].successor, 3);
  seen.regions[0].successor = kNoNode;
  seen.regions[0].primary = 3;
  seen.regions[0] = Decision(seen);
  EXPECT_EQ(seen.regions[0].in_sync, (Nodes{3, 4}));
  EXPECT_TRUE(Place(seen).empty());
}

TEST(PlacementTest, AnAssignmentToWhoIsGoneTakesNobodyOut) {
  Placement seen = NewPlacement({1, 2, 3}, 2, {NewRegion(1, 1, {1, 2, 3})});
  seen.regions[0].assigned = {3, 9};
  EXPECT_TRUE(Place(seen).empty());
}

TEST(PlacementTest, AWishForWhoIsGoneIsCleared) {
  Placement seen = NewPlacement({1, 2}, 2, {NewRegion(1, 1, {1, 2})});
  for (const NodeId gone : {NodeId{9}, NodeId{1}}) {
    seen.regions[0].successor = gone;
    EXPECT_EQ(Decision(seen).successor, kNoNode);
  }
  seen.regions[0].successor = 2;
  EXPECT_TRUE(Place(seen).empty());
  seen.leaving = {2};
  EXPECT_EQ(Decision(seen).successor, kNoNode);
}

TEST(PlacementTest, ASuccessorWithoutACopyIsFilledFirstAndStaysWished) {
  Placement seen = NewPlacement({1, 2, 3}, 2, {NewRegion(1, 1, {1, 2})});
  seen.regions[0].successor = 3;
  seen.regions[0] = Decision(seen);
  EXPECT_EQ(seen.regions[0].filling, Nodes{3});
  EXPECT_EQ(seen.regions[0].successor, 3);
  EXPECT_TRUE(Place(seen).empty());
  seen.regions[0].filling = {};
  seen.regions[0].in_sync = {1, 2, 3};
  EXPECT_TRUE(Place(seen).empty());  // nobody leaves before it is handed over
}

TEST(PlacementTest, AWishOutsideOfTheAssignmentIsCleared) {
  Placement seen = NewPlacement({1, 2, 3}, 2, {NewRegion(1, 1, {1, 2})});
  seen.regions[0].assigned = {1, 2};
  seen.regions[0].successor = 3;
  EXPECT_EQ(Decision(seen).successor, kNoNode);
}

TEST(PlacementTest, SurplusLeavesFromTheFullestNode) {
  Placement seen = NewPlacement({1, 2, 3}, 2,
                                {NewRegion(1, 1, {1, 2, 3}), NewRegion(2, 2, {2, 3}),
                                 NewRegion(3, 3, {1, 3}), NewRegion(4, 2, {1, 2})});
  EXPECT_EQ(Decision(seen).in_sync, (Nodes{1, 2}));  // 3 is as full as 2, with the larger id
  seen.regions[2].in_sync = {2, 3};
  EXPECT_EQ(Decision(seen).in_sync, (Nodes{1, 3}));
  seen.regions[0].filling = {4};
  seen.nodes.push_back({4, 1, {}, "there"});
  EXPECT_TRUE(Place(seen).empty());  // not while somebody is filled
}

TEST(PlacementTest, WhoLeavesHandsOverToThoseInSync) {
  Placement seen = NewPlacement({1, 2, 3}, 2,
                                {NewRegion(1, 1, {1, 2}), NewRegion(2, 1, {1, 3}),
                                 NewRegion(3, 2, {1, 2}), NewRegion(4, 1, {1}, {3})});
  seen.leaving = {1};
  const std::vector<RegionEntry> changed = Place(seen);
  ASSERT_EQ(changed.size(), 2u);  // region 4 has nobody else in sync
  EXPECT_EQ(changed[0].successor, 2);
  EXPECT_EQ(changed[1].successor, 3);
  EXPECT_EQ(changed[0].in_sync, (Nodes{1, 2}));  // it will be back
  // A wish that takes long is not waited for.
  seen.regions[0].successor = 3;
  seen.regions[0].filling = {3};
  EXPECT_EQ(Place(seen).front().successor, 2);
  // Nobody hands over to who leaves, too, and who leaves is promoted if there is nobody else.
  seen.leaving = {1, 2, 3};
  seen.regions[0].successor = kNoNode;
  seen.regions[0].filling = seen.regions[3].filling = {};
  EXPECT_TRUE(Place(seen).empty());
  const Placement left = [&] {
    Placement two = NewPlacement({1, 2}, 2, {NewRegion(1, 9, {1, 2, 9})});
    two.leaving = {1};
    return two;
  }();
  EXPECT_EQ(Decision(left).primary, 2);
}

TEST(PlacementTest, WhoLeavesIsNotFilledAnyMore) {
  Placement seen = NewPlacement({1, 2, 3}, 3, {NewRegion(1, 1, {1}, {2, 3})});
  EXPECT_TRUE(Place(seen).empty());
  seen.leaving = {2};
  EXPECT_EQ(Decision(seen).filling, Nodes{3});
  seen.nodes.push_back({4, 1, {}, "there"});
  EXPECT_EQ(Decision(seen).filling, (Nodes{3, 4}));
}

TEST(LeavingTest, WhoLeavesIsMissedWhileTooFewOthersAreInSyncAndMoreAreOnTheirWay) {
  const auto missed = [](Nodes in_sync, Nodes filling, uint32_t min_in_sync, Nodes leaving = {2}) {
    return IsMissed(NewRegion(1, 1, std::move(in_sync), std::move(filling)), 2, leaving,
                    min_in_sync);
  };
  EXPECT_FALSE(missed({1, 2, 3}, {}, 1));
  EXPECT_FALSE(missed({1, 2, 3}, {}, 2));
  EXPECT_FALSE(missed({1, 2, 3}, {4}, 2));
  EXPECT_TRUE(missed({1, 2, 3}, {4}, 3));
  EXPECT_FALSE(missed({1, 2, 3}, {}, 3)) << "nobody is on his way";
  EXPECT_TRUE(missed({1, 2, 3}, {4}, 2, {2, 3})) << "both leave";
  // Nobody is left alone for a moment's sake.
  EXPECT_TRUE(missed({1, 2}, {3}, 1));
  EXPECT_FALSE(missed({1, 2}, {}, 1));
  EXPECT_FALSE(missed({1, 2}, {3}, 2, {2, 3})) << "he leaves, too";
  EXPECT_TRUE(missed({1, 2}, {3, 4}, 2, {2, 3}));
  EXPECT_TRUE(missed({1, 3}, {2}, 1)) << "he may come to be in sync as he ends";
  EXPECT_FALSE(missed({1, 3}, {4}, 3)) << "he has nothing of it";
  const auto own = NewRegion(1, 2, {2}, {3});
  EXPECT_FALSE(IsMissed(own, 2, {2}, 2)) << "it is to be handed over";
  RegionEntry headless = NewRegion(1, kNoNode, {1, 2}, {3});
  EXPECT_FALSE(IsMissed(headless, 2, {2}, 2));
}

TEST(PlacementTest, WhoIsToTakeOverCountsAsPrimaryAtOnce) {
  Placement seen =
      NewPlacement({1, 2, 3}, 3, {NewRegion(1, 1, {1, 2, 3}), NewRegion(2, 1, {1, 2, 3})});
  seen.leaving = {1};
  const std::vector<RegionEntry> changed = Place(seen);
  ASSERT_EQ(changed.size(), 2u);
  EXPECT_EQ(changed[0].successor, 2);
  EXPECT_EQ(changed[1].successor, 3);
}

TEST(PlacementTest, NothingIsBalancedWhileANodeIsLeaving) {
  Placement seen = NewPlacement({1, 2, 3}, 2, {NewRegion(1, 1, {1, 2}), NewRegion(2, 1, {1, 2})});
  seen.leaving = {3};
  EXPECT_TRUE(Place(seen).empty());
  seen.leaving = {};
  EXPECT_EQ(Place(seen).size(), 1u);
}

TEST(PlacementTest, BalanceHandsOneOverAtATime) {
  Placement seen = NewPlacement({1, 2, 3}, 2,
                                {NewRegion(1, 1, {1, 2}), NewRegion(2, 1, {1, 3}),
                                 NewRegion(3, 1, {1, 2}), NewRegion(4, 2, {2, 3})});
  const RegionEntry next = Decision(seen);
  EXPECT_EQ(next.id, RegionId{2});  // 3 has none
  EXPECT_EQ(next.successor, 3);
  EXPECT_TRUE(next.filling.empty());
  seen.regions[1] = next;
  EXPECT_TRUE(Place(seen).empty());  // until that is done
}

TEST(PlacementTest, BalanceMovesACopyToANodeThatHasCome) {
  const Placement seen = NewPlacement({1, 2, 3}, 2,
                                      {NewRegion(1, 1, {1, 2}), NewRegion(2, 2, {1, 2}),
                                       NewRegion(3, 1, {1, 2}), NewRegion(4, 2, {1, 2})});
  const RegionEntry next = Decision(seen);
  EXPECT_EQ(next.successor, 3);
  EXPECT_EQ(next.filling, Nodes{3});
  EXPECT_EQ(next.in_sync, (Nodes{1, 2}));
}

TEST(PlacementTest, BalanceHandsOverThroughAThirdNodeBeforeItCopies) {
  // 1 shares nothing with 3, but 2 does with both.
  const Placement seen =
      NewPlacement({1, 2, 3}, 2,
                   {NewRegion(1, 1, {1, 2}), NewRegion(2, 1, {1, 2}), NewRegion(3, 1, {1, 2}),
                    NewRegion(4, 2, {2, 3}), NewRegion(5, 2, {2, 3}), NewRegion(6, 3, {3, 2})});
  Placement ordered = seen;
  ordered.regions[5].in_sync = {2, 3};
  const RegionEntry next = Decision(ordered);
  EXPECT_EQ(next.id, RegionId{4});
  EXPECT_EQ(next.successor, 3);
  EXPECT_TRUE(next.filling.empty());
}

TEST(PlacementTest, BalanceMovesAPrimaryAwayInExchangeForAnother) {
  // 1 holds three, 2 and 3 one each; it can give away only what it is the primary of.
  Placement seen = NewPlacement(
      {1, 2, 3}, 1, {NewRegion(1, 1, {1}), NewRegion(2, 2, {1, 2}), NewRegion(3, 3, {1, 3})});
  seen.regions[1].assigned = {1, 2};
  seen.regions[2].assigned = {1, 3};
  seen.regions[0] = Decision(seen);
  EXPECT_EQ(seen.regions[0].successor, 2);
  EXPECT_EQ(seen.regions[0].filling, Nodes{2});
  seen.regions[0] = NewRegion(1, 2, {1, 2});
  seen.regions[0] = Decision(seen);
  EXPECT_EQ(seen.regions[0].in_sync, Nodes{2});
  const RegionEntry back = Decision(seen);
  EXPECT_EQ(back.id, RegionId{2});
  EXPECT_EQ(back.successor, 1);
  seen.regions[1].primary = 1;
  EXPECT_TRUE(Place(seen).empty());
}

// ---- Random clusters

/// Fills succeed and primaries hand over, some sooner and some later.
class Model {
 public:
  explicit Model(uint64_t seed) : random_(seed) {
    copies_stay_ = random_.OneIn(2);
    const bool large = random_.OneIn(10);
    // With as many as a region may have, none could move.
    seen_.replicas = static_cast<uint32_t>(1 + random_.Below(large ? kMembersMax - 1 : 4));
    const size_t nodes = 1 + random_.Below(large ? 20 : 9);
    for (size_t i = 0; i < nodes; ++i) Come();
    const size_t regions = 1 + random_.Below(30);
    for (uint32_t id = 1; id <= regions; ++id) {
      const NodeId founder = seen_.nodes[random_.OneIn(2) ? 0 : random_.Below(nodes)].id;
      seen_.regions.push_back(NewRegion(id, founder, {founder}));
    }
  }

  void Come() { seen_.nodes.push_back({static_cast<NodeId>(++last_node_), 1, {}, "there"}); }
  /// For ever, so nobody who is alone in sync.
  void Die() {
    const size_t dying = DrawNode();
    const NodeId id = seen_.nodes[dying].id;
    for (const RegionEntry& region : seen_.regions) {
      if (std::ranges::none_of(region.in_sync,
                               [&](NodeId other) { return other != id && AllThere({other}); })) {
        return;
      }
    }
    seen_.nodes.erase(seen_.nodes.begin() + static_cast<ptrdiff_t>(dying));
    Erase(&seen_.leaving, id);
    ++deaths;
  }
  void Leave() { Insert(&seen_.leaving, seen_.nodes[DrawNode()].id); }
  void NobodyLeaves() { seen_.leaving.clear(); }
  void Assign() {
    RegionEntry& region = seen_.regions[random_.Below(seen_.regions.size())];
    region.assigned.clear();
    for (uint64_t count = random_.Below(4); count > 0; --count) {
      Insert(&region.assigned, seen_.nodes[DrawNode()].id);
    }
  }
  void Wish() {
    RegionEntry& region = seen_.regions[random_.Below(seen_.regions.size())];
    region.successor = seen_.nodes[DrawNode()].id;
  }

  /// Looks until there is nothing to change, and nothing under way.
  void Settle() {
    for (looks_ = 0;; ++looks_) {
      ASSERT_LT(looks_, 200 + 40 * seen_.regions.size()) << "it does not come to a stand";
      const std::vector<RegionEntry> changed = Place(seen_);
      for (const RegionEntry& next : changed) Apply(next);
      if (::testing::Test::HasFailure()) return;
      const bool moved = Progress();
      if (changed.empty() && !moved && IsQuiet()) break;
    }
    EXPECT_TRUE(Place(seen_).empty());
  }

  void ExpectEven() const {
    std::map<NodeId, int> primaries, replicas;
    for (const auto& node : seen_.nodes) primaries[node.id] = replicas[node.id] = 0;
    for (const RegionEntry& region : seen_.regions) {
      EXPECT_EQ(region.state, RegionState::kServing);
      EXPECT_EQ(region.in_sync.size(), std::min<size_t>(seen_.replicas, seen_.nodes.size()));
      ++primaries[region.primary];
      for (const NodeId id : region.in_sync) ++replicas[id];
    }
    for (const auto* counts : {&primaries, &replicas}) {
      const auto [least, most] =
          std::ranges::minmax_element(*counts, {}, [](const auto& count) { return count.second; });
      EXPECT_LE(most->second - least->second, 1)
          << (counts == &primaries ? "primaries" : "replicas") << " of node " << most->first
          << " and node " << least->first;
    }
  }
  void ExpectAssigned() const {
    for (const RegionEntry& region : seen_.regions) {
      if (region.assigned.empty() || !AllThere(region.assigned)) continue;
      EXPECT_EQ(region.in_sync, region.assigned);
    }
  }
  void ExpectNoPrimaryLeaves() const {
    for (const RegionEntry& region : seen_.regions) {
      if (!Contains(seen_.leaving, region.primary)) continue;
      for (const NodeId id : region.in_sync) EXPECT_TRUE(Contains(seen_.leaving, id));
    }
  }
  void ClearAssignments() {
    for (RegionEntry& region : seen_.regions) region.assigned.clear();
  }
  uint64_t looks() const { return looks_; }
  uint64_t deaths = 0;
  Random& random() { return random_; }

 private:
  size_t DrawNode() { return random_.Below(seen_.nodes.size()); }
  bool AllThere(const Nodes& nodes) const {
    return std::ranges::all_of(nodes, [&](NodeId id) {
      return std::ranges::any_of(seen_.nodes, [&](const auto& node) { return node.id == id; });
    });
  }
  void Apply(const RegionEntry& next) {
    RegionEntry& region = seen_.regions[static_cast<uint32_t>(next.id) - 1];
    SCOPED_TRACE("region " + std::to_string(static_cast<uint32_t>(next.id)));
    const Status rules = CheckRegionEntry(next);
    ASSERT_TRUE(rules.ok()) << rules;
    EXPECT_LE(next.in_sync.size() + next.filling.size(), kMembersMax);
    EXPECT_EQ(next.moves, region.moves);
    if (AllThere(region.in_sync) && region.state == RegionState::kServing) {
      const size_t wanted = region.assigned.empty() ? seen_.replicas : region.assigned.size();
      EXPECT_EQ(next.primary, region.primary);
      EXPECT_GE(next.in_sync.size(), std::min(region.in_sync.size(), wanted));
    }
    for (const NodeId id : next.filling) {
      if (Contains(region.filling, id) || Contains(region.in_sync, id)) continue;
      EXPECT_FALSE(Contains(seen_.leaving, id));
      EXPECT_TRUE(AllThere({id}));
    }
    region = next;
    ++region.view;
  }
  bool Progress() {
    bool moved = false;
    for (RegionEntry& region : seen_.regions) {
      if (region.state != RegionState::kServing || !AllThere({region.primary})) continue;
      const Nodes filling = region.filling;
      for (const NodeId id : filling) {
        if (random_.OneIn(2) || !AllThere({id})) continue;
        Erase(&region.filling, id);
        Insert(&region.in_sync, id);
        moved = true;
      }
      if (Contains(region.in_sync, region.successor) && random_.OneIn(2)) {
        HandOver(&region);
        moved = true;
      }
    }
    return moved;
  }
  /// Those in sync stay so, or are to be filled from the new primary.
  void HandOver(RegionEntry* region) {
    region->primary = region->successor;
    region->successor = kNoNode;
    ++region->moves;
    if (copies_stay_) return;
    for (const NodeId id : region->in_sync) Insert(&region->filling, id);
    Erase(&region->filling, region->primary);
    region->in_sync = {region->primary};
  }
  bool IsQuiet() const {
    return std::ranges::all_of(seen_.regions, [](const RegionEntry& region) {
      return region.filling.empty() && region.successor == kNoNode;
    });
  }

  Random random_;
  Placement seen_;
  uint32_t last_node_ = 0;
  uint64_t looks_ = 0;
  bool copies_stay_ = true;
};

TEST(PlacementTest, RandomClustersComeToAnEvenStand) {
  const uint64_t seeds = test::Amount{200, 700, 20'000};
  uint64_t most = 0, deaths = 0;
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model model(seed);
    model.Settle();
    model.ExpectEven();
    for (int round = 0; round < 6 && !::testing::Test::HasFailure(); ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      for (uint64_t events = 1 + model.random().Below(3); events > 0; --events) {
        switch (model.random().Below(3)) {
          case 0:
            model.Come();
            break;
          case 1:
            model.Wish();
            break;
          default:
            model.Die();
            break;
        }
      }
      model.Settle();
      model.ExpectEven();
      most = std::max(most, model.looks());
    }
    deaths += model.deaths;
  }
  std::printf("%lu deaths, %lu looks at most\n", deaths, most);
  EXPECT_GT(deaths, seeds);
}

TEST(PlacementTest, RandomDeathsAssignmentsAndLeavesComeToAStand) {
  const uint64_t seeds = test::Amount{200, 700, 20'000};
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Model model(seed);
    model.Settle();
    for (int round = 0; round < 6 && !::testing::Test::HasFailure(); ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      for (uint64_t events = 1 + model.random().Below(4); events > 0; --events) {
        switch (model.random().Below(5)) {
          case 0:
            model.Come();
            break;
          case 1:
            model.Wish();
            break;
          case 2:
            model.Assign();
            break;
          case 3:
            model.Leave();
            break;
          default:
            model.Die();
            break;
        }
      }
      model.Settle();
      model.ExpectNoPrimaryLeaves();
      model.NobodyLeaves();
      model.Settle();
      model.ExpectAssigned();
    }
    model.ClearAssignments();
    model.Settle();
    model.ExpectEven();
  }
}

}  // namespace
}  // namespace farleaf::server::cluster
