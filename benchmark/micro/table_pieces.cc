#include "benchmark/micro/table_pieces.h"

#include <benchmark/benchmark.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/random.h"
#include "dsm/shm/local_fabric.h"
#include "dsm/worker.h"
#include "index/lsm/block_encoder.h"
#include "index/lsm/table_builder.h"
#include "index/lsm/table_stream.h"

namespace farleaf::micro {
namespace {

using namespace index::lsm;
namespace storage = index::storage;

constexpr uint64_t kTableSeed = 1;
constexpr size_t kTableEntries = 1'000'000;  // 33 MB: more than the processor's caches hold

/// Keys of 24 bytes as YCSB has them, values of 9: the pairs of small sizes of Talos (33 bytes).
std::string KeyText(uint64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "user%020llu", static_cast<unsigned long long>(Mix64(number)));
  return text;
}
constexpr std::string_view kValue = "value----";

/// Segments in memory.
class HeapStorage final : public storage::Storage {
 public:
  void SetReserve(const storage::ReserveSizes&) override {}
  dsm::Task<Status> FillReserve(dsm::Worker&) override { co_return Status::Ok(); }
  dsm::Task<Status> Create(dsm::Worker&, storage::SegmentId id, storage::Making) override {
    if (removed_.empty()) {
      segments_.try_emplace(id, storage::kSegmentBytes);
    } else {  // its memory, which the kernel need not give once more
      segments_.try_emplace(id, std::move(removed_.back()));
      removed_.pop_back();
    }
    co_return Status::Ok();
  }
  Status Remove(storage::SegmentId id) override {
    removed_.push_back(std::move(segments_.at(id)));
    segments_.erase(id);
    return Status::Ok();
  }
  Result<std::vector<storage::SegmentId>> List() override {
    return std::vector<storage::SegmentId>();
  }
  dsm::Task<Status> Run(dsm::Worker&, std::span<storage::Io> ios) override {
    for (storage::Io& io : ios) {
      std::byte* const there = segments_.at(io.segment).data() + io.offset;
      if (io.kind == storage::IoKind::kRead) std::memcpy(io.bytes.data(), there, io.bytes.size());
      if (io.kind == storage::IoKind::kWrite) std::memcpy(there, io.bytes.data(), io.bytes.size());
    }
    co_return Status::Ok();
  }
  dsm::Task<Result<std::string>> ReadFile(dsm::Worker&, std::string name) override {
    co_return Status::NotFound(name);
  }
  dsm::Task<Status> ReplaceFile(dsm::Worker&, std::string, std::string) override {
    co_return Status::Ok();
  }
  dsm::Task<Status> AppendFile(dsm::Worker&, std::string, std::string) override {
    co_return Status::Ok();
  }
  Status RemoveFile(std::string_view) override { return Status::Ok(); }
  Result<std::vector<std::string>> ListFiles() override { return std::vector<std::string>(); }
  storage::StorageCounts counts() const override { return {}; }
  Result<storage::StorageSpace> Space() override { return storage::StorageSpace{}; }
  std::string NameOf(storage::SegmentId id) const override {
    return std::to_string(storage::Number(id));
  }

 private:
  std::map<storage::SegmentId, std::vector<std::byte>> segments_;
  std::vector<std::vector<std::byte>> removed_;
};

/// A table of sorted small pairs in memory, with a cache that holds it all.
class TableUnderTest {
 public:
  TableUnderTest() {
    for (size_t i = 0; i < kTableEntries; ++i) keys_.push_back(KeyText(i));
    std::sort(keys_.begin(), keys_.end());
    // Once more, so that their bytes are in order in memory, too, as those of a stream are.
    keys_ = std::vector<std::string>(keys_);
    auto info = worker_->Run(Build(*worker_, *this));
    FARLEAF_CHECK(info.ok(), info.status());
    table_ = std::make_unique<Table>(&storage_, *info);
  }
  dsm::Worker& worker() { return *worker_; }
  BlockCache& cache() { return cache_; }
  const Table& table() const { return *table_; }
  const std::vector<std::string>& keys() const { return keys_; }

  static dsm::Task<Result<TableInfo>> Build(dsm::Worker& worker, TableUnderTest& of) {
    TableBuilder builder({.table_bytes_max = uint64_t{1} << 30}, &of.storage_,
                         [&of] { return storage::SegmentId{of.next_segment_++}; });
    for (const std::string& key : of.keys_) {
      builder.Add({.key = key, .kind = EntryKind::kValue, .value = kValue});
      if (!builder.NeedsWrite()) continue;
      Status written = co_await builder.Write(worker);
      if (!written.ok()) co_return written;
    }
    Result<TableInfo> info = co_await builder.Finish(worker);
    co_return info;
  }
  /// Looks `key` up, and fetches what is missing.
  void Warm(std::string_view key) {
    Table::Found found;
    while (table_->Find(cache_, LookupKey(key), kSequenceMax, &found) == Table::Outcome::kMissing) {
      auto pin = worker_->Run(table_->Fetch(*worker_, cache_, found.missing));
      FARLEAF_CHECK(pin.ok(), pin.status());
    }
  }

