// WaryCursor: the entries of a table, less those in blocks that cannot be read.
//
// Thread rule: one worker.
#pragma once

#include "index/lsm/table_cursor.h"
#include "index/lsm/version.h"

namespace farleaf::index::lsm {

/// Whether a read has failed for good, or until the device is mended.
inline bool IsUnreadable(const Status& status) {
  return status.code() == StatusCode::kCorruption || status.code() == StatusCode::kIoError ||
         status.code() == StatusCode::kNotFound;
}

class WaryCursor {
 public:
  /// The cache outlives it.
  WaryCursor(TableRef ref, BlockCache* cache)
      : ref_(std::move(ref)), cache_(cache), cursor_(&ref_.file->table(), cache) {}

  /// On to the next entry; at first, to the first one that counts. Fails only if it may be read some other time.
  dsm::Task<Status> Next(dsm::Worker& worker);
  bool ended() const { return ended_; }
  /// Good until Next. REQUIRES: has not ended.
  const Entry& entry() const { return cursor_.entry(); }
  /// Why something in front of this entry, and behind the last one, could not be read; Ok: all was.
  const Status& lost() const { return lost_; }

 private:
  const TableRef ref_;
  BlockCache* const cache_;
  TableCursor cursor_;
  bool begun_ = false, ended_ = false;
  Status lost_;
};

}  // namespace farleaf::index::lsm
