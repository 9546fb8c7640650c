// Stream sockets without blocking: dial, send, receive.
//
// Thread rule: one thread.
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/endpoint.h"
#include "dsm/base/result.h"

namespace farleaf::client::internal {

inline std::string ErrnoText(int error) {
  char buffer[128];
  return ::strerror_r(error, buffer, sizeof buffer);  // the GNU form, which needs no locale
}

/// A file descriptor with one owner.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { Close(); }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// For a loop that waits for another processor.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

/// The addresses of an endpoint. A host name that is not numeric is looked up, which may block for
/// as long as the machine's resolver is configured to.
inline Result<std::vector<SocketAddress>> Resolve(const Endpoint& endpoint) {
  std::vector<SocketAddress> found;
  if (endpoint.is_unix()) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    FARLEAF_CHECK(endpoint.unix_path.size() < sizeof address.sun_path);
    std::memcpy(address.sun_path, endpoint.unix_path.data(), endpoint.unix_path.size());
    SocketAddress& only = found.emplace_back();
    std::memcpy(&only.storage, &address, sizeof address);
    only.bytes = sizeof address;
    return found;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (error != 0) {
    return Status::Unavailable("host \"" + endpoint.host + "\": " + ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    if (at->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress& address = found.emplace_back();
    std::memcpy(&address.storage, at->ai_addr, at->ai_addrlen);
    address.bytes = at->ai_addrlen;
  }
  if (found.empty()) return Status::Unavailable("host \"" + endpoint.host + "\" has no address");
  return found;
}

/// Begins to connect; the socket is writable when it has succeeded or failed (PendingError).
inline Result<Fd> Dial(const SocketAddress& address) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::IoError("socket: " + ErrnoText(errno));
  if (address.storage.ss_family != AF_UNIX) {
    const int one = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
  }
  const int result =
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes);
  // A Unix socket whose backlog is full says EAGAIN, and would not become writable later.
  if (result != 0 && errno != EINPROGRESS) return Status::Unavailable(ErrnoText(errno));
  return fd;
}

inline int PendingError(const Fd& fd) {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  return error;
}

inline bool IsUnixSocket(const Fd& fd) {
  int domain = 0;
  socklen_t bytes = sizeof domain;
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX;
}

/// Like send; the descriptor goes with the first byte. On Unix sockets only.
inline ssize_t SendWithDescriptor(const Fd& socket, std::string_view bytes, const Fd& descriptor) {
  iovec vector{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &vector;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = descriptor.get();
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  return ::sendmsg(socket.get(), &header, MSG_NOSIGNAL);
}

/// Like recv; a descriptor that comes with the bytes is in `descriptor`.
inline ssize_t ReceiveWithDescriptor(const Fd& socket, std::span<char> into, Fd* descriptor) {
  iovec vector{into.data(), into.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr header{};
  header.msg_iov = &vector;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  const ssize_t n = ::recvmsg(socket.get(), &header, MSG_CMSG_CLOEXEC);
  if (n < 0) return n;
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    if (c->cmsg_len != CMSG_LEN(sizeof(int))) continue;
    int fd;
    std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
    *descriptor = Fd(fd);
  }
  return n;
}

/// Bytes received and not yet parsed.
class ReceiveBuffer {
 public:
  std::span<const std::byte> unread() const {
    return std::as_bytes(std::span(bytes_)).subspan(begin_, end_ - begin_);
  }
  void Consume(size_t bytes) {
    begin_ += bytes;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  /// At least `bytes_min` of free space behind the unread bytes.
  std::span<char> Space(size_t bytes_min) {
    if (bytes_.size() - end_ < bytes_min) {
      // memmove does not take the null pointer of an empty vector, not even for no bytes.
      if (begin_ != end_) std::memmove(bytes_.data(), bytes_.data() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
      if (bytes_.size() - end_ < bytes_min) bytes_.resize(end_ + bytes_min);
    }
    return std::span(bytes_).subspan(end_);
  }
  void Filled(size_t bytes) { end_ += bytes; }
  void Clear() { begin_ = end_ = 0; }
  /// Gives back what a large message needed.
  void ShrinkIfEmpty(size_t bytes_max) {
    if (begin_ == end_ && bytes_.size() > bytes_max) std::vector<char>().swap(bytes_);
  }

 private:
  std::vector<char> bytes_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace farleaf::client::internal
