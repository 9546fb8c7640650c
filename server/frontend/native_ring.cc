// NativeConnection over a ring.
#include <algorithm>
#include <utility>

#include "server/frontend/native_connection.h"

namespace farleaf::server {

namespace ring = client::ring;

namespace {
constexpr uint32_t kMessagesMax = 1024;
}  // namespace

void NativeConnection::OpenRing(const protocol::Request& request, Token token) {
  protocol::Response answer;
  answer.id = request.id;
  answer.opcode = request.opcode;
  const auto refuse = [&](StatusCode code, std::string_view message) {
    answer.code = code;
    answer.message = message;
    Answer(answer, token);
  };
  if (!peer_is_local()) return refuse(StatusCode::kInvalidArgument, "a ring needs a Unix socket");
  if (limits_.ring_bytes_max == 0) {
    return refuse(StatusCode::kUnimplemented, "this server opens no rings (ring_bytes_max is 0)");
  }
  // What else comes on the socket from here on would be taken for wake-ups.
  if (ring_ || in_flight_ > 1 || batch_.count > 0 || !unparsed().empty()) {
    return Refuse(Status::Corruption("a request for a ring that is not alone"));
  }
  auto opened = runner_->OpenRing(request.ring, limits_.ring_bytes_max, &descriptor_to_send());
  if (!opened.ok()) {
    const std::string message(opened.status().message());
    return refuse(opened.status().code(), message);
  }
  answer.ring = (*opened)->bytes();
  Answer(answer, token);  // still on the socket
  ring_ = std::move(*opened);
}

void NativeConnection::TakeRing() {
  if (abandoned()) return;
  Continue();
  DeliverDeferred();
  // As many as a client of ours has unanswered at once: one that goes on sending does not keep the thread from
  // others, and what is left keeps the ring ready.
  const uint32_t messages_max = std::min(limits_.in_flight_max, kMessagesMax);
  for (uint32_t i = 0; failure().ok() && i < messages_max; ++i) {
    const auto next = ring_->half().Next();
    if (!next.ok()) return Refuse(next.status());
    if (!next->has_value()) return;
    const ring::ArrivedMessage& message = **next;
    // The client's own requests for the rest of answers must not wait behind requests that wait for room.
    if (message.kind == ring::Kind::kWhole && !ring_->assembling() && !ring_->has_deferred() &&
        ReadyForFrame()) {
      DeliverFromRing(message);
      continue;
    }
    const auto wake = message.kind == ring::Kind::kContinue
                          ? ring_->Continue(message)
                          : ring_->TakeAside(message, frame_bytes_max() + size_t{4});
    if (!wake.ok()) return Refuse(wake.status());
    if (*wake) out().push_back(kWakeByte);
    Continue();
    DeliverDeferred();
  }
}

/// Copies a message's frame to where frames are parsed.
void NativeConnection::DeliverFromRing(const ring::ArrivedMessage& message) {
  if (!unparsed().empty()) {
    return Refuse(Status::Corruption("a ring's message that is not one frame"));
  }
  ring_->ExpectFrame(message.reply);
  size_t copied = 0;
  while (copied < message.payload_bytes) {
    const auto space = InputSpace();
    const size_t count = std::min(space.size() / 8 * 8, message.payload_bytes - copied);
    ring_->half().Copy(message, copied, space.first(count));
    copied += count;
    if (copied == message.payload_bytes) ring_->half().Take(message);
    InputArrived(count);
  }
  if (message.payload_bytes == 0) Refuse(Status::Corruption("a ring's message without a frame"));
}

void NativeConnection::DeliverDeferred() {
  while (ring_->has_deferred() && ReadyForFrame()) {
    if (!unparsed().empty()) {
      return Refuse(Status::Corruption("a ring's message that is not one frame"));
    }
    const RingChannel::Deferred next = ring_->TakeDeferred();
    ring_->ExpectFrame(next.slot);
    std::span<const std::byte> rest = AsBytes(next.frame);
    while (!rest.empty()) {
      const auto space = InputSpace();
      const size_t count = std::min(space.size(), rest.size());
      std::copy_n(rest.begin(), count, space.begin());
      rest = rest.subspan(count);
      InputArrived(count);
    }
  }
}

}  // namespace farleaf::server
