// The logs of a scrub.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "index/lsm/log_reader.h"
#include "index/lsm/scrub.h"

namespace farleaf::index::lsm {

using storage::kSegmentBytes;

namespace {

/// Whether a record is of the kinds that the log has, in the right place.
const char* Misplaced(const LogRecord& record, LogKind log) {
  if (record.offset == 0) {
    const auto head = ParseLogHead(record);
    return head && head->log == log ? nullptr : "no head of this log's segments";
  }
  if (log == LogKind::kValues) return ParseValueRecord(record) ? nullptr : "no record of a value";
  const bool is_commit =
      record.kind == LogRecordKind::kCommit && CommitReader::Parse(record.payload);
  return is_commit ? nullptr : "no commit";
}

/// Goes along with a segment's records, and takes what leads into it.
class NamedCheck {
 public:
  NamedCheck(ScrubContext& context, SegmentId segment)
      : context_(context), segment_(segment), values_(context.named.Take(segment)) {}

  /// How many of them begin before that, behind what was looked at, and at no record.
  size_t Lost(uint32_t before) {
    size_t lost = 0;
    for (; next_ < values_.size() && values_[next_].offset < before; ++next_) ++lost;
    return lost;
  }
  uint32_t next_offset() const {
    return next_ < values_.size() ? values_[next_].offset : kSegmentBytes;
  }
  void Check(const LogRecord& record) {
    const auto value = ParseValueRecord(record);
    const ValuePointer is{segment_, record.offset, record.bytes(),
                          value ? static_cast<uint32_t>(value->value.size()) : 0};
    const uint64_t hash = value ? NamedValues::HashOf(is, value->key) : ~uint64_t{0};
    for (; next_ < values_.size() && values_[next_].offset < record.offset + record.bytes();
         ++next_) {
      if (values_[next_].offset == record.offset && values_[next_].hash == hash) continue;
      context_.Fault(context_.store.files().NameOf(segment_), values_[next_].offset,
                     "a value is named here, but there is no record of its key and length");
    }
  }

 private:
  ScrubContext& context_;
  const SegmentId segment_;
  const std::vector<NamedValues::Value> values_;
  size_t next_ = 0;
};

}  // namespace

dsm::Task<void> ScrubValues(ScrubContext& context, SegmentId segment, bool perhaps_torn) {
  const std::string file = context.store.files().NameOf(segment);
  const bool readable = co_await context.Load(segment);
  const auto bytes = std::span<const std::byte>(context.bytes.span());
  const uint32_t seed = SegmentSeed(context.store.state().epoch, segment);
  NamedCheck named(context, segment);
  uint32_t offset = 0;
  while (offset < kSegmentBytes) {
    const auto record = ParseLogRecord(seed, offset, bytes.subspan(offset));
    if (record) {
      if (const char* const what = Misplaced(*record, LogKind::kValues)) {
        context.Fault(file, offset, what);
      }
      context.report.values += record->kind == LogRecordKind::kValue;
      named.Check(*record);
      offset += record->bytes();
      continue;
    }
    const uint32_t whole = NextWholeRecord(seed, offset, bytes);
    const uint32_t first_named = named.next_offset();
    const size_t lost = named.Lost(whole);
    if (lost > 0) {
      const uint32_t at = whole < kSegmentBytes ? offset : first_named;
      context.Fault(file, at, fmt::format("{} values that are named are damaged or lost", lost));
    } else if (whole < kSegmentBytes && perhaps_torn) {
      context.Note(
          file, offset,
          fmt::format("no record up to offset {}; nothing names any there, and a crash may "
                      "leave that",
                      whole));
    } else if (whole < kSegmentBytes && readable) {
      context.Fault(file, offset,
                    fmt::format("no record up to offset {}; nothing names any there", whole));
    }
    offset = whole;
  }
}

namespace {

/// A place where the recovery log does not go on, though there is more of it: damage, or what a crash has left.
struct Break {
  std::string file;
  uint64_t offset;
  std::string what;
};

class RecoveryLogScrub {
 public:
  explicit RecoveryLogScrub(ScrubContext& context)
      : context_(context), expected_(context.store.state().flushed_through + 1) {}

