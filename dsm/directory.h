// Directory: how the processes of a cluster find its memory servers. It carries endpoints only; all
// else is told in the handshake with the server itself.
//
// An endpoint is text, FABRIC:ADDRESS:
//   shm:/run/farleaf/mycluster-0.sock      a Unix socket, on which the region is handed over
//   tcp:10.0.0.7:7100   tcp:[::1]:7100     a listening socket of the TCP fabric
//   verbs:10.0.0.7:7100                    an RDMA device's address
//
// A bootstrap URL names a directory (dsm/bootstrap/open_directory.h):
//   memcached://HOST:PORT/CLUSTER          live: servers publish themselves with an expiry
//   file:PATH                              static: `cluster NAME`, then one `ID ENDPOINT` a line
// Servers of one process find each other through an InProcessDirectory, which has no URL.
// Thread rule: thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dsm/address.h"
#include "dsm/base/result.h"

namespace farleaf::dsm {

struct ServerEndpoint {
  ServerId server = 0;
  std::string endpoint;       ///< FABRIC:ADDRESS
  uint64_t region_bytes = 0;  ///< 0 where the directory does not say (static file)
  uint64_t incarnation = 0;   ///< 0 where the directory does not say
  bool operator==(const ServerEndpoint&) const = default;
};

class Directory {
 public:
  virtual ~Directory() = default;
  /// The cluster's name, which every handshake repeats.
  virtual const std::string& cluster() const = 0;
  /// The memory servers known now, ascending id.
  virtual Result<std::vector<ServerEndpoint>> List() = 0;
  /// Announces a memory server until the expiry, after which it must be announced again. Fails with
  /// AlreadyExists if another incarnation announces the same id.
  virtual Status Publish(const ServerEndpoint& endpoint) = 0;
  virtual Status Withdraw(const ServerEndpoint& endpoint) = 0;
  /// How often to call Publish; 0 if once is enough.
  virtual uint64_t renew_interval_ms() const = 0;
};

}  // namespace farleaf::dsm
