// Regions: the rules of entries, their bytes, and maps that are split at random beside a std::map.
#include "server/membership/region_map.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/random.h"
#include "server/membership/region_store.h"
#include "test/support/membership_under_test.h"

namespace farleaf::server::membership {
namespace {

RegionEntry NewRegion(uint32_t id, std::string start, std::string end) {
  RegionEntry region{.id = RegionId{id}, .view = 7, .primary = 3, .in_sync = {1, 3}};
  region.filling = {2};
  region.start = std::move(start);
  region.end = std::move(end);
  return region;
}

std::string MakeError(std::vector<RegionEntry> regions) {
  auto map = RegionMap::Make(1, std::move(regions));
  return map.ok() ? "ok" : std::string(map.status().message());
}

TEST(RegionMapTest, WhatDoesNotCoverAllKeysOnceIsRefused) {
  EXPECT_EQ(MakeError({NewRegion(1, "", "")}), "ok");
  EXPECT_EQ(MakeError({NewRegion(2, "b", ""), NewRegion(1, "", "b")}), "ok");
  EXPECT_EQ(MakeError({}), "a map has at least one region");
  EXPECT_EQ(MakeError({NewRegion(1, "a", "")}), "keys before region 1 belong to no region");
  EXPECT_EQ(MakeError({NewRegion(1, "", "b")}), "keys behind region 1 belong to no region");
  EXPECT_EQ(MakeError({NewRegion(1, "", "b"), NewRegion(2, "c", "")}),
            "region 1 and region 2 leave keys between them out");
  EXPECT_EQ(MakeError({NewRegion(1, "", "c"), NewRegion(2, "b", "")}),
            "region 1 and region 2 overlap");
  EXPECT_EQ(MakeError({NewRegion(1, "", ""), NewRegion(2, "b", "")}),
            "region 1 and region 2 overlap");
  EXPECT_NE(MakeError({NewRegion(1, "", ""), NewRegion(2, "", "")}), "ok");
  EXPECT_EQ(MakeError({NewRegion(1, "", "b"), NewRegion(1, "b", "")}), "region 1 is there twice");
}

TEST(RegionMapTest, EntriesThatBreakARuleAreRefused) {
  using Change = void (*)(RegionEntry&);
  const std::pair<const char*, Change> kWrong[] = {
      {"ids, views and moves begin with 1", [](RegionEntry& e) { e.id = RegionId::kNone; }},
      {"ids, views and moves begin with 1", [](RegionEntry& e) { e.view = 0; }},
      {"ids, views and moves begin with 1", [](RegionEntry& e) { e.moves = 0; }},
      {"the nodes that it is assigned to are not in order, or too many",
       [](RegionEntry& e) {
         e.assigned = {2, 1};
       }},
      {"it is to be split at a key of its own", [](RegionEntry& e) { e.split_at = e.start; }},
      {"it is to be split at a key of its own", [](RegionEntry& e) { e.split_at = e.end; }},
      {"there is no such state", [](RegionEntry& e) { e.state = RegionState{3}; }},
      {"its keys are too long", [](RegionEntry& e) { e.end = std::string(4097, 'z'); }},
      {"it ends before it starts", [](RegionEntry& e) { e.end = e.start; }},
      {"its members are not in order, or too many",
       [](RegionEntry& e) {
         e.in_sync = {3, 1};
       }},
      {"its members are not in order, or too many",
       [](RegionEntry& e) {
         e.in_sync = {3, 3};
       }},
      {"its members are not in order, or too many",
       [](RegionEntry& e) {
         e.filling = {0, 2};
       }},
      {"nobody is in sync", [](RegionEntry& e) { e.in_sync = {}; }},
      {"a node in sync is being filled", [](RegionEntry& e) { e.filling = {1}; }},
      {"it is headless if and only if it has no primary", [](RegionEntry& e) { e.primary = 0; }},
      {"it is headless if and only if it has no primary",
       [](RegionEntry& e) { e.state = RegionState::kHeadless; }},
      {"its primary is not in sync", [](RegionEntry& e) { e.primary = 2; }},
  };
  EXPECT_TRUE(CheckRegionEntry(NewRegion(5, "a", "b")).ok());
  for (const auto& [rule, change] : kWrong) {
    RegionEntry entry = NewRegion(5, "a", "b");
    change(entry);
    const Status status = CheckRegionEntry(entry);
    EXPECT_NE(status.message().find(rule), std::string::npos) << status << ", not " << rule;
  }
  RegionEntry many = NewRegion(5, "a", "b");
  for (NodeId node = 4; node < 4 + kMembersMax; ++node) many.in_sync.push_back(node);
  EXPECT_FALSE(CheckRegionEntry(many).ok());
}

TEST(RegionMapTest, EntriesReadAsTheyWereWritten) {
  RegionEntry headless = NewRegion(UINT32_MAX, std::string("\0a", 2), std::string(4096, '\xff'));
  headless.state = RegionState::kHeadless;
  headless.primary = kNoNode;
  RegionEntry wished = NewRegion(2, "a", "c");
  wished.moves = 9;
  wished.successor = 1;
  wished.assigned = {1, 7};
  wished.split_at = "b";
  for (const RegionEntry& region : {NewRegion(1, "", ""), headless, wished}) {
    auto parsed = ParseRegionEntry("r", AsBytes(EncodeRegionEntry(region)));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, region);
  }
  for (const NodeEntry& node :
       {NodeEntry{1, 1, {}, ""},
        NodeEntry{9, UINT64_MAX, {std::string(255, 'n'), "u"}, "tcp:h:1"}}) {
    auto parsed = ParseNodeEntry("n", AsBytes(EncodeNodeEntry(node)));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, node);
  }
}

