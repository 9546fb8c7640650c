#include "dsm/tcp/tcp_fabric.h"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

namespace farleaf::dsm {

namespace {

constexpr std::string_view kTcpPrefix = "tcp:";

class TcpTransport final : public Transport {
 public:
  explicit TcpTransport(std::vector<std::unique_ptr<TcpLink>> links, std::vector<ServerId> servers,
                        const Clock* clock)
      : links_(std::move(links)), clock_(clock), waited_(links_.size() + 1) {
    for (size_t i = 0; i < servers.size(); ++i) {
      if (by_server_.size() <= servers[i]) by_server_.resize(servers[i] + size_t{1});
      by_server_[servers[i]] = links_[i].get();
    }
  }

  void Post(Batch& batch) override {
    TcpLink* link = batch.server() < by_server_.size() ? by_server_[batch.server()] : nullptr;
    if (link == nullptr) [[unlikely]] {
      batch.CompleteWith(Status::Unavailable("memory server " + std::to_string(batch.server()) +
                                             " is not in this pool"));
      return;
    }
    link->Post(batch);
  }

  size_t Poll() override {
    size_t completed = 0;
    for (const auto& link : links_) completed += link->Poll();
    return completed;
  }

  void Wait(int wake_fd, uint64_t timeout_ns) override {
    uint64_t due_ns = UINT64_MAX;
    size_t count = 0;
    waited_[count++] = {wake_fd, POLLIN, 0};
    for (const auto& link : links_) {
      link->Flush();
      if (link->has_completions()) return;
      if (const short events = link->poll_events(); events != 0) {
        waited_[count++] = {link->fd(), events, 0};
      }
      due_ns = std::min(due_ns, link->due_ns());
    }
    if (due_ns != UINT64_MAX) {
      const uint64_t now_ns = clock_->NowNs();
      timeout_ns = std::min(timeout_ns, due_ns > now_ns ? due_ns - now_ns : 0);
    }
    const timespec timeout{static_cast<time_t>(timeout_ns / kNsPerSecond),
                           static_cast<long>(timeout_ns % kNsPerSecond)};
    ::ppoll(waited_.data(), count, &timeout, nullptr);
  }

  uint32_t idle_turns_before_wait() const override { return 4; }

 private:
  std::vector<std::unique_ptr<TcpLink>> links_;
  std::vector<TcpLink*> by_server_;
  const Clock* clock_;
  std::vector<pollfd> waited_;
};

/// Drives the links until each is up or has failed; their own deadlines bound it.
void AwaitLinks(std::span<const std::unique_ptr<TcpLink>> links) {
  for (const auto& link : links) link->Connect();
  std::vector<pollfd> waited;
  while (true) {
    waited.clear();
    for (const auto& link : links) {
      link->Poll();
      if (link->connecting()) waited.push_back({link->fd(), link->poll_events(), 0});
    }
    if (waited.empty()) return;
    constexpr int kTurnMs = 20;  // bounds how late a deadline is noticed
    ::poll(waited.data(), waited.size(), kTurnMs);
  }
}

}  // namespace

Result<Hello> TcpFabric::NewHello(ServerId server) const {
  Hello hello;
  hello.server = server;
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

Result<std::vector<std::unique_ptr<TcpLink>>> TcpFabric::OpenLinks() const {
  std::vector<std::unique_ptr<TcpLink>> links;
  for (size_t i = 0; i < targets_.size(); ++i) {
    auto hello = NewHello(targets_[i].server);
    if (!hello.ok()) return hello.status();
    const uint64_t expected_incarnation = i < regions_.size() ? regions_[i].incarnation : 0;
    links.push_back(std::make_unique<TcpLink>(targets_[i].address, std::move(*hello),
                                              expected_incarnation, options_, clock_));
  }
  AwaitLinks(links);
  return links;
}

Result<std::unique_ptr<TcpFabric>> TcpFabric::Connect(const std::vector<ServerEndpoint>& endpoints,
                                                      const std::string& cluster,
                                                      const TcpLinkOptions& options,
                                                      const Clock* clock) {
  FARLEAF_RETURN_IF_ERROR(CheckClusterName(cluster));
  std::unique_ptr<TcpFabric> fabric(new TcpFabric(cluster, options, clock));
  for (const ServerEndpoint& endpoint : endpoints) {
    const std::string name = "memory server " + std::to_string(endpoint.server);
    if (!endpoint.endpoint.starts_with(kTcpPrefix)) {
      return Status::InvalidArgument(name + ": endpoint '" + endpoint.endpoint +
                                     "' is not of the tcp fabric");
    }
    auto address = ResolveTcp(std::string_view(endpoint.endpoint).substr(kTcpPrefix.size()));
    if (!address.ok()) return address.status().WithContext(name);
    fabric->targets_.push_back({endpoint.server, std::move(*address)});
  }
  auto links = fabric->OpenLinks();
  if (!links.ok()) return links.status();
  for (const auto& link : *links) {
    if (!link->up()) return link->failure();
    fabric->regions_.push_back(link->region());
  }
  return fabric;
}

Result<std::unique_ptr<Transport>> TcpFabric::OpenTransport() {
  auto links = OpenLinks();
  if (!links.ok()) return links.status();
  std::vector<ServerId> servers;
  for (const Target& target : targets_) servers.push_back(target.server);
  return std::unique_ptr<Transport>(
      std::make_unique<TcpTransport>(std::move(*links), std::move(servers), clock_));
}

Status TcpFabric::Identify(const MemberIdentity& self) {
  std::lock_guard lock(mutex_);
  FARLEAF_CHECK(self_.id == 0 && self.id != 0, self_.id, self.id);
  self_ = self;  // each transport's handshake tells the memory servers
  return Status::Ok();
}

Status TcpFabric::CutOff(ServerId server, const MemberIdentity& member) {
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (targets_[i].server != server) continue;
    auto hello = NewHello(server);
    if (!hello.ok()) return hello.status();
    hello->kind = HelloKind::kCutOff;
    hello->target = member;
    const auto link = std::make_unique<TcpLink>(targets_[i].address, std::move(*hello),
                                                regions_[i].incarnation, options_, clock_);
    AwaitLinks({&link, 1});
    return link->up() ? Status::Ok() : link->failure();
  }
  return Status::Unavailable("memory server " + std::to_string(server) + " is not in this pool");
}

}  // namespace farleaf::dsm
