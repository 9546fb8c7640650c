// Value collection: segments of the value log that are garbage for the most part are emptied, and freed.
//
// A segment may be freed when nobody follows a pointer into it any more. By cases:
//   - nothing will name it that does not yet: it is full, and whoever appended to it has committed (OpenValues);
//   - what the newest version of a key names is moved: appended again, and committed under the key as the same value, unless
//     the key was changed meanwhile. All moves are durable before the manifest says that the segment is gone, so that no
//     crash leaves an older version the newest;
//   - what a commit names that a recovery has cut off, because its value or one before it was lost, stays in the recovery log until
//     the log goes on behind the cut: nothing is freed before that is durable, or the next recovery would take such a
//     commit for one whose value was collected;
//   - what is not whole cannot be moved: in a segment that was being filled at a crash all that may name something is looked through
//     (store_gaps.cc), and if the newest version of a key names what is lost, or it cannot be told, the segment is kept, as it is with
//     damage in any other one;
//   - what an older version names is read by whoever began to read before that one was written: he holds a view from before
//     the moves' end, and the segment is removed with the last of these. What replays or merges such a version does
//     not follow its pointer.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "dsm/base/bytes.h"
#include "dsm/base/log.h"
#include "index/lsm/log_reader.h"
#include "index/lsm/store.h"

namespace farleaf::index::lsm {

using storage::kSegmentBytes;

namespace {

/// Moves in flight at a time: each may wait for a block of a leaf.
constexpr size_t kMovers = 16;
constexpr uint64_t kHourMs = 3'600'000;
constexpr uint64_t kCollectAgainNs = kNsPerMs;
/// Between two tries of a segment that is kept, the first time; then twice as long each time.
constexpr uint64_t kKeepNs = kNsPerSecond, kKeepNsMax = 3600 * kNsPerSecond;
/// On a device that is full this share of garbage is enough.
constexpr double kCollectAboveWhenFull = 0.2;
/// Between two looks at how much is garbage.
constexpr size_t kChosenMax = 8;

/// Where the next value's record begins that is whole; the segment's end: there is none. Looks at checksums of what has the form of
/// one only.
uint32_t NextWholeValue(uint32_t seed, uint32_t offset, std::span<const std::byte> segment) {
  for (; offset + kLogHeaderBytes + 2 <= segment.size(); ++offset) {
    const std::byte* const at = segment.data() + offset;
    const uint32_t word = LoadLittle<uint32_t>(at + 4), payload = word & 0xffffff;
    const uint32_t key_bytes = LoadLittle<uint16_t>(at + kLogHeaderBytes);
    if (word >> 24 != static_cast<uint32_t>(LogRecordKind::kValue) || key_bytes > kKeyBytesMax ||
        payload < key_bytes + 2 || payload > kValueBytesMax + key_bytes + 2) {
      continue;
    }
    if (ParseLogRecord(seed, offset, segment.subspan(offset))) return offset;
  }
  return static_cast<uint32_t>(segment.size());
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

/// Whether nothing but zeros is between here and the end of the block, as whoever wrote the last record left it.
bool EndsHere(uint32_t offset, std::span<const std::byte> segment) {
  return AllZero(segment.subspan(offset, RoundUp(offset, storage::kBlockBytes) - offset));
}

}  // namespace

/// One segment that is being emptied; on one worker.
struct LsmStore::Collection {
  struct Value {
    ValueRecord record;
    ValuePointer pointer;
  };
  /// Of the segment's bytes, which stay.
  void TakeValues(SegmentId id, uint64_t epoch, std::span<const std::byte> segment);
  ~Collection() { ended.Abandon(); }

