// TableStream: all entries of a table in order, for merges: past the cache, by large reads, the next one in flight while this one
// is consumed.
//
//   for (;;) {
//     const CursorStep step = stream.Next();
//     if (step == CursorStep::kMissing) { Status read = co_await stream.Read(worker, cache); ...; continue; }
//
// Blocks are taken as they come, and checked. Leaves are numbered, so that one that is lost (a write that never reached
// the device) is an error, and not a gap.
//
// Thread rule: one worker. Before it goes, kEnd, a failure of Read, or Close has ended.
#pragma once

#include <cstdint>
#include <string>

#include "dsm/base/status.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/background_io.h"
#include "index/lsm/leaf_reader.h"
#include "index/lsm/table.h"
#include "index/lsm/table_cursor.h"

namespace farleaf::index::lsm {

class TableStream {
 public:
  static constexpr uint32_t kExtentBytes = uint32_t{512} << 10;

  /// From the first entry whose key is not below `from`; empty: from the first of all. The table outlives the stream. `extent_bytes`: a
  /// divisor of storage::kSegmentBytes, and a multiple of storage::kBlockBytes.
  explicit TableStream(const Table* table, std::string from = {},
                       uint32_t extent_bytes = kExtentBytes);
  TableStream(const TableStream&) = delete;

  /// kMissing: Read is to be awaited.
  CursorStep Next() {
    if (index_ < count_) [[likely]] {
      reader_.Read(*table_, index_++, &entry_);
      return CursorStep::kEntry;
    }
    return NextLeaf();
  }
  /// Its views hold until the next step, or Read. REQUIRES: the last step was kEntry.
  const Entry& entry() const { return entry_; }

  /// What Next lacks. The cache is asked only for the way to the first leaf. Failures, Corruption with segment and offset among them,
  /// are for good.
  dsm::Task<Status> Read(dsm::Worker& worker, BlockCache& cache);
  /// Waits for what is in flight.
  dsm::Task<void> Close(dsm::Worker& worker);

 private:
  /// What comes next behind at_.
  enum class Found : uint8_t { kLeaf, kNothing, kMissing };

  CursorStep NextLeaf();
  Found FindLeaf();
  bool SkipPadding();
  bool EnterLeaf(std::span<const std::byte> stored);
  dsm::Task<Status> FindStart(dsm::Worker& worker, BlockCache& cache);
  void StartRead(dsm::Worker& worker);
  Found Fail(std::string_view what);
  const std::byte* memory(uint64_t at) const { return buffer_.data() + kFront + (at - extent_at_); }

  /// In front of an extent, for the end of the one before it: a block may be in both.
  static constexpr size_t kFront = kRawBytesMax;

  const Table* const table_;
  const std::string from_;
  const uint32_t extent_bytes_;
  bool started_ = false;
  Status failure_;

  uint64_t at_ = 0;         // of the next block, in the table
  uint32_t next_leaf_ = 0;  // its number
  IoBuffer buffer_;         // kFront, and an extent
  IoBuffer spare_;          // likewise, for the next one
  uint64_t extent_at_ = 0;  // where it begins
  uint64_t end_ = 0;        // up to there there are bytes
  uint64_t reading_ = 0;    // bytes behind end_ that are in flight
  BackgroundIo io_;

  IoBuffer unpacked_;  // a leaf that was compressed
  LeafReader reader_;
  uint32_t index_ = 0, count_ = 0;
  Entry entry_;
};

}  // namespace farleaf::index::lsm