TEST(RegionMapTest, EveryFlippedBitAndEveryMissingByteIsFound) {
  const std::string region = EncodeRegionEntry(NewRegion(1, "a", "b"));
  const std::string node = EncodeNodeEntry({9, 4, {"h:1"}, "tcp:h:1"});
  const auto code = [&](const std::string& bytes, bool is_region) {
    return is_region ? ParseRegionEntry("r", AsBytes(bytes)).status().code()
                     : ParseNodeEntry("n", AsBytes(bytes)).status().code();
  };
  for (const bool is_region : {true, false}) {
    const std::string& whole = is_region ? region : node;
    for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
      std::string bytes = whole;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      EXPECT_EQ(code(bytes, is_region), StatusCode::kCorruption) << bit;
    }
    for (size_t length = 0; length < whole.size(); ++length) {
      EXPECT_EQ(code(whole.substr(0, length), is_region), StatusCode::kCorruption) << length;
    }
    EXPECT_EQ(code(whole + '\0', is_region), StatusCode::kCorruption);
    EXPECT_EQ(code(whole, !is_region), StatusCode::kCorruption);
  }
}

/// The regions as a map from first keys to ids.
struct SplitModel {
  std::map<std::string, RegionId> regions;

  RegionId Find(const std::string& key) const {
    return std::prev(regions.upper_bound(key))->second;
  }
  void Compare(const RegionMap& map, Random& random) const {
    ASSERT_EQ(map.regions().size(), regions.size());
    const RegionEntry* region = &map.regions().front();
    for (auto at = regions.begin(); at != regions.end(); ++at, region = map.Next(*region)) {
      ASSERT_NE(region, nullptr);
      EXPECT_EQ(region->id, at->second);
      EXPECT_EQ(region->start, at->first);
      EXPECT_EQ(map.FindId(at->second), region);
      EXPECT_EQ(&map.Find(at->first), region);
    }
    EXPECT_EQ(region, nullptr);
    for (int i = 0; i < 50; ++i) {
      const std::string key = DrawKey(random);
      EXPECT_EQ(map.Find(key).id, Find(key));
      EXPECT_TRUE(map.Find(key).Covers(key));
    }
  }
  static std::string DrawKey(Random& random) {
    std::string key;
    for (uint64_t bytes = random.Below(4); bytes > 0; --bytes) {
      key += static_cast<char>("\0az\xff"[random.Below(4)]);
    }
    return key;
  }
};

