// HandshakeListener: a thread that accepts connections, reads each one's Hello within a deadline,
// refuses what is wrong with a Welcome that says why, and hands the rest on. One implementation for
// Unix sockets and TCP.
//
// Invariants: at most pending_max connections are between accept and Hello; the one that waited
// longest makes room. Nothing that a peer sends or omits blocks another peer.
// Thread rule: `accepted` runs on the listener's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dsm/base/clock.h"
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

  HandshakeListener(UniqueFd listening, Options options, const Clock* clock, Accepted accepted);
  /// Stops listening, then ends the thread.
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
  void Refuse(int fd, Status why);

  UniqueFd listening_;
  UniqueFd stop_fd_;
  Options options_;
  const Clock* clock_;
  Accepted accepted_;
  std::vector<Pending> pending_;
  std::thread thread_;
};

}  // namespace farleaf::dsm
