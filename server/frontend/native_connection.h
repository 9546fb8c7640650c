// NativeConnection: the server's side of the native protocol on one connection, without its socket:
// bytes go in, requests come out; answers go in, bytes come out. So that a fuzzer can be the peer.
//
// Invariants:
//   - at most `in_flight_max` requests are started and unanswered, and no request is started while
//     more than `out_bytes_max` bytes wait to be sent: the rest stays unparsed, and wants_input()
//     is false, which is the peer's back-pressure;
//   - a request's views stay valid as long as the InputBlock that it came with;
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

#include "client/protocol.h"
#include "dsm/base/status.h"

namespace farleaf::server {

namespace protocol = client::protocol;

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

class NativeConnection {
 public:
  struct Limits {
    uint32_t in_flight_max = 1024;
    size_t out_bytes_max = size_t{4} << 20;
  };
  /// Whoever runs the requests.
  class Runner {
   public:
    virtual ~Runner() = default;
    virtual protocol::ServerHello Hello() = 0;
    /// Runs the request and calls Answer once, now or later.
    virtual void StartRequest(NativeConnection& connection, InputBlockRef block,
                              protocol::Request request) = 0;
  };

  NativeConnection(Runner* runner, Limits limits) : runner_(runner), limits_(limits) {}

  /// Where to put received bytes; never empty.
  std::span<std::byte> InputSpace();
  /// `count` bytes were put there. Parses, and starts requests.
  void InputArrived(size_t count);
  /// The peer sends no more.
  void InputEnded() { input_ended_ = true; }
  /// Parses on after a pause. Call when answers were given or output was sent.
  void Continue();

  void Answer(const protocol::Response& response) {
    --in_flight_;
    if (!abandoned_) AppendResponse(response, &out_);
  }

  std::string_view output() const { return std::string_view(out_).substr(out_sent_); }
  void OutputSent(size_t count);

  bool greeted() const { return greeted_; }
  bool wants_input() const { return !input_ended_ && failure_.ok() && !paused(); }
  /// Nothing is left to do on this connection but to close it.
  bool finished() const {
    if (!output().empty()) return false;
    return !failure_.ok() || (input_ended_ && in_flight_ == 0 && !paused());
  }
  /// Why the peer is to be cut off; ok if it is not.
  const Status& failure() const { return failure_; }
  uint32_t in_flight() const { return in_flight_; }
  /// The socket is gone: later answers are dropped.
  void Abandon() {
    abandoned_ = true;
    out_.clear();
    out_sent_ = 0;
  }
  /// Takes no more from the peer, as if it had sent no more.
  void Refuse(Status why) {
    if (failure_.ok()) failure_ = std::move(why);
  }

 private:
  static constexpr size_t kBlockBytes = 64 << 10;
  static constexpr size_t kSpaceBytesMin = 4 << 10;
  static constexpr size_t kKeptBytesMax = 1 << 20;

  bool paused() const {
    return in_flight_ >= limits_.in_flight_max || out_.size() - out_sent_ > limits_.out_bytes_max;
  }
  std::span<const std::byte> unparsed() const {
    return block_ ? std::span<const std::byte>(block_->bytes()).subspan(begin_, end_ - begin_)
                  : std::span<const std::byte>();
  }
  void TakeHello(std::span<const std::byte> body);
  void TakeRequest(std::span<const std::byte> body);

  Runner* const runner_;
  const Limits limits_;
  InputBlockRef block_;
  size_t begin_ = 0, end_ = 0;  // of what is unparsed in block_
  std::string out_;
  size_t out_sent_ = 0;
  uint32_t in_flight_ = 0;
  bool greeted_ = false;
  bool input_ended_ = false;
  bool abandoned_ = false;
  bool parsing_ = false;
  Status failure_;
};

}  // namespace farleaf::server
