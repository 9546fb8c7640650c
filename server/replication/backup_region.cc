#include "server/replication/backup_region.h"

#include <utility>
#include <vector>

#include "dsm/base/bytes.h"

namespace farleaf::server::replication {

using index::lsm::LogKind;
using index::lsm::OpenBytes;
using index::lsm::SegmentChunk;
using index::lsm::StateEdit;
using index::lsm::StoreCopy;
using index::lsm::StoreState;
using index::storage::kBlockBytes;
using index::storage::kSegmentBytes;
using index::storage::SegmentId;

namespace {

/// More numbers of segments than a deposed primary can have given unseen (README.md, rule (b)).
constexpr uint64_t kNumbersSkipped = uint64_t{1} << 20;

Reply ReplyOf(const Status& status) {
  return {.code = status.code(), .text = std::string(status.message())};
}

Status Malformed(std::string_view what) {
  return Status::InvalidArgument("a message that " + std::string(what));
}

Result<LogKind> LogOf(uint64_t argument) {
  const auto log = static_cast<LogKind>(argument);
  if (argument > UINT8_MAX || (log != LogKind::kRecovery && log != LogKind::kValues)) {
    return Malformed("names no log");
  }
  return log;
}

Result<SegmentId> SegmentOf(uint64_t argument) {
  if (argument == 0) return Malformed("names no segment");
  return SegmentId{argument};
}

/// (segment u64, bytes u64)*
Result<OpenBytes> OpenBytesOf(ByteReader& in, uint64_t count) {
  OpenBytes open;
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    const auto segment = in.Read<uint64_t>(), bytes = in.Read<uint64_t>();
    if (!in.ok() || segment == 0 || bytes > kSegmentBytes) return Malformed("says of no segment");
    open[SegmentId{segment}] = static_cast<uint32_t>(bytes);
  }
  return open;
}

}  // namespace

namespace {

std::shared_ptr<index::lsm::CopyReader> ReaderOf(const BackupRegion::Deps& deps) {
  if (deps.reads.cache_bytes == 0 || deps.build) return nullptr;
  return std::make_shared<index::lsm::CopyReader>(index::lsm::CopyReader::Deps{
      .storage = deps.storage, .wall = deps.reads.wall, .cache_bytes = deps.reads.cache_bytes});
}

}  // namespace

BackupRegion::BackupRegion(Deps deps, std::unique_ptr<StoreCopy> copy)
    : deps_(deps),
      reader_(ReaderOf(deps)),
      copy_(std::move(copy)),
      server_(deps.area, deps.layout, deps.channel),
      buffers_(deps.area, deps.layout) {
  if (deps.checks) copy_->HoldTablesIn(deps.checks);
  if (!reader_) return;
  copy_->ServeReads({.reader = reader_.get(),
                     .clock = deps.reads.clock,
                     .kept_segments_max = deps.reads.kept_segments_max});
}

dsm::Task<Result<std::unique_ptr<BackupRegion>>> BackupRegion::Open(Worker& worker, Deps deps) {
  auto copy = co_await StoreCopy::Open(worker, deps.storage);
  if (!copy.ok()) co_return copy.status();
  co_return std::unique_ptr<BackupRegion>(new BackupRegion(deps, std::move(*copy)));
}

dsm::Task<void> BackupRegion::Serve(Worker& worker) {
  const MessageHandler handler = [this](Worker& on, const ReceivedMessage& message) {
    return deps_.cpu ? ExecuteCounted(on, message) : Execute(on, message);
  };
  co_await server_.Serve(worker, handler);
}

// Nothing else runs on the worker but what the message waits for.
dsm::Task<Reply> BackupRegion::ExecuteCounted(Worker& worker, const ReceivedMessage& message) {
  const uint64_t begun_ns = deps_.cpu->NowNs();
  Reply reply = co_await Execute(worker, message);
  const size_t kind = message.kind <= kMessageKindMax ? message.kind : 0;
  cpu_ns_[kind].fetch_add(deps_.cpu->NowNs() - begun_ns, std::memory_order_relaxed);
  co_return reply;
}

dsm::Task<Reply> BackupRegion::Execute(Worker& worker, const ReceivedMessage& message) {
  Status status;
  switch (static_cast<MessageKind>(message.kind)) {
    case MessageKind::kOpenLog: {
      Reply reply = co_await OpenLog(worker, message);
      co_return reply;
    }
    case MessageKind::kInventory:
      co_return Inventory(message);
    case MessageKind::kSeal:
      status = co_await Seal(worker, message);
      break;
    case MessageKind::kSync:
      status = co_await Sync(worker, message);
      break;
    case MessageKind::kTable:
    case MessageKind::kFill:
      status = co_await TakeBytes(worker, message);
      break;
    case MessageKind::kPart:
      status = TakePart(message);
      break;
    case MessageKind::kCommit:
      status = co_await Commit(worker, message);
      break;
    case MessageKind::kBeginFill:
      status = co_await BeginFill(worker);
      break;
    case MessageKind::kInstall:
      status = co_await Install(worker, message);
      break;
    case MessageKind::kDropTables:
      status = DropTables(message);
      break;
    case MessageKind::kStamp:
      co_return Stamp(message);
    default:
      status = Status::Unimplemented("message kind " + std::to_string(message.kind) +
                                     ": the primary is of another build");
  }
  co_return ReplyOf(status);
}

