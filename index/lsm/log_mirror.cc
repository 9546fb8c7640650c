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

dsm::Task<Status> LogMirror::UpTo(dsm::Worker& worker, LogPositions positions) {
  if (Reached(positions)) co_return Status::Ok();
  Waiter waiter{positions, &worker};
  co_await turns_.Take(&waiter);
  if (!waiter.leads) co_return Status::Ok();
  Status mirrored;
  if (!Reached(positions)) mirrored = co_await Round(worker);
  EndTurn();
  co_return mirrored;
}

// Whoever a round that failed was for leads one of his own, and finds the logs failed.
void LogMirror::EndTurn() {
  const auto reached = [this](const std::optional<LogPositions>& positions) {
    return positions && Reached(*positions);
  };
  turns_.End(reached, Status::Ok());
}

dsm::Task<Status> LogMirror::Round(dsm::Worker& worker) {
  for (const Log* log : logs_) {
    Status failure = log->failure();
    if (!failure.ok()) co_return failure;
  }
  std::array<Log::Upto, kLogsMax> whole{};
  whole.fill(Log::Upto::kTail);
  const LogCuts::Cuts cuts = co_await cuts_->Take(worker, whole);
  Status mirrored = co_await MirrorCuts(worker, cuts);
  if (!mirrored.ok()) {
    for (Log* log : logs_) log->Fail(mirrored.WithContext("log failed for good"));
  }
  co_return mirrored;
}

dsm::Task<Status> LogMirror::MirrorCuts(dsm::Worker& worker, const LogCuts::Cuts& cuts) {
  std::vector<MirrorPiece> pieces;
  for (size_t i = logs_.size(); i-- > 0;) logs_[i]->PlanMirror(cuts[i], &pieces);
  if (!pieces.empty()) {
    Status appended = co_await mirror_->Append(worker, pieces);
    if (!appended.ok()) co_return appended;
    rounds_.fetch_add(1, std::memory_order_relaxed);
    for (const MirrorPiece& piece : pieces) {
      bytes_.fetch_add(piece.to - piece.from, std::memory_order_relaxed);
    }
  }
  std::vector<Log::Sealed> sealed;
  for (size_t i = logs_.size(); i-- > 0;) logs_[i]->Mirrored(cuts[i], &sealed);
  for (const Log::Sealed& each : sealed) {
    Status told = co_await mirror_->Seal(worker, each.log, each.segment, each.used);
    if (!told.ok()) co_return told;
  }
  co_return Status::Ok();
}

dsm::Task<Status> LogMirror::FillFromMemory(dsm::Worker& worker, CopySink& sink,
                                            const Install& install) {
  Waiter waiter{std::nullopt, &worker};
  co_await turns_.Take(&waiter);
  Status filled = co_await Fill(worker, sink, install);
  EndTurn();
  co_return filled;
}

dsm::Task<Status> LogMirror::Fill(dsm::Worker& worker, CopySink& sink, const Install& install) {
  Status status = co_await Round(worker);
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
