// ServerHalf: the server's side of a ring: finds messages, takes them, and writes answers.
//
// The client can write into this side's memory at any time, whatever it likes. So each word is read once into
// private memory, checked there, and never read again: what follows goes by the private copy.
//
// Invariants:
//   - no byte outside of the two areas is read or written, whatever they hold;
//   - a message's space is zero at its rendezvous points before the client can learn, by an answer, that it may
//     use it again.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "client/ring/memory.h"
#include "dsm/base/result.h"

namespace farleaf::client::ring {

/// Where an answer, or a part of one, is to be written.
struct ReplySlot {
  uint32_t unit = 0;
  uint32_t units = 0;
  uint64_t sequence = 0;
};

/// A message that has come, as private memory has it.
struct ArrivedMessage {
  Kind kind = Kind::kWhole;
  ReplySlot reply;
  uint64_t first_unit = 0;
  uint32_t payload_bytes = 0;
};

template <typename Writer>
class ServerHalf {
 public:
  /// `requests`: this side's memory, into which the client writes; zero. `replies`: writes into the client's.
  ServerHalf(std::span<std::byte> requests, Writer replies, uint64_t reply_bytes)
      : requests_(requests),
        units_(requests.size() / kUnitBytes),
        writer_(std::move(replies)),
        reply_units_(reply_bytes / kUnitBytes) {}

  /// Whether Next would find something.
  bool Ready() const {
    return WordAt(requests_.data(), next_unit_ * kUnitBytes).load(std::memory_order_acquire) != 0;
  }

  /// The next message, which stays where it is until it is taken; nullopt: none is there. Corruption: the
  /// memory holds what no client of ours writes.
  Result<std::optional<ArrivedMessage>> Next() {
    uint64_t word = LoadRendezvous();
    if (word != 0 && MarkOf(word) == kResetMark && next_unit_ != 0) {
      ZeroRendezvousPoints(requests_, next_unit_, 1);
      next_unit_ = 0;
      word = LoadRendezvous();
    }
    if (word == 0) return std::optional<ArrivedMessage>();
    ArrivedMessage message;
    message.first_unit = next_unit_;
    message.payload_bytes = PayloadBytesOf(word);
    if (MarkOf(word) != kMessageMark || UnitsFor(message.payload_bytes) > units_ - next_unit_) {
      return Status::Corruption("a ring's message of mark " + std::to_string(MarkOf(word)) +
                                " and " + std::to_string(message.payload_bytes) +
                                " bytes at unit " + std::to_string(next_unit_) + " of " +
                                std::to_string(units_));
    }
    HeaderBytes raw;
    CopyFromShared(raw.data(), requests_.data() + next_unit_ * kUnitBytes + 8, raw.size());
    RequestHeader header;
    std::memcpy(&header, raw.data(), sizeof header);
    if (header.sequence != taken_ + 1 || header.kind < 1 || header.kind > 3) {
      return Status::Corruption("a ring's message number " + std::to_string(header.sequence) +
                                " of kind " + std::to_string(header.kind) + " behind number " +
                                std::to_string(taken_));
    }
    if (header.reply_units == 0 || header.reply_unit >= reply_units_ ||
        header.reply_units > reply_units_ - header.reply_unit) {
      return Status::Corruption("a ring's message that wants its answer at unit " +
                                std::to_string(header.reply_unit) + " of " +
                                std::to_string(reply_units_));
    }
    message.kind = static_cast<Kind>(header.kind);
    message.reply = {header.reply_unit, header.reply_units, header.sequence};
    return std::optional(message);
  }

  /// Copies payload bytes [from, from + into.size()). REQUIRES: `message` is Next's, and not taken; `from` is a
  /// multiple of 8, and the bytes are the message's.
  void Copy(const ArrivedMessage& message, size_t from, std::span<std::byte> into) const {
    CopyPayload(requests_, message.first_unit * kUnitBytes, from, into);
  }
  /// Done with it.
  void Take(const ArrivedMessage& message) {
    const uint64_t units = UnitsFor(message.payload_bytes);
    ZeroRendezvousPoints(requests_, message.first_unit, units);
    next_unit_ += units;
    if (next_unit_ == units_) next_unit_ = 0;
    ++taken_;
  }

  /// Writes as much of an answer as fits into its slot; returns how many bytes.
  size_t Reply(const ReplySlot& slot, std::span<const std::byte> answer) {
    const size_t fits = std::min<size_t>(answer.size(), slot.units * kUnitBytes - kHeaderBytes);
    const ReplyHeader header{slot.sequence, answer.size() - fits, 0};
    writer_.Publish(uint64_t{slot.unit} * kUnitBytes, BytesOf(header), answer.first(fits),
                    RendezvousWord(kMessageMark, static_cast<uint32_t>(fits)));
    return fits;
  }
  Writer& writer() { return writer_; }
  uint64_t request_bytes() const { return requests_.size(); }

 private:
  uint64_t LoadRendezvous() const {
    return WordAt(requests_.data(), next_unit_ * kUnitBytes).load(std::memory_order_acquire);
  }

  const std::span<std::byte> requests_;
  const uint64_t units_;
  Writer writer_;
  const uint64_t reply_units_;
  uint64_t next_unit_ = 0;  // the rendezvous point
  uint64_t taken_ = 0;
};

}  // namespace farleaf::client::ring
