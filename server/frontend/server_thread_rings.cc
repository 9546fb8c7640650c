// The rings of a ServerThread's connections.
#include <cerrno>

#include "server/frontend/server_thread.h"

namespace farleaf::server {

namespace {

constexpr int kWakeUpReceives = 4;

/// What a ring holds whose peer is refused is never taken, and is nothing to stay awake for.
bool TakesFromRing(const Peer& peer) {
  return peer.socket.valid() && peer.connection->failure().ok();
}

}  // namespace

bool ServerThread::PollRings() {
  bool any = false;
  for (Peer* peer : rings_) {
    if (!TakesFromRing(*peer) || !peer->connection->RingReady()) continue;
    if (!any) arrival_ns_ = deps_.clock->NowNs();
    any = true;
    TakeRing(*peer);
    Touch(*peer);
  }
  if (any) idle_turns_ = 0;
  return any;
}

// Also what was there when the thread was woken: were it not polled behind that, a client that sends the next request
// when it has the answer to the last one would have to wake the thread for each of them, for ever.
void ServerThread::TakeRing(Peer& peer) {
  if (TakesFromRing(peer) && peer.connection->RingReady()) {
    peer.last_input_ns = arrival_ns_;
    ring_poll_end_ns_ = arrival_ns_ + deps_.options.ring_poll_us * kNsPerUs;
  }
  peer.connection->TakeRing();
}

bool ServerThread::RingsMaySleep() {
  // All of them say so: whoever is woken by one looks at the others, too.
  bool may = true;
  for (Peer* peer : rings_) may &= !TakesFromRing(*peer) || peer->connection->RingMaySleep();
  return may;
}

/// A ring's peer sends bytes to wake this thread, which they have done. Of a peer that goes on sending, epoll tells
/// again.
void ServerThread::ReceiveWakeUps(Peer& peer) {
  char bytes[256];
  ssize_t n = 1;
  for (int i = 0; n > 0 && i < kWakeUpReceives; ++i) {
    n = ::recv(peer.socket.get(), bytes, sizeof bytes, 0);
  }
  if (n > 0) return;
  if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) DropSocket(peer);
}

}  // namespace farleaf::server