  dsm::Task<void> Run() {
    const uint64_t before = context_.report.faults;
    for (const SegmentId id : context_.store.state().recovery_log) {
      if (!context_.store.files().Has(id)) {
        missing_ = id;  // it may never have been made: what comes next tells
        continue;
      }
      const bool readable = co_await context_.Load(id);
      (void)readable;
      LookAt(id);
    }
    const ClosedStore::LookAtChange look = [this](const Change& change) {
      if (change.kind == ChangeKind::kPutPointer) context_.Name(change.pointer, change.key);
    };
    auto replayed = co_await context_.store.Recover(context_.worker, look);
    if (replayed.ok()) {
      if (last_seen_ > replayed->last && !breaks_.empty()) {
        context_.Note(breaks_.front().file, breaks_.front().offset,
                      fmt::format("the log ends in front of commit {}: those up to {} are behind a "
                                  "gap, and are not replayed",
                                  replayed->last + 1, last_seen_));
      }
      for (Break& each : breaks_) {
        each.what += "; a crash may leave that";
        context_.Note(std::move(each.file), each.offset, std::move(each.what));
      }
      co_return;
    }
    for (Break& each : breaks_) {
      context_.Fault(std::move(each.file), each.offset, std::move(each.what));
    }
    // Where nothing of the above was found, it says by itself where it is.
    if (context_.report.faults == before || breaks_.empty()) {
      context_.Fault(end_file_, end_offset_, std::string(replayed.status().message()));
    } else {
      context_.Note(end_file_, end_offset_, std::string(replayed.status().message()));
    }
  }

 private:
  void LookAt(SegmentId id) {
    const auto bytes = std::span<const std::byte>(context_.bytes.span());
    const uint32_t seed = SegmentSeed(context_.store.state().epoch, id);
    const std::string file = context_.store.files().NameOf(id);
    const auto first = ParseLogRecord(seed, 0, bytes);
    const auto head = first ? ParseLogHead(*first) : std::nullopt;
    if (head) BeginSegment(*head, file);
    uint32_t offset = 0;
    while (offset < kSegmentBytes) {
      const auto record = ParseLogRecord(seed, offset, bytes.subspan(offset));
      if (!record) {
        const uint32_t whole = NextWholeRecord(seed, offset, bytes);
        if (whole < kSegmentBytes) {
          breaks_.push_back({file, offset, fmt::format("no record up to offset {}", whole)});
        } else if (offset > 0) {
          end_file_ = file;
          end_offset_ = offset;
        }
        offset = whole;
        continue;
      }
      if (const char* const what = Misplaced(*record, LogKind::kRecovery)) {
        context_.Fault(file, offset, what);
      } else if (offset > 0) {
        ++context_.report.commits;
        expected_ = CommitReader::Parse(record->payload)->last() + 1;
        last_seen_ = std::max(last_seen_, expected_ - 1);
      }
      offset += record->bytes();
    }
  }

  void BeginSegment(const LogHead& head, const std::string& file) {
    if (head.first > expected_) {
      const std::string what =
          fmt::format("commits {} to {} are not there: the next segment, {}, begins behind them",
                      expected_, head.first - 1, file);
      if (missing_ != SegmentId::kNone) {
        breaks_.push_back(
            {context_.store.files().NameOf(missing_), 0, "the file is missing; " + what});
      } else {
        breaks_.push_back({end_file_.empty() ? file : end_file_, end_offset_, what});
      }
    }
    missing_ = SegmentId::kNone;
    expected_ = head.first;
  }

  ScrubContext& context_;
  Sequence expected_;
  Sequence last_seen_ = 0;
  SegmentId missing_ = SegmentId::kNone;
  std::string end_file_ =
      context_.store.files().directory().path();  // where the last whole record ends
  uint64_t end_offset_ = 0;
  std::vector<Break> breaks_;
};

}  // namespace

dsm::Task<void> ScrubRecoveryLog(ScrubContext& context) {
  RecoveryLogScrub scrub(context);
  co_await scrub.Run();
}

}  // namespace farleaf::index::lsm
