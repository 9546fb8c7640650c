#include "benchmark/ycsb/text_connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "dsm/base/clock.h"

namespace farleaf::ycsb {

using client::internal::ErrnoText;
using client::internal::Fd;

Result<std::unique_ptr<TextConnection>> TextConnection::Open(const client::Endpoint& endpoint,
                                                             uint64_t timeout_ms) {
  const auto addresses = client::internal::Resolve(endpoint);
  if (!addresses.ok()) return addresses.status();
  const MonotonicClock clock;
  const uint64_t deadline_ns = clock.NowNs() + timeout_ms * kNsPerMs;
  Status last = Status::Unavailable("no address");
  for (const auto& address : *addresses) {
    auto socket = client::internal::Dial(address);
    if (!socket.ok()) {
      last = socket.status();
      continue;
    }
    const uint64_t now_ns = clock.NowNs();
    pollfd connected{socket->get(), POLLOUT, 0};
    const uint64_t left_ms = deadline_ns > now_ns ? (deadline_ns - now_ns) / kNsPerMs : 0;
    if (::poll(&connected, 1, static_cast<int>(left_ms)) <= 0) {
      last = Status::Unavailable("no connection within " + std::to_string(timeout_ms) + " ms");
      continue;
    }
    const int error = client::internal::PendingError(*socket);
    if (error == 0) return std::make_unique<TextConnection>(std::move(*socket));
    last = Status::Unavailable(ErrnoText(error));
  }
  return last;
}

Status TextConnection::Flush() {
  while (unsent_begin_ < unsent_.size()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data() + unsent_begin_,
                                unsent_.size() - unsent_begin_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (sent < 0) return Status::Unavailable(ErrnoText(errno));
    unsent_begin_ += static_cast<size_t>(sent);
    sent_bytes_ += static_cast<uint64_t>(sent);
  }
  // What was sent goes when it is at least half of all, so that each byte is moved once at most.
  if (unsent_begin_ * 2 >= unsent_.size()) unsent_.erase(0, std::exchange(unsent_begin_, 0));
  return Status::Ok();
}

void TextConnection::Wait(uint64_t wait_ns) const {
  const bool sends = unsent_begin_ < unsent_.size();
  PollFor(socket_.get(), static_cast<short>(sends ? POLLIN | POLLOUT : POLLIN), wait_ns);
}

Status TextConnection::Receive() {
  constexpr size_t kBytesMin = 64 << 10;
  const std::span<char> space = received_.Space(kBytesMin);
  const ssize_t bytes = ::recv(socket_.get(), space.data(), space.size(), MSG_DONTWAIT);
  if (bytes > 0) {
    received_.Filled(static_cast<size_t>(bytes));
    return Status::Ok();
  }
  if (bytes == 0) return Status::Unavailable("the server closed the connection");
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return Status::Ok();
  return Status::Unavailable(ErrnoText(errno));
}

std::string_view TextConnection::received() const {
  const std::span<const std::byte> bytes = received_.unread();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void PollFor(int fd, short events, uint64_t wait_ns) {
  pollfd waited{fd, events, 0};
  const timespec limit{static_cast<time_t>(wait_ns / kNsPerSecond),
                       static_cast<long>(wait_ns % kNsPerSecond)};
  // A failure, as by a signal, is an early return, which callers allow for.
  (void)::ppoll(&waited, 1, &limit, nullptr);
}

}  // namespace farleaf::ycsb