TEST(RegionMapTest, SplitsGiveWhatAStdMapGives) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    InProcessUnderTest service({.seed = seed});
    dsm::Worker& worker = service.worker();
    RegionStore store(&service.Open());
    ASSERT_TRUE(service.Run(store.Prepare(worker)).ok());
    const RegionId id = *service.Run(store.NextRegion(worker));
    std::vector<RegionEntry> first = {NewRegion(static_cast<uint32_t>(id), "", "")};
    auto map = service.Run(store.Found(worker, first, {}));
    ASSERT_TRUE(map.ok()) << map.status();
    SplitModel model{{{"", map->regions().front().id}}};
    uint64_t version = 1;
    for (int i = 0; i < 40; ++i) {
      const std::string key = SplitModel::DrawKey(random);
      auto seen = service.Run(store.Get(worker, model.Find(key), Watch::kNothing));
      ASSERT_TRUE(seen.ok()) << seen.status();
      auto right = service.Run(store.NextRegion(worker));
      ASSERT_TRUE(right.ok()) << right.status();
      auto halves = service.Run(store.Split(worker, *seen, key, *right));
      if (model.regions.contains(key)) {
        EXPECT_EQ(halves.status().code(), StatusCode::kInvalidArgument);
        continue;
      }
      ASSERT_TRUE(halves.ok()) << halves.status();
      EXPECT_TRUE(model.regions.emplace(key, halves->second.region.id).second);
      const uint32_t view = map->view();
      map = service.Run(store.Read(worker));
      ASSERT_TRUE(map.ok()) << map.status();
      EXPECT_GT(map->view(), view);
      EXPECT_EQ(map->version(), ++version);
      model.Compare(*map, random);
    }
    EXPECT_GT(model.regions.size(), 10u);
  }
}

dsm::Task<void> SplitAtRandom(dsm::Worker& worker, RegionStore& store, Random& random, int times,
                              int* made, int* ended) {
  for (int i = 0; i < times; ++i) {
    const std::string key = SplitModel::DrawKey(random);
    auto map = co_await store.Read(worker);
    if (map.ok()) {
      auto seen = co_await store.Get(worker, map->Find(key).id, Watch::kNothing);
      FARLEAF_CHECK(seen.ok(), seen.status());
      auto right = co_await store.NextRegion(worker);
      FARLEAF_CHECK(right.ok(), right.status());
      auto halves = co_await store.Split(worker, *seen, key, *right);
      *made += halves.ok();
    }
  }
  ++*ended;
}

TEST(RegionMapTest, SplitsThatRaceLeaveAWholeMapAtEachVersion) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    InProcessUnderTest service({.seed = seed, .delay_ns_max = 5 * kNsPerMs});
    std::vector<std::unique_ptr<RegionStore>> stores;
    for (int i = 0; i < 4; ++i) stores.push_back(std::make_unique<RegionStore>(&service.Open()));
    dsm::Worker& worker = service.worker();
    ASSERT_TRUE(service.Run(stores[0]->Prepare(worker)).ok());
    const RegionId id = *service.Run(stores[0]->NextRegion(worker));
    std::vector<RegionEntry> first = {NewRegion(static_cast<uint32_t>(id), "", "")};
    ASSERT_TRUE(service.Run(stores[0]->Found(worker, first, {})).ok());
    int made = 0, ended = 0;
    for (auto& store : stores) {
      worker.Spawn(SplitAtRandom(worker, *store, random, 15, &made, &ended));
    }
    service.Until([&] { return ended == 4; });
    auto map = service.Run(stores[0]->Read(worker));
    ASSERT_TRUE(map.ok()) << map.status();
    EXPECT_EQ(map->regions().size(), static_cast<size_t>(made + 1));
    EXPECT_EQ(map->version(), static_cast<uint64_t>(made + 1));
    EXPECT_GT(made, 3);
  }
}

}  // namespace
}  // namespace farleaf::server::membership
