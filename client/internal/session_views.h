// The member functions of Session by which operations of refused batches are sent anew, or given back to who routes them.
//
// A server refuses what it has not begun of a batch whose view is not its own, and no view of a server
// is ever used again, so what was sent behind a refused batch under the same view is refused as well.
// Refusals come one by one, however, and until the last has come it is not known which operations are
// to be sent before which: so nothing is sent, and what may still be refused is waited for. That is
// about a round trip, since refusals do not wait for the operations before them. It is right also of a
// server that takes such a batch: its operations are not sent twice.
//
// With Options::routed_by_caller none of this is done: who routes decides, and operations are given back one by one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "client/session.h"

namespace farleaf::client {

/// The batch next_batch_ is encoded.
inline void Session::NoteSent(std::span<const uint32_t> slots) {
  const auto requests = static_cast<uint32_t>(slots.size());
  sent_batches_.push_back({requests, requests, view_});
  sent_slots_.insert(sent_slots_.end(), slots.begin(), slots.end());
  ++next_batch_;
}

/// One of a batch's requests is answered, refused, or waited for no more.
inline void Session::LeaveBatch(const Slot& slot) {
  const uint32_t behind = next_batch_ - slot.batch;          // numbers wrap around
  if (behind == 0 || behind > sent_batches_.size()) return;  // of a connection before this one
  --sent_batches_[sent_batches_.size() - behind].left;
  while (!sent_batches_.empty() && sent_batches_.front().left == 0) {
    sent_slots_.erase(sent_slots_.begin(), sent_slots_.begin() + sent_batches_.front().requests);
    sent_batches_.pop_front();
  }
}

inline void Session::set_view(uint32_t view) {
  FARLEAF_CHECK(options_.routed_by_caller, "the session takes its server's view", view);
  view_ = view;
}

/// It was routed by `view`, which is not the server's.
inline void Session::GiveBack(uint32_t index, uint32_t view) {
  if (returns_) return returns_(Free(index));
  Finish(index,
         Status::Fenced(name_ + ": " + std::string(OpcodeName(slots_[index].operation.opcode)) +
                        ": routed by view " + std::to_string(view) + ", the server's is " +
                        std::to_string(server_view_)));
}

inline void Session::GiveBackQueued(Which which) {
  std::deque<uint32_t> queued = std::exchange(queue_, {});
  for (const uint32_t index : queued) {
    if (slots_[index].state != SlotState::kQueued) continue;
    if (which == Which::kRouted && slots_[index].operation.unrouted()) {
      queue_.push_back(index);
    } else {
      GiveBack(index, view_);
    }
  }
}

inline void Session::BatchRefused(const protocol::Response& response) {
  server_view_ = response.view;
  const auto batch = static_cast<uint32_t>(response.id);
  const uint32_t behind = next_batch_ - batch;
  if (behind == 0 || behind > sent_batches_.size()) return;  // nobody waits for it any more
  size_t first = sent_slots_.size();
  for (uint32_t i = 1; i <= behind; ++i) first -= sent_batches_[sent_batches_.size() - i].requests;
  const uint32_t requests = sent_batches_[sent_batches_.size() - behind].requests,
                 view = sent_batches_[sent_batches_.size() - behind].view;
  const std::vector<uint32_t> slots(
      sent_slots_.begin() + static_cast<std::ptrdiff_t>(first),
      sent_slots_.begin() + static_cast<std::ptrdiff_t>(first + requests));
  for (uint32_t i = response.refused_from; i < requests; ++i) {
    Slot& slot = slots_[slots[i]];
    if (slot.state != SlotState::kSent || slot.batch != batch) continue;
    if (options_.routed_by_caller) {
      GiveBack(slots[i], view);
      continue;
    }
    slot.state = SlotState::kQueued;  // it was not executed; until its deadline
    LeaveBatch(slot);
    refused_.push_back(slots[i]);
  }
  if (options_.routed_by_caller) return;
  if (!holding_) first_refused_ = batch;
  holding_ = true;
  if (map_asked_) return;
  map_asked_ = true;
  protocol::Request request;
  request.opcode = protocol::Opcode::kRangeMap;
  request.id = kRangeMapId;
  SendUnrouted(request);
}

/// What it has not answered it has not begun, of whatever batch: that is done by another connection, with what was refused before in the order in which they
/// were started, and in front of what is queued.
inline void Session::TakeGoodbye() {
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].state != SlotState::kSent) continue;
    slots_[i].state = SlotState::kQueued;
    refused_.push_back(i);
  }
  Disconnect(Status::Unavailable("the server stops"));
}

inline void Session::TakeRangeMap(const protocol::Response& response) {
  if (!map_asked_ || response.opcode != protocol::Opcode::kRangeMap) {
    return Disconnect(Status::Corruption("an answer to no request"));
  }
  map_asked_ = false;
  if (response.code != StatusCode::kOk) {
    return Disconnect(Status(response.code, std::string(response.message)));
  }
  // Whatever it says of other servers: this one forwards what is theirs.
  server_view_ = view_ = response.view;
  EndHoldIfClear();
}

/// Ends the hold when nothing is left that may still be refused.
inline void Session::EndHoldIfClear() {
  if (!holding_ || map_asked_) return;
  // Batches before the first refused one were taken.
  const uint32_t behind = next_batch_ - first_refused_ - 1;
  for (uint32_t i = 1; i <= behind && i <= sent_batches_.size(); ++i) {
    if (sent_batches_[sent_batches_.size() - i].left > 0) return;
  }
  EndHold();
}

inline void Session::EndHold() {
  holding_ = false;
  map_asked_ = false;
  RequeueInFront(std::exchange(refused_, {}));
}

/// In the order in which they were started, before all that are queued.
inline void Session::RequeueInFront(std::vector<uint32_t> indexes) {
  std::sort(indexes.begin(), indexes.end(),
            [this](uint32_t a, uint32_t b) { return slots_[a].order > slots_[b].order; });
  for (const uint32_t index : indexes) {
    // One that has ended since is in other use, or in none.
    if (slots_[index].state == SlotState::kFree) continue;
    slots_[index].state = SlotState::kQueued;
    queue_.push_front(index);
  }
}

}  // namespace farleaf::client
