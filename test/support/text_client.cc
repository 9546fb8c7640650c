#include "test/support/text_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "client/endpoint.h"
#include "dsm/base/check.h"

namespace farleaf::test {

TextClient::TextClient(std::string_view url, int patience_ms) : patience_ms_(patience_ms) {
  constexpr std::string_view kUnix = "+unix:";
  const size_t unix_at = url.find(kUnix);
  const auto endpoint = unix_at != std::string_view::npos
                            ? client::ParseUnixPath(url.substr(unix_at + kUnix.size()))
                            : client::ParseHostPort(url.substr(url.find("://") + 3));
  FARLEAF_CHECK(endpoint.ok(), endpoint.status());
  const auto addresses = client::internal::Resolve(*endpoint);
  FARLEAF_CHECK(addresses.ok(), addresses.status());
  auto dialled = client::internal::Dial(addresses->front());
  FARLEAF_CHECK(dialled.ok(), dialled.status());
  socket_ = std::move(*dialled);
  Wait(POLLOUT);
}

void TextClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno != EAGAIN || !Wait(POLLOUT)) {
      return;
    }
  }
}

std::string TextClient::ReceiveUntil(std::string_view end) {
  while (!received_.ends_with(end) && Receive()) {
  }
  return std::exchange(received_, {});
}

std::string TextClient::ReceiveAll() {
  while (Receive()) {
  }
  return std::exchange(received_, {});
}

std::string TextClient::Ask(std::string_view request) {
  const std::string last = "last" + std::to_string(++asked_);
  Send(std::string(request) + "mg " + last + " k\r\n");
  const std::string end = "EN k" + last + "\r\n";
  std::string answer = ReceiveUntil(end);
  if (answer.ends_with(end)) answer.resize(answer.size() - end.size());
  return answer;
}

std::string TextClient::AskRedis(std::string_view request) {
  const std::string last = "last" + std::to_string(++asked_);
  Send(std::string(request) + "ECHO " + last + "\r\n");
  const std::string end = "$" + std::to_string(last.size()) + "\r\n" + last + "\r\n";
  std::string answer = ReceiveUntil(end);
  if (answer.ends_with(end)) answer.resize(answer.size() - end.size());
  return answer;
}

void TextClient::HalfClose() { ::shutdown(socket_.get(), SHUT_WR); }

bool TextClient::Wait(short events) {
  pollfd waited{socket_.get(), events, 0};
  return ::poll(&waited, 1, patience_ms_) > 0;
}

bool TextClient::Receive() {
  char buffer[1 << 16];
  if (!Wait(POLLIN)) return false;
  const ssize_t bytes = ::recv(socket_.get(), buffer, sizeof buffer, 0);
  if (bytes <= 0) return false;
  received_.append(buffer, static_cast<size_t>(bytes));
  return true;
}

}  // namespace farleaf::test
