// Tables of the LSM store: what was added is found, in order, at the cost that format.md promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "test/support/table_fixture.h"

namespace farleaf::index::lsm {
namespace {

struct LsmTableTest : ::testing::Test, TableFixture {
  void ExpectHolds(const Table& table, const Entries& entries) {
    EXPECT_EQ(ReadForward(table), entries);
    EXPECT_EQ(ReadBackward(table), entries);
    EXPECT_EQ(ReadStream(table), entries);
    EXPECT_EQ(ReadStream(table, {}, 4096), entries);
    for (const OwnedEntry& entry : entries) {
      ASSERT_EQ(Find(table, entry.key, entry.sequence), entry);
    }
  }
};

std::string Number(uint64_t i) {
  char text[32];
  std::snprintf(text, sizeof text, "user%020llu", static_cast<unsigned long long>(i));
  return text;
}

Entries SmallPairs(size_t count) {
  Entries entries;
  for (size_t i = 0; i < count; ++i)
    entries.push_back({.key = Number(3 * i), .value = std::string(9, 'v')});
  return entries;
}

TEST_F(LsmTableTest, OneEntryOfEachKind) {
  const Entries entries = {
      {.key = "a", .value = ""},
      {.key = "b", .sequence = 7, .value = "value"},
      {.key = "c", .sequence = 3, .kind = EntryKind::kDeleted},
      {.key = "d", .kind = EntryKind::kPointer, .pointer = {SegmentId{9}, 4096, 700, 600}},
      {.key = "e",
       .sequence = kSequenceMax,
       .kind = EntryKind::kPointer,
       .pointer = {SegmentId{4}, 1, 1 << 20, 2},
       .expires_ms = 5},
      {.key = "f", .value = "v", .expires_ms = UINT64_MAX}};
  const auto table = Build(entries);
  ASSERT_TRUE(table);
  ExpectHolds(*table, entries);
  const TableInfo& info = table->info();
  EXPECT_EQ(info.entries, 6u);
  EXPECT_EQ(info.deletes, 1u);
  EXPECT_EQ(info.expiring, 2u);
  EXPECT_EQ(info.expiry, ExpiryTimes(0, {{5, 1 + (1 << 20)}, {UINT64_MAX, 2}}));
  const auto decoded = TableInfo::Decode(AsBytes(info.Encode()));
  EXPECT_TRUE(decoded.ok() && *decoded == info) << decoded.status();
  EXPECT_EQ(info.sequence_max, kSequenceMax);
  EXPECT_EQ(info.smallest, "a");
  EXPECT_EQ(info.largest, "f");
  EXPECT_EQ(info.dictionary,
            (SharedList<TableInfo::LogSegment>{{SegmentId{9}, 700}, {SegmentId{4}, 1 << 20}}));
}

TEST_F(LsmTableTest, AbsentKeysAreAbsent) {
  const auto table = Build(SmallPairs(5000));
  for (uint64_t i = 0; i < 15000; ++i)
    EXPECT_EQ(Find(*table, Number(i)).has_value(), i % 3 == 0) << i;
  for (const char* key : {"", "user", "usex", "z", "\xff"}) EXPECT_FALSE(Find(*table, key)) << key;
}

TEST_F(LsmTableTest, TheDescriptionAloneOpensIt) {
  const Entries entries = SmallPairs(20000);
  const auto info = TryBuild(entries);
  ASSERT_TRUE(info.ok()) << info.status();
  const auto decoded = TableInfo::Decode(AsBytes(info->Encode()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, *info);
  const Table table(&storage(), *decoded);
  EXPECT_EQ(ReadForward(table), entries);
  const auto& segment = storage().bytes(info->segments[info->bytes / storage::kSegmentBytes]);
  const auto footer =
      DecodeFooter(std::span(segment).subspan(info->bytes % storage::kSegmentBytes));
  ASSERT_TRUE(footer.ok()) << footer.status();
  EXPECT_EQ(*footer, *info);
}

TEST_F(LsmTableTest, ABlockIsReadOnceAndInOneRead) {
  const auto table = Build(SmallPairs(100'000));
  ASSERT_EQ(table->info().root_level, 2);
  const auto before = storage().counts();
  ASSERT_TRUE(Find(*table, Number(3 * 4711)));
  EXPECT_EQ(storage().counts().reads - before.reads, 3u);  // root, lowest inner node, leaf
  ASSERT_TRUE(Find(*table, Number(3 * 4711)));
  EXPECT_EQ(storage().counts().reads - before.reads, 3u);
}

TEST_F(LsmTableTest, AnUncompressedLeafIsOnePage) {
  const Entries entries = SmallPairs(100'000);
  const auto table = Build(entries);
  ASSERT_TRUE(Find(*table, entries.front().key));  // root and first inner node
  const auto before = storage().counts();
  for (size_t i = 200; i < 10'000; i += 200) ASSERT_TRUE(Find(*table, entries[i].key));
  const auto after = storage().counts();
  const uint64_t reads = after.reads - before.reads;
  EXPECT_GE(reads, 30u);  // there are 200 and more entries in a leaf
  EXPECT_LE(after.bytes_read - before.bytes_read,
            reads * 4096 + 2 * 16384);  // but for an inner node or two
}

TEST_F(LsmTableTest, VersionsOfOneKeyAcrossManyLeaves) {
  Entries entries = {{.key = "a", .sequence = 4, .value = "a"}};
  for (Sequence sequence = 3000; sequence > 0; sequence -= 3) {
    entries.push_back({.key = "key",
                       .sequence = sequence,
                       .value = std::string(100, static_cast<char>(sequence))});
  }
  entries.push_back({.key = "key", .sequence = 0, .value = "oldest"});
  entries.push_back({.key = "key2", .sequence = 5, .value = "next"});
  const auto table = Build(entries);
  ASSERT_GT(table->info().leaves, 10u);
  ExpectHolds(*table, entries);
  for (Sequence snapshot = 0; snapshot < 3010; ++snapshot) {
    const auto found = Find(*table, "key", snapshot);
    ASSERT_TRUE(found) << snapshot;
    EXPECT_EQ(found->sequence, std::min<Sequence>(snapshot, 3000) / 3 * 3);
  }
  EXPECT_FALSE(Find(*table, "key2", 4));
  EXPECT_TRUE(Find(*table, "key2", 5));
}

TEST_F(LsmTableTest, LargeValuesAndLongKeysStandInLine) {
  Entries entries;
  for (int i = 0; i < 60; ++i) {
    std::string key(4096, static_cast<char>('a' + i / 10));
    key.back() = static_cast<char>(i);
    entries.push_back({.key = std::move(key),
                       .value = std::string(i % 3 == 0 ? 65536 : i * 100, static_cast<char>(i))});
  }
  for (const uint32_t block_bytes : {4096u, 65536u}) {
    const auto table = Build(entries, {.block_bytes = block_bytes});
    ASSERT_TRUE(table);
    ExpectHolds(*table, entries);
  }
}

struct Variant {
  TableBuilderOptions options;
  EntryStyle style;
};

std::vector<Variant> Variants() {
  const EntryStyle plain{}, tiny{.count = 30'000, .key_bytes_max = 3, .value_bytes_max = 1},
      versions{.count = 400,
               .key_bytes_max = 8,
               .letters = 3,
               .versions_max = 200,
               .pointer_percent = 20,
               .deleted_percent = 20,
               .expiring_percent = 20},
      pointers{.count = 5000,
               .key_bytes_min = 8,
               .key_bytes_max = 24,
               .pointer_percent = 80,
               .deleted_percent = 5,
               .log_segments = 300},
      large{.count = 300, .key_bytes_max = 4096, .value_bytes_max = 20'000, .letters = 2},
      alike{.count = 4000, .key_bytes_min = 20, .key_bytes_max = 100, .letters = 2};
  std::vector<Variant> variants;
  for (const EntryStyle& style : {plain, tiny, versions, pointers, large, alike}) {
    variants.push_back({{}, style});
    variants.push_back({{.block_bytes = 8192,
                         .filter_bits_per_key = 0,
                         .compression = Compression::kLz4,
                         .buffer_bytes = 65536},
                        style});
    variants.push_back({{.block_bytes = 65536,
                         .filter_bits_per_key = 20,
                         .compression = Compression::kZstd,
                         .epoch = 99},
                        style});
  }
  return variants;
}

TEST_F(LsmTableTest, RandomTablesAreAsTheyWereBuilt) {
  const uint64_t seed = 20261122;
  RecordProperty("seed", std::to_string(seed));
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  int number = 0;
  for (const Variant& variant : Variants()) {
    SCOPED_TRACE("variant " + std::to_string(number++));
    storage().delay_ns = number % 2 == 0 ? 1000 : 0;
    const Entries entries = RandomEntries(variant.style, &random);
    const auto table = Build(entries, variant.options);
    ASSERT_TRUE(table);
    ExpectHolds(*table, entries);
  }
}

/// Where a seek should lead, by the order of entries.
size_t LowerBound(const Entries& entries, const std::string& key, Sequence sequence) {
  return static_cast<size_t>(std::partition_point(entries.begin(), entries.end(),
                                                  [&](const OwnedEntry& entry) {
                                                    return ComesBefore(
                                                        entry.key, entry.sequence,
                                                        Entry{.key = key, .sequence = sequence});
                                                  }) -
                             entries.begin());
}

TEST_F(LsmTableTest, SeeksLeadWhereTheModelSays) {
  const uint64_t seed = 42;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  for (const Variant& variant : Variants()) {
    const Entries entries = RandomEntries(variant.style, &random);
    const auto table = Build(entries, variant.options);
    TableCursor cursor(table.get(), &cache());
    for (int i = 0; i < 500; ++i) {
      const OwnedEntry& near = entries[random.Below(entries.size())];
      std::string key = near.key;
      if (random.OneIn(3)) key.back() = static_cast<char>(key.back() + 1);
      if (random.OneIn(4) && key.size() < kKeyBytesMax) key.push_back('\0');
      if (random.OneIn(4)) key.pop_back();
      const Sequence sequence = random.OneIn(3) ? kSequenceMax
                                : random.OneIn(2)
                                    ? near.sequence
                                    : near.sequence + random.Below(3) - 1 + (near.sequence == 0);
      size_t at = LowerBound(entries, key, sequence);
      auto step = Drive(*table, cursor, [&](TableCursor& c) { return c.Seek(key, sequence); });
      ASSERT_EQ(step == CursorStep::kEntry, at < entries.size());
      if (step == CursorStep::kEntry) {
        ASSERT_EQ(OwnedEntry::Of(cursor.entry()), entries[at]);
        for (int k = 0; k < 5; ++k) {
          const bool forward = random.OneIn(2);
          step =
              Drive(*table, cursor, [&](TableCursor& c) { return forward ? c.Next() : c.Prev(); });
          if (forward ? at + 1 == entries.size() : at == 0) {
            ASSERT_EQ(step, CursorStep::kEnd);
            break;
          }
          at += forward ? 1 : -1;
          ASSERT_EQ(step, CursorStep::kEntry);
          ASSERT_EQ(OwnedEntry::Of(cursor.entry()), entries[at]);
        }
      }
      if (i % 20 == 0) {
        const auto from = static_cast<ptrdiff_t>(LowerBound(entries, key, kSequenceMax));
        ASSERT_EQ(ReadStream(*table, key), Entries(entries.begin() + from, entries.end()));
      }
      at = LowerBound(entries, key, sequence);
      const bool exact =
          at < entries.size() && entries[at].key == key && entries[at].sequence == sequence;
      step = Drive(*table, cursor, [&](TableCursor& c) { return c.SeekForPrev(key, sequence); });
      if (!exact && at == 0) {
        ASSERT_EQ(step, CursorStep::kEnd);
      } else {
        ASSERT_EQ(step, CursorStep::kEntry);
        ASSERT_EQ(OwnedEntry::Of(cursor.entry()), entries[exact ? at : at - 1]);
      }
      const auto found = Find(*table, key, sequence);
      at = LowerBound(entries, key, sequence);
      ASSERT_EQ(found.has_value(), at < entries.size() && entries[at].key == key);
      if (found) {
        ASSERT_EQ(*found, entries[at]);
      }
    }
  }
}

TEST_F(LsmTableTest, AStreamReadsLargeExtentsAndEachOfThemOnce) {
  const Entries entries = SmallPairs(200'000);
  const auto table = Build(entries);
  const auto before = storage().counts();
  EXPECT_EQ(ReadStream(*table), entries);
  const auto after = storage().counts();
  const uint64_t bytes = RoundUp(table->info().bytes, storage::kBlockBytes);
  EXPECT_EQ(after.bytes_read - before.bytes_read, bytes);
  EXPECT_EQ(after.reads - before.reads,
            (bytes + TableStream::kExtentBytes - 1) / TableStream::kExtentBytes);
  EXPECT_EQ(cache().metrics().bytes(), 0u);
}

TEST_F(LsmTableTest, AnAbsentKeyCostsNoLeaf) {
  const auto table = Build(SmallPairs(100'000));
  ASSERT_EQ(ReadForward(*table).size(), 100'000u);  // inner nodes are cached now
  uint64_t missed = 0, asked = 0;
  for (uint64_t i = 1; i < 300'000; i += 3, ++asked) {
    const uint64_t before = cache().metrics().kinds[0].hits;
    EXPECT_FALSE(Find(*table, Number(i)));
    missed += cache().metrics().kinds[0].hits - before;
  }
  std::printf("false positives: %.3f %%\n",
              100.0 * static_cast<double>(missed) / static_cast<double>(asked));
  EXPECT_LE(missed, asked / 80);
}

}  // namespace
}  // namespace farleaf::index::lsm
