#include "index/lsm/log.h"

#include <algorithm>
#include <map>

#include "dsm/base/bytes.h"
#include "dsm/base/check.h"

namespace farleaf::index::lsm {

using storage::Io;
using storage::IoKind;
using storage::kBlockBytes;
using storage::kSegmentBytes;

/// Who prepares segments, and who waits for it.
struct Log::Preparing {
  struct Waiter {
    dsm::Worker* worker;
    std::coroutine_handle<> handle;
    Status* status;
  };
  std::mutex mutex;
  bool busy = false;
  bool with_reserve = false;  // of who is busy
  std::vector<Waiter> waiters;
  SegmentId taken = SegmentId::kNone;  // by Take, but not created yet; of who is busy

  struct [[nodiscard]] Joining {
    Preparing* preparing;
    dsm::Worker* worker;
    bool may_take_reserve = false;
    Status status = {};
    bool leads = false;
    bool behind_reserve = false;  ///< who leads may take of the reserve
    bool Lead() {
      if (preparing->busy) return false;
      preparing->with_reserve = may_take_reserve;
      return leads = preparing->busy = true;
    }
    bool await_ready() {
      std::lock_guard lock(preparing->mutex);
      return Lead();
    }
    bool await_suspend(std::coroutine_handle<> handle) {
      std::lock_guard lock(preparing->mutex);
      if (Lead()) return false;  // it ended in between
      behind_reserve = preparing->with_reserve;
      preparing->waiters.push_back({worker, handle, &status});
      return true;
    }
    void await_resume() const noexcept {}
  };
  void End(const Status& status) {
    std::vector<Waiter> ended;
    {
      std::lock_guard lock(mutex);
      busy = false;
      ended.swap(waiters);
    }
    for (const Waiter& waiter : ended) {
      *waiter.status = status;
      waiter.worker->ResumeSoon(waiter.handle);
    }
  }
};

Log::Log(const Deps& deps, const Options& options)
    : storage_(deps.storage),
      segments_(deps.segments),
      buffers_(deps.buffers),
      epochs_(deps.epochs),
      mirror_(deps.mirror),
      options_(options),
      next_sequence_(options.next_sequence),
      durable_sequence_(options.next_sequence - 1),
      mirrored_sequence_(options.next_sequence - 1),
      preparing_(std::make_unique<Preparing>()) {}

Log::~Log() {
  for (LogSegment* list : {first_, prepared_}) {
    while (list != nullptr) {
      LogSegment* const next = list->next;
      delete list;
      list = next;
    }
  }
}

bool Log::Roll() {
  if (prepared_ == nullptr) return false;
  if (tail_ != nullptr && !buffers_->TryAddFull()) return false;
  LogSegment* const next = prepared_;
  prepared_ = next->next;
  prepared_count_.fetch_sub(1);
  next->next = nullptr;
  next->ordinal = ++ordinals_;
  next->first = next_sequence_;
  std::byte* const header = next->buffer->bytes.data();
  EncodeLogHead({options_.kind, next->first, durable_sequence()}, header + kLogHeaderBytes);
  SealLogRecord(next->buffer->seed, 0, LogRecordKind::kHead, header,
                kLogHeadBytes - kLogHeaderBytes);
  next->used = kLogHeadBytes;
  if (tail_ != nullptr) {
    tail_->next = next;
    last_sealed_ = tail_;
  } else {
    first_ = next;
  }
  tail_ = next;
  tail_segment_.store(next->id, std::memory_order_release);
  return true;
}

Log::Outcome Log::AppendValue(std::string_view key, std::string_view value, ValuePointer* pointer,
                              Appended* appended) {
  const uint32_t bytes = ValueRecordBytes(key.size(), value.size());
  const Outcome outcome = Append(
      LogRecordKind::kValue, bytes - kLogHeaderBytes, 0, appended, [](Sequence) {},
      [&](std::byte* to) {
        StoreLittle(to, static_cast<uint16_t>(key.size()));
        std::memcpy(to + 2, key.data(), key.size());
        std::memcpy(to + 2 + key.size(), value.data(), value.size());
      });
  if (outcome == Outcome::kAppended) {
    *pointer = {appended->segment, appended->offset, bytes, static_cast<uint32_t>(value.size())};
  }
  return outcome;
}

std::optional<ValueRecord> Log::Find(const ValuePointer& pointer) const {
  const size_t used = live_used_.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    const LogBuffer* const buffer = live_[i].load(std::memory_order_acquire);
    if (buffer == nullptr || buffer->segment != pointer.segment) continue;
    // Written by ourselves, and by nobody since: what the pointer says of its parts is so.
    const std::byte* const record = buffer->bytes.data() + pointer.offset;
    const uint32_t key_bytes = pointer.bytes - ValueRecordBytes(0, pointer.value_bytes);
    const std::string_view payload =
        AsChars({record + kLogHeaderBytes + 2, key_bytes + pointer.value_bytes});
    return ValueRecord{payload.substr(0, key_bytes), payload.substr(key_bytes)};
  }
  return std::nullopt;
}

