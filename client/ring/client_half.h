// ClientHalf: the client's side of a ring. It allots the space of both areas, sends frames and takes answers.
//
// A frame is sent as one message, or in parts if it is longer than half of the request area. Its answer is
// delivered whole, and answers in such an order that one that was written before another is delivered before it,
// unless its message was sent behind.
//
// Invariants:
//   - a unit of either area belongs to at most one message that is not answered; space is taken again in the
//     order in which it was given (a reset's belongs to the message behind it);
//   - what the memory says is read once and checked before it is used.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "client/ring/memory.h"
#include "dsm/base/bytes.h"
#include "dsm/base/result.h"

namespace farleaf::client::ring {

/// Units of a circular area, given and taken in turn.
class UnitSpace {
 public:
  explicit UnitSpace(uint64_t units) : units_(units) {}
  struct Given {
    uint64_t first = 0;
    uint64_t count = 0;    ///< from `first`
    uint64_t skipped = 0;  ///< before that, at the area's end
  };
  /// `count` units in a row, to be had with Give; nullopt: not now. As many as half of all are there when
  /// nothing is given.
  std::optional<Given> Find(uint64_t count) const {
    const uint64_t to_end = units_ - next_;
    const uint64_t skipped = count > to_end ? to_end : 0;
    if (used_ + skipped + count > units_) return std::nullopt;
    return Given{skipped > 0 ? 0 : next_, count, skipped};
  }
  void Give(const Given& found) {
    used_ += found.skipped + found.count;
    next_ = found.first + found.count == units_ ? 0 : found.first + found.count;
  }
  /// Of those given, the ones given first. REQUIRES: they were given.
  void TakeBack(const Given& given) { used_ -= given.count + given.skipped; }
  uint64_t units() const { return units_; }
  uint64_t next() const { return next_; }

 private:
  const uint64_t units_;
  uint64_t next_ = 0;
  uint64_t used_ = 0;
};

template <typename Writer>
class ClientHalf {
 public:
  /// `replies`: this side's memory, into which the server writes; zero. `requests`: writes into the server's,
  /// which has `request_bytes`, zero. Areas are whole units.
  ClientHalf(Writer requests, uint64_t request_bytes, std::span<std::byte> replies)
      : writer_(std::move(requests)),
        replies_(replies),
        request_space_(request_bytes / kUnitBytes),
        reply_space_(replies.size() / kUnitBytes) {}

  /// Sends a frame, or as many parts of it as there is room for. Returns whether all of it is sent; if not, to
  /// be called again with the same frame when answers have been taken. `answers`: how many answers the frame
  /// asks for, a guess.
  bool Send(std::span<const std::byte> frame, uint32_t answers) {
    const size_t payload_max = (request_space_.units() / 2) * kUnitBytes - kHeaderBytes;
    while (frame.size() - sent_of_frame_ > payload_max) {
      const auto part = frame.subspan(sent_of_frame_, payload_max / 8 * 8);
      if (!SendMessage(Kind::kPart, part, 1, 0)) return false;
      sent_of_frame_ += part.size();
    }
    if (!SendMessage(Kind::kWhole, frame.subspan(sent_of_frame_), ReplyUnits(answers), 0)) {
      return false;
    }
    sent_of_frame_ = 0;
    return true;
  }

  /// Appends the frames of answers that have come to `out`, and asks for the rest of those that did not fit.
  /// Returns whether anything has come. Corruption: the memory holds what no server of ours writes.
  Result<bool> Receive(std::string* out) {
    SendContinuations();
    const size_t newest = FindNewestReady(outstanding_.size());
    if (newest == kNone) return false;
    // Again: what was written before that answer is seen now.
    for (size_t i = 0; i <= newest; ++i) {
      if (outstanding_[i].answered) continue;
      const uint64_t word = LoadRendezvous(outstanding_[i]);
      if (word == 0) continue;
      FARLEAF_RETURN_IF_ERROR(TakeReply(outstanding_[i], word, out));
    }
    while (!outstanding_.empty() && outstanding_.front().answered) {
      request_space_.TakeBack(outstanding_.front().request);
      reply_space_.TakeBack(outstanding_.front().reply);
      outstanding_.pop_front();
    }
    SendContinuations();
    return true;
  }
  /// Whether Receive would find something.
  bool Ready() const { return FindNewestReady(outstanding_.size()) != kNone; }
  size_t outstanding() const { return outstanding_.size(); }
  Writer& writer() { return writer_; }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  static constexpr uint64_t kGuessBytesFirst = 512;
  static constexpr uint64_t kAnswerBytesMax = uint64_t{1} << 32;

  struct Message {
    uint64_t sequence = 0;
    uint64_t continues = 0;  ///< the message whose answer it asks for more of; 0: none
    UnitSpace::Given request, reply;
    bool answered = false;
  };
  struct Continuation {
    uint64_t sequence = 0;  ///< of the message that the answer is to
    uint64_t rest_bytes = 0;
  };

