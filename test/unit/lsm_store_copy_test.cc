// StoreCopy, call by call: what it takes, what it refuses, and what is on its storage then.
#include "index/lsm/store_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "index/lsm/named_segments.h"
#include "index/lsm/table_check.h"
#include "test/support/lsm_host.h"
#include "test/support/table_fixture.h"

namespace farleaf::index::lsm {
namespace {

using storage::kBlockBytes;
using storage::kSegmentBytes;
using More = StoreCopy::More;
using Phase = StoreCopy::Phase;

constexpr uint64_t kEpoch = 7;

/// A bit that comes as another one.
struct Flip {
  SegmentId segment = SegmentId::kNone;
  uint32_t offset = 0, bit = 0;
};

class StoreCopyTest : public ::testing::Test {
 protected:
  dsm::Worker& worker() { return fixture_.worker(); }
  void Open() {
    copy_ = nullptr;
    auto opened = worker().Run(StoreCopy::Open(worker(), &disk_));
    ASSERT_TRUE(opened.ok()) << opened.status();
    copy_ = std::move(*opened);
  }
  /// A copy of a store without tables; logs: recovery 1 and 2, values 3 and 4. Tables are built in numbers from 100.
  void Follow(CheckMemory* memory = nullptr) {
    Open();
    if (memory != nullptr) copy_->HoldTablesIn(memory);
    ASSERT_TRUE(worker().Run(copy_->BeginFill(worker())).ok());
    const Status installed = worker().Run(copy_->Install(worker(), EmptyState(), {}));
    ASSERT_TRUE(installed.ok()) << installed;
    for (int i = 1; i < 100; ++i) fixture_.NewSegment();
  }
  static StoreState EmptyState() {
    StoreState state;
    state.epoch = kEpoch;
    state.recovery_log = {SegmentId{1}, SegmentId{2}};
    state.value_log = {{SegmentId{3}, 0}, {SegmentId{4}, 0}};
    state.segments_end = 5;
    return state;
  }
  TableInfo NewTable(std::string prefix, size_t entries, Compression compression) {
    Random random(entries);
    Entries made;
    for (size_t i = 0; i < entries; ++i) {
      std::string value(100, '\0');
      for (char& c : value) c = static_cast<char>('a' + random.Below(20));
      made.push_back({.key = prefix + std::to_string(1'000'000 + i), .value = value});
    }
    auto info = fixture_.TryBuild(made, {.compression = compression, .epoch = kEpoch});
    EXPECT_TRUE(info.ok()) << info.status();
    return *info;
  }
  /// In chunks of 64 KiB.
  Status Ship(const TableInfo& table, size_t index, Flip flip = {}) {
    const SegmentId id = table.segments[index];
    std::vector<std::byte> bytes = fixture_.storage().bytes(id);
    bytes.resize(TableBytesIn(table, index));
    if (flip.segment == id) bytes[flip.offset] ^= std::byte{1} << flip.bit;
    constexpr size_t kChunk = 64 << 10;
    for (size_t at = 0; at < bytes.size(); at += kChunk) {
      const auto chunk =
          std::span<const std::byte>(bytes).subspan(at, std::min(kChunk, bytes.size() - at));
      Status sent =
          worker().Run(copy_->WriteTable(worker(), {id, static_cast<uint32_t>(at), chunk}));
      if (!sent.ok()) return sent;
    }
    return Status::Ok();
  }
  void ShipAll(const TableInfo& table) {
    for (size_t i = 0; i < table.segments.size(); ++i) {
      const Status sent = Ship(table, i);
      ASSERT_TRUE(sent.ok()) << sent;
    }
  }
  static StateEdit Adding(const TableInfo& table) {
    StateEdit edit;
    edit.added.push_back({{1, RunKind::kGrowing}, table, {}});
    edit.segments_end = storage::Number(table.segments.back()) + 1;
    return edit;
  }
  Status Commit(const StateEdit& edit) { return worker().Run(copy_->Commit(worker(), edit)); }
  std::vector<SegmentId> There() { return *disk_.List(); }
  std::span<std::byte> Buffer(char fill) {
    buffers_.push_back(std::make_unique<AlignedBytes>(kSegmentBytes));
    std::memset(buffers_.back()->data(), fill, kSegmentBytes);
    return buffers_.back()->span();
  }
  /// A head, and values of the buffer's segment behind it. Returns their end.
  static uint32_t FillLog(std::span<std::byte> buffer, LogKind log, SegmentId id, int records) {
    const uint32_t seed = SegmentSeed(kEpoch, id);
    EncodeLogHead({log, 1, 0}, buffer.data() + kLogHeaderBytes);
    SealLogRecord(seed, 0, LogRecordKind::kHead, buffer.data(), kLogHeadBytes - kLogHeaderBytes);
    uint32_t end = kLogHeadBytes;
    for (int i = 0; i < records; ++i) {
      constexpr uint32_t kPayload = 1001;
      std::memset(buffer.data() + end + kLogHeaderBytes, 'v', kPayload);
      SealLogRecord(seed, end, LogRecordKind::kValue, buffer.data() + end, kPayload);
      end += kLogHeaderBytes + kPayload;
    }
    return end;
  }

