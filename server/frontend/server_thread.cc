#include "server/frontend/server_thread.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "dsm/base/log.h"
#include "server/frontend/upkeep.h"

namespace farleaf::server {

namespace {
/// What a peer is granted to close, from when its kernel has the goodbye.
constexpr uint64_t kLingerNs = kNsPerSecond;
constexpr uint32_t kTurnsBeforeBlocking = 2'000;  // about 0.5 ms of polling
constexpr uint32_t kRingTurnsPerEvents = 32;
constexpr uint32_t kRingTurnsBeforeYield = 400;
constexpr int kEventsMax = 128;
constexpr time_t kSweepSeconds = 1;
constexpr uint64_t kRefusalsMax = 64;  // connections that are being told that the server is full
}  // namespace

Result<std::unique_ptr<ServerThread>> ServerThread::Create(Deps deps) {
  std::unique_ptr<ServerThread> thread(new ServerThread(std::move(deps)));
  auto worker = thread->deps_.host->OpenWorker();
  if (!worker.ok()) return worker.status();
  thread->own_worker_ = std::move(*worker);
  thread->worker_ = thread->own_worker_.get();
  thread->epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  thread->wake_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  for (const MakeService& make : thread->deps_.services) {
    thread->services_.push_back(make(*thread));
  }
  thread->sweep_timer_ = Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  const itimerspec sweeps{{kSweepSeconds, 0}, {kSweepSeconds, 0}};
  if (!thread->epoll_.valid() || !thread->wake_.valid() ||
      ::timerfd_settime(thread->sweep_timer_.get(), 0, &sweeps, nullptr) != 0) {
    return Status::IoError("epoll: " + client::internal::ErrnoText(errno));
  }
  // One timer for all sweeps: a limit to each wait would be a timer that is set and cleared for each request.
  epoll_event sweep{EPOLLIN, {.ptr = &thread->sweep_timer_}};
  FARLEAF_CHECK(
      ::epoll_ctl(thread->epoll_.get(), EPOLL_CTL_ADD, thread->sweep_timer_.get(), &sweep) == 0,
      errno);
  // Events of these two carry a null pointer: being woken is all they mean. By edge, so that nobody has to read them.
  for (const int fd : {thread->wake_.get(), thread->worker_->wake_fd()}) {
    epoll_event event{EPOLLIN | EPOLLET, {.ptr = nullptr}};
    FARLEAF_CHECK(::epoll_ctl(thread->epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, errno);
  }
  return thread;
}

ServerThread::~ServerThread() {
  RequestStop();
  Join();
}

void ServerThread::AcceptFor(std::vector<Listener> listeners, std::vector<ServerThread*> threads) {
  listeners_ = std::move(listeners);
  threads_ = std::move(threads);
  for (Listener& listener : listeners_) {
    epoll_event event{EPOLLIN, {.ptr = &listener}};
    FARLEAF_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener.socket.get(), &event) == 0,
                  errno);
  }
}

void ServerThread::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ServerThread::Join() {
  if (thread_.joinable()) thread_.join();
}

