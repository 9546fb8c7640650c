#include "index/lsm/log_group.h"

#include <algorithm>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/base/clock.h"
#include "dsm/together.h"

namespace farleaf::index::lsm {

using storage::Io;

namespace {
/// What is written while full segments are synced is synced by the next pass, up to so many; what is left then, by the round.
constexpr int kPassesMax = 4;

}  // namespace

LogGroup::LogGroup(storage::Storage* storage, std::vector<Log*> logs, Durability durability,
                   Mirror* mirror)
    : storage_(storage),
      logs_(std::move(logs)),
      durability_(durability),
      cuts_(logs_),
      mirror_(mirror ? std::make_unique<LogMirror>(mirror, logs_, &cuts_) : nullptr) {
  FARLEAF_CHECK(!logs_.empty() && logs_.size() <= kLogsMax, logs_.size());
}

bool LogGroup::Reached(const Want& want) const {
  if (want.reach == Reach::kTurn) return false;
  if (want.reach == Reach::kRoom) return logs_.front()->buffers_->has_room();
  for (size_t i = 0; i < logs_.size(); ++i) {
    const LogPosition reached =
        want.reach == Reach::kSynced ? logs_[i]->synced_end() : logs_[i]->written_end();
    if (reached < want.positions[i]) return false;
  }
  return true;
}

dsm::Task<Status> LogGroup::Until(dsm::Worker& worker, Want want) {
  if (Reached(want)) co_return Status::Ok();
  Waiter waiter{want, &worker};
  co_await turns_.Take(&waiter);
  if (!waiter.leads) co_return waiter.status;
  Status round;
  if (!Reached(want)) {
    round = co_await Round(worker, want);
    FARLEAF_CHECK(!round.ok() || want.reach == Reach::kRoom || Reached(want));
  }
  EndTurn(round);
  if (Reached(want)) co_return Status::Ok();
  co_return round;
}

void LogGroup::AddWant(const Want& want, RoundPlan* plan) const {
  for (size_t i = 0; i < kLogsMax; ++i) {
    plan->written[i] =
        std::max(plan->written[i], want.positions[i]);  // for kRoom: what WriteFull would want
  }
  const bool syncs_room = want.reach == Reach::kRoom && durability_ == Durability::kSynced;
  if (want.reach != Reach::kSynced && !syncs_room) return;
  plan->syncs = true;
  if (want.positions[0] > logs_.front()->synced_end()) plan->syncs_commits = true;
}

/// All that is wanted now, by those who wait as well.
LogGroup::RoundPlan LogGroup::TakeWants(const Want& own) {
  RoundPlan plan;
  AddWant(own, &plan);
  turns_.ForEachWaiting([&](Waiter& waiter) {
    if (waiter.want.reach == Reach::kTurn) return;
    waiter.seen = true;
    AddWant(waiter.want, &plan);
  });
  rounds_.fetch_add(1, std::memory_order_relaxed);
  synced_rounds_.fetch_add(plan.syncs, std::memory_order_relaxed);
  return plan;
}

dsm::Task<Status> LogGroup::Round(dsm::Worker& worker, Want want) {
  const RoundPlan plan = TakeWants(want);
  for (const Log* log : logs_) {
    Status failure = log->failure();
    if (!failure.ok()) co_return failure;
  }
  std::array<Log::Upto, kLogsMax> upto{};
  for (size_t i = 0; i < logs_.size(); ++i) {
    // The recovery log is durable as far as what its commits name is: whoever syncs it, syncs all values.
    const bool tail = plan.written[i] > logs_[i]->sealed_end() || (i > 0 && plan.syncs);
    upto[i] = tail ? Log::Upto::kTail : Log::Upto::kFull;
  }
  const LogCuts::Cuts cuts = co_await cuts_.Take(worker, upto);
  Status status;
  if (mirror_) {
    Positions ends{};
    for (size_t i = 0; i < logs_.size(); ++i) ends[i] = cuts[i].end;
    status = co_await mirror_->UpTo(worker, ends);
    if (!status.ok()) co_return status;
  }
  std::vector<Io> ios;
  for (size_t i = 0; i < logs_.size(); ++i) logs_[i]->PlanWrites(cuts[i], &ios);
  if (!ios.empty()) status = co_await storage_->Run(worker, ios);
  for (size_t i = 0; i < logs_.size(); ++i) {
    Status written = logs_[i]->Written(cuts[i], ios);
    if (status.ok()) status = std::move(written);
  }
  if (status.ok() && plan.syncs) {
    ios.clear();
    const size_t begin = plan.syncs_commits ? 0 : 1;
    for (size_t i = begin; i < logs_.size(); ++i) logs_[i]->PlanSyncs(cuts[i], &ios);
    Status copies_synced;
    dsm::Together copies(worker);
    if (mirror_) {
      const SyncReach reach = plan.syncs_commits ? SyncReach::kBoth : SyncReach::kValues;
      copies.Start(mirror_->Sync(worker, reach), &copies_synced);
    }
    if (!ios.empty()) status = co_await storage_->Run(worker, ios);
    co_await copies.All();
    for (size_t i = begin; i < logs_.size(); ++i) {
      Status synced = logs_[i]->Synced(ios);
      if (status.ok()) status = std::move(synced);
    }
    if (status.ok()) status = std::move(copies_synced);
    for (size_t i = begin; i < logs_.size() && status.ok(); ++i) {
      logs_[i]->AdvanceSynced(cuts[i]);
    }
  }
  const Log::Keep keep =
      durability_ == Durability::kSynced ? Log::Keep::kUntilSynced : Log::Keep::kUntilWritten;
  for (size_t i = 0; i < logs_.size(); ++i) {
    logs_[i]->EndRound(cuts[i], keep);
    Status failure = logs_[i]->failure();
    if (!failure.ok()) status = std::move(failure);
  }
  co_return status;
}

dsm::Task<Status> LogGroup::SyncFull(dsm::Worker& worker, Positions positions) {
  for (int pass = 0; pass < kPassesMax;) {
    std::vector<Io> ios;
    std::array<size_t, kLogsMax> counts{};
    Waiter planning{{Reach::kTurn, {}}, &worker};
    co_await turns_.Take(&planning);
    for (size_t i = 0; i < logs_.size(); ++i) {
      if (positions[i] <= logs_[i]->synced_end()) continue;
      const size_t before = ios.size();
      logs_[i]->PlanFullSyncs(kSyncsAtOnce - before, &ios);
      counts[i] = ios.size() - before;
    }
    EndTurn(Status::Ok());
    if (ios.empty()) break;
    if (ios.size() < kSyncsAtOnce) ++pass;  // of what was there before, nothing is left behind it
    Status carried = co_await storage_->Run(worker, ios);
    (void)carried;  // each has its own
    Waiter noting{{Reach::kTurn, {}}, &worker};
    co_await turns_.Take(&noting);
    Status status;
    std::span<const Io> rest = ios;
    for (size_t i = 0; i < logs_.size(); ++i) {
      Status synced = logs_[i]->FullSynced(rest.first(counts[i]));
      if (status.ok()) status = std::move(synced);
      rest = rest.subspan(counts[i]);
    }
    EndTurn(Status::Ok());
    if (!status.ok()) co_return status;
  }
  co_return Status::Ok();
}

dsm::Task<Status> LogGroup::Sync(dsm::Worker& worker, Positions positions) {
  const Want want{Reach::kSynced, positions};
  if (Reached(want)) co_return Status::Ok();
  if (durability_ == Durability::kSynced) {
    Status status = co_await Until(worker, want);
    co_return status;
  }
  const CoroutineMutex::Held held = co_await syncing_.Lock(worker);
  if (Reached(want)) co_return Status::Ok();
  Status status = co_await SyncFull(worker, positions);
  if (!status.ok()) co_return status;
  status = co_await Until(worker, want);
  co_return status;
}

// Who has come to be a copy meanwhile was given all that was mirrored by then (LogMirror::FillFromMemory).
dsm::Task<Status> LogGroup::Replicate(dsm::Worker& worker, Positions positions) {
  // Before it looks for copies: whoever finds that there are none syncs behind that.
  if (!counts_on_copies_.load(std::memory_order_acquire)) counts_on_copies_.store(true);
  Status safe;
  MirrorRounds::Waiter waiter{positions, &worker};
  if (!mirror_->Reached(positions)) co_await mirror_->Take(&waiter);
  if (waiter.leads) safe = co_await mirror_->Lead(worker, positions);
  if (safe.ok() && !mirror_->has_copies()) safe = co_await Sync(worker, positions);
  co_return safe;
}

dsm::Task<Status> LogGroup::SyncReplicated(dsm::Worker& worker) {
  if (!counts_on_copies_.exchange(false)) co_return Status::Ok();
  Status synced = co_await Sync(worker, ends());
  if (!synced.ok()) counts_on_copies_.store(true);
  co_return synced;
}

dsm::Task<Status> LogGroup::Flush(dsm::Worker& worker) {
  Status status = co_await Until(worker, {Reach::kWritten, ends()});
  co_return status;
}

LogGroup::Positions LogGroup::SealedEnds() const {
  Positions positions{};
  for (size_t i = 0; i < logs_.size(); ++i) positions[i] = logs_[i]->sealed_end();
  return positions;
}

dsm::Task<Status> LogGroup::WriteFull(dsm::Worker& worker) {
  const Reach reach = durability_ == Durability::kSynced ? Reach::kSynced : Reach::kWritten;
  Status status = co_await Until(worker, {reach, SealedEnds()});
  co_return status;
}

dsm::Task<Status> LogGroup::Room(dsm::Worker& worker, Log& log,
                                 std::optional<storage::Reserve> from) {
  Status status;
  while (status.ok() && !log.HasRoom()) {
    status = log.failure();
    if (!status.ok()) break;
    if (!log.prepared(from)) {
      status = co_await log.Prepare(worker, from);
    } else {
      status = co_await Until(worker, {Reach::kRoom, SealedEnds()});
    }
  }
  co_return status;
}

dsm::Task<Status> LogGroup::Tend(dsm::Worker& worker) {
  Status status = co_await WriteFull(worker);
  for (size_t i = 0; i < logs_.size() && status.ok(); ++i) {
    status = co_await logs_[i]->Prepare(worker, std::nullopt);
  }
  co_return status;
}

dsm::Task<std::vector<SegmentId>> LogGroup::FlushedSegments(dsm::Worker& worker, Sequence flushed) {
  Waiter waiter{{Reach::kTurn, {}}, &worker};
  co_await turns_.Take(&waiter);
  std::vector<SegmentId> segments = logs_.front()->FlushedSegments(flushed);
  EndTurn(Status::Ok());
  co_return segments;
}

dsm::Task<void> LogGroup::Trim(dsm::Worker& worker, std::vector<SegmentId> segments) {
  Waiter waiter{{Reach::kTurn, {}}, &worker};
  co_await turns_.Take(&waiter);
  for (const SegmentId id : segments) logs_.front()->Forget(id);
  EndTurn(Status::Ok());
}

dsm::Task<void> LogGroup::Drop(dsm::Worker& worker, SegmentId id) {
  Waiter waiter{{Reach::kTurn, {}}, &worker};
  co_await turns_.Take(&waiter);
  logs_.back()->Forget(id);
  EndTurn(Status::Ok());
}

// The tails first: what becomes full behind that is in memory, and stays there in the turn; but it is in front of a later tail, and not on disk.
LogGroup::Memory LogGroup::LookAtMemory() const {
  Memory memory;
  for (size_t i = 0; i < logs_.size(); ++i) memory.tails[i] = logs_[i]->tail_segment();
  for (const Log* log : logs_) log->AddInMemory(&memory.segments);
  return memory;
}

dsm::Task<LogGroup::Memory> LogGroup::InMemory(dsm::Worker& worker) {
  Waiter waiter{{Reach::kTurn, {}}, &worker};
  co_await turns_.Take(&waiter);
  Memory memory = LookAtMemory();
  EndTurn(Status::Ok());
  co_return memory;
}

dsm::Task<Status> LogGroup::FillCopy(dsm::Worker& worker, CopySink& sink, const OnDisk& on_disk,
                                     const LogMirror::Install& install) {
  Waiter waiter{{Reach::kTurn, {}}, &worker};
  co_await turns_.Take(&waiter);
  const Memory memory = LookAtMemory();
  Status filled = co_await on_disk(memory);
  if (filled.ok()) filled = co_await mirror_->FillFromMemory(worker, sink, install);
  EndTurn(Status::Ok());
  co_return filled;
}

LogGroup::Positions LogGroup::ends() const {
  Positions positions{};
  for (size_t i = 0; i < logs_.size(); ++i) positions[i] = logs_[i]->end();
  return positions;
}

void LogGroup::Abandon() {
  syncing_.Abandon();
  cuts_.Abandon();
  if (mirror_) mirror_->Abandon();
  turns_.Abandon();
}

}  // namespace farleaf::index::lsm
