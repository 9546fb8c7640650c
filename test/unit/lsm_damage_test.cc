// A store some of whose bytes are spoiled, or cannot be read: what cannot be told is an error that names its place, all else is right,
// and all goes on.
#include "test/support/damaged_store.h"

namespace farleaf::index::lsm {
namespace {

class LsmDamageTest : public test::DamagedStore {
 protected:
  explicit LsmDamageTest(uint64_t seed = 3) : DamagedStore(seed) {}
  /// The first one that was ever filled.
  SegmentId FirstValueSegment() { return State().value_log.begin()->first; }
  /// Writes on until the segment is collected.
  void AwaitCollected(SegmentId segment) {
    for (int tries = 0; State().value_log.contains(segment); ++tries) {
      ASSERT_LT(tries, 100);
      PutMany(0, 1, 3000);
      Flush();
      RunFor(2);
    }
    EXPECT_EQ(store_->kept_segments(), 0u);
  }
};

constexpr uint32_t kRecordBytes = kLogHeaderBytes + 2 + 9 + 3000;

// Tables name what stands in the segment that is being filled when the store ends; what a crash may have left there is no excuse.
class LsmTornSegmentTest : public LsmDamageTest, public ::testing::WithParamInterface<bool> {};

TEST_P(LsmTornSegmentTest, AValueThatATableNamesIsNeverTakenForOneThatACrashHasCutOff) {
  constexpr uint64_t kKeys = 100, kSpoiled = 50;
  Open();
  PutMany(0, kKeys, 3000);
  Flush();
  const SegmentId segment = FirstValueSegment();
  const auto flip = [&] {
    storage_.FlipBit(segment, kLogHeadBytes + kSpoiled * kRecordBytes + 1000, 3);
  };
  Stop();
  if (GetParam()) flip();
  Open();
  if (!GetParam()) flip();
  BeginMerges();
  BeginCollection();
  PutMany(0, 20, 3000);  // so that there is a tail behind it
  Flush();
  RunUntil([&] { return store_->kept_segments() > 0 || !Exists(segment); });
  EXPECT_EQ(store_->kept_segments(), 1u);
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{Key(kSpoiled)});
  EXPECT_TRUE(Exists(segment));
  Reopen();
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{Key(kSpoiled)});
  // Written anew it is read again, and then nothing keeps the segment.
  BeginMerges();
  BeginCollection();
  PutMany(kSpoiled, kSpoiled + 1, 3000);
  AwaitCollected(segment);
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Flipped, LsmTornSegmentTest, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "WhileItIsClosed" : "WhileItIsOpen");
});

TEST_F(LsmDamageTest, AValueWhoseFileIsGoneIsDamagedAndNotAbsent) {
  Open();
  PutMany(0, 10, 3000);
  Flush();
  const SegmentId segment = FirstValueSegment();
  Reopen();
  ASSERT_TRUE(storage_.Remove(segment).ok());
  EXPECT_EQ(ExpectRightOrDamaged(10).size(), 10u);
  OpContext op = Op();
  std::vector<KeyValue> rows;
  const Status scanned = Run(store_->Scan(op, {.start = {}}, &rows));
  EXPECT_EQ(scanned.code(), StatusCode::kCorruption) << scanned;
  ExpectNamesPlace(scanned);
}