void ServerThread::Adopt(Accepted accepted) {
  counts_.open.fetch_add(1);
  counts_.accepted.fetch_add(1);
  {
    std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(accepted));
    has_inbox_.store(true);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void ServerThread::RequestStop() {
  stop_requested_.store(true);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

OperationStats ServerThread::Stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

// ---- The loop ----

void ServerThread::Run() {
  worker_->GoOnline();
  while (!Drained()) Turn();
  worker_->Spawn(RunLastUpkeep());
  while (!Drained()) Turn();
  worker_->GoOffline();
}

bool ServerThread::Drained() const {
  return stopping_ && worker_->spawned() == 0 && peers_.empty() && !has_inbox_.load();
}

void ServerThread::Turn() {
  if (worker_->spawned() > 0 && worker_->RunOnce(dsm::Worker::Idle::kReturn)) idle_turns_ = 0;
  const int wait_ms = PollRings() ? 0 : WaitMs();
  std::array<epoll_event, kEventsMax> events;
  int count = 0;
  if (wait_ms == 0 && !rings_.empty() && ++turns_without_events_ < kRingTurnsPerEvents) {
    // Sockets are looked at less often while rings are polled: a system call takes longer than a turn. Behind
    // some turns for nothing the processor is left to others, who may be those that are waited for.
    if (idle_turns_ > kRingTurnsBeforeYield) ::sched_yield();
  } else if (wait_ms == 0) {
    turns_without_events_ = 0;
    // Where all requests run without a coroutine, the worker's loop is not turned: nothing of theirs is held by now.
    worker_->GoOffline();
    worker_->GoOnline();
    CountOne(counts_.event_polls);
    count = ::epoll_wait(epoll_.get(), events.data(), kEventsMax, 0);
  } else {
    worker_->GoOffline();
    worker_->set_sleeping(true);
    if (worker_->may_block() && RingsMaySleep()) {
      CountOne(counts_.event_waits);
      count = ::epoll_wait(epoll_.get(), events.data(), kEventsMax, wait_ms);
    }
    for (Peer* peer : rings_) peer->connection->RingAwake();
    worker_->set_sleeping(false);
    worker_->GoOnline();
  }
  idle_turns_ = count > 0 ? 0 : idle_turns_ + 1;
  if (count > 0 || !touched_.empty()) arrival_ns_ = deps_.clock->NowNs();
  if (count > 0) socket_poll_.Arrived(arrival_ns_);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    HandleEvent(event.data.ptr, event.events);
  }
  if (has_inbox_.load()) TakeInbox();
  if (stop_requested_.load() && !stopping_) BeginStop();
  SettleTouched();
  if (!records_.empty()) PublishRecords();
  if (std::exchange(sweep_due_, false)) Sweep(deps_.clock->NowNs());
  if (stopping_) CloseWhenDrainIsOver();
}

void ServerThread::HandleEvent(void* owner, uint32_t what) {
  if (owner == nullptr) return;  // it was to be woken
  if (owner == &sweep_timer_) {
    uint64_t times = 0;
    sweep_due_ = ::read(sweep_timer_.get(), &times, sizeof times) == sizeof times;
    return;
  }
  for (const Listener& listener : listeners_) {
    if (&listener == owner) return AcceptAll(listener);
  }
  Peer& peer = *static_cast<Peer*>(owner);
  Touch(peer);
  Receive(peer);
  // Both directions are gone: what was received is executed, and nobody waits for answers.
  if (what & (EPOLLHUP | EPOLLERR)) {
    while (peer.socket.valid() && peer.connection->wants_input()) Receive(peer);
    DropSocket(peer);
  }
}

int ServerThread::WaitMs() {
  if (!touched_.empty()) return 0;
  if (!rings_.empty() && deps_.clock->NowNs() < ring_poll_end_ns_) return 0;
  if (worker_->spawned() > 0) {
    // A worker whose transport has nothing to poll is woken for all that it waits for.
    const bool polls = worker_->transport().idle_turns_before_wait() > 0;
    return polls && idle_turns_ < kTurnsBeforeBlocking && !worker_->waits_for_sources() ? 0 : 1;
  }
  if (socket_poll_.on() && socket_poll_.Looks(deps_.clock->NowNs())) return 0;
  return stopping_ ? 10 : -1;
}

void ServerThread::PublishRecords() {
  std::lock_guard lock(mutex_);
  for (const OperationRecord& record : records_) stats_.Record(record);
  records_.clear();
}

// ---- Connections ----

namespace {

std::string NameOf(const sockaddr_storage& address) {
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (address.ss_family == AF_UNIX) return "a Unix socket";
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), sizeof address, host, sizeof host,
                    port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return std::string(host) + " port " + port;
}

}  // namespace

void ServerThread::AcceptAll(const Listener& listener) {
  while (!stopping_ && !stop_requested_.load()) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    Fd socket(::accept4(listener.socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      FARLEAF_LOG(warn, "cannot accept connections: {}; trying again in a second",
                  client::internal::ErrnoText(errno));
      for (const Listener& each : listeners_) {
        ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, each.socket.get(), nullptr);
      }
      accept_paused_ = true;
      return;
    }
    // Those beyond the limit are refused when they have said hello (or else a refusal might be lost
    // with the connection), and closed at once when they are too many for that, too.
    if (deps_.open_connections() >= deps_.options.connections_max + kRefusalsMax) {
      counts_.refused.fetch_add(1);
      continue;
    }
    if (address.ss_family != AF_UNIX) {
      const int one = 1;
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      ::setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    }
    ServerThread* const emptiest = *std::min_element(
        threads_.begin(), threads_.end(),
        [](auto* a, auto* b) { return a->counts_.open.load() < b->counts_.open.load(); });
    emptiest->Adopt({std::move(socket), NameOf(address), listener.service, listener.tls});
  }
}

void ServerThread::TakeInbox() {
  std::vector<Accepted> taken;
  {
    std::lock_guard lock(mutex_);
    taken.swap(inbox_);
    has_inbox_.store(false);
  }
  for (Accepted& accepted : taken) AddPeer(std::move(accepted));
}

