#include "dsm/tcp/tcp_fabric.h"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "dsm/link_table.h"

namespace farleaf::dsm {

namespace {

constexpr std::string_view kTcpPrefix = "tcp:";

/// Drives the links until each is up or has failed; their own deadlines bound it.
void AwaitLinks(std::span<TcpLink* const> links) {
  for (TcpLink* link : links) link->Connect();
  std::vector<pollfd> waited;
  while (true) {
    waited.clear();
    for (TcpLink* link : links) {
      link->Poll();
      if (link->connecting()) waited.push_back({link->fd(), link->poll_events(), 0});
    }
    if (waited.empty()) return;
    constexpr int kTurnMs = 20;  // bounds how late a deadline is noticed
    ::poll(waited.data(), waited.size(), kTurnMs);
  }
}

class TcpTransport final : public Transport {
 public:
  /// `hello`: of its links, but for server and nonce (HelloTo).
  TcpTransport(std::shared_ptr<const KnownServers> known, Hello hello,
               const TcpLinkOptions& options, const Clock* clock)
      : links_(std::move(known)), hello_(std::move(hello)), options_(options), clock_(clock) {
    Learn();
  }

  void Post(Batch& batch) override {
    if (links_.stale()) [[unlikely]]
      Learn();
    TcpLink* link = links_.Find(batch.server());
    if (link == nullptr) [[unlikely]] {
      batch.CompleteWith(links_.known().WhyUnknown(batch.server()));
      return;
    }
    link->Post(batch);
  }

  size_t Poll() override {
    if (links_.stale()) [[unlikely]]
      Learn();
    return links_.Poll();
  }

  void Wait(int wake_fd, uint64_t timeout_ns) override {
    if (links_.stale()) return;
    uint64_t due_ns = UINT64_MAX;
    bool completed = false;
    waited_.clear();
    waited_.push_back({wake_fd, POLLIN, 0});
    links_.ForEach([&](TcpLink& link) {
      link.Flush();
      completed |= link.has_completions();
      if (const short events = link.poll_events(); events != 0) {
        waited_.push_back({link.fd(), events, 0});
      }
      due_ns = std::min(due_ns, link.due_ns());
    });
    if (completed) return;
    if (due_ns != UINT64_MAX) {
      const uint64_t now_ns = clock_->NowNs();
      timeout_ns = std::min(timeout_ns, due_ns > now_ns ? due_ns - now_ns : 0);
    }
    const timespec timeout{static_cast<time_t>(timeout_ns / kNsPerSecond),
                           static_cast<long>(timeout_ns % kNsPerSecond)};
    ::ppoll(waited_.data(), waited_.size(), &timeout, nullptr);
  }

  uint32_t idle_turns_before_wait() const override { return 4; }

  /// Waits for the links that connect when the transport opens.
  void AwaitFirst() {
    std::vector<TcpLink*> first;
    links_.ForEach([&](TcpLink& link) {
      if (link.server().connects() == KnownServer::Connects::kAtOpening) first.push_back(&link);
    });
    AwaitLinks(first);
  }

 private:
  void Learn() {
    links_.Learn([this](KnownServers::Server server) {
      Hello hello = HelloTo(server->server(), hello_);
      return std::make_unique<TcpLink>(std::move(server), std::move(hello), options_, clock_);
    });
  }

  LinkTable<std::unique_ptr<TcpLink>> links_;
  const Hello hello_;
  const TcpLinkOptions options_;
  const Clock* clock_;
  std::vector<pollfd> waited_;
};

Result<SocketAddress> AddressOf(const ServerEndpoint& endpoint) {
  const std::string name = "memory server " + std::to_string(endpoint.server);
  if (!endpoint.endpoint.starts_with(kTcpPrefix)) {
    return Status::InvalidArgument(name + ": endpoint '" + endpoint.endpoint +
                                   "' is not of the tcp fabric");
  }
  auto address = ResolveTcp(std::string_view(endpoint.endpoint).substr(kTcpPrefix.size()));
  if (!address.ok()) return address.status().WithContext(name);
  return address;
}

}  // namespace

Result<Hello> TcpFabric::NewHello() const {
  Hello hello;
  hello.cluster = cluster_;
  {
    std::lock_guard lock(mutex_);
    hello.member = self_;
  }
  // From the system, not from a seed: two processes with one nonce would destroy each other's
  // connections.
  if (::getrandom(&hello.nonce, sizeof hello.nonce, 0) != sizeof hello.nonce) {
    return OsError("no random numbers");
  }
  return hello;
}

Result<std::unique_ptr<TcpFabric>> TcpFabric::Connect(const std::vector<ServerEndpoint>& endpoints,
                                                      const std::string& cluster,
                                                      const TcpLinkOptions& options,
                                                      const Clock* clock) {
  FARLEAF_RETURN_IF_ERROR(CheckClusterName(cluster));
  std::unique_ptr<TcpFabric> fabric(new TcpFabric(cluster, options, clock));
  std::vector<std::unique_ptr<TcpLink>> links;
  std::vector<TcpLink*> awaited;
  for (ServerEndpoint endpoint : endpoints) {
    auto address = AddressOf(endpoint);
    if (!address.ok()) return address.status();
    endpoint.incarnation = 0;  // whoever answers; a directory may be behind
    FARLEAF_RETURN_IF_ERROR(
        fabric->known_->Add(endpoint, std::move(*address), KnownServer::Connects::kAtOpening));
    auto hello = fabric->NewHello();
    if (!hello.ok()) return hello.status();
    hello->server = endpoint.server;
    links.push_back(std::make_unique<TcpLink>(fabric->known_->Find(endpoint.server),
                                              std::move(*hello), options, clock));
    awaited.push_back(links.back().get());
  }
  AwaitLinks(awaited);
  for (const auto& link : links) {
    if (!link->up()) return link->failure();
    fabric->regions_.push_back(link->region());
  }
  return fabric;
}

Result<std::unique_ptr<Transport>> TcpFabric::OpenTransport() {
  auto hello = NewHello();
  if (!hello.ok()) return hello.status();
  auto transport = std::make_unique<TcpTransport>(known_, std::move(*hello), options_, clock_);
  transport->AwaitFirst();
  return std::unique_ptr<Transport>(std::move(transport));
}

Status TcpFabric::Identify(const MemberIdentity& self) {
  std::lock_guard lock(mutex_);
  FARLEAF_CHECK(self_.id == 0 && self.id != 0, self_.id, self.id);
  self_ = self;  // each transport's handshake tells the memory servers
  return Status::Ok();
}

Status TcpFabric::CutOff(ServerId server, const MemberIdentity& member) {
  auto known = known_->Find(server);
  if (!known) return known_->WhyUnknown(server);
  auto hello = NewHello();
  if (!hello.ok()) return hello.status();
  hello->server = server;
  hello->kind = HelloKind::kCutOff;
  hello->target = member;
  TcpLink link(std::move(known), std::move(*hello), options_, clock_);
  TcpLink* const awaited = &link;
  AwaitLinks({&awaited, 1});
  return link.up() ? Status::Ok() : link.failure();
}

Status TcpFabric::Add(const ServerEndpoint& endpoint) {
  auto address = AddressOf(endpoint);
  if (!address.ok()) return address.status();
  return known_->Add(endpoint, std::move(*address), KnownServer::Connects::kAtFirstPost);
}

}  // namespace farleaf::dsm
