// The state of a store: range deletes as fragments, and edits that do not fit.
#include "index/lsm/state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "dsm/base/bytes.h"
#include "dsm/base/random.h"

namespace farleaf::index::lsm {
namespace {

TEST(RangeDeletesTest, FragmentsDeleteWhatTheRangesDo) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto key = [](uint64_t number) {
      return std::string(1, static_cast<char>('a' + number));
    };
    std::vector<Sequence> snapshots;
    for (uint64_t count = random.Below(3); count > 0; --count) {
      snapshots.push_back(1 + random.Below(20));
    }
    std::sort(snapshots.begin(), snapshots.end());
    std::vector<RangeDelete> deletes;
    const uint64_t ranges = random.Below(20);
    for (Sequence sequence = 1; sequence <= ranges; ++sequence) {
      const uint64_t start = random.Below(20);
      deletes.push_back({key(start), key(start + 1 + random.Below(5)), sequence});
    }
    const std::vector<RangeDelete> fragments = Fragments(deletes, snapshots);
    ASSERT_TRUE(AreFragments(fragments));
    const std::vector<RangeDelete> front = Clip(fragments, {}, "k"),
                                   rest = Clip(fragments, "k", {});
    ASSERT_TRUE(AreFragments(front));
    ASSERT_TRUE(AreFragments(rest));
    std::vector<Sequence> readers = snapshots;
    readers.push_back(kSequenceMax);
    for (const Sequence reader : readers) {
      for (uint64_t number = 0; number < 26; ++number) {
        Sequence newest = 0;
        for (const RangeDelete& each : deletes) {
          if (each.sequence <= reader && each.Covers(key(number))) newest = each.sequence;
        }
        const RangeDelete* const found = NewestCovering(fragments, key(number), reader);
        ASSERT_EQ(found ? found->sequence : 0, newest) << key(number) << " at " << reader;
        const auto& part = key(number) < "k" ? front : rest;
        const RangeDelete* const clipped = NewestCovering(part, key(number), reader);
        ASSERT_EQ(clipped ? clipped->sequence : 0, newest) << key(number) << " at " << reader;
      }
    }
  }
}

TEST(RangeDeletesTest, NeighboursThatDeleteTheSameAreOne) {
  const std::vector<RangeDelete> fragments =
      Fragments({{"a", "c", 0}, {"c", "e", 0}, {"b", "d", 0}}, {});
  EXPECT_EQ(fragments, (std::vector<RangeDelete>{{"a", "e", 0}}));
}

constexpr RunPlace kGrowing{0, RunKind::kGrowing}, kSinking{0, RunKind::kSinking};

StateEdit::TableAt TableAt(uint64_t id, std::string smallest, std::string largest,
                           std::string from = {}) {
  StateEdit::TableAt at{.place = kGrowing, .table = {}, .from = std::move(from)};
  at.table.segments = {SegmentId{id}};
  at.table.root = {0, 64};
  at.table.leaves = 1;
  at.table.entries = 2;
  at.table.bytes = at.table.footer_bytes = 4096;
  at.table.smallest = std::move(smallest);
  at.table.largest = std::move(largest);
  return at;
}

struct StoreStateTest : ::testing::Test {
  StoreStateTest() {
    StateEdit edit;
    edit.added = {TableAt(1, "a", "c"), TableAt(2, "e", "g")};
    edit.recovery_granted = {SegmentId{8}};
    edit.values_granted = {SegmentId{9}};
    EXPECT_TRUE(state.Check(edit).ok());
    EXPECT_TRUE(state.Apply(edit).ok());
  }
  /// What Check says of an edit is what Apply would.
  bool Fits(const StateEdit& edit) {
    StoreState changed = state;
    const Status checked = state.Check(edit), applied = changed.Apply(edit);
    EXPECT_EQ(checked.ok(), applied.ok()) << checked << " / " << applied;
    EXPECT_TRUE(checked.ok() || checked.code() == StatusCode::kCorruption);
    return checked.ok();
  }
  StoreState state;
};

