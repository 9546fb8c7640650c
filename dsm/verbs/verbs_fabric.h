// VerbsFabric: the client's side of RDMA. Each transport has a lane of queue pairs, one to each memory
// server; above a limit, transports share lanes.
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
  /// Connects to every server once. `endpoints`: "verbs:HOST:PORT", ascending id. `clock` outlives the
  /// fabric. The failure names the server. IoError: this machine has no RDMA device.
  static Result<std::unique_ptr<VerbsFabric>> Connect(const std::vector<ServerEndpoint>& endpoints,
                                                      const std::string& cluster,
                                                      const VerbsOptions& options,
                                                      const Clock* clock);

  std::string_view name() const override { return "verbs"; }
  std::span<const RegionInfo> regions() const override { return regions_; }
  /// Waits, bounded by connect_timeout_ms, until each server is connected or has failed. A server
  /// that is gone does not prevent a transport: batches for it fail.
  Result<std::unique_ptr<Transport>> OpenTransport() override;
  Status Identify(const MemberIdentity& self) override;
  Status CutOff(ServerId server, const MemberIdentity& member) override;

 private:
  VerbsFabric(std::string cluster, const VerbsOptions& options, const Clock* clock);
  /// A Hello of a nonce of its own, in the name of whom Identify named.
  Result<Hello> NewHello(ServerId server) const;
  /// Connected to every server as far as possible.
  Result<std::unique_ptr<VerbsLane>> OpenLane();
  /// The shared lane whose turn it is.
  Result<std::shared_ptr<SharedLane>> NextSharedLane();

  const std::string cluster_;
  const VerbsOptions options_;
  const Clock* clock_;
  const std::shared_ptr<VerbsDevices> devices_ = std::make_shared<VerbsDevices>();
  struct Server {
    ServerId id;
    VerbsLink::Target target;
  };
  std::vector<Server> servers_;      // ascending id
  std::vector<RegionInfo> regions_;  // in the same order

  mutable std::mutex self_mutex_;  // guards self_
  MemberIdentity self_;
  std::mutex lanes_mutex_;                         // guards what follows
  std::shared_ptr<const bool> lane_owners_;        ///< held by every transport with its own lane
  std::vector<std::weak_ptr<SharedLane>> shared_;  // as many as there may be
  size_t next_shared_ = 0;
};

}  // namespace farleaf::dsm
