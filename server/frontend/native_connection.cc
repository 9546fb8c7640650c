#include "server/frontend/native_connection.h"

#include <string>
#include <utility>

namespace farleaf::server {

using protocol::FrameLookup;

size_t NativeConnection::BytesWanted() const {
  const FrameLookup found = protocol::FindFrame(unparsed(), frame_bytes_max());
  return found.state == FrameLookup::State::kIncomplete ? found.frame_bytes : 0;
}

bool NativeConnection::TakeInput() {
  const FrameLookup found = protocol::FindFrame(unparsed(), frame_bytes_max());
  if (found.state == FrameLookup::State::kIncomplete) return false;
  if (found.state == FrameLookup::State::kTooLong) {
    Refuse(Status::Corruption(
        greeted_ ? "a frame of " + std::to_string(found.frame_bytes) + " bytes; at most " +
                       std::to_string(protocol::kFrameBytesMax) + " are allowed"
                 : "the peer does not speak Farleaf's native protocol"));
    return false;
  }
  Consume(found.frame_bytes);
  if (greeted_) {
    TakeRequest(found.body);
  } else {
    TakeHello(found.body);
  }
  return true;
}

void NativeConnection::TakeHello(std::span<const std::byte> body) {
  protocol::ServerHello answer = runner_->Hello();
  const auto hello = protocol::ParseClientHello(body);
  if (!hello.ok()) {
    Refuse(hello.status());
  } else if (hello->version != protocol::kVersion) {
    Refuse(Status::InvalidArgument(
        "this server speaks version " + std::to_string(protocol::kVersion) +
        " of the protocol, the client version " + std::to_string(hello->version) +
        "; use a client of the server's release"));
  } else if (answer.code != StatusCode::kOk) {
    Refuse(Status(answer.code, answer.message));
  }
  answer.code = failure().code();
  answer.message = failure().message();
  answer.in_flight_max = limits_.in_flight_max;
  AppendServerHello(answer, &out());
  greeted_ = failure().ok();
}

void NativeConnection::TakeRequest(std::span<const std::byte> body) {
  protocol::Request request;
  const Status parsed = ParseRequest(body, &request);
  if (!parsed.ok()) {
    // Told under the id that could be read, for whoever debugs a client; then the end.
    protocol::Response refusal;
    refusal.id = request.id;
    refusal.opcode = request.opcode;
    refusal.code = parsed.code();
    refusal.message = parsed.message();
    AppendResponse(refusal, &out());
    Refuse(parsed);
    return;
  }
  ++in_flight_;
  runner_->StartRequest(*this, block(), std::move(request));
}

}  // namespace farleaf::server
