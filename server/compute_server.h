// ComputeServer: a process's part as a compute server: it joins a pool of memory servers, opens or
// creates trees, and serves them to clients over the native protocol.
//
// When memory servers have cut it off, nothing that it has in memory is true any more: caches, locks, pages
// in hand. So it ends its clients' connections, drops all of it and joins anew (Rejoin).
//
// Thread rule: one thread; what it starts has its own threads.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/result.h"
#include "dsm/pool.h"
#include "index/blink/options.h"
#include "server/config.h"
#include "server/frontend/native_server.h"
#include "server/frontend/tls_server.h"
#include "server/logging.h"
#include "server/member_recovery.h"
#include "server/metrics/http_listener.h"
#include "server/pool_tree_host.h"
#include "server/pool_watch.h"

namespace farleaf::server {

struct ComputeServerOptions {
  std::string bootstrap;  ///< memcached://HOST:PORT/CLUSTER or file:PATH
  uint32_t memory_servers_min = 1;
  uint64_t join_wait_ms = 30'000;
  bool insecure = false;      ///< listen beyond loopback where nothing protects clients
  std::string password_file;  ///< of the passwords that clients have to know; empty: none
  TlsServerOptions tls;       ///< without a certificate: no TLS
  std::string unix_socket_mode = "0600";  ///< octal
  std::vector<std::string> trees;         ///< NAME:LAYOUT, created unless they exist
  protocol::LeafLayout leaf_layout = protocol::LeafLayout::kDefault;  ///< of leaves in these
  uint32_t leaf_bytes = 0;  ///< of a leaf's page in these; 0: the default of the layout
  uint32_t node_bytes = 0;  ///< of an internal node's page
  index::TreeOptions tree;
  NativeServerOptions native;
  std::string metrics_listen;  ///< HOST:PORT for metrics and health; empty: none
  std::string ready_file;
  uint64_t recover_after_ms = 10'000;  ///< dead compute servers' things are returned; 0: never
  uint64_t stats_interval_s = 0;       ///< 0: the counters are logged only at the end
  LogOptions log;
};

/// Declares every option above.
void AddComputeServerOptions(ConfigSchema& schema, ComputeServerOptions* options);

class ComputeServer {
 public:
  /// Joins the pool, waiting up to join_wait_ms for it, prepares the trees and serves. `seed` draws
  /// the instance number and the workers' jitter; `clock` outlives the server.
  static Result<std::unique_ptr<ComputeServer>> Start(const ComputeServerOptions& options,
                                                      uint64_t seed, const Clock* clock);
  /// Stops, if Stop was not called, and logs what Stop would have returned.
  ~ComputeServer();

  /// Ends the clients' requests, then leaves the pool. A failure says what was not left in order.
  Status Stop();

  /// Fenced, once a memory server has cut this compute server off.
  Status fenced() const { return pool_ ? pool_->fenced() : Status::Ok(); }
  /// Drops everything and joins the pool with a new identity; serves where it did before. After a
  /// failure nothing is served, and it may be tried again.
  Status Rejoin(uint64_t seed);

  /// Whether it is in the pool and serves; it is not after a Rejoin that failed.
  bool serves() const { return native_ != nullptr; }
  /// REQUIRES: it serves.
  const NativeServer& native() const { return *native_; }
  dsm::Pool& pool() { return *pool_; }
  /// Reads certificate and key again, for connections to come; what it has stays after a failure.
  Status ReloadTls() { return tls_ ? tls_->Reload() : Status::Ok(); }
  /// Where metrics and health are; empty if nowhere.
  std::string metrics_url() const { return watchers_ ? watchers_->url() : std::string(); }
  /// Ok if clients are served as they should be; otherwise why not. From any thread.
  Status Health() const;
  /// As Prometheus scrapes it. From any thread.
  std::string MetricsPage() const;

 private:
  ComputeServer(const ComputeServerOptions& options, std::vector<NewTree> trees, const Clock* clock)
      : options_(options), trees_(std::move(trees)), clock_(clock), start_ns_(clock->NowNs()) {}
  /// What those who watch the server are told of it.
  enum class Phase : uint8_t { kJoining, kServing, kDraining, kOutside };

  Status StartWatching();
  Status Join(uint64_t seed);
  void StopServing();
  void Enter(Phase phase);

  ComputeServerOptions options_;  // with the addresses that were chosen
  const std::vector<NewTree> trees_;
  const Clock* const clock_;
  const uint64_t start_ns_;
  std::unique_ptr<TlsServer> tls_;  // null: clients speak without TLS
  uint64_t joins_ = 0;
  std::unique_ptr<dsm::Pool> pool_;
  std::unique_ptr<PoolTreeHost> host_;
  std::unique_ptr<MemberRecovery> recovery_;
  std::unique_ptr<NativeServer> native_;
  std::unique_ptr<PoolWatch> watch_;  // null: nobody watches
  // While it is held, and the phase is kServing or kDraining, the five above stay.
  mutable std::mutex phase_mutex_;  // guards phase_
  Phase phase_ = Phase::kJoining;
  std::unique_ptr<HttpListener> watchers_;  // destroyed first
};

/// "accounts:bytes", "numbers:fixed8".
Result<NewTree> ParseTreeOption(const std::string& text);

}  // namespace farleaf::server
