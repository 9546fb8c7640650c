#include "server/replication/channel_server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/base/shared_copy.h"

namespace farleaf::server::replication {

namespace {

/// Bytes of any number; the last word is filled up with zeros. REQUIRES: `shared` is aligned to 8 and has room for that.
void CopyPadded(std::byte* shared, std::span<const std::byte> bytes) {
  const size_t whole = bytes.size() / 8 * 8;
  CopyToShared(shared, bytes.data(), whole);
  if (whole == bytes.size()) return;
  std::byte last[8] = {};
  std::memcpy(last, bytes.data() + whole, bytes.size() - whole);
  CopyToShared(shared + whole, last, sizeof last);
}

struct WaitForHandler {
  std::coroutine_handle<>* waiter;
  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> handle) { *waiter = handle; }
  void await_resume() const noexcept {}
};

}  // namespace

ChannelServer::ChannelServer(std::span<std::byte> area, const AreaLayout& layout,
                             ChannelServerOptions options)
    : area_(area), layout_(layout), options_(options) {
  FARLEAF_CHECK(area.size() >= layout.bytes(), area.size(), layout.bytes());
  FARLEAF_CHECK(reinterpret_cast<uintptr_t>(area.data()) % 8 == 0);
}

dsm::Task<void> ChannelServer::Reset(uint64_t token) {
  FARLEAF_CHECK(token != 0 && !resetting_);
  resetting_ = true;
  // Its payload lies where the new primary's messages will.
  if (taking_) co_await WaitForHandler{&reset_waiter_};
  token_ = token;
  next_ = 1;
  damage_ = Status::Ok();
  const AreaHeader header = HeaderOf(layout_, token);
  CopyToShared(area_.data(), std::as_bytes(std::span(&header, 1)).data(), sizeof header);
  resetting_ = false;
}

dsm::Task<void> ChannelServer::Serve(dsm::Worker& worker, MessageHandler handler) {
  uint64_t wait_ns = options_.look_ns_min;
  while (!stopped_.load(std::memory_order_acquire)) {
    if (resetting_ || !Announced()) {
      co_await worker.Sleep(wait_ns);
      wait_ns = std::min(wait_ns * 2, options_.look_ns_max);
      continue;
    }
    co_await TakeNext(worker, handler);
    wait_ns = options_.look_ns_min;
    co_await worker.Sleep(0);  // others of the worker have their turn, whatever comes here
  }
}

bool ChannelServer::Announced() const {
  return token_ != 0 && WordAt(layout_.MessageOffset(slot())).load(std::memory_order_acquire) ==
                            RendezvousWord(token_, next_);
}

dsm::Task<void> ChannelServer::TakeNext(dsm::Worker& worker, const MessageHandler& handler) {
  taking_ = true;
  ReceivedMessage message;
  // What follows a message that was damaged may rely on it.
  if (damage_.ok()) damage_ = Receive(&message);
  if (damage_.ok()) {
    const Reply reply = co_await handler(worker, message);
    messages_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(message.head.size() + message.payload.size(), std::memory_order_relaxed);
    WriteReply(reply, ReplyOutcome::kExecuted);
  } else {
    refused_.fetch_add(1, std::memory_order_relaxed);
    WriteReply({.code = damage_.code(), .text = std::string(damage_.message())},
               ReplyOutcome::kRefused);
  }
  ++next_;
  taking_ = false;
  if (reset_waiter_) worker.ResumeSoon(std::exchange(reset_waiter_, nullptr));
}

Status ChannelServer::Receive(ReceivedMessage* message) const {
  const std::byte* const at = area_.data() + layout_.MessageOffset(slot());
  ChannelHeader header = {};  // without the word, which was read
  CopyFromShared(reinterpret_cast<std::byte*>(&header) + sizeof header.word,
                 at + sizeof header.word, kHeaderBytes - sizeof header.word);
  FARLEAF_RETURN_IF_ERROR(
      CheckPlace(header, {token_, next_}, {kMessageHeadBytesMax, layout_.payload_bytes}));
  message->head.resize(RoundUp(header.head_bytes, 8));
  CopyFromShared(reinterpret_cast<std::byte*>(message->head.data()), at + kHeaderBytes,
                 message->head.size());
  message->head.resize(header.head_bytes);
  FARLEAF_RETURN_IF_ERROR(CheckHead(header, message->head));
  message->payload = area_.subspan(layout_.PayloadOffset(slot()), header.payload_bytes);
  FARLEAF_RETURN_IF_ERROR(CheckPayload(header, message->payload));
  message->kind = header.kind;
  message->arguments = header.arguments;
  message->sequence = header.sequence;
  return Status::Ok();
}

void ChannelServer::WriteReply(const Reply& reply, ReplyOutcome outcome) {
  FARLEAF_CHECK(reply.payload.size() <= kReplyPayloadBytesMax, reply.payload.size());
  const ChannelHeader header = HeaderOf({token_, next_}, reply, outcome);
  const std::string head =
      EncodeHead(header, std::string_view(reply.text).substr(0, kReplyTextBytesMax));
  const uint64_t at = layout_.ReplySlotOffset(slot());
  CopyPadded(area_.data() + layout_.ReplyPayloadOffset(slot()), AsBytes(reply.payload));
  CopyPadded(area_.data() + at + sizeof header.word, AsBytes(head).subspan(sizeof header.word));
  WordAt(at).store(header.word, std::memory_order_release);
}

}  // namespace farleaf::server::replication
