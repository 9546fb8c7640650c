// NativePeer: a client of the native protocol that says what it likes, byte by byte.
//
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>

#include "client/endpoint.h"
#include "client/internal/socket.h"
#include "client/protocol.h"
#include "test/support/native_under_test.h"

namespace farleaf::test {

class NativePeer {
 public:
  static constexpr uint32_t kView = 1;  // MapTreeHost's

  explicit NativePeer(const std::string& url) {
    auto addresses = client::internal::Resolve(*client::ParseEndpoint(url));
    auto fd = client::internal::Dial(addresses->front());
    FARLEAF_CHECK(fd.ok(), fd.status());
    fd_ = std::move(*fd);
    FARLEAF_CHECK(Await(POLLOUT) && client::internal::PendingError(fd_) == 0);
  }
  /// Sends all of it, or as much as the server takes before it closes.
  void Send(std::string_view bytes) {
    while (!bytes.empty() && Await(POLLOUT)) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  void SendHello(uint16_t version = client::protocol::kVersion) {
    std::string frame;
    client::protocol::AppendClientHello({.version = version, .view = 0}, &frame);
    Send(frame);
  }
  void SendRequest(const client::protocol::Request& request) {
    std::string frame;
    client::protocol::AppendBatch(0, kView, request, &frame);
    Send(frame);
  }
  void EndSending() { ::shutdown(fd_.get(), SHUT_WR); }
  /// The next frame's body; nullopt when the server has closed.
  std::optional<std::string> Receive() {
    while (true) {
      const auto found = client::protocol::FindFrame(AsBytes(in_), UINT32_MAX);
      if (found.state == client::protocol::FrameLookup::State::kComplete) {
        std::string body(AsChars(found.body));
        in_.erase(0, found.frame_bytes);
        return body;
      }
      if (!Await(POLLIN)) return std::nullopt;
      char buffer[65536];
      const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
      if (n <= 0) return std::nullopt;
      in_.append(buffer, static_cast<size_t>(n));
    }
  }
  /// Says hello, and opens the tree. Returns its id.
  uint32_t Open(const std::string& tree) {
    SendHello();
    FARLEAF_CHECK(ReceiveHello().code == StatusCode::kOk);
    client::protocol::Request open;
    open.opcode = client::protocol::Opcode::kOpenTree;
    open.name = tree;
    SendRequest(open);
    const auto body = Receive();
    client::protocol::Response opened;
    FARLEAF_CHECK(body && client::protocol::ParseResponse(AsBytes(*body), &opened).ok() &&
                  opened.code == StatusCode::kOk);
    return opened.trees.at(0).id;
  }
  client::protocol::ServerHello ReceiveHello() {
    const auto body = Receive();
    FARLEAF_CHECK(body.has_value());
    auto hello = client::protocol::ParseServerHello(AsBytes(*body));
    FARLEAF_CHECK(hello.ok(), hello.status());
    return *hello;
  }

 private:
  bool Await(short events) {
    pollfd waited{fd_.get(), events, 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(kPatienceMs));
    EXPECT_EQ(ready, 1) << "the server hangs";
    return ready == 1;
  }
  client::internal::Fd fd_;
  std::string in_;
};

}  // namespace farleaf::test
