// What a ServerThread does once a second, and at the end of its drain.
#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "server/frontend/server_thread.h"

namespace farleaf::server {

namespace {
constexpr uint64_t kKeepsRoomMs = 1'000;
}  // namespace

void ServerThread::Sweep(uint64_t now_ns) {
  CloseIdlePeers(now_ns);
  if (stopping_) return;
  if (!keeping_up_) worker_->Spawn(RunUpkeep());
  for (const auto& service : services_) service->Tick();
}

void ServerThread::CloseIdlePeers(uint64_t now_ns) {
  if (accept_paused_) {
    accept_paused_ = false;
    for (Listener& listener : listeners_) {
      epoll_event event{EPOLLIN, {.ptr = &listener}};
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener.socket.get(), &event);
    }
  }
  for (Peer& peer : peers_) {
    if (peer.linger_end_ns > 0) {
      if (now_ns < peer.linger_end_ns) continue;
      DropSocket(peer);
      Touch(peer);
      continue;
    }
    const uint64_t idle_ms = (now_ns - std::min(now_ns, peer.last_input_ns)) / kNsPerMs;
    const auto& options = deps_.options;
    if (idle_ms >= kKeepsRoomMs) peer.connection->GiveBackRoom();
    // It would have been closed had its peer taken the answers.
    const bool refused = !peer.connection->failure().ok();
    if (refused && idle_ms > options.hello_timeout_ms) {
      DropSocket(peer);
    } else if (peer.tls && !peer.tls->handshaken() && idle_ms > options.hello_timeout_ms) {
      peer.connection->Refuse(Status::DeadlineExceeded(
          "no TLS handshake within " + std::to_string(options.hello_timeout_ms) + " ms"));
    } else if (!peer.connection->greeted() && idle_ms > options.hello_timeout_ms) {
      peer.connection->Refuse(Status::DeadlineExceeded(
          "no hello within " + std::to_string(options.hello_timeout_ms) + " ms"));
    } else if (options.idle_timeout_ms > 0 && idle_ms > options.idle_timeout_ms &&
               peer.connection->in_flight() == 0 && peer.connection->output().empty()) {
      peer.connection->Refuse(Status::DeadlineExceeded(
          "no request for " + std::to_string(options.idle_timeout_ms) + " ms"));
    } else {
      continue;
    }
    Touch(peer);
  }
}

void ServerThread::CloseWhenDrainIsOver() {
  if (deps_.clock->NowNs() < drain_end_ns_) return;
  drain_end_ns_ = UINT64_MAX;
  for (Peer& peer : peers_) {
    DropSocket(peer);
    Touch(peer);
  }
}

}  // namespace farleaf::server
