#include "server/records/record_walk.h"

#include <algorithm>

#include "server/frontend/side_by_side.h"
#include "server/records/member_sweep.h"

namespace farleaf::server {

using dsm::OpContext;
using dsm::Task;

namespace {

constexpr uint64_t kPiecesMin = 16;  // a second

class DropEverything final : public RecordRule {
  RecordAction Decide(const Record*, Record*, std::string_view*) override {
    return RecordAction::kDelete;
  }
  bool blind() const override { return true; }
};

bool IsDamage(const Status& status) {
  return status.code() == StatusCode::kCorruption || status.code() == StatusCode::kIoError;
}

uint64_t DeadlineNs(const WalkContext& context) {
  return context.worker.clock().NowNs() + context.piece_ms * kNsPerMs;
}

Task<Status> Drop(WalkContext& context, OpContext& op, const RecordStore& store,
                  const std::string& key) {
  if (context.cancelled()) co_return Status::Unavailable("the server is stopping");
  DropEverything rule;
  op.deadline_ns = DeadlineNs(context);
  const auto deleted = co_await store.Update(op, key, rule);
  co_return deleted.ok() ? Status::Ok() : deleted.status();
}

}  // namespace

Task<Status> DeleteAll(WalkContext context, const RecordStore& store, char space) {
  if (context.cancelled()) co_return Status::Unavailable("the server is stopping");
  const std::string start(1, space), end = EndOfPrefix(start);
  {
    OpContext op{context.worker, context.counts, DeadlineNs(context)};
    Status deleted = co_await store.tree().DeleteRange(op, start, end);
    if (deleted.code() != StatusCode::kUnimplemented) co_return deleted;
  }
  PieceScan::Range range{.start = start, .end = end};
  range.content = index::ScanContent::kKeys;
  PieceScan scan(&store.tree(), range);
  while (!scan.done()) {
    OpContext op{context.worker, context.counts, DeadlineNs(context)};
    const Status scanned = co_await scan.Next(op);
    if (!scanned.ok()) co_return scanned;
    const auto& rows = scan.rows();
    const NumberedStep drop = [&](size_t i) { return Drop(context, op, store, rows[i].key); };
    const Status dropped = co_await RunSideBySide(op, rows.size(), kRowsAtOnce, drop);
    if (!dropped.ok()) co_return dropped;
    co_await context.worker.Sleep(0);  // others' turn, where no verb suspends
  }
  co_return Status::Ok();
}

Task<Status> PacedWalk::VisitRow(WalkContext& context, OpContext& op, const index::KeyValue& row) {
  ++counts_.records;
  op.deadline_ns = DeadlineNs(context);
  const auto visited = co_await Visit(op, row);
  if (!visited.ok()) co_return visited.status();
  counts_.deleted += *visited;
  co_return Status::Ok();
}

Task<Status> PacedWalk::Piece(WalkContext context) {
  OpContext op{context.worker, context.counts, DeadlineNs(context)};
  const Status scanned = co_await scan_->Next(op);
  // The next turn goes past it; each row is looked up again before anything is done about it.
  if (IsDamage(scanned)) scan_->PassOverDamage();
  if (!scanned.ok()) co_return scanned;
  ++pieces_;
  const auto& rows = scan_->rows();
  const NumberedStep visit = [&](size_t i) { return VisitRow(context, op, rows[i]); };
  // After a failure the rest of this piece is left to the next turn.
  const Status failure = co_await RunSideBySide(op, rows.size(), rows_at_once_, visit);
  if (!failure.ok()) turn_ = Turn::kPartly;
  if (scan_->done()) {
    scan_.reset();
    pieces_of_last_turn_ = std::exchange(pieces_, 0);
    ++counts_.turns;
    EndTurn(std::exchange(turn_, Turn::kWhole));
  }
  co_return failure;
}

Task<Status> PacedWalk::Step(WalkContext context, uint64_t now_ns) {
  if (!scan_) {
    if (now_ns < next_turn_ns_) co_return Status::Ok();
    next_turn_ns_ = now_ns + options_.turn_s * kNsPerSecond;
    scan_.emplace(&store_->tree(), PieceScan::Range{.start = begin_, .end = end_});
  }
  // A quarter more than what the last turn needed, since the tree may grow.
  const uint64_t wanted = pieces_of_last_turn_ * 5 / 4 / std::max<uint64_t>(options_.turn_s, 1) + 1;
  const uint64_t pieces =
      std::clamp(wanted, std::min(kPiecesMin, options_.pieces_max), options_.pieces_max);
  for (uint64_t i = 0; i < pieces && scan_ && !context.cancelled(); ++i) {
    const Status walked = co_await Piece(context);
    if (!walked.ok()) co_return walked;
    co_await context.worker.Sleep(0);  // others' turn, where no verb suspends
  }
  co_return Status::Ok();
}

void ExpirySweep::Meet(const index::KeyValue& row, bool expiring) {
  if (row.key[0] != kUserKeySpace) return;
  ++met_.keys;
  met_.expiring += expiring;
}

void ExpirySweep::EndTurn(Turn turn) {
  if (turn == Turn::kWhole) last_met_ = met_;
  met_ = {};
}

Task<Result<bool>> ExpirySweep::Visit(OpContext& op, const index::KeyValue& row) {
  const auto record = ParseRecord(row.value);
  if (!record.ok()) {
    Meet(row, false);
    co_return false;
  }
  if (IsExpired(*record, store().NowMs())) {
    const Status deleted = co_await store().DeleteExpired(op, row.key);
    if (!deleted.ok()) co_return deleted;
    co_return true;
  }
  if (record->type != RecordType::kString) {
    const auto ended = co_await EndIfAbandoned(op, store(), row.key, *record, abandoned_ms_);
    if (!ended.ok() || *ended) co_return ended;
  }
  Meet(row, record->expiry_ms != 0);
  co_return false;
}

}  // namespace farleaf::server
