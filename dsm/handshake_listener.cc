#include "dsm/handshake_listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "dsm/base/bytes.h"

namespace farleaf::dsm {

namespace {
constexpr int kTurnMsMax = 200;  // bounds how late a deadline is noticed
constexpr size_t kAcceptsPerTurn = 64;
}  // namespace

HandshakeListener::HandshakeListener(UniqueFd listening, Options options, const Clock* clock,
                                     Accepted accepted, CutOffQueue::CutOff cut_off)
    : listening_(std::move(listening)),
      stop_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      options_(std::move(options)),
      clock_(clock),
      accepted_(std::move(accepted)),
      cut_offs_(std::move(cut_off)) {
  FARLEAF_CHECK(listening_.valid() && stop_fd_.valid(), errno);
  thread_ = std::thread([this] { Run(); });
}

HandshakeListener::~HandshakeListener() {
  const uint64_t one = 1;
  const ssize_t written = ::write(stop_fd_.get(), &one, sizeof one);
  FARLEAF_CHECK(written == sizeof one, errno);
  thread_.join();
}

void HandshakeListener::Run() {
  std::vector<pollfd> waited;
  while (true) {
    waited.assign({{stop_fd_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}});
    for (const Pending& pending : pending_) waited.push_back({pending.fd.get(), POLLIN, 0});
    ::poll(waited.data(), waited.size(), pending_.empty() ? -1 : kTurnMsMax);
    if (waited[0].revents != 0) break;
    const uint64_t now_ns = clock_->NowNs();
    size_t i = 0;
    std::erase_if(pending_, [&](Pending& pending) {
      const bool readable = waited[2 + i++].revents != 0;
      if (readable) return !Advance(pending);
      return now_ns >= pending.deadline_ns;
    });
    if (waited[1].revents != 0) AcceptAll();
  }
  listening_.Reset();
  pending_.clear();
}

void HandshakeListener::AcceptAll() {
  for (size_t i = 0; i < kAcceptsPerTurn; ++i) {
    UniqueFd fd(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) return;
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // no effect on Unix sockets
    if (pending_.size() >= options_.pending_max) pending_.erase(pending_.begin());
    pending_.push_back({std::move(fd), clock_->NowNs() + options_.hello_timeout_ms * kNsPerMs, ""});
  }
}

bool HandshakeListener::Advance(Pending& pending) {
  char raw[kHandshakeBytesMax];
  // Never reads past the Hello: what follows belongs to whoever takes the connection over.
  auto whole = HandshakeBytes(AsBytes(pending.received));
  const size_t wanted = whole.ok() && *whole ? **whole : kHandshakeHeaderBytes;
  const ssize_t got = ::recv(pending.fd.get(), raw, wanted - pending.received.size(), 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0 && wanted > pending.received.size()) return false;
  pending.received.append(raw, static_cast<size_t>(got));
  whole = HandshakeBytes(AsBytes(pending.received));
  if (!whole.ok()) {
    SendLastWelcome(pending.fd.get(), options_.identity.region, whole.status());
    return false;
  }
  if (!*whole) return true;
  if (pending.received.size() < **whole) return true;
  auto hello = ParseHello(AsBytes(pending.received));
  Status status = hello.ok() ? CheckHello(*hello, options_.identity) : hello.status();
  if (!status.ok()) {
    SendLastWelcome(pending.fd.get(), options_.identity.region, std::move(status));
    return false;
  }
  if (hello->kind == HelloKind::kCutOff) {
    // Shared, because an Answer can be copied.
    auto peer = std::make_shared<UniqueFd>(std::move(pending.fd));
    cut_offs_.Submit(*hello, [peer, region = options_.identity.region](Status outcome) {
      SendLastWelcome(peer->get(), region, std::move(outcome));
    });
    return false;
  }
  accepted_(std::move(pending.fd), *hello);
  return false;
}

void SendLastWelcome(int fd, const RegionInfo& region, Status outcome) {
  Welcome welcome;
  welcome.refusal = std::move(outcome);
  welcome.region = region;
  const std::string message = EncodeWelcome(welcome);
  // A peer that does not take these few bytes at once does not get to know why.
  [[maybe_unused]] const ssize_t sent = ::send(fd, message.data(), message.size(), MSG_NOSIGNAL);
  ::shutdown(fd, SHUT_WR);
}

}  // namespace farleaf::dsm
