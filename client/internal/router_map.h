// The member functions of Router by which it learns who serves what, and the loop.
#pragma once

#include <algorithm>

#include "client/internal/router.h"

namespace farleaf::client::internal {

// ---- Links ----

inline Result<std::unique_ptr<Router>> Router::Connect(std::string_view url,
                                                       const Options& options) {
  std::unique_ptr<Router> router(new Router(options));
  auto session = Session::Connect(url, router->OptionsOf(url));
  if (!session.ok()) return session.status();
  Link& home = router->AddLink("", std::move(*session));
  auto map = home.session->Await<RangeMap>(Session::NewPlain(protocol::Opcode::kRangeMap),
                                           {.deadline_ms = options.connect_timeout_ms});
  if (!map.ok()) return map.status();
  if (!IsWhole(*map)) return NotWhole(home);
  router->Told(home, std::move(map));
  return router;
}

inline void Router::Close() {
  closing_ = true;
  for (auto& [order, operation] : held_) {
    operation.Fail(
        Status::Unavailable(std::string(OpcodeName(operation.opcode)) + ": the client was closed"));
  }
  held_.clear();
  links_.clear();
}

inline Options Router::OptionsOf(std::string_view url) const {
  Options options = options_;
  options.routed_by_caller = true;
  options.pending_max = SIZE_MAX;  // the router counts
  // The carrier is for the server that the application has named; others may be elsewhere.
  if (!links_.empty() && url.starts_with("farleaf:")) options.carrier = Carrier::kSocket;
  return options;
}

inline Link& Router::AddLink(std::string url, std::unique_ptr<Session> session) {
  Link& link = *links_.emplace_back(std::make_unique<Link>());
  link.url = std::move(url);
  link.session = std::move(session);
  link.session->set_tree_handles(&trees_);
  link.session->set_returns(
      [this, &link](Operation operation) { Returned(link, std::move(operation)); });
  return link;
}

inline Link* Router::FindLink(std::string_view url) {
  for (const auto& link : links_) {
    if (link->url == url) return link.get();
  }
  return nullptr;
}

inline Link* Router::LinkTo(Range& range) {
  if (range.link == nullptr) range.link = FindLink(range.url);
  if (range.link == nullptr) {
    auto session = Session::New(range.url, OptionsOf(range.url));
    // Whatever a URL is that this client does not understand: the home forwards.
    range.link = session.ok() ? &AddLink(range.url, std::move(*session)) : &home();
  }
  return range.link;
}

/// For what any server can do.
inline Link& Router::LinkForUnrouted() {
  for (const auto& link : links_) {
    if (link->session->connected()) return *link;
  }
  return home();
}

/// Closes sessions that the map has no use for any more.
inline void Router::Prune() {
  may_prune_ = false;
  for (size_t i = links_.size(); --i > 0;) {
    const Link* const link = links_[i].get();
    const bool used = std::any_of(ranges_.begin(), ranges_.end(),
                                  [&](const Range& range) { return range.link == link; });
    if (used) continue;
    if (!link->settled || link->session->pending() > 0) {
      may_prune_ = true;
      continue;
    }
    for (Range& range : ranges_) std::erase(range.behind, link);
    links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// ---- The map ----

inline void Router::Ask(Link& link, uint64_t now_ns) {
  auto question = Session::NewPlain(protocol::Opcode::kRangeMap);
  question->deadline_ns = now_ns + options_.connect_timeout_ms * kNsPerMs;
  question->callback =
      Callback<RangeMap>([this, &link](Result<RangeMap> map) { Told(link, std::move(map)); });
  link.asked = true;
  // To one that does not agree nothing else is sent.
  link.barrier = !link.agreed;
  link.pause_ms = std::min(std::max(2 * link.pause_ms, kPauseMsMin), kPauseMsMax);
  link.ask_at_ns = now_ns + link.pause_ms * kNsPerMs;
  link.session->Submit(std::move(*question), {});
}

inline void Router::Told(Link& link, Result<RangeMap> map) {
  link.asked = false;
  if (closing_) return;
  if (map.ok() && !IsWhole(*map)) map = NotWhole(link);
  if (!map.ok()) {
    // A connection on which a server does not say even this is as good as lost.
    link.to_drop = !link.settled && link.session->connected() &&
                   map.status().code() == StatusCode::kDeadlineExceeded;
    return;
  }
  link.wanted = false;
  if (link.barrier) link.settled = true;
  if (IsNews(link, *map)) Install(*map, link);
  if (map->view == view_ && link.settled) {
    link.agreed = true;
    link.pause_ms = 0;
    link.session->set_view(view_);
  }
  SendHeld();
  UpdateOnly();
}

/// Views only grow. But a server that serves all keys by its own word begins anew with another life, and where it is
/// gone another one's word counts.
inline bool Router::IsNews(const Link& link, const RangeMap& map) const {
  if (map.view > view_ || ranges_.size() == 0) return true;
  return map.view != view_ && self_ != nullptr && (self_ == &link || !self_->session->connected());
}

inline void Router::Install(const RangeMap& map, Link& from) {
  for (const auto& link : links_) {
    Recall(*link);  // it was routed by the old map
    if (!link->agreed) continue;
    link->agreed = false;
    link->settled = link->session->pending() == 0;
  }
  std::vector<Range> ranges;
  for (const auto& served : map.ranges) ranges.push_back(NewRange(map, served, from));
  RangeTable next(std::move(ranges));
  for (size_t i = 0; i < next.size(); ++i) {
    const bool last = i + 1 == next.size();
    auto& behind = next.at(i).behind;
    const auto add = [&](Link* link) {
      if (link != nullptr && !link->settled && !std::count(behind.begin(), behind.end(), link)) {
        behind.push_back(link);
      }
    };
    ranges_.VisitOverlapping(next.at(i).start,
                             last ? std::nullopt : std::optional(next.at(i + 1).start),
                             [&](Range& old) {
                               add(old.link);
                               for (Link* const link : old.behind) add(link);
                             });
  }
  ranges_ = std::move(next);
  view_ = map.view;
  const bool own =
      ranges_.size() == 1 && (ranges_.at(0).url.empty() || ranges_.at(0).link == &home());
  self_ = own ? ranges_.at(0).link : nullptr;
  may_prune_ = true;
}

inline Range Router::NewRange(const RangeMap& map, const protocol::ServedRange& served,
                              Link& from) {
  Range range;
  range.start = served.start;
  range.url = served.url;
  if (map.ranges.size() == 1) {
    // The server itself, or by its name: a second connection to it would be of no use.
    if (served.url.empty()) range.link = &from;
    if (served.url == home().session->server()) range.link = &home();
  } else if (served.url.empty()) {
    range.link = &home();  // nobody known at this moment: any server waits for one, or forwards
  }
  return range;
}

/// Its server goes by another view, and what else it has been sent may be refused as well.
inline void Router::Refused(Link& link) {
  only_ = nullptr;
  link.agreed = link.settled = false;
  link.wanted = link.to_recall = true;
  if (link.session->server_view() > view_) return;
  // It is about to hear of ours.
  link.ask_at_ns = std::max(link.ask_at_ns, clock_->NowNs() + kPauseMsMin * kNsPerMs);
}

inline void Router::Recall(Link& link) {
  recalling_ = true;
  link.session->Recall();
  recalling_ = false;
}

// ---- The loop ----

inline void Router::UpdateOnly() {
  only_ = nullptr;
  if (ranges_.size() == 1 && held_.empty() && !IsBlocked(ranges_.at(0))) only_ = ranges_.at(0).link;
}

/// What cannot be done in callbacks, or has its time.
inline void Router::Tend(uint64_t now_ns) {
  ExpireHeld(now_ns);
  bool recalled = false, lost = false;
  for (size_t i = 0; i < links_.size(); ++i) {
    Link& link = *links_[i];
    if (std::exchange(link.to_drop, false)) {
      link.session->Reconnect(Status::Unavailable("the server does not answer"));
    }
    const bool connected = link.session->connected();
    // What a lost connection leaves is reads, and what was not sent.
    const bool nothing_sent = !link.settled && !connected;
    if (nothing_sent || link.to_recall) {
      Recall(link);
      recalled = true;
    }
    link.to_recall = false;
    link.settled |= nothing_sent;
    lost |= !connected && (link.wanted || link.session->pending() > 0);
  }
  if (recalled) SendHeld();
  if (only_ == nullptr) UpdateOnly();
  due_ns_ = held_deadline_ns_;
  for (size_t i = 0; i < links_.size(); ++i) {
    Link& link = *links_[i];
    if (!link.wanted || link.asked) continue;
    if (now_ns >= link.ask_at_ns) {
      Ask(link, now_ns);
    } else {
      due_ns_ = std::min(due_ns_, link.ask_at_ns);
    }
  }
  if (lost) LookAround(now_ns);
  if (may_prune_) Prune();
}

/// Asks all who can be reached whether they know better than that an unreachable one serves.
inline void Router::LookAround(uint64_t now_ns) {
  if (now_ns >= look_at_ns_) {
    look_at_ns_ = now_ns + kLookMs * kNsPerMs;
    for (const auto& link : links_) {
      if (link->session->connected() && !link->asked) Ask(*link, now_ns);
    }
  }
  due_ns_ = std::min(due_ns_, look_at_ns_);
}

inline void Router::Poll(uint64_t timeout_ms, int wake_fd) {
  if (only_ != nullptr && links_.size() == 1) {
    only_->session->Poll(timeout_ms, wake_fd);
    return;
  }
  const uint64_t now_ns = clock_->NowNs();
  Tend(now_ns);
  bool come = false;
  for (size_t i = 0; i < links_.size(); ++i) come |= links_[i]->session->Advance();
  if (!come && timeout_ms > 0) Wait(now_ns, timeout_ms, wake_fd);
}

inline void Router::Wait(uint64_t now_ns, uint64_t timeout_ms, int wake_fd) {
  waited_.assign(1, {wake_fd, POLLIN, 0});
  uint64_t due_ns = std::min(due_ns_, now_ns + timeout_ms * kNsPerMs);
  bool come = false;
  for (size_t i = 0; i < links_.size() && !come; ++i) {
    pollfd waited{};
    come = !links_[i]->session->BeginWait(&waited);
    if (come) break;
    waited_.push_back(waited);
    due_ns = std::min(due_ns, links_[i]->session->NextDueNs());
  }
  const uint64_t wait_ns = due_ns > now_ns ? due_ns - now_ns : 0;
  const int ready = come ? 0
                         : ::poll(waited_.data(), waited_.size(),
                                  static_cast<int>((wait_ns + kNsPerMs - 1) / kNsPerMs));
  for (size_t i = 0; i + 1 < waited_.size(); ++i) {
    if (ready <= 0) waited_[i + 1].revents = 0;
    links_[i]->session->EndWait(waited_[i + 1]);
  }
}

}  // namespace farleaf::client::internal
