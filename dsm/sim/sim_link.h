// SimLink: one transport's connection to one memory server, both sides of it and the network between:
// what verbs/ and tcp/ have links, agents and sockets for. What becomes of batches when a connection
// breaks is decided by the LinkRecovery that those use.
//
// A connection has a generation, told by the memory server when it takes a Hello. A piece of a flight
// takes effect only while the memory server has the flight's generation open; a new Hello of the
// same link closes the old one first.
//
//   kDown ──► kGreeting ──► kUp        kLost: for good; every batch fails
//     ▲           │          │
//     └───────────┴──────────┘  broken
//
// The functions of the client's side are called in the compute server's turn (Post, Poll) only, so that
// nothing completes behind its back.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dsm/handshake.h"
#include "dsm/known_servers.h"
#include "dsm/link_recovery.h"
#include "dsm/sim/event_queue.h"
#include "dsm/sim/flight.h"
#include "dsm/transport.h"

namespace farleaf::dsm {

class SimTransport;
class SimWorld;

struct SimLinkOptions {
  LinkRecoveryOptions recovery = {};
  uint64_t stall_timeout_ms = 5'000;  ///< without any progress while batches are in flight
};

class SimLink {
 public:
  /// What one connects from and to.
  struct Ends {
    uint32_t process;
    SimTransport* transport;
    std::shared_ptr<KnownServer> server;  ///< the life of it that is meant
  };
  SimLink(SimWorld* world, uint32_t number, Ends ends, Hello hello, const SimLinkOptions& options);
  SimLink(const SimLink&) = delete;

  ServerId server_id() const { return hello_.server; }
  uint32_t process() const { return process_; }
  const Hello& hello() const { return hello_; }

  // ---- The compute server's side
  void Connect();
  void Post(Batch& batch);
  /// What has arrived: kCompletion, kWelcome or kReset.
  void Arrived(const SimEvent& event);
  /// Watches deadlines. Returns the number of batches completed since the last call.
  size_t Poll();
  /// When Poll has to be called at the latest; UINT64_MAX: no need.
  uint64_t due_ns() const;
  bool up() const { return state_ == State::kUp; }
  bool connecting() const { return state_ == State::kGreeting; }
  /// Why it is not up. REQUIRES: neither up nor connecting.
  const Status& failure() const { return recovery_.failure(); }
  bool has_completions() const { return completed_ > 0 || recovery_.has_completed(); }
  /// The compute server is gone: what is in flight goes on without it, up to a moment.
  void Detach();
  SimTransport* transport() const { return transport_; }

  // For LinkTable.
  const KnownServer& server() const { return *server_; }
  void Retire();
  bool ended() const { return retired_ && state_ == State::kLost; }
  void HoldBack() { held_back_ = true; }
  bool held_back() const { return held_back_; }
  void Release();

  // ---- The memory server's side
  /// Takes a Hello, and sends the answer.
  void TakeHello(uint32_t attempt);
  bool is_open(uint32_t generation) const {
    return open_generation_ == generation && generation != 0;
  }
  /// The memory server destroys the connection, if it is open; the client is told.
  void Destroy();

  // ---- The network between
  /// Both sides think for a while, or for ever, that the connection is up.
  bool partitioned() const { return partitioned_; }
  void Partition() { partitioned_ = true; }
  void Hold(const SimEvent& event) { held_.push_back(event); }
  std::vector<SimEvent> Heal() {
    partitioned_ = false;
    return std::exchange(held_, {});
  }
  /// The connection breaks: the client is told at once, the server perhaps only by the next Hello.
  void Drop();
  /// Flight `index` has completed or was left behind.
  void Forget(Flight& flight);

 private:
  enum class State : uint8_t { kDown, kGreeting, kUp, kLost };
  void Launch(Batch& batch);
  /// Of the handshake and the connection's end: a Reset does not overtake the Welcome before it.
  void TellClient(SimEventKind kind, uint32_t detail);
  void Welcomed();
  void Break(const std::string& reason);
  /// The flights of the connection go on without their batches, which are returned in posting order.
  std::vector<Batch*> LeaveBehind(uint64_t lost_after_ns);
  using Server = LinkRecovery::Server;
  void AttemptFailed(Status why, Server server);
  void LoseForGood(Status why);
  void EndIfRetired();

  SimWorld* world_;
  const uint32_t number_;
  const uint32_t process_;
  SimTransport* transport_;  ///< null: detached
  const std::shared_ptr<KnownServer> server_;
  const Hello hello_;
  const SimLinkOptions options_;

  State state_ = State::kDown;
  bool held_back_ = false, retired_ = false;
  LinkRecovery recovery_;
  uint32_t attempt_ = 0;
  uint32_t generation_ = 0;  ///< of the connection that is up
  ConnectionOrder order_;
  std::vector<uint32_t> flights_;  ///< in flight on this connection
  uint64_t posts_ = 0;
  uint64_t progress_ns_ = 0;
  size_t completed_ = 0;

  // The memory server's side.
  uint32_t open_generation_ = 0;
  uint32_t generations_ = 0;
  /// The last answer sent: nobody listens, or a Welcome that names the generation.
  struct Answer {
    uint32_t attempt = 0;
    bool nobody_listens = false;
    Welcome welcome;
    uint32_t generation = 0;
  };
  Answer answer_;

  uint64_t hello_ns_ = 0, told_ns_ = 0;  ///< when the last message of each side arrives
  bool partitioned_ = false;
  std::vector<SimEvent> held_;
};

}  // namespace farleaf::dsm
