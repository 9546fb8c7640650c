#include "server/frontend/native_connection.h"

#include <algorithm>
#include <string>
#include <utility>

namespace farleaf::server {

using protocol::FrameLookup;

size_t NativeConnection::BytesWanted() const {
  const FrameLookup found = protocol::FindFrame(unparsed(), frame_bytes_max());
  return found.state == FrameLookup::State::kIncomplete ? found.frame_bytes : 0;
}

bool NativeConnection::TakeInput() {
  if (batch_.count > 0) {
    RunBatch();
    return true;
  }
  const FrameLookup found = protocol::FindFrame(unparsed(), frame_bytes_max());
  if (found.state == FrameLookup::State::kIncomplete) return false;
  if (found.state == FrameLookup::State::kTooLong) {
    const Status why =
        Status::Corruption(greeted_ ? "a frame of " + std::to_string(found.frame_bytes) +
                                          " bytes; at most " + std::to_string(frame_bytes_max()) +
                                          " are allowed (value_bytes_max of the server)"
                                    : "the peer does not speak Farleaf's native protocol");
    TellWhy(why);
    Refuse(why);
    return false;
  }
  Consume(found.frame_bytes);
  if (greeted_) {
    TakeBatch(found.body);
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
  } else if (!runner_->Admits(hello->password)) {
    Refuse(Status::InvalidArgument(hello->password.empty()
                                       ? "this server wants a password (--password-file of the "
                                         "tools, Options::password of the client)"
                                       : "wrong password"));
  } else if (answer.code != StatusCode::kOk) {
    Refuse(Status(answer.code, answer.message));
  }
  AnswerHello(failure(), std::move(answer));
  greeted_ = failure().ok();
}

void NativeConnection::AnswerHello(const Status& outcome, protocol::ServerHello answer) {
  answer.code = outcome.code();
  answer.message = outcome.message();
  answer.in_flight_max = limits_.in_flight_max;
  answer.value_bytes_max = static_cast<uint32_t>(limits_.value_bytes_max);
  AppendServerHello(answer, &out());
}

void NativeConnection::TellWhy(const Status& why) {
  if (!greeted_) return AnswerHello(why, runner_->Hello());
  // Under the id of the first request of the batch at the front, if that has come; none of it was begun.
  constexpr size_t kIdAt = protocol::kBatchHeaderBytes + 4;
  protocol::Response refusal;
  if (unparsed().size() >= kIdAt + 8) refusal.id = LoadLittle<uint64_t>(&unparsed()[kIdAt]);
  refusal.code = why.code();
  refusal.message = why.message();
  AppendResponse(refusal, &out());
}

void NativeConnection::TakeBatch(std::span<const std::byte> body) {
  const auto batch = protocol::ParseBatch(body, &batch_rest_);
  if (!batch.ok()) return Refuse(batch.status());
  if (ring_) {
    const auto reply = ring_->BeginReply(batch->count);
    if (!reply) return Refuse(Status::Corruption("a ring's message that is not one frame"));
    batch_reply_ = *reply;
    Answered(batch_reply_, 0);
  }
  batch_ = *batch;
  batch_taken_ = 0;
  if (batch_.count == 0) return;
  batch_block_ = block();
  RunBatch();
}

void NativeConnection::RunBatch() {
  // View 0: routed by none.
  if (batch_.view != 0 && batch_.view != runner_->view()) {
    RefuseRest();
  } else {
    while (batch_.count > 0 && failure().ok() && !paused()) {
      TakeRequest();
      if (taken_.size() == kTakenTogether) StartTaken();
    }
    StartTaken();
  }
  if (batch_.count > 0 && failure().ok()) return;
  if (!batch_rest_.empty()) Refuse(Status::Corruption("a batch with bytes behind its requests"));
  batch_.count = 0;
  batch_block_.reset();
}

void NativeConnection::RefuseRest() {
  protocol::Response refusal;
  refusal.id = batch_.number;
  refusal.wrong_view = true;
  refusal.refused_from = batch_taken_;
  refusal.view = runner_->view();
  AppendResponse(refusal, &AnswersOf(batch_reply_));
  Answered(batch_reply_, batch_.count);
  batch_.count = 0;
  batch_rest_ = {};
}

// What was not begun is left to the client to be done elsewhere.
void NativeConnection::ServerStops() {
  if (!KnowsGoodbye()) return Connection::ServerStops();
  InputEnded();
  batch_.count = 0;
  batch_rest_ = {};
  batch_block_.reset();
  Consume(unparsed().size());
}

bool NativeConnection::SayGoodbye() {
  if (!KnowsGoodbye()) return false;
  protocol::Response goodbye;
  goodbye.goodbye = true;
  AppendResponse(goodbye, &out());
  return true;
}

void NativeConnection::TakeRequest() {
  protocol::Request& request = taken_.emplace_back().request;
  const size_t before = batch_rest_.size();
  const Status parsed = NextRequest(&batch_rest_, &request);
  if (!parsed.ok()) {
    // Told under the id that could be read, for whoever debugs a client; then the end.
    protocol::Response refusal;
    refusal.id = request.id;
    refusal.opcode = request.opcode;
    refusal.code = parsed.code();
    refusal.message = parsed.message();
    taken_.pop_back();
    StartTaken();  // those before it; nothing is started behind a failure
    AppendResponse(refusal, &out());
    Refuse(parsed);
    return;
  }
  if (batch_.view == 0 && !IsUnrouted(request.opcode, request.max_staleness_ms)) {
    taken_.pop_back();
    return RefuseRest();
  }
  --batch_.count;
  ++batch_taken_;
  const Token token{static_cast<uint32_t>(before - batch_rest_.size()), batch_reply_};
  taken_.back().token = token;
  ++in_flight_;
  request_bytes_ += token.request_bytes;
  const size_t value_bytes = std::max(request.value.size(), request.expected.size());
  if (value_bytes > limits_.value_bytes_max) {
    protocol::Response refusal;
    refusal.id = request.id;
    refusal.opcode = request.opcode;
    refusal.code = StatusCode::kInvalidArgument;
    const std::string message = "a value of " + std::to_string(value_bytes) +
                                " bytes; this server takes " +
                                std::to_string(limits_.value_bytes_max) + " (value_bytes_max)";
    refusal.message = message;
    taken_.pop_back();
    return Answer(refusal, token);
  }
  if (request.opcode == protocol::Opcode::kOpenRing) {
    const protocol::Request alone = std::move(request);
    taken_.pop_back();
    StartTaken();  // it may be refused
    return OpenRing(alone, token);
  }
}

void NativeConnection::StartTaken() {
  if (taken_.empty()) return;
  runner_->StartRequests(*this, batch_block_, taken_);
  taken_.clear();
}

void NativeConnection::Answer(const protocol::Response& response, Token token) {
  FARLEAF_CHECK(in_flight_ > 0 && request_bytes_ >= token.request_bytes, in_flight_,
                request_bytes_);
  --in_flight_;
  request_bytes_ -= token.request_bytes;
  if (abandoned()) return;
  std::string& to = AnswersOf(token.reply);
  const size_t before = to.size();
  AppendResponse(response, &to);
  answer_bytes_ = std::max<uint64_t>(to.size() - before, answer_bytes_ - answer_bytes_ / 8);
  Answered(token.reply, 1);
}

}  // namespace farleaf::server
