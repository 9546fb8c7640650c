#include "server/frontend/native_connection.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dsm/base/check.h"

namespace farleaf::server {

using protocol::FrameLookup;

std::span<std::byte> NativeConnection::InputSpace() {
  const auto rest = unparsed();
  const uint32_t limit = greeted_ ? protocol::kFrameBytesMax : protocol::kHelloBytesMax;
  const FrameLookup found = protocol::FindFrame(rest, limit);
  const bool known = found.state == FrameLookup::State::kIncomplete;
  const size_t wanted = std::max(rest.size() + kSpaceBytesMin, known ? found.frame_bytes : 0);
  if (block_ && begin_ == end_ && block_->use_count() == 1) begin_ = end_ = 0;
  if (!block_ || block_->bytes().size() - begin_ < wanted) {
    const bool reusable = block_ && block_->use_count() == 1 && block_->bytes().size() >= wanted;
    InputBlockRef next =
        reusable ? block_ : InputBlockRef(new InputBlock(std::max(kBlockBytes, wanted)));
    if (!rest.empty()) std::memmove(next->bytes().data(), rest.data(), rest.size());
    block_ = std::move(next);
    end_ = rest.size();
    begin_ = 0;
  }
  return block_->bytes().subspan(end_);
}

void NativeConnection::InputArrived(size_t count) {
  FARLEAF_CHECK(block_ && end_ + count <= block_->bytes().size(), end_, count);
  end_ += count;
  Continue();
}

void NativeConnection::Continue() {
  // A request that is answered at once does not parse on from within its own parsing.
  if (parsing_) return;
  parsing_ = true;
  while (failure_.ok() && !paused()) {
    const uint32_t limit = greeted_ ? protocol::kFrameBytesMax : protocol::kHelloBytesMax;
    const FrameLookup found = protocol::FindFrame(unparsed(), limit);
    if (found.state == FrameLookup::State::kIncomplete) break;
    if (found.state == FrameLookup::State::kTooLong) {
      failure_ = Status::Corruption(
          greeted_ ? "a frame of " + std::to_string(found.frame_bytes) + " bytes; at most " +
                         std::to_string(protocol::kFrameBytesMax) + " are allowed"
                   : "the peer does not speak Farleaf's native protocol");
      break;
    }
    begin_ += found.frame_bytes;
    if (greeted_) {
      TakeRequest(found.body);
    } else {
      TakeHello(found.body);
    }
  }
  parsing_ = false;
  if (block_ && begin_ == end_ && block_->bytes().size() > kKeptBytesMax) {
    block_.reset();
    begin_ = end_ = 0;
  }
}

void NativeConnection::TakeHello(std::span<const std::byte> body) {
  protocol::ServerHello answer = runner_->Hello();
  const auto hello = protocol::ParseClientHello(body);
  if (!hello.ok()) {
    failure_ = hello.status();
  } else if (hello->version != protocol::kVersion) {
    failure_ = Status::InvalidArgument(
        "this server speaks version " + std::to_string(protocol::kVersion) +
        " of the protocol, the client version " + std::to_string(hello->version) +
        "; use a client of the server's release");
  } else if (answer.code != StatusCode::kOk) {
    failure_ = Status(answer.code, answer.message);
  }
  answer.code = failure_.code();
  answer.message = failure_.message();
  answer.in_flight_max = limits_.in_flight_max;
  AppendServerHello(answer, &out_);
  greeted_ = failure_.ok();
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
    AppendResponse(refusal, &out_);
    failure_ = parsed;
    return;
  }
  ++in_flight_;
  runner_->StartRequest(*this, block_, std::move(request));
}

void NativeConnection::OutputSent(size_t count) {
  out_sent_ += count;
  FARLEAF_CHECK(out_sent_ <= out_.size(), out_sent_, out_.size());
  if (out_sent_ < out_.size()) return;
  out_.clear();
  out_sent_ = 0;
  if (out_.capacity() > kKeptBytesMax) std::string().swap(out_);
}

}  // namespace farleaf::server
