#include "dsm/shm/shm_agent.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "dsm/shm/descriptor_passing.h"

namespace farleaf::dsm {

ShmAgent::ShmAgent(const Options& options, const ServerIdentity& identity,
                   const MemoryRegion& region)
    : options_(options),
      identity_(identity),
      endpoint_("shm:" + options.socket_path),
      region_fd_(region.fd()),
      fenced_(identity.region.server, region.bytes()) {}

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
  std::unique_ptr<ShmAgent> agent(new ShmAgent(absolute, identity, region));
  HandshakeListener::Options listener_options;
  listener_options.identity = identity;
  agent->listener_ = std::make_unique<HandshakeListener>(
      std::move(*listening), listener_options, clock,
      [raw = agent.get()](UniqueFd fd, const Hello& hello) { raw->HandOver(std::move(fd), hello); },
      [raw = agent.get()](const Hello& hello) -> Status {
        FARLEAF_RETURN_IF_ERROR(raw->fenced_.Check(hello.member));
        return raw->CutOff(hello.target);
      });
  return agent;
}

ShmAgent::~ShmAgent() {
  ::unlink(options_.socket_path.c_str());
  listener_.reset();
}

Status ShmAgent::Admit(int socket, const Hello& hello, std::optional<PeerProcess>* process) {
  FARLEAF_RETURN_IF_ERROR(fenced_.Admit(hello.member));
  const std::string name = "memory server " + std::to_string(identity_.region.server);
  if (clients_.size() >= options_.connections_max) {
    return Status::ResourceExhausted(name + " has all of its " +
                                     std::to_string(options_.connections_max) +
                                     " connections in use");
  }
  if (hello.member.id == 0) return Status::Ok();
  auto peer = PeerProcess::Of(socket);
  if (!peer.ok()) {
    return peer.status().WithContext(name + " takes in no process that it could not cut off");
  }
  process->emplace(std::move(*peer));
  return Status::Ok();
}

void ShmAgent::HandOver(UniqueFd fd, const Hello& hello) {
  std::lock_guard lock(mutex_);
  ForgetClosed();
  Welcome welcome;
  welcome.region = identity_.region;
  std::optional<PeerProcess> process;
  welcome.refusal = Admit(fd.get(), hello, &process);
  const std::string message = EncodeWelcome(welcome);
  if (!welcome.refusal.ok()) {
    // A client that has gone meanwhile need not know.
    (void)SendWithDescriptor(fd.get(), message, -1);
    return;
  }
  clients_.push_back({std::move(fd), hello.member, std::move(process)});
  if (!SendWithDescriptor(clients_.back().socket.get(), message, region_fd_).ok()) {
    clients_.pop_back();  // it has gone meanwhile
  } else if (const Client& client = clients_.back(); client.process) {
    Watch(client.member, *client.process);
  }
}

void ShmAgent::Watch(const MemberIdentity& member, const PeerProcess& process) {
  for (Watched& watched : watched_) {
    // An id of processes is used again only after the end of the one that had it.
    if (watched.process.pid() != process.pid() || watched.process.WaitForExit(0)) continue;
    if (std::find(watched.members.begin(), watched.members.end(), member) ==
        watched.members.end()) {
      watched.members.push_back(member);
    }
    return;
  }
  watched_.push_back({process.Duplicate(), {member}});
}

std::vector<MemberIdentity> ShmAgent::TakeEnded() {
  std::lock_guard lock(mutex_);
  std::vector<MemberIdentity> ended;
  std::erase_if(watched_, [&](const Watched& watched) {
    if (!watched.process.WaitForExit(0)) return false;
    ended.insert(ended.end(), watched.members.begin(), watched.members.end());
    return true;
  });
  return ended;
}

Status ShmAgent::CutOff(const MemberIdentity& member) {
  return fenced_.CutOff(member, [&] { return Kill(member); });
}

Status ShmAgent::Kill(const MemberIdentity& member) {
  std::vector<PeerProcess> processes;
  {
    std::lock_guard lock(mutex_);
    ForgetClosed();
    for (const Client& client : clients_) {
      if (!client.process || !IsCutOffBy(client.member, member)) continue;
      processes.push_back(client.process->Duplicate());
    }
  }
  const std::string name = "memory server " + std::to_string(identity_.region.server);
  for (const PeerProcess& process : processes) {
    if (process.is_this_process()) {
      return Status::InvalidArgument(member.ToString() + " runs in the process of " + name +
                                     ", which would have to be killed to cut it off: run compute " +
                                     "servers in processes of their own");
    }
  }
  // All are killed before the first is waited for.
  for (const PeerProcess& process : processes) {
    Status killed = process.Kill();
    if (!killed.ok()) return killed.WithContext(name + " cannot cut off " + member.ToString());
  }
  for (const PeerProcess& process : processes) {
    if (process.WaitForExit(options_.exit_timeout_ms)) continue;
    return Status::DeadlineExceeded(name + " has killed process " + std::to_string(process.pid()) +
                                    " of " + member.ToString() + ", which has not ended after " +
                                    std::to_string(options_.exit_timeout_ms) + " ms; ask again");
  }
  return Status::Ok();
}

void ShmAgent::ForgetClosed() const {
  std::erase_if(clients_, [](const Client& client) {
    pollfd state{client.socket.get(), POLLIN, 0};
    return ::poll(&state, 1, 0) > 0;  // a client never sends after its Hello
  });
}

size_t ShmAgent::connections() const {
  std::lock_guard lock(mutex_);
  ForgetClosed();
  return clients_.size();
}

}  // namespace farleaf::dsm