dsm::Task<Reply> BackupRegion::OpenLog(Worker& worker, const ReceivedMessage& message) {
  const Result<LogKind> log = LogOf(message.arguments[0]);
  const Result<SegmentId> segment = SegmentOf(message.arguments[1]);
  if (!log.ok()) co_return ReplyOf(log.status());
  if (!segment.ok()) co_return ReplyOf(segment.status());
  ReleaseUnused();
  const Result<uint32_t> buffer = buffers_.Take({*log, *segment});
  if (!buffer.ok()) co_return ReplyOf(buffer.status());
  Status opened;
  if (follower_) {
    opened = co_await follower_->OpenLog(worker, *log, *segment, buffers_.bytes(*buffer));
  } else {
    opened = co_await copy_->OpenLog(worker, *log, *segment, buffers_.bytes(*buffer));
  }
  if (!opened.ok()) {
    buffers_.Release(*buffer);
    co_return ReplyOf(opened);
  }
  Reply reply;
  reply.values[0] = buffers_.offset(*buffer);
  co_return reply;
}

/// Buffers of segments that are open no more: sealed, or dropped by an edit.
void BackupRegion::ReleaseUnused() {
  for (uint32_t buffer = 0; buffer < buffers_.size(); ++buffer) {
    const auto held = buffers_.Holds(buffer);
    if (held && !IsOpen(held->segment)) buffers_.Release(buffer);
  }
}

dsm::Task<Status> BackupRegion::Seal(Worker& worker, const ReceivedMessage& message) {
  const Result<SegmentId> segment = SegmentOf(message.arguments[1]);
  if (!segment.ok()) co_return segment.status();
  if (message.arguments[2] > kSegmentBytes) co_return Malformed("seals more than a segment");
  const auto used = static_cast<uint32_t>(message.arguments[2]);
  Status sealed;
  if (follower_) {
    sealed = co_await follower_->Seal(worker, *segment, used);
  } else {
    sealed = co_await copy_->Seal(worker, *segment, used);
  }
  co_return sealed;
}

dsm::Task<Status> BackupRegion::Sync(Worker& worker, const ReceivedMessage& message) {
  const uint64_t reach = message.arguments[0];
  if (reach > static_cast<uint64_t>(index::lsm::SyncReach::kBoth)) {
    co_return Malformed("says of no log what to sync");
  }
  ByteReader in(message.payload);
  Result<OpenBytes> open = OpenBytesOf(in, message.payload.size() / (2 * sizeof(uint64_t)));
  if (!open.ok()) co_return open.status();
  const auto of_logs = static_cast<index::lsm::SyncReach>(reach);
  Status synced;
  if (follower_) {
    synced = co_await follower_->Sync(worker, of_logs, std::move(*open));
  } else {
    synced = co_await copy_->Sync(worker, of_logs, std::move(*open));
  }
  co_return synced;
}

dsm::Task<Status> BackupRegion::TakeBytes(Worker& worker, const ReceivedMessage& message) {
  const Result<SegmentId> segment = SegmentOf(message.arguments[0]);
  if (!segment.ok()) co_return segment.status();
  const uint64_t offset = message.arguments[1], bytes = message.payload.size();
  if (offset % kBlockBytes != 0 || bytes % kBlockBytes != 0 || bytes == 0 ||
      offset > kSegmentBytes || bytes > kSegmentBytes - offset) {
    co_return Malformed("writes outside of a segment, or not by blocks");
  }
  if (follower_) {
    co_return Status::InvalidArgument("bytes of a table for a backup that builds its own");
  }
  const SegmentChunk chunk{*segment, static_cast<uint32_t>(offset), message.payload};
  Status status;
  if (copy_->phase() == StoreCopy::Phase::kFollowing) {
    status = co_await copy_->WriteTable(worker, chunk);
    // Whoever ships a table as it is made does not wait: Commit says what is missing.
    if (status.code() == StatusCode::kNotFound) status = Status::Ok();
    co_return status;
  }
  const auto more = message.arguments[2] != 0 ? StoreCopy::More::kNone : StoreCopy::More::kComes;
  status = co_await copy_->WriteSegment(worker, chunk, more);
  co_return status;
}

Status BackupRegion::TakePart(const ReceivedMessage& message) {
  if (parts_.size() + message.payload.size() > kPartsBytesMax) {
    return Malformed("is too long, with its parts");
  }
  parts_.append(AsChars(message.payload));
  return Status::Ok();
}

