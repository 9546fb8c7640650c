// BufferPool: which of an area's log buffers holds which segment of which log. The buffers' bytes are the primary's to write, at the
// offsets that it is told.
//
// A buffer that is taken again holds what its last segment left there; a log's records tell theirs from others' by their checksums
// (index/lsm/log_record.h), so nothing is cleared.
//
// Invariants: a segment has one buffer at most, and a buffer one segment.
// Thread rule: one owner.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/base/result.h"
#include "index/lsm/log_record.h"
#include "server/replication/area_layout.h"

namespace farleaf::server::replication {

struct LogSegment {
  index::lsm::LogKind log = index::lsm::LogKind::kRecovery;
  index::storage::SegmentId segment = index::storage::SegmentId::kNone;
  bool operator==(const LogSegment&) const = default;
};

class BufferPool {
 public:
  /// `area`: layout.bytes(), aligned to kAreaAlignment if its buffers are to go to a disk as they are.
  BufferPool(std::span<std::byte> area, const AreaLayout& layout)
      : area_(area), layout_(layout), holds_(layout.log_buffers) {
    FARLEAF_CHECK(area.size() >= layout.bytes(), area.size(), layout.bytes());
  }

  /// A buffer for the segment. AlreadyExists: it has one. ResourceExhausted: all are taken.
  Result<uint32_t> Take(LogSegment segment) {
    if (Find(segment)) return Status::AlreadyExists(NameOf(segment) + " has a log buffer");
    for (uint32_t buffer = 0; buffer < holds_.size(); ++buffer) {
      if (holds_[buffer]) continue;
      holds_[buffer] = segment;
      ++taken_;
      return buffer;
    }
    return Status::ResourceExhausted("all " + std::to_string(holds_.size()) +
                                     " log buffers are taken; none is left for " + NameOf(segment));
  }
  /// REQUIRES: the buffer is taken, and the primary writes to it no more.
  void Release(uint32_t buffer) {
    FARLEAF_CHECK(buffer < holds_.size() && holds_[buffer], buffer);
    holds_[buffer].reset();
    --taken_;
  }
  /// The segment's buffer; nullopt: it has none.
  std::optional<uint32_t> Find(LogSegment segment) const {
    for (uint32_t buffer = 0; buffer < holds_.size(); ++buffer) {
      if (holds_[buffer] == segment) return buffer;
    }
    return std::nullopt;
  }
  /// What the buffer holds; nullopt: nothing.
  std::optional<LogSegment> Holds(uint32_t buffer) const { return holds_[buffer]; }
  std::span<std::byte> bytes(uint32_t buffer) const {
    return area_.subspan(layout_.LogBufferOffset(buffer), kLogBufferBytes);
  }
  /// In the area.
  uint64_t offset(uint32_t buffer) const { return layout_.LogBufferOffset(buffer); }
  uint32_t size() const { return layout_.log_buffers; }
  uint32_t taken() const { return taken_; }

 private:
  static std::string NameOf(LogSegment segment) {
    return (segment.log == index::lsm::LogKind::kRecovery ? "the recovery log's segment "
                                                          : "the value log's segment ") +
           std::to_string(Number(segment.segment));
  }

  const std::span<std::byte> area_;
  const AreaLayout layout_;
  std::vector<std::optional<LogSegment>> holds_;  // by buffer
  uint32_t taken_ = 0;
};

}  // namespace farleaf::server::replication
