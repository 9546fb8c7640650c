#include "server/frontend/native_server.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <iterator>
#include <utility>

#include "client/endpoint.h"
#include "client/internal/socket.h"
#include "server/frontend/server_thread.h"

namespace farleaf::server {

using client::Endpoint;
using client::internal::ErrnoText;
using client::internal::Fd;
using client::internal::SocketAddress;

namespace {

constexpr int kBacklog = 512;

/// Whether somebody accepts connections there.
bool IsAlive(const SocketAddress& address) {
  const auto dialled = client::internal::Dial(address);
  return dialled.ok();  // a Unix socket connects at once or is refused
}

Result<Fd> Listen(const Endpoint& endpoint, const SocketAddress& address) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::IoError("socket: " + ErrnoText(errno));
  if (endpoint.is_unix()) {
    // The socket of a server that died is in the way of its successor.
    struct stat there;
    if (::lstat(endpoint.unix_path.c_str(), &there) == 0) {
      if (!S_ISSOCK(there.st_mode)) {
        return Status::AlreadyExists(endpoint.unix_path +
                                     " exists and is no socket; remove it or choose another path");
      }
      if (IsAlive(address)) {
        return Status::AlreadyExists("another server listens on " + endpoint.ToString());
      }
      ::unlink(endpoint.unix_path.c_str());
    }
  } else {
    const int one = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  }
  const auto* const raw = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::bind(fd.get(), raw, address.bytes) != 0 || ::listen(fd.get(), kBacklog) != 0) {
    const std::string text = "cannot listen on " + endpoint.ToString() + ": " + ErrnoText(errno);
    return errno == EADDRINUSE ? Status::AlreadyExists(text) : Status::InvalidArgument(text);
  }
  return fd;
}

Status AddListener(Endpoint endpoint, std::vector<Fd>* listeners, std::vector<std::string>* urls) {
  const auto addresses = client::internal::Resolve(endpoint);
  if (!addresses.ok()) return Status::InvalidArgument(std::string(addresses.status().message()));
  auto fd = Listen(endpoint, addresses->front());
  if (!fd.ok()) return fd.status();
  if (!endpoint.is_unix() && endpoint.port == 0) {
    sockaddr_storage bound{};
    socklen_t bytes = sizeof bound;
    FARLEAF_CHECK(::getsockname(fd->get(), reinterpret_cast<sockaddr*>(&bound), &bytes) == 0,
                  errno);
    endpoint.port =
        ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                          : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  }
  urls->push_back(endpoint.ToString());
  listeners->push_back(std::move(*fd));
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<NativeServer>> NativeServer::Start(TreeHost* host, const Clock* clock,
                                                          NativeServerOptions options) {
  std::unique_ptr<NativeServer> server(new NativeServer(host, std::move(options)));
  std::vector<Fd> listeners;
  for (const std::string& address : server->options_.listen) {
    auto endpoint = client::ParseHostPort(address);
    if (!endpoint.ok()) return endpoint.status();
    FARLEAF_RETURN_IF_ERROR(AddListener(std::move(*endpoint), &listeners, &server->urls_));
  }
  if (!server->options_.unix_path.empty()) {
    auto endpoint = client::ParseUnixPath(server->options_.unix_path);
    if (!endpoint.ok()) return endpoint.status();
    FARLEAF_RETURN_IF_ERROR(AddListener(std::move(*endpoint), &listeners, &server->urls_));
  }
  if (listeners.empty()) {
    return Status::InvalidArgument("a server needs a listen address or a Unix socket path");
  }
  std::vector<ServerThread*> threads;
  for (uint32_t i = 0; i < std::max(server->options_.threads, 1u); ++i) {
    auto thread = ServerThread::Create({host, clock, &server->options_,
                                        [at = server.get()] { return at->StatsText(); },
                                        [at = server.get()] { return at->Connections().open; }});
    if (!thread.ok()) return thread.status();
    threads.push_back(thread->get());
    server->threads_.push_back(std::move(*thread));
  }
  threads.front()->AcceptFor(std::move(listeners), threads);
  for (ServerThread* thread : threads) thread->Start();
  return server;
}

NativeServer::NativeServer(TreeHost* host, NativeServerOptions options)
    : host_(host), options_(std::move(options)) {}

NativeServer::~NativeServer() { Stop(); }

void NativeServer::Stop() {
  if (!threads_.empty() && !options_.unix_path.empty()) ::unlink(options_.unix_path.c_str());
  // The accepting thread first: it may still hand connections to the others.
  for (const auto& thread : threads_) {
    thread->RequestStop();
  }
  for (const auto& thread : threads_) thread->Join();
}

OperationStats NativeServer::Stats() const {
  OperationStats sum;
  for (const auto& thread : threads_) sum.Merge(thread->Stats());
  return sum;
}

NativeServer::ConnectionCounts NativeServer::Connections() const {
  ConnectionCounts sum;
  for (const auto& thread : threads_) {
    sum.accepted += thread->counts().accepted.load();
    sum.open += thread->counts().open.load();
    sum.refused += thread->counts().refused.load();
  }
  return sum;
}

std::string NativeServer::StatsText() const {
  const ConnectionCounts connections = Connections();
  std::string text =
      fmt::format("connections.accepted {}\nconnections.open {}\nconnections.refused {}\n",
                  connections.accepted, connections.open, connections.refused);
  Stats().AppendTo(&text);
  host_->AppendStats(&text);
  return text;
}

}  // namespace farleaf::server
