// Sockets for the fabrics: descriptors with an owner, listening and connecting by endpoint address.
// All descriptors are non-blocking and closed on exec.
//
// Thread rule: free functions, any thread; a UniqueFd has one owner.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dsm/base/result.h"

namespace farleaf::dsm {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset();

 private:
  int fd_ = -1;
};

/// "what: reason of errno", as an IoError.
Status OsError(const std::string& what);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  std::string text;  ///< as it was given, for messages

  bool is_loopback() const;
  bool is_unspecified() const;  ///< 0.0.0.0 or [::]: all addresses of this machine
  uint16_t port() const;        ///< REQUIRES: IPv4 or IPv6
};

/// An IPv4 or IPv6 address with its text in numbers, "HOST:PORT", and its port replaced if one is
/// given.
SocketAddress NumericAddress(const sockaddr& raw, std::optional<uint16_t> port = std::nullopt);

/// Resolves "HOST:PORT" or "[IPV6]:PORT". InvalidArgument names the text. May ask a name server.
Result<SocketAddress> ResolveTcp(std::string_view host_port);
/// A Unix socket's path. InvalidArgument: empty, or longer than the system allows (107 bytes).
Result<SocketAddress> UnixAddress(std::string_view path);

/// Listens. AlreadyExists: somebody else listens there. For a Unix socket, a file that nobody
/// answers on is left over from a process that was killed, and is replaced.
Result<UniqueFd> Listen(const SocketAddress& address);
/// Starts to connect; the socket becomes writable when it is decided, see TakeConnectError.
/// NotFound: nobody listens there. ResourceExhausted, Unavailable: anything else.
Result<UniqueFd> StartConnect(const SocketAddress& address);
/// 0 when connected, else the errno of the failure.
int TakeConnectError(int fd);
/// Whether a failure to connect shows that no process listens on the address.
bool MeansNobodyListens(int error);
/// "HOST:PORT" on which `listening_fd` really listens (the port may have been chosen by the
/// system).
Result<std::string> LocalTcpAddress(int listening_fd);

}  // namespace farleaf::dsm
