#include "index/lsm/copied_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "dsm/base/bytes.h"
#include "index/lsm/log.h"
#include "index/lsm/table_check.h"

namespace farleaf::index::lsm {

using storage::Io;
using storage::IoKind;
using storage::kBlockBytes;
using storage::kSegmentBytes;

namespace {

/// Zeros are written so many at a time.
constexpr uint32_t kZerosBytes = 256 << 10;

bool IsAligned(std::span<const std::byte> bytes) {
  return reinterpret_cast<uintptr_t>(bytes.data()) % kBlockBytes == 0;
}

}  // namespace

Status CheckChunk(const SegmentChunk& chunk) {
  const uint64_t end = uint64_t{chunk.offset} + chunk.bytes.size();
  if (chunk.segment != SegmentId::kNone && chunk.offset % kBlockBytes == 0 &&
      chunk.bytes.size() % kBlockBytes == 0 && end <= kSegmentBytes) {
    return Status::Ok();
  }
  return Status::InvalidArgument(fmt::format("{} bytes at offset {} are no part of segment {}",
                                             chunk.bytes.size(), chunk.offset,
                                             Number(chunk.segment)));
}

uint32_t CopiedSegments::written(SegmentId segment) const {
  const auto found = written_.find(segment);
  return found == written_.end() ? 0 : found->second;
}

dsm::Task<Status> CopiedSegments::Begin(dsm::Worker& worker, SegmentId segment) {
  written_.erase(segment);
  Status created = co_await storage_->Create(worker, segment, {});
  if (created.code() == StatusCode::kAlreadyExists) {
    FARLEAF_CO_RETURN_IF_ERROR(storage_->Remove(segment));
    created = co_await storage_->Create(worker, segment, {});
  }
  if (created.ok()) written_[segment] = 0;
  co_return created;
}

dsm::Task<Status> CopiedSegments::Write(dsm::Worker& worker, SegmentChunk chunk) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckChunk(chunk));
  if (chunk.offset == 0) {
    Status begun = co_await Begin(worker, chunk.segment);
    if (!begun.ok()) co_return begun;
  }
  if (!written_.contains(chunk.segment) || chunk.offset > written(chunk.segment)) {
    co_return Status::NotFound(
        fmt::format("{}: bytes in front of offset {} did not come: send it anew",
                    storage_->NameOf(chunk.segment), chunk.offset));
  }
  written_[chunk.segment] = chunk.offset;
  std::span<std::byte> bytes(const_cast<std::byte*>(chunk.bytes.data()), chunk.bytes.size());
  if (!IsAligned(chunk.bytes)) {
    if (aligned_.size() < bytes.size()) aligned_ = IoBuffer(bytes.size());
    std::memcpy(aligned_.data(), bytes.data(), bytes.size());
    bytes = aligned_.span().first(bytes.size());
  }
  if (bytes.empty()) co_return Status::Ok();
  Io io{IoKind::kWrite, chunk.segment, chunk.offset, bytes};
  Status status = co_await storage_->Run(worker, {&io, 1});
  if (status.ok()) written_[chunk.segment] = chunk.offset + static_cast<uint32_t>(bytes.size());
  co_return status;
}

dsm::Task<Status> CopiedSegments::FillUp(dsm::Worker& worker, SegmentId segment) {
  if (written(segment) == kSegmentBytes) co_return Status::Ok();
  IoBuffer zeros(kZerosBytes);
  std::memset(zeros.data(), 0, zeros.size());
  for (uint32_t at = written(segment); at < kSegmentBytes; at = written(segment)) {
    const SegmentChunk chunk{segment, at,
                             zeros.span().first(std::min(kZerosBytes, kSegmentBytes - at))};
    Status status = co_await Write(worker, chunk);
    if (!status.ok()) co_return status;
  }
  co_return Status::Ok();
}

SegmentChunk CopiedTables::Hold(SegmentChunk chunk) {
  if (memory_ == nullptr) return chunk;
  auto found = held_.find(chunk.segment);
  if (found == held_.end()) {
    if (chunk.offset != 0) return chunk;
    IoBuffer buffer = memory_->Take();
    if (buffer.size() == 0) return chunk;
    found = held_.emplace(chunk.segment, std::move(buffer)).first;
  }
  const auto to = found->second.span().subspan(chunk.offset, chunk.bytes.size());
  std::memcpy(to.data(), chunk.bytes.data(), to.size());
  return {chunk.segment, chunk.offset, to};
}

