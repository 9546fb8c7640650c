// What a target that keeps its data in a directory is told by its name: ENGINE:DIR?NAME=VALUE&….
//
// One option means the same for every engine that has it, so that a comparison gives all of them the same budgets.
//
// Thread rule: value types and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dsm/base/result.h"

namespace farleaf::ycsb {

/// kLsm is this project's own; kReplicated: the same with backups.
enum class StoreEngine : uint8_t { kRocksDb, kBlobDb, kLsm, kReplicated };
/// "rocksdb", "blobdb", "lsm", "replicated".
std::string_view StoreEngineName(StoreEngine engine);

enum class StoreCompression : uint8_t { kNone, kLz4, kZstd };

/// kNone: no backups. kSend: they are sent tables (Send-Index). kBuild: they make their own (Build-Index).
enum class ReplicationMode : uint8_t { kNone, kSend, kBuild };
std::string_view ReplicationModeName(ReplicationMode mode);

enum class StoreDurability : uint8_t { kLocal, kReplicated, kSynced };

/// How a primary reaches its backups' memory. kShm: it is mapped, and whoever WRITEs copies.
enum class ReplicationFabric : uint8_t { kTcp, kShm };

struct StoreOptions {
  StoreEngine engine = StoreEngine::kRocksDb;
  std::string directory;
  // Of every engine:
  /// All that is cached of what is on disk: data, index and filter blocks, separated values. Not the memtables.
  uint64_t cache_mb = 256;
  /// A memtable of this size is flushed; two of them may be in memory beside the cache.
  uint64_t memtable_mb = 64;
  uint64_t growth = 8;        ///< of a level's target over the one's above
  bool sync = false;          ///< a write is acknowledged when it is on the device
  uint64_t flush_ms = 1000;   ///< the longest that a write is in this process's memory only
  bool direct = true;         ///< reads, flushes and compactions pass by the page cache
  uint64_t filter_bits = 10;  ///< of Bloom filters, a key
  uint64_t block_kb = 4;
  StoreCompression compression = StoreCompression::kNone;
  uint64_t compaction_threads = 1;  ///< beside one that flushes
  // Of some:
  uint64_t separation_bytes = 512;  ///< values of this size and more are kept apart from keys
  bool blind =
      true;  ///< Farleaf's: writes look at nothing, as RocksDB's; false: they tell what was there
  bool wal = true;              ///< false: what is in memtables is lost with the process
  bool dynamic_levels = true;   ///< targets of levels are derived from the last one's size
  uint64_t readahead_kb = 0;    ///< of scans; 0: RocksDB's automatic one
  bool blob_collection = true;  ///< of blob files, as they are compacted
  uint64_t backups = 1;         ///< none with ReplicationMode::kNone, whatever it says
  ReplicationMode mode = ReplicationMode::kSend;
  StoreDurability durability = StoreDurability::kReplicated;
  ReplicationFabric fabric = ReplicationFabric::kTcp;
  bool collect = true;  ///< garbage of the value log; never with ReplicationMode::kBuild
};

/// `text` is what stands behind "ENGINE:". InvalidArgument names the option, its value and what is allowed.
Result<StoreOptions> ParseStoreOptions(StoreEngine engine, std::string_view text);

}  // namespace farleaf::ycsb
