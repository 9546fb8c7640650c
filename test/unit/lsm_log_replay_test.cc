// Reading logs back: replay, and segments as a whole.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "dsm/base/random.h"
#include "test/support/lsm_log_test.h"

namespace farleaf::index::lsm {
namespace {

using Strings = std::vector<std::string>;

TEST_F(LsmLogTest, TheFormatsExampleIsWhatIsWritten) {
  for (int i = 0; i < 2; ++i) {  // segments 1 and 2
    const auto id = worker->Run(source.Take(*worker, LogKind::kValues));
    ASSERT_TRUE(id.ok());
  }
  Open({.next_sequence = 5});
  CommitWriter commit;
  commit.Add({.kind = ChangeKind::kPut, .key = "a", .value = "1"});
  commit.Add({.kind = ChangeKind::kDelete, .key = "b"});
  ASSERT_TRUE(worker->Run(logs->AppendCommit(*worker, commit, &first, &positions)).ok());
  ASSERT_TRUE(Sync().ok());
  const auto& bytes = storage.bytes(static_cast<SegmentId>(3));
  std::string hex;
  for (size_t i = 0; i < 25 + 28; ++i) {
    char text[32];
    if (i % 16 == 0) {
      std::snprintf(text, sizeof text, "%s%04zx ", i ? "\n" : "", i);
      hex += text;
    }
    std::snprintf(text, sizeof text, " %02x", static_cast<unsigned>(bytes[i]));
    hex += text;
  }
  std::ifstream file(FARLEAF_SOURCE_DIR "/index/lsm/log_format.md");
  std::stringstream format;
  format << file.rdbuf();
  EXPECT_NE(format.str().find("```hex\n" + hex + "\n```"), std::string::npos) << hex;
}

TEST_F(LsmLogTest, WhatWasSyncedIsReplayed) {
  ASSERT_TRUE(Append("a", "1").ok());
  EXPECT_EQ(first, 1u);
  ASSERT_TRUE(Append("b", "2").ok());
  EXPECT_EQ(first, 2u);
  ASSERT_TRUE(Sync().ok());
  auto report = ReplayAll();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(replayed, (Strings{"1:a=1;", "2:b=2;"}));
  EXPECT_EQ(report->last, 2u);
  EXPECT_EQ(report->commits, 2u);
  EXPECT_FALSE(report->gap);
  EXPECT_EQ(report->kept.size(), 1u);
  EXPECT_EQ(report->unused.size(), 1u) << "the segment that was ready and never begun";
}

TEST_F(LsmLogTest, WhatIsFlushedToTablesIsPassedOver) {
  for (const char* key : {"a", "b", "c"}) ASSERT_TRUE(Append(key, "1").ok());
  ASSERT_TRUE(Sync().ok());
  auto report = ReplayAll(2);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(replayed, (Strings{"3:c=1;"}));
  report = ReplayAll(8);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->last, 8u);
}

TEST_F(LsmLogTest, AnotherStoresBytesAreNoRecords) {
  ASSERT_TRUE(Append("a", "1").ok());
  ASSERT_TRUE(Sync().ok());
  auto report = ReplayAll(0, 8);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(replayed, Strings{});
}

TEST_F(LsmLogTest, ARecordIsOneOnlyWhereItWasWritten) {
  ASSERT_TRUE(Append("a", "1").ok());
  ASSERT_TRUE(Sync().ok());
  const auto ids = source.granted(LogKind::kRecovery);
  storage.bytes(ids[1]) = storage.bytes(ids[0]);  // a recycled block
  auto report = ReplayAll();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(replayed, (Strings{"1:a=1;"}));
}

TEST_F(LsmLogTest, AGapEndsTheReplay) {
  const std::string value(100'000, 'v');
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Append(std::to_string(i), value).ok());
  ASSERT_TRUE(Flush().ok());
  const auto ids = source.granted(LogKind::kRecovery);
  storage.bytes(ids[0])[1'000'000] ^= std::byte{4};
  auto report = ReplayAll();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->gap);
  EXPECT_EQ(report->last, 9u);
  EXPECT_EQ(replayed.size(), 9u);
}

TEST_F(LsmLogTest, AGapInWhatWasDurableIsReported) {
  const std::string value(100'000, 'v');
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(Append(std::to_string(i), value).ok());
    ASSERT_TRUE(Sync().ok());
  }
  const auto ids = source.granted(LogKind::kRecovery);
  storage.bytes(ids[0])[1'000'000] ^= std::byte{4};
  auto report = ReplayAll();
  EXPECT_EQ(report.status().ToString(),
            "corruption: " + storage.NameOf(ids[0]) +
                " at offset 900259: no record; the recovery log ends behind commit 9, but those up "
                "to 40 were durable");
}