TEST_F(StoreStateTest, AnEditThatDoesNotFitIsFoundBeforeItIsApplied) {
  StateEdit edit;
  edit.dropped = {{kGrowing, SegmentId{3}}};
  EXPECT_FALSE(Fits(edit)) << "no such table";
  edit.dropped = {{kGrowing, SegmentId{1}}, {kGrowing, SegmentId{1}}};
  EXPECT_FALSE(Fits(edit)) << "dropped twice";
  edit.dropped = {{kSinking, SegmentId{1}}};
  EXPECT_FALSE(Fits(edit)) << "of another run";
  edit.sunk = {0};
  EXPECT_TRUE(Fits(edit)) << "which it is now";

  edit = {};
  edit.added = {TableAt(4, "c", "d")};
  EXPECT_FALSE(Fits(edit)) << "overlaps";
  edit.added = {TableAt(4, "d", "d")};
  EXPECT_TRUE(Fits(edit));
  edit.added = {TableAt(4, "d", "f")};
  EXPECT_FALSE(Fits(edit)) << "overlaps the one behind";
  edit.cut = {{kGrowing, SegmentId{2}, "g"}};
  EXPECT_TRUE(Fits(edit)) << "which begins later now";
  edit.added = {TableAt(4, "h", "k"), TableAt(5, "i", "m")};
  EXPECT_FALSE(Fits(edit)) << "overlap one another";
  edit.added = {TableAt(4, "a", "b")};
  edit.dropped = {{kGrowing, SegmentId{1}}};
  EXPECT_TRUE(Fits(edit)) << "in the place of what was there";
  edit.cut = {{kGrowing, SegmentId{1}, "b"}};
  EXPECT_FALSE(Fits(edit)) << "cuts what it drops";
  edit = {};
  edit.cut = {{kGrowing, SegmentId{1}, "d"}};
  EXPECT_FALSE(Fits(edit)) << "nothing of it would be left";
  edit.cut = {{kGrowing, SegmentId{1}, "b"}, {kGrowing, SegmentId{1}, "a"}};
  EXPECT_FALSE(Fits(edit)) << "what was cut away would come back";
  edit = {};
  edit.added = {TableAt(4, "h", "i")};
  edit.added[0].from = "k";
  EXPECT_FALSE(Fits(edit)) << "nothing of it counts";

  edit = {};
  edit.recovery_dropped = {SegmentId{9}};
  EXPECT_FALSE(Fits(edit)) << "of the other log";
  edit.recovery_dropped = {SegmentId{8}};
  edit.values_dropped = {SegmentId{9}};
  EXPECT_TRUE(Fits(edit));
  edit.values_dropped = {SegmentId{10}};
  EXPECT_FALSE(Fits(edit));
  edit.values_granted = {SegmentId{10}};
  EXPECT_TRUE(Fits(edit)) << "granted just now";
}

