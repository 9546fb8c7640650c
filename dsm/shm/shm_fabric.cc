#include "dsm/shm/shm_fabric.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "dsm/base/bytes.h"
#include "dsm/handshake.h"
#include "dsm/shm/descriptor_passing.h"

namespace farleaf::dsm {

namespace {

constexpr std::string_view kShmPrefix = "shm:";
constexpr int kWaitTurnMsMax = 20;  // bounds how late a deadline is noticed

/// Sends the Hello and receives the Welcome with the region's descriptor, before the deadline.
Result<Welcome> ShakeHands(int socket, const Hello& hello, const Clock& clock, uint64_t deadline_ns,
                           UniqueFd* region_fd) {
  FARLEAF_RETURN_IF_ERROR(SendWithDescriptor(socket, EncodeHello(hello), -1));
  std::string message;
  while (clock.NowNs() < deadline_ns) {
    auto whole = HandshakeBytes(AsBytes(message));
    if (!whole.ok()) return whole.status();
    const size_t wanted = *whole ? **whole : kHandshakeHeaderBytes;
    if (*whole && message.size() == wanted) return ParseWelcome(AsBytes(message));
    std::byte raw[kHandshakeBytesMax];
    auto received = ReceiveWithDescriptor(socket, std::span(raw).first(wanted - message.size()));
    if (!received.ok()) return received.status();
    if (received->would_block) {
      pollfd waited{socket, POLLIN, 0};
      ::poll(&waited, 1, kWaitTurnMsMax);
      continue;
    }
    if (received->count == 0) {
      return Status::Unavailable("the connection was closed in the handshake");
    }
    message.append(reinterpret_cast<const char*>(raw), received->count);
    if (received->descriptor.valid()) *region_fd = std::move(received->descriptor);
  }
  return Status::Unavailable("no answer to the handshake in time");
}

}  // namespace

Result<ShmFabric::Greeted> ShmFabric::Greet(const SocketAddress& address, Hello hello,
                                            uint64_t expected_incarnation) const {
  hello.cluster = cluster_;
  {
    std::lock_guard lock(mutex_);
    hello.member = self_;
  }
  const std::string name = "memory server " + std::to_string(hello.server);
  Greeted greeted;
  // A Unix socket connects at once or not at all.
  auto socket = StartConnect(address);
  if (!socket.ok()) {
    return Status::Unavailable(name +
                               " is not reachable: " + std::string(socket.status().message()));
  }
  greeted.socket = std::move(*socket);
  const uint64_t deadline_ns = clock_->NowNs() + options_.connect_timeout_ms * kNsPerMs;
  auto welcome = ShakeHands(greeted.socket.get(), hello, *clock_, deadline_ns, &greeted.region_fd);
  if (!welcome.ok()) return welcome.status().WithContext(name + " at " + address.text);
  FARLEAF_RETURN_IF_ERROR(CheckWelcome(*welcome, hello, expected_incarnation));
  greeted.region = welcome->region;
  return greeted;
}

Status ShmFabric::Attach(const ServerEndpoint& endpoint) {
  const std::string name = "memory server " + std::to_string(endpoint.server);
  if (!endpoint.endpoint.starts_with(kShmPrefix)) {
    return Status::InvalidArgument(name + ": endpoint '" + endpoint.endpoint +
                                   "' is not of the shm fabric");
  }
  auto address = UnixAddress(std::string_view(endpoint.endpoint).substr(kShmPrefix.size()));
  if (!address.ok()) return address.status().WithContext(name);
  Hello hello;
  hello.server = endpoint.server;
  auto greeted = Greet(*address, std::move(hello), 0);
  if (!greeted.ok()) return greeted.status();
  if (!greeted->region_fd.valid()) return Status::Corruption(name + " handed no region over");
  auto region = MemoryRegion::Attach(greeted->region_fd.Release(), greeted->region.region_bytes);
  if (!region.ok()) return region.status().WithContext(name);
  table_->Add(endpoint.server, region->bytes());
  addresses_.push_back(std::move(*address));
  regions_.push_back(std::move(*region));
  infos_.push_back(greeted->region);
  sockets_.push_back(std::move(greeted->socket));
  return Status::Ok();
}

Result<std::unique_ptr<ShmFabric>> ShmFabric::Connect(const std::vector<ServerEndpoint>& endpoints,
                                                      const std::string& cluster,
                                                      const ShmFabricOptions& options,
                                                      const Clock* clock) {
  FARLEAF_RETURN_IF_ERROR(CheckClusterName(cluster));
  std::unique_ptr<ShmFabric> fabric(new ShmFabric(cluster, options, clock));
  for (const ServerEndpoint& endpoint : endpoints) {
    FARLEAF_RETURN_IF_ERROR(fabric->Attach(endpoint));
  }
  FARLEAF_RETURN_IF_ERROR(fabric->StartWatching());
  return fabric;
}

ShmFabric::~ShmFabric() { StopWatching(); }

// One attachment serves all transports, so it is this that has to bear the name: each memory server is
// greeted anew, now by name, and the anonymous socket is closed. The mapping stays as it is.
Status ShmFabric::Identify(const MemberIdentity& self) {
  {
    std::lock_guard lock(mutex_);
    FARLEAF_CHECK(self_.id == 0 && self.id != 0, self_.id, self.id);
    self_ = self;
  }
  std::vector<UniqueFd> sockets;
  for (size_t i = 0; i < infos_.size(); ++i) {
    Hello hello;
    hello.server = infos_[i].server;
    auto greeted = Greet(addresses_[i], std::move(hello), infos_[i].incarnation);
    if (!greeted.ok()) return greeted.status();
    sockets.push_back(std::move(greeted->socket));
  }
  std::lock_guard lock(mutex_);
  StopWatching();
  sockets_ = std::move(sockets);
  return StartWatching();
}

Status ShmFabric::CutOff(ServerId server, const MemberIdentity& member) {
  for (size_t i = 0; i < infos_.size(); ++i) {
    if (infos_[i].server != server) continue;
    Hello hello;
    hello.server = server;
    hello.kind = HelloKind::kCutOff;
    hello.target = member;
    return Greet(addresses_[i], std::move(hello), infos_[i].incarnation).status();
  }
  return Status::Unavailable("memory server " + std::to_string(server) + " is not in this pool");
}

Status ShmFabric::StartWatching() {
  stop_fd_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_fd_.valid()) return OsError("cannot watch the memory servers");
  watcher_ = std::thread([this] { Watch(); });
  return Status::Ok();
}

void ShmFabric::StopWatching() {
  if (!watcher_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_fd_.get(), &one, sizeof one);
  watcher_.join();
}

void ShmFabric::Watch() {
  std::vector<pollfd> waited{{stop_fd_.get(), POLLIN, 0}};
  for (const UniqueFd& socket : sockets_) waited.push_back({socket.get(), POLLIN | POLLRDHUP, 0});
  while (true) {
    ::poll(waited.data(), waited.size(), -1);
    if (waited[0].revents != 0) return;
    for (size_t i = 1; i < waited.size(); ++i) {
      if (waited[i].revents == 0) continue;
      // A memory server never sends after its Welcome: whatever this is, it is the end.
      table_->MarkLost(infos_[i - 1].server);
      waited[i].fd = -1;
    }
  }
}

}  // namespace farleaf::dsm
