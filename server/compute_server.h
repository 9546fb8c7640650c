// ComputeServer: a process's part as a compute server: it opens an engine, opens or creates trees in it, and serves them to
// clients: a pool of memory servers that it joins, or a store on this machine's disk.
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
#include "server/compute_server_options.h"
#include "server/engine.h"
#include "server/frontend/native_server.h"
#include "server/frontend/tls_server.h"
#include "server/metrics/http_listener.h"

namespace farleaf::server {

class ComputeServer {
 public:
  /// Opens the engine, prepares the trees and serves. `seed` draws the instance number and the workers' jitter; `clock`
  /// outlives the server. REQUIRES: CheckEngineOptions found no fault.
  static Result<std::unique_ptr<ComputeServer>> Start(const ComputeServerOptions& options,
                                                      uint64_t seed, const Clock* clock);
  /// Stops, if Stop was not called.
  ~ComputeServer();

  /// Ends the clients' requests, then closes the engine. A failure says what was not left in order.
  Status Stop(const Engine::Hurried& hurried);

  /// Fenced, once a memory server has cut this compute server off.
  Status fenced() const { return engine_ ? engine_->fenced() : Status::Ok(); }
  /// Drops everything and joins the pool with a new identity; serves where it did before. After a
  /// failure nothing is served, and it may be tried again.
  Status Rejoin(uint64_t seed);

  /// Whether it has its engine and serves; it is not after a Rejoin that failed.
  bool serves() const { return native_ != nullptr; }
  /// REQUIRES: it serves.
  const NativeServer& native() const { return *native_; }
  const Engine& engine() const { return *engine_; }
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
  Status OpenEngine(uint64_t seed);
  Status Join(uint64_t seed);
  void StopServing();
  void Enter(Phase phase);

  ComputeServerOptions options_;  // with the addresses that were chosen
  const std::vector<NewTree> trees_;
  const Clock* const clock_;
  const uint64_t start_ns_;
  std::unique_ptr<TlsServer> tls_;  // null: clients speak without TLS
  uint64_t joins_ = 0;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<NativeServer> native_;
  // While it is held, and the phase is kServing or kDraining, the two above stay.
  mutable std::mutex phase_mutex_;  // guards phase_
  Phase phase_ = Phase::kJoining;
  std::unique_ptr<HttpListener> watchers_;  // destroyed first
};

/// "accounts:bytes", "numbers:fixed8".
Result<NewTree> ParseTreeOption(const std::string& text);

}  // namespace farleaf::server