TEST_F(StoreStateTest, FreshRunsAreMadeNewerThanAllAndGoWhenTheyAreEmpty) {
  const auto fresh_table = [](Sequence through, uint64_t id) {
    StateEdit::TableAt at = TableAt(id, "a", "z");
    at.place = FreshPlace(through);
    return at;
  };
  StateEdit flush;
  flush.added = {fresh_table(5, 20)};
  EXPECT_FALSE(Fits(flush)) << "what is flushed through?";
  flush.flushed_through = 4;
  EXPECT_FALSE(Fits(flush)) << "behind what is flushed";
  flush.flushed_through = 5;
  ASSERT_TRUE(Fits(flush));
  ASSERT_TRUE(state.Apply(flush).ok());
  StateEdit second;
  second.flushed_through = 9;
  second.added = {fresh_table(4, 21)};
  EXPECT_FALSE(Fits(second)) << "older than what is there";
  second.added = {};
  second.range_deletes = {{FreshPlace(3), {{"b", "c", 0}}}};
  EXPECT_FALSE(Fits(second)) << "likewise";
  second.range_deletes = {{FreshPlace(9), {{"b", "c", 0}}}};
  ASSERT_TRUE(Fits(second)) << "of range deletes alone";
  ASSERT_TRUE(state.Apply(second).ok());

  const auto runs = state.runs();
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].first, FreshPlace(9));
  EXPECT_EQ(runs[1].first, FreshPlace(5));
  EXPECT_EQ(runs[2].first, kGrowing);
  auto encoded = StateEdit::Decode(AsBytes(state.AsEdit().Encode()));
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  StoreState copy;
  ASSERT_TRUE(copy.Check(*encoded).ok());
  ASSERT_TRUE(copy.Apply(*encoded).ok());
  EXPECT_EQ(copy.AsEdit().Encode(), state.AsEdit().Encode());

  StateEdit merge;
  merge.dropped = {{FreshPlace(5), SegmentId{21}}};
  EXPECT_FALSE(Fits(merge)) << "another one's";
  merge.dropped = {{FreshPlace(6), SegmentId{20}}};
  EXPECT_FALSE(Fits(merge)) << "no such run";
  merge.dropped = {{FreshPlace(5), SegmentId{20}}};
  merge.range_deletes = {{FreshPlace(9), {}}};
  ASSERT_TRUE(Fits(merge));
  ASSERT_TRUE(state.Apply(merge).ok());
  EXPECT_TRUE(state.fresh.empty());
  EXPECT_FALSE(Fits(flush)) << "one that was merged does not come back";
  merge.dropped = {};
  EXPECT_TRUE(Fits(merge)) << "nothing is left of what is not there";
  ASSERT_TRUE(state.Apply(merge).ok());
  EXPECT_TRUE(state.fresh.empty());
}

TEST_F(StoreStateTest, FreshRunsOfNoPossiblePlaceAreRefused) {
  StateEdit edit;
  edit.dropped = {{FreshPlace(0), SegmentId{1}}};
  EXPECT_FALSE(StateEdit::Decode(AsBytes(edit.Encode())).ok()) << "of no commit";
  edit.dropped = {{FreshPlace(kSequenceMax + 1), SegmentId{1}}};
  EXPECT_FALSE(StateEdit::Decode(AsBytes(edit.Encode())).ok());
  edit.dropped = {{{1, RunKind::kFresh, 7}, SegmentId{1}}};
  EXPECT_FALSE(StateEdit::Decode(AsBytes(edit.Encode())).ok()) << "of another level";
  edit.dropped = {{{0, static_cast<RunKind>(3), 0}, SegmentId{1}}};
  EXPECT_FALSE(StateEdit::Decode(AsBytes(edit.Encode())).ok());
  edit.dropped = {{FreshPlace(7), SegmentId{1}}};
  EXPECT_TRUE(StateEdit::Decode(AsBytes(edit.Encode())).ok());
  edit.sunk = {0};
  std::string bytes = edit.Encode();
  ASSERT_TRUE(StateEdit::Decode(AsBytes(bytes)).ok());
  bytes[5] = 1;  // the kind of the run that sinks
  EXPECT_FALSE(StateEdit::Decode(AsBytes(bytes)).ok());
}

TEST_F(StoreStateTest, ARunOfRangeDeletesAloneSinksToo) {
  StateEdit edit;
  edit.sunk = {0};
  edit.range_deletes = {{kSinking, {{"a", "b", 0}}}};
  edit.dropped = {{kSinking, SegmentId{1}}, {kSinking, SegmentId{2}}};
  ASSERT_TRUE(Fits(edit));
  ASSERT_TRUE(state.Apply(edit).ok());
  StateEdit again;
  again.sunk = {0};
  EXPECT_FALSE(Fits(again)) << "its range deletes would be lost";
}

