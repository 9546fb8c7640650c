#include "server/records/record_walk.h"

#include <algorithm>

namespace farleaf::server {

using dsm::OpContext;
using dsm::Task;

namespace {

constexpr uint64_t kRowsOfPiece = 512;
constexpr uint64_t kBytesOfPiece = 256 << 10;
constexpr uint64_t kPiecesMin = 16;  // a second
constexpr size_t kTreeKeyBytesMax = 1024;

/// The smallest key of the next space.
std::string EndOf(char space) { return std::string(1, static_cast<char>(space + 1)); }

/// The smallest key above it that fits the tree. (Its first byte, the space, is never 255.)
std::string Behind(const std::string& key) {
  std::string next = key;
  if (next.size() < kTreeKeyBytesMax) {
    next.push_back('\0');
  } else {
    while (next.back() == '\xff') next.pop_back();
    next.back() = static_cast<char>(next.back() + 1);
  }
  return next;
}

class DropEverything final : public RecordRule {
  RecordAction Decide(const Record*, Record*, std::string_view*) override {
    return RecordAction::kDelete;
  }
};

index::ScanRange PieceFrom(std::string_view start, std::string_view end) {
  index::ScanRange range;
  range.start = start;
  range.end = end;
  range.limit = kRowsOfPiece;
  range.bytes_max = kBytesOfPiece;
  return range;
}

bool IsWholePiece(const std::vector<index::KeyValue>& rows) {
  uint64_t bytes = 0;
  for (const index::KeyValue& row : rows) bytes += row.key.size() + row.value.size();
  return rows.size() == kRowsOfPiece || bytes >= kBytesOfPiece;
}

uint64_t DeadlineNs(const WalkContext& context) {
  return context.worker.clock().NowNs() + context.piece_ms * kNsPerMs;
}

}  // namespace

Task<Status> DeleteAll(WalkContext context, const RecordStore& store, char space) {
  std::string position(1, space);
  const std::string end = EndOf(space);
  std::vector<index::KeyValue> rows;
  for (;;) {
    OpContext op{context.worker, context.counts, DeadlineNs(context)};
    const Status scanned = co_await store.tree().Scan(op, PieceFrom(position, end), &rows);
    if (!scanned.ok()) co_return scanned;
    for (const index::KeyValue& row : rows) {
      if (context.cancelled()) co_return Status::Unavailable("the server is stopping");
      DropEverything rule;
      op.deadline_ns = DeadlineNs(context);
      const auto deleted = co_await store.Update(op, row.key, rule);
      if (!deleted.ok()) co_return deleted.status();
    }
    if (!IsWholePiece(rows)) co_return Status::Ok();
    co_await context.worker.Sleep(0);  // others' turn, where no verb suspends
    position = Behind(rows.back().key);
  }
}

ExpirySweep::ExpirySweep(const RecordStore* store, char space, Options options)
    : store_(store), begin_(1, space), end_(EndOf(space)), options_(options) {}

Task<Status> ExpirySweep::Piece(WalkContext context) {
  OpContext op{context.worker, context.counts, DeadlineNs(context)};
  const Status scanned = co_await store_->tree().Scan(op, PieceFrom(position_, end_), &rows_);
  if (!scanned.ok()) co_return scanned;
  ++pieces_;
  for (const index::KeyValue& row : rows_) {
    const auto record = ParseRecord(row.value);
    ++counts_.records;
    if (!record.ok() || !IsExpired(*record, store_->NowMs())) continue;
    const Status deleted = co_await store_->DeleteExpired(op, row.key);
    if (!deleted.ok()) co_return deleted;
    ++counts_.deleted;
  }
  if (IsWholePiece(rows_)) {
    position_ = Behind(rows_.back().key);
  } else {
    position_.clear();
    pieces_of_last_turn_ = std::exchange(pieces_, 0);
    ++counts_.turns;
  }
  co_return Status::Ok();
}

Task<Status> ExpirySweep::Step(WalkContext context, uint64_t now_ns) {
  if (position_.empty()) {
    if (now_ns < next_turn_ns_) co_return Status::Ok();
    next_turn_ns_ = now_ns + options_.turn_s * kNsPerSecond;
    position_ = begin_;
  }
  // A quarter more than what the last turn needed, since the tree may grow.
  const uint64_t wanted = pieces_of_last_turn_ * 5 / 4 / std::max<uint64_t>(options_.turn_s, 1) + 1;
  const uint64_t pieces =
      std::clamp(wanted, std::min(kPiecesMin, options_.pieces_max), options_.pieces_max);
  for (uint64_t i = 0; i < pieces && !position_.empty() && !context.cancelled(); ++i) {
    const Status walked = co_await Piece(context);
    if (!walked.ok()) co_return walked;  // from the same position, a second later
    co_await context.worker.Sleep(0);    // others' turn, where no verb suspends
  }
  co_return Status::Ok();
}

}  // namespace farleaf::server
