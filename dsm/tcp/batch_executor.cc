#include "dsm/tcp/batch_executor.h"

#include <algorithm>

#include "dsm/base/bytes.h"
#include "dsm/shm/mapped_verbs.h"

namespace farleaf::dsm {

Result<size_t> BatchExecutor::Consume(std::span<const std::byte> in, ByteQueue* out) {
  const size_t available = in.size();
  bool proceeds = true;
  while (proceeds && broken_.ok() && out->room() >= kOutputRoomMin) {
    switch (state_) {
      case State::kHeader:
        proceeds = TakeHeader(&in);
        break;
      case State::kVerbs:
        proceeds = TakeVerbs(&in, out);
        break;
      case State::kRun:
        proceeds = RunVerb(&in, out);
        break;
      case State::kSkip:
        proceeds = Skip(&in);
        break;
    }
  }
  if (!broken_.ok()) {
    broken_ = broken_.WithContext(name_);
    AppendRefusal(header_.sequence, broken_, out);
    return broken_;
  }
  return available - in.size();
}

bool BatchExecutor::TakeHeader(std::span<const std::byte>* in) {
  if (in->size() < kFrameHeaderBytes) return false;
  auto header = ParseRequestHeader(in->first(kFrameHeaderBytes));
  if (!header.ok()) {
    header_.sequence = LoadLittle<uint64_t>(in->data() + 8);
    broken_ = header.status();
    return false;
  }
  header_ = *header;
  *in = in->subspan(kFrameHeaderBytes);
  state_ = State::kVerbs;
  return true;
}

bool BatchExecutor::TakeVerbs(std::span<const std::byte>* in, ByteQueue* out) {
  const size_t bytes = header_.verb_count * kFrameVerbBytes;
  if (in->size() < bytes) return false;
  verbs_.clear();
  result_bytes_ = 0;
  for (size_t i = 0; i < header_.verb_count; ++i) {
    verbs_.push_back(ParseFrameVerb(in->subspan(i * kFrameVerbBytes, kFrameVerbBytes)));
    result_bytes_ += ReplyPayloadBytes(static_cast<VerbKind>(verbs_[i].kind), verbs_[i].length);
  }
  *in = in->subspan(bytes);
  Status status = ValidateRequest(header_, verbs_, region_.size());
  if (status.code() == StatusCode::kCorruption) {
    broken_ = std::move(status);
    return false;
  }
  if (!status.ok()) {
    AppendRefusal(header_.sequence, status.WithContext(name_), out);
    skip_bytes_ = header_.frame_bytes - kFrameHeaderBytes - bytes;
    state_ = State::kSkip;
    return true;
  }
  next_verb_ = 0;
  verb_done_bytes_ = 0;
  reply_begun_ = false;
  state_ = State::kRun;
  return true;
}

bool BatchExecutor::Skip(std::span<const std::byte>* in) {
  const size_t taken = std::min<uint64_t>(skip_bytes_, in->size());
  *in = in->subspan(taken);
  skip_bytes_ -= taken;
  if (skip_bytes_ > 0) return false;
  state_ = State::kHeader;
  return true;
}

void BatchExecutor::BeginReply(ByteQueue* out) {
  if (std::exchange(reply_begun_, true)) return;
  std::byte header[kFrameHeaderBytes];
  EncodeReplyHeader(
      {static_cast<uint32_t>(kFrameHeaderBytes + result_bytes_), StatusCode::kOk, header_.sequence},
      header);
  out->Append(header);
}

bool BatchExecutor::RunVerb(std::span<const std::byte>* in, ByteQueue* out) {
  const FrameVerb& verb = verbs_[next_verb_];
  // The reply begins with the first result: a batch of WRITEs only is answered when all are done.
  bool done = false;
  switch (static_cast<VerbKind>(verb.kind)) {
    case VerbKind::kWrite:
      done = RunWrite(verb, in);
      break;
    case VerbKind::kRead:
      BeginReply(out);
      done = RunRead(verb, out);
      break;
    default:
      done = RunAtomic(verb, in, out);
      break;
  }
  if (!done) return false;
  verb_done_bytes_ = 0;
  if (++next_verb_ == verbs_.size()) {
    BeginReply(out);
    state_ = State::kHeader;
  }
  return true;
}

bool BatchExecutor::RunWrite(const FrameVerb& verb, std::span<const std::byte>* in) {
  const size_t taken = std::min<size_t>(verb.length - verb_done_bytes_, in->size() / 8 * 8);
  CopyToShared(region_.data() + verb.offset + verb_done_bytes_, in->data(), taken);
  *in = in->subspan(taken);
  verb_done_bytes_ += static_cast<uint32_t>(taken);
  return verb_done_bytes_ == verb.length;
}

bool BatchExecutor::RunRead(const FrameVerb& verb, ByteQueue* out) {
  const size_t bytes = std::min<size_t>(verb.length - verb_done_bytes_, out->room() / 8 * 8);
  CopyFromShared(out->Prepare(bytes).data(), region_.data() + verb.offset + verb_done_bytes_,
                 bytes);
  out->Commit(bytes);
  verb_done_bytes_ += static_cast<uint32_t>(bytes);
  return verb_done_bytes_ == verb.length;
}

bool BatchExecutor::RunAtomic(const FrameVerb& verb, std::span<const std::byte>* in,
                              ByteQueue* out) {
  const auto kind = static_cast<VerbKind>(verb.kind);
  const size_t operand_bytes = RequestPayloadBytes(kind, verb.length);
  if (in->size() < operand_bytes) return false;
  uint64_t old = 0;
  Verb whole{
      kind, 8, verb.offset, reinterpret_cast<std::byte*>(&old), LoadLittle<uint64_t>(in->data()),
      0};
  if (kind == VerbKind::kCompareAndSwap) whole.desired = LoadLittle<uint64_t>(in->data() + 8);
  const Status status = ExecuteVerb(whole, region_);
  FARLEAF_CHECK(status.ok(), status);  // validated with its batch
  *in = in->subspan(operand_bytes);
  BeginReply(out);
  out->Append(std::as_bytes(std::span(&old, 1)));
  return true;
}

}  // namespace farleaf::dsm
