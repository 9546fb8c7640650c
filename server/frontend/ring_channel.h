// RingChannel: the server's end of a ring (client/ring/README.md): its memory, the answers that are being
// gathered for messages, those of which the client has asked for a part only, and how the two sides wake each
// other.
//
// Invariants:
//   - memory that is shared with the client cannot shrink, whatever it does with its descriptor (sealed);
//   - an answer is written when all requests of its message's batch are answered; what does not fit into its
//     slot is held until the client asks for it;
//   - what is taken from the ring and not yet begun is no more than the ring and one frame hold.
// Thread rule: one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/internal/socket.h"
#include "client/messages.h"
#include "client/ring/server_half.h"

namespace farleaf::server {

/// What writes into a client's reply area: a Writer of client/ring/memory.h.
class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;
  virtual void Publish(uint64_t offset, const client::ring::HeaderBytes& header,
                       std::span<const std::byte> payload, uint64_t rendezvous) = 0;
};

class RingChannel {
 public:
  struct Replies {
    std::unique_ptr<ReplyWriter> writer;
    void Publish(uint64_t offset, const client::ring::HeaderBytes& header,
                 std::span<const std::byte> payload, uint64_t rendezvous) {
      writer->Publish(offset, header, payload, rendezvous);
    }
  };
  using Half = client::ring::ServerHalf<Replies>;
  using Slot = client::ring::ReplySlot;
  using Fd = client::internal::Fd;

  /// Sizes as wanted, within `bytes_max` for each. The descriptor is for the client.
  static Result<std::unique_ptr<RingChannel>> Create(client::protocol::RingBytes wanted,
                                                     uint64_t bytes_max, Fd* descriptor);
  /// Through memory that the client's process does not share: it WRITEs into `requests`, zero, which outlives this, as over
  /// a fabric, and `replies` WRITEs into its `reply_bytes`. Neither wakes the other: both look.
  static std::unique_ptr<RingChannel> Over(std::span<std::byte> requests,
                                           std::unique_ptr<ReplyWriter> replies,
                                           uint32_t reply_bytes);
  ~RingChannel();
  RingChannel(const RingChannel&) = delete;

  client::protocol::RingBytes bytes() const { return bytes_; }
  Half& half() { return half_; }
  const Half& half() const { return half_; }

  // Frames that were taken while no more could be begun, and parts of one.
  struct Deferred {
    Slot slot;
    std::string frame;
  };
  bool has_deferred() const { return !deferred_.empty(); }
  Deferred TakeDeferred() {
    Deferred first = std::move(deferred_.front());
    deferred_.pop_front();
    deferred_bytes_ -= first.frame.size();
    return first;
  }
  /// Whether a part of a frame was taken, and not its end.
  bool assembling() const { return !assembly_.empty(); }
  /// Takes the message's payload behind what has been assembled, and with it, if it is the last part, puts the
  /// frame among the deferred. Returns whether the client is to be woken.
  Result<bool> TakeAside(const client::ring::ArrivedMessage& message, size_t frame_bytes_max);

  /// The message that is being parsed has its answer there.
  void ExpectFrame(const Slot& slot) { expected_ = slot; }

  /// Of the frame expected, a batch of so many requests; nullopt: none is expected.
  std::optional<uint32_t> BeginReply(uint32_t requests);
  std::string& BytesOf(uint32_t reply) { return replies_[reply].bytes; }
  /// `count` more of its requests are answered, or refused; the last one sends it. Returns whether the client is
  /// to be woken.
  bool Answered(uint32_t reply, uint32_t count);
  /// The client asks for more of an answer. Returns whether it is to be woken.
  Result<bool> Continue(const client::ring::ArrivedMessage& message);
  uint64_t held_bytes() const { return held_bytes_; }
  /// If no answer is being made: what is kept for the next ones.
  void GiveBackRoom();

  bool MaySleep();
  void Awake() {
    if (memory_ != nullptr) SleepWord(client::ring::kServerSleepsAt).store(0);
  }

 private:
  struct Reply {
    Slot slot;
    uint32_t left = 0;
    std::string bytes;
  };
  struct Held {
    std::string bytes;
    size_t sent = 0;
  };
  static constexpr size_t kKeptBytesMax = 4 << 10;

  RingChannel(std::byte* memory, client::protocol::RingBytes bytes, std::span<std::byte> requests,
              std::unique_ptr<ReplyWriter> replies);
  std::atomic_ref<uint64_t> SleepWord(size_t at) { return client::ring::WordAt(memory_, at); }
  /// Whether the client sleeps, as far as an answer that was just written can tell.
  bool ToWake();

  std::byte* const memory_;  // the mapping that is shared with the client; null: none is
  const client::protocol::RingBytes bytes_;
  Half half_;
  std::deque<Deferred> deferred_;
  size_t deferred_bytes_ = 0;
  std::string assembly_;
  std::optional<Slot> expected_;
  std::vector<Reply> replies_;
  std::vector<uint32_t> free_replies_;
  std::map<uint64_t, Held> held_;  // by the sequence of the message that is answered
  uint64_t held_bytes_ = 0;
};

}  // namespace farleaf::server
