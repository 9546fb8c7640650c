// PeerClient: requests to other nodes, over the native protocol, one link (peer_link.h) a node.
//
// How a request ends, beside what the operation says (client/tree.h): Unavailable, Fenced: nothing was done, and another route may do;
// Unknown: a write was sent, and its answer never came; DeadlineExceeded: the operation's deadline has passed, and nothing was done.
//
// Thread rule: thread-safe. It outlives what it was asked; destroyed by one thread, when nothing is left of that.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "client/options.h"
#include "client/tree.h"
#include "dsm/op_context.h"
#include "dsm/task.h"
#include "server/cluster/peer_link.h"

namespace farleaf::server::cluster {

struct PeerOptions {
  /// Of each link: password, TLS, batches. What routing needs is set here.
  client::Options session;
  /// A read that has no answer by then is routed anew: its node may be gone, and another one in its place.
  uint64_t read_attempt_ms = 2'000;
  /// Of operations without a deadline of their own.
  uint64_t write_ms_max = 60'000;
};

/// A tree at a node, and the view of the table that named the node. What is viewed outlives the request.
struct PeerTree {
  std::string_view url;
  uint32_t view = 0;
  std::string_view tree;
};

class PeerClient {
 public:
  enum class Kind : uint8_t { kRead, kWrite };
  /// Starts one operation on the tree; runs on the link's thread, while whoever asks waits.
  template <typename T>
  using StartFunction =
      std::function<void(client::SessionTree&, client::Callback<T>, client::CallOptions)>;

  /// `clock` is that of the workers, and outlives it.
  PeerClient(PeerOptions options, const Clock* clock);

  /// One request, which counts as one round trip.
  template <typename T>
  dsm::Task<Result<T>> Ask(dsm::OpContext& op, PeerTree to, Kind kind, StartFunction<T> start) {
    const uint64_t now_ns = clock_->NowNs();
    const uint64_t attempt_ms =
        kind == Kind::kRead ? options_.read_attempt_ms : options_.write_ms_max;
    Request<T> request(
        {to.tree, to.view, std::min(op.deadline_ns, now_ns + attempt_ms * kNsPerMs), op.durability},
        std::move(start));
    ++op.counts.round_trips;
    Sent sent{LinkTo(to.url), &request, &op.worker};
    co_await sent;
    Result<T> result = request.Take();
    // Of a read: it is this attempt whose time is over.
    if (kind == Kind::kRead && result.status().code() == StatusCode::kDeadlineExceeded &&
        !op.expired()) {
      co_return Status::Unavailable(result.status().ToString());
    }
    co_return result;
  }

  const PeerLink::Counts& counts() const { return counts_; }

 private:
  template <typename T>
  class Request final : public PeerRequest {
   public:
    Request(const About& about, StartFunction<T> start)
        : PeerRequest(about), start_(std::move(start)) {}
    void Start(client::SessionTree& tree, client::CallOptions call) override {
      start_(
          tree, [this](Result<T> result) { End(std::move(result)); }, call);
    }
    void Fail(const Status& why) override { End(why); }
    Result<T> Take() { return std::move(*result_); }

   private:
    void End(Result<T> result) {
      result_.emplace(std::move(result));
      Ended();
    }
    const StartFunction<T> start_;
    std::optional<Result<T>> result_;
  };

  /// Resumed by the request's end. That may come before Submit has returned, but then only takes a place in the worker's queue.
  struct Sent {
    PeerLink* link;
    PeerRequest* request;
    dsm::Worker* worker;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter) const {
      request->set_waiter(worker, waiter);
      link->Submit(request);
    }
    void await_resume() const noexcept {}
  };

  PeerLink* LinkTo(std::string_view url);

  const PeerOptions options_;
  const Clock* const clock_;
  PeerLink::Counts counts_;  // of all links
  std::mutex mutex_;         // guards links_; the links in it stay
  std::map<std::string, std::unique_ptr<PeerLink>, std::less<>> links_;  // by url
};

}  // namespace farleaf::server::cluster