TEST_F(StoreStateTest, HowFarTheLogIsDurableOnlyGrows) {
  StateEdit edit;
  edit.durable_through = 7;
  ASSERT_EQ(StateEdit::Decode(AsBytes(edit.Encode()))->durable_through, 7u);
  ASSERT_TRUE(state.Apply(edit).ok());
  edit.durable_through = 5;
  ASSERT_TRUE(state.Apply(edit).ok());
  EXPECT_EQ(state.durable_through, 7u);
  StoreState again;
  ASSERT_TRUE(again.Apply(state.AsEdit()).ok());
  EXPECT_EQ(again.durable_through, 7u);
}

TEST_F(StoreStateTest, RangeDeletesThatAreNoFragmentsAreRefused) {
  StateEdit edit;
  edit.range_deletes = {{kGrowing, {{"a", "c", 2}, {"c", "d", 1}}}};
  EXPECT_TRUE(StateEdit::Decode(AsBytes(edit.Encode())).ok());
  edit.range_deletes = {{kGrowing, {{"a", "c", 2}, {"b", "d", 1}}}};
  EXPECT_FALSE(StateEdit::Decode(AsBytes(edit.Encode())).ok());
}

TEST_F(StoreStateTest, WhatIsKeptGoesWithItsRunAndComesInFrontOfWhatIsKeptThere) {
  constexpr RunPlace kBelow{1, RunKind::kGrowing};
  const auto kept_of = [](uint64_t id, std::string key) {
    KeptTables kept;
    StateEdit::TableAt at = TableAt(id, key, key);
    kept.tables.push_back({at.table, at.from});
    kept.range_deletes = {{key, key + "1", 7}};
    kept.ranges = {{key, key + "2"}};
    return kept;
  };
  const auto first_ids = [](const StoreState::RunState& run) {
    std::vector<uint64_t> ids;
    for (const KeptTables& kept : run.kept) ids.push_back(Number(kept.tables.front().table.id()));
    return ids;
  };
  StateEdit edit;
  edit.kept = {
      {kGrowing, kept_of(20, "b")}, {kGrowing, kept_of(21, "c")}, {kBelow, kept_of(22, "b")}};
  ASSERT_TRUE(Fits(edit));
  ASSERT_TRUE(state.Apply(edit).ok());
  edit = {};
  edit.kept = {{kGrowing, kept_of(23, "f")}};
  edit.sunk = {0};
  ASSERT_TRUE(Fits(edit));
  ASSERT_TRUE(state.Apply(edit).ok());
  EXPECT_EQ(first_ids(state.run(kSinking)), (std::vector<uint64_t>{20, 21}));
  EXPECT_EQ(first_ids(state.run(kGrowing)), (std::vector<uint64_t>{23}));
  edit = {};
  edit.kept_moved = {{kSinking, kBelow}};
  ASSERT_TRUE(Fits(edit));
  ASSERT_TRUE(state.Apply(edit).ok());
  EXPECT_EQ(first_ids(state.run(kBelow)), (std::vector<uint64_t>{20, 21, 22}));
  EXPECT_FALSE(state.run(kSinking).empty()) << "its tables are there";

  auto decoded = StateEdit::Decode(AsBytes(state.AsEdit().Encode()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  StoreState again;
  ASSERT_TRUE(again.Check(*decoded).ok());
  ASSERT_TRUE(again.Apply(*decoded).ok());
  EXPECT_EQ(again.AsEdit().Encode(), state.AsEdit().Encode());
  EXPECT_EQ(again.run(kBelow).kept.back().range_deletes,
            (std::vector<RangeDelete>{{"b", "b1", 7}}));

  edit = {};
  edit.kept = {{FreshPlace(3), kept_of(24, "b")}};
  EXPECT_FALSE(Fits(edit));
  edit.kept.clear();
  edit.kept_moved = {{kGrowing, kGrowing}};
  EXPECT_FALSE(Fits(edit));
}

}  // namespace
}  // namespace farleaf::index::lsm
