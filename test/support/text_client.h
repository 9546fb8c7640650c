// TextClient: a blocking client of a text protocol, of which a test sees every byte.
//
// Thread rule: one thread.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "client/endpoint.h"
#include "client/internal/socket.h"
#include "dsm/base/check.h"

namespace farleaf::test {

class TextClient {
 public:
  /// `url`: SCHEME://HOST:PORT. Nothing waits for longer than `patience_ms`, of which tests that pass see nothing.
  explicit TextClient(std::string_view url, int patience_ms = 60'000) : patience_ms_(patience_ms) {
    const auto endpoint = client::ParseHostPort(url.substr(url.find("://") + 3));
    FARLEAF_CHECK(endpoint.ok(), endpoint.status());
    const auto addresses = client::internal::Resolve(*endpoint);
    FARLEAF_CHECK(addresses.ok(), addresses.status());
    auto dialled = client::internal::Dial(addresses->front());
    FARLEAF_CHECK(dialled.ok(), dialled.status());
    socket_ = std::move(*dialled);
    Wait(POLLOUT);
  }

  /// As far as the server takes it: nothing more once that has closed.
  void Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        bytes.remove_prefix(static_cast<size_t>(sent));
      } else if (errno != EAGAIN || !Wait(POLLOUT)) {
        return;
      }
    }
  }
  /// What comes up to and with `end`, or until the server closes, or patience ends.
  std::string ReceiveUntil(std::string_view end) {
    while (!received_.ends_with(end) && Receive()) {
    }
    return std::exchange(received_, {});
  }
  /// Everything, until the server closes.
  std::string ReceiveAll() {
    while (Receive()) {
    }
    return std::exchange(received_, {});
  }
  /// What memcached's protocol answers to `request`, be it nothing.
  std::string Ask(std::string_view request) {
    const std::string last = "last" + std::to_string(++asked_);
    Send(std::string(request) + "mg " + last + " k\r\n");
    const std::string end = "EN k" + last + "\r\n";
    std::string answer = ReceiveUntil(end);
    if (answer.ends_with(end)) answer.resize(answer.size() - end.size());
    return answer;
  }
  /// What Redis' protocol answers to `request`, be it nothing.
  std::string AskRedis(std::string_view request) {
    const std::string last = "last" + std::to_string(++asked_);
    Send(std::string(request) + "ECHO " + last + "\r\n");
    const std::string end = "$" + std::to_string(last.size()) + "\r\n" + last + "\r\n";
    std::string answer = ReceiveUntil(end);
    if (answer.ends_with(end)) answer.resize(answer.size() - end.size());
    return answer;
  }
  /// Sends no more.
  void HalfClose() { ::shutdown(socket_.get(), SHUT_WR); }

 private:
  bool Wait(short events) {
    pollfd waited{socket_.get(), events, 0};
    return ::poll(&waited, 1, patience_ms_) > 0;
  }
  bool Receive() {
    char buffer[1 << 16];
    if (!Wait(POLLIN)) return false;
    const ssize_t bytes = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    if (bytes <= 0) return false;
    received_.append(buffer, static_cast<size_t>(bytes));
    return true;
  }

  const int patience_ms_;
  client::internal::Fd socket_;
  std::string received_;
  uint64_t asked_ = 0;
};

}  // namespace farleaf::test