  std::vector<Value> values;  ///< views are of the segment's bytes
  std::vector<ValueGap> gaps;
  size_t next = 0;
  size_t movers = 0;
  Event ended;
  Status status;
  Status unread;  ///< why it is not known of some value whether it is named; Ok: of each it is
};

// What was not written behind the last record may hold anything, in a file that was another segment's; nothing tells its begin from that
// of a record, unless it is in the middle of a block.
void LsmStore::Collection::TakeValues(SegmentId id, uint64_t epoch,
                                      std::span<const std::byte> segment) {
  const uint32_t seed = SegmentSeed(epoch, id);
  uint32_t offset = 0;
  while (offset < segment.size()) {
    const auto record = ParseLogRecord(seed, offset, segment.subspan(offset));
    if (!record) {
      const uint32_t whole = NextWholeValue(seed, offset, segment);
      const bool is_last = whole == segment.size();
      const bool in_block = offset % storage::kBlockBytes != 0;
      if (!is_last || !(in_block ? EndsHere(offset, segment) : AllZero(segment.subspan(offset)))) {
        gaps.push_back({.begin = offset, .end = whole, .may_be_end = is_last && !in_block});
      }
      offset = whole;
      continue;
    }
    if (const auto value = ParseValueRecord(*record)) {
      const ValuePointer pointer{id, offset, record->bytes(),
                                 static_cast<uint32_t>(value->value.size())};
      values.push_back({*value, pointer});
    }
    offset += record->bytes();
  }
}

// Whatever the wall's clock says, now or later: what expired an hour ago is deleted, for good; what expired since is moved.
Task<Status> LsmStore::MoveValue(dsm::Worker& worker, ValueRecord record, ValuePointer from,
                                 Status* unread) {
  LookupPlaces places = Places();
  places.wall = &time_zero_;
  dsm::FabricCounts counts;
  OpContext op{worker, counts};
  while (!stopping_) {
    Status room = co_await AwaitCollectorsRoom(worker);
    if (!room.ok()) co_return room;
    Found found;
    const uint64_t flushes_before = View().flushes;
    auto there = co_await Find(op, places, record.key, kSequenceMax, Wanted::kPresence, &found);
    if (!there.ok() && IsUnreadable(there.status())) {
      *unread = there.status();
      co_return Status::Ok();
    }
    if (!there.ok()) co_return there.status();
    const Seen seen{View().flushes, found.newest_in_memory};
    if (seen.flushes != flushes_before) continue;
    const bool names_it =
        *there && found.entry.kind == EntryKind::kPointer && found.entry.pointer == from;
    if (!names_it) co_return Status::Ok();

    Committed committed;
    OpenValues::Use open;
    open.Begin(&open_values_, *value_log_, worker.number());
    Change change{
        .kind = ChangeKind::kPutPointer, .key = record.key, .expires_ms = found.entry.expires_ms};
    const uint64_t now_ms = deps_.wall->NowNs() / kNsPerMs;
    if (change.expires_ms != 0 && now_ms >= kHourMs && change.expires_ms <= now_ms - kHourMs) {
      change = {.kind = ChangeKind::kDelete, .key = record.key};
    } else {
      Status appended = co_await AppendValue(worker, record.key, record.value, &change.pointer,
                                             &committed, storage::Reserve::kLogs);
      if (!appended.ok()) co_return appended;
    }
    const CommitOutcome outcome = TryCommit(worker, {&change, 1}, &seen, &committed);
    if (committed.sealed) log_work_.Notify();
    if (outcome == CommitOutcome::kDone) {
      StoreCounters::Add(&counters_.moved_bytes, record.value.size());
      RotateIfFull();
      co_return Status::Ok();
    }
    NoteUnnamed({&change, 1});
    if (outcome == CommitOutcome::kFailed) co_return recovery_log_->failure();
    if (outcome == CommitOutcome::kChanged) continue;
    room = co_await logs_->Room(worker, *recovery_log_, storage::Reserve::kLogs);
    if (!room.ok()) co_return room;
  }
  co_return Status::Unavailable("the store is being closed");
}

Task<void> LsmStore::MoveValues(dsm::Worker& worker, Collection& collection) {
  while (collection.status.ok() && collection.next < collection.values.size()) {
    const Collection::Value value = collection.values[collection.next++];
    Status moved = co_await MoveValue(worker, value.record, value.pointer, &collection.unread);
    if (!moved.ok()) collection.status = std::move(moved);
  }
  if (--collection.movers == 0) collection.ended.Notify();
}

// A gap is looked at where a crash may have left it, or where it may be none. In any other one something that was durable is lost.
Task<Status> LsmStore::CheckGaps(dsm::Worker& worker, SegmentId id,
                                 const std::vector<ValueGap>& gaps, bool torn) {
  for (const ValueGap& gap : gaps) {
    if (!torn && !gap.may_be_end) co_return DamagedValue(id, gap.begin);
  }
  if (gaps.empty()) co_return Status::Ok();
  Status unnamed = co_await ExpectUnnamed(worker, id, gaps);
  co_return unnamed;
}

Task<Status> LsmStore::CollectSegment(dsm::Worker& worker, SegmentId id, Status* unread) {
  Status status = co_await logs_->WriteFull(worker);
  if (!status.ok()) co_return status;
  SegmentReader reader(deps_.storage, manifest_->epoch());
  status = co_await reader.Load(worker, id);
  bool torn = false, names_any = true;
  const std::function<void(const StoreState&)> look = [&](const StoreState& state) {
    torn = state.torn.contains(id);
    names_any = state.value_log.at(id) < kSegmentBytes;
  };
  co_await manifest_->Look(worker, look);
  // Not there, and nothing names it: it was granted, and never used.
  const bool missing = status.code() == StatusCode::kNotFound;
  if (missing && names_any) {
    status = Status::Corruption(deps_.storage->NameOf(id) + " at offset 0: the file is missing");
  }
  if (!status.ok() && (!missing || names_any)) {
    *unread = std::move(status);
    co_return Status::Ok();
  }
  Collection collection;
  if (!missing) collection.TakeValues(id, manifest_->epoch(), reader.bytes());
  collection.movers = std::min(kMovers, std::max<size_t>(collection.values.size(), 1));
  const uint64_t seen = collection.ended.count();
  for (size_t i = collection.movers; i > 0; --i) worker.Spawn(MoveValues(worker, collection));
  if (collection.movers > 0) co_await collection.ended.After(worker, seen);
  if (!collection.status.ok()) co_return collection.status;
  if (collection.unread.ok()) {
    collection.unread = co_await CheckGaps(worker, id, collection.gaps, torn);
  }
  if (!collection.unread.ok()) {
    *unread = std::move(collection.unread);
    co_return Status::Ok();
  }

  status = co_await logs_->Sync(worker, logs_->ends());
  if (!status.ok()) co_return status;
  co_await logs_->Drop(worker, id);
  StateEdit edit;
  edit.values_dropped.push_back(id);
  status = co_await CommitState(worker, std::move(edit), Flushed::kNo, kCollection);
  collected_segments_.fetch_add(status.ok(), std::memory_order_relaxed);
  co_return status;
}

// Those of which enough is garbage, with the most garbage first, and only the first of these: what others have is more by then. While there
// is too much garbage, the worst one at least. Of what is kept nobody is to wait for the garbage.
Task<std::vector<SegmentId>> LsmStore::SegmentsToCollect(dsm::Worker& worker,
                                                         const Retries& retries) {
  std::vector<SegmentId> chosen;
  if (recovery_log_->tail_segment() == SegmentId::kNone) co_return chosen;
  const SegmentId below = ValuesClosedBelow();
  const double enough_share = room_.closed()
                                  ? std::min(options_.collect_above, kCollectAboveWhenFull)
                                  : options_.collect_above;
  const auto enough = static_cast<uint64_t>(enough_share * kSegmentBytes);
  std::vector<std::pair<uint64_t, SegmentId>> candidates;
  std::pair<uint64_t, SegmentId> worst{0, SegmentId::kNone};
  const uint64_t now_ns = worker.clock().NowNs();
  const std::function<void(const StoreState&)> look = [&](const StoreState& state) {
    garbage_.Look(state, below);
    for (const auto& [id, garbage] : state.value_log) {
      if (id >= below) break;
      const auto retry = retries.find(id);
      if (retry == retries.end()) worst = std::max(worst, {garbage, id});
      if (retry != retries.end() && retry->second.until_ns > now_ns) continue;
      if (garbage >= enough) candidates.emplace_back(garbage, id);
    }
  };
  co_await manifest_->Look(worker, look);
  if (candidates.empty() && worst.first > 0 &&
      garbage_.share() > kGarbageSlow * options_.garbage_limit()) {
    candidates.push_back(worst);
  }
  std::sort(candidates.rbegin(), candidates.rend());
  candidates.resize(std::min(candidates.size(), kChosenMax));
  for (const auto& [garbage, id] : candidates) chosen.push_back(id);
  co_return chosen;
}

void LsmStore::KeepSegment(dsm::Worker& worker, SegmentId id, const Status& why, Retries* retries) {
  Retry& retry = (*retries)[id];
  if (retry.pause_ns == 0) {
    FARLEAF_LOG(error, "a segment of values, {}, is kept, whatever of it is garbage: {}",
                deps_.storage->NameOf(id), why.ToString());
  }
  retry.pause_ns = std::clamp(2 * retry.pause_ns, kKeepNs, kKeepNsMax);
  retry.until_ns = worker.clock().NowNs() + retry.pause_ns;
  garbage_.Keep(id);
}

Task<void> LsmStore::RunCollection(dsm::Worker& worker) {
  if (!options_.collect_values) co_return;
  Retries retries;
  for (;;) {
    const uint64_t seen = garbage_changed_.count();
    if (stopping_) co_return;
    // Nobody else may make this process's first commit, which collection has to wait for.
    if (room_.closed() && recovery_log_->tail_segment() == SegmentId::kNone) {
      Status begun = co_await CommitNothing(worker);
      if (!begun.ok() && !stopping_) {
        const bool goes_on = co_await PauseBehind(worker, kCollection, std::move(begun));
        if (!goes_on) co_return;
        continue;
      }
    }
    auto segments = co_await SegmentsToCollect(worker, retries);
    if (segments.empty()) {
      SetBackgroundStatus(kCollection, Status::Ok());
      co_await garbage_changed_.After(worker, seen);
    }
    for (const SegmentId id : segments) {
      if (stopping_) co_return;
      Status unread;
      Status collected = co_await CollectSegment(worker, id, &unread);
      if (stopping_) co_return;
      if (!unread.ok()) {
        // Writing does not hang on it, nor do others.
        SetBackgroundStatus(kCollection, Status::Ok());
        KeepSegment(worker, id, unread, &retries);
        continue;
      }
      if (collected.ok()) {
        retries.erase(id);
        garbage_.LetGo(id);
        continue;
      }
      const bool goes_on = co_await PauseBehind(worker, kCollection, std::move(collected));
      if (!goes_on) co_return;
    }
  }
}

// More than writers have: a store that is full of garbage must be able to free it, also while nothing can be flushed.
Task<Status> LsmStore::AwaitCollectorsRoom(dsm::Worker& worker) {
  while (View().active->Fullness(options_.memtable_bytes) >= 2) {
    if (stopping_) co_return Status::Unavailable("the store is being closed");
    const bool awaits_merge = View().flushing && View().version->fresh >= kFreshMax;
    Status awaited = awaits_merge ? MergeFailure() : BackgroundStatus(kFlush);
    if (!awaited.ok()) co_return awaited;
    co_await worker.Sleep(kCollectAgainNs);
  }
  co_return Status::Ok();
}

void LsmStore::NoteUnnamed(std::span<const Change> changes) {
  for (const Change& change : changes) {
    if (change.kind != ChangeKind::kPutPointer) continue;
    garbage_.AddUnnamed(change.pointer.segment, change.pointer.bytes);
  }
}

}  // namespace farleaf::index::lsm
