// HandshakeListener: a thread that accepts connections, reads each one's Hello within a deadline,
// refuses what is wrong with a Welcome that says why, and hands the rest on. Requests to cut a compute
// server off are carried out by a CutOffQueue. One implementation for Unix sockets and TCP.
//
// Invariants: at most pending_max connections are between accept and Hello; the one that waited
// longest makes room. Nothing that a peer sends or omits blocks another peer.
// Thread rule: `accepted` runs on the listener's thread, `cut_off` on one of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/clock.h"
#include "dsm/cut_off_queue.h"
#include "dsm/handshake.h"
#include "dsm/socket.h"

namespace farleaf::dsm {

class HandshakeListener {
 public:
  /// Takes the connection over and sends the Welcome.
  using Accepted = std::function<void(UniqueFd, const Hello&)>;
  struct Options {
    ServerIdentity identity;
    uint64_t hello_timeout_ms = 5'000;
    size_t pending_max = 256;
  };

  HandshakeListener(UniqueFd listening, Options options, const Clock* clock, Accepted accepted,
                    CutOffQueue::CutOff cut_off);
  /// Stops listening, then ends the threads.
  ~HandshakeListener();
  HandshakeListener(const HandshakeListener&) = delete;

 private:
  struct Pending {
    UniqueFd fd;
    uint64_t deadline_ns;
    std::string received;
  };
  void Run();
  void AcceptAll();
  /// False: the connection is finished with here, one way or another.
  bool Advance(Pending& pending);

  UniqueFd listening_;
  UniqueFd stop_fd_;
  Options options_;
  const Clock* clock_;
  Accepted accepted_;
  std::vector<Pending> pending_;
  CutOffQueue cut_offs_;
  std::thread thread_;
};

/// Sends the Welcome that ends a handshake: a refusal, or the confirmation of a cut. To be closed then.
void SendLastWelcome(int fd, const RegionInfo& region, Status outcome);

}  // namespace farleaf::dsm
