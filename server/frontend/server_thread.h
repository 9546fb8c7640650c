// ServerThread: one thread of a NativeServer, its epoll loop, connections and worker.
//
// One turn of the loop: resume coroutines whose round trips are complete; take socket events and
// start the requests they bring; parse on where a pause has ended; send what the turn has answered. Once a
// second the trees' upkeep runs beside the requests, and a last time behind the last of them.
// With work in flight it polls; when that brings nothing for a while it blocks for a millisecond at
// a time; with nothing in flight it blocks until an event.
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
#include <unordered_map>
#include <vector>

#include "client/internal/socket.h"
#include "dsm/op_context.h"
#include "server/frontend/execute.h"
#include "server/frontend/native_server.h"

namespace farleaf::server {

class ServerThread final : public NativeConnection::Runner {
 public:
  using Fd = client::internal::Fd;
  struct Deps {
    TreeHost* host;
    const Clock* clock;
    const NativeServerOptions* options;  ///< all outlive the thread
    /// Text of the server's counters, for a client that asks.
    std::function<std::string()> stats_text;
    /// Of all threads.
    std::function<uint64_t()> open_connections;
  };
  struct Counts {
    std::atomic<uint64_t> accepted{0};
    std::atomic<uint64_t> open{0};
    std::atomic<uint64_t> refused{0};
  };

  static Result<std::unique_ptr<ServerThread>> Create(Deps deps);
  ~ServerThread() override;

  /// Before Run: this thread accepts on `listeners` and distributes over `threads` (itself among
  /// them).
  void AcceptFor(std::vector<Fd> listeners, std::vector<ServerThread*> threads);
  void Start();
  /// Takes over a connected socket, from any thread.
  void Adopt(Fd socket, std::string peer_name);
  void RequestStop();
  void Join();

  OperationStats Stats() const;
  const Counts& counts() const { return counts_; }

  // NativeConnection::Runner.
  protocol::ServerHello Hello() override;
  void StartRequest(NativeConnection& connection, InputBlockRef block,
                    protocol::Request request) override;

 private:
  /// A connection with its socket.
  struct Peer : NativeConnection,
                boost::intrusive::list_base_hook<
                    boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
    Peer(Runner* runner, Limits limits, Fd fd, std::string peer_name)
        : NativeConnection(runner, limits), socket(std::move(fd)), name(std::move(peer_name)) {}
    Fd socket;
    std::string name;
    uint64_t last_input_ns = 0;
    uint32_t events = 0;   // registered with epoll
    uint32_t running = 0;  // coroutines that will answer
    bool touched = false;
    bool closed = false;
  };
  /// A request in execution; linked while it runs, so that a stop can cut its deadline.
  struct Running : boost::intrusive::list_base_hook<
                       boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
    explicit Running(dsm::OpContext* context) : op(context) {}
    dsm::OpContext* op;
  };
  template <typename T>
  using List = boost::intrusive::list<T, boost::intrusive::constant_time_size<false>>;

  explicit ServerThread(Deps deps) : deps_(std::move(deps)) {}

  void Run();
  void Turn();
  int WaitMs() const;
  void HandleEvent(void* owner, uint32_t what);
  void AcceptAll(const Fd& listener);
  void TakeInbox();
  void AddPeer(Fd socket, std::string peer_name);
  void Receive(Peer& peer);
  void Touch(Peer& peer);
  void SettleTouched();
  /// Parses on, sends, and renews the interest in events. Returns whether the peer is done.
  bool Settle(Peer& peer);
  /// The socket is of no use any more; running requests still end.
  void DropSocket(Peer& peer);
  bool Send(Peer& peer);
  void SetEvents(Peer& peer, uint32_t events);
  void Close(Peer& peer);
  void CloseIdlePeers(uint64_t now_ns);
  void BeginStop();
  dsm::Task<void> RunUpkeep();
  dsm::Task<void> RunLastUpkeep();
  void PublishRecords();
  bool Drained() const;

  dsm::Task<void> RunRequest(Peer& peer, InputBlockRef block, protocol::Request request);
  HostedTree FindTree(uint32_t id);

  const Deps deps_;
  std::unique_ptr<dsm::Worker> worker_;
  std::thread thread_;
  Fd epoll_, wake_;
  std::vector<Fd> listeners_;
  bool accept_paused_ = false;  // no descriptors were left
  std::vector<ServerThread*> threads_;
  List<Peer> peers_;
  std::vector<Peer*> touched_;   // to be settled at the turn's end
  std::vector<Peer*> settling_;  // being settled
  List<Running> running_;
  std::unordered_map<uint32_t, HostedTree> trees_;  // those found so far
  uint64_t arrival_ns_ = 0;                         // of the requests being parsed
  uint64_t next_sweep_ns_ = 0;
  uint64_t drain_end_ns_ = UINT64_MAX;
  bool keeping_up_ = false;
  uint32_t idle_turns_ = 0;
  std::vector<OperationRecord> records_;  // of this turn
  Counts counts_;
  bool stopping_ = false;

  std::atomic<bool> stop_requested_{false};
  std::atomic<bool> has_inbox_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::pair<Fd, std::string>> inbox_;
  OperationStats stats_;
};

}  // namespace farleaf::server
