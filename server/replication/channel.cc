#include "server/replication/channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dsm/base/check.h"

namespace farleaf::server::replication {

Channel::Channel(ChannelAddress address, const AreaLayout& layout, ChannelOptions options)
    : address_(address),
      layout_(layout),
      options_(std::move(options)),
      calls_(layout.slots),
      done_(layout.slots),
      replies_(layout.slots * kReplySlotBytes) {}

dsm::Task<Result<std::unique_ptr<Channel>>> Channel::Open(dsm::Worker& worker,
                                                          ChannelAddress address,
                                                          ChannelOptions options,
                                                          dsm::FabricCounts& counts) {
  if (options.backup.empty()) {
    options.backup = "the backup at memory server " + std::to_string(address.server);
  }
  if (address.area % kAreaAlignment != 0 || address.token == 0) {
    co_return Status::InvalidArgument(options.backup + ": no area is at offset " +
                                      std::to_string(address.area) + ", or no token");
  }
  std::array<std::byte, sizeof(AreaHeader)> bytes;
  dsm::Batch batch(address.server);
  batch.Read(address.area, bytes);
  Status read = co_await worker.RoundTrip(batch, counts);
  if (!read.ok()) co_return read.WithContext(options.backup);
  auto parsed = ParseAreaHeader(bytes);
  if (!parsed.ok()) {
    co_return parsed.status().WithContext(options.backup + ", offset " +
                                          std::to_string(address.area));
  }
  if (parsed->token != address.token) {
    co_return Status::Unavailable(options.backup +
                                  " serves another channel in the area at offset " +
                                  std::to_string(address.area));
  }
  co_return std::unique_ptr<Channel>(new Channel(address, parsed->layout, std::move(options)));
}

Status Channel::CheckLengths(const Message& message) const {
  if (message.head.size() > kMessageHeadBytesMax) {
    return Status::InvalidArgument("a message's head of " + std::to_string(message.head.size()) +
                                   " bytes; at most " + std::to_string(kMessageHeadBytesMax));
  }
  if (message.payload.size() > layout_.payload_bytes) {
    return Status::InvalidArgument("a message's payload of " +
                                   std::to_string(message.payload.size()) + " bytes; at most " +
                                   std::to_string(layout_.payload_bytes));
  }
  return Status::Ok();
}

dsm::Task<Result<Reply>> Channel::Call(dsm::Worker& worker, Message message,
                                       dsm::FabricCounts& counts) {
  if (!failure_.ok()) co_return failure_;
  FARLEAF_CO_RETURN_IF_ERROR(CheckLengths(message));
  Calling calling(++last_sequence_);
  co_await WaitingForSlot{this, calling.sequence};
  if (!failure_.ok()) co_return failure_;
  Calling*& slot = calls_[SlotOf(calling.sequence)];
  slot = &calling;
  Status ended = co_await Exchange(worker, message, calling, counts);
  slot = nullptr;
  if (!ended.ok()) co_return Break(worker, std::move(ended));
  done_[SlotOf(calling.sequence)] = calling.sequence;
  if (auto next = slot_waiters_.extract(calling.sequence + layout_.slots)) {
    worker.ResumeSoon(next.mapped());
  }
  co_return std::move(calling.reply);
}

dsm::Task<Status> Channel::Exchange(dsm::Worker& worker, Message message, Calling& calling,
                                    dsm::FabricCounts& counts) {
  Status written = co_await Write(worker, message, calling, counts);
  if (!written.ok()) co_return written.WithContext(options_.backup);
  while (!calling.answered && failure_.ok()) {
    if (looking_) {
      co_await Waiting{&calling};
      continue;
    }
    looking_ = true;
    co_await Look(worker, calling, counts);
    looking_ = false;
    PassOn(worker);
  }
  if (!failure_.ok()) co_return failure_;
  if (calling.header.payload_bytes == 0) co_return Status::Ok();
  Status read = co_await ReadPayload(worker, calling, counts);
  co_return read.WithContext(options_.backup);
}

dsm::Task<Status> Channel::Write(dsm::Worker& worker, Message message, Calling& calling,
                                 dsm::FabricCounts& counts) {
  const uint32_t slot = SlotOf(calling.sequence);
  const uint64_t at = address_.area + layout_.MessageOffset(slot);
  const ChannelHeader header = HeaderOf({address_.token, calling.sequence}, message);
  const std::string head = EncodeHead(header, message.head);
  // A WRITE takes whole words: bytes behind the last of them go by a word of their own.
  const size_t whole = message.payload.size() / 8 * 8;
  uint64_t rest = 0;
  dsm::Batch batch(address_.server);
  batch.Write(at + sizeof header.word, AsBytes(head).subspan(sizeof header.word));
  const uint64_t payload_at = address_.area + layout_.PayloadOffset(slot);
  if (whole > 0) batch.Write(payload_at, message.payload.first(whole));
  if (whole < message.payload.size()) {
    std::memcpy(&rest, message.payload.data() + whole, message.payload.size() - whole);
    batch.WriteWord(payload_at + whole, &rest);
  }
  // Behind all of it, and by itself: whoever sees it sees the message (rules 2 and 3 of dsm/transport.h).
  batch.WriteWord(at, &header.word);
  calling.deadline_ns = worker.clock().NowNs() + options_.call_timeout_ms * kNsPerMs;
  Status written = co_await worker.RoundTrip(batch, counts);
  co_return written;
}

dsm::Task<Status> Channel::ReadPayload(dsm::Worker& worker, Calling& calling,
                                       dsm::FabricCounts& counts) {
  std::string& payload = calling.reply.payload;
  payload.resize(RoundUp(calling.header.payload_bytes, 8));
  dsm::Batch batch(address_.server);
  batch.Read(address_.area + layout_.ReplyPayloadOffset(SlotOf(calling.sequence)),
             std::as_writable_bytes(std::span(payload)));
  // Posted behind the READ that brought the word, which the backup wrote behind the payload: it is whole.
  Status read = co_await worker.RoundTrip(batch, counts);
  if (!read.ok()) co_return read;
  payload.resize(calling.header.payload_bytes);
  co_return CheckPayload(calling.header, AsBytes(payload));
}

dsm::Task<void> Channel::Look(dsm::Worker& worker, const Calling& own, dsm::FabricCounts& counts) {
  uint64_t wait_ns = options_.look_ns_min;
  Found found = Found::kNone;
  while (!own.answered && failure_.ok()) {
    if (found != Found::kTorn) {
      const uint64_t now_ns = worker.clock().NowNs();
      const uint64_t left_ns = std::max(FirstDeadlineNs(), now_ns + 1) - now_ns;
      co_await worker.Sleep(std::min(wait_ns, left_ns));
      wait_ns = std::min(wait_ns * 2, options_.look_ns_max);
      if (!failure_.ok()) co_return;
    }
    dsm::Batch batch(address_.server);
    AddReads(&batch);
    Status read = co_await worker.RoundTrip(batch, counts);
    if (!read.ok()) {
      Break(worker, read.WithContext(options_.backup));
      co_return;
    }
    found = TakeReplies(worker);
    if (found == Found::kSome) wait_ns = options_.look_ns_min;
    BreakIfOverdue(worker);
  }
}

void Channel::AddReads(dsm::Batch* batch) {
  uint64_t first = UINT64_MAX, last = 0;
  for (const Calling* calling : calls_) {
    if (calling == nullptr || calling->answered) continue;
    first = std::min(first, calling->sequence);
    last = std::max(last, calling->sequence);
  }
  uint32_t from = SlotOf(first), to = SlotOf(last);
  if (from > to) {  // they go around
    from = 0;
    to = layout_.slots - 1;
  }
  batch->Read(
      address_.area + layout_.ReplySlotOffset(from),
      std::span(replies_).subspan(from * kReplySlotBytes, (to - from + 1) * kReplySlotBytes));
}

Channel::Found Channel::TakeReplies(dsm::Worker& worker) {
  Found found = Found::kNone;
  while (failure_.ok()) {
    Calling* const calling = calls_[SlotOf(found_ + 1)];
    if (calling == nullptr || calling->sequence != found_ + 1) return found;
    const std::byte* const slot = replies_.data() + SlotOf(found_ + 1) * kReplySlotBytes;
    if (LoadLittle<uint64_t>(slot) != RendezvousWord(address_.token, calling->sequence)) {
      return found;
    }
    auto reply = ParseReply(*calling, slot, &calling->header);
    if (!reply.ok()) {
      // The READ may have brought the word's cache line later than others. One that is posted from now on brings all that was written
      // ahead of the word.
      if (torn_ != calling->sequence) {
        torn_ = calling->sequence;
        return Found::kTorn;
      }
      Break(worker, reply.status().WithContext(options_.backup + ": a reply"));
      return found;
    }
    if (calling->header.outcome != static_cast<uint8_t>(ReplyOutcome::kExecuted)) {
      Break(worker, Status::Corruption(options_.backup + " refused a message: " + reply->text));
      return found;
    }
    calling->reply = std::move(*reply);
    calling->answered = true;
    ++found_;
    found = Found::kSome;
    Resume(worker, calling);
  }
  return found;
}

Result<Reply> Channel::ParseReply(const Calling& calling, const std::byte* slot,
                                  ChannelHeader* header) const {
  std::memcpy(header, slot, kHeaderBytes);
  FARLEAF_RETURN_IF_ERROR(CheckPlace(*header, {address_.token, calling.sequence},
                                     {kReplyTextBytesMax, kReplyPayloadBytesMax}));
  Reply reply;
  reply.text = AsChars({slot + kHeaderBytes, header->head_bytes});
  FARLEAF_RETURN_IF_ERROR(CheckHead(*header, reply.text));
  if (header->kind > kStatusCodeMax) {
    return Status::Corruption("code " + std::to_string(header->kind));
  }
  reply.code = static_cast<StatusCode>(header->kind);
  reply.values = header->arguments;
  return reply;
}

void Channel::PassOn(dsm::Worker& worker) {
  Calling* next = nullptr;
  for (Calling* calling : calls_) {
    if (calling == nullptr || !calling->waiter) continue;
    if (next == nullptr || calling->sequence < next->sequence) next = calling;
  }
  if (next != nullptr) Resume(worker, next);
}

uint64_t Channel::FirstDeadlineNs() const {
  uint64_t first_ns = UINT64_MAX;
  for (const Calling* calling : calls_) {
    if (calling != nullptr && !calling->answered)
      first_ns = std::min(first_ns, calling->deadline_ns);
  }
  return first_ns;
}

void Channel::BreakIfOverdue(dsm::Worker& worker) {
  if (!failure_.ok() || worker.clock().NowNs() < FirstDeadlineNs()) return;
  Break(worker, Status::DeadlineExceeded(options_.backup + " has not answered message " +
                                         std::to_string(found_ + 1) + " for " +
                                         std::to_string(options_.call_timeout_ms) + " ms"));
}

const Status& Channel::Break(dsm::Worker& worker, Status why) {
  if (!failure_.ok()) return failure_;
  failure_ = std::move(why);
  for (Calling* calling : calls_) {
    if (calling != nullptr) Resume(worker, calling);
  }
  for (const auto& [sequence, handle] : std::exchange(slot_waiters_, {})) worker.ResumeSoon(handle);
  return failure_;
}

void Channel::Resume(dsm::Worker& worker, Calling* calling) {
  if (calling->waiter) worker.ResumeSoon(std::exchange(calling->waiter, nullptr));
}

}  // namespace farleaf::server::replication
