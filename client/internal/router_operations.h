// The member functions of Router by which operations are sent, held and given back.
#pragma once

#include <algorithm>
#include <iterator>

#include "client/internal/router.h"

namespace farleaf::client::internal {

/// Of an operation that names one: the first field of its request.
inline std::string_view KeyOf(const Operation& operation) {
  constexpr size_t kKeyAt = protocol::kRequestDeadlineAt + 4 + 1;
  const char* const at = operation.frame.data() + kKeyAt;
  return {at + 4, LoadLittle<uint32_t>(at)};
}

inline void Router::Refuse(Operation* operation) {
  if (closing_) return operation->Fail(Status::Unavailable("the client is being closed"));
  operation->Fail(Status::ResourceExhausted(server() + ": " + std::to_string(pending()) +
                                            " operations are pending, the limit of this client"));
}

/// What is held of its range holds it, too: ranges are sent to as soon as they are blocked no more.
inline void Router::Place(Operation operation) {
  if (Send(&operation)) return;
  held_deadline_ns_ = std::min(held_deadline_ns_, operation.deadline_ns);
  const uint64_t order = operation.order;
  held_.emplace(order, std::move(operation));
}

/// False: it has to wait.
inline bool Router::Send(Operation* operation) {
  if (operation->unrouted()) {
    LinkForUnrouted().session->Submit(std::move(*operation), {});
    return true;
  }
  if (operation->opcode == protocol::Opcode::kScan) return SendScan(operation);
  if (operation->opcode == protocol::Opcode::kMultiGet) return SendMultiGet(operation);
  Range& range = ranges_.at(ranges_.Find(KeyOf(*operation)));
  if (IsBlocked(range)) return false;
  range.link->session->Submit(std::move(*operation), {});
  return true;
}

inline bool Router::SendScan(Operation* operation) {
  const TreeInfo& tree = trees_.tree(operation->tree);
  const size_t i = ranges_.FindForScan(operation->pieces->range, tree);
  if (IsBlocked(ranges_.at(i))) return false;
  ranges_.CutScan(i, tree, operation->pieces.get());
  EncodeNextPiece(operation);
  ranges_.at(i).link->session->Submit(std::move(*operation), {});
  return true;
}

inline bool Router::SendMultiGet(Operation* operation) {
  struct Part {
    Link* link;
    std::vector<size_t> numbers;
  };
  std::vector<Part> parts;
  bool blocked = false;
  const Operation::Pieces& pieces = *operation->pieces;
  if (pieces.keys.empty()) {
    Range& first = ranges_.at(0);  // any answers it
    blocked = IsBlocked(first);
    parts.push_back({first.link, {}});
  }
  for (size_t i = pieces.values.size(); i < pieces.keys.size(); ++i) {
    Range& range = ranges_.at(ranges_.Find(pieces.keys[i]));
    blocked |= IsBlocked(range);
    auto part = std::find_if(parts.begin(), parts.end(),
                             [&](const Part& each) { return each.link == range.link; });
    if (part == parts.end()) part = parts.insert(part, {range.link, {}});
    part->numbers.push_back(i);
  }
  if (blocked) return false;
  if (parts.size() == 1) {
    parts.front().link->session->Submit(std::move(*operation), {});
    return true;
  }
  const auto joined = std::make_shared<JoinedReads>(std::move(*operation), parts.size());
  for (Part& part : parts) {
    part.link->session->Submit(JoinedReads::TakeFrom(joined, std::move(part.numbers)), {});
  }
  return true;
}

/// Whether nothing may be sent to its server now. What that waits for is asked from then on.
inline bool Router::IsBlocked(Range& range) {
  Link* const link = LinkTo(range);
  std::erase_if(range.behind, [](const Link* each) { return each->settled; });
  for (Link* const each : range.behind) each->wanted = true;
  if (!link->agreed) link->wanted = true;
  return !link->agreed || !range.behind.empty();
}

/// In their order, as far as they may go.
inline void Router::SendHeld() {
  for (auto at = held_.begin(); at != held_.end();) {
    at = Send(&at->second) ? held_.erase(at) : std::next(at);
  }
}

inline void Router::ExpireHeld(uint64_t now_ns) {
  if (now_ns < held_deadline_ns_) return;
  std::vector<Operation> expired;
  held_deadline_ns_ = UINT64_MAX;
  for (auto at = held_.begin(); at != held_.end();) {
    if (at->second.deadline_ns <= now_ns) {
      expired.push_back(std::move(at->second));
      at = held_.erase(at);
    } else {
      held_deadline_ns_ = std::min(held_deadline_ns_, at->second.deadline_ns);
      ++at;
    }
  }
  for (Operation& operation : expired) operation.Fail(LateStatus(operation));
}

inline Status Router::LateStatus(const Operation& operation) {
  const std::string name(OpcodeName(operation.opcode));
  const auto lost = std::find_if(links_.begin(), links_.end(), [](const auto& link) {
    return link->wanted && !link->session->connected();
  });
  if (lost == links_.end()) {
    return Status::DeadlineExceeded(name + ": until its deadline the servers had not agreed on " +
                                    "who serves it");
  }
  const Session& session = *(*lost)->session;
  return Status::Unavailable(
      session.server() + ": " + name +
      ": not connected until its deadline: " + std::string(session.last_error().message()));
}

/// One that was refused, or not sent, or a scan whose part is done.
inline void Router::Returned(Link& link, Operation operation) {
  if (operation.opcode == protocol::Opcode::kRangeMap) {
    link.asked = false;  // the router's own: it asks again
    return;
  }
  const bool done = operation.pieces && operation.pieces->part_done;
  if (operation.pieces && operation.pieces->beyond) JoinScan(operation.pieces.get());
  if (done) return Place(std::move(operation));
  if (!recalling_) Refused(link);
  held_deadline_ns_ = std::min(held_deadline_ns_, operation.deadline_ns);
  const uint64_t order = operation.order;
  held_.emplace(order, std::move(operation));
}

}  // namespace farleaf::client::internal
