#include "test/support/link_proxy.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "dsm/base/check.h"

namespace farleaf {

namespace {
constexpr int kTurnMs = 10;
}  // namespace

LinkProxy::LinkProxy(std::string target) : target_(std::move(target)) {
  auto any = dsm::ResolveTcp("127.0.0.1:0");
  FARLEAF_CHECK(any.ok(), any.status());
  auto listening = dsm::Listen(*any);
  FARLEAF_CHECK(listening.ok(), listening.status());
  listening_ = std::move(*listening);
  auto address = dsm::LocalTcpAddress(listening_.get());
  FARLEAF_CHECK(address.ok(), address.status());
  address_ = *address;
  thread_ = std::thread([this] { Run(); });
}

LinkProxy::~LinkProxy() {
  stopping_ = true;
  thread_.join();
}

void LinkProxy::Accept() {
  dsm::UniqueFd client(::accept4(listening_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!client.valid() || cut_) return;
  auto target = dsm::ResolveTcp(target_);
  FARLEAF_CHECK(target.ok(), target.status());
  auto server = dsm::StartConnect(*target);
  if (!server.ok()) return;
  pollfd waited{server->get(), POLLOUT, 0};
  if (::poll(&waited, 1, 1000) <= 0 || dsm::TakeConnectError(server->get()) != 0) return;
  links_.push_back({std::move(client), std::move(*server)});
}

bool LinkProxy::Pass(int from, int to) {
  char bytes[64 << 10];
  const ssize_t count = ::read(from, bytes, sizeof bytes);
  if (count <= 0) return count < 0 && errno == EAGAIN;
  for (ssize_t sent = 0; sent < count;) {
    const ssize_t now = ::send(to, bytes + sent, static_cast<size_t>(count - sent), MSG_NOSIGNAL);
    if (now < 0 && errno != EAGAIN) return false;
    if (now > 0) sent += now;
    if (now < 0) {
      pollfd waited{to, POLLOUT, 0};
      ::poll(&waited, 1, 1000);
    }
  }
  return true;
}

void LinkProxy::Run() {
  while (!stopping_) {
    if (cut_) links_.clear();
    std::vector<pollfd> waited{{listening_.get(), POLLIN, 0}};
    for (const Link& link : links_) {
      waited.push_back({link.client.get(), POLLIN, 0});
      waited.push_back({link.server.get(), POLLIN, 0});
    }
    ::poll(waited.data(), waited.size(), kTurnMs);
    if (cut_) continue;
    size_t i = 1;
    for (auto link = links_.begin(); link != links_.end(); i += 2) {
      const bool goes_on =
          (waited[i].revents == 0 || Pass(link->client.get(), link->server.get())) &&
          (waited[i + 1].revents == 0 || Pass(link->server.get(), link->client.get()));
      link = goes_on ? std::next(link) : links_.erase(link);
    }
    if (waited[0].revents != 0) Accept();
  }
}

}  // namespace farleaf