TEST_F(LsmLogTest, AnEndBeforeWhatIsKnownToBeDurableSaysWhereItIs) {
  for (const char* key : {"a", "b", "c"}) {
    ASSERT_TRUE(AppendValue(key, std::string(100, 'v')).ok());
    ASSERT_TRUE(AppendPointer(key).ok());
  }
  ASSERT_TRUE(Sync().ok());
  const SegmentId log = source.granted(LogKind::kRecovery)[0];
  const auto end = [&](Sequence durable) { return ReplayAll(0, 7, durable).status().ToString(); };
  const auto damaged = [&](SegmentId segment, uint32_t offset, const std::string& what,
                           uint64_t last) {
    return "corruption: " + storage.NameOf(segment) + " at offset " + std::to_string(offset) +
           ": " + what + "; the recovery log ends behind commit " + std::to_string(last) +
           ", but those up to 3 were durable";
  };
  ASSERT_TRUE(ReplayAll(0, 7, 3).ok());
  EXPECT_EQ(replayed.size(), 3u);
  constexpr uint32_t kCommit = 8 + 12 + 19, kValue = 8 + 2 + 1 + 100;
  const auto flip = [&](SegmentId segment, uint32_t at) {
    storage.bytes(segment)[at] ^= std::byte{1};
  };
  flip(log, kLogHeadBytes + kCommit);  // the second commit, with more behind it
  EXPECT_EQ(end(3), damaged(log, kLogHeadBytes + kCommit, "no record", 1));
  EXPECT_TRUE(ReplayAll(0, 7, 1).ok());
  flip(log, kLogHeadBytes + kCommit);
  flip(log, kLogHeadBytes + 3 * kCommit - 1);  // the last one
  EXPECT_EQ(end(3), damaged(log, kLogHeadBytes + 2 * kCommit, "no record", 2));
  flip(log, kLogHeadBytes + 3 * kCommit - 1);
  flip(log, 9);
  EXPECT_EQ(end(3), damaged(log, 0, "no head of the log's, or no file", 0));
  flip(log, 9);
  flip(pointer.segment, kLogHeadBytes + kValue + 50);
  EXPECT_EQ(ReplayAll(0, 7, 1)->last, 1u);
  EXPECT_EQ(ReplayAll(0, 7, 3)->values_damaged, 1u);
  EXPECT_EQ(replayed.size(), 3u);
  flip(pointer.segment, kLogHeadBytes + kValue + 50);
  ASSERT_TRUE(storage.Remove(log).ok());
  EXPECT_EQ(end(3), damaged(log, 0, "no head of the log's, or no file", 0));
}

TEST_F(LsmLogTest, ACommitWithoutItsValueEndsTheReplay) {
  ASSERT_TRUE(Append("a", "1").ok());
  ASSERT_TRUE(AppendValue("k", std::string(1000, 'v')).ok());
  ASSERT_TRUE(AppendPointer("k").ok());
  ASSERT_TRUE(Append("b", "2").ok());
  ASSERT_TRUE(Flush().ok());
  auto report = ReplayAll();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->last, 3u);
  storage.bytes(pointer.segment)[500] ^= std::byte{1};
  report = ReplayAll();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(replayed, (Strings{"1:a=1;"}));
  EXPECT_TRUE(report->gap);
}

TEST_F(LsmLogTest, AValueBehindAGapThatNoCommitNamesIsThereAllTheSame) {
  ASSERT_TRUE(AppendValue("k", std::string(1000, 'u')).ok());  // that of a table, say
  const ValuePointer damaged = pointer;
  for (const char* key : {"a", "b"}) {
    ASSERT_TRUE(AppendValue(key, std::string(1000, 'v')).ok());
    ASSERT_TRUE(AppendPointer(key).ok());
  }
  ASSERT_TRUE(Sync().ok());
  storage.bytes(damaged.segment)[damaged.offset + 50] ^= std::byte{1};
  auto report = ReplayAll(0, 7, 2);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(replayed, (Strings{"1:a=;", "2:b=;"}));
  storage.bytes(pointer.segment)[pointer.offset + 50] ^= std::byte{1};
  EXPECT_EQ(ReplayAll(0, 7, 1)->last, 1u);
}

TEST_F(LsmLogTest, ASegmentOfValuesIsWalkedInOrder) {
  std::vector<ValuePointer> pointers;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(AppendValue("k" + std::to_string(i), std::string(i * 10, 'v')).ok());
    pointers.push_back(pointer);
  }
  ASSERT_TRUE(Flush().ok());
  SegmentReader reader(&storage, 7);
  ASSERT_TRUE(worker->Run(reader.Load(*worker, pointer.segment)).ok());
  const auto head = reader.Next();
  ASSERT_TRUE(head && ParseLogHead(*head));
  EXPECT_EQ(ParseLogHead(*head)->log, LogKind::kValues);
  for (int i = 0; i < 100; ++i) {
    const auto record = reader.Next();
    ASSERT_TRUE(record);
    const auto value = ParseValueRecord(*record);
    ASSERT_TRUE(value);
    EXPECT_EQ(value->key, "k" + std::to_string(i));
    EXPECT_EQ(record->offset, pointers[i].offset);
    EXPECT_EQ(record->bytes(), pointers[i].bytes);
  }
  EXPECT_FALSE(reader.Next());
}

