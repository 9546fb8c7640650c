// TcpFabric: the client's side of the tcp fabric. Each transport has one connection to each memory
// server, over which batches are pipelined: what is posted between two Polls leaves in one system
// call a server. Memory servers come and go (Add, Remove) while transports are open.
//
// Thread rule: see Fabric and Transport.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/directory.h"
#include "dsm/known_servers.h"
#include "dsm/tcp/tcp_link.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

class TcpFabric final : public Fabric {
 public:
  /// Shakes hands with every server once. `endpoints`: "tcp:HOST:PORT", ascending id; may be none. `clock`
  /// outlives the fabric. The failure names the server.
  static Result<std::unique_ptr<TcpFabric>> Connect(const std::vector<ServerEndpoint>& endpoints,
                                                    const std::string& cluster,
                                                    const TcpLinkOptions& options,
                                                    const Clock* clock);

  std::string_view name() const override { return "tcp"; }
  std::span<const RegionInfo> regions() const override { return regions_; }
  /// Waits, bounded by connect_timeout_ms, until each server of Connect's is connected or has failed. A
  /// server that is gone does not prevent a transport: batches for it fail.
  Result<std::unique_ptr<Transport>> OpenTransport() override;
  Status Identify(const MemberIdentity& self) override;
  Status CutOff(ServerId server, const MemberIdentity& member) override;
  Status Add(const ServerEndpoint& endpoint) override;
  void Remove(ServerId server) override { known_->Remove(server); }

 private:
  TcpFabric(std::string cluster, const TcpLinkOptions& options, const Clock* clock)
      : cluster_(std::move(cluster)), options_(options), clock_(clock) {}
  /// A Hello of a nonce of its own, in the name of whom Identify named.
  Result<Hello> NewHello() const;

  std::string cluster_;
  TcpLinkOptions options_;
  const Clock* clock_;
  const std::shared_ptr<KnownServers> known_ = std::make_shared<KnownServers>();
  std::vector<RegionInfo> regions_;  // of Connect's
  mutable std::mutex mutex_;         // guards self_
  MemberIdentity self_;
};

}  // namespace farleaf::dsm