// What a segment's values need of tables: most of them are moved all the same, and it is tried again.
TEST_F(LsmDamageTest, OfASegmentWhoseKeysCannotBeLookedUpTheRestIsMoved) {
  constexpr uint64_t kKeys = 600;
  Open();
  PutMany(0, kKeys, 1000);
  Flush();
  Reopen();
  const SegmentId segment = FirstValueSegment();
  const TableInfo table = VersionNow()->runs.front().tables.front().file->info();
  storage_.FlipBit(table.id(), 100, 3);  // in the first leaf
  BeginCollection();
  PutMany(kKeys - 20, kKeys, 1000);
  Flush();
  RunUntil([&] { return store_->kept_segments() > 0; });
  EXPECT_TRUE(Exists(segment));
  OpContext op = Op();
  const Status upkeep = Run(store_->Upkeep(op));
  EXPECT_TRUE(upkeep.ok()) << upkeep;
  const std::set<std::string> damaged = ExpectRightOrDamaged(kKeys);
  EXPECT_GT(damaged.size(), 0u);
  EXPECT_LT(damaged.size(), kKeys / 2);
  // With a change that does not look these are there again.
  BeginMerges();
  for (uint64_t number = 0; number < kKeys; ++number) {
    if (damaged.contains(Key(number))) PutMany(number, number + 1, 1000);
  }
  AwaitCollected(segment);
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{});
}

TEST_F(LsmDamageTest, ASegmentOfValuesThatCannotBeReadKeepsNothingElseFromGettingOn) {
  constexpr uint64_t kKeys = 2000;
  Open();
  PutMany(0, kKeys, 3000);
  Flush();
  Reopen();
  const SegmentId segment = FirstValueSegment();
  storage_.SetUnreadable(segment, true);
  BeginMerges();
  BeginCollection();
  for (int round = 0; round < 4; ++round) {  // so many runs are merged
    PutMany(0, kKeys * 9 / 10, 3000);
    Flush();
    AwaitQuiet();
  }
  RunUntil([&] { return store_->kept_segments() == 1; });
  OpContext op = Op();
  const Status upkeep = Run(store_->Upkeep(op));
  EXPECT_TRUE(upkeep.ok()) << upkeep;
  EXPECT_TRUE(Exists(segment));
  EXPECT_GT(store_->collected_segments(), 0u);
  storage_.SetUnreadable(segment, false);
  AwaitCollected(segment);
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{});
}

/// A store of some levels, with a table that is damaged at some place.
class LsmMergeDamageTest : public LsmDamageTest {
 protected:
  static constexpr uint64_t kKeys = 12'000;
  static constexpr RunPlace kGrowing{0, RunKind::kGrowing};

  void FillLevels() {
    Open();
    BeginMerges();
    PutMany(0, kKeys, 200);
    Flush();
    store_->CompactEagerly(true);
    AwaitQuiet();
    store_->CompactEagerly(false);
    Reopen();
  }
  /// The first of the deepest run; its blocks are in no cache.
  TableInfo DeepestTable() { return VersionNow()->runs.back().tables.front().file->info(); }
  /// What was put since goes as deep as there are levels.
  void Sink() {
    Flush();
    store_->CompactEagerly(true);
    AwaitQuiet();
    store_->CompactEagerly(false);
    OpContext op = Op();
    const Status upkeep = Run(store_->Upkeep(op));
    EXPECT_TRUE(upkeep.ok()) << upkeep;
    EXPECT_EQ(VersionNow()->fresh, 0u);
  }
  size_t KeptRuns() {
    return static_cast<size_t>(std::ranges::count(VersionNow()->runs, true, &Run::kept));
  }
};

TEST_F(LsmMergeDamageTest, MergesGoAroundALeafThatCannotBeRead) {
  FillLevels();
  storage_.FlipBit(DeepestTable().id(), 100, 3);
  const std::set<std::string> damaged = ExpectRightOrDamaged(kKeys);
  ASSERT_GT(damaged.size(), 0u);
  ASSERT_LT(damaged.size(), 100u);
  Reopen();  // nothing of it is in the cache
  BeginMerges();
  for (uint64_t round = 0; round < 12; ++round) {
    PutMany(200 + round, kKeys, 200, 7);  // all but the first leaf, and so more than a memtable
    Sink();
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(KeptRuns(), 0u);
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), damaged);
  Reopen();
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), damaged);
  BeginMerges();
  // Whatever is written anew, or deleted, is there again, or gone.
  auto some = damaged.begin();
  EXPECT_TRUE(Put(*some, "anew").ok());
  EXPECT_TRUE(Delete(*++some).ok());
  std::set<std::string> left = damaged;
  left.erase(*damaged.begin());
  left.erase(*some);
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), left);
  Sink();
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), left);
  OpContext op = Op();
  const Status deleted = Run(store_->DeleteRange(op, Key(0), Key(150)));
  EXPECT_TRUE(deleted.ok()) << deleted;
  model_.erase(Key(0));
  model_.erase(model_.begin(), model_.lower_bound(Key(150)));
  Sink();
  Reopen();
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{});
}

