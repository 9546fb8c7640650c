// CopiedLogs: the segments of a copy's logs that are being filled. Their bytes come to be in buffers that somebody else writes into at any
// time (server/replication), and go to the storage when a segment is full, when a Sync asks for it, or at a promotion.
//
// Of a buffer [0, n) is read only if the caller says that n bytes are there: these change no more. Of the block that holds the end a copy is
// written, with zeros behind: whoever collects values takes anything else there for damage (store_collect.cc).
//
// A Sync that fails may have lost what was written since the last one (storage.h, 8). Of an open segment the buffer has it still, and it is
// written again. Of a sealed one nothing has: then the copy has failed for good, as a log does (log_format.md).
//
// Thread rule: one worker; one call at a time, but for Forget and the observers, which may come while one is under way.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "dsm/base/status.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/log_buffer.h"
#include "index/lsm/mirror.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

/// Of open segments: how many bytes, from the front, are known to be in their buffers.
using OpenBytes = std::map<SegmentId, uint32_t>;

class CopiedLogs {
 public:
  explicit CopiedLogs(storage::Storage* storage) : storage_(storage) {}

  /// Makes the segment, in place of one that nobody needs. `buffer`: kSegmentBytes, aligned to kBlockBytes; stays until Seal was Ok or Forget
  /// was called, and the call that was under way has ended.
  dsm::Task<Status> Open(dsm::Worker& worker, LogKind log, SegmentId segment,
                         std::span<std::byte> buffer);
  /// Writes [0, used): it is open no more. REQUIRES: is_open.
  dsm::Task<Status> Seal(dsm::Worker& worker, SegmentId segment, uint32_t used);
  /// Until all that is in sealed segments, and of open ones as much as `bytes` says, is durable. Segments that are not open are passed over.
  dsm::Task<Status> Sync(dsm::Worker& worker, SyncReach reach, OpenBytes bytes);
  /// Seals all with whatever whole records there are, up to the first gap, and zeros behind; and syncs. REQUIRES: nobody writes into the
  /// buffers any more.
  dsm::Task<Status> Finish(dsm::Worker& worker, uint64_t epoch);
  /// It was dropped.
  void Forget(SegmentId segment);
  void ForgetAll();

  bool is_open(SegmentId segment) const { return open_.contains(segment); }
  struct Buffer {
    LogKind log;
    std::span<const std::byte> bytes;
  };
  /// Of an open segment; nullopt: it is none.
  std::optional<Buffer> Find(SegmentId segment) const {
    const auto found = open_.find(segment);
    if (found == open_.end()) return std::nullopt;
    return Buffer{found->second.log, found->second.buffer};
  }
  std::vector<SegmentId> open() const;
  /// Sealed, and perhaps not durable.
  const std::map<SegmentId, LogKind>& unsynced() const { return unsynced_; }
  /// Why the copy is none any more; Ok: it is.
  const Status& failure() const { return failure_; }
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  struct OpenSegment {
    LogKind log;
    std::span<std::byte> buffer;
    uint32_t written = 0;  ///< [0, written) was written
    uint32_t synced = 0;   ///< [0, synced) is durable
  };
  struct PlannedWrite {
    SegmentId segment;
    uint32_t end;
    size_t first_io, ios;
  };
  void PlanWrite(SegmentId segment, uint32_t end);
  dsm::Task<Status> RunWrites(dsm::Worker& worker);
  dsm::Task<Status> RunSyncs(dsm::Worker& worker, SyncReach reach);
  void NoteSync(const storage::Io& io, uint32_t written);

  storage::Storage* const storage_;
  std::map<SegmentId, OpenSegment> open_;
  std::map<SegmentId, LogKind> unsynced_;
  Status failure_;
  uint64_t bytes_received_ = 0;
  // Of the call that is under way:
  std::vector<storage::Io> ios_;
  std::vector<PlannedWrite> plan_;
  std::vector<AlignedBytes> last_blocks_;
};

}  // namespace farleaf::index::lsm
