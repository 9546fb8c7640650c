// Merges of many sources, when they are due, and how writers are slowed down while they do not keep up.
#include "index/lsm/merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dsm/base/random.h"
#include "index/lsm/compaction_plan.h"
#include "index/lsm/write_pace.h"
#include "test/support/table_fixture.h"
#include "test/support/test_scale.h"

namespace farleaf::index::lsm {
namespace {

/// Suspends now and then.
class EntriesSource final : public MergeSource {
 public:
  EntriesSource(const Entries* entries, uint64_t seed) : entries_(entries), random_(seed) {
    Stand();
  }
  const Entry* entry() const override { return at_ < entries_->size() ? &entry_ : nullptr; }
  bool Advance() override {
    if (random_.OneIn(5)) {
      entry_ = {};
      return false;
    }
    ++at_;
    Stand();
    return true;
  }
  dsm::Task<Status> Fetch(dsm::Worker& worker) override {
    co_await worker.Sleep(0);
    ++at_;
    Stand();
    co_return Status::Ok();
  }

 private:
  void Stand() {
    if (at_ < entries_->size()) entry_ = (*entries_)[at_].view();
  }
  const Entries* const entries_;
  Random random_;
  size_t at_ = 0;
  Entry entry_;
};

struct LsmMergeTest : ::testing::Test, TableFixture {
  Result<Entries> RunMerge(MergeRule rule, std::vector<std::unique_ptr<EntriesSource>>& sources,
                           uint64_t table_bytes_max, size_t* tables, size_t* outputs = nullptr) {
    std::vector<MergeSource*> all;
    for (const auto& source : sources) all.push_back(source.get());
    SegmentRemover remover(&storage());
    Merge::Deps deps{.storage = &storage(),
                     .remover = &remover,
                     .new_segment = [this] { return NewSegment(); },
                     .tables = {.table_bytes_max = table_bytes_max}};
    Merge merge(std::move(deps), std::move(rule), all);
    Entries merged;
    std::string last_key;
    while (!merge.ended()) {
      auto output = worker().Run(merge.NextTable(worker()));
      if (!output.ok()) return output.status();
      EXPECT_TRUE(output->has_value());
      EXPECT_LT(last_key, (*output)->last_key);
      last_key = (*output)->last_key;
      if (outputs) ++*outputs;
      if (!(*output)->table) continue;
      ++*tables;
      const Table table(&storage(), *(*output)->table);
      EXPECT_LE(table.info().largest, last_key);
      for (OwnedEntry& entry : ReadAll(table)) merged.push_back(std::move(entry));
    }
    auto nothing = worker().Run(merge.NextTable(worker()));
    EXPECT_TRUE(nothing.ok() && !nothing->has_value());
    return merged;
  }
  Entries ReadAll(const Table& table) {
    Entries entries;
    TableStream stream(&table);
    for (;;) {
      const CursorStep step = stream.Next();
      if (step == CursorStep::kEnd) return entries;
      if (step == CursorStep::kEntry) {
        entries.push_back(OwnedEntry::Of(stream.entry()));
        continue;
      }
      const Status read = worker().Run(stream.Read(worker(), cache()));
      EXPECT_TRUE(read.ok()) << read;
      if (!read.ok()) return entries;
    }
  }
};

// Of each key what the newest source says, by its entry or by a range that it deletes.
TEST_F(LsmMergeTest, OfManySourcesTheNewestThatKnowsAKeyDecides) {
  size_t tables = 0;
  const uint64_t seeds = test::Amount{.small = 8, .usual = 40};
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const size_t count = random.Below(18);  // none at all, too
    const bool bottom = random.OneIn(2);
    std::vector<Entries> contents(count);
    MergeRule::Setting setting{.snapshots = {}, .bottom = bottom, .now_ms = 1};
    std::map<std::string, std::optional<std::string>> expected;  // nothing: deleted
    std::vector<std::unique_ptr<EntriesSource>> sources;
    Sequence sequence = 1'000'000;
    for (size_t i = 0; i < count; ++i) {
      std::map<std::string, OwnedEntry> entries;
      for (uint64_t n = random.OneIn(6) ? 0 : random.Below(2500); n > 0; --n) {
        const std::string key = "key" + std::to_string(100'000 + random.Below(20'000));
        const bool deleted = random.OneIn(5);
        const std::string value = std::to_string(i) + std::string(random.Below(300), 'v');
        entries[key] = {key, --sequence, deleted ? EntryKind::kDeleted : EntryKind::kValue,
                        deleted ? "" : value};
      }
      std::vector<RangeDelete> deletes;
      for (uint64_t n = random.Below(4); n > 0; --n) {
        const uint64_t start = 100'000 + random.Below(20'000);
        deletes.push_back({"key" + std::to_string(start),
                           "key" + std::to_string(start + 1 + random.Below(800)), --sequence});
      }
      for (const auto& [key, entry] : entries) {  // all newer than the source's ranges
        contents[i].push_back(entry);
        const auto value = std::optional(entry.value);
        expected.try_emplace(key, entry.kind == EntryKind::kDeleted ? std::nullopt : value);
      }
      setting.range_deletes.resize(count);
      setting.range_deletes[i] = deletes;
      for (const RangeDelete& range : deletes) {
        for (uint64_t number = 100'000; number < 120'000; ++number) {
          const std::string key = "key" + std::to_string(number);
          if (range.Covers(key)) expected.try_emplace(key, std::nullopt);
        }
      }
      sources.push_back(std::make_unique<EntriesSource>(&contents[i], random.Next()));
    }
    auto merged = RunMerge(MergeRule(setting), sources, 64 << 10, &tables);
    ASSERT_TRUE(merged.ok()) << merged.status();
    std::string last;
    std::set<std::string> deleted;
    for (const OwnedEntry& entry : *merged) {
      ASSERT_LT(last, entry.key);
      last = entry.key;
      EXPECT_EQ(entry.sequence, 0u);
      const auto at = expected.find(entry.key);
      ASSERT_NE(at, expected.end()) << entry.key;
      if (entry.kind == EntryKind::kDeleted) {
        EXPECT_FALSE(bottom);
        EXPECT_FALSE(at->second) << entry.key;
        deleted.insert(entry.key);
      } else {
        ASSERT_TRUE(at->second) << entry.key;
        EXPECT_EQ(entry.value, *at->second) << entry.key;
        expected.erase(at);
      }
    }
    for (const auto& [key, value] : expected) EXPECT_FALSE(value) << key << " is lost";
    if (HasFailure()) return;
  }
  EXPECT_GT(tables, seeds * 5 / 2);
}

