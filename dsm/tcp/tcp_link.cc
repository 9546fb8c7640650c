#include "dsm/tcp/tcp_link.h"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "dsm/base/bytes.h"

namespace farleaf::dsm {

namespace {
constexpr size_t kLinkReceiveBytes = 256 << 10;
constexpr size_t kSendCopiedBytesMax = size_t{1}
                                       << 30;  // of what the link copies: headers, small WRITEs
constexpr size_t kCopyBytesMax = 4 << 10;      // a larger WRITE is sent from the batch's own memory
constexpr size_t kDirectBytesMin = 16 << 10;   // a larger rest of a READ is received in its place
constexpr int kReceivesPerPoll = 8;
constexpr size_t kVectorMax = 64;
}  // namespace

TcpLink::TcpLink(std::shared_ptr<KnownServer> server, Hello hello, const TcpLinkOptions& options,
                 const Clock* clock)
    : server_(std::move(server)),
      address_(server_->address()),
      hello_(std::move(hello)),
      options_(options),
      clock_(clock),
      recovery_("memory server " + std::to_string(hello_.server), options.recovery, clock),
      in_(kLinkReceiveBytes),
      out_(kSendCopiedBytesMax) {}

// ---- Connecting
// ----------------------------------------------------------------------------------

void TcpLink::Connect() {
  if (state_ != State::kDown || held_back_) return;
  recovery_.AttemptStarted();
  greeting_.clear();
  auto fd = StartConnect(address_);
  if (!fd.ok()) {
    AttemptFailed(fd.status(), fd.status().code() == StatusCode::kNotFound ? Server::kGone
                                                                           : Server::kMaybeThere);
    return;
  }
  fd_ = std::move(*fd);
  state_ = State::kConnecting;
}

void TcpLink::CheckConnected() {
  pollfd connected{fd_.get(), POLLOUT, 0};
  if (::poll(&connected, 1, 0) == 0) return;
  if (const int error = TakeConnectError(fd_.get()); error != 0) {
    AttemptFailed(
        Status::Unavailable("cannot connect to " + address_.text + ": " + std::strerror(error)),
        MeansNobodyListens(error) ? Server::kGone : Server::kMaybeThere);
    return;
  }
  const std::string message = EncodeHello(hello_);
  const ssize_t sent = ::send(fd_.get(), message.data(), message.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(message.size())) {
    AttemptFailed(Status::Unavailable(address_.text + " takes no handshake"), Server::kMaybeThere);
    return;
  }
  state_ = State::kGreeting;
}

void TcpLink::ReceiveWelcome() {
  char raw[kHandshakeBytesMax];
  while (state_ == State::kGreeting) {
    auto whole = HandshakeBytes(AsBytes(greeting_));
    const size_t wanted = whole.ok() && *whole ? **whole : kHandshakeHeaderBytes;
    const ssize_t got = ::recv(fd_.get(), raw, wanted - greeting_.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      AttemptFailed(Status::Unavailable(address_.text + " closed the connection in the handshake"),
                    Server::kMaybeThere);
      return;
    }
    greeting_.append(raw, static_cast<size_t>(got));
    whole = HandshakeBytes(AsBytes(greeting_));
    if (!whole.ok()) {
      AttemptFailed(whole.status().WithContext(address_.text), Server::kMaybeThere);
      return;
    }
    if (!*whole || greeting_.size() < **whole) continue;
    auto welcome = ParseWelcome(AsBytes(greeting_));
    if (welcome.ok()) {
      Accept(*welcome);
    } else {
      AttemptFailed(welcome.status().WithContext(address_.text), Server::kMaybeThere);
    }
  }
}

void TcpLink::Accept(const Welcome& welcome) {
  Status status = CheckWelcome(welcome, hello_, server_->incarnation());
  if (status.ok() && !server_->Settle(welcome.region.incarnation)) {
    status = CheckWelcome(welcome, hello_, server_->incarnation());  // another link was first
  }
  if (!status.ok()) {
    // A server that has no room now may have some later; all else stays as it is.
    if (status.code() == StatusCode::kResourceExhausted) {
      AttemptFailed(std::move(status), Server::kMaybeThere);
    } else {
      LoseForGood(std::move(status));
    }
    return;
  }
  region_ = welcome.region;
  state_ = State::kUp;
  next_sequence_ = 1;
  timing_ = false;
  // The server has destroyed the old connection before it sent this Welcome.
  for (Batch* batch : recovery_.Restored()) Enqueue(*batch);
  EndIfRetired();
  Flush();
}

// ---- Failing
// -------------------------------------------------------------------------------------

void TcpLink::Drop() {
  fd_.Reset();
  in_.Clear();
  out_.Clear();
  segments_.clear();
  state_ = State::kDown;
}

void TcpLink::Break(const std::string& reason) {
  Drop();
  for (Batch* batch : replies_.TakeAll()) recovery_.Doom(batch);
  recovery_.Broke(reason);
  Connect();
}

void TcpLink::AttemptFailed(Status why, Server server) {
  Drop();
  recovery_.AttemptFailed(std::move(why), server);
  EndIfRetired();
}

void TcpLink::LoseForGood(Status why) {
  Drop();
  state_ = State::kLost;
  recovery_.LoseForGood(std::move(why));
}

// ---- Coming and going
// ------------------------------------------------------------------------------

void TcpLink::Retire() {
  retired_ = true;
  held_back_ = false;
  recovery_.FailWaiting(KnownServers::Removed(hello_.server));
  if (state_ == State::kUp && !replies_.empty()) {
    Break("it was removed");
  } else {
    EndIfRetired();
  }
}

void TcpLink::EndIfRetired() {
  if (!retired_ || recovery_.holds_batches()) return;
  Drop();
  state_ = State::kLost;
}

void TcpLink::Release() {
  held_back_ = false;
  if (recovery_.holds_batches()) Connect();
}

// ---- Sending
// -------------------------------------------------------------------------------------

void TcpLink::Post(Batch& batch) {
  if (state_ == State::kUp) [[likely]] {
    Enqueue(batch);
    return;
  }
  if (recovery_.Wait(batch, connecting() || held_back_)) Connect();
}

void TcpLink::AppendOwned(std::span<const std::byte> bytes) {
  out_.Append(bytes);
  if (segments_.empty() || segments_.back().bytes != nullptr) segments_.push_back({nullptr, 0});
  segments_.back().count += bytes.size();
}

void TcpLink::Enqueue(Batch& batch) {
  const std::span<const Verb> verbs = batch.verbs();
  uint64_t frame_bytes = kFrameHeaderBytes + verbs.size() * kFrameVerbBytes;
  for (const Verb& verb : verbs) frame_bytes += RequestPayloadBytes(verb.kind, verb.length);
  std::byte raw[kFrameHeaderBytes];
  EncodeRequestHeader(
      {static_cast<uint32_t>(frame_bytes), static_cast<uint16_t>(verbs.size()), next_sequence_},
      raw);
  AppendOwned(raw);
  for (const Verb& verb : verbs) {
    EncodeFrameVerb(verb, raw);
    AppendOwned(raw);
  }
  for (const Verb& verb : verbs) {
    switch (verb.kind) {
      case VerbKind::kRead:
        break;
      case VerbKind::kWrite:
        if (verb.length <= kCopyBytesMax) {
          AppendOwned({verb.local, verb.length});
        } else {
          segments_.push_back({verb.local, verb.length});
        }
        break;
      case VerbKind::kCompareAndSwap:
        StoreLittle<uint64_t>(raw, verb.operand);
        StoreLittle<uint64_t>(raw + 8, verb.desired);
        AppendOwned(raw);
        break;
      case VerbKind::kFetchAdd:
        StoreLittle<uint64_t>(raw, verb.operand);
        AppendOwned(std::span(raw).first(8));
        break;
    }
  }
  replies_.Expect(&batch, next_sequence_++);
}

void TcpLink::Flush() {
  while (state_ == State::kUp && !segments_.empty()) {
    iovec vector[kVectorMax];
    size_t count = 0;
    const std::byte* owned = out_.readable().data();
    for (const Segment& segment : segments_) {
      const std::byte* from = segment.bytes ? segment.bytes : owned;
      if (!segment.bytes) owned += segment.count;
      vector[count++] = {const_cast<std::byte*>(from), segment.count};
      if (count == kVectorMax) break;
    }
    msghdr message{};
    message.msg_iov = vector;
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) Break(std::strerror(errno));
      return;
    }
    timing_ = false;  // progress
    for (size_t rest = static_cast<size_t>(sent); rest > 0;) {
      Segment& front = segments_.front();
      const size_t done = std::min(rest, front.count);
      if (front.bytes) {
        front.bytes += done;
      } else {
        out_.Consume(done);
      }
      front.count -= done;
      rest -= done;
      if (front.count == 0) segments_.pop_front();
    }
  }
}

