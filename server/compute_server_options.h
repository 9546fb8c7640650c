// What a compute server can be told: its engine, where and how it serves clients, and what it tells of itself.
//
// Thread rule: a value type.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "server/cluster/cluster_engine.h"
#include "server/config.h"
#include "server/engine.h"
#include "server/frontend/native_server.h"
#include "server/frontend/tls_server.h"
#include "server/logging.h"
#include "server/lsm/lsm_engine.h"
#include "server/pool_engine.h"

namespace farleaf::server {

struct ComputeServerOptions {
  EngineKind engine = EngineKind::kBlink;
  PoolEngineOptions pool;  ///< of kBlink
  LsmEngineOptions lsm;    ///< of kLsm
  ClusterOptions cluster;  ///< of kLsm; without a membership there is none
  std::function<bool()> unwanted = [] { return false; };  ///< whether to give up joining a cluster
  bool insecure = false;          ///< listen beyond loopback where nothing protects clients
  bool metrics_insecure = false;  ///< show metrics beyond loopback
  std::string password_file;      ///< of the passwords that clients have to know; empty: none
  TlsServerOptions tls;           ///< without a certificate: no TLS
  std::string unix_socket_mode = "0600";  ///< octal
  std::vector<std::string> trees;         ///< NAME:LAYOUT, created unless they exist
  protocol::LeafLayout leaf_layout = protocol::LeafLayout::kDefault;  ///< of leaves in these
  uint32_t leaf_bytes = 0;  ///< of a leaf's page in these; 0: the default of the layout
  uint32_t node_bytes = 0;  ///< of an internal node's page
  NativeServerOptions native;
  std::string metrics_listen;  ///< HOST:PORT for metrics and health; empty: none
  std::string ready_file;
  uint64_t stats_interval_s = 0;  ///< 0: the counters are logged only at the end
  LogOptions log;
};

/// Declares every option above.
void AddComputeServerOptions(ConfigSchema& schema, ComputeServerOptions* options);

/// Behind Parse: InvalidArgument if what was given is not for the engine, or the engine lacks something. Lowers limits to what the
/// engine takes, unless they were given.
Status CheckEngineOptions(const ConfigSchema& schema, ComputeServerOptions* options);

}  // namespace farleaf::server
