// Connection: one way to a server, from dialling to its loss, and the hello on it: a byte stream, or a ring that
// is opened through one.
//
// A Connection knows nothing of operations: it moves bytes, tells how many of them the kernel took,
// and says why it ended.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "client/internal/ring_link.h"
#include "client/internal/socket.h"
#include "client/options.h"
#include "client/protocol.h"

namespace farleaf::client::internal {

class Connection {
 public:
  enum class State : uint8_t { kClosed, kDialling, kHello, kRing, kOpen };

  State state() const { return state_; }
  int fd() const { return fd_.get(); }
  bool wants_write() const {
    const bool unsent = sent_ < out_.size();
    if (ring_) return false;  // its room is not the socket's
    if (state_ == State::kDialling || !channel_) return state_ == State::kDialling || unsent;
    return (unsent && !channel_->send_waits_for_read()) || channel_->receive_waits_for_write();
  }
  /// REQUIRES: open.
  const protocol::ServerHello& hello() const { return hello_; }

  /// Of the connections to come; `host` is whom they are to.
  void set_transport(std::shared_ptr<const SecureTransport> transport, std::string host) {
    transport_ = std::move(transport);
    host_ = std::move(host);
  }
  /// Of the hellos to come.
  void set_password(std::string password) { password_ = std::move(password); }

  /// Null: bytes go through the socket.
  RingLink* ring() { return ring_.get(); }

  /// `ring`: the areas of the ring that is wanted; none by default.
  Status Open(const SocketAddress& address, uint32_t view, protocol::RingBytes ring = {}) {
    Close();
    ring_wanted_ = ring;
    auto fd = Dial(address);
    if (!fd.ok()) return fd.status();
    fd_ = std::move(*fd);
    view_ = view;
    state_ = State::kDialling;
    return Status::Ok();
  }
  void Close() {
    channel_.reset();
    fd_.Close();
    ring_.reset();
    state_ = State::kClosed;
    in_.Clear();
    out_.clear();
    sent_ = 0;
    stream_sent_ = 0;
    send_failure_ = Status::Ok();
  }

  /// Frames are appended here. Positions in the stream are bytes since Open.
  std::string& out() { return out_; }
  uint64_t stream_queued() const { return stream_sent_ + (out_.size() - sent_); }
  uint64_t stream_sent() const { return stream_sent_; }
  size_t unsent_bytes() const { return out_.size() - sent_; }

  /// Sends what the kernel takes. That it fails, which means that the connection is lost, is told by Receive behind
  /// all that the server has said: answers, why it refuses, goodbye.
  void Send() {
    if (state_ == State::kDialling || send_failed()) return;
    if (ring_) return SendThroughRing();
    while (sent_ < out_.size()) {
      const ssize_t n = SendSome(std::string_view(out_).substr(sent_));
      if (n < 0) {
        if (errno == EINTR) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) send_failure_ = Broken();
        return;
      }
      sent_ += static_cast<size_t>(n);
      stream_sent_ += static_cast<size_t>(n);
    }
    out_.clear();
    sent_ = 0;
    if (out_.capacity() > kKeptBytesMax) std::string().swap(out_);
  }
  bool send_failed() const { return !send_failure_.ok(); }

  /// REQUIRES: dialling, and the socket is writable. Sends the hello.
  Status FinishDialling() {
    const int error = PendingError(fd_);
    if (error != 0) return Status::Unavailable(ErrnoText(error));
    state_ = State::kHello;
    if (transport_) channel_ = transport_->Open(fd_.get(), host_);
    protocol::AppendClientHello(
        {.version = protocol::kVersion, .view = view_, .password = password_}, &out_);
    Send();
    return Status::Ok();
  }

