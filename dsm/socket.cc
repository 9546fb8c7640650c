#include "dsm/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace farleaf::dsm {

namespace {

constexpr int kListenBacklog = 1024;

Result<UniqueFd> NewSocket(const SocketAddress& address) {
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return OsError("cannot open a socket for " + address.text);
  if (address.storage.ss_family != AF_UNIX) {
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return fd;
}

/// Whether a process listens on this Unix socket.
bool AnybodyAnswers(const SocketAddress& address) {
  auto probe = StartConnect(address);
  return probe.ok() || probe.status().code() != StatusCode::kNotFound;
}

}  // namespace

void UniqueFd::Reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Status OsError(const std::string& what) {
  return Status::IoError(what + ": " + std::strerror(errno));
}

bool SocketAddress::is_loopback() const {
  if (storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  if (storage.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
  }
  return true;
}

bool SocketAddress::is_unspecified() const {
  if (storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr == INADDR_ANY;
  }
  if (storage.ss_family == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr);
  }
  return false;
}

uint16_t SocketAddress::port() const {
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

SocketAddress NumericAddress(const sockaddr& raw, std::optional<uint16_t> port) {
  SocketAddress address;
  char host[INET6_ADDRSTRLEN] = {};
  if (raw.sa_family == AF_INET6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    *v6 = reinterpret_cast<const sockaddr_in6&>(raw);
    if (port) v6->sin6_port = htons(*port);
    address.bytes = sizeof *v6;
    ::inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
    address.text = "[" + std::string(host) + "]:" + std::to_string(address.port());
  } else {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    *v4 = reinterpret_cast<const sockaddr_in&>(raw);
    if (port) v4->sin_port = htons(*port);
    address.bytes = sizeof *v4;
    ::inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    address.text = std::string(host) + ":" + std::to_string(address.port());
  }
  return address;
}

Result<SocketAddress> ResolveTcp(std::string_view host_port) {
  const std::string given(host_port);
  const Status bad = Status::InvalidArgument("'" + given + "' is not HOST:PORT");
  const size_t colon = host_port.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad;
  std::string_view host = host_port.substr(0, colon);
  const std::string_view port = host_port.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad;
  }
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || host.empty()) return bad;

  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code =
      ::getaddrinfo(std::string(host).c_str(), std::to_string(number).c_str(), &hints, &found);
  if (code != 0) {
    return Status::InvalidArgument("'" + given + "' cannot be resolved: " + ::gai_strerror(code));
  }
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.bytes = found->ai_addrlen;
  address.text = given;
  ::freeaddrinfo(found);
  return address;
}

Result<SocketAddress> UnixAddress(std::string_view path) {
  SocketAddress address;
  address.text = std::string(path);
  auto* local = reinterpret_cast<sockaddr_un*>(&address.storage);
  if (path.empty() || path.size() >= sizeof local->sun_path) {
    return Status::InvalidArgument("'" + address.text + "' is no path of a Unix socket: it has " +
                                   std::to_string(path.size()) + " bytes, allowed are 1 to 107");
  }
  local->sun_family = AF_UNIX;
  std::memcpy(local->sun_path, path.data(), path.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  return address;
}

Result<UniqueFd> Listen(const SocketAddress& address) {
  auto fd = NewSocket(address);
  if (!fd.ok()) return fd.status();
  const auto* raw = reinterpret_cast<const sockaddr*>(&address.storage);
  const bool is_unix = address.storage.ss_family == AF_UNIX;
  if (!is_unix) {
    const int on = 1;
    ::setsockopt(fd->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  int bound = ::bind(fd->get(), raw, address.bytes);
  if (bound != 0 && errno == EADDRINUSE && is_unix && !AnybodyAnswers(address)) {
    ::unlink(address.text.c_str());
    bound = ::bind(fd->get(), raw, address.bytes);
  }
  if (bound != 0 || ::listen(fd->get(), kListenBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return Status::AlreadyExists("cannot listen on " + address.text +
                                   ": another process listens there");
    }
    return OsError("cannot listen on " + address.text);
  }
  return fd;
}

Result<UniqueFd> StartConnect(const SocketAddress& address) {
  auto fd = NewSocket(address);
  if (!fd.ok()) return fd.status();
  if (::connect(fd->get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) ==
          0 ||
      errno == EINPROGRESS) {
    return fd;
  }
  // EAGAIN is a Unix socket whose backlog is full: somebody is there.
  if (errno == EAGAIN) return Status::ResourceExhausted(address.text + " is busy");
  const std::string message = "cannot connect to " + address.text + ": " + std::strerror(errno);
  if (MeansNobodyListens(errno)) return Status::NotFound(message);
  return Status::Unavailable(message);
}

bool MeansNobodyListens(int error) { return error == ECONNREFUSED || error == ENOENT; }

int TakeConnectError(int fd) {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  return error;
}

Result<std::string> LocalTcpAddress(int listening_fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (::getsockname(listening_fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) {
    return OsError("cannot read a socket's address");
  }
  return NumericAddress(*reinterpret_cast<const sockaddr*>(&storage)).text;
}

}  // namespace farleaf::dsm
