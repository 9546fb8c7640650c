// CopiedTables: tables that come to a copy, until an edit names them.
//
// A table's segments come in any order, each from its front on, and perhaps not at all: Missing says what is to be sent again. When an edit is to
// name it, a table is checked (table_check.h), one segment at a time; what is damaged is forgotten, so that it is missing from then on.
//
// What is checked is what was written: each chunk is copied to a buffer of CheckMemory, and written from there. (From the buffer that it came in it might be
// written as something else than was copied: others write there.) Where there is no buffer, and behind a chunk that came before there was one, the segment is read
// back. What the device makes of bytes that it took, and a Sync confirmed, later reads find out, at a copy as at the primary: each block has its checksum.
//
// What it costs: a copy or a read of the table, and a pass of CRC32C: 0.11 to 0.18 ns a byte, where building the same tables of 100-byte values, without the reads,
// decoding and comparisons of a merge, takes 1.6 (uncompressed) to 5.5 ns (LZ4) (2 virtual cores, shared; 456 MB in test/unit/lsm_store_copy_test.cc).
//
// Thread rule: one worker, one call at a time.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "dsm/base/status.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/background_io.h"
#include "index/lsm/check_memory.h"
#include "index/lsm/table_info.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

/// Of a segment, as it is sent.
struct SegmentChunk {
  SegmentId segment = SegmentId::kNone;
  uint32_t offset = 0;  ///< multiple of kBlockBytes
  std::span<const std::byte> bytes =
      {};  ///< whole blocks, of any alignment; stay until the call ends
};

/// InvalidArgument: it is no part of a segment, or not of whole blocks.
Status CheckChunk(const SegmentChunk& chunk);

/// Segments that are written by chunks. REQUIRES of all calls: no other one holds the segment.
class CopiedSegments {
 public:
  explicit CopiedSegments(storage::Storage* storage) : storage_(storage) {}

  /// Chunks come in order; one that begins in front of what is there replaces it, at 0 all of it. NotFound: one before it did not come.
  dsm::Task<Status> Write(dsm::Worker& worker, SegmentChunk chunk);
  /// Zeros from there to the segment's end.
  dsm::Task<Status> FillUp(dsm::Worker& worker, SegmentId segment);
  /// Something of it was begun, perhaps nothing written.
  bool contains(SegmentId segment) const { return written_.contains(segment); }
  /// [0, n) was written; 0: it is not there.
  uint32_t written(SegmentId segment) const;
  void Forget(SegmentId segment) { written_.erase(segment); }
  void ForgetAll() { written_.clear(); }
  size_t count() const { return written_.size(); }

 private:
  dsm::Task<Status> Begin(dsm::Worker& worker, SegmentId segment);

  storage::Storage* const storage_;
  std::map<SegmentId, uint32_t> written_;
  IoBuffer aligned_;  // for chunks that are not
};

class CopiedTables {
 public:
  struct Counts {
    uint64_t bytes_received = 0;
    uint64_t verified = 0, verified_bytes = 0;
    uint64_t read_back_bytes = 0;  ///< of them, from the storage
    uint64_t verifying_ns = 0;     ///< without the reads
  };

  explicit CopiedTables(storage::Storage* storage) : storage_(storage), segments_(storage) {}
  CopiedTables(const CopiedTables&) = delete;
  ~CopiedTables() { ForgetAll(); }

  /// Nothing is read back that has room there. Once, before the first Write.
  void HoldIn(CheckMemory* memory) { memory_ = memory; }
  dsm::Task<Status> Write(dsm::Worker& worker, SegmentChunk chunk);
  /// Of the table's segments those that are not whole.
  std::vector<SegmentId> Missing(const TableInfo& table) const;
  /// Ok: what was written is the table. Corruption: names segment and offset, which is missing now. REQUIRES: nothing is missing.
  dsm::Task<Status> Verify(dsm::Worker& worker, const TableInfo& table);
  /// An edit names it, or nobody will.
  void Forget(SegmentId segment);
  void ForgetAll();

  const Counts& counts() const { return counts_; }
  /// Segments that no edit has named yet.
  size_t pending() const { return segments_.count(); }
  bool is_pending(SegmentId segment) const { return segments_.contains(segment); }

 private:
  /// The chunk, in the segment's buffer: that it is written from there. As it is: it has none. REQUIRES: CheckChunk's Ok.
  SegmentChunk Hold(SegmentChunk chunk);
  void LetGo(SegmentId segment);
  dsm::Task<Status> BytesOf(dsm::Worker& worker, SegmentId segment, uint32_t bytes,
                            std::span<std::byte>* found);

  storage::Storage* const storage_;
  CheckMemory* memory_ = nullptr;  // null: all is read back
  CopiedSegments segments_;
  std::map<SegmentId, IoBuffer> held_;  // [0, written) of each is what was written
  IoBuffer bytes_;                      // of the segment that is read back
  Counts counts_;
};

/// Each is durable; the first failure, which `failed` gets all segments of, if it is not null.
dsm::Task<Status> SyncSegments(dsm::Worker& worker, storage::Storage& storage,
                               std::vector<SegmentId> segments,
                               std::vector<SegmentId>* failed = nullptr);

}  // namespace farleaf::index::lsm
