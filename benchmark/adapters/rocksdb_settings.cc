#include "benchmark/adapters/rocksdb_settings.h"

#include <rocksdb/cache.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

#include <algorithm>

namespace farleaf::ycsb {

namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
// RocksDB's defaults, which others are derived from.
constexpr uint64_t kTableBytesMax = 64 * kMiB;
constexpr uint64_t kBlobFileBytesMax = 256 * kMiB;
constexpr int kRunsOfLevel0 = 4;
// Without the page cache nobody else reads ahead for compactions.
constexpr uint64_t kCompactionReadahead = 2 * kMiB;

rocksdb::CompressionType CompressionOf(StoreCompression compression) {
  switch (compression) {
    case StoreCompression::kLz4:
      return rocksdb::kLZ4Compression;
    case StoreCompression::kZstd:
      return rocksdb::kZSTD;
    case StoreCompression::kNone:
      break;
  }
  return rocksdb::kNoCompression;
}

/// Index and filter blocks are in the cache, so that it bounds them; the eviction of data spares them.
rocksdb::BlockBasedTableOptions TableOptions(const StoreOptions& store,
                                             std::shared_ptr<rocksdb::Cache> cache) {
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = std::move(cache);
  table.block_size = store.block_kb << 10;
  table.cache_index_and_filter_blocks = true;
  table.cache_index_and_filter_blocks_with_high_priority = true;
  table.pin_l0_filter_and_index_blocks_in_cache = true;
  if (store.filter_bits > 0) {
    table.filter_policy.reset(
        rocksdb::NewBloomFilterPolicy(static_cast<double>(store.filter_bits)));
  }
  return table;
}

}  // namespace

rocksdb::Options RocksDbOptions(const StoreOptions& store, bool create) {
  rocksdb::Options options;
  options.create_if_missing = create;
  options.error_if_exists = create;
  // Memory.
  const uint64_t memtable_bytes = store.memtable_mb * kMiB;
  const std::shared_ptr<rocksdb::Cache> cache = rocksdb::NewLRUCache(store.cache_mb * kMiB);
  options.write_buffer_size = memtable_bytes;
  options.max_write_buffer_number = 2;
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(TableOptions(store, cache)));
  // Levels: the first one is as large as what is merged into it at a time.
  options.level0_file_num_compaction_trigger = kRunsOfLevel0;
  options.max_bytes_for_level_base = kRunsOfLevel0 * memtable_bytes;
  options.max_bytes_for_level_multiplier = static_cast<double>(store.growth);
  options.level_compaction_dynamic_level_bytes = store.dynamic_levels;
  options.target_file_size_base = std::min(memtable_bytes, kTableBytesMax);
  options.compression = CompressionOf(store.compression);
  options.bottommost_compression = options.compression;
  // The older pair of limits, because max_background_jobs does not say how many of them flush.
  options.max_background_flushes = 1;
  options.max_background_compactions = static_cast<int>(store.compaction_threads);
  // Log: written when its buffer is full, and by whoever has the store each flush_ms; with `sync` by each write.
  options.manual_wal_flush = store.wal && !store.sync;
  // Files.
  options.use_direct_reads = store.direct;
  options.use_direct_io_for_flush_and_compaction = store.direct;
  options.compaction_readahead_size = kCompactionReadahead;
  if (store.engine != StoreEngine::kBlobDb) return options;
  options.enable_blob_files = true;
  options.min_blob_size = store.separation_bytes;
  options.blob_file_size = std::min(4 * memtable_bytes, kBlobFileBytesMax);
  options.blob_compression_type = options.compression;
  options.enable_blob_garbage_collection = store.blob_collection;
  options.blob_compaction_readahead_size = kCompactionReadahead;
  options.blob_cache = cache;
  return options;
}

rocksdb::ReadOptions RocksDbScanOptions(const StoreOptions& store) {
  rocksdb::ReadOptions options;
  options.readahead_size = store.readahead_kb << 10;
  options.adaptive_readahead = true;
  return options;
}

rocksdb::WriteOptions RocksDbWriteOptions(const StoreOptions& store) {
  rocksdb::WriteOptions options;
  options.sync = store.sync;
  options.disableWAL = !store.wal;
  return options;
}

}  // namespace farleaf::ycsb
