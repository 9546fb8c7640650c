// What has expired, or was deleted by a range, and is to be got rid of though nobody writes (store_reclaim.cc): functions of a version, of
// a memtable, and of time.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "index/lsm/version.h"

namespace farleaf::index::lsm {

/// A table of which enough is dead: half of the bytes that it holds and names have expired; or a range delete of a newer run covers all of
/// it; or there is nothing behind it, and half of its entries are deletions.
struct DeadTable {
  RunPlace place;
  TableId table = SegmentId::kNone;
  bool whole =
      false;  ///< nobody sees anything of it, nor anything else that it hides: it goes without being read
};

struct ReclaimPlan {
  uint64_t now_ms = 0;             ///< since 1970: what had expired by then has for all who read
  std::optional<Sequence> oldest;  ///< of the open snapshots; nullopt: there is none
  uint64_t memtable_bytes = 0;
  uint32_t levels_passed = 0;       ///< bit: nothing of this level, now
  std::set<TableId> tables_passed;  ///< nor these

  /// The deepest first, so that what is above finds nothing below: tables of up to kReadBytes together, or one, and up to kWholeMax that are
  /// not read. Not those of sinking runs, which are being merged, nor those that are kept.
  std::vector<DeadTable> DeadTables(const Version& version) const;
  /// Whether enough of the memtable has expired, or enough of the tables is deleted by its ranges. `idle`: nobody has written to it lately.
  bool FlushPays(const Memtable& memtable, const Version& version, bool idle) const;

  /// Whether a table of this run is one. REQUIRES, for what is gone as a whole: the snapshots were looked at behind the version.
  std::optional<DeadTable> LookAt(const Version& version, size_t run, const TableRef& ref) const;

  /// Of a look.
  static constexpr uint64_t kReadBytes = uint64_t{64} << 20;
  static constexpr size_t kWholeMax = 256;
};

}  // namespace farleaf::index::lsm
