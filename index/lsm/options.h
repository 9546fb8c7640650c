// Options of an LSM store: of the process, unless it says that the format hangs on it.
//
// Thread rule: a value type.
#pragma once

#include <algorithm>
#include <cstdint>

#include "dsm/base/status.h"

namespace farleaf::index::lsm {

/// What an acknowledged write promises.
enum class Durability : uint8_t {
  /// Survives the end of the process only as far as the logs were flushed: by size, or `flush_ms` later. A power loss takes all
  /// since the last flush of a memtable, as nothing is synced before.
  kLocal,
  kSynced,  ///< survives a power loss, of all replicas
  /// Is in the memory of every replica (mirror.h), and survives the end of all but one of their processes; where there is one replica only, it is on
  /// its disk. A power loss of several takes what it takes of `local`.
  kReplicated,
};

enum class Compression : uint8_t { kNone = 0, kLz4 = 1, kZstd = 2 };

struct LsmOptions {
  Durability durability = Durability::kLocal;
  /// The longest that a `local` write stays in memory only. 1..60000.
  uint64_t flush_ms = 1000;
  /// A memtable of this size is flushed; two of them may be in memory. 1 MiB..4 GiB.
  uint64_t memtable_bytes = uint64_t{64} << 20;
  /// What has been in the memtable for this long is flushed, however little it is: so what only tables are read of (copy_reader.h) is no older than that, and
  /// what the flush takes. Looked at 10 times a second. 0: never. 10..3600000.
  uint64_t flush_memtable_ms = 0;
  /// Each level's target is this many times that of the one above. 4..16.
  uint32_t growth_factor = 8;
  /// Values of this size and more go to the value log; 1: tables hold keys and pointers only. 1..65536.
  uint32_t value_separation_bytes = 512;
  /// Blocks of tables and of the value log. 1 MiB and more.
  uint64_t cache_bytes = uint64_t{256} << 20;
  /// Target of leaves and inner nodes. 4096..65536, a multiple of 4096.
  uint32_t block_bytes = 4096;
  /// A table is ended at this size. 4 MiB..1 GiB.
  uint64_t table_bytes_max = uint64_t{32} << 20;
  /// Of Bloom filters; 0: none. 0..20.
  uint32_t filter_bits_per_key = 10;
  /// Of leaves.
  Compression compression = Compression::kNone;
  /// Full log segments waiting to be written, of both logs together, before writers wait. 2..64.
  uint32_t log_buffers_max = 8;
  /// A value-log segment is collected when this share of it is garbage. 0.05..0.95.
  double collect_above = 0.5;
  /// False: no segment is, and nobody waits for it.
  bool collect_values = true;
  /// Writers wait while more than this share of the value log is known garbage (or than `collect_above`, if that is more), and are
  /// delayed a little near it. 0.1..0.95.
  double garbage_max = 0.6;
  /// Segments (2 MiB) that are kept for flushes, merges, collection and deletes on a device that is full: as many as these may need for what is
  /// there, and no more than this. 0..65536; with less than is needed a full store may need room from outside.
  uint64_t reserve_segments_max = 4096;
  /// Threads that merge. 1..16.
  uint32_t compaction_threads = 1;

  Status Validate() const;
  /// Of `garbage_max`, and of what collection needs to find something to do.
  double garbage_limit() const { return std::max(garbage_max, collect_above); }
};

}  // namespace farleaf::index::lsm
