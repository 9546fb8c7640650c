// ShmFabric: the client's side of the shm fabric. Maps the regions of memory servers of this host,
// which they hand over through their Unix sockets, and watches the sockets: a memory server whose
// socket closes has died, and every later verb on its region fails, although the mapping remains.
//
// To be cut off is to be killed: no verb of this fabric ever fails with Fenced.
//
// Invariant: the sockets are closed after the regions are unmapped, because a memory server that sees
// its socket closed takes this process for one that cannot write any more.
// Thread rule: see Fabric. One thread of its own watches the sockets.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/directory.h"
#include "dsm/handshake.h"
#include "dsm/shm/memory_region.h"
#include "dsm/shm/shm_transport.h"
#include "dsm/socket.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

struct ShmFabricOptions {
  uint64_t connect_timeout_ms = 1'000;  ///< a server, connecting and the handshake together
};

class ShmFabric final : public Fabric {
 public:
  /// Attaches to every server. `endpoints`: "shm:PATH", ascending id. The failure names the server.
  static Result<std::unique_ptr<ShmFabric>> Connect(const std::vector<ServerEndpoint>& endpoints,
                                                    const std::string& cluster,
                                                    const ShmFabricOptions& options,
                                                    const Clock* clock);
  ~ShmFabric() override;

  std::string_view name() const override { return "shm"; }
  std::span<const RegionInfo> regions() const override { return infos_; }
  Result<std::unique_ptr<Transport>> OpenTransport() override {
    return std::unique_ptr<Transport>(std::make_unique<ShmTransport>(table_));
  }
  /// Unavailable: a memory server is gone. IoError: it could not kill this process, and so does not let
  /// it in.
  Status Identify(const MemberIdentity& self) override;
  Status CutOff(ServerId server, const MemberIdentity& member) override;

 private:
  struct Greeted {
    UniqueFd socket;
    RegionInfo region;
    UniqueFd region_fd;
  };
  ShmFabric(std::string cluster, const ShmFabricOptions& options, const Clock* clock)
      : cluster_(std::move(cluster)), options_(options), clock_(clock) {}
  Status Attach(const ServerEndpoint& endpoint);
  /// Connects and shakes hands. `expected_incarnation` 0: not known yet. Every failure names the
  /// server.
  Result<Greeted> Greet(const SocketAddress& address, Hello hello,
                        uint64_t expected_incarnation) const;
  Status StartWatching();
  void StopWatching();
  void Watch();

  const std::string cluster_;
  const ShmFabricOptions options_;
  const Clock* clock_;
  std::vector<SocketAddress> addresses_;  // in the order of infos_
  std::vector<UniqueFd> sockets_;         // in the order of infos_
  std::vector<MemoryRegion> regions_;
  std::vector<RegionInfo> infos_;
  std::shared_ptr<ShmRegionTable> table_ = std::make_shared<ShmRegionTable>();
  mutable std::mutex mutex_;  // guards self_, and sockets_ and watcher_ after Connect
  MemberIdentity self_;
  UniqueFd stop_fd_;
  std::thread watcher_;
};

}  // namespace farleaf::dsm
