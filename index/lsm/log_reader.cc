#include "index/lsm/log_reader.h"

namespace farleaf::index::lsm {

using storage::Io;
using storage::IoKind;
using storage::kBlockBytes;
using storage::kSegmentBytes;

std::optional<std::string_view> ParseValueAt(std::span<const std::byte> record, uint64_t epoch,
                                             const ValuePointer& pointer, std::string_view key) {
  if (record.size() < pointer.bytes) return std::nullopt;
  const auto parsed = ParseLogRecord(SegmentSeed(epoch, pointer.segment), pointer.offset,
                                     record.first(pointer.bytes));
  if (!parsed || parsed->bytes() != pointer.bytes) return std::nullopt;
  const auto value = ParseValueRecord(*parsed);
  if (!value || value->key != key || value->value.size() != pointer.value_bytes) {
    return std::nullopt;
  }
  return value->value;
}

dsm::Task<Result<std::string>> ReadValue(dsm::Worker& worker, storage::Storage& storage,
                                         uint64_t epoch, ValuePointer pointer,
                                         std::string_view key) {
  const RecordBlocks blocks = BlocksOf(pointer);
  if (uint64_t{pointer.offset} + pointer.bytes > kSegmentBytes) {
    co_return Status::Corruption("a pointer behind the end of " + storage.NameOf(pointer.segment));
  }
  AlignedBytes bytes(blocks.bytes);
  Io io{IoKind::kRead, pointer.segment, blocks.offset, bytes.span()};
  Status status = co_await storage.Run(worker, {&io, 1});
  if (!status.ok()) co_return status;
  const auto value =
      ParseValueAt(bytes.span().subspan(pointer.offset - blocks.offset), epoch, pointer, key);
  if (!value) {
    co_return Status::Corruption(storage.NameOf(pointer.segment) + ": no record of the key's at " +
                                 std::to_string(pointer.offset));
  }
  co_return std::string(*value);
}

uint32_t NextWholeRecord(uint32_t seed, uint32_t offset, std::span<const std::byte> segment) {
  while (offset < segment.size() && !ParseLogRecord(seed, offset, segment.subspan(offset))) {
    ++offset;
  }
  return offset;
}

dsm::Task<Result<std::optional<LogHead>>> SegmentReader::ReadHead(dsm::Worker& worker,
                                                                  SegmentId id) {
  using Head = std::optional<LogHead>;
  Io io{IoKind::kRead, id, 0, bytes_.span().first(kBlockBytes)};
  Status status = co_await storage_->Run(worker, {&io, 1});
  offset_ = kSegmentBytes;
  if (status.code() == StatusCode::kNotFound) co_return Head();
  if (!status.ok()) co_return status;
  const auto record = ParseLogRecord(SegmentSeed(epoch_, id), 0, bytes_.span().first(kBlockBytes));
  co_return record ? ParseLogHead(*record) : Head();
}

dsm::Task<Status> SegmentReader::Load(dsm::Worker& worker, SegmentId id) {
  Io io{IoKind::kRead, id, 0, bytes_.span()};
  Status status = co_await storage_->Run(worker, {&io, 1});
  seed_ = SegmentSeed(epoch_, id);
  offset_ = status.ok() ? 0 : kSegmentBytes;
  co_return status;
}

std::optional<LogRecord> SegmentReader::Next() {
  const auto record = ParseLogRecord(seed_, offset_, bytes_.span().subspan(offset_));
  if (record) offset_ += record->bytes();
  return record;
}

}  // namespace farleaf::index::lsm
