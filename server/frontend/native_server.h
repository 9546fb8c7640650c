// NativeServer: serves a TreeHost's trees over the native protocol, on TCP and Unix sockets, and records in one
// of them over memcached's and Redis' protocols, where that is asked for.
//
// Each of its threads has an epoll loop and a dsm::Worker. The first thread accepts, and gives each
// connection to the thread with the fewest, for life: that thread reads, runs and answers all its
// requests, as coroutines, many at once. The answers of one turn of the loop go out in one write a
// connection.
//
// Thread rule: Start, Stop and the destructor by one thread; the rest from any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/base/result.h"
#include "server/frontend/authenticator.h"
#include "server/frontend/memcached/service.h"
#include "server/frontend/native_connection.h"
#include "server/frontend/operation_stats.h"
#include "server/frontend/record_house.h"
#include "server/frontend/redis/service.h"
#include "server/frontend/server_thread.h"
#include "server/frontend/slow_log.h"
#include "server/frontend/tls_server.h"
#include "server/frontend/tree_host.h"

namespace farleaf::server {

struct NativeServerOptions {
  std::vector<std::string> listen = {"127.0.0.1:7400"};  ///< HOST:PORT; port 0: any free one
  std::string unix_path;                                 ///< empty: no Unix socket
  uint32_t unix_mode = 0600;                             ///< of all Unix sockets
  uint32_t threads = 2;
  uint32_t connections_max = 4096;
  NativeConnection::Limits connection;
  uint64_t deadline_ms_default = 10'000;  ///< of a request that names none
  uint64_t deadline_ms_max = 60'000;      ///< longer ones are cut to this
  uint64_t hello_timeout_ms = 10'000;
  uint64_t idle_timeout_ms = 0;  ///< closes a connection without requests; 0: never
  uint64_t drain_ms = 5'000;     ///< what Stop grants to running requests
  uint64_t ring_poll_us = 100;   ///< for how long rings are polled behind the last message
  uint64_t socket_poll_us = 30;  ///< likewise sockets, by threads that are loaded (socket_poll.h)
  uint64_t instance = 0;         ///< told in the hello; drawn at random by main
  memcached::Options memcached;
  redis::Options redis;
  std::string record_tree = "records";  ///< of the other protocols; created unless it exists
  uint64_t expiry_sweep_s = 60;         ///< what a turn of the sweep through it takes at least
  /// Of the passwords that clients have to know, one of which will do; none: they are not asked.
  std::vector<std::string> passwords;
  SlowLogOptions slow_log;
  /// Of all TCP listeners; null: they are without TLS. Outlives the server.
  const TlsServer* tls = nullptr;
  /// Time since 1970, by which records expire; null: the system's. Outlives the server.
  const Clock* wall_clock = nullptr;
};

class NativeServer {
 public:
  struct ConnectionCounts {
    uint64_t accepted = 0;
    uint64_t open = 0;
    uint64_t refused = 0;    ///< cut off for what they sent, or because the server was full
    uint64_t truncated = 0;  ///< whose peers ended them in the middle of a request
    uint64_t event_polls = 0,
             event_waits = 0;  ///< epoll_wait, without a limit to wait for and with one
  };

  /// Listens and serves. `host` and `clock` outlive the server. Fails with AlreadyExists if an
  /// address is taken, InvalidArgument if it cannot be listened on.
  static Result<std::unique_ptr<NativeServer>> Start(TreeHost* host, const Clock* clock,
                                                     NativeServerOptions options);
  /// Stops, if Stop was not called.
  ~NativeServer();

  /// Stops listening, refuses new requests, lets running ones end within drain_ms (their deadlines
  /// are cut to it), and closes all connections.
  void Stop();

  /// URLs of what it listens on, with the ports that were chosen.
  const std::vector<std::string>& urls() const { return urls_; }
  /// Likewise, memcached://HOST:PORT.
  const std::vector<std::string>& memcached_urls() const { return memcached_urls_; }
  /// Likewise, redis://HOST:PORT.
  const std::vector<std::string>& redis_urls() const { return redis_urls_; }
  OperationStats Stats() const;
  ConnectionCounts Connections() const;
  /// Lines `name value`: connections, operations, and the host's own.
  std::string StatsText() const;
  void AppendMetrics(MetricsText* out) const;

 private:
  struct Listening;
  NativeServer(TreeHost* host, const Clock* clock, NativeServerOptions options);
  Status Listen(Listening* listening);
  Status OpenRecords();
  /// `number`: the thread's, among all.
  Result<std::unique_ptr<ServerThread>> NewThread(uint32_t number);
  void AddServices(uint32_t number, std::vector<ServerThread::MakeService>* services);
  void GatherFacts(ServerFacts* facts) const;
  void AppendRecordMetrics(MetricsText* out) const;
  void AppendRecordStats(std::string* text) const;

  TreeHost* const host_;
  const Clock* const clock_;
  const uint64_t start_ns_;
  const NativeServerOptions options_;
  const WallClock system_clock_;
  const Authenticator authenticator_;
  SlowLog slow_log_;
  std::vector<std::string> urls_, memcached_urls_, redis_urls_;
  std::unique_ptr<Keyspace> keyspace_;  // null: only the native protocol is spoken
  std::unique_ptr<RecordHouse> house_;  // with keyspace_; the first thread's
  // Of the threads, where the protocol is spoken.
  std::vector<std::unique_ptr<memcached::Counters>> memcached_counters_;
  std::vector<std::unique_ptr<redis::Counters>> redis_counters_;
  std::atomic<uint64_t> redis_connections_{0};
  std::vector<std::unique_ptr<ServerThread>> threads_;
};

}  // namespace farleaf::server
