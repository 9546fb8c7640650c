// Table: an immutable B+-tree in segments of its own, as TableBuilder wrote it.
//
// A lookup works on what the cache holds, and says which block it lacks; its driver fetches that, keeps it pinned, and looks again:
//
//   std::vector<BlockCache::Handle> pins;  // so that each turn gets further, whatever the cache puts out meanwhile
//   for (;;) {
//     const Table::Outcome outcome = table.Find(cache, key, snapshot, &found);
//     if (outcome != Table::Outcome::kMissing) break;
//     Result<BlockCache::Handle> pin = co_await table.Fetch(worker, cache, found.missing);
//     if (!pin.ok()) co_return pin.status();
//     pins.push_back(std::move(*pin));
//   }
//
// It costs at most one turn a level: root, perhaps one more, the level-1 node with its filter, the leaf.
//
// Thread rule: immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/block.h"
#include "index/lsm/block_cache.h"
#include "index/lsm/table_info.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

/// A key that is looked up, hashed once for all tables.
struct LookupKey {
  explicit LookupKey(std::string_view of) : key(of), hash(HashKey(of)) {}
  std::string_view key;
  uint64_t hash;
};

/// A block that the cache lacks.
struct MissingBlock {
  BlockPlace place;
  uint8_t level = 0;
};

class Table;
struct BlockOfTable {
  const Table* table = nullptr;
  MissingBlock block;
};

class Table {
 public:
  /// `storage` outlives the table.
  Table(storage::Storage* storage, TableInfo info) : storage_(storage), info_(std::move(info)) {}

  const TableInfo& info() const { return info_; }
  storage::Storage* storage() const { return storage_; }

  enum class Outcome : uint8_t { kFound, kAbsent, kMissing };
  struct Found {
    Entry entry;             ///< kFound: its key is that of the lookup, its value is in `pin`
    BlockCache::Handle pin;  ///< kFound
    MissingBlock missing;    ///< kMissing
  };
  /// The newest version of the key that is not newer than `snapshot`.
  Outcome Find(BlockCache& cache, const LookupKey& key, Sequence snapshot, Found* found,
               BlockUse use = BlockUse::kAgain) const;

  /// Reads, checks and caches a block that was missing. Corruption names segment and offset.
  dsm::Task<Result<BlockCache::Handle>> Fetch(dsm::Worker& worker, BlockCache& cache,
                                              MissingBlock missing,
                                              BlockUse use = BlockUse::kAgain) const;
  /// Several, by one Run of the storage. `pins` gets a handle for each. REQUIRES: no block twice.
  dsm::Task<Status> FetchAll(dsm::Worker& worker, BlockCache& cache,
                             std::span<const MissingBlock> missing,
                             std::vector<BlockCache::Handle>& pins,
                             BlockUse use = BlockUse::kAgain) const;

  /// Of several tables of one storage, likewise.
  static dsm::Task<Status> FetchAll(dsm::Worker& worker, BlockCache& cache,
                                    std::span<const BlockOfTable> missing,
                                    std::vector<BlockCache::Handle>& pins,
                                    BlockUse use = BlockUse::kAgain);

  // For cursors.
  BlockCache::Key KeyOf(const BlockPlace& place) const {
    return {info_.segments[place.segment_index()], place.offset()};
  }
  /// The block, if the cache has it.
  BlockCache::Handle Lookup(BlockCache& cache, const MissingBlock& block, BlockUse use) const;
  BlockLimits Limits(uint8_t level) const {
    return {
        .level = level, .table_bytes = info_.bytes, .dictionary_count = info_.dictionary.size()};
  }
  /// All but the key.
  void Resolve(const PackedEntry& packed, Entry* entry) const;
  Status Corrupt(uint64_t at, std::string_view what) const;

 private:
  class Unpacker;
  storage::Storage* storage_;
  TableInfo info_;
};

}  // namespace farleaf::index::lsm
