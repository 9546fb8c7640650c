#include "test/support/native_peer.h"

#include <poll.h>
#include <sys/socket.h>

#include "client/endpoint.h"
#include "dsm/base/bytes.h"
#include "dsm/base/check.h"

namespace farleaf::test {

NativePeer::NativePeer(const std::string& url) {
  auto addresses = client::internal::Resolve(*client::ParseEndpoint(url));
  auto fd = client::internal::Dial(addresses->front());
  FARLEAF_CHECK(fd.ok(), fd.status());
  fd_ = std::move(*fd);
  FARLEAF_CHECK(Await(POLLOUT) && client::internal::PendingError(fd_) == 0);
}

void NativePeer::Send(std::string_view bytes) {
  while (!bytes.empty() && Await(POLLOUT)) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0) return;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

void NativePeer::SendHello(uint16_t version) {
  std::string frame;
  client::protocol::AppendClientHello({.version = version, .view = 0}, &frame);
  Send(frame);
}

void NativePeer::SendRequest(const client::protocol::Request& request) {
  std::string frame;
  client::protocol::AppendBatch(0, kView, request, &frame);
  Send(frame);
}

void NativePeer::EndSending() { ::shutdown(fd_.get(), SHUT_WR); }

std::optional<std::string> NativePeer::Receive() {
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

uint32_t NativePeer::Open(const std::string& tree) {
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

client::protocol::ServerHello NativePeer::ReceiveHello() {
  const auto body = Receive();
  FARLEAF_CHECK(body.has_value());
  auto hello = client::protocol::ParseServerHello(AsBytes(*body));
  FARLEAF_CHECK(hello.ok(), hello.status());
  return *hello;
}

bool NativePeer::Await(short events) {
  pollfd waited{fd_.get(), events, 0};
  const int ready = ::poll(&waited, 1, static_cast<int>(kPatienceMs));
  EXPECT_EQ(ready, 1) << "the server hangs";
  return ready == 1;
}

}  // namespace farleaf::test
