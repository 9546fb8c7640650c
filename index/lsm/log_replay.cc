#include "index/lsm/log_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "dsm/base/clock.h"
#include "index/lsm/log.h"
#include "index/lsm/log_reader.h"

namespace farleaf::index::lsm {

using storage::Io;
using storage::IoKind;
using storage::kSegmentBytes;

namespace {

constexpr Sequence kNone = UINT64_MAX;

class Replayer {
 public:
  Replayer(dsm::Worker& worker, storage::Storage& storage, ReplayOptions options,
           std::function<Status(CommitReader)> commit)
      : worker_(worker),
        storage_(storage),
        options_(std::move(options)),
        commit_(std::move(commit)),
        reader_(&storage, options_.epoch),
        values_(&storage, options_.epoch),
        next_(options_.flushed + 1),
        durable_(options_.durable) {}

  dsm::Task<Result<ReplayReport>> Run() {
    const uint64_t begun_ns = worker_.clock().NowNs();
    Status status = co_await ReadHeads();
    for (size_t i = 0; i < heads_.size() && status.ok(); ++i) {
      status = co_await ReplaySegment(i);
    }
    if (status.ok()) status = co_await CheckDurable();
    if (status.ok()) status = co_await SyncAll();
    if (!status.ok()) co_return status;
    report_.last = next_ - 1;
    report_.ns = worker_.clock().NowNs() - begun_ns;
    co_return std::move(report_);
  }

 private:
  dsm::Task<Status> ReadHeads() {
    for (const SegmentId id : options_.segments) {
      Result<std::optional<LogHead>> head = co_await reader_.ReadHead(worker_, id);
      if (!head.ok()) co_return head.status();
      if (*head && (*head)->log != LogKind::kRecovery) *head = std::nullopt;
      if (*head) durable_ = std::max(durable_, (*head)->durable);
      heads_.push_back(*head);
    }
    // From where on a later segment takes over.
    limits_.assign(heads_.size(), kNone);
    for (size_t i = heads_.size(); i-- > 1;) {
      limits_[i - 1] = std::min(limits_[i], heads_[i] ? heads_[i]->first : kNone);
    }
    co_return Status::Ok();
  }

  dsm::Task<Status> ReplaySegment(size_t i) {
    const SegmentId id = options_.segments[i];
    const bool superseded = heads_[i] && heads_[i]->first >= limits_[i];
    if (heads_[i] && !superseded && heads_[i]->first > next_) ended_ = report_.gap = true;
    if (!heads_[i] || superseded || ended_) {
      report_.unused.push_back(id);
      co_return Status::Ok();
    }
    report_.kept.push_back(id);
    Status status = co_await reader_.Load(worker_, id);
    if (!status.ok()) co_return status;
    report_.bytes_read += kSegmentBytes;
    Sequence expected = heads_[i]->first;
    for (;;) {
      const std::optional<LogRecord> record = reader_.Next();
      if (!record) break;
      end_ = {id, reader_.offset(), "no record"};
      if (record->kind == LogRecordKind::kHead) continue;
      std::optional<CommitReader> commit;
      if (record->kind == LogRecordKind::kCommit) commit = CommitReader::Parse(record->payload);
      if (!commit || commit->first() != expected) co_return NoCommit(id, record->offset);
      if (expected >= limits_[i]) break;
      expected = commit->last() + 1;
      if (commit->last() < next_) continue;
      if (commit->first() != next_) co_return NoCommit(id, record->offset);
      bool whole = true;
      status = co_await CheckValues(*commit, &whole);
      if (!status.ok()) co_return status;
      if (!whole) {
        ended_ = report_.gap = true;
        break;
      }
      FARLEAF_CO_RETURN_IF_ERROR(commit_(*commit));
      ++report_.commits;
      report_.changes += commit->changes();
      report_.bytes += record->bytes();
      next_ = expected;
    }
    co_return Status::Ok();
  }

  /// Whether the values that it names are there, as far as a crash may have taken them.
  dsm::Task<Status> CheckValues(CommitReader commit, bool* whole) {
    Change change;
    while (*whole && commit.Next(&change)) {
      if (change.kind != ChangeKind::kPutPointer) continue;
      const ValuePointer& pointer = change.pointer;
      const SegmentId id = pointer.segment;
      if (options_.collected && options_.collected(id)) continue;
      auto found = value_ends_.find(id);
      if (found == value_ends_.end()) {
        Status status = co_await LoadValues(id);
        if (!status.ok()) co_return status;
        while (values_.Next()) {
        }
        found = value_ends_.emplace(id, values_there_ ? values_.offset() : 0).first;
        if (values_there_) report_.values.push_back(id);
      }
      if (pointer.offset + pointer.bytes <= found->second) continue;
      // Behind a gap: there it has to be looked at by itself.
      Status status = co_await LoadValues(id);
      if (!status.ok()) co_return status;
      *whole = values_there_ && pointer.offset < kSegmentBytes &&
               ParseValueAt(values_.bytes().subspan(pointer.offset), options_.epoch, pointer,
                            change.key);
      if (*whole || commit.last() > durable_) continue;
      *whole = true;
      ++report_.values_damaged;
      if (!values_there_) report_.values_missing.insert(id);
    }
    co_return Status::Ok();
  }