Status Log::failure() const {
  std::lock_guard lock(lock_);
  return failure_;
}

LogPosition Log::end() const {
  std::lock_guard lock(lock_);
  return tail_ == nullptr ? 0 : tail_->PositionAt(tail_->used);
}

LogPosition Log::sealed_end() const {
  std::lock_guard lock(lock_);
  return tail_ == nullptr || tail_->ordinal == 1 ? 0 : tail_->PositionAt(0);
}

dsm::Task<Status> Log::Prepare(dsm::Worker& worker, std::optional<storage::Reserve> from) {
  while (!prepared(from)) {
    Preparing::Joining joining{
        .preparing = preparing_.get(), .worker = &worker, .may_take_reserve = from.has_value()};
    co_await joining;
    if (!joining.leads) {
      // Whoever did it may have been allowed less.
      const bool full = joining.status.code() == StatusCode::kResourceExhausted;
      if (from && full && !joining.behind_reserve) continue;
      co_return joining.status;
    }
    Status status;
    while (status.ok() && !prepared(from)) {
      status = co_await PrepareOne(worker, from);
    }
    preparing_->End(status);
    co_return status;
  }
  co_return Status::Ok();
}

size_t Log::segments() const {
  size_t segments = prepared_count_.load();
  std::lock_guard lock(lock_);
  for (const LogSegment* at = first_; at != nullptr; at = at->next) ++segments;
  return segments;
}

dsm::Task<Status> Log::PrepareOne(dsm::Worker& worker, std::optional<storage::Reserve> from) {
  SegmentId& taken = preparing_->taken;
  if (taken == SegmentId::kNone) {
    Result<SegmentId> id = co_await segments_->Take(worker, options_.kind);
    if (!id.ok()) co_return id.status();
    taken = *id;
  }
  const storage::Making making{options_.write_back, from};
  Status created = co_await storage_->Create(worker, taken, making);
  if (!created.ok()) {
    // While the device is full, ids (and edits of the manifest) are not used up.
    if (created.code() != StatusCode::kResourceExhausted) {
      segments_->GiveUp(options_.kind, std::exchange(taken, SegmentId::kNone));
    }
    co_return created;
  }
  if (mirror_ != nullptr) {
    Status opened = co_await mirror_->Open(worker, options_.kind, taken);
    if (!opened.ok()) {
      segments_->GiveUp(options_.kind, std::exchange(taken, SegmentId::kNone));
      co_return opened;
    }
  }
  auto segment = std::make_unique<LogSegment>();
  segment->id = std::exchange(taken, SegmentId::kNone);
  segment->buffer = buffers_->Take();
  segment->buffer->segment = segment->id;
  segment->buffer->seed = SegmentSeed(options_.epoch, segment->id);
  size_t slot = 0;
  while (slot < kLiveMax && live_[slot].load() != nullptr) ++slot;
  FARLEAF_CHECK(slot < kLiveMax, "more log buffers than the options allow");
  segment->live_slot = slot;
  live_[slot].store(segment->buffer.get(), std::memory_order_release);
  if (live_used_.load() <= slot) live_used_.store(slot + 1, std::memory_order_release);
  std::lock_guard lock(lock_);
  LogSegment** at = &prepared_;
  while (*at != nullptr) at = &(*at)->next;
  *at = segment.release();
  prepared_count_.fetch_add(1);
  co_return Status::Ok();
}

std::vector<SegmentId> Log::Unused() const {
  std::vector<SegmentId> unused;
  std::lock_guard lock(lock_);
  for (const LogSegment* at = prepared_; at != nullptr; at = at->next) unused.push_back(at->id);
  if (preparing_->taken != SegmentId::kNone) unused.push_back(preparing_->taken);
  return unused;
}

Log::Cut Log::TakeCut(Upto upto) {
  Cut cut{.upto = upto};
  std::lock_guard lock(lock_);
  cut.phase = phase_;
  phase_ ^= 1;
  if (tail_ == nullptr) return cut;
  cut.last = upto == Upto::kTail ? tail_ : last_sealed_;
  cut.sequence = upto == Upto::kTail ? next_sequence_ - 1 : tail_->first - 1;
  if (cut.last == nullptr) {
    // Of what is full all was synced before it was forgotten, or is in tables: nothing is left to do up to the tail.
    cut.end = tail_->ordinal == 1 ? 0 : tail_->PositionAt(0);
    return cut;
  }
  cut.ordinal = cut.last->ordinal;
  cut.used = cut.last->used;
  cut.end = cut.last->PositionAt(upto == Upto::kTail ? cut.used : kSegmentBytes);
  return cut;
}

