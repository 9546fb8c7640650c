// Log: an append-only list of segments with its tail in memory. The recovery log and the value log are one each.
//
// Appending: a spin lock is held while a place is reserved, and, in the recovery log, while the commit gets its sequence, so that
// the order of the log is that of sequences; bytes are copied and checksummed outside of it. Nobody suspends in between.
// Writing, syncing and all that waits is LogGroup's (log_group.h), for one coroutine at a time, the leader.
//
// Which bytes of the tail may be written: a reservation counts itself into `in_flight_[phase]` under the lock, and out when
// its bytes are there. The leader takes the tail's end and flips the phase under the lock: from then on nobody
// counts himself into the old phase, so once it is at zero, all before the taken end is there. (Leaders do so
// one after another, each waiting for zero: what was reserved in the phase before the old one is there already.)
//
// Invariants:
//   - a record does not straddle segments; each segment begins with a LogHead;
//   - bytes that were reserved change no more once they are there: a block that is written again has the old
//     content as a prefix of the new one (log_format.md has the argument on torn rewrites);
//   - a buffer is let go only when all of it was written, with `synced` durability only when it was synced; readers of it are behind
//     an epoch;
//   - where there are copies of the store, a full segment's buffer is kept until all of it is mirrored (log_mirror.h).
// Thread rule: Append, Find and the observers are thread-safe; the rest says who may call it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "dsm/base/result.h"
#include "dsm/base/spin_lock.h"
#include "dsm/epoch.h"
#include "dsm/task.h"
#include "dsm/worker.h"
#include "index/lsm/log_buffer.h"
#include "index/lsm/log_record.h"
#include "index/lsm/mirror.h"
#include "index/storage/storage.h"

namespace farleaf::index::lsm {

/// Segments that one batch of I/Os syncs: each has a file open.
inline constexpr size_t kSyncsAtOnce = 64;

/// Bytes of a log since it was opened, 0 being before all: segments count whole.
using LogPosition = uint64_t;

/// Gives out segment ids, ascending.
class SegmentSource {
 public:
  virtual ~SegmentSource() = default;
  /// An id that is in the manifest, as one of this log. One call at a time for each log.
  virtual dsm::Task<Result<SegmentId>> Take(dsm::Worker& worker, LogKind log) = 0;
  /// One that was taken, cannot be made, and will not be used.
  virtual void GiveUp(LogKind log, SegmentId id) = 0;
};

/// One segment of a log that is open. `used` and `next` are guarded by the log's lock, `planned`, `mirrored` and `sealed` are the LogMirror's,
/// all else the leader's.
struct LogSegment {
  SegmentId id = SegmentId::kNone;
  uint64_t ordinal = 0;  ///< from 1
  Sequence first = 0;    ///< LogHead::first
  LogBuffers::Buffer buffer;
  size_t live_slot = 0;
  LogSegment* next = nullptr;
  uint32_t used = 0;
  uint32_t written = 0;                ///< [0, written) was written
  uint32_t synced = 0;                 ///< [0, synced) is durable
  uint32_t planned = 0;                ///< [0, planned) is in rounds of the LogMirror's
  std::atomic<uint32_t> mirrored = 0;  ///< [0, mirrored) is in the memory of every copy
  std::atomic<bool> sealed = false;    ///< all of it is, and the copies are told that it is full

  LogPosition PositionAt(uint32_t offset) const {
    return ordinal * storage::kSegmentBytes + offset;
  }
};

class Log {
 public:
  struct Deps {
    storage::Storage* storage = nullptr;
    SegmentSource* segments = nullptr;
    LogBuffers* buffers = nullptr;
    dsm::EpochDomain* epochs = nullptr;
    Mirror* mirror = nullptr;  ///< null: there are no copies
  };
  struct Options {
    LogKind kind = LogKind::kRecovery;
    uint64_t epoch = 0;          ///< the store's
    Sequence next_sequence = 1;  ///< recovery log. What is older is durable (Replay sees to that)
    storage::WriteBack write_back = storage::WriteBack::kAtOnce;  ///< of its segments
  };
  Log(const Deps& deps, const Options& options);
  ~Log();
  Log(const Log&) = delete;

