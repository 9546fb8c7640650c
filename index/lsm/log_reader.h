// Reading logs back: one value, or a whole segment in the order of its records.
//
// Nothing is believed without its checksum; a value also names its key.
// Thread rule: as the coroutines say.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dsm/base/result.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/log_buffer.h"
#include "index/lsm/log_record.h"

namespace farleaf::index::lsm {

/// The blocks that hold a record: what a read of it has to bring.
struct RecordBlocks {
  uint32_t offset, bytes;
};
inline RecordBlocks BlocksOf(const ValuePointer& pointer) {
  const uint32_t from = pointer.offset / storage::kBlockBytes * storage::kBlockBytes;
  const auto to =
      static_cast<uint32_t>(RoundUp(pointer.offset + pointer.bytes, storage::kBlockBytes));
  return {from, to - from};
}

/// The value of `key` in the bytes of its record. Nothing: they are not that record.
std::optional<std::string_view> ParseValueAt(std::span<const std::byte> record, uint64_t epoch,
                                             const ValuePointer& pointer, std::string_view key);

/// Reads it from the storage. Corruption: names the segment and the offset.
dsm::Task<Result<std::string>> ReadValue(dsm::Worker& worker, storage::Storage& storage,
                                         uint64_t epoch, ValuePointer pointer,
                                         std::string_view key);

/// Where the next record begins that is whole; the segment's end: there is none.
uint32_t NextWholeRecord(uint32_t seed, uint32_t offset, std::span<const std::byte> segment);

/// One segment after another, each read as a whole.
class SegmentReader {
 public:
  SegmentReader(storage::Storage* storage, uint64_t epoch) : storage_(storage), epoch_(epoch) {}

  /// Reads the segment's head only. Nothing: there is no such segment, or no head in it.
  dsm::Task<Result<std::optional<LogHead>>> ReadHead(dsm::Worker& worker, SegmentId id);
  /// Reads all of it; Next begins with its head. NotFound: there is no such segment.
  dsm::Task<Status> Load(dsm::Worker& worker, SegmentId id);
  /// The next record; nothing behind the last one that is whole. Valid until the next Load.
  std::optional<LogRecord> Next();
  /// Behind the records that Next has given.
  uint32_t offset() const { return offset_; }
  /// The segment, as it was loaded.
  std::span<const std::byte> bytes() const { return bytes_.span(); }

 private:
  storage::Storage* storage_;
  uint64_t epoch_;
  AlignedBytes bytes_{storage::kSegmentBytes};
  uint32_t seed_ = 0, offset_ = storage::kSegmentBytes;
};

}  // namespace farleaf::index::lsm
