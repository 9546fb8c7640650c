#include "dsm/tcp/tcp_agent.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "dsm/base/bytes.h"
#include "dsm/base/thread_cpu.h"
#include "dsm/tcp/batch_executor.h"

namespace farleaf::dsm {

namespace {

constexpr size_t kBufferBytesMax = 256 << 10;
static_assert(kBufferBytesMax >= BatchExecutor::kContiguousBytesMax * 2);
constexpr size_t kReceiveBytes = 64 << 10;
constexpr int kReceivesPerTurn = 8;  // then other connections of the thread get their turn

/// One client's connection. Every call belongs to its loop's thread.
class Connection {
 public:
  Connection(UniqueFd fd, std::span<std::byte> region, const std::string& name)
      : fd_(std::move(fd)), executor_(region, name), in_(kBufferBytesMax), out_(kBufferBytesMax) {}

  int fd() const { return fd_.get(); }
  bool wants_output() const { return !out_.empty(); }
  void SendWelcome(const RegionInfo& region) {
    Welcome welcome;
    welcome.region = region;
    out_.Append(AsBytes(EncodeWelcome(welcome)));
  }

  /// Receives, executes and sends as far as possible. False: the connection is over.
  bool Advance() {
    for (int turn = 0; turn < kReceivesPerTurn; ++turn) {
      const bool received = Receive();
      // What waited for the peer to take replies goes on as soon as it has: no event would tell, once it has taken all of them.
      do {
        if (!Execute() || !Send()) return false;
      } while (held_up_ && !wants_output());
      if (!received) return !peer_closed_ || (wants_output() && !send_failed_);
    }
    return true;
  }

 private:
  /// Whether bytes came in.
  bool Receive() {
    // No more is taken in while replies wait for the peer, so that it cannot make us hold them.
    if (peer_closed_ || broken_ || wants_output() || in_.room() == 0) return false;
    const std::span<std::byte> space = in_.Prepare(std::min(in_.room(), kReceiveBytes));
    const ssize_t got = ::recv(fd_.get(), space.data(), space.size(), 0);
    if (got > 0) {
      in_.Commit(static_cast<size_t>(got));
      return true;
    }
    peer_closed_ |= got == 0 || (errno != EAGAIN && errno != EINTR);
    return false;
  }
  /// Runs what is complete; false: the connection is over.
  bool Execute() {
    held_up_ = false;
    while (!broken_) {
      auto consumed = executor_.Consume(in_.readable(), &out_);
      if (!consumed.ok()) {
        broken_ = true;  // the reason is in out_, and the connection ends when that is sent
        break;
      }
      in_.Consume(*consumed);
      const bool full = out_.room() < BatchExecutor::kOutputRoomMin;
      if (!full) break;
      if (!Send()) return false;
      held_up_ = wants_output();
      if (held_up_) break;
    }
    return true;
  }
  bool Send() {
    while (!out_.empty()) {
      const ssize_t sent = ::send(fd_.get(), out_.readable().data(), out_.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) {
        send_failed_ = errno != EAGAIN;
        return !send_failed_;
      }
      out_.Consume(static_cast<size_t>(sent));
    }
    return !broken_;
  }

