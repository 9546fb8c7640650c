// Client: a compute server's trees from any thread of an application.
//
//   auto client = farleaf::client::Client::Connect("farleaf://127.0.0.1:7400");
//   auto accounts = (*client)->OpenTree("accounts");
//   accounts->Put("k", "v");                                          // blocking
//   std::future<Result<Value>> later = accounts->GetAsync("k");       // future
//   accounts->GetAsync("k", [](Result<Value> value) { … });           // callback
//
// A Client is a Router (internal/router.h) on a thread of its own: sessions (session.h) with all servers that the one it
// was told of knows to serve some range of keys. What the application's threads start while that thread is busy goes out
// together, in one write a server. tree.h says how operations end.
//
// Thread rule: thread-safe. Callbacks run on the client's thread: they may start operations, but
// not block on one, nor destroy the client.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "client/internal/router.h"
#include "client/session.h"

namespace farleaf::client {

class Client;
using Tree = BasicTree<Client>;

class Client {
 public:
  static constexpr bool kHasThread = true;

  /// `url`: farleaf://HOST:PORT or farleaf+unix:PATH, or several with commas between them
  /// (endpoint.h): the first that answers is used, and it names the others. Fails if none can be
  /// reached, or they refuse or speak another version.
  static Result<std::unique_ptr<Client>> Connect(std::string_view url, Options options = {}) {
    auto router = internal::Router::Connect(url, options);
    if (!router.ok()) return router.status();
    const int wake_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_fd < 0) return Status::IoError("eventfd: " + internal::ErrnoText(errno));
    return std::unique_ptr<Client>(new Client(std::move(*router), options, wake_fd));
  }
  /// Operations that have not ended end with Unavailable or Unknown.
  ~Client() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    Wake();
    thread_.join();
    ::close(wake_fd_);
  }
  Client(const Client&) = delete;

  Result<Tree> OpenTree(std::string_view name, CallOptions call = {}) {
    auto opened = Await<OpenedTree>(Session::NewOpenTree(name), call);
    if (!opened.ok()) return opened.status();
    return Tree(this, std::move(*opened));
  }
  Result<Tree> CreateTree(const TreeSpec& spec, CallOptions call = {}) {
    auto opened = Await<OpenedTree>(Session::NewCreateTree(spec), call);
    if (!opened.ok()) return opened.status();
    return Tree(this, std::move(*opened));
  }
  Result<std::vector<TreeInfo>> ListTrees(CallOptions call = {}) {
    return Await<std::vector<TreeInfo>>(Session::NewPlain(protocol::Opcode::kListTrees), call);
  }
  /// The server's counters: lines `name value`.
  Result<std::string> ServerStats(CallOptions call = {}) {
    return Await<std::string>(Session::NewPlain(protocol::Opcode::kServerStats), call);
  }
  Status Ping(CallOptions call = {}) {
    return Await<std::string>(Session::NewPlain(protocol::Opcode::kPing), call).status();
  }
  /// The one that was connected to first.
  const std::string& server() const { return server_; }

  // For BasicTree. Submit blocks while Options::pending_max operations are started and not ended,
  // save on the client's thread, where it fails.
  void Submit(Operation&& operation, CallOptions call) {
    const uint64_t now_ns = clock_->NowNs();
    const uint64_t ms = call.deadline_ms ? call.deadline_ms : options_.deadline_ms;
    operation.deadline_ns =
        ms > (UINT64_MAX - now_ns) / kNsPerMs ? UINT64_MAX - 1 : now_ns + ms * kNsPerMs;
    if (std::this_thread::get_id() == thread_.get_id()) {
      return router_->Submit(std::move(operation), call);
    }
    {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] { return started_.size() + pending_ < options_.pending_max; });
      started_.push_back({std::move(operation), call});
    }
    if (sleeping_.load()) Wake();
  }
  template <typename T>
  Result<T> Await(Result<Operation> operation, CallOptions call) {
    if (!operation.ok()) return operation.status();
    FARLEAF_CHECK(std::this_thread::get_id() != thread_.get_id(),
                  "a callback must not block on an operation: nobody could complete it");
    struct {
      std::mutex mutex;
      std::condition_variable done;
      std::optional<Result<T>> result;
    } outcome;
    operation->callback = Callback<T>([at = &outcome](Result<T> result) {
      // Notified under the lock: the waiter owns the condition and destroys it once it has woken.
      std::lock_guard lock(at->mutex);
      at->result = std::move(result);
      at->done.notify_one();
    });
    Submit(std::move(*operation), call);
    std::unique_lock lock(outcome.mutex);
    outcome.done.wait(lock, [&] { return outcome.result.has_value(); });
    return std::move(*outcome.result);
  }
  std::string TakeFrameBuffer() { return {}; }

 private:
  struct Started {
    Operation operation;
    CallOptions call;
  };

  Client(std::unique_ptr<internal::Router> router, Options options, int wake_fd)
      : options_(std::move(options)),
        clock_(options_.clock ? options_.clock : &own_clock_),
        router_(std::move(router)),
        server_(router_->server()),
        wake_fd_(wake_fd) {
    // Under the lock, so that the thread runs only after thread_ is set.
    std::lock_guard lock(mutex_);
    thread_ = std::thread([this] { Run(); });
  }

  void Wake() {
    const uint64_t one = 1;
    // A full counter means that the wake-up is already on its way.
    [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof one);
  }

  void Run() {
    std::vector<Started> taken;
    while (TakeStarted(&taken)) {
      for (Started& started : taken) router_->Submit(std::move(started.operation), started.call);
      taken.clear();
      // Sequentially consistent with Submit: either we see what was started, or it sees us asleep.
      sleeping_.store(true);
      const bool more = HasStarted();
      router_->Poll(more ? 0 : 1'000, wake_fd_);
      sleeping_.store(false);
      uint64_t count;
      [[maybe_unused]] const ssize_t drained = ::read(wake_fd_, &count, sizeof count);
    }
    for (Started& started : taken) router_->Submit(std::move(started.operation), started.call);
    router_->Close();
  }

  /// Returns false when the client is to stop.
  bool TakeStarted(std::vector<Started>* taken) {
    std::lock_guard lock(mutex_);
    taken->swap(started_);
    pending_ = router_->pending() + taken->size();
    if (pending_ < options_.pending_max) room_.notify_all();
    return !stopping_;
  }
  bool HasStarted() {
    std::lock_guard lock(mutex_);
    return !started_.empty() || stopping_;
  }

  const Options options_;
  const MonotonicClock own_clock_;
  const Clock* const clock_;
  std::unique_ptr<internal::Router> router_;  // the thread's
  const std::string server_;
  const int wake_fd_;
  std::atomic<bool> sleeping_{false};
  std::mutex mutex_;  // guards what follows
  std::condition_variable room_;
  std::vector<Started> started_;
  size_t pending_ = 0;  // in the router, as of the last turn
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace farleaf::client