  enum class Upto : uint8_t { kFull, kTail };
  /// What one round of a leader is about (LogCuts::Take).
  struct Cut {
    Upto upto;
    LogSegment* last = nullptr;  ///< null: nothing at all
    uint64_t ordinal = 0;        ///< of it
    uint32_t used = 0;           ///< of it
    LogPosition end = 0;
    Sequence sequence = 0;  ///< the last one before `end`
    uint32_t phase = 0;     ///< that has to be at zero
  };

  enum class Outcome : uint8_t {
    kAppended,
    kNoRoom,  ///< nothing was done: await LogGroup::Room and try again
    kFailed,  ///< nothing was done, nor ever will: failure() says why
  };
  struct Appended {
    SegmentId segment = SegmentId::kNone;
    uint32_t offset = 0, bytes = 0;  ///< of the record
    LogPosition end = 0;             ///< for Sync
    Sequence first = 0;              ///< recovery log
    bool sealed =
        false;  ///< a segment is full, and nobody else was told: LogGroup::Tend would be of use
    SegmentId sealed_segment = SegmentId::kNone;  ///< if `sealed`
    uint32_t sealed_used = 0;                     ///< bytes of it
  };

  /// `locked(first)` is called under the lock, with the sequence: it may do no more than a few stores. `fill(to)` writes
  /// the payload. REQUIRES: payload_bytes <= kLogPayloadBytesMax.
  template <typename Locked, typename Fill>
  Outcome Append(LogRecordKind kind, uint32_t payload_bytes, uint32_t sequences, Appended* appended,
                 const Locked& locked, const Fill& fill);
  /// A commit of `changes` changes (CommitWriter::payload), whose first sequence is put into it.
  template <typename Locked>
  Outcome AppendCommit(std::span<const std::byte> payload, uint32_t changes, Appended* appended,
                       const Locked& locked) {
    return Append(LogRecordKind::kCommit, static_cast<uint32_t>(payload.size()), changes, appended,
                  locked, [&](std::byte* to) {
                    std::memcpy(to, payload.data(), payload.size());
                    StoreLittle(to, appended->first);
                  });
  }
  Outcome AppendValue(std::string_view key, std::string_view value, ValuePointer* pointer,
                      Appended* appended);

  /// Calls `locked(last)` with the last sequence that was given, while none is given.
  template <typename Locked>
  void WithLastSequence(const Locked& locked) {
    std::lock_guard lock(lock_);
    locked(next_sequence_ - 1);
  }

  /// Sequences up to there were given by another process (follower.h), and have an effect here already, or are about to have it.
  void GiveUpTo(Sequence last) {
    std::lock_guard lock(lock_);
    next_sequence_ = last + 1;
  }

  /// The record, if it is in memory still. Valid until the worker's next suspension. REQUIRES: the pointer is of a record
  /// that was appended; on a worker that is online.
  std::optional<ValueRecord> Find(const ValuePointer& pointer) const;

  /// What Append said kNoRoom for may be over.
  bool HasRoom() const { return prepared_count_.load() > 0 && buffers_->has_room(); }
  /// Whether a segment is at hand for when the tail is full; else Prepare should be called.
  bool prepared(std::optional<storage::Reserve> from) const {
    return prepared_count_.load() >= (from ? 1 : kPrepared);
  }
  /// That exist and are not forgotten, ready ones included.
  size_t segments() const;
  /// Segments that were made ahead of need, or were to be, and hold nothing. REQUIRES: nobody appends any more, nor Prepares.
  std::vector<SegmentId> Unused() const;
  /// Gets segments ready ahead of need, unless somebody else does so already. The failure of who did.
  /// `from`: it takes of the reserve where there is no other room, and then no more than one segment.
  dsm::Task<Status> Prepare(dsm::Worker& worker, std::optional<storage::Reserve> from);