// ---- Receiving
// -----------------------------------------------------------------------------------

void TcpLink::Receive() {
  for (int turn = 0; turn < kReceivesPerPoll && state_ == State::kUp; ++turn) {
    std::span<std::byte> into = replies_.Destination();
    const bool direct = in_.empty() && into.size() >= kDirectBytesMin;
    if (!direct) into = in_.Prepare(in_.room());
    const ssize_t got = ::recv(fd_.get(), into.data(), into.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      Break(got == 0 ? "connection closed" : std::strerror(errno));
      return;
    }
    timing_ = false;  // progress
    const auto count = static_cast<size_t>(got);
    if (direct) {
      replies_.CommitDestination(count, &completed_);
    } else {
      in_.Commit(count);
      auto consumed = replies_.Consume(in_.readable(), &completed_);
      if (!consumed.ok()) {
        Break(std::string(consumed.status().message()));
        return;
      }
      in_.Consume(*consumed);
    }
    if (count < into.size() || replies_.empty()) return;
  }
}

size_t TcpLink::Poll() {
  switch (state_) {
    case State::kUp:
      Flush();
      if (replies_.empty()) break;
      Receive();
      if (replies_.empty() || state_ != State::kUp) break;
      if (const uint64_t now_ns = clock_->NowNs(); !std::exchange(timing_, true)) {
        progress_ns_ = now_ns;
      } else if (now_ns - progress_ns_ > options_.stall_timeout_ms * kNsPerMs) {
        Break("no answer for " + std::to_string(options_.stall_timeout_ms) + " ms");
      }
      break;
    case State::kConnecting:
      CheckConnected();
      break;
    case State::kGreeting:
      ReceiveWelcome();
      break;
    case State::kDown:
      if (recovery_.retry_due()) Connect();
      break;
    case State::kLost:
      break;
  }
  if (connecting() && recovery_.attempt_overdue()) {
    AttemptFailed(Status::Unavailable(address_.text + " does not answer within " +
                                      std::to_string(options_.recovery.connect_timeout_ms) + " ms"),
                  Server::kMaybeThere);
  }
  return std::exchange(completed_, 0) + recovery_.TakeCompleted();
}

short TcpLink::poll_events() const {
  switch (state_) {
    case State::kConnecting:
      return POLLOUT;
    case State::kGreeting:
      return POLLIN;
    case State::kUp:
      return static_cast<short>((replies_.empty() ? 0 : POLLIN) |
                                (segments_.empty() ? 0 : POLLOUT));
    default:
      return 0;
  }
}

uint64_t TcpLink::due_ns() const {
  if (connecting()) return recovery_.attempt_deadline_ns();
  if (state_ == State::kDown) return recovery_.retry_due_ns();
  if (state_ == State::kUp && !replies_.empty() && timing_) {
    return progress_ns_ + options_.stall_timeout_ms * kNsPerMs;
  }
  return UINT64_MAX;
}

}  // namespace farleaf::dsm
