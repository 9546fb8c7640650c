// Tools for a store that nobody serves, on real directories: what they see of one that was closed, or that crashed; damage of every kind;
// and that they change nothing.
#include <algorithm>
#include <fstream>

#include "dsm/base/bytes.h"
#include "dsm/base/crc32c.h"
#include "test/support/closed_store_fixture.h"

namespace farleaf::index::lsm {
namespace {

TEST_F(ClosedStoreTest, AClosedAndACrashedStoreAreSoundAndShowWhatTheyHold) {
  for (const End end : {End::kClosed, End::kCrashed}) {
    SCOPED_TRACE(end == End::kClosed ? "closed" : "crashed");
    fs::remove_all(directory);
    model.clear();
    MakeStore(end);
    const auto before = Snapshot();
    ExpectSound(directory);
    EXPECT_EQ(Dump(directory), model);
    auto stats = worker.Run(Opened()->Stats(worker));
    ASSERT_TRUE(stats.ok()) << stats.status();
    EXPECT_GT(stats->runs.front().entries, 0u);
    EXPECT_GT(stats->value_live_bytes, uint64_t{500} * 3000);
    ASSERT_TRUE(stats->recovery.ok());
    EXPECT_EQ(stats->recovery->changes, 301u);
    EXPECT_GT(stats->disk_bytes(), stats->data_bytes());
    EXPECT_TRUE(Snapshot() == before) << "something was changed";
  }
  EXPECT_EQ(Served(directory).All(), model);
}

TEST_F(ClosedStoreTest, ValuesThatWereCollectedMayBeNamedByVersionsThatAreShadowed) {
  const auto put = [&](Served& store, const std::string& prefix, uint64_t begin, uint64_t end,
                       char version) {
    for (uint64_t number = begin; number < end; ++number) {
      const std::string key = prefix + fmt::format("{:06}", number);
      store.Put(key, model[key] = std::string(3000, version));
    }
  };
  SegmentId first = SegmentId::kNone;
  {
    Served store(directory);
    put(store, "key", 0, 290, 'a');
    store.FlushOntoLower();
    put(store, "more", 0, 450, 'a');  // all of the first segment is full
    store.FlushOntoLower();
    // So many flushes are merged with "more", and below that there are the older versions of "key".
    put(store, "more", 0, 225, 'b');
    store.Flush();
    put(store, "more", 225, 450, 'b');
    store.Flush();
    put(store, "key", 0, 145, 'b');
    store.Flush();
    put(store, "key", 145, 290, 'b');
    store.Flush();
    const uint64_t patience_ns = clock.NowNs() + 60 * kNsPerSecond;
    while (store.collected_segments() == 0 && clock.NowNs() < patience_ns) {
      std::this_thread::yield();
    }
    store.Close();
  }
  const std::vector<ValuePointer> pointers = Pointers();
  {
    const auto store = Opened();
    const auto named = std::ranges::find_if(
        pointers, [&](const ValuePointer& pointer) { return store->IsCollected(pointer.segment); });
    ASSERT_NE(named, pointers.end());
    first = named->segment;
  }
  EXPECT_GT(std::ranges::count(pointers, first, &ValuePointer::segment), 200);
  ExpectSound(directory);
  EXPECT_EQ(Dump(directory), model);
}

TEST_F(ClosedStoreTest, EveryFlippedByteOfABlockIsFoundAndTheRestIsLookedAt) {
  MakeStore(End::kClosed);
  const TableInfo table = FirstTable();
  const std::string file = NameOf(table.segments.front());
  const uint64_t blocks = Check(directory).report.blocks;
  Flip(file, 40);                       // in the first leaf
  Flip(file, table.root.offset() + 6);  // a length
  const Scrubbed found = Check(directory);
  ASSERT_EQ(found.faults.size(), 2u);
  EXPECT_EQ(found.faults[0].file, file);
  EXPECT_EQ(found.faults[0].offset, 0u);
  EXPECT_EQ(found.faults[0].what, "block with a wrong checksum");
  EXPECT_EQ(found.faults[1].offset, table.root.offset());
  EXPECT_EQ(found.report.blocks, blocks - 2);
  Flip(file, 40);
  Flip(file, table.root.offset() + 6);
  ExpectSound(directory);
  const uint64_t footer = RoundUp(table.bytes, storage::kBlockBytes);
  Flip(file, footer + 20);
  ExpectFault(file, footer, "footer with a wrong checksum");
}

TEST_F(ClosedStoreTest, DamagedAndMissingValuesAreFound) {
  MakeStore(End::kClosed);
  const std::vector<ValuePointer> pointers = Pointers();
  ASSERT_GT(pointers.size(), 100u);
  const ValuePointer one = pointers[50];
  const std::string file = NameOf(one.segment);
  Flip(file, one.offset + one.bytes / 2);
  ExpectFault(file, one.offset, "1 values that are named are damaged");
  EXPECT_EQ(Check(directory).faults.size(), 1u);
  fs::resize_file(file, one.offset);
  const Scrubbed cut = Check(directory);
  ASSERT_GE(cut.faults.size(), 2u);
  EXPECT_NE(cut.faults.front().what.find("ends at offset"), std::string::npos)
      << cut.faults.front().what;
  fs::remove(file);
  ExpectFault(file, 0, "the file is missing, and with it");
}

TEST_F(ClosedStoreTest, AMissingAndATruncatedTableAreFound) {
  MakeStore(End::kClosed);
  const TableInfo table = FirstTable();
  const std::string file = NameOf(table.segments.front());
  fs::resize_file(file, 8192);
  const Scrubbed found = Check(directory);
  ASSERT_FALSE(found.faults.empty());
  EXPECT_EQ(found.faults.front().offset, 8192u);
  EXPECT_NE(found.faults.front().what.find("ends at offset 8192"), std::string::npos)
      << found.faults.front().what;
  fs::remove(file);
  ExpectFault(file, 0, "the file is missing");
  const auto store = Opened();
  auto stats = worker.Run(store->Stats(worker));
  EXPECT_EQ(stats.status().code(), StatusCode::kCorruption);
  EXPECT_NE(stats.status().message().find(file), std::string::npos) << stats.status();
}

TEST_F(ClosedStoreTest, DamageOfWhatWasDurableInTheRecoveryLogIsFoundAndATornTailIsNone) {
  {
    Served store(directory);
    for (uint64_t number = 0; number < 400; ++number) {
      store.Put(fmt::format("key{:06}", number), std::string(200, 'x'));
      store.Commit();
    }
  }
  const SegmentId log = Opened()->state().recovery_log.front();
  const std::string file = NameOf(log);
  const uint64_t commits = Check(directory).report.commits;
  EXPECT_EQ(commits, 400u);
  // The middle of a log that has no later segment: a crash may leave that.
  Flip(file, 20'000);
  const Scrubbed found = Check(directory);
  EXPECT_TRUE(found.faults.empty()) << found.faults.front().what;
  ASSERT_EQ(found.notes.size(), 2u);
  EXPECT_NE(found.notes[0].what.find("those up to 400 are behind a gap"), std::string::npos)
      << found.notes[0].what;
  EXPECT_LT(found.notes[0].offset, 20'000u);
  EXPECT_GT(found.notes[0].offset, 19'700u);
  Flip(file, 20'000);
  // Opened again it goes on in a second segment, whose head says that all of the first was durable.
  { Served(directory).Put("more", "value"); }
  ExpectSound(directory);
  Flip(file, 20'000);
  const Scrubbed damaged = Check(directory);
  ASSERT_FALSE(damaged.faults.empty());
  EXPECT_EQ(damaged.faults.front().file, file);
  EXPECT_EQ(damaged.faults.front().offset, found.notes[0].offset);
}

TEST_F(ClosedStoreTest, AFlippedBitInTheLogOfAStoreThatWasClosedIsDamageWhereverItIs) {
  uint64_t bytes = 0;
  {
    Served store(directory);
    for (uint64_t number = 0; number < 400; ++number) {
      const std::string key = fmt::format("key{:06}", number);
      store.Put(key, model[key] = Value(number, 0));
    }
    store.Close();
  }
  ExpectSound(directory);
  {
    auto recovered = worker.Run(Opened()->Recover(worker));
    ASSERT_TRUE(recovered.ok()) << recovered.status();
    EXPECT_EQ(recovered->last, 400u);
    bytes = kLogHeadBytes + recovered->bytes;
  }
  const std::string file = NameOf(Opened()->state().recovery_log.front());
  const std::string values = NameOf(Opened()->state().value_log.begin()->first);
  const auto expect_found = [&](const std::string& damaged, uint64_t at) {
    SCOPED_TRACE(at);
    Flip(damaged, at);
    const Scrubbed found = Check(directory);
    ASSERT_FALSE(found.faults.empty());
    EXPECT_EQ(found.faults.front().file, file);
    EXPECT_LE(found.faults.front().offset, at);
    const Status refused = Serve();
    EXPECT_EQ(refused.code(), StatusCode::kCorruption);
    EXPECT_NE(refused.message().find(damaged + " at offset "), std::string::npos) << refused;
    Flip(damaged, at);
  };
  for (const uint64_t at : {uint64_t{0}, uint64_t{12}, uint64_t{30}, bytes / 2, bytes - 1}) {
    expect_found(file, at);
  }
  // A value that it names is damaged: that one, and no other.
  Flip(values, 100);
  ExpectFault(values, 25, "1 values that are named are damaged");
  EXPECT_EQ(Check(directory).faults.size(), 1u);
  EXPECT_TRUE(Serve().ok()) << Serve();
  {
    const auto store = Opened();
    ASSERT_TRUE(worker.Run(store->Recover(worker)).ok());
    const ClosedStore::Row row = [](std::string_view, std::string_view) { return true; };
    const Status read = worker.Run(store->Scan(worker, "", row));
    EXPECT_EQ(read.code(), StatusCode::kCorruption) << read;
    EXPECT_NE(read.message().find(values), std::string::npos) << read;
  }
  Flip(values, 100);
  fs::rename(values, values + ".away");
  ExpectFault(values, 0, "the file is missing, and with it 100 values");
  EXPECT_NE(Serve().message().find(values + " is missing"), std::string::npos) << Serve();
  fs::rename(values + ".away", values);
  fs::rename(file, file + ".away");
  EXPECT_NE(Serve().message().find(file + " at offset 0"), std::string::npos) << Serve();
  fs::rename(file + ".away", file);
  ExpectSound(directory);
  EXPECT_EQ(Served(directory).All(), model);
}

TEST_F(ClosedStoreTest, ADamagedManifestSaysWhere) {
  MakeStore(End::kClosed);
  const std::string manifest = directory + "/" + Opened()->manifest().opened_file().name;
  Flip(manifest, 60);
  EXPECT_EQ(Open(directory).status().code(), StatusCode::kCorruption);
  EXPECT_NE(Open(directory).status().message().find("at offset"), std::string::npos)
      << Open(directory).status();
  fs::remove(manifest);
  EXPECT_EQ(Open(directory).status().code(), StatusCode::kCorruption) << Open(directory).status();
}

TEST_F(ClosedStoreTest, DirectoriesThatAreNoneAreRefusedAndLeftAlone) {
  EXPECT_EQ(Open(folder.path() + "/none").status().code(), StatusCode::kInvalidArgument);
  std::ofstream(folder.path() + "/file") << "x";
  EXPECT_EQ(Open(folder.path() + "/file").status().code(), StatusCode::kInvalidArgument);
  fs::create_directory(directory);
  EXPECT_EQ(Open(directory).status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(fs::is_empty(directory));
}

TEST_F(ClosedStoreTest, AStoreThatIsServedIsRefusedAndSoIsServingOneThatIsRead) {
  {
    Served store(directory);
    const Status refused = Open(directory).status();
    EXPECT_EQ(refused.code(), StatusCode::kAlreadyExists);
    EXPECT_NE(refused.message().find("open in process " + std::to_string(::getpid())),
              std::string::npos)
        << refused;
  }
  const auto one = Opened(), other = Opened();
  EXPECT_EQ(storage::FileStorage::Open({.directory = directory}).status().code(),
            StatusCode::kAlreadyExists);
}

TEST_F(ClosedStoreTest, WithoutTheRightToReadItSaysSo) {
  MakeStore(End::kClosed);
  const std::string file = NameOf(FirstTable().segments.front());
  ::chmod(file.c_str(), 0);
  ::chmod(folder.path().c_str(), 0755);
  const bool root = ::geteuid() == 0;
  ASSERT_TRUE(!root || ::seteuid(65'534) == 0);
  const Scrubbed found = Check(directory);  // no right to write was needed up to here
  ::chmod(directory.c_str(), 0);
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
  ASSERT_FALSE(found.faults.empty());
  EXPECT_EQ(found.faults.front().file, file);
  EXPECT_NE(found.faults.front().what.find("Permission denied"), std::string::npos);
  ::chmod(directory.c_str(), 0);
  ASSERT_TRUE(!root || ::seteuid(65'534) == 0);
  const Status refused = Open(directory).status();
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
  ::chmod(directory.c_str(), 0755);
  EXPECT_EQ(refused.code(), StatusCode::kIoError) << refused;
}

TEST_F(ClosedStoreTest, AStoreOfAnotherFormatIsRefusedAsSuch) {
  MakeStore(End::kClosed);
  const std::string path = directory + "/" + Opened()->manifest().opened_file().name;
  std::string manifest;
  {
    std::ifstream in(path, std::ios::binary);
    manifest.assign(std::istreambuf_iterator<char>(in), {});
  }
  // length, two checksums; magic and epoch. The last byte of the magic counts the formats.
  constexpr size_t kCrcAt = 8, kPayloadAt = 12, kPayloadBytes = 16;
  manifest[kPayloadAt + 7] = '1';
  const auto payload = AsBytes(std::string_view(manifest).substr(kPayloadAt, kPayloadBytes));
  StoreLittle(reinterpret_cast<std::byte*>(manifest.data()) + kCrcAt, Crc32c(payload));
  std::ofstream(path, std::ios::binary) << manifest;
  const Status opened = Open(directory).status();
  EXPECT_EQ(opened.code(), StatusCode::kInvalidArgument) << opened;
  EXPECT_NE(opened.message().find("format 1"), std::string_view::npos) << opened;
}

}  // namespace
}  // namespace farleaf::index::lsm
