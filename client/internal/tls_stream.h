// TlsStream: TLS over a socket that does not block, with OpenSSL. What either side of a connection has in common.
//
// The socket is written with MSG_NOSIGNAL, by a BIO of our own: OpenSSL's would raise SIGPIPE in whatever program
// has a connection that breaks.
//
// Thread rule: one thread. A context may be shared by threads.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/base/status.h"

namespace farleaf::client::internal {

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(BIO_METHOD* method) const { BIO_meth_free(method); }
};
using SslContext = std::unique_ptr<SSL_CTX, FreeSsl>;

/// What OpenSSL has against the last call of this thread; empties its list of that.
inline std::string SslErrorText() {
  std::string text;
  while (const unsigned long error = ERR_get_error()) {
    const char* const reason = ERR_reason_error_string(error);
    if (text.empty()) text = reason != nullptr ? reason : "error " + std::to_string(error);
  }
  return text.empty() ? "the connection broke" : text;
}

// ---- The socket below

inline int SocketBioWrite(BIO* bio, const char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t n = ::send(fd, bytes, static_cast<size_t>(count), MSG_NOSIGNAL);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    BIO_set_retry_write(bio);
  }
  return static_cast<int>(n);
}
inline int SocketBioRead(BIO* bio, char* bytes, int count) {
  BIO_clear_retry_flags(bio);
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t n = ::recv(fd, bytes, static_cast<size_t>(count), 0);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    BIO_set_retry_read(bio);
  }
  return static_cast<int>(n);
}
inline long SocketBioControl(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

/// Of the BIOs that TlsStreams make; lives as long as the streams.
inline std::shared_ptr<BIO_METHOD> NewSocketBioMethod() {
  std::shared_ptr<BIO_METHOD> method(
      BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "farleaf socket"), FreeSsl());
  FARLEAF_CHECK(method != nullptr);
  BIO_meth_set_write(method.get(), &SocketBioWrite);
  BIO_meth_set_read(method.get(), &SocketBioRead);
  BIO_meth_set_ctrl(method.get(), &SocketBioControl);
  return method;
}

// ---- The stream

class TlsStream {
 public:
  enum class Side : uint8_t { kServer, kClient };
  /// How a Receive or Send ended: with bytes, or waiting for the socket, or for good.
  struct Outcome {
    enum class Kind : uint8_t { kBytes, kWait, kEnded, kFailed };
    Kind kind = Kind::kWait;
    size_t bytes = 0;
  };

  /// `fd` stays the caller's, and open as long as the stream.
  TlsStream(SSL_CTX* context, std::shared_ptr<BIO_METHOD> method, int fd, Side side)
      : method_(std::move(method)), ssl_(SSL_new(context)) {
    FARLEAF_CHECK(ssl_ != nullptr);
    BIO* const bio = BIO_new(method_.get());
    FARLEAF_CHECK(bio != nullptr);
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
    // What is sent lies in a buffer that grows, and moves, between two attempts.
    SSL_set_mode(ssl_.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                 SSL_MODE_RELEASE_BUFFERS);
    // A peer that closes without having said so has said all that it is going to: the protocols above know where
    // a message ends.
    SSL_set_options(ssl_.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    if (side == Side::kServer) {
      SSL_set_accept_state(ssl_.get());
    } else {
      SSL_set_connect_state(ssl_.get());
    }
  }
  TlsStream(const TlsStream&) = delete;

  SSL* ssl() { return ssl_.get(); }
  bool handshaken() const { return SSL_is_init_finished(ssl_.get()) == 1; }
  /// Bytes were received that no event of the socket will tell of again.
  bool has_pending() const { return SSL_pending(ssl_.get()) > 0; }
  // Which event of the socket the last transfer of either direction waits for, where it is the other direction's.
  bool send_waits_for_read() const { return send_waits_for_read_; }
  bool receive_waits_for_write() const { return receive_waits_for_write_; }
  /// Why it failed.
  const Status& failure() const { return failure_; }

  /// Both do the handshake first, as far as the socket lets them.
  Outcome Receive(std::span<std::byte> space) {
    ERR_clear_error();
    const int count = static_cast<int>(std::min<size_t>(space.size(), INT_MAX));
    const int result = SSL_read(ssl_.get(), space.data(), count);
    const int error = SSL_get_error(ssl_.get(), result);
    receive_waits_for_write_ = error == SSL_ERROR_WANT_WRITE;
    send_waits_for_read_ = false;  // what it waited for may have come with this
    return OutcomeOf(result, error);
  }
  /// REQUIRES: bytes that were not all taken come first in the next call.
  Outcome Send(std::string_view bytes) {
    ERR_clear_error();
    const int count = static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX));
    const int result = SSL_write(ssl_.get(), bytes.data(), count);
    const int error = SSL_get_error(ssl_.get(), result);
    send_waits_for_read_ = error == SSL_ERROR_WANT_READ;
    return OutcomeOf(result, error);
  }
  /// The socket failed or ended, and not what came over it.
  bool broke() const { return broke_; }
  /// Tells the peer that nothing more comes, as far as the socket takes it.
  void Shutdown() {
    ERR_clear_error();
    if (failure_.ok() && handshaken()) SSL_shutdown(ssl_.get());
    ERR_clear_error();
  }

 private:
  Outcome OutcomeOf(int result, int error) {
    switch (error) {
      case SSL_ERROR_NONE:
        return {Outcome::Kind::kBytes, static_cast<size_t>(result)};
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE:
        return {Outcome::Kind::kWait, 0};
      case SSL_ERROR_ZERO_RETURN:
        return {Outcome::Kind::kEnded, 0};
      default:
        break;
    }
    if (failure_.ok()) {
      const std::string during = handshaken() ? "TLS: " : "TLS handshake: ";
      broke_ = ERR_peek_error() == 0;
      failure_ = Status::Unavailable(during + SslErrorText());
    }
    return {Outcome::Kind::kFailed, 0};
  }

  const std::shared_ptr<BIO_METHOD> method_;
  std::unique_ptr<SSL, FreeSsl> ssl_;
  bool send_waits_for_read_ = false, receive_waits_for_write_ = false;
  bool broke_ = false;
  Status failure_;
};

}  // namespace farleaf::client::internal
