// ShmFabric: the client's side of the shm fabric. Maps the regions of memory servers of this host,
// which they hand over through their Unix sockets, and watches the sockets: a memory server whose
// socket closes has died, and every later verb on its region fails, although the mapping remains.
//
// Thread rule: see Fabric. One thread of its own watches the sockets.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/directory.h"
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

 private:
  ShmFabric() = default;
  Status Attach(const ServerEndpoint& endpoint, const std::string& cluster,
                const ShmFabricOptions& options, const Clock& clock);
  void Watch();

  std::vector<MemoryRegion> regions_;
  std::vector<RegionInfo> infos_;
  std::vector<UniqueFd> sockets_;  // in the order of infos_
  std::shared_ptr<ShmRegionTable> table_ = std::make_shared<ShmRegionTable>();
  UniqueFd stop_fd_;
  std::thread watcher_;
};

}  // namespace farleaf::dsm
