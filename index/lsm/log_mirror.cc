#include "index/lsm/log_mirror.h"

#include <utility>

namespace farleaf::index::lsm {

LogMirror::LogMirror(Mirror* mirror, std::vector<Log*> logs, LogCuts* cuts)
    : mirror_(mirror), logs_(std::move(logs)), cuts_(cuts) {}

bool LogMirror::Reached(const LogPositions& positions) const {
  for (size_t i = 0; i < logs_.size(); ++i) {
    if (logs_[i]->mirrored_end() < positions[i]) return false;
  }
  return true;
}

Status LogMirror::failure() const {
  for (const Log* log : logs_) {
    Status failure = log->failure();
    if (!failure.ok()) return failure;
  }
  return Status::Ok();
}

Status LogMirror::Fail(const Status& why) {
  for (Log* log : logs_) log->Fail(why.WithContext("log failed for good"));
  return why;
}

dsm::Task<Status> LogMirror::UpTo(dsm::Worker& worker, LogPositions positions) {
  if (Reached(positions)) co_return Status::Ok();
  MirrorRounds::Waiter waiter{positions, &worker};
  co_await Take(&waiter);
  if (!waiter.leads) co_return Status::Ok();
  Status mirrored = co_await Lead(worker, positions);
  co_return mirrored;
}

// Whoever a round that failed was for leads one of his own, and finds the logs failed.
dsm::Task<Status> LogMirror::Lead(dsm::Worker& worker, LogPositions positions) {
  if (!Reached(positions)) return Round(worker);
  rounds_.EndLead(reached_);  // it was reached just before it came to wait
  return {dsm::Done{}, Status::Ok()};
}

dsm::Task<Status> LogMirror::Round(dsm::Worker& worker) {
  if (worker.others_are_ready()) co_await worker.Yield();
  Plan plan;
  Status status = co_await PlanRound(worker, &plan);
  if (!status.ok()) {
    rounds_.EndLead(reached_);
    co_return status;
  }
  LogPositions planned{};
  for (size_t i = 0; i < logs_.size(); ++i) planned[i] = plan.cuts[i].end;
  MirrorRounds::Round round{&worker};
  // Whoever leads next is of this worker, and does not run before this coroutine first waits: what it sends is on its way by then (mirror.h).
  rounds_.Begun(&round, planned);
  if (!plan.pieces.empty()) status = co_await mirror_->Append(worker, plan.pieces);
  co_await rounds_.Arrive(&round);
  status = co_await FinishRound(worker, plan, std::move(status));
  rounds_.EndRound(&round, reached_);
  co_return status;
}

dsm::Task<Status> LogMirror::PlanRound(dsm::Worker& worker, Plan* plan) {
  Status status = failure();
  if (!status.ok()) co_return status;
  std::array<Log::Upto, kLogsMax> whole{};
  whole.fill(Log::Upto::kTail);
  plan->cuts = co_await cuts_->Take(worker, whole);
  for (size_t i = logs_.size(); i-- > 0;) logs_[i]->PlanMirror(plan->cuts[i], &plan->pieces);
  status = co_await mirror_->PrepareAppend(worker, plan->pieces);
  if (!status.ok()) co_return Fail(status);
  co_return Status::Ok();
}

dsm::Task<Status> LogMirror::FinishRound(dsm::Worker& worker, const Plan& plan, Status appended) {
  if (!appended.ok()) co_return Fail(appended);
  Status status =
      failure();  // of a round before it, or of whatever else the logs have failed for good of
  if (!status.ok()) co_return status;
  if (!plan.pieces.empty()) rounds_ended_.fetch_add(1, std::memory_order_relaxed);
  for (const MirrorPiece& piece : plan.pieces) {
    bytes_.fetch_add(piece.to - piece.from, std::memory_order_relaxed);
  }
  std::vector<Log::Sealed> sealed;
  for (size_t i = logs_.size(); i-- > 0;) logs_[i]->Mirrored(plan.cuts[i], &sealed);
  for (const Log::Sealed& each : sealed) {
    Status told = co_await mirror_->Seal(worker, each.log, each.segment, each.used);
    if (!told.ok()) co_return Fail(told);
  }
  co_return Status::Ok();
}

dsm::Task<Status> LogMirror::RoundAlone(dsm::Worker& worker) {
  Plan plan;
  Status status = co_await PlanRound(worker, &plan);
  if (!status.ok()) co_return status;
  if (!plan.pieces.empty()) status = co_await mirror_->Append(worker, plan.pieces);
  status = co_await FinishRound(worker, plan, std::move(status));
  co_return status;
}

dsm::Task<Status> LogMirror::FillFromMemory(dsm::Worker& worker, CopySink& sink,
                                            const Install& install) {
  MirrorRounds::Waiter waiter{std::nullopt, &worker};
  co_await rounds_.Take(&waiter);
  Status filled = co_await Fill(worker, sink, install);
  rounds_.EndLead(reached_);
  co_return filled;
}

dsm::Task<Status> LogMirror::Fill(dsm::Worker& worker, CopySink& sink, const Install& install) {
  Status status = co_await RoundAlone(worker);
  if (!status.ok()) co_return status;
  std::vector<MirrorPiece> full, open;
  for (size_t i = logs_.size(); i-- > 0;) logs_[i]->PlanFill(&full, &open);
  for (const MirrorPiece& piece : full) {
    // Behind the block of the last record anything may stand.
    const auto blocks = static_cast<uint32_t>(RoundUp(piece.to, storage::kBlockBytes));
    status = co_await sink.Write(worker, piece.segment, 0, {piece.segment_bytes, blocks}, true);
    if (!status.ok()) co_return status;
  }
  for (const MirrorPiece& piece : open) {
    status = co_await sink.WriteOpen(worker, piece);
    if (!status.ok()) co_return status;
  }
  status = co_await install();
  co_return status;
}

}  // namespace farleaf::index::lsm
