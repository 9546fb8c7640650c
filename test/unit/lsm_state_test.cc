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

TEST_F(StoreStateTest, HowFarTheLogIsDurableOnlyGrowsAndEarlierStoresDoNotSay) {
  StateEdit edit;
  edit.durable_through = 7;
  std::string bytes = edit.Encode();
  ASSERT_EQ(StateEdit::Decode(AsBytes(bytes))->durable_through, 7u);
  ASSERT_TRUE(state.Apply(edit).ok());
  edit.durable_through = 5;
  ASSERT_TRUE(state.Apply(edit).ok());
  EXPECT_EQ(state.durable_through, 7u);
  StoreState again;
  ASSERT_TRUE(again.Apply(state.AsEdit()).ok());
  EXPECT_EQ(again.durable_through, 7u);
  bytes.resize(bytes.size() - 8);
  ASSERT_TRUE(StateEdit::Decode(AsBytes(bytes)).ok());
  EXPECT_EQ(StateEdit::Decode(AsBytes(bytes))->durable_through, 0u);
}

TEST_F(StoreStateTest, RangeDeletesThatAreNoFragmentsAreRefused) {
  StateEdit edit;
  edit.range_deletes = {{kGrowing, {{"a", "c", 2}, {"c", "d", 1}}}};
  EXPECT_TRUE(StateEdit::Decode(AsBytes(edit.Encode())).ok());
  edit.range_deletes = {{kGrowing, {{"a", "c", 2}, {"b", "d", 1}}}};
  EXPECT_FALSE(StateEdit::Decode(AsBytes(edit.Encode())).ok());
}

}  // namespace
}  // namespace farleaf::index::lsm
