// Tables whose bytes are spoiled: every answer is right, or Corruption that names segment and offset.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "index/lsm/block_fetch.h"
#include "test/support/table_fixture.h"
#include "test/support/test_scale.h"

namespace farleaf::index::lsm {
namespace {

struct LsmTableDamageTest : ::testing::Test, TableFixture {
  /// A table of a few leaves of all kinds, its one segment, and how much of that it uses.
  void BuildSmall(Compression compression) {
    Random random(7);
    entries = RandomEntries({.count = 60,
                             .key_bytes_max = 12,
                             .value_bytes_max = 300,
                             .versions_max = 3,
                             .pointer_percent = 15,
                             .deleted_percent = 10,
                             .expiring_percent = 10},
                            &random);
    for (OwnedEntry& entry : entries) {  // something to compress
      for (size_t i = 0; i < entry.value.size(); ++i) entry.value[i] = static_cast<char>(i % 7);
    }
    table = Build(entries, {.compression = compression});
    ASSERT_EQ(table->info().segments.size(), 1u);
  }
  std::vector<std::byte>& segment() { return storage().bytes(table->info().segments.front()); }

  /// All that can be asked, of a cold cache. Returns how many answers were Corruption.
  uint64_t ExpectRightOrCorruption() {
    uint64_t corrupt = 0;
    const auto expect_corruption = [&](const Status& status) {
      ASSERT_EQ(status.code(), StatusCode::kCorruption) << status;
      ASSERT_NE(status.message().find(storage().NameOf(table->info().id())), std::string_view::npos)
          << status;
      ASSERT_NE(status.message().find("offset"), std::string_view::npos) << status;
      ++corrupt;
    };
    NewCache();
    for (const OwnedEntry& entry : entries) {
      Status status;
      const auto found = Find(*table, entry.key, entry.sequence, &status);
      if (status.ok()) {
        EXPECT_EQ(found, entry);
      } else {
        expect_corruption(status);
      }
    }
    Status status;
    EXPECT_FALSE(Find(*table, "absent key", kSequenceMax, &status));
    if (!status.ok()) expect_corruption(status);
    for (const Entries& read :
         {ReadForward(*table, &status), ReadStream(*table, {}, 4096, &status)}) {
      if (read != entries) {
        EXPECT_LT(read.size(), entries.size());
        EXPECT_TRUE(std::equal(read.begin(), read.end(), entries.begin()));
        expect_corruption(status);
      }
    }
    return corrupt;
  }

