// Changes.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "index/lsm/entry_of.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

namespace {
/// Between two looks at whether there is room.
constexpr uint64_t kAdmitSliceNs = kNsPerMs;
/// ... and at whether collection has got on.
constexpr uint64_t kCollectSliceNs = 2 * kNsPerMs;
/// Between two looks at whether merges keep up again.
constexpr uint64_t kPaceSliceNs = 20 * kNsPerMs;
/// Just below the limit of garbage.
constexpr uint64_t kGarbageDelayNsMax = 20 * kNsPerMs;
/// On a device that is full, until a flush has given room back to the recovery log; and between two looks.
constexpr uint64_t kDeletesWaitNsMax = 5 * kNsPerSecond;
constexpr uint64_t kDeletesSliceNs = 5 * kNsPerMs;
/// For copies, of a write that is done: whoever is to hand its store over waits for it.
constexpr uint64_t kCopiesWaitNsMax = 2 * kNsPerSecond;
constexpr uint64_t kCopiesSliceNs = 5 * kNsPerMs;
}  // namespace

Sequence LsmStore::NewestInMemory(const ReadView& view, std::string_view key) const {
  const Sequence newest = view.active->NewestSequence(key);
  if (newest != 0 || !view.flushing) return newest;
  return view.flushing->NewestSequence(key);
}

void LsmStore::InsertIntoMemtable(std::span<const Change> changes, Sequence first) {
  // Loaded behind the lock under which the sequence was given: no older than the view that was installed then.
  const ReadView& view = View();
  Memtable& memtable = first >= view.active_first ? *view.active : *view.flushing;
  for (const Change& change : changes) {
    const Sequence sequence = first++;
    if (change.kind == ChangeKind::kDeleteRange) {
      memtable.InsertRange(change.key, change.end, sequence);
    } else {
      memtable.Insert(EntryOf(change, sequence));
    }
  }
}

