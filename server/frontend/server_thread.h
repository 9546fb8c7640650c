// ServerThread: one thread of a server, its epoll loop, connections and worker. It knows connections and the
// services that make them, not their protocols.
//
// One turn of the loop: resume coroutines whose round trips are complete; take socket events and
// start the requests they bring; parse on where a pause has ended; send what the turn has answered. Once a
// second the trees' upkeep runs beside the requests, and a last time behind the last of them.
// With work in flight it polls; when that brings nothing for a while it blocks for a millisecond at
// a time; with nothing in flight it blocks until an event, of which a timer is one, once a second. A thread that is
// loaded (socket_poll.h) looks for events for a while before that.
//
// Invariants:
//   - a Peer lives until its socket is closed and its last request has been answered;
//   - the worker is online except while the thread blocks;
//   - the loop ends only when stopped, no coroutine is left and the last upkeep has run.
// Thread rule: the loop's thread owns all; Adopt, RequestStop and Stats may be called by others.
#pragma once

#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/internal/socket.h"
#include "dsm/op_context.h"
#include "server/frontend/serving_thread.h"
#include "server/frontend/socket_poll.h"
#include "server/frontend/tls_server.h"
#include "server/frontend/tree_host.h"

namespace farleaf::server {

/// A connection with its socket.
struct Peer
    : boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
  using Fd = client::internal::Fd;
  Peer(Fd fd, std::string peer_name) : socket(std::move(fd)), name(std::move(peer_name)) {}
  Fd socket;
  std::string name;
  std::unique_ptr<TlsServer::Stream> tls;  // null: bytes go as they are
  std::unique_ptr<Connection> connection;
  uint64_t last_input_ns = 0;
  uint32_t events = 0;   // registered with epoll
  uint32_t running = 0;  // coroutines that serve it
  bool polled = false;   // its ring is
  bool touched = false;
  bool closed = false;
  uint64_t linger_end_ns = 0;  // 0: it was told no goodbye
  bool half_closed = false;    // nothing is sent behind that
};

class ServerThread final : public ServingThread {
 public:
  using Fd = client::internal::Fd;
  using MakeService = std::function<std::unique_ptr<ProtocolService>(ServingThread&)>;
  struct Options {
    uint32_t connections_max;
    uint64_t upkeep_ms;  ///< what one upkeep may take
    uint64_t hello_timeout_ms;
    uint64_t idle_timeout_ms;
    uint64_t drain_ms;
    uint64_t ring_poll_us;    ///< how long rings are polled behind the last message
    uint64_t socket_poll_us;  ///< how long a loaded thread looks at its sockets before it blocks
  };
  struct Deps {
    TreeHost* host;
    const Clock* clock;  ///< both outlive the thread
    Options options;
    std::vector<MakeService> services;  ///< the protocols, by a listener's `service`
    /// Of all threads.
    std::function<uint64_t()> open_connections;
  };
  struct Counts {
    std::atomic<uint64_t> accepted{0};
    std::atomic<uint64_t> open{0};
    std::atomic<uint64_t> refused{0};
    std::atomic<uint64_t> truncated{0};
    // How often events were asked for, without waiting and for as long as it takes.
    std::atomic<uint64_t> event_polls{0};
    std::atomic<uint64_t> event_waits{0};
  };

  /// Where connections of a protocol come in.
  struct Listener {
    Fd socket;
    size_t service = 0;              ///< index in Deps::services
    const TlsServer* tls = nullptr;  ///< outlives the thread; null: without TLS
  };
  /// One that came in.
  struct Accepted {
    Fd socket;
    std::string peer_name;
    size_t service = 0;
    const TlsServer* tls = nullptr;
  };

  static Result<std::unique_ptr<ServerThread>> Create(Deps deps);
  ~ServerThread() override;

  /// Before Run: this thread accepts on `listeners` and distributes over `threads` (itself among
  /// them).
  void AcceptFor(std::vector<Listener> listeners, std::vector<ServerThread*> threads);
  void Start();
  /// Takes over a connected socket, from any thread.
  void Adopt(Accepted accepted);
  void RequestStop();
  void Join();