TEST_F(LsmMergeDamageTest, MergesGoAroundAFreshRunsDamage) {
  FillLevels();
  PutMany(0, kKeys, 200, 3);
  Flush();
  Reopen();
  const TableInfo fresh = VersionNow()->runs.front().tables.front().file->info();
  storage_.FlipBit(fresh.id(), 70'000, 3);
  Reopen();
  BeginMerges();
  for (uint64_t round = 0; round < 4; ++round) {
    PutMany(kKeys / 2 + round, kKeys, 200, 7);
    Sink();
  }
  const std::set<std::string> damaged = ExpectRightOrDamaged(kKeys);
  EXPECT_GT(damaged.size(), 0u);
  EXPECT_LT(damaged.size(), 100u);
  Reopen();
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), damaged);
}

TEST_F(LsmMergeDamageTest, WhatCannotBeReadForAWhileIsMergedBehindIt) {
  FillLevels();
  const TableInfo table = DeepestTable();
  storage_.SetUnreadable(table.id(), true);
  BeginMerges();
  PutMany(0, kKeys, 200, 5);
  Sink();
  EXPECT_GT(ExpectRightOrDamaged(kKeys).size(), 0u);
  storage_.SetUnreadable(table.id(), false);
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{});
  PutMany(0, kKeys, 200, 11);
  Sink();
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{});
}

/// Anything may be damaged, and more than one thing.
class LsmRandomDamageTest : public LsmDamageTest, public ::testing::WithParamInterface<uint64_t> {
 protected:
  LsmRandomDamageTest() : LsmDamageTest(GetParam()) {}
  static constexpr uint64_t kKeys = 4000;

  void ChangeSome() {
    for (int n = 0; n < 3; ++n) {
      const uint64_t first = random_.Below(kKeys);
      PutMany(first, std::min(kKeys, first + 1 + random_.Below(kKeys)),
              random_.OneIn(3) ? 400 : 150, 1 + random_.Below(20));
    }
    for (int n = 0; n < 40; ++n) {
      const std::string key = Key(random_.Below(kKeys));
      const Status done = random_.OneIn(2) ? Put(key, Value(50)) : Delete(key);
      EXPECT_TRUE(done.ok()) << done;
    }
    if (random_.OneIn(2)) {
      const uint64_t start = random_.Below(kKeys);
      const std::string from = Key(start), to = Key(start + 1 + random_.Below(200));
      OpContext op = Op();
      const Status deleted = Run(store_->DeleteRange(op, from, to));
      EXPECT_TRUE(deleted.ok()) << deleted;
      model_.erase(model_.lower_bound(from), model_.lower_bound(to));
    }
  }
  void SpoilATable() {
    const auto version = VersionNow();
    std::vector<TableInfo> tables;
    for (const lsm::Run& run : version->runs) {
      for (const TableRef& ref : run.tables) tables.push_back(ref.file->info());
    }
    if (tables.empty()) return;
    const TableInfo& table = tables[random_.Below(tables.size())];
    const uint64_t at = random_.Below(table.bytes);
    storage_.FlipBit(table.segments[at / storage::kSegmentBytes],
                     static_cast<uint32_t>(at % storage::kSegmentBytes), 1);
  }
};

