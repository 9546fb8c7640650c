// Attaches a process to the memory servers that a directory lists, on whichever fabric they offer.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "dsm/base/clock.h"
#include "dsm/directory.h"
#include "dsm/shm/shm_fabric.h"
#include "dsm/tcp/tcp_link.h"
#include "dsm/transport.h"
#include "dsm/verbs/options.h"

namespace farleaf::dsm {

struct OpenFabricOptions {
  uint32_t servers_min = 1;   ///< wait until at least so many memory servers are there
  uint64_t wait_ms = 10'000;  ///< for the directory and the servers
  uint64_t poll_interval_ms = 50;
  TcpLinkOptions tcp;
  ShmFabricOptions shm;
  VerbsOptions verbs;
};

/// Waits, bounded, until the directory answers, lists at least servers_min memory servers with the
/// ids 0..n-1, and all of them take the handshake. InvalidArgument (at once): the servers use
/// different fabrics, belong to another cluster or speak another version. Unavailable: what was
/// missing when the time was over. `clock` outlives the fabric.
Result<std::unique_ptr<Fabric>> OpenFabric(Directory& directory, const OpenFabricOptions& options,
                                           const Clock* clock);

/// The same with the directory that a bootstrap URL names. Behind a '?', the URL may carry options of
/// this machine's side of the fabric, NAME=VALUE, separated by '&':
///   rdma_device=DEVICE[:PORT[:GID INDEX]]   through which to connect; else what routing chooses
///   rdma_queue_pairs=N                      of this process to one memory server; above, shared
///   rdma_ack_timeout_ms=N  rdma_retries=N   until a connection is given up (VerbsOptions)
/// InvalidArgument names what is wrong in it.
Result<std::unique_ptr<Fabric>> OpenFabric(std::string_view bootstrap_url,
                                           const OpenFabricOptions& options, const Clock* clock);

}  // namespace farleaf::dsm