// A range has keys in any stripe: whoever deletes one holds all of them, so that no read-modify-write of such a key is between its look
// at the memtable and its own insertion.
LsmStore::StripeLocks LsmStore::LockStripes(std::span<const Change> changes) {
  const auto stripe_of = [](std::string_view key) {
    return std::hash<std::string_view>()(key) % kStripes;
  };
  if (changes.size() == 1 && changes[0].kind != ChangeKind::kDeleteRange) {
    return {std::unique_lock(stripes_[stripe_of(changes[0].key)].lock), {}};
  }
  std::vector<size_t> numbers;
  for (const Change& change : changes) {
    if (change.kind == ChangeKind::kDeleteRange) {
      numbers.resize(kStripes);
      std::iota(numbers.begin(), numbers.end(), size_t{0});
      break;
    }
    numbers.push_back(stripe_of(change.key));
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  StripeLocks locks;
  locks.several.reserve(numbers.size());
  for (const size_t number : numbers) locks.several.emplace_back(stripes_[number].lock);
  return locks;
}

LsmStore::CommitOutcome LsmStore::TryCommit(dsm::Worker& worker, std::span<const Change> changes,
                                            const Seen* seen, Committed* committed) {
  CommitWriter writer;
  for (const Change& change : changes) writer.Add(change);
  const StripeLocks locks = LockStripes(changes);
  if (seen) {
    const ReadView& view = View();
    if (view.flushes != seen->flushes || NewestInMemory(view, changes[0].key) != seen->newest) {
      return CommitOutcome::kChanged;
    }
  }
  CommitOrder::Slot slot(&order_, worker.number());
  const auto outcome =
      recovery_log_->AppendCommit(writer.payload(), writer.changes(), &committed->recovery,
                                  [&](Sequence first) { slot.Announce(first); });
  if (outcome == Log::Outcome::kNoRoom) return CommitOutcome::kNoRoom;
  if (outcome == Log::Outcome::kFailed) return CommitOutcome::kFailed;
  committed->sealed |= committed->recovery.sealed;
  InsertIntoMemtable(changes, committed->recovery.first);
  return CommitOutcome::kDone;
}

Task<Status> LsmStore::AppendValue(dsm::Worker& worker, std::string_view key,
                                   std::string_view value, ValuePointer* pointer,
                                   Committed* committed, From from) {
  for (;;) {
    Log::Appended appended;
    switch (value_log_->AppendValue(key, value, pointer, &appended)) {
      case Log::Outcome::kAppended:
        committed->values_end = appended.end;
        if (appended.sealed) {
          committed->sealed = true;
          garbage_.AddUnnamed(appended.sealed_segment,
                              storage::kSegmentBytes - appended.sealed_used + kLogHeadBytes);
        }
        co_return Status::Ok();
      case Log::Outcome::kFailed:
        co_return value_log_->failure();
      case Log::Outcome::kNoRoom:
        break;
    }
    Status room = co_await AwaitLogRoom(worker, *value_log_, from);
    if (!room.ok()) co_return room;
  }
}

Task<Status> LsmStore::AwaitLogRoom(dsm::Worker& worker, Log& log, From from) {
  WriterWait wait(&counters_, WaitsFor::kLogs, worker.clock());
  wait.Begin();
  if (!from && room_.closed()) co_return room_.Refuse();
  Status room = co_await logs_->Room(worker, log, from);
  if (from) co_return room;
  if (room.code() == StatusCode::kResourceExhausted) CloseRoom(std::move(room));
  // Also if there is some by now: it may be of the reserve.
  if (room_.closed()) co_return room_.Refuse();
  co_return room;
}

// Who keeps the logs going opens it again.
void LsmStore::CloseRoom(Status why) {
  room_.Close(std::move(why));
  for (Event* event : {&log_work_, &levels_changed_, &garbage_changed_}) event->Notify();
}

// Deletes may have used up what is kept for logs: a flush gives it back.
Task<Status> LsmStore::AwaitCommitRoom(dsm::Worker& worker, uint64_t deadline_ns, From from) {
  const uint64_t end_ns = std::min(deadline_ns, worker.clock().NowNs() + kDeletesWaitNsMax);
  for (;;) {
    Status room = co_await AwaitLogRoom(worker, *recovery_log_, from);
    const bool waits = from && room.code() == StatusCode::kResourceExhausted && !stopping_ &&
                       worker.clock().NowNs() < end_ns;
    if (!waits) co_return room;
    if (!room_.closed()) CloseRoom(std::move(room));
    if (!View().flushing) FlushSoon();
    co_await worker.Sleep(kDeletesSliceNs);
  }
}

/// Where nobody mirrors, another's memory is this one's disk.
Durability LsmStore::DurabilityOf(const OpContext& op) const {
  const Durability own = options_.durability;
  const bool synced = op.durability == WriteDurability::kSynced ||
                      (op.durability == WriteDurability::kReplicated && deps_.mirror == nullptr);
  if (synced) return Durability::kSynced;
  const bool more = op.durability == WriteDurability::kReplicated && own == Durability::kLocal;
  return more ? Durability::kReplicated : own;
}

void LsmStore::CountUserBytes(std::span<const Change> changes) {
  uint64_t bytes = 0;
  for (const Change& change : changes) {
    const bool apart = change.kind == ChangeKind::kPutPointer;
    bytes += change.key.size() + change.end.size() +
             (apart ? change.pointer.value_bytes : change.value.size());
  }
  StoreCounters::Add(&counters_.user_bytes, bytes);
}

Task<Status> LsmStore::AwaitDurable(OpContext& op, LogGroup::Positions positions) {
  Status done;
  switch (DurabilityOf(op)) {
    case Durability::kLocal:
      break;
    case Durability::kSynced:
      done = co_await logs_->Sync(op.worker, positions);
      break;
    case Durability::kReplicated:
      done = co_await logs_->Replicate(op.worker, positions);
      break;
  }
  if (!done.ok() || deps_.mirror == nullptr || DurabilityOf(op) == Durability::kLocal) {
    co_return done;
  }
  done = deps_.mirror->EnoughCopies();
  if (!done.ok()) [[unlikely]]
    done = co_await AwaitCopies(op);
  co_return done;
}

// Who comes to be a copy is filled with all that was appended by then: so who counts has what this one waits with. It began when there were enough; if there are
// not again for long, it is in doubt.
Task<Status> LsmStore::AwaitCopies(OpContext& op) {
  WriterWait wait(&counters_, WaitsFor::kCopies, op.worker.clock());
  wait.Begin();
  const uint64_t end_ns = std::min(op.deadline_ns, op.worker.clock().NowNs() + kCopiesWaitNsMax);
  for (;;) {
    Status enough = deps_.mirror->EnoughCopies();
    if (enough.ok()) co_return enough;
    FARLEAF_CO_RETURN_IF_ERROR(deps_.mirror->MayAnswer());
    const uint64_t now_ns = op.worker.clock().NowNs();
    if (stopping_ || now_ns >= end_ns) co_return enough;
    co_await op.worker.Sleep(std::min(kCopiesSliceNs, end_ns - now_ns));
  }
}

// Writes that never wait would hold back each memtable that was flushed: its memory is freed behind a quiescent point.
bool LsmStore::NoteCommit(const Committed& committed) {
  if (committed.sealed) log_work_.Notify();
  return RotateIfFull();
}

Task<Status> LsmStore::AfterCommit(OpContext& op, const Committed& committed) {
  const bool others_turn = NoteCommit(committed);
  const bool waits = DurabilityOf(op) != Durability::kLocal || deps_.mirror != nullptr;
  if (!others_turn && !waits) return {dsm::Done{}, Status::Ok()};
  return AwaitAcknowledged(op, {committed.recovery.end, committed.values_end}, others_turn);
}

Task<Status> LsmStore::AwaitAcknowledged(OpContext& op, LogGroup::Positions positions,
                                         bool others_turn) {
  if (others_turn) co_await op.worker.Sleep(0);
  Status done = co_await AwaitDurable(op, positions);
  // It may have waited, or been stopped, for longer than this process is the one to answer.
  if (done.ok() && deps_.mirror != nullptr) done = deps_.mirror->MayAnswer();
  if (done.ok()) co_return done;
  co_return Status::Unknown("it may become durable later: " + done.ToString());
}

// What was found, be it that there is nothing, is answered when it survives what a change would.
Task<Status> LsmStore::AfterNoChange(OpContext& op, std::optional<std::string_view> key) {
  if (op.durability != WriteDurability::kOfStore) {
    Status durable = co_await AwaitDurable(op, logs_->ends());
    if (!durable.ok()) co_return durable;
  }
  Status answerable;
  if (deps_.mirror == nullptr) co_return answerable;
  if (key) {
    answerable = co_await AwaitAnswerable(op, *key);
  } else {
    answerable = co_await AwaitAnswerable(op);
  }
  co_return answerable;
}

// Writers look again after a slice of time, whatever happens: so each ends with its deadline, with the store, and with the failure
// of what it waits for.
Task<Status> LsmStore::AwaitMemtableRoom(dsm::Worker& worker, uint64_t deadline_ns) {
  WriterWait wait(&counters_, WaitsFor::kFlush, worker.clock());
  for (;;) {
    bool awaits_merge = false;
    {
      const ReadView& view = View();
      if (!view.flushing || !IsFull(*view.active)) co_return Status::Ok();
      awaits_merge = view.version->fresh >= kFreshMax;
    }
    Status awaited = awaits_merge ? MergeFailure() : BackgroundStatus(kFlush);
    if (!awaited.ok()) co_return awaited;
    if (stopping_) co_return Status::Unavailable("the store is being closed");
    const uint64_t now_ns = worker.clock().NowNs();
    if (now_ns >= deadline_ns) {
      co_return Status::DeadlineExceeded("writing to disk does not keep up");
    }
    wait.Begin();
    co_await worker.Sleep(std::min(kAdmitSliceNs, deadline_ns - now_ns));
  }
}

// Of the merge of fresh runs, or of what keeps that from its turn.
Status LsmStore::MergeFailure() {
  Status failure = BackgroundStatus(kCompaction);
  {
    std::lock_guard lock(compacting_mutex_);
    if (!failure.ok() || (compacting_ & 1) != 0) return failure;
  }
  for (size_t into = 1; into < kLevelsMax && failure.ok(); ++into) {
    failure = BackgroundStatus(kCompaction + into);
  }
  return failure;
}

double LsmStore::Pressure() const {
  const ReadView& view = View();
  const size_t runs = view.version->fresh + (view.flushing ? 1 : 0);
  if (runs + 1 < kFreshSlow) [[likely]]
    return 0;
  const double active = std::min(view.active->Fullness(options_.memtable_bytes), 1.0);
  return WritePace::Pressure(static_cast<double>(runs) + active);
}

// Ends early when there is no need any more, or the store is being closed.
Task<void> LsmStore::WaitItsTurn(dsm::Worker& worker, uint64_t deadline_ns, uint64_t delay_ns) {
  WriterWait wait(&counters_, WaitsFor::kMerges, worker.clock());
  wait.Begin();
  const uint64_t end_ns = std::min(worker.clock().NowNs() + delay_ns, deadline_ns);
  while (!stopping_ && Pressure() > 0) {
    const uint64_t now_ns = worker.clock().NowNs();
    if (now_ns >= end_ns) break;
    co_await worker.Sleep(std::min(kPaceSliceNs, end_ns - now_ns));
  }
}

// It comes to an end as long as collection gets on (value_garbage.h). Before the first commit nothing is collected (store_collect.cc): then it
// is not waited for either.
bool LsmStore::OverGarbageLimit() const {
  return garbage_.share() >= options_.garbage_limit() &&
         recovery_log_->tail_segment() != SegmentId::kNone;
}

Task<Status> LsmStore::AwaitCollection(dsm::Worker& worker, uint64_t deadline_ns) {
  WriterWait wait(&counters_, WaitsFor::kCollection, worker.clock());
  wait.Begin();
  const double limit = options_.garbage_limit(), slow = kGarbageSlow * limit;
  if (const double near = (garbage_.share() - slow) / (limit - slow); near < 1) {
    const auto delay_ns =
        static_cast<uint64_t>(std::max(near, 0.0) * static_cast<double>(kGarbageDelayNsMax));
    const uint64_t now_ns = worker.clock().NowNs();
    co_await worker.Sleep(std::min(delay_ns, deadline_ns - std::min(now_ns, deadline_ns)));
  }
  while (OverGarbageLimit()) {
    Status collected = BackgroundStatus(kCollection);
    if (!collected.ok()) co_return collected;
    if (stopping_) co_return Status::Unavailable("the store is being closed");
    const uint64_t now_ns = worker.clock().NowNs();
    if (now_ns >= deadline_ns) {
      co_return Status::DeadlineExceeded(
          fmt::format("{:.0f} % of the value log is garbage, which is not collected as fast as it "
                      "is made; garbage_max is {:.0f} %",
                      100 * garbage_.share(), 100 * limit));
    }
    garbage_changed_
        .Notify();  // what kept segments from being collected may have ended, and nobody told
    co_await worker.Sleep(std::min(kCollectSliceNs, deadline_ns - now_ns));
  }
  co_return Status::Ok();
}

// Nearly always nothing is in the way: then there is nobody to wait, and no coroutine.
Task<Status> LsmStore::Admit(OpContext& op, size_t changes, From from) {
  if (MayHaveToWait() || WaitsItsTurn()) [[unlikely]]
    return AdmitLater(op, changes, from);
  return {dsm::Done{}, MayBegin(op)};
}

Task<Status> LsmStore::AdmitLater(OpContext& op, size_t changes, From from) {
  dsm::Worker& worker = op.worker;
  FARLEAF_CO_RETURN_IF_ERROR(MayBegin(op));  // who is refused takes nobody's turn
  if (room_.closed()) [[unlikely]] {
    if (!from) co_return room_.Refuse();  // deletes make no garbage that was not there
  } else if (options_.collect_values && garbage_.share() > kGarbageSlow * options_.garbage_limit())
      [[unlikely]] {
    Status collected = co_await AwaitCollection(worker, op.deadline_ns);
    if (!collected.ok()) co_return collected;
  }
  if (const double pressure = changes > 0 ? Pressure() : 0; pressure > 0) [[unlikely]] {
    const uint64_t delay_ns = pace_.DelayNs(worker.clock().NowNs(), pressure, changes);
    if (delay_ns > 0) co_await WaitItsTurn(worker, op.deadline_ns, delay_ns);
  }
  Status admitted = co_await AwaitMemtableRoom(worker, op.deadline_ns);
  if (admitted.ok()) admitted = MayBegin(op);
  co_return admitted;
}

// Whoever cannot acknowledge it does not begin it: another one may, or this one a little later.
Status LsmStore::MayBegin(const OpContext& op) const {
  if (deps_.mirror == nullptr) return Status::Ok();
  Status may = deps_.mirror->MayAnswer();
  if (may.ok() && DurabilityOf(op) != Durability::kLocal) may = deps_.mirror->EnoughCopies();
  return may;
}

bool LsmStore::MayHaveToWait() const {
  const ReadView& view = View();
  return room_.closed() || (view.flushing && IsFull(*view.active)) ||
         (options_.collect_values && OverGarbageLimit());
}

bool LsmStore::WaitsItsTurn() const {
  return Pressure() > 0 ||
         (options_.collect_values && garbage_.share() > kGarbageSlow * options_.garbage_limit());
}

Status LsmStore::CheckChange(const Change& change) const {
  const auto refuse = [](std::string what) { return Status::InvalidArgument(std::move(what)); };
  if (change.kind == ChangeKind::kDeleteRange) {
    if (change.end.size() > kKeyBytesMax || change.key >= change.end) {
      return refuse("a range that does not end behind its start, or too far");
    }
  } else {
    FARLEAF_RETURN_IF_ERROR(CheckKey(change.key));
  }
  if (change.kind == ChangeKind::kPutPointer) return refuse("a pointer is the store's to make");
  if (change.kind != ChangeKind::kPut && change.expires_ms != 0) {
    return refuse("a deletion that expires");
  }
  if (change.kind == ChangeKind::kPut && change.value.size() > kValueBytesMax) {
    return refuse(
        fmt::format("a value of {} bytes: up to {} can be", change.value.size(), kValueBytesMax));
  }
  return Status::Ok();
}

Task<Status> LsmStore::CommitChanges(OpContext& op, std::span<Change> changes,
                                     Committed* committed) {
  // While nothing can be committed, no values pile up either.
  const bool deletes = std::ranges::all_of(
      changes, [](const Change& change) { return change.kind != ChangeKind::kPut; });
  const From from = deletes ? From(storage::Reserve::kLogs) : std::nullopt;
  Status admitted = co_await Admit(op, changes.size(), from);
  if (!admitted.ok()) co_return admitted;
  OpenValues::Use open;
  for (Change& change : changes) {
    if (change.kind != ChangeKind::kPut) continue;
    if (change.value.size() < options_.value_separation_bytes) continue;
    open.Begin(&open_values_, *value_log_, op.worker.number());
    Status appended =
        co_await AppendValue(op.worker, change.key, change.value, &change.pointer, committed, {});
    if (!appended.ok()) co_return appended;
    change.kind = ChangeKind::kPutPointer;
    change.value = {};
  }
  for (;;) {
    const CommitOutcome outcome = TryCommit(op.worker, changes, nullptr, committed);
    if (outcome == CommitOutcome::kDone) {
      CountUserBytes(changes);
      co_return Status::Ok();
    }
    if (outcome == CommitOutcome::kFailed) co_return recovery_log_->failure();
    Status room = co_await AwaitCommitRoom(op.worker, op.deadline_ns, from);
    if (!room.ok()) co_return room;
    admitted = co_await Admit(op, 0, from);  // they have had their wait
    if (!admitted.ok()) co_return admitted;
  }
}

Task<Status> LsmStore::Write(OpContext& op, std::span<const Change> changes) {
  // All is looked at before anything is done.
  if (changes.empty()) co_return Status::Ok();
  std::vector<Change> stored(changes.begin(), changes.end());
  uint64_t bytes = kCommitHeadBytes;
  for (Change change : changes) {
    FARLEAF_CO_RETURN_IF_ERROR(CheckChange(change));
    const bool large = change.value.size() >= options_.value_separation_bytes;
    if (change.kind == ChangeKind::kPut && large) change.kind = ChangeKind::kPutPointer;
    bytes += ChangeBytes(change);
  }
  if (bytes > kLogPayloadBytesMax) {
    co_return Status::InvalidArgument(
        fmt::format("changes of {} bytes at once: up to {} can be, large values not counted", bytes,
                    kLogPayloadBytesMax));
  }
  Status done = co_await CommitBlindly(op, stored);
  co_return done;
}

Task<Status> LsmStore::BlindPut(OpContext& op, std::string_view key, std::string_view value) {
  Change change{.kind = ChangeKind::kPut, .key = key, .value = value};
  FARLEAF_CO_RETURN_IF_ERROR(CheckChange(change));
  Status done = co_await CommitBlindly(op, {&change, 1});
  co_return done;
}

Task<Status> LsmStore::CommitBlindly(OpContext& op, std::span<Change> changes) {
  Committed committed;
  Status done = co_await CommitChanges(op, changes, &committed);
  if (!done.ok()) {
    NoteUnnamed(changes);
    if (committed.sealed) log_work_.Notify();
    co_return done;
  }
  done = co_await AfterCommit(op, committed);
  co_return done;
}

Task<Status> LsmStore::DeleteRange(OpContext& op, std::string_view start, std::string_view end) {
  const Change change{.kind = ChangeKind::kDeleteRange, .key = start, .end = end};
  Status deleted = co_await Write(op, {&change, 1});
  co_return deleted;
}

}  // namespace farleaf::index::lsm
