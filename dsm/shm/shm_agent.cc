#include "dsm/shm/shm_agent.h"

#include <poll.h>
#include <unistd.h>

#include <filesystem>

#include "dsm/shm/descriptor_passing.h"

namespace farleaf::dsm {

ShmAgent::ShmAgent(const Options& options, const ServerIdentity& identity, int region_fd)
    : options_(options),
      identity_(identity),
      endpoint_("shm:" + options.socket_path),
      region_fd_(region_fd) {}

Result<std::unique_ptr<ShmAgent>> ShmAgent::Start(const Options& options,
                                                  const ServerIdentity& identity,
                                                  const MemoryRegion& region, const Clock* clock) {
  Options absolute = options;
  std::error_code error;
  absolute.socket_path = std::filesystem::absolute(options.socket_path, error).string();
  auto address = UnixAddress(error ? options.socket_path : absolute.socket_path);
  if (!address.ok()) return address.status();
  auto listening = Listen(*address);
  if (!listening.ok()) return listening.status();
  std::unique_ptr<ShmAgent> agent(new ShmAgent(absolute, identity, region.fd()));
  HandshakeListener::Options listener_options;
  listener_options.identity = identity;
  agent->listener_ =
      std::make_unique<HandshakeListener>(std::move(*listening), listener_options, clock,
                                          [raw = agent.get()](UniqueFd fd, const Hello& hello) {
                                            raw->HandOver(std::move(fd), hello);
                                          });
  return agent;
}

ShmAgent::~ShmAgent() {
  ::unlink(options_.socket_path.c_str());
  listener_.reset();
}

void ShmAgent::HandOver(UniqueFd fd, const Hello&) {
  Welcome welcome;
  welcome.region = identity_.region;
  std::lock_guard lock(mutex_);
  ForgetClosed();
  const bool has_room = clients_.size() < options_.connections_max;
  if (!has_room) {
    welcome.refusal = Status::ResourceExhausted(
        "memory server " + std::to_string(identity_.region.server) + " has all of its " +
        std::to_string(options_.connections_max) + " connections in use");
  }
  const Status sent =
      SendWithDescriptor(fd.get(), EncodeWelcome(welcome), has_room ? region_fd_ : -1);
  // A client that has gone meanwhile is simply not attached.
  if (sent.ok() && has_room) clients_.push_back(std::move(fd));
}

void ShmAgent::ForgetClosed() const {
  std::erase_if(clients_, [](const UniqueFd& client) {
    pollfd state{client.get(), POLLIN, 0};
    return ::poll(&state, 1, 0) > 0;  // a client never sends after its Hello
  });
}

size_t ShmAgent::connections() const {
  std::lock_guard lock(mutex_);
  ForgetClosed();
  return clients_.size();
}

}  // namespace farleaf::dsm