// Others have their turns between outputs.
TEST_F(LsmMergeTest, AMergeThatKeepsNothingEndsItsOutputsAllTheSame) {
  constexpr uint64_t kTableBytes = 64 << 10;
  Entries deletions, values;
  uint64_t bytes = 0;
  for (uint64_t number = 100'000; number < 120'000; ++number) {
    const std::string key = "key" + std::to_string(number);
    deletions.push_back({key, number, EntryKind::kDeleted, ""});
    values.push_back({key, 1, EntryKind::kValue, std::string(100, 'v')});
    bytes += 2 * key.size() + 100;
  }
  std::vector<std::unique_ptr<EntriesSource>> sources;
  sources.push_back(std::make_unique<EntriesSource>(&deletions, 1));
  sources.push_back(std::make_unique<EntriesSource>(&values, 2));
  size_t tables = 0, outputs = 0;
  MergeRule::Setting setting{.snapshots = {}, .bottom = true, .now_ms = 1};
  setting.range_deletes.resize(2);
  auto merged = RunMerge(MergeRule(setting), sources, kTableBytes, &tables, &outputs);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_TRUE(merged->empty());
  EXPECT_EQ(tables, 0u);
  EXPECT_GE(outputs, bytes / kTableBytes / 8);
}

/// Of this size, and not empty.
Run RunOf(RunPlace place, uint64_t bytes = 1) {
  return {.place = place, .range_deletes = {{"a", "b", 0}}, .bytes = bytes};
}