void Log::PlanWrites(const Cut& cut, std::vector<Io>* ios) {
  if (cut.last == nullptr) return;
  // What is read of segments in front of the cut's last was stored before the cut was taken.
  for (LogSegment* at = first_;; at = at->next) {
    const bool last = at == cut.last;
    const uint32_t end = last ? cut.used : at->used;
    if (at->buffer != nullptr && end > at->written) {
      const bool tail = last && cut.upto == Upto::kTail;
      const size_t first_io = ios->size();
      (tail ? PlanTail(at, end, ios) : PlanFull(at, end, ios));
      plan_.push_back({at, end, first_io, ios->size() - first_io});
    }
    if (last) break;
  }
}

/// Nobody writes into a full segment any more.
void Log::PlanFull(LogSegment* segment, uint32_t end, std::vector<Io>* ios) {
  std::byte* const bytes = segment->buffer->bytes.data();
  const uint32_t from = segment->written / kBlockBytes * kBlockBytes;
  const auto to = static_cast<uint32_t>(RoundUp(end, kBlockBytes));
  std::memset(bytes + end, 0, to - end);
  ios->push_back(Io{IoKind::kWrite, segment->id, from, {bytes + from, to - from}});
}

/// Blocks that hold [written, end). Others write behind `end` meanwhile: of the block that holds it, a copy is
/// written, with zeros behind; of the blocks before, one as well, if they are few.
void Log::PlanTail(LogSegment* segment, uint32_t end, std::vector<Io>* ios) {
  std::byte* const bytes = segment->buffer->bytes.data();
  const uint32_t from = segment->written / kBlockBytes * kBlockBytes;
  const auto to = static_cast<uint32_t>(RoundUp(end, kBlockBytes));
  const uint32_t copy_from = to - from <= kCopyBytesMax ? from : end / kBlockBytes * kBlockBytes;
  if (copy_from > from) {
    ios->push_back(Io{IoKind::kWrite, segment->id, from, {bytes + from, copy_from - from}});
  }
  if (to > copy_from) {
    std::byte* const copy = copy_.data();
    std::memcpy(copy, bytes + copy_from, end - copy_from);
    std::memset(copy + (end - copy_from), 0, to - end);
    ios->push_back(Io{IoKind::kWrite, segment->id, copy_from, {copy, to - copy_from}});
  }
}

Status Log::Written(const Cut& cut, std::span<const Io> ios) {
  Status first;
  for (const PlannedWrite& write : plan_) {
    Status status;
    for (const Io& io : ios.subspan(write.first_io, write.ios)) {
      if (status.ok()) status = io.status;
    }
    if (status.ok()) write.segment->written = write.end;
    if (first.ok()) first = status;
  }
  plan_.clear();
  if (first.ok() && cut.end > written_end()) written_end_.store(cut.end, std::memory_order_release);
  return first;
}

void Log::PlanSyncs(const Cut& cut, std::vector<Io>* ios) {
  if (cut.last == nullptr) return;
  for (LogSegment* at = first_;; at = at->next) {
    if (at->written > at->synced) {
      plan_.push_back({at, at->written, ios->size(), 1});
      ios->push_back(Io{IoKind::kSync, at->id});
    }
    if (at == cut.last) break;
  }
}

Status Log::Synced(std::span<const Io> ios) {
  Status first;
  for (const PlannedWrite& sync : plan_) {
    const Status& status = ios[sync.first_io].status;
    if (status.ok()) {
      sync.segment->synced = sync.end;
      continue;
    }
    if (first.ok()) first = status;
    // What was written since the last Sync that succeeded may be lost, whatever a later one says (log_format.md): it is
    // written again, if it is there still.
    if (sync.segment->buffer != nullptr) {
      sync.segment->written = sync.segment->synced;
    } else {
      FailFor(sync.segment->id, status);
    }
  }
  plan_.clear();
  return first;
}

void Log::PlanFullSyncs(size_t most, std::vector<Io>* ios) const {
  std::lock_guard lock(lock_);
  for (const LogSegment* at = first_; at != nullptr && at != tail_ && most > 0; at = at->next) {
    if (at->buffer != nullptr || at->written <= at->synced) continue;
    ios->push_back(Io{IoKind::kSync, at->id});
    --most;
  }
}

Status Log::FullSynced(std::span<const Io> ios) {
  std::map<SegmentId, LogSegment*> there;
  {
    std::lock_guard lock(lock_);
    for (LogSegment* at = first_; at != nullptr && at != tail_; at = at->next) there[at->id] = at;
  }
  for (const Io& io : ios) {
    const auto found = there.find(io.segment);
    if (io.status.ok()) {
      if (found != there.end()) found->second->synced = found->second->written;
    } else if (found != there.end() || io.status.code() != StatusCode::kNotFound) {
      FailFor(io.segment, io.status);
    }
  }
  return failure();
}

