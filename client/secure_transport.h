// SecureTransport: what a client's bytes go through between a session and its socket, if not nothing. TLS is one
// (tls.h); the session knows only this.
//
// Thread rule: a transport may be shared by threads, a channel belongs to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dsm/base/status.h"

namespace farleaf::client {

/// How a transfer ended: with bytes, or waiting for the socket, or for good.
struct Transfer {
  enum class Kind : uint8_t { kBytes, kWait, kEnded, kFailed };
  Kind kind = Kind::kWait;
  size_t bytes = 0;
};

class SecureChannel {
 public:
  virtual ~SecureChannel() = default;
  /// Bytes that were not all taken come first in the next call.
  virtual Transfer Send(std::string_view bytes) = 0;
  virtual Transfer Receive(std::span<std::byte> space) = 0;
  // Which event of the socket the last transfer of either direction waits for, where it is the other direction's.
  virtual bool send_waits_for_read() const = 0;
  virtual bool receive_waits_for_write() const = 0;
  /// Why a transfer failed.
  virtual Status failure() const = 0;
};

class SecureTransport {
 public:
  virtual ~SecureTransport() = default;
  /// On a connected socket, which stays open as long as the channel. `host`: empty on a Unix socket.
  virtual std::unique_ptr<SecureChannel> Open(int fd, const std::string& host) const = 0;
};

}  // namespace farleaf::client
