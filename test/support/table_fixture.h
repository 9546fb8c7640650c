// A worker, storage (in memory, unless a test brings its own), and tables that are built from entries, for tests of the LSM store's tables.
//
// Thread rule: one thread, but for NewWorker.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/random.h"
#include "dsm/worker.h"
#include "index/lsm/table.h"
#include "index/lsm/table_builder.h"
#include "index/lsm/table_cursor.h"
#include "index/lsm/table_stream.h"
#include "test/support/memory_storage.h"
#include "test/support/storage_under_test.h"

namespace farleaf::index::lsm {

/// An entry that owns its bytes.
struct OwnedEntry {
  std::string key;
  Sequence sequence = 0;
  EntryKind kind = EntryKind::kValue;
  std::string value;
  ValuePointer pointer = {};
  uint64_t expires_ms = 0;

  static OwnedEntry Of(const Entry& entry) {
    return {std::string(entry.key),   entry.sequence, entry.kind,
            std::string(entry.value), entry.pointer,  entry.expires_ms};
  }
  Entry view() const { return {key, sequence, kind, value, pointer, expires_ms}; }
  bool operator==(const OwnedEntry&) const = default;
  friend void PrintTo(const OwnedEntry& entry, std::ostream* out) {
    *out << "{key of " << entry.key.size() << " '" << entry.key.substr(0, 40) << "' sequence "
         << entry.sequence << " kind " << static_cast<int>(entry.kind) << " value of "
         << entry.value.size() << '}';
  }
};
using Entries = std::vector<OwnedEntry>;

class TableFixture {
 public:
  TableFixture() = default;
  TableFixture(storage::Storage* disk, const Clock* clock) : disk_(disk), clock_(clock) {}

  dsm::Worker& worker() { return *worker_; }
  /// Of another thread.
  std::unique_ptr<dsm::Worker> NewWorker() {
    return storage::WorkerWithoutServers(&epochs_, clock_);
  }
  /// REQUIRES: the test brought none.
  test::MemoryStorage& storage() { return storage_; }
  BlockCache& cache() { return *cache_; }
  void NewCache(uint64_t bytes = uint64_t{64} << 20) {
    cache_ = std::make_unique<BlockCache>(bytes);
  }
  SegmentId NewSegment() { return SegmentId{next_segment_++}; }

  Result<TableInfo> TryBuild(const Entries& entries, TableBuilderOptions options = {}) {
    return worker_->Run(BuildTask(*worker_, *this, entries, options));
  }
  std::unique_ptr<Table> Build(const Entries& entries, TableBuilderOptions options = {}) {
    auto info = TryBuild(entries, options);
    EXPECT_TRUE(info.ok()) << info.status();
    return info.ok() ? std::make_unique<Table>(disk_, *info) : nullptr;
  }

  /// What a lookup finds, with what is missing fetched. A failure of a fetch is told in `status`.
  std::optional<OwnedEntry> Find(const Table& table, std::string_view key,
                                 Sequence snapshot = kSequenceMax, Status* status = nullptr) {
    return worker_->Run(FindTask(*worker_, *this, table, std::string(key), snapshot, status));
  }
  /// Repeats a step of a cursor until nothing is missing. Nullopt: a fetch has failed.
  template <typename Step>
  std::optional<CursorStep> Drive(const Table& table, TableCursor& cursor, const Step& step,
                                  Status* status = nullptr) {
    BlockCache::Handle pin;
    for (;;) {
      const CursorStep done = step(cursor);
      if (done != CursorStep::kMissing) return done;
      auto fetched =
          worker_->Run(table.Fetch(*worker_, *cache_, cursor.missing(), BlockUse::kOnce));
      if (!fetched.ok()) {
        if (status) *status = fetched.status();
        return std::nullopt;
      }
      pin = std::move(*fetched);
    }
  }
  Entries ReadForward(const Table& table, Status* status = nullptr) {
    TableCursor cursor(&table, cache_.get());
    Entries entries;
    auto step = Drive(
        table, cursor, [](TableCursor& at) { return at.SeekToFirst(); }, status);
    while (step == CursorStep::kEntry) {
      entries.push_back(OwnedEntry::Of(cursor.entry()));
      step = Drive(
          table, cursor, [](TableCursor& at) { return at.Next(); }, status);
    }
    return entries;
  }
  /// In the order of the table, read against it.
  Entries ReadBackward(const Table& table) {
    TableCursor cursor(&table, cache_.get());
    Entries entries;
    auto step = Drive(table, cursor, [](TableCursor& at) { return at.SeekToLast(); });
    while (step == CursorStep::kEntry) {
      entries.push_back(OwnedEntry::Of(cursor.entry()));
      step = Drive(table, cursor, [](TableCursor& at) { return at.Prev(); });
    }
    std::reverse(entries.begin(), entries.end());
    return entries;
  }
  Entries ReadStream(const Table& table, std::string from = {},
                     uint32_t extent_bytes = TableStream::kExtentBytes, Status* status = nullptr) {
    return worker_->Run(StreamTask(*worker_, *this, table, std::move(from), extent_bytes, status));
  }