  UniqueFd fd_;
  BatchExecutor executor_;
  ByteQueue in_, out_;
  bool peer_closed_ = false;
  bool send_failed_ = false;
  bool broken_ = false;
  bool held_up_ = false;  ///< Execute has stopped since replies wait for the peer
};

}  // namespace

/// One agent thread with its connections.
class TcpAgent::Loop {
 public:
  Loop(std::span<std::byte> region, ServerIdentity identity, FencedMembers* fenced,
       std::atomic<size_t>* connections)
      : region_(region),
        identity_(std::move(identity)),
        name_("memory server " + std::to_string(identity_.region.server)),
        fenced_(fenced),
        connections_count_(connections),
        epoll_(::epoll_create1(EPOLL_CLOEXEC)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    FARLEAF_CHECK(epoll_.valid() && wake_.valid(), errno);
    epoll_event event{EPOLLIN, {.ptr = nullptr}};
    FARLEAF_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) == 0, errno);
    thread_ = std::thread([this] { Run(); });
  }
  ~Loop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    Wake();
    thread_.join();
  }

  /// From the listener's thread: this connection is ours from now on.
  void Add(UniqueFd fd, const Hello& hello) {
    {
      std::lock_guard lock(mutex_);
      arrived_.push_back({std::move(fd), hello.nonce, hello.member});
    }
    Wake();
  }
  /// Returns when this thread has destroyed the connections of `member`, and so runs no batch of it.
  /// REQUIRES: it is fenced already.
  void Destroy(const MemberIdentity& member) {
    std::unique_lock lock(mutex_);
    to_destroy_.push_back(member);
    const uint64_t number = ++cuts_asked_;
    Wake();
    cuts_changed_.wait(lock, [&] { return cuts_done_ >= number; });
  }
  uint64_t cpu_ns() { return ThreadCpuNs(thread_); }

 private:
  struct Arrived {
    UniqueFd fd;
    uint64_t nonce;
    MemberIdentity from;
  };
  struct Attached {
    uint64_t nonce;
    MemberIdentity from;
    Connection connection;
    bool output_watched = false;
    Attached(Arrived arrived, std::span<std::byte> region, const std::string& name)
        : nonce(arrived.nonce),
          from(arrived.from),
          connection(std::move(arrived.fd), region, name) {}
  };

  void Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  }

  void Run() {
    std::array<epoll_event, 64> events;
    while (true) {
      const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), -1);
      bool woken = false;
      for (int i = 0; i < count; ++i) {
        auto* attached = static_cast<Attached*>(events[static_cast<size_t>(i)].data.ptr);
        woken |= attached == nullptr;
        if (attached != nullptr) Serve(attached);
      }
      // Last, because it may destroy connections that the events above name.
      if (woken && !TakeOrders()) return;
    }
  }

  /// What other threads left for this one to do. False: to end.
  bool TakeOrders() {
    uint64_t count;
    [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &count, sizeof count);
    std::vector<Arrived> arrived;
    std::vector<MemberIdentity> to_destroy;
    uint64_t cuts = 0;
    {
      std::lock_guard lock(mutex_);
      if (stop_) return false;
      arrived.swap(arrived_);
      to_destroy.swap(to_destroy_);
      cuts = cuts_asked_;
    }
    for (Arrived& one : arrived) Attach(std::move(one));
    for (const MemberIdentity& cut : to_destroy) DestroyAll(cut);
    {
      std::lock_guard lock(mutex_);
      cuts_done_ = cuts;
    }
    cuts_changed_.notify_all();
    return true;
  }

  void Attach(Arrived one) {
    if (auto old = attached_.find(one.nonce); old != attached_.end()) Remove(old->second.get());
    // Behind that: a refusal too tells the client that its old connection is destroyed.
    if (Status allowed = fenced_->Admit(one.from); !allowed.ok()) {
      SendLastWelcome(one.fd.get(), identity_.region, std::move(allowed));
      return;
    }
    auto attached = std::make_unique<Attached>(std::move(one), region_, name_);
    Attached* raw = attached.get();
    attached_[raw->nonce] = std::move(attached);
    connections_count_->fetch_add(1);
    epoll_event event{EPOLLIN, {.ptr = raw}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, raw->connection.fd(), &event) != 0) {
      Remove(raw);
      return;
    }
    raw->connection.SendWelcome(identity_.region);
    Serve(raw);
  }

  void DestroyAll(const MemberIdentity& cut) {
    std::vector<Attached*> found;
    for (const auto& [nonce, attached] : attached_) {
      if (IsCutOffBy(attached->from, cut)) found.push_back(attached.get());
    }
    for (Attached* attached : found) Remove(attached);
  }

  void Serve(Attached* attached) {
    if (!attached->connection.Advance()) {
      Remove(attached);
      return;
    }
    const bool wants_output = attached->connection.wants_output();
    if (wants_output == attached->output_watched) return;
    attached->output_watched = wants_output;
    epoll_event event{wants_output ? uint32_t{EPOLLOUT} : uint32_t{EPOLLIN}, {.ptr = attached}};
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, attached->connection.fd(), &event);
  }

  void Remove(Attached* attached) {
    // By itself a close takes the socket out of the set only if no other process holds it, as one that
    // was forked from this one does.
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, attached->connection.fd(), nullptr);
    attached_.erase(attached->nonce);
    connections_count_->fetch_sub(1);
  }

  std::span<std::byte> region_;
  ServerIdentity identity_;
  std::string name_;
  FencedMembers* fenced_;
  std::atomic<size_t>* connections_count_;
  UniqueFd epoll_;
  UniqueFd wake_;
  std::unordered_map<uint64_t, std::unique_ptr<Attached>> attached_;  // by nonce
  std::mutex mutex_;  // guards what follows, up to stop_
  std::vector<Arrived> arrived_;
  std::vector<MemberIdentity> to_destroy_;
  uint64_t cuts_asked_ = 0, cuts_done_ = 0;
  std::condition_variable cuts_changed_;
  bool stop_ = false;
  std::thread thread_;
};

