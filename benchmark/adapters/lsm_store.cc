#include "benchmark/adapters/lsm_store.h"

#include <array>
#include <map>
#include <random>
#include <string>
#include <string_view>

namespace farleaf::ycsb {

namespace {

using Json = nlohmann::ordered_json;

void DescribeWork(const index::lsm::StoreMetrics& done, Json* json) {
  (*json)["RecoveredChanges"] = done.recovered_changes;
  (*json)["Recovery(us)"] = done.recovery_ns / 1000;
  (*json)["FlushedBytes"] = done.flushed_bytes;
  (*json)["MergedBytesRead"] = done.merged_bytes_read;
  (*json)["MergedBytesWritten"] = done.merged_bytes_written;
  (*json)["ValueBytesMoved"] = done.moved_bytes;
  constexpr std::array<std::string_view, index::lsm::kWaitsFor> kNames = {
      "Collection", "Merges", "Flushes", "Logs", "Copies"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    const std::string name = "WaitedFor" + std::string(kNames[i]);
    (*json)[name] = done.waits[i].count;
    (*json)[name + "Longest(us)"] = done.waits[i].longest_ns / 1000;
  }
}

void DescribeLongest(const index::storage::StorageCounts& counts, Json* json) {
  (*json)["DeviceLongestRead(us)"] = counts.longest_read_ns / 1000;
  (*json)["DeviceLongestWrite(us)"] = counts.longest_write_ns / 1000;
  (*json)["DeviceLongestSync(us)"] = counts.longest_sync_ns / 1000;
  (*json)["DeviceLongestCreate(us)"] = counts.longest_create_ns / 1000;
  (*json)["DeviceLongestFile(us)"] = counts.longest_file_ns / 1000;
}

}  // namespace

index::lsm::LsmOptions LsmOptionsOf(const StoreOptions& store) {
  index::lsm::LsmOptions options;
  options.durability =
      store.sync ? index::lsm::Durability::kSynced : index::lsm::Durability::kLocal;
  options.flush_ms = store.flush_ms;
  options.memtable_bytes = store.memtable_mb << 20;
  options.growth_factor = static_cast<uint32_t>(store.growth);
  options.value_separation_bytes = static_cast<uint32_t>(store.separation_bytes);
  options.cache_bytes = store.cache_mb << 20;
  options.block_bytes = static_cast<uint32_t>(store.block_kb << 10);
  options.filter_bits_per_key = static_cast<uint32_t>(store.filter_bits);
  options.compaction_threads = static_cast<uint32_t>(store.compaction_threads);
  if (store.compression == StoreCompression::kLz4) {
    options.compression = index::lsm::Compression::kLz4;
  } else if (store.compression == StoreCompression::kZstd) {
    options.compression = index::lsm::Compression::kZstd;
  }
  return options;
}

uint64_t DrawStoreSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

void DescribeLsmStore(const index::lsm::LsmStore& store,
                      const index::storage::StorageCounts& counts, Json* json) {
  (*json)["CacheBytes"] = store.cache().bytes();
  (*json)["DeviceReads"] = counts.reads;
  (*json)["DeviceWrites"] = counts.writes;
  (*json)["DeviceSyncs"] = counts.syncs;
  const auto version = store.version();
  std::map<uint8_t, uint64_t> bytes;  // by level
  for (const index::lsm::Run& run : version->runs) bytes[run.place.level] += run.bytes;
  for (const auto& [level, of_level] : bytes) {
    (*json)["Level" + std::to_string(level + 1) + "Bytes"] = of_level;
  }
  (*json)["FreshRuns"] = version->fresh;
  (*json)["ValueSegments"] = store.garbage().segments();
  (*json)["ValueGarbageBytes"] = store.garbage().garbage_bytes();
  DescribeWork(store.metrics(), json);
  DescribeLongest(counts, json);
}

}  // namespace farleaf::ycsb