  /// Why the log takes nothing any more; Ok: it does.
  Status failure() const;
  /// That is appended to; kNone: nothing was yet. Ids of tails ascend.
  SegmentId tail_segment() const { return tail_segment_.load(std::memory_order_acquire); }
  LogPosition end() const;         ///< behind all that was appended
  LogPosition sealed_end() const;  ///< behind what is in full segments
  LogPosition written_end() const { return written_end_.load(std::memory_order_acquire); }
  LogPosition synced_end() const { return synced_end_.load(std::memory_order_acquire); }
  LogPosition mirrored_end() const { return mirrored_end_.load(std::memory_order_acquire); }
  /// All commits up to here are in the memory of every copy.
  Sequence mirrored_sequence() const { return mirrored_sequence_.load(std::memory_order_acquire); }
  /// All commits up to here are durable.
  Sequence durable_sequence() const { return durable_sequence_.load(std::memory_order_acquire); }
  const Options& options() const { return options_; }

 private:
  friend class LogGroup;
  friend class LogCuts;
  friend class LogMirror;
  /// Segments that are ready ahead of need.
  static constexpr size_t kPrepared = 2;
  /// Buffers in memory at most: full ones, the tail and those that are ready.
  static constexpr size_t kLiveMax = 64 + 1 + kPrepared;
  /// Up to this much of a tail is written as one, from a copy.
  static constexpr uint32_t kCopyBytesMax = 64 << 10;

  struct PlannedWrite {
    LogSegment* segment;
    uint32_t end;
    size_t first_io, ios;
  };
  /// A new tail, if there is a segment for it and room for the old one. REQUIRES: lock_ held.
  bool Roll();

  // LogCuts':
  Cut TakeCut(Upto upto);
  bool Settled(const Cut& cut) const { return in_flight_[cut.phase].load() == 0; }

  // The leader's:
  void PlanWrites(const Cut& cut, std::vector<storage::Io>* ios);
  void PlanFull(LogSegment* segment, uint32_t end, std::vector<storage::Io>* ios);
  void PlanTail(LogSegment* segment, uint32_t end, std::vector<storage::Io>* ios);
  Status Written(const Cut& cut, std::span<const storage::Io> ios);
  void PlanSyncs(const Cut& cut, std::vector<storage::Io>* ios);
  Status Synced(std::span<const storage::Io> ios);
  /// Syncs of what is full and has left memory, the oldest first; and what became of them, whoever forgot it or synced it, too, meanwhile.
  void PlanFullSyncs(size_t most, std::vector<storage::Io>* ios) const;
  Status FullSynced(std::span<const storage::Io> ios);
  /// All in front of the cut is durable, in the other log as well.
  void AdvanceSynced(const Cut& cut);
  void Fail(Status status);
  /// What was written to the segment is not in memory any more, and may not be on the device.
  void FailFor(SegmentId id, const Status& status);
  /// Until when a full segment's buffer is kept.
  enum class Keep : uint8_t { kUntilWritten, kUntilSynced };
  /// Lets go of buffers that are not kept, and of segments of which nobody wants to know any more.
  void EndRound(const Cut& cut, Keep keep);
  void Forget(SegmentId id);
  /// Those that have a buffer, but for what is ready ahead of need.
  void AddInMemory(std::set<SegmentId>* segments) const;
  /// The segments all of whose commits are `flushed` or older, and were written.
  std::vector<SegmentId> FlushedSegments(Sequence flushed) const;

