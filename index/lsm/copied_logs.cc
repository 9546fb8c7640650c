#include "index/lsm/copied_logs.h"

#include <algorithm>
#include <cstring>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"
#include "dsm/base/shared_copy.h"
#include "index/lsm/log.h"
#include "index/lsm/log_record.h"

namespace farleaf::index::lsm {

using storage::Io;
using storage::IoKind;
using storage::kBlockBytes;
using storage::kSegmentBytes;

dsm::Task<Status> CopiedLogs::Open(dsm::Worker& worker, LogKind log, SegmentId segment,
                                   std::span<std::byte> buffer) {
  FARLEAF_CHECK(buffer.size() == kSegmentBytes, buffer.size());
  Status created = co_await storage_->Create(worker, segment, {});
  if (created.code() == StatusCode::kAlreadyExists) {
    FARLEAF_CO_RETURN_IF_ERROR(storage_->Remove(segment));
    created = co_await storage_->Create(worker, segment, {});
  }
  if (created.ok()) open_[segment] = {.log = log, .buffer = buffer};
  co_return created;
}

void CopiedLogs::PlanWrite(SegmentId segment, uint32_t end) {
  const OpenSegment& open = open_.at(segment);
  if (end <= open.written) return;
  const uint32_t from = open.written / kBlockBytes * kBlockBytes;
  const uint32_t last = end / kBlockBytes * kBlockBytes;
  const size_t first_io = ios_.size();
  if (last > from) {
    ios_.push_back(Io{IoKind::kWrite, segment, from, open.buffer.subspan(from, last - from)});
  }
  if (end > last) {
    const auto block = last_blocks_.emplace_back(kBlockBytes).span();
    // The word that `end` is in is being written again, perhaps, with the same bytes in front of it.
    CopyFromShared(block.data(), open.buffer.data() + last, RoundUp(end - last, sizeof(uint64_t)));
    std::memset(block.data() + (end - last), 0, kBlockBytes - (end - last));
    ios_.push_back(Io{IoKind::kWrite, segment, last, block});
  }
  plan_.push_back({segment, end, first_io, ios_.size() - first_io});
}

dsm::Task<Status> CopiedLogs::RunWrites(dsm::Worker& worker) {
  Status status;
  if (!ios_.empty()) status = co_await storage_->Run(worker, ios_);
  for (const PlannedWrite& write : plan_) {
    const auto found = open_.find(write.segment);
    if (found == open_.end()) continue;  // it was dropped meanwhile
    const auto ios = std::span(ios_).subspan(write.first_io, write.ios);
    if (!std::ranges::all_of(ios, [](const Io& io) { return io.status.ok(); })) continue;
    bytes_received_ += write.end - found->second.written;
    found->second.written = write.end;
  }
  // Of what was dropped nobody wants to know.
  for (const PlannedWrite& write : plan_) {
    if (open_.contains(write.segment)) continue;
    for (Io& io : std::span(ios_).subspan(write.first_io, write.ios)) io.status = Status::Ok();
  }
  if (!status.ok()) {
    const auto failed = std::ranges::find_if(ios_, [](const Io& io) { return !io.status.ok(); });
    status = failed == ios_.end() ? Status::Ok() : failed->status;
  }
  ios_.clear();
  plan_.clear();
  last_blocks_.clear();
  co_return status;
}

dsm::Task<Status> CopiedLogs::Seal(dsm::Worker& worker, SegmentId segment, uint32_t used) {
  FARLEAF_CO_RETURN_IF_ERROR(failure_);
  PlanWrite(segment, used);
  Status written = co_await RunWrites(worker);
  const auto found = open_.find(segment);
  if (!written.ok() || found == open_.end()) co_return written;
  if (found->second.synced < used) unsynced_[segment] = found->second.log;
  open_.erase(found);
  co_return written;
}

dsm::Task<Status> CopiedLogs::Sync(dsm::Worker& worker, SyncReach reach, OpenBytes bytes) {
  FARLEAF_CO_RETURN_IF_ERROR(failure_);
  for (const auto& [segment, end] : bytes) {
    const auto found = open_.find(segment);
    if (found == open_.end()) continue;
    if (reach == SyncReach::kValues && found->second.log != LogKind::kValues) continue;
    PlanWrite(segment, std::min(end, kSegmentBytes));
  }
  Status status = co_await RunWrites(worker);
  if (status.ok()) status = co_await RunSyncs(worker, reach);
  co_return status;
}

dsm::Task<Status> CopiedLogs::RunSyncs(dsm::Worker& worker, SyncReach reach) {
  std::vector<Io> syncs;
  OpenBytes written;
  const auto wanted = [reach](LogKind log) {
    return reach == SyncReach::kBoth || log == LogKind::kValues;
  };
  for (const auto& [segment, log] : unsynced_) {
    if (wanted(log)) syncs.push_back(Io{IoKind::kSync, segment});
  }
  for (const auto& [segment, open] : open_) {
    if (!wanted(open.log) || open.written <= open.synced) continue;
    syncs.push_back(Io{IoKind::kSync, segment});
    written[segment] = open.written;
  }
  Status first;
  for (size_t at = 0; at < syncs.size(); at += kSyncsAtOnce) {
    const auto batch = std::span(syncs).subspan(at, std::min(kSyncsAtOnce, syncs.size() - at));
    Status ran = co_await storage_->Run(worker, batch);
    (void)ran;  // each has its own
    for (const Io& io : batch) {
      const bool dropped = !open_.contains(io.segment) && !unsynced_.contains(io.segment);
      if (first.ok() && !dropped) first = io.status;
      NoteSync(io, written[io.segment]);
    }
  }
  co_return failure_.ok() ? first : failure_;
}

void CopiedLogs::NoteSync(const Io& io, uint32_t written) {
  if (const auto found = open_.find(io.segment); found != open_.end()) {
    OpenSegment& open = found->second;
    if (io.status.ok()) {
      open.synced = written;
    } else {
      open.written = open.synced;
    }
    return;
  }
  if (!unsynced_.contains(io.segment)) return;
  if (io.status.ok()) {
    unsynced_.erase(io.segment);
  } else {
    failure_ =
        io.status.WithContext("the copy has failed for good, and is to be filled anew: what " +
                              storage_->NameOf(io.segment) + " held may be lost");
  }
}

dsm::Task<Status> CopiedLogs::Finish(dsm::Worker& worker, uint64_t epoch) {
  FARLEAF_CO_RETURN_IF_ERROR(failure_);
  for (auto& [segment, open] : open_) {
    const uint32_t seed = SegmentSeed(epoch, segment);
    uint32_t end = 0;
    while (const auto record = ParseLogRecord(seed, end, open.buffer.subspan(end))) {
      end += record->bytes();
    }
    std::memset(open.buffer.data() + end, 0, kSegmentBytes - end);
  }
  for (const SegmentId segment : this->open()) PlanWrite(segment, kSegmentBytes);
  Status status = co_await RunWrites(worker);
  if (!status.ok()) co_return status;
  status = co_await RunSyncs(worker, SyncReach::kBoth);
  if (status.ok()) open_.clear();
  co_return status;
}

void CopiedLogs::Forget(SegmentId segment) {
  open_.erase(segment);
  unsynced_.erase(segment);
}

void CopiedLogs::ForgetAll() {
  open_.clear();
  unsynced_.clear();
  failure_ = {};
}

std::vector<SegmentId> CopiedLogs::open() const {
  std::vector<SegmentId> segments;
  for (const auto& [segment, open] : open_) segments.push_back(segment);
  return segments;
}

}  // namespace farleaf::index::lsm