void ServerThread::AddPeer(Accepted accepted) {
  if (stopping_) {
    counts_.open.fetch_sub(1);
    return;
  }
  auto* const peer = new Peer(std::move(accepted.socket), std::move(accepted.peer_name));
  if (accepted.tls != nullptr) peer->tls = accepted.tls->Accept(peer->socket.get());
  peer->connection = services_[accepted.service]->NewConnection();
  peer->connection->set_peer(peer);
  peer->connection->set_peer_is_local(client::internal::IsUnixSocket(peer->socket));
  peer->last_input_ns = deps_.clock->NowNs();
  peers_.push_back(*peer);
  epoll_event event{EPOLLIN, {.ptr = peer}};
  peer->events = EPOLLIN;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, peer->socket.get(), &event) != 0) {
    FARLEAF_LOG(warn, "connection from {} closed: epoll: {}", peer->name,
                client::internal::ErrnoText(errno));
    peer->socket.Close();
  }
  Touch(*peer);
}

void ServerThread::Receive(Peer& peer) {
  if (peer.socket.valid() && peer.linger_end_ns > 0) return TakeNothingMore(peer);
  if (peer.socket.valid() && peer.connection->has_ring()) return ReceiveWakeUps(peer);
  if (!peer.socket.valid() || !peer.connection->wants_input()) return;
  if (peer.tls) return ReceiveTls(peer);
  const auto space = peer.connection->InputSpace();
  const ssize_t n = ::recv(peer.socket.get(), space.data(), space.size(), 0);
  if (n > 0) {
    peer.last_input_ns = arrival_ns_;
    peer.connection->InputArrived(static_cast<size_t>(n));
  } else if (n == 0) {
    peer.connection->PeerEnded();
  } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
    DropSocket(peer);
  }
}

void ServerThread::ReceiveTls(Peer& peer) {
  using Kind = TlsServer::Stream::Outcome::Kind;
  do {
    const bool shaken = peer.tls->handshaken();
    const auto outcome = peer.tls->Receive(peer.connection->InputSpace());
    if (outcome.kind == Kind::kBytes) {
      peer.last_input_ns = arrival_ns_;
      peer.connection->InputArrived(outcome.bytes);
    } else if (outcome.kind == Kind::kEnded) {
      return peer.connection->PeerEnded();
    } else if (outcome.kind == Kind::kFailed) {
      if (shaken || peer.tls->broke()) return DropSocket(peer);
      return peer.connection->Refuse(peer.tls->failure());
    }
  } while (peer.tls->has_pending() && peer.connection->wants_input());
}

void ServerThread::DropSocket(Peer& peer) {
  if (peer.tls && peer.socket.valid()) peer.tls->Shutdown();
  peer.connection->InputEnded();
  peer.connection->Abandon();
  // By itself a close takes the socket out of the set only if no other process holds it, as one that
  // was forked from this one does.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peer.socket.get(), nullptr);
  peer.socket.Close();
}

void ServerThread::Touch(Peer& peer) {
  if (peer.touched) return;
  peer.touched = true;
  touched_.push_back(&peer);
}

void ServerThread::SettleTouched() {
  settling_.swap(touched_);
  for (Peer* peer : settling_) {
    // It stays marked while it settles: requests that end meanwhile need not touch it again.
    const bool done = Settle(*peer);
    peer->touched = false;
    if (done) {
      Close(*peer);
    } else if (peer->tls && peer->tls->has_pending() && peer->connection->wants_input()) {
      Touch(*peer);  // no event will tell of these bytes
    }
  }
  settling_.clear();
}

bool ServerThread::Settle(Peer& peer) {
  if (!peer.socket.valid()) return true;
  peer.connection->Continue();
  if (peer.tls && peer.tls->has_pending()) Receive(peer);
  if (peer.connection->has_ring()) {
    if (!std::exchange(peer.polled, true)) rings_.push_back(&peer);
    TakeRing(peer);
  }
  if (!Send(peer)) {
    DropSocket(peer);
    return true;
  }
  peer.connection
      ->Continue();  // sending may have ended a pause; its answers wait for the next turn
  if (peer.connection->finished() && !Lingers(peer)) return true;
  SetEvents(peer, EventsOf(peer));
  return false;
}

// Were the socket closed at once, what the peer has sent meanwhile would have its kernel throw away what the peer has not read yet, the goodbye included.
bool ServerThread::Lingers(Peer& peer) {
  if (!stopping_ || !peer.socket.valid()) return false;
  if (peer.linger_end_ns == 0) {
    if (!peer.connection->failure().ok() || !peer.connection->SayGoodbye()) return false;
    peer.linger_end_ns = drain_end_ns_;  // until its kernel has the goodbye
    if (!Send(peer)) return false;
  }
  if (peer.connection->output().empty() && !std::exchange(peer.half_closed, true)) {
    peer.linger_end_ns = std::min(drain_end_ns_, deps_.clock->NowNs() + kLingerNs);
    if (peer.tls) peer.tls->Shutdown();
    ::shutdown(peer.socket.get(), SHUT_WR);
  }
  return true;
}

