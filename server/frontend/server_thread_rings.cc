// The rings of a ServerThread's connections.
#include <cerrno>

#include "server/frontend/server_thread.h"

namespace farleaf::server {

bool ServerThread::PollRings() {
  bool any = false;
  for (Peer* peer : rings_) {
    if (!peer->socket.valid() || !peer->connection->RingReady()) continue;
    if (!any) arrival_ns_ = deps_.clock->NowNs();
    any = true;
    peer->last_input_ns = arrival_ns_;
    peer->connection->TakeRing();
    Touch(*peer);
  }
  if (any) idle_turns_ = 0;
  if (any) ring_poll_end_ns_ = arrival_ns_ + deps_.options.ring_poll_us * 1'000;
  return any;
}

bool ServerThread::RingsMaySleep() {
  // All of them say so: whoever is woken by one looks at the others, too.
  bool may = true;
  for (Peer* peer : rings_) may &= peer->connection->RingMaySleep();
  return may;
}

/// A ring's peer sends bytes to wake this thread, which they have done.
void ServerThread::ReceiveWakeUps(Peer& peer) {
  char bytes[256];
  ssize_t n = 1;
  while (n > 0) n = ::recv(peer.socket.get(), bytes, sizeof bytes, 0);
  if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) DropSocket(peer);
}

}  // namespace farleaf::server
