// VerbsFabric: the client's side of RDMA. Each transport has a lane of queue pairs, one to each memory
// server; above a limit, transports share lanes. Memory servers come and go (Add, Remove) while transports are open.
//
// Thread rule: see Fabric and Transport.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/directory.h"
#include "dsm/transport.h"
#include "dsm/verbs/options.h"
#include "dsm/verbs/verbs_transport.h"

namespace farleaf::dsm {

class VerbsFabric final : public Fabric {
 public:
  /// Connects to every server once. `endpoints`: "verbs:HOST:PORT", ascending id; may be none. `clock` outlives the
  /// fabric. The failure names the server. IoError: this machine has no RDMA device.
  static Result<std::unique_ptr<VerbsFabric>> Connect(const std::vector<ServerEndpoint>& endpoints,
                                                      const std::string& cluster,
                                                      const VerbsOptions& options,
                                                      const Clock* clock);

  std::string_view name() const override { return "verbs"; }
  std::span<const RegionInfo> regions() const override { return regions_; }
  /// Waits, bounded by connect_timeout_ms, until each server of Connect's is connected or has failed. A server
  /// that is gone does not prevent a transport: batches for it fail.
  Result<std::unique_ptr<Transport>> OpenTransport() override;
  Status Identify(const MemberIdentity& self) override;
  Status CutOff(ServerId server, const MemberIdentity& member) override;
  Status Add(const ServerEndpoint& endpoint) override;
  void Remove(ServerId server) override { known_->Remove(server); }

 private:
  VerbsFabric(std::string cluster, const VerbsOptions& options, const Clock* clock);
  /// A Hello of a nonce of its own, in the name of whom Identify named.
  Result<Hello> NewHello() const;
  /// Where a server is that is reached from here.
  Result<SocketAddress> AddressOf(const ServerEndpoint& endpoint) const;
  /// Connected to every server of Connect's as far as possible.
  Result<std::unique_ptr<VerbsLane>> OpenLane();
  /// The shared lane whose turn it is.
  Result<std::shared_ptr<SharedLane>> NextSharedLane();

  const std::string cluster_;
  const VerbsOptions options_;
  const Clock* clock_;
  const VerbsSources sources_;
  const std::shared_ptr<VerbsDevices> devices_ = std::make_shared<VerbsDevices>();
  const std::shared_ptr<KnownServers> known_ = std::make_shared<KnownServers>();
  std::vector<RegionInfo> regions_;  // of Connect's

  mutable std::mutex self_mutex_;  // guards self_
  MemberIdentity self_;
  std::mutex lanes_mutex_;                         // guards what follows
  std::shared_ptr<const bool> lane_owners_;        ///< held by every transport with its own lane
  std::vector<std::weak_ptr<SharedLane>> shared_;  // as many as there may be
  size_t next_shared_ = 0;
};

}  // namespace farleaf::dsm
