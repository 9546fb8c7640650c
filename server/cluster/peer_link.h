// PeerLink: a node's way to one other node: a session of the native protocol (client/session.h) on a thread of its own, shared by all
// workers of this node.
//
// Why a thread, and not a session a worker: whoever waits for an answer then sleeps in its worker's own loop and is woken by
// Worker::ResumeSoon, as by any other thread; a session that a worker polls would cost it a system call a turn, or the answer up to the
// millisecond that a server's thread sleeps. And connecting, which blocks, blocks nobody else.
//
// Invariants:
//   - a session lives no longer than its connection: when that is lost, what is known not to have run, and reads, end with Unavailable,
//     writes that may have run with Unknown, and the next request connects again;
//   - a request is sent under the view by which it was routed, or under a later one, never under an earlier one than the requests before.
//
// Thread rule: Submit is thread-safe; made and destroyed by one thread, when no request is left. A request is begun and ended on the link's
// thread, and resumes its coroutine on that one's worker, which outlives it.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "client/session.h"
#include "dsm/op_context.h"

namespace farleaf::server::cluster {

/// One request to a peer. It is in the frame of the coroutine that waits for its end.
class PeerRequest {
 public:
  /// What it is about. All of it outlives the request.
  struct About {
    std::string_view tree;     ///< its name
    uint32_t view = 0;         ///< of the table by which it was routed
    uint64_t deadline_ns = 0;  ///< on the link's clock
    WriteDurability durability = WriteDurability::kOfStore;
  };

  explicit PeerRequest(const About& about) : about_(about) {}
  PeerRequest(const PeerRequest&) = delete;
  virtual ~PeerRequest() = default;
  const About& about() const { return about_; }
  void set_waiter(dsm::Worker* worker, std::coroutine_handle<> waiter) {
    worker_ = worker;
    waiter_ = waiter;
  }

  // On the link's thread, one of them, once:
  /// Starts the operation, whose callback ends the request.
  virtual void Start(client::SessionTree& tree, client::CallOptions call) = 0;
  /// It was not sent.
  virtual void Fail(const Status& why) = 0;

 protected:
  /// What the coroutine is to find is in its place. The request may be gone when this returns.
  void Ended() { worker_->ResumeSoon(waiter_); }

 private:
  const About about_;
  dsm::Worker* worker_ = nullptr;
  std::coroutine_handle<> waiter_;
};

class PeerLink {
 public:
  struct Counts {
    std::atomic<uint64_t> requests{0};     ///< started
    std::atomic<uint64_t> connects{0};     ///< sessions that were opened
    std::atomic<uint64_t> unreachable{0};  ///< requests that found no connection
  };

  /// `clock` and `counts` outlive it. Of `options`, the deadline is the requests' own.
  PeerLink(std::string url, const client::Options& options, const Clock* clock, Counts* counts);
  /// What is left ends: Unavailable, or Unknown.
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;

  void Submit(PeerRequest* request);

 private:
  /// A tree of the session. While it is being opened, who wants it waits.
  struct Tree {
    std::optional<client::SessionTree> open;
    std::vector<PeerRequest*> waiting;
  };

  void Run();
  bool TakeStarted(std::vector<PeerRequest*>* taken);
  bool HasStarted();
  void Wake();
  void Wait();
  // Of the link's thread.
  void Begin(PeerRequest* request);
  Status Connect();
  void UseView(uint32_t view);
  void Open(const std::string& name);
  void Opened(const std::string& name, Result<client::OpenedTree> opened);
  void Start(client::SessionTree& tree, PeerRequest* request);
  void DropSession();

  const std::string url_;
  const client::Options options_;
  const Clock* const clock_;
  Counts* const counts_;
  const int wake_fd_;
  std::mutex mutex_;  // guards started_ and stopping_
  std::vector<PeerRequest*> started_;
  bool stopping_ = false;
  std::atomic<bool> sleeping_{false};

  // Of the link's thread.
  std::unique_ptr<client::Session> session_;  // null: there is no connection
  uint32_t view_ = 0;                         // of what was sent last through it
  std::map<std::string, Tree, std::less<>> trees_;
  Status why_not_;            // connected, when that was last tried
  uint64_t retry_at_ns_ = 0;  // not before
  std::thread thread_;        // the last member: it uses all others
};

}  // namespace farleaf::server::cluster