  // The LogMirror's:
  /// Pieces of all that is in front of the cut and that no round has planned yet. Of what was mirrored meanwhile, the cut's last too, segments may be forgotten.
  void PlanMirror(const Cut& cut, std::vector<MirrorPiece>* pieces);
  struct Sealed {
    LogKind log;
    SegmentId segment;
    uint32_t used;
  };
  /// All in front of the cut is. REQUIRES: rounds come in the order of their cuts. `sealed`: segments that became whole with it.
  void Mirrored(const Cut& cut, std::vector<Sealed>* sealed);
  /// What is in memory of segments that are full, with zeros behind to the end of the block, and of the tail. REQUIRES: the leader's turn as well.
  void PlanFill(std::vector<MirrorPiece>* full, std::vector<MirrorPiece>* open) const;
  bool IsMirrored(const LogSegment& segment) const {
    return mirror_ == nullptr || segment.sealed.load(std::memory_order_acquire);
  }

  dsm::Task<Status> PrepareOne(dsm::Worker& worker, std::optional<storage::Reserve> from);

  storage::Storage* const storage_;
  SegmentSource* const segments_;
  LogBuffers* const buffers_;
  dsm::EpochDomain* const epochs_;
  Mirror* const mirror_;
  const Options options_;

  mutable SpinLock lock_;  // guards, down to next_sequence_:
  LogSegment* tail_ = nullptr;
  LogSegment* last_sealed_ = nullptr;  // null also if it was forgotten
  LogSegment* prepared_ = nullptr;     // a list
  uint64_t ordinals_ = 0;
  uint32_t phase_ = 0;
  bool failed_ = false;
  Sequence next_sequence_;
  std::atomic<uint32_t> prepared_count_{0};
  std::atomic<SegmentId> tail_segment_{SegmentId::kNone};
  alignas(64) std::array<std::atomic<uint32_t>, 2> in_flight_{};

  // The leader's:
  LogSegment* first_ =
      nullptr;  // all that are not forgotten, in order; the first of all is set by Roll, under lock_
  AlignedBytes copy_{kCopyBytesMax};
  std::vector<PlannedWrite> plan_;
  std::atomic<LogPosition> written_end_{0}, synced_end_{0}, mirrored_end_{0};
  std::atomic<Sequence> durable_sequence_{0}, mirrored_sequence_{0};
  Status failure_;  // guarded by lock_

  std::array<std::atomic<LogBuffer*>, kLiveMax> live_{};
  std::atomic<size_t> live_used_{0};  // slots at and above it were never used
  struct Preparing;
  std::unique_ptr<Preparing> preparing_;
};

template <typename Locked, typename Fill>
Log::Outcome Log::Append(LogRecordKind kind, uint32_t payload_bytes, uint32_t sequences,
                         Appended* appended, const Locked& locked, const Fill& fill) {
  FARLEAF_CHECK(payload_bytes <= kLogPayloadBytesMax, payload_bytes);
  const uint32_t bytes = kLogHeaderBytes + payload_bytes;
  const LogBuffer* buffer;
  uint32_t phase;
  appended->sealed = false;
  {
    std::lock_guard lock(lock_);
    if (failed_) return Outcome::kFailed;
    if (tail_ == nullptr || tail_->used + bytes > storage::kSegmentBytes) {
      const LogSegment* const full = tail_;
      if (!Roll()) return Outcome::kNoRoom;
      if (full != nullptr) {
        appended->sealed = true;
        appended->sealed_segment = full->id;
        appended->sealed_used = full->used;
      }
    }
    buffer = tail_->buffer.get();
    appended->segment = tail_->id;
    appended->offset = tail_->used;
    appended->end = tail_->PositionAt(tail_->used + bytes);
    appended->first = next_sequence_;
    tail_->used += bytes;
    next_sequence_ += sequences;
    phase = phase_;
    in_flight_[phase].fetch_add(1, std::memory_order_relaxed);
    locked(appended->first);
  }
  appended->bytes = bytes;
  std::byte* const header = buffer->bytes.data() + appended->offset;
  fill(header + kLogHeaderBytes);
  SealLogRecord(buffer->seed, appended->offset, kind, header, payload_bytes);
  in_flight_[phase].fetch_sub(1, std::memory_order_release);
  return Outcome::kAppended;
}

}  // namespace farleaf::index::lsm