 private:
  static dsm::Task<Entries> StreamTask(dsm::Worker& worker, TableFixture& fixture,
                                       const Table& table, std::string from, uint32_t extent_bytes,
                                       Status* status) {
    TableStream stream(&table, from, extent_bytes);
    Entries entries;
    for (;;) {
      const CursorStep step = stream.Next();
      if (step == CursorStep::kEnd) co_return entries;
      if (step == CursorStep::kEntry) {
        entries.push_back(OwnedEntry::Of(stream.entry()));
        continue;
      }
      Status read = co_await stream.Read(worker, *fixture.cache_);
      if (!read.ok()) {
        if (status) *status = read;
        co_await stream.Close(worker);
        co_return entries;
      }
    }
  }
  static dsm::Task<Result<TableInfo>> BuildTask(dsm::Worker& worker, TableFixture& fixture,
                                                const Entries& entries,
                                                TableBuilderOptions options) {
    TableBuilder builder(options, fixture.disk_, [&fixture] { return fixture.NewSegment(); });
    for (const OwnedEntry& entry : entries) {
      builder.Add(entry.view());
      if (!builder.NeedsWrite()) continue;
      Status written = co_await builder.Write(worker);
      if (!written.ok()) {
        co_await builder.Abandon(worker);
        co_return written;
      }
    }
    Result<TableInfo> info = co_await builder.Finish(worker);
    if (!info.ok()) co_await builder.Abandon(worker);
    co_return info;
  }
  static dsm::Task<std::optional<OwnedEntry>> FindTask(dsm::Worker& worker, TableFixture& fixture,
                                                       const Table& table, std::string key,
                                                       Sequence snapshot, Status* status) {
    const LookupKey lookup(key);
    std::vector<BlockCache::Handle> pins;
    Table::Found found;
    for (;;) {
      const Table::Outcome outcome = table.Find(*fixture.cache_, lookup, snapshot, &found);
      if (outcome == Table::Outcome::kAbsent) co_return std::nullopt;
      if (outcome == Table::Outcome::kFound) co_return OwnedEntry::Of(found.entry);
      Result<BlockCache::Handle> pin = co_await table.Fetch(worker, *fixture.cache_, found.missing);
      if (!pin.ok()) {
        if (status) *status = pin.status();
        co_return std::nullopt;
      }
      pins.push_back(std::move(*pin));
    }
  }

  MonotonicClock real_clock_;
  dsm::EpochDomain epochs_;
  test::MemoryStorage storage_;
  storage::Storage* disk_ = &storage_;
  const Clock* clock_ = &real_clock_;
  std::unique_ptr<BlockCache> cache_ = std::make_unique<BlockCache>(uint64_t{64} << 20);
  std::unique_ptr<dsm::Worker> worker_ = NewWorker();
  uint64_t next_segment_ = 1;
};

/// Random entries in order: keys of many lengths and shared fronts, versions, all kinds.
struct EntryStyle {
  size_t count = 1000;
  size_t key_bytes_min = 1, key_bytes_max = 40;
  size_t value_bytes_max = 60;
  uint32_t letters = 256;  ///< of keys
  uint32_t versions_max = 1;
  uint32_t pointer_percent = 0, deleted_percent = 0, expiring_percent = 0;
  uint32_t log_segments = 20;
};

inline Entries RandomEntries(const EntryStyle& style, Random* random) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < style.count; ++i) {
    std::string key(
        style.key_bytes_min + random->Below(style.key_bytes_max - style.key_bytes_min + 1), '\0');
    for (char& letter : key) letter = static_cast<char>(random->Below(style.letters));
    keys.push_back(std::move(key));
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  Entries entries;
  for (const std::string& key : keys) {
    const uint64_t versions = 1 + random->Below(style.versions_max);
    Sequence sequence = style.versions_max > 1 ? 1000 + random->Below(uint64_t{1} << 40) : 0;
    for (uint64_t i = 0; i < versions; ++i) {
      OwnedEntry entry{.key = key, .sequence = sequence};
      const uint64_t draw = random->Below(100);
      if (draw < style.pointer_percent) {
        entry.kind = EntryKind::kPointer;
        const auto offset = static_cast<uint32_t>(random->Below(1 << 20));
        entry.pointer = {SegmentId{1000 + random->Below(style.log_segments)}, offset,
                         static_cast<uint32_t>(600 + random->Below(1 << 20)), 600};
      } else if (draw < style.pointer_percent + style.deleted_percent) {
        entry.kind = EntryKind::kDeleted;
      } else {
        entry.value.resize(random->Below(style.value_bytes_max + 1));
        for (char& letter : entry.value) letter = static_cast<char>(random->Next());
      }
      if (random->Below(100) < style.expiring_percent)
        entry.expires_ms = 1 + random->Below(uint64_t{1} << 41);
      entries.push_back(std::move(entry));
      if (sequence < 3) break;
      sequence = i + 2 == versions && random->OneIn(3) ? 0 : sequence - 1 - random->Below(2);
    }
  }
  return entries;
}

}  // namespace farleaf::index::lsm
