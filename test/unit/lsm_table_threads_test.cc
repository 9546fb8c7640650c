// Threads that look up, walk and stream one table, by one cache that is much too small for it.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "test/support/table_fixture.h"

namespace farleaf::index::lsm {
namespace {

struct Shared {
  const Table& table;
  BlockCache& cache;
  const Entries& entries;
  std::atomic<uint64_t> wrong{0};
};

dsm::Task<void> LookUp(dsm::Worker& worker, Shared& shared, uint64_t seed, int rounds) {
  Random random(seed);
  for (int i = 0; i < rounds; ++i) {
    const OwnedEntry& entry = shared.entries[random.Below(shared.entries.size())];
    std::vector<BlockCache::Handle> pins;
    Table::Found found;
    Table::Outcome outcome;
    while ((outcome = shared.table.Find(shared.cache, LookupKey(entry.key), kSequenceMax,
                                        &found)) == Table::Outcome::kMissing) {
      Result<BlockCache::Handle> pin =
          co_await shared.table.Fetch(worker, shared.cache, found.missing);
      if (!pin.ok() || pins.size() > 4) {
        ++shared.wrong;
        co_return;
      }
      pins.push_back(std::move(*pin));
    }
    shared.wrong += outcome != Table::Outcome::kFound || !(OwnedEntry::Of(found.entry) == entry);
  }
}

dsm::Task<void> WalkAndStream(dsm::Worker& worker, Shared& shared) {
  TableStream stream(&shared.table, shared.entries[100].key);
  size_t at = 100;
  for (;;) {
    const CursorStep step = stream.Next();
    if (step == CursorStep::kEnd) break;
    if (step == CursorStep::kEntry) {
      shared.wrong += at >= shared.entries.size() || stream.entry().key != shared.entries[at].key;
      ++at;
      continue;
    }
    Status read = co_await stream.Read(worker, shared.cache);
    if (!read.ok()) break;
  }
  shared.wrong += at != shared.entries.size();
  TableCursor cursor(&shared.table, &shared.cache);
  std::vector<BlockCache::Handle> pins;
  CursorStep step = cursor.SeekToFirst();
  for (at = 0; step != CursorStep::kEnd;) {
    if (step == CursorStep::kMissing) {
      std::vector<MissingBlock> missing = {cursor.missing()};
      if (missing[0].level == 0) cursor.Upcoming(TableCursor::Direction::kForward, 4, &missing);
      // Another thread may have fetched it since.
      if (missing.empty()) missing = {cursor.missing()};
      pins.clear();
      Status fetched =
          co_await shared.table.FetchAll(worker, shared.cache, missing, pins, BlockUse::kOnce);
      if (!fetched.ok()) break;
      step = at == 0 ? cursor.SeekToFirst() : cursor.Next();
      continue;
    }
    shared.wrong += cursor.entry().key != shared.entries[at++].key;
    step = cursor.Next();
  }
  shared.wrong += at != shared.entries.size();
}

TEST(LsmTableThreadsTest, OneCacheServesThreadsAndTheirCoroutines) {
  TableFixture fixture;
  const uint64_t seed = 77;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  const Entries entries =
      RandomEntries({.count = 20'000, .key_bytes_min = 8, .value_bytes_max = 100}, &random);
  const auto table = fixture.Build(entries);
  fixture.storage().delay_ns = 20'000;
  BlockCache cache(uint64_t{1} << 18);
  Shared shared{*table, cache, entries};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      const auto worker = fixture.NewWorker();
      for (uint64_t i = 0; i < 4; ++i)
        worker->Spawn(LookUp(*worker, shared, seed + 10 * t + i, 500));
      worker->Spawn(WalkAndStream(*worker, shared));
      worker->RunUntilIdle();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared.wrong, 0u);
  EXPECT_LE(cache.bytes(), cache.bytes_max() + 8192);
}

}  // namespace
}  // namespace farleaf::index::lsm
