// ShmAgent: opens a memory server's region to processes of this host. A client connects to a Unix
// socket, shakes hands, and is given the region's descriptor (SCM_RIGHTS), which it maps; from then
// on the socket only says that both ends live.
//
// Invariant: the socket's file exists exactly as long as the agent.
// Thread rule: see RegionAgent.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dsm/agent.h"
#include "dsm/base/clock.h"
#include "dsm/handshake_listener.h"
#include "dsm/shm/memory_region.h"
#include "dsm/socket.h"

namespace farleaf::dsm {

class ShmAgent final : public RegionAgent {
 public:
  struct Options {
    std::string socket_path;
    uint32_t connections_max = 1024;
  };
  /// `region` and `clock` outlive the agent. A socket file left over from a process that was killed
  /// is replaced; AlreadyExists: a process answers on it.
  static Result<std::unique_ptr<ShmAgent>> Start(const Options& options,
                                                 const ServerIdentity& identity,
                                                 const MemoryRegion& region, const Clock* clock);
  ~ShmAgent() override;

  const std::string& endpoint() const override { return endpoint_; }
  size_t connections() const override;

 private:
  ShmAgent(const Options& options, const ServerIdentity& identity, int region_fd);
  void HandOver(UniqueFd fd, const Hello& hello);
  /// Lets go of the sockets whose clients have gone. REQUIRES: mutex_ held.
  void ForgetClosed() const;

  const Options options_;
  const ServerIdentity identity_;
  const std::string endpoint_;
  const int region_fd_;
  mutable std::mutex mutex_;  // guards clients_
  mutable std::vector<UniqueFd> clients_;
  std::unique_ptr<HandshakeListener> listener_;
};

}  // namespace farleaf::dsm
