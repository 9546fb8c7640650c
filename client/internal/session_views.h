// The member functions of Session by which operations of refused batches are routed and sent anew.
//
// A server refuses what it has not begun of a batch whose view is not its own, and no view of a server
// is ever used again, so what was sent behind a refused batch under the same view is refused as well.
// Refusals come one by one, however, and until the last has come it is not known which operations are
// to be sent before which: so nothing is sent, and what may still be refused is waited for. That is
// about a round trip, since refusals do not wait for the operations before them. It is right also of a
// server that takes such a batch: its operations are not sent twice.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "client/session.h"

namespace farleaf::client {

inline void Session::BatchRefused(const protocol::Response& response) {
  const auto batch = static_cast<uint32_t>(response.id);
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.state != SlotState::kSent || slot.batch != batch) continue;
    if (slot.in_batch < response.refused_from) continue;
    slot.state = SlotState::kQueued;  // it was not executed; until its deadline
    refused_.push_back(i);
  }
  if (!holding_) first_refused_ = batch;
  holding_ = true;
  if (map_asked_) return;
  map_asked_ = true;
  protocol::Request request;
  request.opcode = protocol::Opcode::kRangeMap;
  request.id = kRangeMapId;
  SendUnrouted(request);
}

inline void Session::TakeRangeMap(const protocol::Response& response) {
  if (!map_asked_ || response.opcode != protocol::Opcode::kRangeMap) {
    return Disconnect(Status::Corruption("an answer to no request"));
  }
  map_asked_ = false;
  if (response.code != StatusCode::kOk) {
    return Disconnect(Status(response.code, std::string(response.message)));
  }
  // A session is one connection to one server: what that one does not serve is none of ours.
  if (response.ranges.size() != 1 || !response.ranges.front().url.empty()) {
    return Disconnect(Status::Unavailable("the server does not serve all keys any more"));
  }
  view_ = response.view;
  EndHoldIfClear();
}

/// Ends the hold when nothing is left that may still be refused.
inline void Session::EndHoldIfClear() {
  if (!holding_ || map_asked_) return;
  for (const Slot& slot : slots_) {
    // Batches before the first refused one were taken. Numbers wrap around.
    if (slot.state == SlotState::kSent && static_cast<int32_t>(slot.batch - first_refused_) > 0) {
      return;
    }
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