  Entries entries;
  std::unique_ptr<Table> table;
};

TEST_F(LsmTableDamageTest, EveryFlippedBitIsFoundOrHarmless) {
  for (const Compression compression :
       {Compression::kNone, Compression::kLz4, Compression::kZstd}) {
    BuildSmall(compression);
    ASSERT_EQ(ExpectRightOrCorruption(), 0u);
    const uint64_t step =
        test::Amount{197, 37, 1};  // a prime, so that all bits of a byte have their turn
    uint64_t found = 0, flipped = 0;
    for (uint64_t bit = 0; bit < table->info().bytes * 8; bit += step) {
      segment()[bit / 8] ^= std::byte{1} << (bit % 8);
      found += ExpectRightOrCorruption() > 0;
      ++flipped;
      segment()[bit / 8] ^= std::byte{1} << (bit % 8);
      ASSERT_FALSE(HasFailure()) << "bit " << bit;
    }
    // What is not found is padding.
    EXPECT_GT(found, flipped / 3);
  }
}

TEST_F(LsmTableDamageTest, PagesThatWereNotWrittenAreFound) {
  BuildSmall(Compression::kNone);
  for (size_t page = 0; page < table->info().bytes / storage::kBlockBytes; ++page) {
    const auto begin = segment().begin() + static_cast<ptrdiff_t>(page * storage::kBlockBytes);
    const std::vector<std::byte> kept(begin, begin + storage::kBlockBytes);
    std::fill_n(begin, storage::kBlockBytes, std::byte{0});
    EXPECT_GT(ExpectRightOrCorruption(), 0u) << page;
    std::copy(kept.begin(), kept.end(), begin);
  }
}

TEST_F(LsmTableDamageTest, ABlockInAnothersPlaceIsFound) {
  BuildSmall(Compression::kNone);
  // Two leaves of a page each change places; then the leaf of another table stands here.
  std::vector<std::byte>& bytes = segment();
  std::swap_ranges(bytes.begin(), bytes.begin() + 4096, bytes.begin() + 4096);
  EXPECT_GT(ExpectRightOrCorruption(), 0u);
  std::swap_ranges(bytes.begin(), bytes.begin() + 4096, bytes.begin() + 4096);
  ASSERT_EQ(ExpectRightOrCorruption(), 0u);
  const auto twin = Build(entries);
  const std::vector<std::byte>& others = storage().bytes(twin->info().id());
  std::copy_n(others.begin(), 4096, bytes.begin());
  EXPECT_GT(ExpectRightOrCorruption(), 0u);
}

TEST_F(LsmTableDamageTest, BlocksMovedToOtherSegmentsStayGood) {
  Random random(3);
  const Entries many =
      RandomEntries({.count = 60'000, .key_bytes_min = 8, .value_bytes_max = 200}, &random);
  const auto moved_from = Build(many);
  TableInfo info = moved_from->info();
  ASSERT_GT(info.segments.size(), 2u);
  for (SegmentId& id : info.segments) {
    const SegmentId to = NewSegment();
    ASSERT_TRUE(worker().Run(storage().Create(worker(), to, index::storage::Making{})).ok());
    storage().bytes(to) = storage().bytes(id);
    ASSERT_TRUE(storage().Remove(id).ok());
    id = to;
  }
  const Table moved(&storage(), info);
  EXPECT_EQ(ReadForward(moved), many);
  EXPECT_EQ(ReadStream(moved), many);
}

TEST_F(LsmTableDamageTest, AReadThatFailsSaysSo) {
  BuildSmall(Compression::kNone);
  storage().fail = [](const storage::Io& io) {
    return io.kind == storage::IoKind::kRead ? Status::IoError("bad medium") : Status::Ok();
  };
  Status status;
  EXPECT_FALSE(Find(*table, entries.front().key, kSequenceMax, &status));
  EXPECT_EQ(status.code(), StatusCode::kIoError) << status;
  EXPECT_EQ(ReadStream(*table, {}, 4096, &status), Entries());
  EXPECT_EQ(status.code(), StatusCode::kIoError) << status;
}

TEST_F(LsmTableDamageTest, AWriteThatFailsFailsTheTable) {
  Random random(5);
  const Entries many =
      RandomEntries({.count = 60'000, .key_bytes_min = 8, .value_bytes_max = 100}, &random);
  for (const storage::IoKind kind : {storage::IoKind::kWrite, storage::IoKind::kSync}) {
    storage().fail = [kind](const storage::Io& io) {
      return io.kind == kind ? Status::ResourceExhausted("full") : Status::Ok();
    };
    EXPECT_EQ(TryBuild(many).status().code(), StatusCode::kResourceExhausted);
  }
}

TEST_F(LsmTableDamageTest, DescriptionsThatAreCutOrChangedAreRefusedOrRead) {
  BuildSmall(Compression::kNone);
  TableInfo info = table->info();
  const std::string encoded = info.Encode(), footer = EncodeFooter(&info);
  for (size_t bytes = 0; bytes < encoded.size(); ++bytes) {
    EXPECT_EQ(TableInfo::Decode(AsBytes(encoded.substr(0, bytes))).status().code(),
              StatusCode::kCorruption)
        << bytes;
  }
  for (size_t bit = 0; bit < encoded.size() * 8; ++bit) {
    std::string changed = encoded;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    const auto decoded = TableInfo::Decode(AsBytes(changed));
    if (decoded.ok()) {
      EXPECT_EQ(decoded->Encode(), changed);
    }
    changed = footer;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_EQ(DecodeFooter(AsBytes(changed)).status().code(), StatusCode::kCorruption) << bit;
  }
}

dsm::Task<void> FetchAndCount(dsm::Worker& worker, TableFixture& fixture, const Table& table,
                              uint64_t* done) {
  Result<BlockCache::Handle> block =
      co_await table.Fetch(worker, fixture.cache(), {table.info().root, table.info().root_level});
  EXPECT_TRUE(block.ok()) << block.status();
  ++*done;
}

TEST_F(LsmTableDamageTest, FetchesOfOneBlockShareOneRead) {
  BuildSmall(Compression::kNone);
  storage().delay_ns = 200'000;
  const uint64_t before = storage().counts().reads;
  uint64_t done = 0;
  for (int i = 0; i < 20; ++i) worker().Spawn(FetchAndCount(worker(), *this, *table, &done));
  worker().RunUntilIdle();
  EXPECT_EQ(done, 20u);
  EXPECT_EQ(storage().counts().reads - before, 1u);
}

TEST_F(LsmTableDamageTest, LeavesThatComeNextAreFetchedByOneRun) {
  Random random(11);
  const Entries many =
      RandomEntries({.count = 3000, .key_bytes_min = 8, .value_bytes_max = 100}, &random);
  const auto big = Build(many);
  TableCursor cursor(big.get(), &cache());
  std::vector<MissingBlock> next;
  for (const auto direction :
       {TableCursor::Direction::kForward, TableCursor::Direction::kBackward}) {
    const bool forward = direction == TableCursor::Direction::kForward;
    NewCache();
    cursor = TableCursor(big.get(), &cache());
    ASSERT_EQ(Drive(*big, cursor,
                    [&](TableCursor& at) { return forward ? at.SeekToFirst() : at.SeekToLast(); }),
              CursorStep::kEntry);
    cursor.Upcoming(direction, 8, &next);
    ASSERT_EQ(next.size(), 8u);
    std::vector<BlockCache::Handle> pins;
    ASSERT_TRUE(worker().Run(big->FetchAll(worker(), cache(), next, pins)).ok());
    EXPECT_EQ(pins.size(), 8u);
    for (size_t leaves = 0; leaves <= 8;) {
      const CursorStep step = forward ? cursor.Next() : cursor.Prev();
      if (step == CursorStep::kMissing) {
        EXPECT_EQ(cursor.missing().level, 0);
        cursor.Upcoming(direction, 1, &next);
        EXPECT_EQ(next.front().place, cursor.missing().place);
        break;
      }
      ASSERT_EQ(step, CursorStep::kEntry);
    }
    const uint64_t hits = cache().metrics().kinds[0].hits;
    EXPECT_EQ(hits, 9u);  // with the first one, which was fetched by itself
    pins.clear();
    cursor = TableCursor(big.get(), &cache());
  }
}

}  // namespace
}  // namespace farleaf::index::lsm
