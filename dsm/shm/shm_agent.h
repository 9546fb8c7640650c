// ShmAgent: opens a memory server's region to processes of this host. A client connects to a Unix
// socket, shakes hands, and is given the region's descriptor (SCM_RIGHTS), which it maps; from then
// on the socket only says that both ends live.
//
// A mapping cannot be revoked: to cut a compute server off, its process is killed. So the agent takes
// in no compute server whose process it cannot hold and kill.
//
// Invariants:
//   - the socket's file exists exactly as long as the agent;
//   - a client that is not anonymous is in clients_ with its process before it is given the region;
//   - a process closes its socket only after it has unmapped the region (dsm/shm/shm_fabric.h).
// Thread rule: see RegionAgent.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dsm/agent.h"
#include "dsm/base/clock.h"
#include "dsm/fenced_members.h"
#include "dsm/handshake_listener.h"
#include "dsm/shm/memory_region.h"
#include "dsm/shm/peer_process.h"
#include "dsm/socket.h"

namespace farleaf::dsm {

class ShmAgent final : public RegionAgent {
 public:
  struct Options {
    std::string socket_path;
    uint32_t connections_max = 1024;
    uint64_t exit_timeout_ms = 10'000;  ///< for a process to end after it was killed
  };
  /// `region` and `clock` outlive the agent. A socket file left over from a process that was killed
  /// is replaced; AlreadyExists: a process answers on it.
  static Result<std::unique_ptr<ShmAgent>> Start(const Options& options,
                                                 const ServerIdentity& identity,
                                                 const MemoryRegion& region, const Clock* clock);
  ~ShmAgent() override;

  const std::string& endpoint() const override { return endpoint_; }
  size_t connections() const override;
  /// InvalidArgument: the compute server runs in this very process. DeadlineExceeded: its process was
  /// killed and has not ended yet.
  Status CutOff(const MemberIdentity& member) override;
  std::vector<MemberIdentity> TakeEnded() override;

 private:
  struct Client {
    UniqueFd socket;
    MemberIdentity member;
    std::optional<PeerProcess> process;  ///< unless it is anonymous
  };
  /// A process that has taken part as these compute servers. Kept when its sockets are closed: they
  /// close a moment before the process has ended.
  struct Watched {
    PeerProcess process;
    std::vector<MemberIdentity> members;
  };
  ShmAgent(const Options& options, const ServerIdentity& identity, const MemoryRegion& region);
  /// Kills the processes of `member` and waits for their end.
  Status Kill(const MemberIdentity& member);
  void HandOver(UniqueFd fd, const Hello& hello);
  /// Whether to take the client in; its process, unless it is anonymous. REQUIRES: mutex_ held.
  Status Admit(int socket, const Hello& hello, std::optional<PeerProcess>* process);
  /// REQUIRES: mutex_ held.
  void Watch(const MemberIdentity& member, const PeerProcess& process);
  /// Lets go of the sockets whose clients have gone. REQUIRES: mutex_ held.
  void ForgetClosed() const;

  const Options options_;
  const ServerIdentity identity_;
  const std::string endpoint_;
  const int region_fd_;
  FencedMembers fenced_;
  mutable std::mutex mutex_;  // guards clients_, watched_
  mutable std::vector<Client> clients_;
  std::vector<Watched> watched_;
  std::unique_ptr<HandshakeListener> listener_;
};

}  // namespace farleaf::dsm
