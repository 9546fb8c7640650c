// Router: sessions with all servers of a cluster, and the map of ranges by which operations go to them. It is driven by its
// caller, as a Session is; a Client has one on its thread.
//
// Each server says which map it goes by, and refuses operations that were routed by another. So the router sends to a
// server when that one has said the router's own view (it *agrees*), and not before. A refusal, or any server's newer map, puts
// an end to that; what is started meanwhile is held here, with what was refused, in the order of their start.
//
// Invariants (README.md, "Routing", has the argument):
//   - an operation is with one session, or held, or in parts (scans in one at a time);
//   - it is sent anew only if it was refused or has never been sent, or if it is a read;
//   - operations on one key are begun in the order of their start: those that are held go first, and none goes to a range
//     while a server that had keys of it may still begin or refuse what it was sent under an older view (Range::behind).
//     A server's answer to a question that was sent behind all of that ends this (the link is *settled*);
//   - with one range, whose server agrees, an operation goes through the session as if there were no router.
// Thread rule: one thread. Callbacks may start operations, but not Poll or destroy the router.
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/internal/joined_reads.h"
#include "client/internal/range_table.h"
#include "client/internal/tree_handles.h"
#include "client/session.h"

namespace farleaf::client::internal {

/// A session with one server, or with the first that answers of those the application has named (the home).
struct Link {
  std::string url;
  std::unique_ptr<Session> session;
  bool agreed = false;   ///< its server has said the router's view, and not refused it since
  bool settled = true;   ///< nothing sent to it under an older view may still be begun or refused
  bool wanted = false;   ///< something is held until it is settled, or agrees
  bool asked = false;    ///< for its map, and has not answered
  bool barrier = false;  ///< it was asked behind all that it was sent
  bool to_recall = false, to_drop = false;  ///< outside of callbacks
  uint64_t ask_at_ns = 0;                   ///< not before
  uint64_t pause_ms = 0;                    ///< between questions
};

class Router {
 public:
  /// Blocks until the first of the servers in `url` that answers has told its map.
  static Result<std::unique_ptr<Router>> Connect(std::string_view url, const Options& options);
  ~Router() { Close(); }
  Router(const Router&) = delete;

  /// REQUIRES: the operation has a deadline.
  void Submit(Operation&& operation, CallOptions call) {
    if (closing_ || pending() >= options_.pending_max) return Refuse(&operation);
    operation.order = next_order_++;
    const bool routed = operation.max_staleness_ms == 0;  // else the home may have a copy
    if (only_ != nullptr && routed) return only_->session->Submit(std::move(operation), call);
    Place(std::move(operation));
  }
  /// Operations that have not ended end with Unavailable or Unknown, and others that are started fail. REQUIRES: not
  /// in a callback.
  void Close();
  /// As Session::Poll.
  void Poll(uint64_t timeout_ms, int wake_fd);
  /// Operations that have not ended; of one in parts these.
  size_t pending() const {
    size_t all = held_.size();
    for (const auto& link : links_) all += link->session->pending();
    return all;
  }
  /// That which the application has named, and which has answered.
  const std::string& server() const { return links_.front()->session->server(); }
  /// What its servers went by when they last said so.
  uint32_t view() const { return view_; }

 private:
  static constexpr uint64_t kPauseMsMin = 2, kPauseMsMax = 16;  // between questions to one server
  static constexpr uint64_t kLookMs = 50;  // between questions to others about an unreachable one

  explicit Router(const Options& options)
      : options_(options), clock_(options.clock ? options.clock : &own_clock_) {}

  // Links.
  Options OptionsOf(std::string_view url) const;
  Link& AddLink(std::string url, std::unique_ptr<Session> session);
  Link* LinkTo(Range& range);
  Link* FindLink(std::string_view url);
  Link& home() { return *links_.front(); }
  Link& LinkForUnrouted();
  void Prune();

  // Operations (router_operations.h).
  void Refuse(Operation* operation);
  void Place(Operation operation);
  bool Send(Operation* operation);
  bool SendScan(Operation* operation);
  bool SendMultiGet(Operation* operation);
  bool IsBlocked(Range& range);
  void SendHeld();
  void ExpireHeld(uint64_t now_ns);
  Status LateStatus(const Operation& operation);
  void Returned(Link& link, Operation operation);

  // The map (router_map.h).
  void Ask(Link& link, uint64_t now_ns);
  void Told(Link& link, Result<RangeMap> map);
  bool IsNews(const Link& link, const RangeMap& map) const;
  void Install(const RangeMap& map, Link& from);
  Range NewRange(const RangeMap& map, const protocol::ServedRange& served, Link& from);
  static Status NotWhole(const Link& link) {
    return Status::Corruption(link.session->server() + ": a map that does not cover all keys");
  }
  void Refused(Link& link);
  void Recall(Link& link);
  void Tend(uint64_t now_ns);
  void LookAround(uint64_t now_ns);
  void UpdateOnly();
  void Wait(uint64_t now_ns, uint64_t timeout_ms, int wake_fd);

  const Options options_;
  const MonotonicClock own_clock_;
  const Clock* const clock_;
  TreeHandles trees_;
  std::vector<std::unique_ptr<Link>> links_;  // the home first; they stay where they are
  RangeTable ranges_;
  uint32_t view_ = 0;
  Link* self_ = nullptr;  // the one range's server, by whose word alone it is
  Link* only_ = nullptr;  // the link for all that is not stale, while nothing else is to be thought of
  uint64_t next_order_ = 0;
  std::multimap<uint64_t, Operation> held_;  // by their order
  uint64_t held_deadline_ns_ = UINT64_MAX;   // no held one's is earlier
  uint64_t look_at_ns_ = 0;
  bool recalling_ = false;
  bool may_prune_ = false;  // there may be links without a use
  bool closing_ = false;
  uint64_t due_ns_ = UINT64_MAX;  // when the router itself has something to do, as of Tend
  std::vector<pollfd> waited_;
};

}  // namespace farleaf::client::internal

#include "client/internal/router_map.h"
#include "client/internal/router_operations.h"