  /// Takes in what has arrived, and the hello if that is what is awaited. Returns whether anything
  /// arrived; a failure means that the connection is lost or refused.
  Result<bool> Receive() {
    if (ring_) return ReceiveThroughRing();
    const auto wanted = protocol::FindFrame(in_.unread(), protocol::kFrameBytesMax).frame_bytes;
    const size_t missing = wanted > in_.unread().size() ? wanted - in_.unread().size() : 0;
    const auto space = in_.Space(std::max(kReceiveBytes, std::min(missing, kReceiveBytesMax)));
    const ssize_t n = state_ == State::kRing ? ReceiveWithDescriptor(fd_, space, &ring_memory_)
                                             : ReceiveSome(std::as_writable_bytes(space));
    if (n == 0) return Ended();
    if (n < 0) {
      if (errno == EINTR) return false;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return Broken();
      return NothingArrived();
    }
    in_.Filled(static_cast<size_t>(n));
    if (state_ == State::kHello) FARLEAF_RETURN_IF_ERROR(TakeHello());
    if (state_ == State::kRing) FARLEAF_RETURN_IF_ERROR(TakeRing());
    return true;
  }

  /// REQUIRES: a ring. Takes the bytes by which the server has woken this side.
  Status DrainWakeUps() {
    char bytes[256];
    for (;;) {
      const ssize_t n = ::recv(fd_.get(), bytes, sizeof bytes, 0);
      if (n == 0) return Ended();
      if (n > 0) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Status::Ok();
      return Status::Unavailable(ErrnoText(errno));
    }
  }

  /// The next frame's body, valid until ConsumeFrame; nullopt if none is complete. REQUIRES: open.
  Result<std::optional<std::span<const std::byte>>> NextFrame() {
    const auto found = protocol::FindFrame(in_.unread(), protocol::kFrameBytesMax);
    if (found.state == protocol::FrameLookup::State::kTooLong) {
      return Status::Corruption("a response of " + std::to_string(found.frame_bytes) + " bytes");
    }
    if (found.state == protocol::FrameLookup::State::kIncomplete) {
      in_.ShrinkIfEmpty(kKeptBytesMax);
      return std::optional<std::span<const std::byte>>();
    }
    return std::optional(found.body);
  }
  void ConsumeFrame(std::span<const std::byte> body) { in_.Consume(4 + body.size()); }

 private:
  static constexpr size_t kReceiveBytes = 64 << 10;
  static constexpr size_t kReceiveBytesMax = 4 << 20;
  static constexpr size_t kKeptBytesMax = 1 << 20;