  TableFixture fixture_;
  test::MemoryStorage disk_;
  std::unique_ptr<StoreCopy> copy_;
  std::vector<std::unique_ptr<AlignedBytes>> buffers_;
};

TEST_F(StoreCopyTest, AFilledCopyIsTheStore) {
  test::LsmHost host({.store = test::LsmHost::SmallStore(), .flush_every_us = 500});
  dsm::FabricCounts counts;
  {
    auto writer = host.OpenWorker();
    OpContext op{*writer, counts};
    for (int i = 0; i < 20'000; ++i) {
      const std::string key = "key" + std::to_string(i * 7919 % 10'000);
      const std::string value(i % 5 == 0 ? 1000 : 50, static_cast<char>('a' + i % 26));
      ASSERT_TRUE(writer->Run(host.store().BlindPut(op, key, value)).ok());
    }
  }
  host.Close();
  auto manifest = worker().Run(Manifest::Open(worker(), &host.storage()));
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const StoreState state = (*manifest)->state();
  ASSERT_FALSE(state.runs().empty());

  Open();
  EXPECT_EQ(copy_->phase(), Phase::kNone);
  ASSERT_TRUE(worker().Run(copy_->BeginFill(worker())).ok());
  Status early = worker().Run(copy_->Install(worker(), state, {}));
  EXPECT_EQ(early.code(), StatusCode::kNotFound) << early;
  std::vector<SegmentId> existing = *host.storage().List();
  for (const SegmentId id : existing) {
    const auto bytes = std::span<const std::byte>(host.storage().bytes(id));
    for (int twice = 0; twice < 2; ++twice) {  // the second time from the front
      const auto half = bytes.first(kSegmentBytes / 2);
      ASSERT_TRUE(worker().Run(copy_->WriteSegment(worker(), {id, 0, half}, More::kComes)).ok());
      EXPECT_FALSE(copy_->Inventory().contains(id));
    }
    const auto rest = bytes.subspan(kSegmentBytes / 2);
    ASSERT_TRUE(worker()
                    .Run(copy_->WriteSegment(worker(), {id, kSegmentBytes / 2, rest}, More::kNone))
                    .ok());
    EXPECT_TRUE(copy_->Inventory().contains(id));
  }
  const SegmentId junk{1'000'000};
  ASSERT_TRUE(worker()
                  .Run(copy_->WriteSegment(
                      worker(), {junk, 0, std::span<const std::byte>(Buffer(1)).first(kBlockBytes)},
                      More::kNone))
                  .ok());
  EXPECT_EQ(worker().Run(Manifest::Open(worker(), &disk_)).status().code(),
            StatusCode::kCorruption);
  const Status installed = worker().Run(copy_->Install(worker(), state, {}));
  ASSERT_TRUE(installed.ok()) << installed;
  const auto unnamed = FindUnnamed(state, &host.storage(), existing);
  ASSERT_TRUE(unnamed.ok()) << unnamed.status();
  std::erase_if(existing, [&](SegmentId id) { return std::ranges::binary_search(*unnamed, id); });
  EXPECT_EQ(There(), existing);  // not the junk
  copy_ = nullptr;

  auto copied = worker().Run(Manifest::Open(worker(), &disk_));
  ASSERT_TRUE(copied.ok()) << copied.status();
  EXPECT_EQ((*copied)->state().AsEdit().Encode(), state.AsEdit().Encode());
  EXPECT_EQ((*copied)->epoch(), state.epoch);
  for (const auto& [place, run] : state.runs()) {
    for (const auto& each : run->tables) {
      for (size_t i = 0; i < each.table.segments.size(); ++i) {
        const SegmentId id = each.table.segments[i];
        EXPECT_EQ(std::memcmp(disk_.bytes(id).data(), host.storage().bytes(id).data(),
                              TableBytesIn(each.table, i)),
                  0);
      }
    }
  }
  ASSERT_TRUE(host.TryOpen().ok());
  auto reader = host.OpenWorker();
  MonotonicClock clock;
  auto store = reader->Run(LsmStore::Open(*reader, {&disk_, &host.epochs(), &clock, 1},
                                          test::LsmHost::SmallStore(), LsmStore::IfMissing::kFail));
  ASSERT_TRUE(store.ok()) << store.status();
  OpContext op{*reader, counts};
  std::vector<KeyValue> ours, theirs;
  ASSERT_TRUE(reader->Run((*store)->Scan(op, {.start = {}}, &ours)).ok());
  ASSERT_TRUE(reader->Run(host.store().Scan(op, {.start = {}}, &theirs)).ok());
  EXPECT_EQ(ours.size(), 10'000u);
  EXPECT_TRUE(ours == theirs);
  ASSERT_TRUE(reader->Run((*store)->Close(*reader)).ok());
}

TEST_F(StoreCopyTest, EachBitThatIsAnotherOneIsRefused) {
  Follow();
  Random random(3);
  int flips = 0;
  for (const Compression compression : {Compression::kNone, Compression::kLz4}) {
    const TableInfo table =
        NewTable(compression == Compression::kNone ? "a" : "b", 40'000, compression);
    ASSERT_GT(table.segments.size(), 1u);
    const StateEdit edit = Adding(table);
    for (size_t index = 0; index < table.segments.size(); ++index) {
      for (uint32_t at = 0; at < TableBytesIn(table, index); at += 64 << 10) {
        ShipAll(table);
        const uint32_t bytes = std::min<uint32_t>(64 << 10, TableBytesIn(table, index) - at);
        const Flip flip{table.segments[index], at + static_cast<uint32_t>(random.Below(bytes)),
                        static_cast<uint32_t>(random.Below(8))};
        ASSERT_TRUE(Ship(table, index, flip).ok());
        const Status refused = Commit(edit);
        ASSERT_EQ(refused.code(), StatusCode::kCorruption) << refused << " " << flip.offset;
        EXPECT_NE(refused.message().find(disk_.NameOf(flip.segment)), std::string::npos) << refused;
        EXPECT_EQ(copy_->Missing(edit), std::vector<SegmentId>{flip.segment});
        EXPECT_EQ(Commit(edit).code(), StatusCode::kNotFound);
        ++flips;
      }
    }
    EXPECT_TRUE(copy_->state().runs().empty() || compression != Compression::kNone);
    ShipAll(table);
    const Status committed = Commit(edit);
    ASSERT_TRUE(committed.ok()) << committed;
    EXPECT_TRUE(copy_->Inventory().contains(table.id()));
  }
  EXPECT_EQ(copy_->metrics().tables_verified, 2u);
  EXPECT_EQ(copy_->metrics().segments_pending, 0u);
  std::printf("%d flips; %lu bytes verified in %lu us\n", flips, copy_->metrics().verified_bytes,
              copy_->metrics().verifying_ns / 1000);
}

TEST_F(StoreCopyTest, ATableIsCheckedInMemoryAsFarAsThereIsRoom) {
  CheckMemory memory(1);
  Follow(&memory);
  const TableInfo table = NewTable("a", 40'000, Compression::kNone);
  ASSERT_GT(table.segments.size(), 1u);
  const StateEdit edit = Adding(table);
  for (size_t index = 0; index < table.segments.size(); ++index) {
    ShipAll(table);
    EXPECT_EQ(memory.left(), 0u);
    ASSERT_TRUE(Ship(table, index, {table.segments[index], 70'000, 3}).ok());
    EXPECT_EQ(Commit(edit).code(), StatusCode::kCorruption);
    EXPECT_EQ(copy_->Missing(edit), std::vector<SegmentId>{table.segments[index]});
  }
  const uint64_t before = copy_->metrics().read_back_bytes;
  ShipAll(table);
  const Status committed = Commit(edit);
  ASSERT_TRUE(committed.ok()) << committed;
  uint64_t bytes = 0;
  for (size_t i = 0; i < table.segments.size(); ++i) bytes += TableBytesIn(table, i);
  // One segment was held; which one, is told by whoever came when there was room.
  const uint64_t read_back = copy_->metrics().read_back_bytes - before;
  EXPECT_LT(read_back, bytes);
  EXPECT_GT(read_back, 0u);
  EXPECT_EQ(memory.left(), 1u);
}

TEST_F(StoreCopyTest, WithRoomForAllNothingIsReadBack) {
  CheckMemory memory(8);
  Follow(&memory);
  const TableInfo table = NewTable("a", 40'000, Compression::kLz4);
  ShipAll(table);
  EXPECT_EQ(memory.left(), 8 - table.segments.size());
  // What the device makes of it later is not this check's business: reads find it.
  const Status committed = Commit(Adding(table));
  ASSERT_TRUE(committed.ok()) << committed;
  EXPECT_EQ(copy_->metrics().read_back_bytes, 0u);
  EXPECT_GT(copy_->metrics().verified_bytes, 0u);
  EXPECT_EQ(memory.left(), 8u);
  // Of a table that no edit names, buffers come back with the copy's next filling, or its end.
  ShipAll(NewTable("b", 1'000, Compression::kNone));
  EXPECT_EQ(memory.left(), 7u);
  ASSERT_TRUE(worker().Run(copy_->BeginFill(worker())).ok());
  EXPECT_EQ(memory.left(), 8u);
}

TEST_F(StoreCopyTest, WhatIsDroppedOfTablesGoesUnlessAnEditHasNamedIt) {
  CheckMemory memory(8);
  Follow(&memory);
  const TableInfo named = NewTable("a", 1'000, Compression::kNone);
  ShipAll(named);
  ASSERT_TRUE(Commit(Adding(named)).ok());
  const std::vector<SegmentId> before = There();
  const TableInfo given_up = NewTable("b", 40'000, Compression::kNone);
  ASSERT_TRUE(Ship(given_up, 0).ok());
  ASSERT_TRUE(Ship(given_up, 1).ok());
  EXPECT_EQ(copy_->metrics().segments_pending, 2u);
  EXPECT_EQ(memory.left(), 6u);
  std::vector<SegmentId> dropped = given_up.segments;  // with some that were not shipped
  dropped.insert(dropped.end(), {named.id(), SegmentId{1}, SegmentId{3}, SegmentId{999}});
  copy_->DropTables(dropped);
  EXPECT_EQ(copy_->metrics().segments_pending, 0u);
  EXPECT_EQ(memory.left(), 8u);
  EXPECT_EQ(There(), before);
  EXPECT_TRUE(copy_->Inventory().contains(named.id()));
}

TEST_F(StoreCopyTest, WhatIsNoChunkOfATableTakesNoMemory) {
  CheckMemory memory(1);
  Follow(&memory);
  const std::vector<std::byte> bytes(3 * kBlockBytes);
  const SegmentId id{200};
  const auto write = [&](SegmentId segment, uint32_t offset, size_t size) {
    return worker().Run(copy_->WriteTable(
        worker(), {segment, offset, std::span<const std::byte>(bytes).first(size)}));
  };
  EXPECT_EQ(write(SegmentId::kNone, 0, kBlockBytes).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(write(id, 100, kBlockBytes).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(write(id, 0, 100).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(write(id, kSegmentBytes - kBlockBytes, 2 * kBlockBytes).code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(memory.left(), 1u);
  EXPECT_EQ(copy_->metrics().segments_pending, 0u);
}

TEST_F(StoreCopyTest, BlocksThatAreZerosOrOfAnotherPlaceAreNoTable) {
  Follow();
  const TableInfo table = NewTable("a", 20'000, Compression::kNone);
  const StateEdit edit = Adding(table);
  const std::vector<std::byte> good = fixture_.storage().bytes(table.id());
  for (const uint32_t at : {uint32_t{0}, 10 * kBlockBytes, table.root.offset() / 4096 * 4096}) {
    auto& bytes = fixture_.storage().bytes(
        table.segments[at == 0 || at == 10 * kBlockBytes ? 0 : table.root.segment_index()]);
    const auto before = bytes;
    std::memset(bytes.data() + at, 0, kBlockBytes);
    ShipAll(table);
    EXPECT_EQ(Commit(edit).code(), StatusCode::kCorruption) << at;
    bytes = before;
  }
  auto& bytes = fixture_.storage().bytes(table.id());
  std::memcpy(bytes.data(), good.data() + 5 * kBlockBytes, kBlockBytes);
  ShipAll(table);
  EXPECT_EQ(Commit(edit).code(), StatusCode::kCorruption);
  bytes = good;
  StateEdit other = edit;  // it says something else of the same bytes
  ++other.added[0].table.entries;
  ShipAll(table);
  EXPECT_EQ(Commit(other).code(), StatusCode::kCorruption);
  ShipAll(table);
  EXPECT_TRUE(Commit(edit).ok());
}

TEST_F(StoreCopyTest, WhatIsMissingIsNamedAndSentAgain) {
  Follow();
  const TableInfo table = NewTable("a", 40'000, Compression::kNone);
  const StateEdit edit = Adding(table);
  EXPECT_EQ(copy_->Missing(edit), table.segments);
  ASSERT_TRUE(Ship(table, 0).ok());
  // A chunk in front was lost.
  Status hole = worker().Run(copy_->WriteTable(
      worker(),
      {table.segments[1], kBlockBytes, std::span<const std::byte>(Buffer(0)).first(kBlockBytes)}));
  EXPECT_EQ(hole.code(), StatusCode::kNotFound) << hole;
  EXPECT_EQ(copy_->Missing(edit),
            std::vector<SegmentId>(table.segments.begin() + 1, table.segments.end()));
  const Status refused = Commit(edit);
  EXPECT_EQ(refused.code(), StatusCode::kNotFound);
  EXPECT_NE(refused.message().find(disk_.NameOf(table.segments[1])), std::string::npos) << refused;
  ShipAll(table);
  EXPECT_TRUE(Commit(edit).ok());
  EXPECT_TRUE(copy_->Missing(edit).empty());
  EXPECT_EQ(Ship(table, 0).code(), StatusCode::kInvalidArgument);  // it is the state's now
}

TEST_F(StoreCopyTest, WhatAnEditDropsGoesAndWhatItMovesStays) {
  Follow();
  const TableInfo one = NewTable("a", 1000, Compression::kNone);
  const TableInfo two = NewTable("b", 1000, Compression::kNone);
  for (const TableInfo& table : {one, two}) {
    ShipAll(table);
    ASSERT_TRUE(Commit(Adding(table)).ok());
  }
  StateEdit edit;
  edit.sunk = {1};
  edit.dropped = {{{1, RunKind::kSinking}, one.id()}, {{1, RunKind::kSinking}, two.id()}};
  edit.added.push_back({{2, RunKind::kGrowing}, two, {}});
  edit.values_dropped = {SegmentId{3}};
  EXPECT_TRUE(copy_->Missing(edit).empty());
  const Status committed = Commit(edit);
  ASSERT_TRUE(committed.ok()) << committed;
  EXPECT_EQ(There(), two.segments);
  EXPECT_EQ(Commit(edit).code(), StatusCode::kCorruption);  // it does not fit any more
}

TEST_F(StoreCopyTest, ASealedSegmentEndsWithZerosAndATailWithTheLastWholeRecord) {
  Follow();
  const SegmentId full{3}, tail{4};
  for (const SegmentId id : {full, tail}) {
    ASSERT_TRUE(worker().Run(copy_->OpenLog(worker(), LogKind::kValues, id, Buffer(0x33))).ok());
  }
  const uint32_t used = FillLog(buffers_[0]->span(), LogKind::kValues, full, 100);
  const uint32_t end = FillLog(buffers_[1]->span(), LogKind::kValues, tail, 9);
  // Of the tail a part is synced, in the middle of a block; then more comes.
  ASSERT_TRUE(worker().Run(copy_->Sync(worker(), SyncReach::kValues, {{tail, 5000}})).ok());
  ASSERT_TRUE(worker().Run(copy_->Seal(worker(), full, used)).ok());
  EXPECT_TRUE(copy_->Inventory().contains(full));
  EXPECT_FALSE(copy_->Inventory().contains(tail));
  ASSERT_TRUE(worker().Run(copy_->FinishTails(worker())).ok());
  const auto expect = [&](SegmentId id, size_t buffer, uint32_t at, uint32_t zeros_end) {
    const auto& bytes = disk_.bytes(id);
    EXPECT_EQ(std::memcmp(bytes.data(), buffers_[buffer]->data(), at), 0);
    for (uint32_t i = at; i < zeros_end; ++i) ASSERT_EQ(bytes[i], std::byte{0}) << i;
  };
  expect(full, 0, used, static_cast<uint32_t>(RoundUp(used, kBlockBytes)));
  expect(tail, 1, end, kSegmentBytes);
}

TEST_F(StoreCopyTest, AFailedSyncOfASealedSegmentEndsTheCopyUntilItIsFilled) {
  Follow();
  const SegmentId full{3}, open{4};
  for (const SegmentId id : {full, open}) {
    ASSERT_TRUE(worker().Run(copy_->OpenLog(worker(), LogKind::kValues, id, Buffer(0))).ok());
  }
  const uint32_t used = FillLog(buffers_[0]->span(), LogKind::kValues, full, 10);
  const uint32_t end = FillLog(buffers_[1]->span(), LogKind::kValues, open, 10);
  SegmentId failing = open;
  disk_.fail = [&failing](const storage::Io& io) {
    const bool fails = io.kind == storage::IoKind::kSync && io.segment == failing;
    return fails ? Status::IoError("no") : Status::Ok();
  };
  // An open one is written again.
  EXPECT_FALSE(worker().Run(copy_->Sync(worker(), SyncReach::kBoth, {{open, end}})).ok());
  failing = SegmentId::kNone;
  std::memset(disk_.bytes(open).data(), 0, end);  // the device has lost it
  EXPECT_TRUE(worker().Run(copy_->Sync(worker(), SyncReach::kBoth, {{open, end}})).ok());
  EXPECT_EQ(std::memcmp(disk_.bytes(open).data(), buffers_[1]->data(), end), 0);
  ASSERT_TRUE(worker().Run(copy_->Seal(worker(), full, used)).ok());
  failing = full;
  const Status failed = worker().Run(copy_->Sync(worker(), SyncReach::kBoth, {}));
  EXPECT_NE(failed.message().find(disk_.NameOf(full)), std::string::npos) << failed;
  failing = SegmentId::kNone;
  EXPECT_FALSE(worker().Run(copy_->Sync(worker(), SyncReach::kBoth, {})).ok());
  EXPECT_FALSE(Commit({}).ok());
  EXPECT_FALSE(worker().Run(copy_->FinishTails(worker())).ok());
  ASSERT_TRUE(worker().Run(copy_->BeginFill(worker())).ok());
  EXPECT_TRUE(copy_->Inventory().empty());
  EXPECT_TRUE(There().empty());
  EXPECT_TRUE(worker().Run(copy_->Install(worker(), EmptyState(), {})).ok());
}

TEST_F(StoreCopyTest, LogSegmentsAreInTheManifestBeforeTheyAreMade) {
  Follow();
  const auto open = [&](LogKind log, uint64_t id) {
    return worker().Run(copy_->OpenLog(worker(), log, SegmentId{id}, Buffer(0))).code();
  };
  EXPECT_EQ(open(LogKind::kValues, 9), StatusCode::kInvalidArgument);
  EXPECT_EQ(open(LogKind::kValues, 1), StatusCode::kInvalidArgument);  // the other log's
  EXPECT_TRUE(There().empty());
  StateEdit grant;
  grant.values_granted = {SegmentId{9}};
  grant.segments_end = 10;
  ASSERT_TRUE(Commit(grant).ok());
  EXPECT_EQ(open(LogKind::kValues, 9), StatusCode::kOk);
  EXPECT_EQ(open(LogKind::kValues, 9), StatusCode::kInvalidArgument);
}

TEST_F(StoreCopyTest, WhatAnEarlierLifeLeftIsClaimedByItsManifestAlone) {
  Follow();
  const TableInfo table = NewTable("a", 1000, Compression::kNone);
  ShipAll(table);
  ASSERT_TRUE(Commit(Adding(table)).ok());
  const TableInfo unnamed = NewTable("b", 1000, Compression::kNone);
  ShipAll(unnamed);
  ASSERT_TRUE(
      worker().Run(copy_->OpenLog(worker(), LogKind::kValues, SegmentId{3}, Buffer(0))).ok());
  ASSERT_TRUE(worker().Run(copy_->Seal(worker(), SegmentId{3}, kBlockBytes)).ok());
  Open();
  EXPECT_EQ(copy_->phase(), Phase::kLeft);
  EXPECT_EQ(copy_->Inventory(), std::set<SegmentId>(table.segments.begin(), table.segments.end()));
  ASSERT_TRUE(worker().Run(copy_->BeginFill(worker())).ok());
  EXPECT_EQ(There(), table.segments);
  // Who is cut off now finds the same, and it is not written to.
  Open();
  EXPECT_EQ(copy_->phase(), Phase::kNone);
  EXPECT_EQ(copy_->Inventory().size(), table.segments.size());
  EXPECT_EQ(worker().Run(copy_->FinishTails(worker())).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(worker().Run(copy_->BeginFill(worker())).ok());
  const auto bytes = std::span<const std::byte>(Buffer(0)).first(kBlockBytes);
  Status claimed = worker().Run(copy_->WriteSegment(worker(), {table.id(), 0, bytes}, More::kNone));
  EXPECT_EQ(claimed.code(), StatusCode::kInvalidArgument);
}

TEST_F(StoreCopyTest, AnIncompleteThatComesBackSaysNothing) {
  Open();
  ASSERT_TRUE(worker().Run(copy_->BeginFill(worker())).ok());
  const auto marked = worker().Run(disk_.ReadFile(worker(), std::string(kIncompleteFile)));
  ASSERT_TRUE(worker().Run(copy_->Install(worker(), EmptyState(), {})).ok());
  const std::string name(kIncompleteFile);
  ASSERT_TRUE(worker().Run(disk_.ReplaceFile(worker(), name, *marked)).ok());
  EXPECT_TRUE(worker().Run(Manifest::Open(worker(), &disk_)).ok());
  Open();
  EXPECT_EQ(copy_->phase(), Phase::kLeft);
  ASSERT_TRUE(worker().Run(disk_.ReplaceFile(worker(), name, "")).ok());  // a checkpoint's
  EXPECT_FALSE(worker().Run(Manifest::Open(worker(), &disk_)).ok());
}

TEST_F(StoreCopyTest, AFillingThatIsCutOffGoesOnWhereItWas) {
  const auto bytes = std::span<const std::byte>(Buffer('x')).first(kBlockBytes);
  const auto write = [&](uint64_t number) {
    return worker().Run(copy_->WriteSegment(worker(), {SegmentId{number}, 0, bytes}, More::kNone));
  };
  Open();
  ASSERT_TRUE(worker().Run(copy_->BeginFill(worker())).ok());
  constexpr size_t kSent = StoreCopy::kNotedAtOnce + 3;
  for (uint64_t i = 1; i <= kSent; ++i) ASSERT_TRUE(write(i).ok());
  const std::string name(kIncompleteFile);
  const auto noted = worker().Run(disk_.ReadFile(worker(), name));
  for (int cut = 0; cut < 2; ++cut) {  // the second time ahead of any new one
    Open();
    EXPECT_EQ(copy_->phase(), Phase::kNone);
    EXPECT_EQ(copy_->Inventory().size(), StoreCopy::kNotedAtOnce);
    EXPECT_FALSE(copy_->Inventory().contains(SegmentId{kSent})) << "nobody knows of the last ones";
    ASSERT_TRUE(worker().Run(copy_->BeginFill(worker())).ok());
    EXPECT_EQ(There().size(), StoreCopy::kNotedAtOnce);
  }
  // What is sent once more is noted no longer: a crash may find half of it.
  ASSERT_TRUE(
      worker().Run(copy_->WriteSegment(worker(), {SegmentId{1}, 0, bytes}, More::kComes)).ok());
  Open();
  EXPECT_EQ(copy_->Inventory().size(), StoreCopy::kNotedAtOnce - 1);
  EXPECT_FALSE(copy_->Inventory().contains(SegmentId{1}));
  // A file that is not as it was written says of no segment that it is whole.
  std::string damaged = *noted;
  damaged[damaged.find("whole: ") + 7] ^= 1;
  ASSERT_TRUE(worker().Run(disk_.ReplaceFile(worker(), name, damaged)).ok());
  Open();
  EXPECT_TRUE(copy_->Inventory().empty());
  // Nor does one that a crash has brought back behind the Install.
  ASSERT_TRUE(worker().Run(copy_->BeginFill(worker())).ok());
  ASSERT_TRUE(worker().Run(copy_->Install(worker(), EmptyState(), {})).ok());
  ASSERT_TRUE(worker().Run(disk_.ReplaceFile(worker(), name, *noted)).ok());
  Open();
  EXPECT_EQ(copy_->phase(), Phase::kLeft);
  EXPECT_TRUE(copy_->Inventory().empty());
}

TEST_F(StoreCopyTest, WhatWasThereIsNotReadBehindTheEndOfASegmentThatIsSent) {
  Open();
  ASSERT_TRUE(worker().Run(copy_->BeginFill(worker())).ok());
  const SegmentId id{1};
  const auto stale = Buffer(0);
  FillLog(stale, LogKind::kRecovery, id, 20);
  const std::span<const std::byte> bytes(stale);
  ASSERT_TRUE(worker().Run(copy_->WriteSegment(worker(), {id, 0, bytes}, More::kNone)).ok());
  const uint64_t before = disk_.counts().bytes_written;
  ASSERT_TRUE(
      worker()
          .Run(copy_->WriteSegment(worker(), {id, 0, bytes.first(kBlockBytes)}, More::kNone))
          .ok());
  EXPECT_EQ(disk_.counts().bytes_written - before, kSegmentBytes);  // whatever a new file holds
  const auto& there = disk_.bytes(id);
  for (uint32_t i = kBlockBytes; i < kSegmentBytes; ++i) ASSERT_EQ(there[i], std::byte{0}) << i;
}

TEST_F(StoreCopyTest, NumbersAreReservedWhileThereAreSome) {
  Follow();
  ASSERT_TRUE(worker().Run(copy_->ReserveNumbers(worker(), 1 << 20)).ok());
  EXPECT_EQ(copy_->state().segments_end, 5u + (1 << 20));
  Status none = worker().Run(copy_->ReserveNumbers(worker(), uint64_t{1} << 40));
  EXPECT_EQ(none.code(), StatusCode::kResourceExhausted) << none;
  EXPECT_EQ(copy_->state().segments_end, 5u + (1 << 20));
}

TEST_F(StoreCopyTest, SegmentsWithoutAManifestAreNoCopy) {
  ASSERT_TRUE(worker().Run(disk_.Create(worker(), SegmentId{1}, {})).ok());
  auto opened = worker().Run(StoreCopy::Open(worker(), &disk_));
  EXPECT_EQ(opened.status().code(), StatusCode::kCorruption) << opened.status();
}

}  // namespace
}  // namespace farleaf::index::lsm