 private:
  MonotonicClock clock_;
  dsm::EpochDomain epochs_;
  std::unique_ptr<dsm::LocalFabric> fabric_ =
      std::move(*dsm::LocalFabric::Create({.servers = 1, .region_bytes = 4 << 20}));
  std::unique_ptr<dsm::Worker> worker_ = std::make_unique<dsm::Worker>(
      dsm::Worker::Deps{std::move(*fabric_->OpenTransport()), &epochs_, &clock_, kTableSeed});
  HeapStorage storage_;
  BlockCache cache_{uint64_t{256} << 20};
  std::vector<std::string> keys_;
  std::unique_ptr<Table> table_;
  uint64_t next_segment_ = 1;
};

/// Made when first asked for.
TableUnderTest& Shared(std::shared_ptr<std::unique_ptr<TableUnderTest>> of) {
  if (!*of) *of = std::make_unique<TableUnderTest>();
  return **of;
}
using Lazy = std::shared_ptr<std::unique_ptr<TableUnderTest>>;

/// Leaves of 4 KiB of pairs, one after another; `blocks` of them: one stays in the processor's cache, many do not.
void BlockSearch(benchmark::State& state) {
  const auto blocks = static_cast<size_t>(state.range(0));
  std::vector<BlockCache::Memory> memory;
  std::vector<std::string> keys;
  for (size_t i = 0; i < blocks * 128; ++i) keys.push_back(KeyText(i));
  std::sort(keys.begin(), keys.end());
  std::vector<size_t> firsts = {0};
  BlockEncoder encoder;
  for (size_t i = 0; i < keys.size(); ++i) {
    // As in a table of a million pairs, keys of a leaf share three digits.
    const size_t shared =
        encoder.empty()
            ? 0
            : static_cast<size_t>(
                  std::mismatch(keys[i].begin(), keys[i].end(), encoder.last_key().begin()).first -
                  keys[i].begin());
    if (encoder.BytesWith(24, shared, kValue.size()) > 4096 || i + 1 == keys.size()) {
      BlockCache::Memory block(8192);
      encoder.Encode({}, reinterpret_cast<char*>(block.span().data()));
      memory.push_back(std::move(block));
      firsts.push_back(i);
    }
    encoder.Add(keys[i], shared, 0,
                std::copy(kValue.begin(), kValue.end(), encoder.TailRoom(kValue.size())));
  }
  Random random(kTableSeed);
  std::vector<std::pair<uint32_t, uint32_t>> draws;  // block, key
  for (size_t i = 0; i < 65536; ++i) {
    const size_t block = random.Below(memory.size());
    draws.emplace_back(block, firsts[block] + random.Below(firsts[block + 1] - firsts[block]));
  }
  size_t at = 0, found = 0;
  for (auto _ : state) {
    const auto [number, key] = draws[at++ & 65535];
    const Block block(memory[number].span().data());
    block.Prefetch();
    const Block::Position position = block.LowerBound(keys[key], kSequenceMax);
    found += position.same_key;
    benchmark::DoNotOptimize(position);
  }
  FARLEAF_CHECK(found == static_cast<size_t>(state.iterations()), found, state.iterations());
  state.counters["entries"] = static_cast<double>(firsts[1]);
}

void FilterProbe(benchmark::State& state) {
  const auto keys = static_cast<uint64_t>(state.range(0));
  constexpr uint32_t kBitsPerKey = 10;
  const uint32_t lines = FilterLines(keys, kBitsPerKey), probes = FilterProbes(kBitsPerKey);
  BlockCache::Memory memory(lines * size_t{kFilterLineBytes});
  std::memset(memory.span().data(), 0, memory.span().size());
  for (uint64_t i = 0; i < keys; ++i) AddToFilter(memory.span(), probes, HashKey(KeyText(i)));
  const std::string absent = KeyText(keys + 1);
  uint64_t yes = 0, number = 0;
  char key[24];
  std::memcpy(key, absent.data(), 24);
  for (auto _ : state) {
    std::memcpy(key + 16, &++number, 8);
    yes += MayContain(memory.span().data(), lines, probes, HashKey({key, 24}));
  }
  state.counters["false_positives"] =
      static_cast<double>(yes) / static_cast<double>(state.iterations());
}

void CacheLookup(benchmark::State& state) {
  BlockCache cache(uint64_t{256} << 20);
  const auto blocks = static_cast<uint32_t>(state.range(0));
  const auto key_of = [](uint64_t i) {
    return BlockCache::Key{storage::SegmentId{1 + i / 512}, static_cast<uint32_t>(i % 512 * 4096)};
  };
  for (uint32_t i = 0; i < blocks; ++i)
    cache.Insert(key_of(i), BlockKind::kLeaf, BlockCache::Memory(4096));
  Random random(kTableSeed);
  for (auto _ : state) {
    const auto handle = cache.Lookup(key_of(random.Below(blocks)), BlockKind::kLeaf);
    FARLEAF_CHECK(handle);
  }
}

void TableFind(benchmark::State& state, const Lazy& lazy) {
  TableUnderTest& under_test = Shared(lazy);
  for (size_t i = 0; i < kTableEntries; i += 20) under_test.Warm(under_test.keys()[i]);
  const bool present = state.range(0) != 0;
  Random random(kTableSeed);
  Table::Found found;
  uint64_t wrong = 0;
  for (auto _ : state) {
    std::string key = under_test.keys()[random.Below(kTableEntries)];
    if (!present) key.back() = 'x';
    const auto outcome =
        under_test.table().Find(under_test.cache(), LookupKey(key), kSequenceMax, &found);
    wrong += outcome != (present ? Table::Outcome::kFound : Table::Outcome::kAbsent);
  }
  FARLEAF_CHECK(wrong == 0, wrong);
}

void BuilderAdd(benchmark::State& state, const Lazy& lazy) {
  TableUnderTest& under_test = Shared(lazy);
  for (auto _ : state) {
    auto info = under_test.worker().Run(TableUnderTest::Build(under_test.worker(), under_test));
    FARLEAF_CHECK(info.ok(), info.status());
    state.counters["bytes_per_entry"] = static_cast<double>(info->bytes) / kTableEntries;
    for (const storage::SegmentId segment : info->segments)
      FARLEAF_CHECK(under_test.table().storage()->Remove(segment).ok());
  }
  state.counters["ns_per_entry"] = benchmark::Counter(
      static_cast<double>(kTableEntries) * static_cast<double>(state.iterations()) / 1e9,
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

dsm::Task<uint64_t> StreamAll(dsm::Worker& worker, TableUnderTest& under_test) {
  TableStream stream(&under_test.table());
  uint64_t entries = 0;
  for (;;) {
    const CursorStep step = stream.Next();
    if (step == CursorStep::kEnd) co_return entries;
    if (step == CursorStep::kEntry) {
      benchmark::DoNotOptimize(stream.entry());
      ++entries;
      continue;
    }
    Status read = co_await stream.Read(worker, under_test.cache());
    FARLEAF_CHECK(read.ok(), read);
  }
}

void StreamNext(benchmark::State& state, const Lazy& lazy) {
  TableUnderTest& under_test = Shared(lazy);
  for (auto _ : state) {
    const uint64_t entries = under_test.worker().Run(StreamAll(under_test.worker(), under_test));
    FARLEAF_CHECK(entries == kTableEntries, entries);
  }
  state.counters["ns_per_entry"] = benchmark::Counter(
      static_cast<double>(kTableEntries) * static_cast<double>(state.iterations()) / 1e9,
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void CursorNext(benchmark::State& state, const Lazy& lazy) {
  TableUnderTest& under_test = Shared(lazy);
  for (size_t i = 0; i < kTableEntries; i += 20) under_test.Warm(under_test.keys()[i]);
  TableCursor cursor(&under_test.table(), &under_test.cache());
  CursorStep step = CursorStep::kEnd;
  for (auto _ : state) {
    step = step == CursorStep::kEnd ? cursor.SeekToFirst() : cursor.Next();
    benchmark::DoNotOptimize(cursor.entry());
  }
}

}  // namespace

void RegisterTableBenchmarks() {
  const auto lazy = std::make_shared<std::unique_ptr<TableUnderTest>>();
  benchmark::RegisterBenchmark("table_block_search", BlockSearch)->Arg(1)->Arg(20'000);
  benchmark::RegisterBenchmark("table_filter_probe", FilterProbe)->Arg(10'000)->Arg(50'000);
  benchmark::RegisterBenchmark("table_cache_lookup", CacheLookup)->Arg(100)->Arg(50'000);
  benchmark::RegisterBenchmark("table_builder_add", BuilderAdd, lazy)
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("table_stream_next", StreamNext, lazy)
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("table_cursor_next", CursorNext, lazy);
  benchmark::RegisterBenchmark("table_find", TableFind, lazy)->Arg(1)->Arg(0);
}

}  // namespace farleaf::micro