TcpAgent::TcpAgent(const Options& options, const ServerIdentity& identity,
                   std::span<std::byte> region)
    : options_(options), identity_(identity), fenced_(identity.region.server, region) {}

TcpAgent::~TcpAgent() {
  listener_.reset();
  loops_.clear();
}

Result<std::unique_ptr<TcpAgent>> TcpAgent::Start(const Options& options,
                                                  const ServerIdentity& identity,
                                                  std::span<std::byte> region, const Clock* clock) {
  auto address = ResolveTcp(options.listen);
  if (!address.ok()) return address.status();
  auto listening = Listen(*address);
  if (!listening.ok()) return listening.status();
  auto local = LocalTcpAddress(listening->get());
  if (!local.ok()) return local.status();

  std::unique_ptr<TcpAgent> agent(new TcpAgent(options, identity, region));
  agent->endpoint_ = "tcp:" + (options.advertise.empty() ? *local : options.advertise);
  FARLEAF_CHECK(options.threads > 0);
  for (uint32_t i = 0; i < options.threads; ++i) {
    agent->loops_.push_back(
        std::make_unique<Loop>(region, identity, &agent->fenced_, &agent->connections_));
  }
  HandshakeListener::Options listener_options;
  listener_options.identity = identity;
  agent->listener_ = std::make_unique<HandshakeListener>(
      std::move(*listening), listener_options, clock,
      [raw = agent.get()](UniqueFd fd, const Hello& hello) { raw->Accept(std::move(fd), hello); },
      [raw = agent.get()](const Hello& hello) -> Status {
        FARLEAF_RETURN_IF_ERROR(raw->fenced_.Check(hello.member));
        return raw->CutOff(hello.target);
      });
  return agent;
}

void TcpAgent::Accept(UniqueFd fd, const Hello& hello) {
  if (connections_.load() < options_.connections_max) {
    loops_[hello.nonce % loops_.size()]->Add(std::move(fd), hello);
    return;
  }
  SendLastWelcome(
      fd.get(), identity_.region,
      Status::ResourceExhausted("memory server " + std::to_string(identity_.region.server) +
                                " has all of its " + std::to_string(options_.connections_max) +
                                " connections in use"));
}

uint64_t TcpAgent::cpu_ns() const {
  uint64_t ns = 0;
  for (const auto& loop : loops_) ns += loop->cpu_ns();
  return ns;
}

Status TcpAgent::CutOff(const MemberIdentity& member) {
  return fenced_.CutOff(member, [&] {
    for (const auto& loop : loops_) loop->Destroy(member);
    return Status::Ok();
  });
}

}  // namespace farleaf::dsm
