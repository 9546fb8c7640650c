#include "server/replication/backup_link.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dsm/base/bytes.h"

namespace farleaf::server::replication {

using index::lsm::SegmentPart;
using index::lsm::StateEdit;
using index::storage::Number;

namespace {

constexpr uint32_t kWordBytes = 8;

}  // namespace

Status BackupLink::Named(Status status) const {
  return status.WithContext("backup on node " + std::to_string(node_));
}

dsm::Task<Result<Reply>> BackupLink::Ask(Worker& worker, MessageKind kind, Arguments arguments,
                                         std::span<const std::byte> payload) {
  const Message message{static_cast<uint8_t>(kind), arguments, {}, payload};
  Result<Reply> reply = co_await port_->Call(worker, message);
  if (!reply.ok()) co_return Named(reply.status());
  {
    std::lock_guard lock(mutex_);
    ++counts_.messages;
  }
  co_return reply;
}

dsm::Task<Status> BackupLink::Tell(Worker& worker, MessageKind kind, Arguments arguments,
                                   std::span<const std::byte> payload) {
  Result<Reply> reply = co_await Ask(worker, kind, arguments, payload);
  if (!reply.ok()) co_return reply.status();
  if (reply->code != StatusCode::kOk) co_return Named(Status(reply->code, reply->text));
  co_return Status::Ok();
}

dsm::Task<Status> BackupLink::TellLong(Worker& worker, MessageKind kind, Arguments arguments,
                                       std::string payload) {
  const std::span<const std::byte> all = AsBytes(payload);
  const size_t most = port_->layout().payload_bytes;
  size_t done = 0;
  for (; all.size() - done > most; done += most) {
    Status told = co_await Tell(worker, MessageKind::kPart, {}, all.subspan(done, most));
    if (!told.ok()) co_return told;
  }
  Status told = co_await Tell(worker, kind, arguments, all.subspan(done));
  co_return told;
}

dsm::Task<Status> BackupLink::Open(Worker& worker, LogKind log, SegmentId segment) {
  {
    std::lock_guard lock(mutex_);
    if (buffers_.contains(segment)) co_return Status::Ok();
  }
  const Arguments arguments{static_cast<uint64_t>(log), Number(segment)};
  Result<Reply> reply = co_await Ask(worker, MessageKind::kOpenLog, arguments, {});
  if (!reply.ok()) co_return reply.status();
  if (reply->code != StatusCode::kOk) co_return Named(Status(reply->code, reply->text));
  const uint64_t offset = reply->values[0];
  if (offset % kWordBytes != 0 || offset > port_->layout().bytes() - kLogBufferBytes) {
    co_return Named(Status::Corruption("it gives a log buffer outside of its area"));
  }
  std::lock_guard lock(mutex_);
  buffers_[segment] = {.log = log, .offset = port_->address().area + offset};
  co_return Status::Ok();
}

bool BackupLink::HasBuffers(std::span<const MirrorPiece> pieces) const {
  std::lock_guard lock(mutex_);
  return std::ranges::all_of(
      pieces, [this](const MirrorPiece& piece) { return buffers_.contains(piece.segment); });
}

// A WRITE is of whole words. The word in which a piece begins was WRITTEN before, up to there, and is written again with more in it; the
// one in which it ends is written with zeros behind: others may be filling it by now.
void BackupLink::AddWrites(std::span<const MirrorPiece> pieces, dsm::Batch* batch,
                           std::deque<uint64_t>* words) {
  std::lock_guard lock(mutex_);
  for (const MirrorPiece& piece : pieces) {
    Buffer& buffer = buffers_.at(piece.segment);
    const uint32_t begin = std::min(piece.from, buffer.posted());
    const uint32_t from = begin / kWordBytes * kWordBytes;
    const uint32_t whole = piece.to / kWordBytes * kWordBytes;
    buffer.sent.push_back({piece.to});
    counts_.log_bytes += piece.to - begin;
    if (whole > from) {
      batch->Write(buffer.offset + from, {piece.segment_bytes + from, whole - from});
    }
    if (piece.to == whole) continue;
    uint64_t& word = words->emplace_back(0);
    std::memcpy(&word, piece.segment_bytes + whole, piece.to - whole);
    batch->WriteWord(buffer.offset + whole, &word);
  }
}

void BackupLink::Written(std::span<const MirrorPiece> pieces) {
  std::lock_guard lock(mutex_);
  for (const MirrorPiece& piece : pieces) {
    const auto found = buffers_.find(piece.segment);
    if (found == buffers_.end()) continue;
    Buffer& buffer = found->second;
    const auto sent = std::ranges::find(buffer.sent, piece.to, &Sent::to);
    if (sent == buffer.sent.end()) continue;
    sent->landed = true;
    for (; !buffer.sent.empty() && buffer.sent.front().landed; buffer.sent.pop_front()) {
      buffer.known = buffer.sent.front().to;
    }
  }
}

dsm::Task<void> BackupLink::SealBehind(std::shared_ptr<BackupLink> link, Worker& worker,
                                       LogKind log, SegmentId segment, uint32_t used) {
  const Arguments arguments{static_cast<uint64_t>(log), Number(segment), used};
  Status sealed = co_await link->Tell(worker, MessageKind::kSeal, arguments, {});
  std::lock_guard lock(link->mutex_);
  link->buffers_.erase(segment);
  if (link->failure_.ok()) link->failure_ = sealed;
}

dsm::Task<Status> BackupLink::Seal(Worker& worker, LogKind log, SegmentId segment, uint32_t used) {
  worker.Spawn(SealBehind(shared_from_this(), worker, log, segment, used));
  co_return failure();
}

/// Returns of how many segments.
uint64_t BackupLink::PutKnown(std::string* to) const {
  ByteWriter out(to);
  std::lock_guard lock(mutex_);
  for (const auto& [segment, buffer] : buffers_) {
    out.Write(Number(segment));
    out.Write(uint64_t{buffer.known});
  }
  return buffers_.size();
}

dsm::Task<Status> BackupLink::Sync(Worker& worker, index::lsm::SyncReach reach) {
  std::string known;
  PutKnown(&known);
  const Arguments arguments{static_cast<uint64_t>(reach)};
  Status synced = co_await Tell(worker, MessageKind::kSync, arguments, AsBytes(known));
  if (synced.ok()) synced = failure();
  co_return synced;
}

dsm::Task<Status> BackupLink::WriteTable(Worker& worker, SegmentId segment, uint32_t offset,
                                         std::span<const std::byte> bytes) {
  {
    std::lock_guard lock(mutex_);
    const auto found = shipped_.find(segment);
    const uint32_t there = found == shipped_.end() ? 0 : found->second;
    if (there != offset) co_return Status::Ok();  // its beginning went by: Commit ships it
  }
  const Arguments arguments{Number(segment), offset};
  Status told = co_await Tell(worker, MessageKind::kTable, arguments, bytes);
  if (!told.ok()) co_return told;
  std::lock_guard lock(mutex_);
  shipped_[segment] = offset + static_cast<uint32_t>(bytes.size());
  counts_.table_bytes += bytes.size();
  co_return told;
}

bool BackupLink::Shipped(const SegmentPart& part) const {
  std::lock_guard lock(mutex_);
  const auto found = shipped_.find(part.segment);
  return found != shipped_.end() && found->second >= part.bytes;
}

dsm::Task<Status> BackupLink::ShipTables(Worker& worker, const StateEdit& edit,
                                         index::lsm::LsmStore& store, bool anew) {
  for (const StateEdit::TableAt& each : edit.added) {
    for (const SegmentPart part : index::lsm::SegmentsOf(each.table)) {
      if (!anew && Shipped(part)) continue;
      Status sent = co_await store.SendSegment(worker, *this, part);
      if (!sent.ok()) co_return sent;
    }
  }
  co_return Status::Ok();
}

dsm::Task<Status> BackupLink::Commit(Worker& worker, const StateEdit& edit,
                                     index::lsm::LsmStore& store) {
  Status status = co_await ShipTables(worker, edit, store, false);
  if (!status.ok()) co_return status;
  status = co_await TellLong(worker, MessageKind::kCommit, {}, edit.Encode());
  if (status.code() == StatusCode::kNotFound || status.code() == StatusCode::kCorruption) {
    // What was shipped as it was made is not there, or not as it was: once more, from the disk.
    status = co_await ShipTables(worker, edit, store, true);
    if (status.ok()) status = co_await TellLong(worker, MessageKind::kCommit, {}, edit.Encode());
  }
  std::lock_guard lock(mutex_);
  for (const StateEdit::TableAt& each : edit.added) {
    for (const SegmentId segment : each.table.segments) shipped_.erase(segment);
  }
  if (status.ok()) stamps_.Flushed(edit.flushed_through);
  co_return status;
}

dsm::Task<Status> BackupLink::DropTables(Worker& worker, std::span<const SegmentId> segments) {
  std::string payload;
  {
    ByteWriter out(&payload);
    std::lock_guard lock(mutex_);
    for (const SegmentId segment : segments) {
      if (shipped_.erase(segment) != 0) out.Write(Number(segment));
    }
  }
  if (payload.empty()) co_return Status::Ok();
  Status told = co_await TellLong(worker, MessageKind::kDropTables, {}, std::move(payload));
  co_return told;
}

// The sequence is looked at behind the stamp: what was acknowledged before the backup's clock showed it has been given one by then.
dsm::Task<Status> BackupLink::Stamp(Worker& worker, LastSequence last) {
  uint64_t proved_ns = 0;
  {
    std::lock_guard lock(mutex_);
    if (!is_read_) co_return Status::Ok();
    proved_ns = stamps_.proved_ns();
  }
  Result<Reply> reply = co_await Ask(worker, MessageKind::kStamp, {proved_ns}, {});
  if (!reply.ok()) co_return reply.status();
  const bool is_read = reply->code != StatusCode::kUnimplemented;
  if (is_read && reply->code != StatusCode::kOk) co_return Named(Status(reply->code, reply->text));
  const Result<index::lsm::Sequence> sequence = last();
  std::lock_guard lock(mutex_);
  is_read_ = is_read;
  if (is_read && sequence.ok()) stamps_.Add(reply->values[0], *sequence);
  co_return Status::Ok();
}

dsm::Task<Result<std::set<index::storage::SegmentId>>> BackupLink::Inventory(Worker& worker) {
  Status begun = co_await Tell(worker, MessageKind::kBeginFill, {}, {});
  if (!begun.ok()) co_return begun;
  {
    std::lock_guard lock(mutex_);
    buffers_.clear();
    shipped_.clear();
    stamps_ = {};
  }
  std::set<SegmentId> segments;
  for (uint64_t first = 0;;) {
    Result<Reply> reply = co_await Ask(worker, MessageKind::kInventory, {first}, {});
    if (!reply.ok()) co_return reply.status();
    if (reply->code != StatusCode::kOk) co_return Named(Status(reply->code, reply->text));
    ByteReader in(AsBytes(reply->payload));
    uint64_t count = 0;
    for (; in.remaining() >= sizeof(uint64_t); ++count) {
      segments.insert(SegmentId{in.Read<uint64_t>()});
    }
    first += count;
    if (first >= reply->values[0] || count == 0) co_return segments;
  }
}

dsm::Task<Status> BackupLink::Write(Worker& worker, SegmentId segment, uint32_t offset,
                                    std::span<const std::byte> bytes, bool last) {
  const size_t most = port_->layout().payload_bytes;
  for (size_t done = 0; done < bytes.size();) {
    const auto part = bytes.subspan(done, std::min(most, bytes.size() - done));
    const bool ends = last && done + part.size() == bytes.size();
    const Arguments arguments{Number(segment), offset + done, ends ? 1u : 0u};
    Status told = co_await Tell(worker, MessageKind::kFill, arguments, part);
    if (!told.ok()) co_return told;
    done += part.size();
  }
  std::lock_guard lock(mutex_);
  counts_.fill_bytes += bytes.size();
  co_return Status::Ok();
}

dsm::Task<Status> BackupLink::WriteOpen(Worker& worker, const MirrorPiece& piece) {
  Status status = co_await Open(worker, piece.log, piece.segment);
  if (!status.ok() || piece.to == 0) co_return status;
  dsm::Batch batch(port_->address().server);
  std::deque<uint64_t> words;
  AddWrites({&piece, 1}, &batch, &words);
  dsm::FabricCounts counts;
  status = co_await worker.RoundTrip(batch, counts);
  if (!status.ok()) co_return Named(status);
  Written({&piece, 1});
  co_return status;
}

dsm::Task<Status> BackupLink::Install(Worker& worker, const index::lsm::StoreState& state) {
  std::string payload;
  const uint64_t open = PutKnown(&payload);
  payload += state.AsEdit().Encode();
  const Arguments arguments{state.epoch, open};
  Status told = co_await TellLong(worker, MessageKind::kInstall, arguments, std::move(payload));
  std::lock_guard lock(mutex_);
  if (told.ok()) stamps_.Flushed(state.flushed_through);
  co_return told;
}

}  // namespace farleaf::server::replication
