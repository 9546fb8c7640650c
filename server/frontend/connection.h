// Connection: the server's side of a byte stream, without its socket and whatever its protocol: bytes go
// in, bytes come out. What every protocol shares is here: received blocks, output, back-pressure, failure,
// abandonment. So that a fuzzer can be the peer of any of them.
//
// Invariants:
//   - while a connection has enough to do (TooBusy) or too much waits to be sent, nothing more is begun: the
//     rest stays unparsed, and wants_input() is false, which is the peer's back-pressure;
//   - bytes handed to a protocol stay valid as long as the InputBlock that they came in;
//   - after a failure nothing more is parsed; what is queued may still be sent.
// Thread rule: one thread for life.
#pragma once

#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <boost/smart_ptr/intrusive_ref_counter.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "client/internal/socket.h"
#include "dsm/base/status.h"

namespace farleaf::server {

/// Received bytes, kept as long as a request looks at them.
class InputBlock : public boost::intrusive_ref_counter<InputBlock, boost::thread_unsafe_counter> {
 public:
  explicit InputBlock(size_t size)
      : bytes_(std::make_unique_for_overwrite<std::byte[]>(size)), size_(size) {}
  std::span<std::byte> bytes() { return {bytes_.get(), size_}; }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t size_;
};
using InputBlockRef = boost::intrusive_ptr<InputBlock>;

/// A connection's socket, which belongs to the thread that serves it.
struct Peer;

class Connection {
 public:
  explicit Connection(size_t out_bytes_max) : out_bytes_max_(out_bytes_max) {}
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;

  /// Where to put received bytes; never empty.
  std::span<std::byte> InputSpace();
  /// `count` bytes were put there. Parses, and starts what they ask for.
  void InputArrived(size_t count);
  /// Nothing more is taken from the peer.
  void InputEnded() { input_ended_ = true; }
  /// The server stops: what has come whole is answered, and nothing more is taken.
  virtual void ServerStops();
  /// The peer sends no more. Where that is in the middle of a request, it is told so, behind all answers.
  void PeerEnded();
  /// Parses on after a pause. Call when answers were given or output was sent.
  void Continue();

  std::string_view output() const { return std::string_view(out_).substr(out_sent_); }
  void OutputSent(size_t count);

  /// Whether the peer has said what its protocol wants to hear first.
  virtual bool greeted() const { return true; }
  /// Requests begun and not yet answered.
  virtual uint32_t in_flight() const = 0;
  bool wants_input() const { return !input_ended_ && failure_.ok() && !paused(); }
  /// Nothing is left to do on this connection but to close it.
  bool finished() const {
    if (!output().empty()) return false;
    return !failure_.ok() || (input_ended_ && in_flight() == 0 && !paused());
  }
  /// Why the peer is to be cut off; ok if it is not.
  const Status& failure() const { return failure_; }
  /// The socket is gone: later answers are dropped.
  void Abandon();
  /// The peer has been silent for a while: what is kept for its next requests is given back. Does nothing while
  /// there is something to do.
  virtual void GiveBackRoom();
  /// Whether that is why: the peer's stream has ended in the middle of a request.
  bool truncated() const { return truncated_; }
  /// Takes no more from the peer, as if it had sent no more.
  void Refuse(Status why) {
    if (failure_.ok()) failure_ = std::move(why);
  }

  /// Nothing more is begun, and all that was is answered: says so, if the protocol has a word for that.
  virtual bool SayGoodbye() { return false; }

  /// Whether the peer is a process of this host, on a Unix socket.
  bool peer_is_local() const { return peer_is_local_; }
  void set_peer_is_local(bool local) { peer_is_local_ = local; }
  /// To be sent with the first byte of output; not valid: none.
  client::internal::Fd& descriptor_to_send() { return descriptor_to_send_; }

  // A ring: memory shared with the peer, through which its requests come once it is open; bytes on the
  // socket only wake then, and its end is the connection's.
  virtual bool has_ring() const { return false; }
  /// Whether something has come through it.
  virtual bool RingReady() const { return false; }
  /// Takes of what has come through it, and starts what it asks for; if some is left, it is ready still.
  virtual void TakeRing() {}
  /// From now on the peer wakes this side by a byte on the socket; false: not now, something has come.
  virtual bool RingMaySleep() { return true; }
  virtual void RingAwake() {}

  Peer* peer() const { return peer_; }
  void set_peer(Peer* peer) { peer_ = peer; }

 protected:
  static constexpr size_t kKeptBytesMax = 1 << 20;

  /// Strings and vectors become empty, and keep no memory.
  template <typename... Rooms>
  static void Free(Rooms*... rooms) {
    (Rooms().swap(*rooms), ...);
  }

  /// Takes what is complete at the front of unparsed(), or fails. Returns whether it took anything.
  virtual bool TakeInput() = 0;
  /// How many bytes what stands at the front of unparsed() is known to need; 0: it is not known.
  virtual size_t BytesWanted() const = 0;
  /// Enough is in flight.
  virtual bool TooBusy() const = 0;
  /// Output was sent, or nobody waits for it any more.
  virtual void OutputHasRoom() {}
  /// Whether a request has begun that has not come whole. Asked when nothing is left that could be begun.
  virtual bool InRequest() const { return !unparsed().empty(); }
  /// Puts out, in the protocol's words, why the peer is cut off in the middle of a request.
  virtual void TellTruncated(const Status& why) = 0;

  bool output_full() const { return out_.size() - out_sent_ > out_bytes_max_; }
  bool paused() const { return TooBusy() || output_full(); }
  bool abandoned() const { return abandoned_; }
  bool input_ended() const { return input_ended_; }
  std::span<const std::byte> unparsed() const {
    return block_ ? std::span<const std::byte>(block_->bytes()).subspan(begin_, end_ - begin_)
                  : std::span<const std::byte>();
  }
  void Consume(size_t count) { begin_ += count; }
  const InputBlockRef& block() const { return block_; }
  std::string& out() { return out_; }

 private:
  void RefuseIfTruncated();

  static constexpr size_t kBlockBytes = 64 << 10;
  static constexpr size_t kSpaceBytesMin = 4 << 10;

  const size_t out_bytes_max_;
  Peer* peer_ = nullptr;
  bool peer_is_local_ = false;
  client::internal::Fd descriptor_to_send_;
  InputBlockRef block_;
  size_t begin_ = 0, end_ = 0;  // of what is unparsed in block_
  std::string out_;
  size_t out_sent_ = 0;
  bool input_ended_ = false;
  bool peer_ended_ = false;
  bool truncated_ = false;
  bool abandoned_ = false;
  bool parsing_ = false;
  Status failure_;
};

}  // namespace farleaf::server