  OperationStats Stats() const;
  const Counts& counts() const { return counts_; }

  // ServingThread.
  bool full() const override { return deps_.open_connections() > deps_.options.connections_max; }
  void Serve(Connection& connection, dsm::Task<void> task) override;
  void Served(Connection& connection) override;
  void Flush(Connection& connection) override { Touch(*connection.peer()); }
  void RunAside(dsm::Task<void> task) override { worker_->Spawn(std::move(task)); }
  void Link(Running& running) override { running_.push_back(running); }
  void Record(OperationRecord record) override { records_.push_back(record); }
  std::string_view PeerName(const Connection& connection) const override {
    return connection.peer()->name;
  }

 private:
  template <typename T>
  using List = boost::intrusive::list<T, boost::intrusive::constant_time_size<false>>;

  explicit ServerThread(Deps deps)
      : deps_(std::move(deps)), socket_poll_(deps_.options.socket_poll_us * kNsPerUs) {}

  void Run();
  void Turn();
  /// Of a counter that this thread alone changes.
  static void CountOne(std::atomic<uint64_t>& count) {
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  int WaitMs();
  void HandleEvent(void* owner, uint32_t what);
  void AcceptAll(const Listener& listener);
  void TakeInbox();
  void AddPeer(Accepted accepted);
  void Receive(Peer& peer);
  void ReceiveTls(Peer& peer);
  /// Returns whether anything has come through a ring.
  bool PollRings();
  /// Takes what has come through the peer's ring, if anything has, behind which rings are polled for a while.
  void TakeRing(Peer& peer);
  bool RingsMaySleep();
  void ReceiveWakeUps(Peer& peer);
  void Touch(Peer& peer);
  void SettleTouched();
  /// Parses on, sends, and renews the interest in events. Returns whether the peer is done.
  bool Settle(Peer& peer);
  /// The socket is of no use any more; running requests still end.
  void DropSocket(Peer& peer);
  bool Send(Peer& peer);
  bool SendTls(Peer& peer);
  /// The events that a peer has to hear of.
  static uint32_t EventsOf(const Peer& peer);
  void SetEvents(Peer& peer, uint32_t events);
  void Close(Peer& peer);
  void Sweep(uint64_t now_ns);
  void CloseIdlePeers(uint64_t now_ns);
  void CloseWhenDrainIsOver();
  /// Of a peer with which nothing is left to do: whether it is told that this server stops, and then waited for to close.
  bool Lingers(Peer& peer);
  void TakeNothingMore(Peer& peer);
  void BeginStop();
  dsm::Task<void> RunUpkeep();
  dsm::Task<void> RunLastUpkeep();
  void PublishRecords();
  bool Drained() const;

  const Deps deps_;
  std::unique_ptr<dsm::Worker> own_worker_;
  std::thread thread_;
  Fd epoll_, wake_;
  Fd sweep_timer_;  // once a second
  std::vector<std::unique_ptr<ProtocolService>> services_;
  std::vector<Listener> listeners_;
  bool accept_paused_ = false;  // no descriptors were left
  std::vector<ServerThread*> threads_;
  List<Peer> peers_;
  std::vector<Peer*> touched_;   // to be settled at the turn's end
  std::vector<Peer*> settling_;  // being settled
  std::vector<Peer*> rings_;     // with a ring
  uint64_t ring_poll_end_ns_ = 0;
  SocketPoll socket_poll_;
  uint32_t turns_without_events_ = 0;  // while rings are polled
  List<Running> running_;
  bool sweep_due_ = false;
  uint64_t drain_end_ns_ = UINT64_MAX;
  bool keeping_up_ = false;
  uint32_t idle_turns_ = 0;
  std::vector<OperationRecord> records_;  // of this turn
  Counts counts_;

  std::atomic<bool> stop_requested_{false};
  std::atomic<bool> has_inbox_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Accepted> inbox_;
  OperationStats stats_;
};

}  // namespace farleaf::server