std::string BackupRegion::TakeParts(const ReceivedMessage& message) {
  std::string whole = std::exchange(parts_, {});
  whole.append(AsChars(message.payload));
  return whole;
}

dsm::Task<Status> BackupRegion::Commit(Worker& worker, const ReceivedMessage& message) {
  const std::string payload = TakeParts(message);
  Result<StateEdit> edit = StateEdit::Decode(AsBytes(payload));
  if (!edit.ok()) co_return edit.status();
  Status committed;
  if (follower_) {
    committed = co_await follower_->Commit(worker, *edit);
  } else {
    committed = co_await copy_->Commit(worker, *edit);
  }
  co_return committed;
}

Status BackupRegion::DropTables(const ReceivedMessage& message) {
  const std::string payload = TakeParts(message);
  if (payload.size() % sizeof(uint64_t) != 0) return Malformed("names half a segment");
  std::vector<SegmentId> segments;
  for (ByteReader in(AsBytes(payload)); in.remaining() > 0;) {
    segments.push_back(SegmentId{in.Read<uint64_t>()});
  }
  if (copy_) copy_->DropTables(segments);  // who builds his own was sent none
  return Status::Ok();
}

// What is proved is so of the state as it is: the edit that proves it was answered before.
Reply BackupRegion::Stamp(const ReceivedMessage& message) {
  if (!reader_) return ReplyOf(Status::Unimplemented("the copy is not read here"));
  const Status proved = copy_->Prove(message.arguments[0]);
  if (!proved.ok()) return ReplyOf(proved);
  const Result<uint64_t> stamp = copy_->TakeStamp();
  if (!stamp.ok()) return ReplyOf(stamp.status());
  Reply reply;
  reply.values[0] = *stamp;
  return reply;
}

Reply BackupRegion::Inventory(const ReceivedMessage& message) const {
  Reply reply;
  if (follower_) return ReplyOf(Status::InvalidArgument("a copy that is not being filled"));
  const std::set<SegmentId>& segments = copy_->Inventory();
  reply.values[0] = segments.size();
  uint64_t number = 0;
  ByteWriter out(&reply.payload);
  for (const SegmentId segment : segments) {
    if (number++ < message.arguments[0]) continue;
    if (reply.payload.size() + sizeof(uint64_t) > kReplyPayloadBytesMax) break;
    out.Write(Number(segment));
  }
  return reply;
}

dsm::Task<Status> BackupRegion::BeginFill(Worker& worker) {
  parts_.clear();
  Status begun;
  if (follower_) begun = co_await EndFollower(worker);
  if (begun.ok() && deps_.build) begun = co_await copy_->Empty(worker);
  if (begun.ok()) begun = co_await copy_->BeginFill(worker);
  ReleaseUnused();
  co_return begun;
}

dsm::Task<Status> BackupRegion::EndFollower(Worker& worker) {
  follower_ = nullptr;
  auto copy = co_await StoreCopy::Open(worker, deps_.storage);
  if (copy.ok()) copy_ = std::move(*copy);
  co_return copy.status();
}

dsm::Task<Status> BackupRegion::Install(Worker& worker, const ReceivedMessage& message) {
  const std::string payload = TakeParts(message);
  ByteReader in(AsBytes(payload));
  Result<OpenBytes> open = OpenBytesOf(in, message.arguments[1]);
  if (!open.ok()) co_return open.status();
  Result<StateEdit> whole = StateEdit::Decode(in.ReadBytes(in.remaining()));
  if (!whole.ok()) co_return whole.status();
  StoreState state;
  state.epoch = message.arguments[0];
  FARLEAF_CO_RETURN_IF_ERROR(state.Apply(*whole));
  if (follower_) co_return Status::InvalidArgument("a copy that is not being filled");
  Status installed = co_await copy_->Install(worker, std::move(state), std::move(*open));
  if (!installed.ok() || !deps_.build) co_return installed;
  index::lsm::Follower::Host host = *deps_.build;
  StoreCopy::Parts parts = copy_->Release();
  auto follower =
      co_await index::lsm::Follower::Open(worker, std::move(host), deps_.storage, std::move(parts));
  if (follower.ok()) {
    copy_ = nullptr;
    follower_ = std::move(*follower);
    co_return Status::Ok();
  }
  Status ended = co_await EndFollower(worker);
  co_return ended.ok() ? follower.status() : ended;
}

dsm::Task<Status> BackupRegion::Promote(Worker& worker) {
  Status finished;
  if (follower_) {
    finished = co_await follower_->FinishTails(worker);
    if (finished.ok()) finished = co_await EndFollower(worker);
  } else {
    finished = co_await copy_->FinishTails(worker);
  }
  if (!finished.ok()) co_return finished;
  finished = co_await copy_->ReserveNumbers(worker, kNumbersSkipped);
  co_return finished;
}

}  // namespace farleaf::server::replication