  // As send and recv do it, errno included, through the channel if there is one.
  ssize_t SendSome(std::string_view bytes) {
    if (channel_) return ResultOf(channel_->Send(bytes));
    return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  ssize_t ReceiveSome(std::span<std::byte> space) {
    if (channel_) return ResultOf(channel_->Receive(space));
    return ::recv(fd_.get(), space.data(), space.size(), 0);
  }
  static ssize_t ResultOf(Transfer transfer) {
    if (transfer.kind == Transfer::Kind::kBytes) return static_cast<ssize_t>(transfer.bytes);
    if (transfer.kind == Transfer::Kind::kEnded) return 0;
    errno = transfer.kind == Transfer::Kind::kWait ? EAGAIN : EPROTO;
    return -1;
  }
  Status Ended() const {
    return send_failed() ? send_failure_ : Status::Unavailable("the server closed the connection");
  }
  Result<bool> NothingArrived() const {
    if (send_failed()) return send_failure_;
    return false;
  }
  Status Broken() const {
    if (channel_ && !channel_->failure().ok()) return channel_->failure();
    return Status::Unavailable(ErrnoText(errno));
  }

  Status TakeHello() {
    const auto found = protocol::FindFrame(in_.unread(), protocol::kHelloBytesMax);
    if (found.state == protocol::FrameLookup::State::kTooLong) {
      return Status::Corruption("the peer does not speak Farleaf's native protocol");
    }
    if (found.state == protocol::FrameLookup::State::kIncomplete) return Status::Ok();
    auto hello = protocol::ParseServerHello(found.body);
    if (!hello.ok()) return hello.status();
    if (hello->code != StatusCode::kOk) return Status(hello->code, hello->message);
    if (hello->version != protocol::kVersion) {
      return Status::InvalidArgument("the server speaks version " + std::to_string(hello->version) +
                                     " of the protocol, this "
                                     "client version " +
                                     std::to_string(protocol::kVersion));
    }
    hello_ = std::move(*hello);
    in_.Consume(found.frame_bytes);
    if (ring_wanted_.request == 0) {
      state_ = State::kOpen;
      return Status::Ok();
    }
    state_ = State::kRing;
    protocol::Request request;
    request.opcode = protocol::Opcode::kOpenRing;
    request.ring = ring_wanted_;
    protocol::AppendBatch(0, 0, request, &out_);
    Send();
    return Status::Ok();
  }

  Status TakeRing() {
    const auto found = protocol::FindFrame(in_.unread(), protocol::kHelloBytesMax);
    if (found.state == protocol::FrameLookup::State::kIncomplete) return Status::Ok();
    protocol::Response response;
    const bool parsed = found.state != protocol::FrameLookup::State::kTooLong &&
                        ParseResponse(found.body, &response).ok();
    if (parsed && response.goodbye) return Status::Unavailable("the server stops");
    if (!parsed || response.opcode != protocol::Opcode::kOpenRing) {
      return Status::Corruption("the server does not answer a request for a ring");
    }
    if (response.code != StatusCode::kOk) {
      return Status(response.code, std::string(response.message));
    }
    auto ring = RingLink::Map(ring_memory_, response.ring);
    ring_memory_.Close();
    if (!ring.ok()) return ring.status();
    in_.Clear();
    ring_ = std::move(*ring);
    state_ = State::kOpen;
    // What was sent up to here, and is counted by positions, was the socket's.
    return Status::Ok();
  }

  void SendThroughRing() {
    bool wrote = false;
    while (sent_ < out_.size()) {
      const auto found =
          protocol::FindFrame(AsBytes(out_).subspan(sent_), protocol::kFrameBytesMax);
      FARLEAF_CHECK(found.state == protocol::FrameLookup::State::kComplete, sent_, out_.size());
      const auto requests = LoadLittle<uint32_t>(out_.data() + sent_ + protocol::kBatchCountAt);
      wrote = true;  // if only a part of it
      if (!ring_->half().Send(AsBytes(out_).subspan(sent_, found.frame_bytes), requests)) break;
      sent_ += found.frame_bytes;
      stream_sent_ += found.frame_bytes;
    }
    if (sent_ == out_.size()) {
      out_.clear();
      sent_ = 0;
    } else if (sent_ > kKeptBytesMax) {
      out_.erase(0, std::exchange(sent_, 0));
    }
    if (wrote) WakeServer();
  }
  Result<bool> ReceiveThroughRing() {
    answers_.clear();
    const auto any = ring_->half().Receive(&answers_);
    if (!any.ok()) return any;
    if (!*any) return NothingArrived();
    if (!answers_.empty()) {
      std::memcpy(in_.Space(answers_.size()).data(), answers_.data(), answers_.size());
      in_.Filled(answers_.size());
    }
    if (answers_.capacity() > kKeptBytesMax) std::string().swap(answers_);
    WakeServer();  // rests of answers may have been asked for
    return true;
  }
  void WakeServer() {
    if (!ring_->ToWake()) return;
    const char byte = 'w';
    // A full socket is on its way to wake it already.
    if (::send(fd_.get(), &byte, 1, MSG_NOSIGNAL) < 0 && errno != EAGAIN && errno != EINTR) {
      send_failure_ = Status::Unavailable(ErrnoText(errno));
    }
  }

  Fd fd_;
  State state_ = State::kClosed;
  uint32_t view_ = 0;
  std::string password_;
  std::shared_ptr<const SecureTransport> transport_;
  std::string host_;
  std::unique_ptr<SecureChannel> channel_;  // on fd_
  protocol::ServerHello hello_;
  ReceiveBuffer in_;
  std::string out_;
  size_t sent_ = 0;  // of out_
  uint64_t stream_sent_ = 0;
  Status send_failure_;
  protocol::RingBytes ring_wanted_;
  Fd ring_memory_;  // as it was handed over
  std::unique_ptr<RingLink> ring_;
  std::string answers_;  // as they came through it
};

}  // namespace farleaf::client::internal