TEST_P(LsmRandomDamageTest, NoAnswerIsWrongAndAllGoesOn) {
  Open();
  BeginMerges();
  BeginCollection();
  for (int round = 0; round < 24; ++round) {
    ChangeSome();
    Flush();
    if (round % 6 == 3) SpoilATable();
    store_->CompactEagerly(random_.OneIn(2));
    AwaitQuiet();
    if (random_.OneIn(4)) {
      Reopen();
      BeginMerges();
      BeginCollection();
    }
    if (round % 4 == 3) ExpectRightOrDamaged(kKeys);
    ASSERT_FALSE(HasFailure()) << "seed " << GetParam() << ", round " << round;
  }
  store_->CompactEagerly(true);
  AwaitQuiet();
  const std::set<std::string> damaged = ExpectRightOrDamaged(kKeys);
  for (const std::string& key : damaged) EXPECT_TRUE(Put(key, "anew").ok());
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{});
  OpContext op = Op();
  const Status deleted = Run(store_->DeleteRange(op, "a", "z"));
  EXPECT_TRUE(deleted.ok()) << deleted;
  model_.clear();
  EXPECT_EQ(ExpectRightOrDamaged(kKeys), std::set<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Seeds, LsmRandomDamageTest, ::testing::Range<uint64_t>(1, 9));

TEST_F(LsmMergeDamageTest, OnlyABlockThatAScanNeedsIsItsFailure) {
  FillLevels();
  std::set<std::string> damaged;
  {
    const SegmentId segment = DeepestTable().id();
    storage_.FlipBit(segment, 400'000, 3);
    damaged = ExpectRightOrDamaged(kKeys);
    ASSERT_GT(damaged.size(), 0u);
    Reopen();
  }
  const auto at = model_.find(*damaged.begin());
  auto start = at;
  // Enough for the scan to read ahead as much as it ever does.
  for (int n = 0; n < 1000 && start != model_.begin(); ++n) --start;
  const auto rows_before = static_cast<uint64_t>(std::distance(start, at));
  for (const uint64_t limit : {rows_before, rows_before / 2, rows_before - 1}) {
    Reopen();
    OpContext op = Op();
    std::vector<KeyValue> rows;
    const Status scanned = Run(store_->Scan(op, {.start = start->first, .limit = limit}, &rows));
    EXPECT_TRUE(scanned.ok()) << scanned;
    EXPECT_EQ(rows.size(), limit);
  }
  OpContext op = Op();
  std::vector<KeyValue> rows;
  Status scanned = Run(store_->Scan(op, {.start = start->first}, &rows));
  EXPECT_EQ(scanned.code(), StatusCode::kCorruption) << scanned;
  EXPECT_EQ(rows.size(), rows_before);
  for (const auto direction : {ScanDirection::kForward, ScanDirection::kReverse}) {
    scanned = Run(store_->Scan(
        op, {.start = {}, .direction = direction, .damage = ScanDamage::kPassOver}, &rows));
    EXPECT_TRUE(scanned.ok()) << scanned;
    EXPECT_EQ(rows.size(), kKeys - damaged.size());
  }
}

TEST_F(LsmMergeDamageTest, AChangeNeedsNotKnowWhatItHides) {
  FillLevels();
  storage_.FlipBit(DeepestTable().id(), 100, 3);
  const std::string key = Key(0);
  OpContext op = Op();
  const auto inserted = Run(store_->Insert(op, key, "v"));
  EXPECT_EQ(inserted.status().code(), StatusCode::kCorruption);
  const auto updated = Run(store_->Update(op, key, "v"));
  EXPECT_EQ(updated.status().code(), StatusCode::kCorruption);
  const auto put = Run(store_->Put(op, key, "v"));
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_FALSE(*put);
  std::string value;
  auto got = Get(key, &value);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(value, "v");
  const auto deleted = Run(store_->Delete(op, Key(1)));
  ASSERT_TRUE(deleted.ok()) << deleted.status();
  EXPECT_TRUE(*deleted);
  got = Get(Key(1), &value);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_FALSE(*got);
}

}  // namespace
}  // namespace farleaf::index::lsm
