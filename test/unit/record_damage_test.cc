// Records in a store of which a leaf is damaged: whatever does not ask what was there gets past it.
#include "server/records/record.h"
#include "server/records/record_walk.h"
#include "server/records/string_rules.h"
#include "server/records/value_rules.h"
#include "test/support/damaged_store.h"

namespace farleaf::test {
namespace {

class RecordDamageTest : public DamagedStore {
 protected:
  static constexpr uint64_t kKeys = 4000;

  static std::string KeyOf(uint64_t number) {
    return std::string(1, server::kUserKeySpace) + Key(number);
  }
  /// Each third one expires at once.
  void FillAndDamage() {
    Open();
    for (uint64_t number = 0; number < kKeys; ++number) {
      server::Record record;
      record.expiry_ms = number % 3 == 0 ? 1 : 0;
      record.data = "of some length, so that there are many leaves";
      std::string value;
      server::AppendRecord(record, {}, &value);
      index::OpContext op = Op();
      const auto put = Run(store_->Put(op, KeyOf(number), value));
      ASSERT_TRUE(put.ok()) << put.status();
    }
    Flush();
    RunFor(1);
    Reopen();
    const auto table = VersionNow()->runs.front().tables.front().file->info();
    storage_.FlipBit(table.id(), 40'000, 3);
  }
  std::set<uint64_t> Damaged(const server::RecordStore& records, uint64_t* there) {
    std::set<uint64_t> damaged;
    *there = 0;
    for (uint64_t number = 0; number < kKeys; ++number) {
      index::OpContext op = Op();
      std::string value;
      const auto got = Run(store_->Get(op, KeyOf(number), &value));
      if (!got.ok()) damaged.insert(number);
      *there += got.ok() && *got;
    }
    (void)records;
    return damaged;
  }
  server::WalkContext Walk() {
    return {.worker = workers_[0], .counts = counts_, .piece_ms = 60'000, .cancelled = [] {
              return false;
            }};
  }
  const server::RecordStore& records() {
    records_.emplace(store_.get(), &workers_.clock());
    return *records_;
  }
  std::optional<server::RecordStore> records_;
};

TEST_F(RecordDamageTest, RulesThatDoTheSameWhateverIsThereAreCarriedOut) {
  FillAndDamage();
  uint64_t there = 0;
  const std::set<uint64_t> damaged = Damaged(records(), &there);
  ASSERT_GT(damaged.size(), 3u);
  auto at = damaged.begin();
  index::OpContext op = Op();
  server::SetRule set;
  set.data = "new";
  const std::string set_key = KeyOf(*at++), deleted_key = KeyOf(*at++), kept_key = KeyOf(*at);
  auto done = Run(records().Update(op, set_key, set));
  ASSERT_TRUE(done.ok()) << done.status();
  std::string value;
  server::Record record;
  auto got = Run(records().Get(op, set_key, &value, &record));
  ASSERT_TRUE(got.ok() && *got);
  EXPECT_EQ(record.data, "new");
  server::DeleteRule drop;
  done = Run(records().Update(op, deleted_key, drop));
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_EQ(drop.outcome, server::RuleOutcome::kDone);
  got = Run(records().Get(op, deleted_key, &value, &record));
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_FALSE(*got);
  server::SetRule if_absent;
  if_absent.when = server::SetRule::When::kAbsent;
  done = Run(records().Update(op, kept_key, if_absent));
  EXPECT_EQ(done.status().code(), StatusCode::kCorruption) << done.status();
}

TEST_F(RecordDamageTest, DeletingEverythingDeletesWhatCannotBeReadAsWell) {
  FillAndDamage();
  const Status deleted = Run(server::DeleteAll(Walk(), records(), server::kUserKeySpace));
  EXPECT_TRUE(deleted.ok()) << deleted;
  uint64_t there = 0;
  EXPECT_EQ(Damaged(records(), &there), std::set<uint64_t>{});
  EXPECT_EQ(there, 0u);
}

TEST_F(RecordDamageTest, TheSweepOfWhatHasExpiredGetsPastWhatCannotBeRead) {
  FillAndDamage();
  uint64_t there = 0;
  const uint64_t damaged = Damaged(records(), &there).size();
  ASSERT_GT(damaged, 0u);
  const std::string begin(1, server::kUserKeySpace);
  server::ExpirySweep sweep(&records(), begin, server::EndOfPrefix(begin), {.turn_s = 1}, 1000);
  for (int step = 0; step < 100 && sweep.counts().turns == 0; ++step) {
    const Status failure = Run(sweep.Step(Walk(), workers_.clock().NowNs()));
    if (!failure.ok()) ExpectNamesPlace(failure);
    RunFor(1);
  }
  EXPECT_EQ(sweep.counts().turns, 1u);
  EXPECT_EQ(Damaged(records(), &there).size(), damaged);
  EXPECT_GE(there, kKeys * 2 / 3 - damaged);
  EXPECT_LE(there, kKeys * 2 / 3);
}

}  // namespace
}  // namespace farleaf::test