  /// What answers took of late, with some room.
  uint64_t ReplyUnits(uint32_t answers) const {
    return std::min(UnitsFor(uint64_t{std::max(answers, 1u)} * answer_bytes_),
                    reply_space_.units() / 4);
  }
  bool SendMessage(Kind kind, std::span<const std::byte> payload, uint64_t reply_units,
                   uint64_t continues) {
    const auto reply = reply_space_.Find(reply_units);
    const auto request = request_space_.Find(UnitsFor(payload.size()));
    if (!reply || !request) return false;
    if (request->skipped > 0) {
      writer_.Publish(request_space_.next() * kUnitBytes, HeaderBytes{}, {},
                      RendezvousWord(kResetMark, 0));
    }
    reply_space_.Give(*reply);
    request_space_.Give(*request);
    const RequestHeader header{static_cast<uint32_t>(reply->first),
                               static_cast<uint32_t>(reply->count), ++sequence_,
                               static_cast<uint64_t>(kind)};
    outstanding_.push_back({sequence_, continues, *request, *reply, false});
    writer_.Publish(request->first * kUnitBytes, BytesOf(header), payload,
                    RendezvousWord(kMessageMark, static_cast<uint32_t>(payload.size())));
    return true;
  }

  uint64_t LoadRendezvous(const Message& message) const {
    return WordAt(replies_.data(), message.reply.first * kUnitBytes)
        .load(std::memory_order_acquire);
  }
  size_t FindNewestReady(size_t below) const {
    for (size_t i = below; i > 0; --i) {
      const Message& message = outstanding_[i - 1];
      if (!message.answered && LoadRendezvous(message) != 0) return i - 1;
    }
    return kNone;
  }

  Status TakeReply(Message& message, uint64_t word, std::string* out) {
    const uint64_t offset = message.reply.first * kUnitBytes;
    const uint64_t payload_bytes = PayloadBytesOf(word);
    if (MarkOf(word) != kMessageMark || UnitsFor(payload_bytes) > message.reply.count) {
      return Status::Corruption("a ring's answer of " + std::to_string(payload_bytes) +
                                " bytes where " + std::to_string(message.reply.count) +
                                " units were given");
    }
    ReplyHeader header;
    HeaderBytes raw;
    CopyFromShared(raw.data(), replies_.data() + offset + 8, raw.size());
    std::memcpy(&header, raw.data(), sizeof header);
    if (header.sequence != message.sequence) {
      return Status::Corruption("a ring's answer to message " + std::to_string(header.sequence) +
                                " in the place of that to " + std::to_string(message.sequence));
    }
    const uint64_t origin = message.continues != 0 ? message.continues : message.sequence;
    const auto begun = assembling_.find(origin);
    std::string* const into = begun != assembling_.end() ? &begun->second
                              : header.rest_bytes > 0    ? &assembling_[origin]
                                                         : out;
    const size_t before = into->size();
    into->resize(before + payload_bytes);
    CopyPayload(replies_, offset, 0,
                std::as_writable_bytes(std::span(*into)).subspan(before, payload_bytes));
    ZeroRendezvousPoints(replies_, message.reply.first, UnitsFor(payload_bytes));
    message.answered = true;
    if (header.rest_bytes > kAnswerBytesMax || into->size() > kAnswerBytesMax) {
      return Status::Corruption("a ring's answer without end");
    }
    const uint64_t whole_bytes = into->size() - (into == out ? before : 0) + header.rest_bytes;
    answer_bytes_ = std::max(whole_bytes, answer_bytes_ - answer_bytes_ / 16);
    if (header.rest_bytes > 0) {
      if (payload_bytes == 0) return Status::Corruption("a ring's answer that does not go on");
      continuations_.push_back({origin, header.rest_bytes});
    } else if (into != out) {
      out->append(*into);
      assembling_.erase(origin);
    }
    return Status::Ok();
  }

  void SendContinuations() {
    while (!continuations_.empty()) {
      const Continuation& next = continuations_.front();
      char payload[8];
      StoreLittle(payload, next.sequence);
      const uint64_t units = std::min(UnitsFor(next.rest_bytes), reply_space_.units() / 2);
      if (!SendMessage(Kind::kContinue, AsBytes(std::string_view(payload, 8)), units,
                       next.sequence)) {
        return;
      }
      continuations_.pop_front();
    }
  }

  Writer writer_;
  const std::span<std::byte> replies_;
  UnitSpace request_space_, reply_space_;
  uint64_t sequence_ = 0;
  std::deque<Message> outstanding_;  // in the order in which they were sent
  std::deque<Continuation> continuations_;
  std::map<uint64_t, std::string>
      assembling_;  // answers that come in parts, by their message's sequence
  size_t sent_of_frame_ = 0;
  uint64_t answer_bytes_ = kGuessBytesFirst;
};

}  // namespace farleaf::client::ring
