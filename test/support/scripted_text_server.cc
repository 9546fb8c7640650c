#include "test/support/scripted_text_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "dsm/base/check.h"
#include "dsm/socket.h"

namespace farleaf::test {

using client::internal::Fd;

namespace {

/// Until `fd` has something; false: the server is to stop.
bool Await(const Fd& fd, const Fd& stop) {
  pollfd waited[] = {{fd.get(), POLLIN, 0}, {stop.get(), POLLIN, 0}};
  while (::poll(waited, 2, -1) < 0 && errno == EINTR) {
  }
  return waited[1].revents == 0;
}

}  // namespace

ScriptedTextServer::ScriptedTextServer(Script script, int connections_max)
    : script_(std::move(script)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  const auto any = dsm::ResolveTcp("127.0.0.1:0");
  FARLEAF_CHECK(any.ok(), any.status());
  auto listening = dsm::Listen(*any);
  FARLEAF_CHECK(listening.ok(), listening.status());
  const auto address = dsm::LocalTcpAddress(listening->get());
  FARLEAF_CHECK(address.ok(), address.status());
  address_ = *address;
  listener_ = Fd(::fcntl(listening->get(), F_DUPFD_CLOEXEC, 0));
  thread_ = std::jthread([this, connections_max] { Serve(connections_max); });
}

ScriptedTextServer::~ScriptedTextServer() { ::eventfd_write(stop_.get(), 1); }

void ScriptedTextServer::Serve(int connections_max) {
  for (int accepted = 0; connections_max == 0 || accepted < connections_max;) {
    if (!Await(listener_, stop_)) return;
    const Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.valid()) continue;
    ++accepted;
    const int one = 1;
    ::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    // Before the last is served, so that nobody connects in vain.
    if (accepted == connections_max) listener_.Close();
    Talk(connection);
  }
}

void ScriptedTextServer::Talk(const Fd& connection) {
  std::string received;
  char buffer[1 << 16];
  while (Await(connection, stop_)) {
    const ssize_t bytes = ::recv(connection.get(), buffer, sizeof buffer, 0);
    if (bytes <= 0) return;
    received.append(buffer, static_cast<size_t>(bytes));
    const Reply reply = script_(&received);
    const size_t piece = reply.in_pieces ? 1 : std::max<size_t>(reply.bytes.size(), 1);
    for (size_t begin = 0; begin < reply.bytes.size(); begin += piece) {
      if (::send(connection.get(), reply.bytes.data() + begin, piece, MSG_NOSIGNAL) < 0) return;
    }
    if (reply.hang_up) return;
  }
}

}  // namespace farleaf::test
