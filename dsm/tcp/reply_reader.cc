#include "dsm/tcp/reply_reader.h"

#include <algorithm>
#include <cstring>

#include "dsm/base/bytes.h"

namespace farleaf::dsm {

Status ReplyReader::TakeHeader(std::span<const std::byte> bytes) {
  auto header = ParseReplyHeader(bytes);
  if (!header.ok()) return header.status();
  if (expected_.empty() || header->sequence != expected_.front().sequence) {
    return Status::Corruption("a reply to batch " + std::to_string(header->sequence) +
                              ", which is not the next one expected");
  }
  code_ = header->code;
  if (code_ != StatusCode::kOk) {
    message_bytes_ = header->frame_bytes - kFrameHeaderBytes;
    return Status::Ok();
  }
  uint64_t result_bytes = 0;
  for (const Verb& verb : expected_.front().batch->verbs()) {
    result_bytes += ReplyPayloadBytes(verb.kind, verb.length);
  }
  if (header->frame_bytes != kFrameHeaderBytes + result_bytes) {
    return Status::Corruption("a reply of " + std::to_string(header->frame_bytes) + " bytes, " +
                              std::to_string(kFrameHeaderBytes + result_bytes) + " expected");
  }
  return Status::Ok();
}

void ReplyReader::Advance(size_t* completed) {
  const std::span<const Verb> verbs = expected_.front().batch->verbs();
  while (verb_ < verbs.size() &&
         verb_done_bytes_ == ReplyPayloadBytes(verbs[verb_].kind, verbs[verb_].length)) {
    ++verb_;
    verb_done_bytes_ = 0;
  }
  if (verb_ < verbs.size()) return;
  Batch* batch = expected_.front().batch;
  expected_.pop_front();
  in_result_ = false;
  ++*completed;
  batch->CompleteWith(Status::Ok());
}

Result<size_t> ReplyReader::Consume(std::span<const std::byte> in, size_t* completed) {
  const size_t available = in.size();
  while (true) {
    if (!in_result_) {
      if (in.size() < kFrameHeaderBytes) break;
      FARLEAF_RETURN_IF_ERROR(TakeHeader(in.first(kFrameHeaderBytes)));
      in = in.subspan(kFrameHeaderBytes);
      in_result_ = true;
      verb_ = 0;
      verb_done_bytes_ = 0;
      if (code_ == StatusCode::kOk) Advance(completed);
    } else if (code_ != StatusCode::kOk) {
      if (in.size() < message_bytes_) break;
      Batch* batch = expected_.front().batch;
      expected_.pop_front();
      in_result_ = false;
      ++*completed;
      batch->CompleteWith(Status(code_, std::string(AsChars(in.first(message_bytes_)))));
      in = in.subspan(message_bytes_);
    } else {
      const std::span<std::byte> into = Destination();
      const size_t taken = std::min(into.size(), in.size());
      if (taken == 0) break;
      std::memcpy(into.data(), in.data(), taken);
      in = in.subspan(taken);
      CommitDestination(taken, completed);
    }
  }
  return available - in.size();
}

std::span<std::byte> ReplyReader::Destination() const {
  if (!in_result_ || code_ != StatusCode::kOk) return {};
  const Verb& verb = expected_.front().batch->verbs()[verb_];
  return {verb.local + verb_done_bytes_, verb.length - verb_done_bytes_};
}

void ReplyReader::CommitDestination(size_t bytes, size_t* completed) {
  verb_done_bytes_ += bytes;
  Advance(completed);
}

std::deque<Batch*> ReplyReader::TakeAll() {
  std::deque<Batch*> batches;
  for (const Expected& expected : expected_) batches.push_back(expected.batch);
  expected_.clear();
  in_result_ = false;
  return batches;
}

}  // namespace farleaf::dsm