TEST(CompactionPlanTest, FreshRunsAreMergedWhenTheyAreManyOrLargeOrTheirValuesAre) {
  CompactionPlan plan{.memtable_bytes = 1 << 20, .flush_bytes = 400'000, .growth_factor = 8};
  EXPECT_EQ(plan.TargetBytes(0), kFreshFew * 400'000 * 8);
  EXPECT_EQ(plan.TargetBytes(2), kFreshFew * 400'000 * 8 * 8 * 8);
  Version version;
  const auto add_fresh = [&] {
    ++version.fresh;
    version.runs.insert(version.runs.begin(), RunOf(FreshPlace(version.fresh), 100));
  };
  version.runs.push_back(RunOf({0, RunKind::kGrowing}, 2 * kFreshFew * 100 + 2));
  EXPECT_FALSE(plan.IsDue(version, 0));
  while (version.fresh < kFreshFew) add_fresh();
  EXPECT_FALSE(plan.IsDue(version, 0)) << "less than half as large as the growing run";
  version.runs.back().bytes -= 2;
  EXPECT_TRUE(plan.IsDue(version, 0));
  version.runs.back().bytes = 1'000'000;
  plan.eager = true;
  EXPECT_TRUE(plan.IsDue(version, 0));
  plan.eager = false;
  version.runs.front().value_bytes = 16 << 20;
  EXPECT_TRUE(plan.IsDue(version, 0)) << "as many values as a memtable may name";
  version.runs.front().value_bytes = 15 << 20;
  EXPECT_FALSE(plan.IsDue(version, 0));
  while (version.fresh < kFreshMany) add_fresh();
  EXPECT_TRUE(plan.IsDue(version, 0));

  const std::vector<RunPlace> sources = SourcesOf(version, 0);
  ASSERT_EQ(sources.size(), kFreshMany + 1);
  EXPECT_EQ(sources.front(), FreshPlace(kFreshMany)) << "the newest";
  EXPECT_EQ(sources.back(), (RunPlace{0, RunKind::kGrowing}));
  EXPECT_FALSE(plan.IsDue(version, 1));
  version.runs.push_back(RunOf({0, RunKind::kSinking}));
  EXPECT_TRUE(plan.IsDue(version, 1));
  EXPECT_EQ(SourcesOf(version, 1),
            (std::vector<RunPlace>{{0, RunKind::kSinking}, {1, RunKind::kGrowing}}));
}

TEST(CompactionPlanTest, AFullGrowingRunSinksIfNoneDoes) {
  CompactionPlan plan{.memtable_bytes = 1 << 20, .flush_bytes = 0, .growth_factor = 4};
  Version version;
  EXPECT_FALSE(plan.Sinks(version, 0));
  version.runs.push_back(RunOf({0, RunKind::kGrowing}, plan.TargetBytes(0)));
  EXPECT_TRUE(plan.Sinks(version, 0));
  version.runs.front().bytes -= 1;
  EXPECT_FALSE(plan.Sinks(version, 0));
  plan.eager = true;
  EXPECT_TRUE(plan.Sinks(version, 0));
  version.runs.push_back(RunOf({0, RunKind::kSinking}));
  EXPECT_FALSE(plan.Sinks(version, 0));
  version.runs.pop_back();
  EXPECT_TRUE(plan.Sinks(version, 0));
  plan.merging = 1u << 1;
  EXPECT_FALSE(plan.Sinks(version, 0)) << "the merge of the sinking run goes on, all of it used up";
  plan.merging = 1u << 0 | 1u << 2;
  EXPECT_TRUE(plan.Sinks(version, 0));
  version.runs = {RunOf({kLevelsMax - 1, RunKind::kGrowing}, UINT64_MAX)};
  EXPECT_FALSE(plan.Sinks(version, kLevelsMax - 1)) << "there is nothing below";
}

TEST(CompactionPlanTest, NothingIsBelowTheLastRun) {
  Version version;
  EXPECT_TRUE(version.NothingBelow(0));
  version.runs.push_back({.place = FreshPlace(9)});
  version.fresh = 1;
  EXPECT_TRUE(version.NothingBelow(0));
  version.runs.push_back({.place = {1, RunKind::kGrowing}});
  EXPECT_FALSE(version.NothingBelow(0));
  EXPECT_TRUE(version.NothingBelow(1));
  version.runs.push_back({.place = {1, RunKind::kSinking}});
  EXPECT_FALSE(version.NothingBelow(1));
  EXPECT_TRUE(version.NothingBelow(2));
}

/// How many changes one writer makes in a second that has nothing else to do, and the longest of its waits.
struct Paced {
  uint64_t changes = 0, longest_ns = 0;
};
Paced WriteForASecond(WritePace* pace, double pressure, size_t together) {
  Paced paced;
  for (uint64_t now_ns = kNsPerSecond; now_ns < 2 * kNsPerSecond;) {
    const uint64_t delay_ns = pace->DelayNs(now_ns, pressure, together);
    paced.longest_ns = std::max(paced.longest_ns, delay_ns);
    now_ns += delay_ns + 500;
    paced.changes += together;
  }
  return paced;
}

TEST(WritePaceTest, WritersAreSlowedDownTheMoreTheMoreFreshRunsThereAre) {
  EXPECT_EQ(WritePace::Pressure(kFreshSlow), 0);
  EXPECT_EQ(WritePace::Pressure(kFreshMax + 2), 1);
  uint64_t before = UINT64_MAX;
  for (const double pressure : {0.1, 0.3, 0.5, 0.8, 0.95, 1.0}) {
    WritePace pace;
    pace.SetRate(100'000);
    const Paced paced = WriteForASecond(&pace, pressure, 1);
    EXPECT_LT(paced.changes, before);
    EXPECT_LT(paced.longest_ns, 2 * kNsPerMs) << "a little each";
    before = paced.changes;
    const double allowed = 100'000 * std::max(2 * (1 - pressure), 0.05);
    EXPECT_NEAR(static_cast<double>(paced.changes), allowed, allowed / 10 + 50);
  }
}

TEST(WritePaceTest, NobodyWaitsWithoutNeedOrForLong) {
  WritePace pace;
  EXPECT_EQ(WriteForASecond(&pace, 1, 1).longest_ns, 0u) << "no merge has told of its rate";
  pace.SetRate(1000);
  EXPECT_EQ(WriteForASecond(&pace, 0, 1).longest_ns, 0u);
  const Paced batches = WriteForASecond(&pace, 1, 100'000);
  EXPECT_GT(batches.longest_ns, 100 * kNsPerMs);
  EXPECT_LE(batches.longest_ns, kNsPerSecond);
}

TEST(WritePaceTest, BatchesAreChargedInFull) {
  for (const size_t together : {100, 10'000, 50'000}) {
    WritePace pace;
    pace.SetRate(1'000'000);
    const Paced paced = WriteForASecond(&pace, 0.5, together);
    EXPECT_NEAR(static_cast<double>(paced.changes), 1e6, 1e5) << together;
  }
}

TEST(WritePaceTest, WhatManyHaveDoneAtOnceIsSoonForgotten) {
  WritePace pace;
  pace.SetRate(1000);
  uint64_t now_ns = kNsPerSecond;
  for (int i = 0; i < 10'000; ++i) {
    EXPECT_LE(pace.DelayNs(now_ns, 0.5, 1), 51 * kNsPerMs);
  }
  now_ns += 51 * kNsPerMs;
  EXPECT_LE(pace.DelayNs(now_ns, 0.5, 1), kNsPerMs);
}

}  // namespace
}  // namespace farleaf::index::lsm