void Log::AdvanceSynced(const Cut& cut) {
  if (cut.end > synced_end()) synced_end_.store(cut.end, std::memory_order_release);
  if (cut.sequence > durable_sequence()) {
    durable_sequence_.store(cut.sequence, std::memory_order_release);
  }
}

void Log::Fail(Status status) {
  std::lock_guard lock(lock_);
  if (failed_) return;
  failed_ = true;
  failure_ = std::move(status);
}

void Log::FailFor(SegmentId id, const Status& status) {
  Fail(status.WithContext("log failed for good: what was written to " + storage_->NameOf(id) +
                          " may be lost"));
}

void Log::EndRound(const Cut& cut, Keep keep) {
  if (cut.last == nullptr) return;
  for (LogSegment* at = first_;; at = at->next) {
    const bool full = at != cut.last || cut.upto == Upto::kFull;
    const uint32_t done = keep == Keep::kUntilSynced ? at->synced : at->written;
    if (full && at->buffer != nullptr && done == at->used && IsMirrored(*at)) {
      live_[at->live_slot].store(nullptr, std::memory_order_release);
      buffers_->RemoveFull();
      epochs_->Retire(buffers_->Return(std::move(at->buffer)));
      at->buffer = nullptr;
    }
    if (at == cut.last) break;
  }
  // The recovery log's segments are kept for Trim. The tail always has its buffer.
  if (options_.kind == LogKind::kRecovery) return;
  while (first_->buffer == nullptr && first_->synced == first_->used) Forget(first_->id);
}

void Log::PlanMirror(const Cut& cut, std::vector<MirrorPiece>* pieces) {
  std::lock_guard lock(lock_);
  for (LogSegment* at = first_; at != nullptr && at->ordinal <= cut.ordinal; at = at->next) {
    const uint32_t to = at->ordinal == cut.ordinal ? cut.used : at->used;
    if (at->planned >= to) continue;
    pieces->push_back({options_.kind, at->id, at->buffer->bytes.data(), at->planned, to});
    at->planned = to;
  }
}

void Log::Mirrored(const Cut& cut, std::vector<Sealed>* sealed) {
  if (cut.last == nullptr) return;
  std::lock_guard lock(lock_);
  for (LogSegment* at = first_; at != nullptr && at->ordinal <= cut.ordinal; at = at->next) {
    const uint32_t to = at->ordinal == cut.ordinal ? cut.used : at->used;
    at->mirrored.store(to, std::memory_order_relaxed);
    if (at != tail_ && to == at->used && !at->sealed.exchange(true, std::memory_order_acq_rel)) {
      sealed->push_back({options_.kind, at->id, to});
    }
  }
  if (cut.end > mirrored_end()) mirrored_end_.store(cut.end, std::memory_order_release);
  if (cut.sequence > mirrored_sequence()) {
    mirrored_sequence_.store(cut.sequence, std::memory_order_release);
  }
}

void Log::PlanFill(std::vector<MirrorPiece>* full, std::vector<MirrorPiece>* open) const {
  std::lock_guard lock(lock_);
  for (const LogSegment* at = first_; at != nullptr; at = at->next) {
    if (at->buffer == nullptr) continue;
    std::byte* const bytes = at->buffer->bytes.data();
    if (at->sealed) std::memset(bytes + at->used, 0, RoundUp(at->used, kBlockBytes) - at->used);
    (at->sealed ? full : open)->push_back({options_.kind, at->id, bytes, 0, at->mirrored.load()});
  }
}

void Log::Forget(SegmentId id) {
  std::lock_guard lock(lock_);
  for (LogSegment** at = &first_; *at != nullptr && *at != tail_; at = &(*at)->next) {
    LogSegment* const segment = *at;
    if (segment->id != id) continue;
    *at = segment->next;
    if (last_sealed_ == segment) last_sealed_ = nullptr;
    delete segment;
    return;
  }
}

void Log::AddInMemory(std::set<SegmentId>* segments) const {
  std::lock_guard lock(lock_);
  for (const LogSegment* at = first_; at != nullptr; at = at->next) {
    if (at->buffer != nullptr) segments->insert(at->id);
  }
}

std::vector<SegmentId> Log::FlushedSegments(Sequence flushed) const {
  std::vector<SegmentId> segments;
  std::lock_guard lock(lock_);
  for (const LogSegment* at = first_; at != nullptr && at != tail_; at = at->next) {
    if (at->buffer != nullptr || at->next->first > flushed + 1) break;
    segments.push_back(at->id);
  }
  return segments;
}

}  // namespace farleaf::index::lsm