TEST_F(LsmLogTest, AFlippedBitEndsTheReplayOrIsReportedAndIsNeverRead) {
  const uint64_t seed = ::testing::UnitTest::GetInstance()->random_seed() + 1;
  SCOPED_TRACE("seed " + std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < 250; ++i) {
    const std::string key = std::to_string(i), value(random.Below(40'000), 'v');
    if (random.OneIn(3)) {
      ASSERT_TRUE(AppendValue(key, value).ok() && AppendPointer(key).ok());
    } else {
      ASSERT_TRUE(Append(key, value).ok());
    }
    if (random.OneIn(2)) {
      ASSERT_TRUE(Sync().ok());
    }
  }
  ASSERT_TRUE(Sync().ok());
  auto report = ReplayAll();
  ASSERT_TRUE(report.ok());
  const Strings all = replayed;
  ASSERT_EQ(all.size(), 250u);
  uint64_t reported = 0, ended = 0, whole = 0;
  for (int i = 0; i < 200; ++i) {
    const auto log = random.OneIn(2) ? LogKind::kRecovery : LogKind::kValues;
    const auto ids = source.granted(log);
    auto& bytes = storage.bytes(ids[random.Below(ids.size())]);
    const uint64_t bit = random.Below(bytes.size() * 8);
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    report = ReplayAll();
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_LE(replayed.size(), all.size());
    ASSERT_TRUE(std::equal(replayed.begin(), replayed.end(), all.begin()));
    if (!report.ok()) {
      ASSERT_EQ(report.status().code(), StatusCode::kCorruption);
      ++reported;
    } else {
      ++(replayed.size() < all.size() ? ended : whole);
    }
  }
  EXPECT_GT(reported, 0u);
  EXPECT_GT(ended, 0u);
  EXPECT_GT(whole, 0u) << "behind the last record";
}

TEST_F(LsmLogTest, WhatARecoveryGaveUpStaysGivenUp) {
  const std::string value(100'000, 'v');
  ASSERT_TRUE(AppendValue("k", "value").ok());
  ASSERT_TRUE(Append("a", "1").ok());
  ASSERT_TRUE(AppendPointer("k").ok());
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Append(std::to_string(i), value).ok());
  ASSERT_TRUE(Flush().ok());
  storage.bytes(pointer.segment)[30] ^= std::byte{1};
  auto report = ReplayAll();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->last, 1u);
  // Those behind the gap stay in the list here: a later head supersedes them all the same.
  positions = {};
  Open({.next_sequence = report->last + 1});
  ASSERT_TRUE(Append("z", "9").ok());
  EXPECT_EQ(first, 2u);
  ASSERT_TRUE(Sync().ok());
  report = ReplayAll();
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(replayed, (Strings{"1:a=1;", "2:z=9;"}));
}

TEST_F(LsmLogTest, ItGoesOnAfterRecovery) {
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(Append("k", std::to_string(round)).ok());
    ASSERT_TRUE(Sync().ok());
    auto report = ReplayAll();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(replayed.size(), static_cast<size_t>(round) + 1);
    Recover(*report);
  }
}

TEST_F(LsmLogTest, TrimTakesOutWhatIsFlushed) {
  const std::string value(100'000, 'v');
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(Append(std::to_string(i), value).ok());
  ASSERT_TRUE(Sync().ok());
  const auto ids = source.granted(LogKind::kRecovery);
  const auto flushed = [&](Sequence through) {
    return worker->Run(logs->group.FlushedSegments(*worker, through));
  };
  EXPECT_EQ(flushed(19), std::vector<SegmentId>{});
  EXPECT_EQ(flushed(20), std::vector<SegmentId>{ids[0]});
  worker->Run(logs->group.Trim(*worker, flushed(20)));
  EXPECT_EQ(flushed(50), std::vector<SegmentId>{ids[1]});
  worker->Run(logs->group.Trim(*worker, flushed(50)));
  EXPECT_EQ(flushed(50), std::vector<SegmentId>{});
  source.Drop(LogKind::kRecovery, {ids[0], ids[1]});
  ASSERT_TRUE(storage.Remove(ids[0]).ok());
  ASSERT_TRUE(Append("more", "1").ok());
  ASSERT_TRUE(Sync().ok());
  auto report = ReplayAll(45);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(replayed.size(), 6u);
}

}  // namespace
}  // namespace farleaf::index::lsm