void CopiedTables::LetGo(SegmentId segment) {
  auto held = held_.extract(segment);
  if (!held.empty()) memory_->Give(std::move(held.mapped()));
}

void CopiedTables::Forget(SegmentId segment) {
  segments_.Forget(segment);
  LetGo(segment);
}

void CopiedTables::ForgetAll() {
  segments_.ForgetAll();
  while (!held_.empty()) LetGo(held_.begin()->first);
}

dsm::Task<Status> CopiedTables::Write(dsm::Worker& worker, SegmentChunk chunk) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckChunk(chunk));
  Status status = co_await segments_.Write(worker, Hold(chunk));
  if (status.ok()) counts_.bytes_received += chunk.bytes.size();
  co_return status;
}

std::vector<SegmentId> CopiedTables::Missing(const TableInfo& table) const {
  std::vector<SegmentId> missing;
  for (size_t i = 0; i < table.segments.size(); ++i) {
    const uint32_t written = segments_.written(table.segments[i]);
    if (written == 0 || written < TableBytesIn(table, i)) missing.push_back(table.segments[i]);
  }
  return missing;
}

dsm::Task<Status> CopiedTables::BytesOf(dsm::Worker& worker, SegmentId segment, uint32_t bytes,
                                        std::span<std::byte>* found) {
  const auto held = held_.find(segment);
  if (held != held_.end()) {
    *found = held->second.span().first(bytes);
    co_return Status::Ok();
  }
  if (bytes_.size() == 0) bytes_ = IoBuffer(kSegmentBytes);
  *found = bytes_.span().first(bytes);
  if (bytes == 0) co_return Status::Ok();
  Io io{IoKind::kRead, segment, 0, *found};
  counts_.read_back_bytes += bytes;
  Status read = co_await storage_->Run(worker, {&io, 1});
  co_return read;
}

dsm::Task<Status> CopiedTables::Verify(dsm::Worker& worker, const TableInfo& table) {
  const Counts before = counts_;
  TableCheck check(&table);
  std::optional<TableCheck::Damage> damage;
  for (size_t i = 0; i < table.segments.size() && !damage; ++i) {
    std::span<std::byte> bytes;
    Status read = co_await BytesOf(worker, table.segments[i], TableBytesIn(table, i), &bytes);
    if (!read.ok()) co_return read;
    const uint64_t begun_ns = worker.clock().NowNs();
    damage = check.Next(bytes);
    counts_.verifying_ns += worker.clock().NowNs() - begun_ns;
    counts_.verified_bytes += bytes.size();
  }
  if (!damage) damage = check.End();
  if (memory_ != nullptr) {
    memory_->Checked({.checked_bytes = counts_.verified_bytes - before.verified_bytes,
                      .read_back_bytes = counts_.read_back_bytes - before.read_back_bytes,
                      .checking_ns = counts_.verifying_ns - before.verifying_ns});
  }
  if (damage) {
    const size_t last = table.segments.size() - 1;
    const SegmentId segment = table.segments[std::min(damage->segment_index, last)];
    Forget(segment);
    co_return Status::Corruption(
        fmt::format("{} at offset {}: {}: it was damaged on its way; send it anew",
                    storage_->NameOf(segment), damage->offset, damage->what));
  }
  ++counts_.verified;
  co_return Status::Ok();
}

dsm::Task<Status> SyncSegments(dsm::Worker& worker, storage::Storage& storage,
                               std::vector<SegmentId> segments, std::vector<SegmentId>* failed) {
  Status first;
  for (size_t at = 0; at < segments.size(); at += kSyncsAtOnce) {
    std::vector<Io> syncs;
    for (size_t i = at; i < std::min(at + kSyncsAtOnce, segments.size()); ++i) {
      syncs.push_back(Io{IoKind::kSync, segments[i]});
    }
    Status status = co_await storage.Run(worker, syncs);
    if (first.ok()) first = status;
    for (const Io& io : syncs) {
      if (!io.status.ok() && failed != nullptr) failed->push_back(io.segment);
    }
  }
  co_return first;
}

}  // namespace farleaf::index::lsm