// Who sends without end is not listened to without end: the socket tells again.
void ServerThread::TakeNothingMore(Peer& peer) {
  constexpr int kPiecesMax = 64;
  std::array<std::byte, 4096> thrown_away;
  ssize_t n = 1;
  for (int i = 0; i < kPiecesMax && n > 0; ++i) {
    n = ::recv(peer.socket.get(), thrown_away.data(), thrown_away.size(), 0);
  }
  if (n > 0) return;
  const bool ended = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
  if (ended) DropSocket(peer);
}

uint32_t ServerThread::EventsOf(const Peer& peer) {
  bool in = peer.connection->wants_input() || peer.connection->has_ring() || peer.linger_end_ns > 0;
  bool out = !peer.connection->output().empty();
  if (peer.tls && out && peer.tls->send_waits_for_read()) {
    in = true;
    out = false;
  }
  if (peer.tls && peer.tls->receive_waits_for_write()) out = true;
  return (in ? EPOLLIN : 0u) | (out ? EPOLLOUT : 0u);
}

bool ServerThread::SendTls(Peer& peer) {
  using Kind = TlsServer::Stream::Outcome::Kind;
  while (!peer.connection->output().empty()) {
    const auto outcome = peer.tls->Send(peer.connection->output());
    if (outcome.kind != Kind::kBytes) return outcome.kind == Kind::kWait;
    peer.connection->OutputSent(outcome.bytes);
  }
  return true;
}

bool ServerThread::Send(Peer& peer) {
  if (peer.tls) return SendTls(peer);
  while (!peer.connection->output().empty()) {
    const std::string_view output = peer.connection->output();
    Fd& descriptor = peer.connection->descriptor_to_send();
    const ssize_t n = descriptor.valid()
                          ? client::internal::SendWithDescriptor(peer.socket, output, descriptor)
                          : ::send(peer.socket.get(), output.data(), output.size(), MSG_NOSIGNAL);
    if (n > 0) descriptor.Close();
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
    peer.connection->OutputSent(static_cast<size_t>(n));
  }
  return true;
}

void ServerThread::SetEvents(Peer& peer, uint32_t events) {
  if (events == peer.events) return;
  epoll_event event{events, {.ptr = &peer}};
  FARLEAF_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer.socket.get(), &event) == 0, errno);
  peer.events = events;
}

void ServerThread::Close(Peer& peer) {
  if (!peer.closed) {
    peer.closed = true;
    const Status& failure = peer.connection->failure();
    if (!failure.ok() && !stopping_) {
      (peer.connection->truncated() ? counts_.truncated : counts_.refused).fetch_add(1);
      FARLEAF_LOG(warn, "connection from {} closed: {}", peer.name, failure.ToString());
    }
    DropSocket(peer);
  }
  if (peer.running > 0 || peer.touched) return;  // to be settled again, and closed then
  counts_.open.fetch_sub(1);
  if (peer.polled) std::erase(rings_, &peer);
  delete &peer;
}

void ServerThread::Serve(Connection& connection, dsm::Task<void> task) {
  ++connection.peer()->running;
  worker_->Spawn(std::move(task));
}

void ServerThread::Served(Connection& connection) {
  --connection.peer()->running;
  Touch(*connection.peer());
}

void ServerThread::BeginStop() {
  stopping_ = true;
  listeners_.clear();
  drain_end_ns_ = deps_.clock->NowNs() + deps_.options.drain_ms * kNsPerMs;
  for (Running& running : running_) {
    running.op->deadline_ns = std::min(running.op->deadline_ns, drain_end_ns_);
  }
  for (Peer& peer : peers_) {
    peer.connection->ServerStops();
    Touch(peer);
  }
}

// ---- Upkeep

dsm::Task<void> ServerThread::RunUpkeep() {
  keeping_up_ = true;
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker_, counts, deps_.clock->NowNs() + deps_.options.upkeep_ms * kNsPerMs};
  Running running(&op);
  running_.push_back(running);
  // What cannot be done yet is done a second later.
  [[maybe_unused]] Status kept = co_await deps_.host->Upkeep(op);
  keeping_up_ = false;
}

dsm::Task<void> ServerThread::RunLastUpkeep() {
  dsm::FabricCounts counts;
  dsm::OpContext op{*worker_, counts, deps_.clock->NowNs() + kLastUpkeepNs};
  const Status kept = co_await KeepUpToTheEnd(*deps_.host, op);
  if (!kept.ok()) FARLEAF_LOG(warn, "stopping before all is in order: {}", kept.ToString());
}

}  // namespace farleaf::server
