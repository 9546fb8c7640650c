#include "index/lsm/log_replay.h"

#include <algorithm>
#include <map>
#include <optional>

#include "dsm/base/clock.h"
#include "index/lsm/log_reader.h"

namespace farleaf::index::lsm {

using storage::Io;
using storage::IoKind;
using storage::kSegmentBytes;

namespace {

constexpr size_t kSyncsAtOnce = 64;
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
        next_(options_.flushed + 1) {}

  dsm::Task<Result<ReplayReport>> Run() {
    const uint64_t begun_ns = worker_.clock().NowNs();
    Status status = co_await ReadHeads();
    for (size_t i = 0; i < heads_.size() && status.ok(); ++i) {
      status = co_await ReplaySegment(i);
    }
    if (status.ok()) status = CheckDurable();
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
      if (record->kind == LogRecordKind::kHead) continue;
      std::optional<CommitReader> commit;
      if (record->kind == LogRecordKind::kCommit) commit = CommitReader::Parse(record->payload);
      if (!commit || commit->first() != expected) co_return Damaged(id, record->offset);
      if (expected >= limits_[i]) break;
      expected = commit->last() + 1;
      if (commit->last() < next_) continue;
      if (commit->first() != next_) co_return Damaged(id, record->offset);
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

  /// Whether the values that it names are there: in front of their segments' first record that is not whole.
  dsm::Task<Status> CheckValues(CommitReader commit, bool* whole) {
    Change change;
    while (*whole && commit.Next(&change)) {
      if (change.kind != ChangeKind::kPutPointer) continue;
      const SegmentId id = change.pointer.segment;
      if (options_.collected && options_.collected(id)) continue;
      auto found = value_ends_.find(id);
      if (found == value_ends_.end()) {
        Status status = co_await values_.Load(worker_, id);
        if (!status.ok() && status.code() != StatusCode::kNotFound) co_return status;
        report_.bytes_read += kSegmentBytes;
        while (values_.Next()) {
        }
        found = value_ends_.emplace(id, status.ok() ? values_.offset() : 0).first;
        if (status.ok()) report_.values.push_back(id);
      }
      *whole = change.pointer.offset + change.pointer.bytes <= found->second;
    }
    co_return Status::Ok();
  }

  Status Damaged(SegmentId id, uint32_t offset) const {
    return Status::Corruption(storage_.NameOf(id) + ": no commit of the log's at " +
                              std::to_string(offset) + ", where " + std::to_string(next_) +
                              " is the next");
  }

  Status CheckDurable() const {
    if (next_ > durable_) return Status::Ok();
    return Status::Corruption("the recovery log ends behind commit " + std::to_string(next_ - 1) +
                              ", but those up to " + std::to_string(durable_) + " were durable");
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
  Sequence next_;         // that is expected
  Sequence durable_ = 0;  // by what heads say
  bool ended_ = false;
  std::vector<std::optional<LogHead>> heads_;
  std::vector<Sequence> limits_;  // commits from there on are in a later segment
  std::map<SegmentId, uint32_t> value_ends_;
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