  dsm::Task<Status> LoadValues(SegmentId id) {
    if (values_loaded_ == id) co_return Status::Ok();
    Status status = co_await values_.Load(worker_, id);
    if (!status.ok() && status.code() != StatusCode::kNotFound) co_return status;
    values_there_ = status.ok();
    values_loaded_ = id;
    report_.bytes_read += kSegmentBytes;
    co_return Status::Ok();
  }

  /// Where the log does not go on, and what is missing there.
  struct End {
    SegmentId segment = SegmentId::kNone;
    uint32_t offset = 0;
    std::string_view what;
  };
  Status Damaged(const End& end, std::string_view why) const {
    return Status::Corruption(fmt::format("{} at offset {}: {}; {}", storage_.NameOf(end.segment),
                                          end.offset, end.what, why));
  }

  Status NoCommit(SegmentId id, uint32_t offset) const {
    return Damaged({id, offset, "no commit of the log's"},
                   fmt::format("commit {} is the next", next_));
  }

  dsm::Task<Status> CheckDurable() {
    if (next_ > durable_) co_return Status::Ok();
    const std::string why =
        fmt::format("the recovery log ends behind commit {}, but those up to {} were durable",
                    next_ - 1, durable_);
    auto end = co_await FindEnd();
    if (!end.ok()) co_return end.status();
    if (end->segment == SegmentId::kNone) co_return Status::Corruption(why);
    co_return Damaged(*end, why);
  }

  /// By cases: more stands behind a gap in the last segment that was replayed; or that one is whole, and a next
  /// one that was begun has no head; or nothing tells, and it is the end of what is there.
  dsm::Task<Result<End>> FindEnd() {
    bool behind = end_.segment == SegmentId::kNone;
    if (!behind) {
      auto more = co_await HoldsMore(end_.segment, end_.offset);
      if (!more.ok()) co_return more.status();
      if (*more) co_return end_;
    }
    const size_t begun = LastHead();
    for (size_t i = 0; i < heads_.size(); ++i) {
      const SegmentId id = options_.segments[i];
      if (behind && !heads_[i]) {
        auto more = co_await HoldsMore(id, 0);
        if (!more.ok()) co_return more.status();
        if (*more || i < begun || end_.segment == SegmentId::kNone) {
          co_return End{id, 0, "no head of the log's, or no file"};
        }
      }
      behind |= id == end_.segment;
    }
    co_return end_;
  }

  /// How many segments there are up to the last one with a head.
  size_t LastHead() const {
    size_t end = heads_.size();
    while (end > 0 && !heads_[end - 1]) --end;
    return end;
  }

  /// Whether a whole record stands at this offset or behind it.
  dsm::Task<Result<bool>> HoldsMore(SegmentId id, uint32_t offset) {
    Status status = co_await reader_.Load(worker_, id);
    if (status.code() == StatusCode::kNotFound) co_return false;
    if (!status.ok()) co_return status;
    const uint32_t seed = SegmentSeed(options_.epoch, id);
    co_return NextWholeRecord(seed, offset, reader_.bytes()) < kSegmentBytes;
  }

  dsm::Task<Status> SyncAll() {
    std::vector<Io> ios;
    for (const auto* ids : {&report_.kept, &report_.values}) {
      for (const SegmentId id : *ids) ios.push_back(Io{IoKind::kSync, id});
    }
    for (size_t at = 0; at < ios.size(); at += kSyncsAtOnce) {
      const size_t count = std::min(kSyncsAtOnce, ios.size() - at);
      Status status = co_await storage_.Run(worker_, std::span(ios).subspan(at, count));
      if (!status.ok()) co_return status;
    }
    co_return Status::Ok();
  }

  dsm::Worker& worker_;
  storage::Storage& storage_;
  const ReplayOptions options_;
  const std::function<Status(CommitReader)> commit_;
  SegmentReader reader_, values_;
  Sequence next_;     // that is expected
  Sequence durable_;  // by what the manifest and heads say
  bool ended_ = false;
  End end_;  // of what was replayed
  std::vector<std::optional<LogHead>> heads_;
  std::vector<Sequence> limits_;                // commits from there on are in a later segment
  std::map<SegmentId, uint32_t> value_ends_;    // of the values in front of a segment's first gap
  SegmentId values_loaded_ = SegmentId::kNone;  // in values_:
  bool values_there_ = false;
  ReplayReport report_;
};

}  // namespace

dsm::Task<Result<ReplayReport>> Replay(dsm::Worker& worker, storage::Storage& storage,
                                       ReplayOptions options,
                                       std::function<Status(CommitReader)> commit) {
  Replayer replayer(worker, storage, std::move(options), std::move(commit));
  Result<ReplayReport> report = co_await replayer.Run();
  co_return report;
}

}  // namespace farleaf::index::lsm
